//! `pillion status`: daemons, jobs and clients.
//!
//! The daemon answers with one JSON document per GPU; `--json` hands them on unchanged, the table
//! shows what a person looks for first: who is there, in which class, and what is enforced.

mod control;
mod device;
mod hold;
mod mps;
mod probe;
mod sharing;
mod users;

pub(crate) use device::stands;
pub(crate) use hold::for_faults;
pub(crate) use probe::line as probe;
pub(crate) use sharing::{shared, trouble};

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

/// Where the jobs' table has their GPU time: behind what they have launched.
const GPU_TIME_PLACE: usize = 6;

/// Shows the daemons of this machine, their jobs and clients.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion status --all\n         \
                  pillion status --json | jq '.daemons[].jobs'")]
pub(crate) struct Options {
    /// Also the GPU time of each job, and of each user: of all its jobs, also of those that are no
    /// longer listed.
    #[arg(long)]
    all: bool,

    /// One JSON document instead of tables.
    #[arg(long)]
    json: bool,
}

/// Exit 69 only if `PILLION_SOCKET` names a daemon and it does not answer.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    let sockets = named.clone().map_or_else(every_socket, |path| vec![path]);
    let mut daemons = Vec::new();
    let mut silent = Vec::new();
    for socket in sockets {
        match ask(&socket) {
            Ok(status) => daemons.push(status),
            Err(error) if named.is_some() => {
                let error = anyhow!("no daemon answers at {}: {error}", socket.display());
                return Err(Failure::unavailable(error));
            }
            Err(error) => silent.push((socket, error.to_string())),
        }
    }
    if options.json {
        let silent: Vec<_> = silent
            .iter()
            .map(|(socket, error)| json!({"socket": socket.display().to_string(), "error": error}))
            .collect();
        return out::line(format_args!(
            "{}",
            json!({"schema_version": 1, "daemons": daemons, "silent": silent})
        ));
    }
    for status in &daemons {
        print_daemon(&legible(status), options.all)?;
    }
    for (socket, error) in &silent {
        out::line(format_args!(
            "{}: no daemon answers: {error}",
            socket.display()
        ))?;
    }
    if daemons.is_empty() && silent.is_empty() {
        out::line(format_args!("no daemon is running"))?;
    }
    Ok(())
}

/// A daemon's status, which has so long to give it.
pub(crate) fn ask_within(
    socket: &std::path::Path,
    patience: Duration,
) -> Result<Value, HelloError> {
    let status = ask_status_within(socket, patience)?;
    serde_json::from_str(&status).map_err(|_| HelloError::Malformed("the status is not JSON"))
}

/// What of a job is in force that `pillion set` changes; a line for each job of that id.
pub(crate) fn in_force(status: &Value, id: &str) -> Vec<String> {
    let jobs = status["jobs"].as_array().into_iter().flatten();
    let jobs = jobs.filter(|job| job["job"] == id && job["ended_ns"].is_null());
    let lines = jobs.map(|job| {
        let memory = &job["memory"];
        let quota = bytes(&memory["quota_bytes"], "unlimited");
        let memory = memory.is_object().then(|| format!("memory {quota}"));
        let parts: Vec<String> = memory
            .into_iter()
            .chain(control::slo(job))
            .chain(control::cap(job))
            .collect();
        let class = job["class"].as_str().unwrap_or("N/A");
        format!("job {id}, {class}: {}", parts.join("; "))
    });
    lines.collect()
}

/// A daemon's status, with its socket.
pub(crate) fn ask(socket: &std::path::Path) -> Result<Value, HelloError> {
    let mut status: Value = serde_json::from_str(&ask_status(socket)?)
        .map_err(|_| HelloError::Malformed("the status is not JSON"))?;
    status["socket"] = json!(socket.display().to_string());
    Ok(status)
}

/// The same for a terminal: jobs and programs are called what their users like, which may be something that moves the cursor.
fn legible(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let one = |c: char| if c.is_control() { '\u{fffd}' } else { c };
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

fn print_daemon(status: &Value, is_all: bool) -> Result<(), Failure> {
    let text = |pointer: &str| match status.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "N/A".into(),
    };
    out::line(format_args!(
        "{} {}  {}  policy {}  pilliond {} (pid {})",
        text("/gpu/name"),
        text("/gpu/uuid"),
        shared(&status["gpu"]),
        text("/policy/name"),
        text("/daemon/version"),
        text("/daemon/pid"),
    ))?;
    if let Some(error) = status["policy"]["config_error"].as_str() {
        out::line(format_args!(
            "  the configuration on disk is not in force: {error}"
        ))?;
    }
    let policy = &status["policy"];
    let known = trouble(status)
        .into_iter()
        .chain(mps::line(status))
        .chain(sharing::block_priority(policy));
    for line in for_faults(status).into_iter().chain(known) {
        out::line(format_args!("  {line}"))?;
    }
    let bounds = hold::bounds(policy).filter(|_| status["hp"]["present"] == true);
    for line in control::together(status).chain(bounds) {
        out::line(format_args!("  {line}"))?;
    }
    print_jobs(status, is_all)?;
    let others = |class: &str| status["others"][class].as_u64().unwrap_or(0);
    let (hp, be) = (others("high_priority"), others("best_effort"));
    if hp + be > 0 {
        out::line(format_args!(
            "  jobs of other users: {hp} high-priority, {be} best-effort"
        ))?;
    }
    for process in status["turned_away"].as_array().into_iter().flatten() {
        let times = process["times"].as_u64().filter(|&times| times > 1);
        let times = times.map_or_else(String::new, |times| format!(" (asked {times} times)"));
        out::line(format_args!(
            "  pid {} {} is not attached: {}{times}",
            process["pid"],
            process["name"].as_str().unwrap_or(""),
            process["reason"].as_str().unwrap_or("N/A")
        ))?;
    }
    Ok(())
}

/// The jobs; with `is_all` what they have used, and each user.
fn print_jobs(status: &Value, is_all: bool) -> Result<(), Failure> {
    let table = jobs_table(status, is_all);
    if table.row_count() == 0 {
        out::line(format_args!("  no jobs"))?;
    } else {
        out::line(format_args!("{table}"))?;
    }
    for job in status["jobs"].as_array().into_iter().flatten() {
        let id = job["job"].as_str().unwrap_or("N/A");
        let differing = sharing::of_job(job, &status["gpu"]);
        let remarks = remarks(job, &status["policy"]);
        for line in remarks.into_iter().chain(differing) {
            out::line(format_args!("  job {id}: {line}"))?;
        }
    }
    match users::table(status).filter(|_| is_all) {
        Some(table) => out::line(format_args!("{table}")),
        None => Ok(()),
    }
}

/// One row per client, or one for a job whose clients have ended; with `is_all` the GPU time of
/// their job, too.
fn jobs_table(status: &Value, is_all: bool) -> Table {
    let mut header = vec![
        "JOB", "CLASS", "PID", "PROGRAM", "LAUNCHES", "HELD", "SHARE", "MEMORY", "QUOTA",
        "ENFORCED",
    ];
    if is_all {
        header.insert(GPU_TIME_PLACE, users::GPU_TIME);
    }
    let mut table = table(&header);
    for job in status["jobs"].as_array().into_iter().flatten() {
        for mut row in rows(job) {
            if is_all {
                row.insert(GPU_TIME_PLACE, users::gpu_time(job));
            }
            table.add_row(row);
        }
    }
    table
}

/// What is to be said of a job beside its rows; a line each.
fn remarks(job: &Value, policy: &Value) -> Vec<String> {
    let known = known(job).into_iter().chain(requests(job));
    let mut lines: Vec<String> = known
        .chain(control::slo(job))
        .chain(control::batches(job))
        .chain(control::cap(job))
        .collect();
    lines.extend(hold::lines(job, policy["affordable_ns"].as_u64()));
    let refused = job["memory"]["refused"].as_u64().unwrap_or(0);
    if refused > 0 {
        lines.push(format!(
            "{refused} requests for memory were over its quota; it held at most {}",
            bytes(&job["memory"]["peak_bytes"], "N/A"),
        ));
    }
    for excess in job["memory"]["excess"].as_array().into_iter().flatten() {
        let whose = match excess["is_client"].as_bool() {
            Some(true) => "past its account",
            _ => "and is no client",
        };
        lines.push(format!(
            "pid {} has {} of the GPU's memory {whose}",
            excess["pid"],
            bytes(&excess["bytes"], "N/A"),
        ));
    }
    let bypasses = job["totals"]["bypasses"].as_u64().unwrap_or(0);
    if bypasses > 0 {
        lines.push(format!(
            "{bypasses} of its libraries pass by (RTLD_DEEPBIND, dlmopen); start it with `pillion run --shim`"
        ));
    }
    let passed = job["totals"]["launch_functions_passed_by"].as_u64();
    if let Some(passed @ 1..) = passed {
        lines.push(format!(
            "{passed} functions that launch were obtained past Pillion: what is launched by them is neither seen nor held"
        ));
    }
    let shared = job["totals"]["priorities_shared"].as_u64().unwrap_or(0);
    if shared > 0 {
        lines.push(format!(
            "{shared} of its streams have the priority of others although it asked for different ones: its class has only a part of the device's levels"
        ));
    }
    let clients = job["clients"].as_array().into_iter().flatten();
    for client in clients.filter(|client| client["denied"].is_string()) {
        lines.push(format!(
            "pid {} asks to be {}, which [high_priority] does not allow user {}: it is {}",
            client["pid"],
            client["denied"].as_str().unwrap_or("N/A"),
            client["uid"],
            job["class"].as_str().unwrap_or("N/A"),
        ));
    }
    let fits = profile_fits(job).into_iter();
    lines.extend(fits.map(|fit| format!("its profile was {fit}")));
    lines
}

/// How well the job's kernels are known; none before it has launched any. Rounded down, so that 100 %
/// is all.
fn known(job: &Value) -> Option<String> {
    let known_pct = job["gpu_time_known_pct"].as_f64()?.floor();
    let classed_pct = job["gpu_time_classed_pct"].as_f64()?.floor();
    Some(format!(
        "{known_pct:.0} % of GPU time known, {classed_pct:.0} % classed"
    ))
}

/// Where a high-priority job's requests are known from; nothing of jobs that have none.
fn requests(job: &Value) -> Option<String> {
    let said = match job["requests_source"].as_str()? {
        "marks" => "the program marks its requests",
        "nvtx" => "NVTX ranges mark its requests",
        _ => "requests are inferred from launches",
    };
    let count = |name: &str| job["totals"][name].as_u64().filter(|&count| count > 0);
    let marked =
        count("requests_marked").map(|marked| format!(", {marked} marked ones have ended"));
    let refused = count("marks_refused").map(|refused| format!(", {refused} marks were refused"));
    let [marked, refused] = [marked, refused].map(Option::unwrap_or_default);
    Some(format!("{said}{marked}{refused}"))
}

/// Bytes for people, in MiB or GiB; `none` where there is no number.
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

/// What the clients of a job say of a profile that was measured elsewhere, each once.
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

/// One row per client, or one for a job whose clients have ended.
fn rows(job: &Value) -> Vec<Vec<String>> {
    let word = |value: &Value| value.as_str().unwrap_or("N/A").to_owned();
    let number = |value: &Value| value.as_u64().map_or("N/A".into(), |n| n.to_string());
    let row = |pid: String, program: String, counters: &Value| {
        vec![
            word(&job["job"]),
            word(&job["class"]),
            pid,
            program,
            number(&counters["launches"]),
            number(&counters["launches_held"]),
            hold::share(job),
            bytes(&job["memory"]["held_bytes"], "-"),
            bytes(&job["memory"]["quota_bytes"], "-"),
            word(&job["enforcing"]),
        ]
    };
    match job["clients"].as_array() {
        Some(clients) if !clients.is_empty() => clients
            .iter()
            .map(|c| row(number(&c["pid"]), word(&c["name"]), &c["counters"]))
            .collect(),
        _ => vec![row("-".into(), "(ended)".into(), &job["totals"])],
    }
}

/// A table without frames; numbers are right-aligned by their column's name.
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
    fn how_well_a_job_is_known_is_one_line_and_none_before_anything_is() {
        let said = |known_pct: Value, classed_pct: Value| {
            known(&json!({"gpu_time_known_pct": known_pct, "gpu_time_classed_pct": classed_pct}))
        };
        let line = "93 % of GPU time known, 61 % classed";
        assert_eq!(said(json!(93.0), json!(61.2)).as_deref(), Some(line));
        let line = "99 % of GPU time known, 0 % classed";
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
            "the program marks its requests, 20 marked ones have ended, 3 marks were refused";
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
    }
}
