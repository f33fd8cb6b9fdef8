//! `pillion events`: what happened on the GPUs of this machine, as their daemons keep it.
//!
//! A daemon answers with one JSON document; `--json` hands it on. To follow, it is asked again twice a second: nothing is held open
//! in a daemon, and one that is started anew, whose numbers begin anew, is noticed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use protocol::clock::Clock;
use protocol::hello::{HelloError, ask_events};
use serde_json::{Value, json};

use crate::daemons::PATIENCE;
use crate::failure::Failure;
use crate::out;
use crate::run::every_socket;

/// Shows what happened: faults, what was done about them, jobs that came and went.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion events --follow\n\n\
                  Events of jobs are shown to their user and to root. A daemon keeps the last few thousand, and all of them are in \
                  its log. With --json and --follow each event is a document of its own, on a line.")]
pub(crate) struct Options {
    /// JSON instead of lines.
    #[arg(long)]
    json: bool,
    /// Goes on with what happens from now on, until it is interrupted.
    #[arg(long)]
    follow: bool,
    /// Only those after this number. Numbers begin anew with each daemon (JSON: `daemon_started_ns`).
    #[arg(long, value_name = "N", default_value_t = 0)]
    since: u64,
}

/// Between two questions to a daemon that is followed, ns.
const FOLLOW_NS: u64 = 500_000_000;

/// Exit 69 if `PILLION_SOCKET` names a daemon that does not answer, or with `--follow` if none does at first.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let answers = ask_all(|_| options.since)?;
    if options.follow {
        return follow(options, answers);
    }
    if options.json {
        let (mut daemons, mut silent) = (Vec::new(), Vec::new());
        for (socket, answer) in answers {
            match answer {
                Ok(document) => daemons.push(document),
                Err(error) => silent.push(json!({
                    "socket": socket.display().to_string(),
                    "error": error.to_string(),
                })),
            }
        }
        let all = json!({"schema_version": 1, "daemons": daemons, "silent": silent});
        return out::line(format_args!("{all}"));
    }
    if answers.is_empty() {
        return out::line(format_args!("no daemon is running"));
    }
    let is_several = answers.len() > 1;
    for (socket, answer) in answers {
        match answer {
            Ok(document) => {
                if is_several {
                    out::line(format_args!("{}:", text_of(&document["gpu"])))?;
                }
                say_lost(&document, options.since)?;
                say_renumbered(&document, options.since);
                for event in events_of(&document) {
                    print(&event, None)?;
                }
            }
            Err(error) => {
                let socket = socket.display();
                out::line(format_args!("{socket}: no daemon answers: {error}"))?;
            }
        }
    }
    Ok(())
}

type Answers = Vec<(PathBuf, Result<Value, HelloError>)>;

/// Asks each daemon for what came after the number that `since` says for it.
fn ask_all(since: impl Fn(&Path) -> u64) -> Result<Answers, Failure> {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    let sockets = named.clone().map_or_else(every_socket, |path| vec![path]);
    let mut answers = Vec::new();
    for socket in sockets {
        let answer = ask(&socket, since(&socket));
        if let (Err(error), Some(_)) = (&answer, &named) {
            let error = anyhow!("no daemon answers at {}: {error}", socket.display());
            return Err(Failure::unavailable(error));
        }
        answers.push((socket, answer));
    }
    Ok(answers)
}

fn ask(socket: &Path, since: u64) -> Result<Value, HelloError> {
    let text = ask_events(socket, since, PATIENCE)?;
    let mut document: Value = serde_json::from_str(&text)
        .map_err(|_| HelloError::Malformed("the events are not JSON"))?;
    document["socket"] = json!(socket.display().to_string());
    Ok(document)
}

/// What was seen of a daemon: which it is, and the number of the last event.
type Seen = BTreeMap<PathBuf, (Value, u64)>;

/// Which daemon has answered: in a container each may have the process id of the one before.
fn whose(document: &Value) -> Value {
    json!([document["daemon_pid"], document["daemon_started_ns"]])
}

/// Prints events as they come, of all daemons.
fn follow(options: &Options, first: Answers) -> Result<(), Failure> {
    if first.iter().all(|(_, answer)| answer.is_err()) {
        return Err(Failure::unavailable(anyhow!("no daemon answers")));
    }
    let clock = Clock::monotonic();
    let mut seen = Seen::new();
    let mut answers = first;
    loop {
        for (socket, answer) in answers {
            let Ok(mut document) = answer else { continue };
            let before = seen.get(&socket).map(|(whose, _)| whose.clone());
            if before.is_some_and(|before| before != whose(&document)) {
                // Another daemon: its first events may have lower numbers than what was asked for.
                match ask(&socket, 0) {
                    Ok(all) => document = all,
                    Err(_) => continue,
                }
            }
            for event in events_of(&document) {
                print(&event, Some(&document).filter(|_| options.json))?;
            }
            let last = document["last_seq"].as_u64().unwrap_or(0);
            seen.insert(socket, (whose(&document), last));
        }
        clock.sleep_until(clock.now_ns() + FOLLOW_NS);
        let last = |socket: &Path| seen.get(socket).map_or(0, |(_, last)| *last);
        // A daemon that is gone for now may come back.
        answers = ask_all(last).unwrap_or_default();
    }
}

fn events_of(document: &Value) -> Vec<Value> {
    document["events"].as_array().cloned().unwrap_or_default()
}

/// Says how much is missing at the beginning.
fn say_lost(document: &Value, since: u64) -> Result<(), Failure> {
    match document["fell_out"].as_u64() {
        Some(lost @ 1..) if since == 0 => out::line(format_args!(
            "({lost} older events are in the daemon's log only)"
        )),
        _ => Ok(()),
    }
}

/// Says that no event has that number yet: the daemon is another one than the number was of.
fn say_renumbered(document: &Value, since: u64) {
    if let Some(last) = document["last_seq"].as_u64().filter(|&last| last < since) {
        out::note(format_args!(
            "pillion: nothing after {since}: the last event of this daemon is number {last}; numbers begin anew with each daemon"
        ));
    }
}

/// One line: for people, or a document of its own that says whose daemon it is from.
fn print(event: &Value, from: Option<&Value>) -> Result<(), Failure> {
    if let Some(document) = from {
        let mut event = event.clone();
        event["schema_version"] = document["schema_version"].clone();
        event["gpu"] = document["gpu"].clone();
        return out::line(format_args!("{event}"));
    }
    out::line(format_args!(
        "{}  {:>4}  {:<7}  {:<15}  {}",
        time_of(event["at_unix_ms"].as_i64().unwrap_or(0)),
        event["seq"],
        text_of(&event["severity"]),
        text_of(&event["kind"]),
        text_of(&event["text"]),
    ))
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or("N/A")
}

/// The time of day here.
pub(crate) fn time_of(unix_ms: i64) -> String {
    let Ok(time) = Timestamp::from_millisecond(unix_ms) else {
        return "N/A".to_owned();
    };
    let here = time.to_zoned(TimeZone::system());
    here.strftime("%Y-%m-%d %H:%M:%S%.3f%:z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_another_one_also_with_the_process_id_of_the_one_before() {
        let document = |pid, started| json!({"daemon_pid": pid, "daemon_started_ns": started, "last_seq": pid});
        assert_eq!(whose(&document(7, 1)), whose(&document(7, 1)));
        assert_ne!(whose(&document(7, 1)), whose(&document(7, 2)));
        assert_ne!(whose(&document(7, 1)), whose(&document(8, 1)));
    }

    #[test]
    fn a_time_of_day_has_its_distance_from_utc() {
        let told = time_of(1_763_800_000_123);
        let (time, zone) = told.split_at(23);
        assert!(
            time.starts_with("2025-11-2") && time.ends_with(".123"),
            "{told}"
        );
        assert!(zone.len() == 6 && zone.contains(':'), "{told}");
        assert_eq!(time_of(i64::MAX), "N/A");
    }
}
