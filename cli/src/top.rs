//! `pillion top`: the GPUs and jobs of this machine, live. One thread asks the daemons once a
//! second and sends their answers; this one draws and reads keys, so that a silent daemon delays no
//! key. Changes to a job run `pillion stop` and `pillion set` as processes, with their rules and
//! messages. The terminal is restored at the end, after a panic, and before death by a signal.

mod model;
mod screen;
mod view;

#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::model::Model;
use self::view::{Todo, View};
use crate::failure::Failure;
use crate::run::every_socket;
use crate::status;

/// Shows the GPUs of this machine and their jobs, live.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion top\n\n\
                  Keys: q quits, arrows select a job, T stops it, s sets its memory, compute or target, f filters, \
                  , and . choose the column to sort by, / reverses, h shows all keys. The command needs a terminal; \
                  `pillion status --watch` does not.")]
pub(crate) struct Options {}

/// Poll interval for the daemons.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Poll interval for keys, signals and answers.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Exits 2 without a terminal.
pub(crate) fn run(_options: &Options) -> Result<(), Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let error = anyhow!(
            "`pillion top` needs a terminal on standard input and output; `pillion status --watch` does not"
        );
        return Err(Failure::usage(error));
    }
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize)
            .context("cannot handle signals")?;
    }
    with_terminal(|terminal| show(terminal, &signal))??;
    let number = signal.load(Ordering::Relaxed) as i32;
    if number != 0 {
        // Ends as by an unhandled signal, so that the exit status shows it.
        signal_hook::low_level::emulate_default_handler(number)
            .context("cannot end with the status of the signal")?;
    }
    Ok(())
}

fn with_terminal<T>(show: impl FnOnce(&mut DefaultTerminal) -> T) -> anyhow::Result<T> {
    // `try_init` has the panic hook restore the terminal.
    let mut terminal = ratatui::try_init().context("cannot prepare the terminal")?;
    let shown = show(&mut terminal);
    ratatui::restore();
    Ok(shown)
}

enum News {
    /// All daemons, as in `status --json`.
    Answers(Value),
    Done(String),
}

fn show(terminal: &mut DefaultTerminal, signal: &AtomicUsize) -> anyhow::Result<()> {
    let (news, told) = channel();
    let (refresh, asked) = channel();
    let answers = news.clone();
    std::thread::Builder::new()
        .name("pillion-top-ask".to_owned())
        .spawn(move || keep_asking(&answers, &asked))
        .context("cannot start a thread")?;
    let (mut model, mut view) = (Model::default(), View::default());
    while signal.load(Ordering::Relaxed) == 0 {
        for news in told.try_iter() {
            match news {
                News::Answers(answers) => model.handle_answers(&answers),
                News::Done(message) => view.message = message,
            }
        }
        let now = time_of_day();
        terminal
            .draw(|frame| screen::draw(frame, &model, &view, &now))
            .context("cannot draw")?;
        if !event::poll(LOOK_EVERY).context("cannot wait for a key")? {
            continue;
        }
        let Event::Key(key) = event::read().context("cannot read a key")? else {
            continue;
        };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match view.handle_key(key, &model) {
            Todo::Nothing => {}
            Todo::Quit => break,
            // If the receiver is gone, that thread has ended, and so have its answers.
            Todo::Refresh => drop(refresh.send(())),
            Todo::Run(arguments) => {
                view.message = format!("pillion {} …", arguments.join(" "));
                start(arguments, news.clone());
            }
        }
    }
    Ok(())
}

fn keep_asking(answers: &Sender<News>, asked: &Receiver<()>) {
    while answers.send(News::Answers(ask_all())).is_ok() {
        match asked.recv_timeout(ASK_EVERY) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn ask_all() -> Value {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    let sockets = named.map_or_else(every_socket, |path| vec![path]);
    let (mut daemons, mut silent) = (Vec::new(), Vec::new());
    for socket in sockets {
        match status::ask(&socket) {
            Ok(status) => daemons.push(status),
            Err(error) => silent.push(json!({
                "socket": socket.display().to_string(),
                "error": error.to_string(),
            })),
        }
    }
    json!({"daemons": daemons, "silent": silent})
}

/// Runs this program with other arguments, and reports its last line.
fn start(arguments: Vec<String>, news: Sender<News>) {
    let run = move || {
        let message = said_by(&arguments).unwrap_or_else(|error| format!("pillion: {error}"));
        // Nobody receives it after the end.
        let _ = news.send(News::Done(message));
    };
    let thread = std::thread::Builder::new().name("pillion-top-do".to_owned());
    // Without a thread nothing happens, and the row keeps saying that it is in progress.
    drop(thread.spawn(run));
}

fn said_by(arguments: &[String]) -> std::io::Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::null());
    let ended = command.output()?;
    let said = match ended.status.success() {
        true => ended.stdout,
        false => ended.stderr,
    };
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Ok(last.unwrap_or("done").trim().to_owned())
}

fn time_of_day() -> String {
    let here = Timestamp::now().to_zoned(TimeZone::system());
    here.strftime("%H:%M:%S").to_string()
}
