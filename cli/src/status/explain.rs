//! `pillion status --explain`: everything known about one job, or about one GPU, in sentences.

use anyhow::anyhow;
use profiler::nearest::nearest;
use serde_json::Value;

use super::figures::{latency, share_within};
use super::grid::{self, Column, Give};
use super::hold::time;
use super::text::wrap;
use super::{Seen, bytes, control, hold, mps, profile_fits, sharing, warnings};
use crate::failure::Failure;
use crate::profile::output::counted;

/// Shortest prefix of a GPU's UUID that is accepted: `GPU-` and four digits.
const UUID_CHARS_MIN: usize = 8;

const CLIENT_COLUMNS: [Column; 5] = [
    Column::numbers("PID", 1),
    Column::words("PROGRAM", 2, Give::End(8)),
    Column::numbers("LAUNCHES", 4),
    Column::numbers("HELD", 3),
    Column::words("PROFILE", 5, Give::Middle(12)),
];

const REQUEST_COLUMNS: [Column; 7] = [
    Column::words("REQUESTS", 1, Give::End(8)),
    Column::numbers("COUNT", 6),
    Column::numbers("P50", 5),
    Column::numbers("P99", 2),
    Column::numbers("TARGET", 3),
    Column::numbers("OVER", 4),
    Column::numbers("JUDGED", 7),
];

/// The job of that id on each of its GPUs, or the GPU of that UUID; fails if both are unknown.
pub(super) fn lines(seen: &Seen, name: &str, columns_max: usize) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for status in &seen.daemons {
        let jobs = jobs_of(status);
        let jobs: Vec<&Value> = jobs.filter(|job| job["job"] == name).collect();
        let is_gpu = is_gpu(status, name);
        if jobs.is_empty() && !is_gpu {
            continue;
        }
        for job in jobs {
            lines.extend(of_job(job, status, columns_max));
            lines.push(String::new());
        }
        lines.extend(of_gpu(status, columns_max));
        lines.push(String::new());
    }
    match lines.pop() {
        Some(_) => Ok(lines),
        None => Err(unknown(seen, name)),
    }
}

fn jobs_of(status: &Value) -> impl Iterator<Item = &Value> {
    status["jobs"].as_array().into_iter().flatten()
}

fn is_gpu(status: &Value, name: &str) -> bool {
    let uuid = status["gpu"]["uuid"].as_str().unwrap_or("");
    uuid == name || (name.len() >= UUID_CHARS_MIN && uuid.starts_with(name))
}

fn unknown(seen: &Seen, name: &str) -> Failure {
    let jobs = seen.daemons.iter().flat_map(jobs_of);
    let ids = jobs.filter_map(|job| job["job"].as_str());
    let uuids = seen.daemons.iter();
    let uuids = uuids.filter_map(|status| status["gpu"]["uuid"].as_str());
    let near = nearest(name, ids.chain(uuids));
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
    let silent = match seen.silent.len() {
        0 => String::new(),
        _ => {
            let silent = seen.silent.iter().map(|(socket, _)| socket.as_str());
            let silent: Vec<&str> = silent.collect();
            format!(", and no daemon answers at {}", silent.join(", "))
        }
    };
    anyhow!(
        "no job and no GPU has the id {name:?}{silent}{near} (`pillion status --all` lists the ids)"
    )
    .into()
}

/// A headline, the client and request tables, and the remarks.
fn of_job(job: &Value, status: &Value, columns_max: usize) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or("N/A").to_owned();
    let headline = format!(
        "job {}: {}, user {}, on {}",
        word(&job["job"]),
        word(&job["class"]),
        job["uid"],
        word(&status["gpu"]["uuid"]),
    );
    let mut lines = wrap(&headline, columns_max, "", "    ");
    for table in [clients(job), requests_by_kind(job)] {
        let (columns, rows) = table;
        if !rows.is_empty() {
            let width = columns_max.saturating_sub(2).max(1);
            let table = grid::lines(columns, &rows, width);
            lines.extend(table.iter().map(|line| format!("  {line}")));
        }
    }
    let remarks = facts(job)
        .into_iter()
        .chain(remarks(job, &status["policy"]));
    let remarks = remarks.chain(sharing::of_job(job, &status["gpu"]));
    lines.extend(remarks.flat_map(|line| wrap(&line, columns_max, "  ", "    ")));
    lines
}

fn clients(job: &Value) -> (&'static [Column], Vec<Vec<String>>) {
    let number = |value: &Value| value.as_u64().map_or("N/A".into(), |n| n.to_string());
    let word = |value: &Value, none: &str| match value.as_str() {
        Some("") | None => none.to_owned(),
        Some(word) => word.to_owned(),
    };
    let row = |pid: String, program: String, counters: &Value, profile: String| {
        let count = |name: &str| number(&counters[name]);
        vec![
            pid,
            program,
            count("launches"),
            count("launches_held"),
            profile,
        ]
    };
    let clients = job["clients"].as_array().into_iter().flatten();
    let mut rows: Vec<Vec<String>> = clients
        .map(|client| {
            row(
                number(&client["pid"]),
                word(&client["name"], "N/A"),
                &client["counters"],
                word(&client["profile"], "-"),
            )
        })
        .collect();
    if rows.is_empty() {
        rows.push(row(
            "-".into(),
            "(ended)".into(),
            &job["totals"],
            "-".into(),
        ));
    }
    (&CLIENT_COLUMNS, rows)
}

/// A line for each kind of requests, and a total of several. P50 and P99 cover the last minute, the
/// rest everything since the job attached.
fn requests_by_kind(job: &Value) -> (&'static [Column], Vec<Vec<String>>) {
    let requests = &job["requests"];
    let kinds = requests["kinds"].as_array();
    let kinds = kinds.map_or(&[][..], Vec::as_slice);
    let number = |value: &Value| value.as_u64().map_or("-".into(), |n| n.to_string());
    let time = |value: &Value| value.as_u64().map_or("-".into(), latency);
    let row = |name: String, of: &Value| {
        vec![
            name,
            number(&of["count"]),
            time(&of["recent"]["p50_ns"]),
            time(&of["recent"]["p99_ns"]),
            time(&of["target_ns"]),
            number(&of["over_target"]),
            number(&of["judged"]),
        ]
    };
    let mut rows: Vec<Vec<String>> = kinds
        .iter()
        .map(|kind| match kind["kind"].as_u64() {
            Some(number) => row(format!("kind {number}"), kind),
            None => row("other".to_owned(), kind),
        })
        .collect();
    if requests.is_object() && rows.len() != 1 {
        rows.push(row("all".to_owned(), requests));
    }
    (&REQUEST_COLUMNS, rows)
}

/// The job's entries of the table of jobs, in words.
fn facts(job: &Value) -> Vec<String> {
    let enforced = job["enforcing"].as_str().unwrap_or("N/A");
    let enforced = format!("enforced: {enforced}");
    let memory = job["memory"].is_object().then(|| {
        let held = bytes(&job["memory"]["held_bytes"], "N/A");
        let quota = bytes(&job["memory"]["quota_bytes"], "unlimited");
        format!("memory: {held}, quota {quota}")
    });
    let gpu_time = job["gpu_time_ns"].as_u64();
    let gpu_time = gpu_time.map(|ns| format!("GPU time: {}", time(ns)));
    let within = job["requests"]["within_target"].as_f64().map(|share| {
        let share = share_within(share);
        let is_missed = match job["requests"]["is_missed"] == true {
            true => "; the target is missed (event `slo-missed`)",
            false => "",
        };
        format!("requests of the last minute within their target: {share}{is_missed}")
    });
    let parts = [Some(enforced), within, memory, gpu_time];
    parts.into_iter().flatten().collect()
}

fn remarks(job: &Value, policy: &Value) -> Vec<String> {
    let known = super::known(job).into_iter().chain(super::requests(job));
    let mut lines: Vec<String> = known
        .chain(control::slo(job))
        .chain(control::batches(job))
        .chain(control::cap(job))
        .chain(control::promise(job))
        .collect();
    lines.extend(hold::lines(job, policy["affordable_ns"].as_u64()));
    let refused = job["memory"]["refused"].as_u64().unwrap_or(0);
    if refused > 0 {
        lines.push(format!(
            "{} exceeded its quota; it held at most {}",
            counted(refused, "memory request", "memory requests"),
            bytes(&job["memory"]["peak_bytes"], "N/A"),
        ));
    }
    let excess = job["memory"]["excess"].as_array().into_iter().flatten();
    lines.extend(excess.map(warnings::unexplained));
    lines.extend(evasions(job));
    let fits = profile_fits(job).into_iter();
    lines.extend(fits.map(|fit| format!("its profile was {fit}")));
    lines
}

/// Where a job's work bypasses Pillion, or runs differently than the job asked.
fn evasions(job: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let bypasses = job["totals"]["bypasses"].as_u64().unwrap_or(0);
    if bypasses > 0 {
        let bypass = if bypasses == 1 { "bypasses" } else { "bypass" };
        lines.push(format!(
            "{bypasses} of its libraries {bypass} Pillion (RTLD_DEEPBIND, dlmopen); start it with `pillion run --shim`"
        ));
    }
    let passed = job["totals"]["launch_functions_passed_by"].as_u64();
    if let Some(passed @ 1..) = passed {
        let functions = counted(passed, "launch function", "launch functions");
        lines.push(format!(
            "the job bypasses Pillion with {functions}: Pillion neither sees nor holds these launches"
        ));
    }
    let shared = job["totals"]["priorities_shared"].as_u64().unwrap_or(0);
    if shared > 0 {
        let share = if shared == 1 { "shares" } else { "share" };
        lines.push(format!(
            "{shared} of its streams {share} a priority with others although the job asked for different ones: its class has only some of the device's levels"
        ));
    }
    let clients = job["clients"].as_array().into_iter().flatten();
    for client in clients.filter(|client| client["denied"].is_string()) {
        lines.push(format!(
            "pid {} asked to be {}, which [high_priority] does not allow for user {}: it is {}",
            client["pid"],
            client["denied"].as_str().unwrap_or("N/A"),
            client["uid"],
            job["class"].as_str().unwrap_or("N/A"),
        ));
    }
    lines
}

fn of_gpu(status: &Value, columns_max: usize) -> Vec<String> {
    let text = |pointer: &str| match status.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "N/A".into(),
    };
    let headline = format!(
        "{} {}  {}  policy {}  pilliond {} (pid {})",
        text("/gpu/name"),
        text("/gpu/uuid"),
        sharing::shared(&status["gpu"]),
        text("/policy/name"),
        text("/daemon/version"),
        text("/daemon/pid"),
    );
    let policy = &status["policy"];
    let config = policy["config_error"].as_str();
    let config = config.map(|error| format!("the configuration on disk is not in force: {error}"));
    let bounds = hold::bounds(policy).filter(|_| status["hp"]["present"] == true);
    let remarks = config
        .into_iter()
        .chain(hold::for_faults(status))
        .chain(sharing::trouble(status))
        .chain(mps::line(status))
        .chain(sharing::block_priority(policy))
        .chain(control::together(status))
        .chain(bounds)
        .chain(warnings::unmanaged(status))
        .chain(warnings::turned_away(status, |_| true));
    let mut lines = wrap(&headline, columns_max, "", "    ");
    lines.extend(remarks.flat_map(|line| wrap(&line, columns_max, "  ", "    ")));
    lines
}
