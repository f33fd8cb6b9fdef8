//! `pillion status`: shows GPUs and jobs, and whether latency targets are kept. The daemon answers
//! with one JSON document per GPU, which `--json` prints unchanged. People get a line per GPU and
//! per job that fits the terminal (`overview`), and the details of one job or GPU (`explain`).

mod control;
mod device;
mod explain;
mod figures;
mod grid;
mod hold;
mod live;
mod mps;
mod overview;
mod probe;
mod sharing;
mod text;
mod users;
mod warnings;

#[cfg(test)]
mod captures;

pub(crate) use device::stands;
pub(crate) use hold::for_faults;
pub(crate) use probe::line as probe;
pub(crate) use sharing::{shared, trouble};
pub(crate) use text::{width, wrap};

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use protocol::hello::{HelloError, ask_status, ask_status_within};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::out;
use crate::run::every_socket;
use live::Screen;

/// Shows GPUs and jobs: whether requests meet their target, the progress of best-effort jobs, and
/// processes that use the GPU without Pillion.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Show all details of one job, by its id, or of one GPU, by its UUID (its first 8 characters
    /// will do).
    #[arg(long, value_name = "JOB|GPU", conflicts_with = "json")]
    explain: Option<String>,

    /// Also show jobs that have ended, the GPU time of each job, and the GPU time of each user (of
    /// all its jobs, even if they are no longer listed).
    #[arg(long)]
    all: bool,

    /// Repeat once a second, until interrupted.
    #[arg(long)]
    watch: bool,

    /// Print a JSON document instead of tables; with --watch one a second, each on one line.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "Example: pillion status --explain serve
         pillion status --watch
         pillion status --json | jq '.daemons[].jobs'

Lines are as wide as the terminal. Without a terminal they have COLUMNS columns, or 100. Columns
that do not fit are left out, the least important first.

HP P50, HP P99, TARGET and WITHIN (the share of the requests within the target) cover the last
minute; a GPU shows the high-priority job that meets its target worst. BE SHARE: the average rate of
best-effort jobs relative to their rate alone; with <, an upper bound. UNMANAGED: processes that use
the GPU without Pillion. HELD BY: the rule that held a best-effort job longest in its last seconds.
`-`: none; N/A: unknown.";

#[derive(Debug, Default)]
struct Seen {
    daemons: Vec<Value>,
    /// Sockets where no daemon answers, with the reason.
    silent: Vec<(String, String)>,
}

/// Exits 69 only if `PILLION_SOCKET` names a silent daemon; 1 if none knows what to explain.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let first = gather()?;
    if options.json && options.watch {
        let mut next = Some(first);
        return live::every_second(|| print_json(&next.take().unwrap_or_else(gather_anyway)));
    }
    if options.json {
        return print_json(&first);
    }
    if options.watch {
        let mut next = Some(first);
        return live::watch(|columns| {
            lines(&next.take().unwrap_or_else(gather_anyway), options, columns)
        });
    }
    for line in lines(&first, options, Screen::now().columns)? {
        out::line(format_args!("{line}"))?;
    }
    Ok(())
}

fn lines(seen: &Seen, options: &Options, columns: usize) -> Result<Vec<String>, Failure> {
    let seen = Seen {
        daemons: seen.daemons.iter().map(legible).collect(),
        silent: seen.silent.clone(),
    };
    match &options.explain {
        Some(name) if !seen.is_empty() => explain::lines(&seen, name, columns),
        _ => Ok(overview::lines(&seen, options.all, columns)),
    }
}

fn print_json(seen: &Seen) -> Result<(), Failure> {
    let silent = seen.silent.iter();
    let silent: Vec<_> = silent
        .map(|(socket, error)| json!({"socket": socket, "error": error}))
        .collect();
    let daemons = &seen.daemons;
    out::line(format_args!(
        "{}",
        json!({"schema_version": 1, "daemons": daemons, "silent": silent})
    ))
}

impl Seen {
    fn is_empty(&self) -> bool {
        self.daemons.is_empty() && self.silent.is_empty()
    }
}

/// Asks the daemon that `PILLION_SOCKET` names, which must answer, else all.
fn gather() -> Result<Seen, Failure> {
    let is_named = std::env::var_os("PILLION_SOCKET").is_some();
    let seen = gather_anyway();
    match seen.silent.first().filter(|_| is_named) {
        Some((socket, error)) => {
            let error = anyhow!("no daemon answers at {socket}: {error}");
            Err(Failure::unavailable(error))
        }
        None => Ok(seen),
    }
}

/// [`gather`] that tolerates a silent daemon: it may come back.
fn gather_anyway() -> Seen {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    let sockets = named.map_or_else(every_socket, |path| vec![path]);
    let mut seen = Seen::default();
    for socket in sockets {
        match ask(&socket) {
            Ok(status) => seen.daemons.push(status),
            Err(error) => {
                let socket = socket.display().to_string();
                seen.silent.push((socket, error.to_string()));
            }
        }
    }
    seen
}

fn live_jobs(status: &Value) -> impl Iterator<Item = &Value> {
    let jobs = status["jobs"].as_array().into_iter().flatten();
    jobs.filter(|job| job["ended_ns"].is_null())
}

/// The width for lines: the terminal's, or `COLUMNS`; none if both are unknown.
pub(crate) fn columns_given() -> Option<usize> {
    Screen::columns_given()
}

pub(crate) fn ask_within(
    socket: &std::path::Path,
    patience: Duration,
) -> Result<Value, HelloError> {
    let status = ask_status_within(socket, patience)?;
    serde_json::from_str(&status).map_err(|_| HelloError::Malformed("the status is not JSON"))
}

/// The values in force that `pillion set` changes; a line for each user's job of that id.
pub(crate) fn in_force(status: &Value, id: &str) -> Vec<String> {
    let jobs = live_jobs(status).filter(|job| job["job"] == id);
    let jobs: Vec<&Value> = jobs.collect();
    let are_of_several = jobs.iter().any(|job| job["uid"] != jobs[0]["uid"]);
    let lines = jobs.iter().copied().map(|job| {
        let memory = &job["memory"];
        let quota = bytes(&memory["quota_bytes"], "unlimited");
        let memory = memory.is_object().then(|| format!("memory {quota}"));
        let parts: Vec<String> = memory
            .into_iter()
            .chain(control::slo(job))
            .chain(control::cap(job))
            .chain(control::promise_in_full(job))
            .collect();
        let mut line = format!("job {id}, {}", job["class"].as_str().unwrap_or("N/A"));
        if are_of_several {
            line.push_str(&format!(" of user {}", job["uid"]));
        }
        match parts.is_empty() {
            true => line,
            false => format!("{line}: {}", parts.join("; ")),
        }
    });
    lines.collect()
}

pub(crate) fn ask(socket: &std::path::Path) -> Result<Value, HelloError> {
    let mut status: Value = serde_json::from_str(&ask_status(socket)?)
        .map_err(|_| HelloError::Malformed("the status is not JSON"))?;
    status["socket"] = json!(socket.display().to_string());
    Ok(status)
}

/// Makes a document safe for a terminal: names of jobs and programs may move the cursor, or reverse
/// the rest of the line.
fn legible(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let one = |c: char| if is_legible(c) { c } else { '\u{fffd}' };
            Value::String(text.chars().map(one).collect())
        }
        Value::Array(items) => items.iter().map(legible).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            Value::Object(
                fields
                    .map(|(name, value)| (name.clone(), legible(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// No control character, none that changes the direction of text or the previous character's look,
/// and no joiner.
fn is_legible(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
    );
    !c.is_control() && !is_format
}

/// The known part of the job's kernels, if it has launched; rounded down, so that 100 % means all.
fn known(job: &Value) -> Option<String> {
    let known_pct = job["gpu_time_known_pct"].as_f64()?.floor();
    let classed_pct = job["gpu_time_classed_pct"].as_f64()?.floor();
    Some(format!(
        "expected durations known for {known_pct:.0} % of its GPU time, classes for {classed_pct:.0} %"
    ))
}

/// The source of a high-priority job's requests; none for jobs without requests.
fn requests(job: &Value) -> Option<String> {
    let said = match job["requests_source"].as_str()? {
        "marks" => "the program marks its requests",
        "nvtx" => "NVTX ranges mark its requests",
        _ => "requests are inferred from launches",
    };
    let count = |name: &str| job["totals"][name].as_u64().filter(|&count| count > 0);
    let marked =
        count("requests_marked").map(|marked| format!(", {marked} marked requests have ended"));
    let refused = count("marks_refused").map(|refused| format!(", {refused} marks were refused"));
    let [marked, refused] = [marked, refused].map(Option::unwrap_or_default);
    Some(format!("{said}{marked}{refused}"))
}

/// Bytes in MiB or GiB; `none` if there is no number.
fn bytes(value: &Value, none: &str) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let Some(bytes) = value.as_u64() else {
        return none.to_owned();
    };
    let mib = bytes as f64 / MIB;
    if mib < 1024.0 {
        format!("{mib:.1} MiB")
    } else {
        format!("{:.2} GiB", mib / 1024.0)
    }
}

/// The notes of a job's clients about a profile that was measured elsewhere, each once.
fn profile_fits(job: &Value) -> Vec<&str> {
    let clients = job["clients"]
        .as_array()
        .map_or([].as_slice(), Vec::as_slice);
    let said = clients
        .iter()
        .filter_map(|client| client["profile_fit"].as_str());
    let mut fits: Vec<&str> = said.filter(|fit| !fit.is_empty()).collect();
    fits.sort_unstable();
    fits.dedup();
    fits
}

/// A table without frames; numbers are right-aligned, according to the column's name.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for (index, name) in header.iter().enumerate() {
        let is_text = matches!(
            *name,
            "" | "JOB"
                | "CLASS"
                | "PROGRAM"
                | "ENFORCED"
                | "PHASE"
                | "POLICY"
                | "WORKLOAD"
                | "ABOUT"
                | "VERDICT"
                | "CHECK"
                | "FOUND"
        );
        if let Some(column) = table.column_mut(index).filter(|_| !is_text) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_names_users_where_there_are_several_and_has_no_empty_end() {
        let job = |uid: u32, memory: Value| {
            json!({"job": "train", "class": "best-effort", "uid": uid, "ended_ns": null,
                "memory": memory, "control": {}})
        };
        let of = |jobs: &[Value]| in_force(&json!({"jobs": jobs}), "train");
        assert_eq!(of(&[job(1000, Value::Null)]), ["job train, best-effort"]);
        let unlimited = json!({"quota_bytes": null});
        assert_eq!(
            of(&[job(1000, unlimited.clone()), job(1001, unlimited)]),
            [
                "job train, best-effort of user 1000: memory unlimited",
                "job train, best-effort of user 1001: memory unlimited",
            ]
        );
        assert!(in_force(&json!({"jobs": []}), "train").is_empty());
    }

    #[test]
    fn how_well_a_job_is_known_is_one_line_and_none_before_anything_is() {
        let said = |known_pct: Value, classed_pct: Value| {
            known(&json!({"gpu_time_known_pct": known_pct, "gpu_time_classed_pct": classed_pct}))
        };
        let line = "expected durations known for 93 % of its GPU time, classes for 61 %";
        assert_eq!(said(json!(93.0), json!(61.2)).as_deref(), Some(line));
        let line = "expected durations known for 99 % of its GPU time, classes for 0 %";
        assert_eq!(said(json!(99.99), json!(0)).as_deref(), Some(line));
        assert_eq!(said(Value::Null, Value::Null), None);
        // A daemon before protocol 3.2.
        assert_eq!(known(&json!({})), None);
    }

    #[test]
    fn where_requests_are_known_from_is_said_of_jobs_that_make_some() {
        let job = json!({
            "requests_source": "marks", "totals": {"requests_marked": 20, "marks_refused": 3}
        });
        let line =
            "the program marks its requests, 20 marked requests have ended, 3 marks were refused";
        assert_eq!(requests(&job).as_deref(), Some(line));
        let job = json!({"requests_source": "inferred", "totals": {"requests_marked": 0}});
        let line = "requests are inferred from launches";
        assert_eq!(requests(&job).as_deref(), Some(line));
        for none in [json!({"requests_source": null}), json!({})] {
            assert_eq!(requests(&none), None);
        }
    }

    #[test]
    fn names_that_would_drive_a_terminal_are_shown_without_that() {
        let status = json!({"jobs": [{"job": "a\u{1b}[2Jb\nc\u{9b}d", "pid": 7}]});
        let expected = json!({"jobs": [{"job": "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d", "pid": 7}]});
        assert_eq!(legible(&status), expected);
        let status = json!(["evil\u{202e}txt.nohtyp", "\u{feff}a", "訓練 é"]);
        assert_eq!(
            legible(&status),
            json!(["evil\u{fffd}txt.nohtyp", "\u{fffd}a", "訓練 é"])
        );
    }
}
