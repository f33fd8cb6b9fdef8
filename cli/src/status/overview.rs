//! The first screen of `pillion status`: a line for each GPU, job and problem, within the width.

use serde_json::Value;

use super::figures::{Figures, be_share, memory};
use super::grid::{self, Column, Give};
use super::text::{cut_end, cut_middle};
use super::{Seen, hold, live_jobs, users, warnings};

/// Characters of a GPU's UUID to show: `GPU-` and the first group, if they distinguish all GPUs.
const ID_CHARS: usize = 12;

/// A line per GPU. The sharing mode is dropped first, the id last.
const GPU_COLUMNS: [Column; 10] = [
    Column::words("GPU", 1, Give::Middle(ID_CHARS)),
    Column::words("NAME", 9, Give::End(8)),
    Column::words("SHARING", 10, Give::Never),
    Column::numbers("HP P50", 8),
    Column::numbers("HP P99", 2),
    Column::numbers("TARGET", 3),
    Column::numbers("WITHIN", 7),
    Column::numbers("BE SHARE", 4),
    Column::numbers("UNMANAGED", 5),
    Column::words("STATE", 6, Give::End(7)),
];

const JOB_COLUMNS: [Column; 16] = [
    Column::words("JOB", 1, Give::Middle(16)),
    Column::words("GPU", 3, Give::Middle(ID_CHARS)),
    Column::words("CLASS", 2, Give::Short(class)),
    Column::words("USER", 14, Give::End(8)),
    Column::words("PROGRAM", 15, Give::End(8)),
    Column::numbers("CLIENTS", 12),
    Column::numbers("P50", 11),
    Column::numbers("P99", 5),
    Column::numbers("TARGET", 6),
    Column::numbers("WITHIN", 8),
    Column::numbers("SHARE", 7),
    Column::words("HELD BY", 9, Give::End(7)),
    Column::numbers("MEMORY", 10),
    Column::numbers("QUOTA", 13),
    Column::numbers("LAUNCHES", 16),
    Column::numbers(users::GPU_TIME, 4),
];

/// A class in the glossary's words.
fn class(class: &str) -> &str {
    match class {
        "high-priority" => "HP",
        "best-effort" => "BE",
        other => other,
    }
}

/// All lines; with `is_all` also jobs that have ended, and the GPU time of jobs and users.
pub(super) fn lines(seen: &Seen, is_all: bool, columns_max: usize) -> Vec<String> {
    let ids = short_ids(&seen.daemons);
    let gpus: Vec<(String, &Value)> = ids.into_iter().zip(&seen.daemons).collect();
    let mut parts = Vec::new();
    if gpus.is_empty() && seen.silent.is_empty() {
        parts.push(vec!["no daemon is running".to_owned()]);
    }
    if !gpus.is_empty() {
        let rows: Vec<_> = gpus.iter().map(|(id, status)| gpu(id, status)).collect();
        parts.push(grid::lines(&GPU_COLUMNS, &rows, columns_max));
        let rows = jobs(&gpus, is_all);
        parts.push(match rows.is_empty() {
            true => vec!["no jobs".to_owned()],
            false => grid::lines(&JOB_COLUMNS, &rows, columns_max),
        });
    }
    // A single daemon needs no name.
    let gpus: Vec<(String, &Value)> = match gpus.len() {
        1 => vec![(String::new(), gpus[0].1)],
        _ => gpus,
    };
    if is_all {
        parts.push(users::table(&gpus, columns_max));
    }
    parts.push(notes(seen, &gpus, columns_max));
    let parts: Vec<Vec<String>> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let lines = parts.join(&String::new());
    lines
        .iter()
        .map(|line| cut_end(line, columns_max))
        .collect()
}

/// Prefixes of the GPUs' UUIDs, long enough to distinguish them.
pub(super) fn short_ids(daemons: &[Value]) -> Vec<String> {
    let uuids = daemons.iter().map(|status| status["gpu"]["uuid"].as_str());
    let uuids: Vec<&str> = uuids.map(|uuid| uuid.unwrap_or("N/A")).collect();
    let longest = uuids.iter().map(|uuid| uuid.chars().count()).max();
    let begin = |uuid: &str, chars: usize| uuid.chars().take(chars).collect::<String>();
    let tells_apart = |chars: usize| {
        let mut begins: Vec<String> = uuids.iter().map(|uuid| begin(uuid, chars)).collect();
        begins.sort_unstable();
        begins.dedup();
        begins.len() == uuids.len()
    };
    let chars = (ID_CHARS..=longest.unwrap_or(0)).find(|&chars| tells_apart(chars));
    let chars = chars.unwrap_or(ID_CHARS);
    uuids.iter().map(|uuid| begin(uuid, chars)).collect()
}

fn gpu(id: &str, status: &Value) -> Vec<String> {
    let gpu = &status["gpu"];
    let word = |value: &Value| value.as_str().unwrap_or("N/A").to_owned();
    let name = word(&gpu["name"]);
    let model = name.strip_prefix("NVIDIA ").unwrap_or(&name);
    let model = model.strip_prefix("Tesla ").unwrap_or(model);
    let figures = Figures::of_worst(live_jobs(status));
    let unmanaged = status["unmanaged"]["count"].as_u64();
    vec![
        id.to_owned(),
        model.to_owned(),
        word(&gpu["sharing"]),
        figures.p50,
        figures.p99,
        figures.target,
        figures.within,
        be_share(live_jobs(status)),
        unmanaged.map_or("N/A".into(), |count| count.to_string()),
        warnings::states(status).join(", "),
    ]
}

/// High-priority jobs first; jobs that have ended, if requested, last.
fn jobs(gpus: &[(String, &Value)], is_all: bool) -> Vec<Vec<String>> {
    let of = |(id, status)| {
        let id: &String = id;
        let status: &Value = status;
        let jobs = status["jobs"].as_array().into_iter().flatten();
        jobs.map(move |job| (id, status, job))
    };
    let all = gpus.iter().flat_map(|(id, status)| of((id, *status)));
    let mut listed: Vec<_> = all
        .filter(|(_, _, job)| is_all || job["ended_ns"].is_null())
        .collect();
    // The sort is stable: it keeps the daemons' order otherwise.
    listed.sort_by_key(|(_, _, job)| (!job["ended_ns"].is_null(), job["class"] != "high-priority"));
    let uids = listed.iter().map(|(_, _, job)| &job["uid"]);
    let is_one_user = uids.clone().all(|uid| *uid == listed[0].2["uid"]);
    let rows = listed.iter().map(|(id, status, job)| {
        let id = match gpus.len() {
            1 => "",
            _ => id,
        };
        let uid = match is_one_user {
            true => String::new(),
            false => job["uid"].to_string(),
        };
        let time = match is_all {
            true => users::gpu_time(job),
            false => String::new(),
        };
        row(id, uid, time, job, status)
    });
    rows.collect()
}

fn row(gpu: &str, uid: String, gpu_time: String, job: &Value, status: &Value) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or("N/A").to_owned();
    let clients = job["clients"].as_array().map_or(0, Vec::len);
    let has_ended = !job["ended_ns"].is_null();
    let figures = Figures::of(job);
    let launches = job["totals"]["launches"].as_u64();
    let memory_of = |name: &str, none: &str| match job["memory"].is_object() {
        true => memory(&job["memory"][name], none),
        false => "-".to_owned(),
    };
    vec![
        word(&job["job"]),
        gpu.to_owned(),
        word(&job["class"]),
        uid,
        program(job),
        match has_ended {
            true => "ended".to_owned(),
            false => clients.to_string(),
        },
        figures.p50,
        figures.p99,
        figures.target,
        figures.within,
        hold::share(job),
        hold::word(job, status).to_owned(),
        memory_of("held_bytes", "-"),
        memory_of("quota_bytes", "unlimited"),
        launches.map_or("N/A".into(), |launches| launches.to_string()),
        gpu_time,
    ]
}

/// The program of a job's first client, and the number of others.
fn program(job: &Value) -> String {
    let clients = job["clients"].as_array().into_iter().flatten();
    let names = clients.map(|client| client["name"].as_str().unwrap_or(""));
    let names: Vec<&str> = names.collect();
    let Some(first) = names.first() else {
        return "-".to_owned();
    };
    let mut others: Vec<&str> = names.iter().copied().filter(|name| name != first).collect();
    others.sort_unstable();
    others.dedup();
    match others.len() {
        0 => (*first).to_owned(),
        others => format!("{first} +{others}"),
    }
}

fn notes(seen: &Seen, gpus: &[(String, &Value)], columns_max: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let mut is_explained = false;
    for (id, status) in gpus {
        let of = match id.is_empty() {
            true => String::new(),
            false => format!("{id}: "),
        };
        let warnings = warnings::of(status);
        is_explained |= !warnings.is_empty();
        let listed = warnings.iter().take(warnings::LISTED_MAX);
        notes.extend(listed.map(|warning| format!("{of}{warning}")));
        let more = warnings.len().saturating_sub(warnings::LISTED_MAX);
        if more > 0 {
            notes.push(format!("{of}and {more} more"));
        }
        let others = |class: &str| status["others"][class].as_u64().unwrap_or(0);
        let (hp, be) = (others("high_priority"), others("best_effort"));
        if hp + be > 0 {
            notes.push(format!(
                "{of}jobs of other users: {hp} high-priority, {be} best-effort"
            ));
        }
        if let Some(idle_s) = status["daemon"]["ends_when_idle_s"].as_u64() {
            notes.push(format!(
                "{of}the daemon exits {idle_s} s after its last job"
            ));
        }
    }
    let silent = seen.silent.iter();
    notes.extend(silent.map(|(socket, error)| {
        let socket = cut_middle(socket, columns_max / 2);
        format!("no daemon answers at {socket}: {error}")
    }));
    if is_explained {
        notes.push("details: `pillion status --explain JOB`, or `--explain GPU`".to_owned());
    }
    notes
}
