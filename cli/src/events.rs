//! `pillion events`: the events on this machine's GPUs, as their daemons keep them. A daemon
//! answers with one JSON document, which `--json` prints. `--follow` asks again twice a second:
//! that holds nothing open in a daemon, and detects a restarted one, whose numbers restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use protocol::clock::Clock;
use protocol::hello::{HelloError, ask_events};
use scheduler::core::event::Kind;
use serde_json::{Value, json};

use crate::daemons::PATIENCE;
use crate::failure::Failure;
use crate::out;
use crate::run::every_socket;
use crate::times;

/// Shows events: faults, the actions taken on them, and jobs that attached and ended.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion events --follow\n         \
                  pillion events --job train --kind xid,sticky-error --since 1h\n\n\
                  Events of a job are shown to its user and to root. A daemon keeps the last few thousand events; its log has all of them. \
                  With --json and --follow each event is a JSON document on one line. If no daemon runs, the command reports that and \
                  exits with 0.")]
pub(crate) struct Options {
    /// Print JSON instead of lines.
    #[arg(long)]
    json: bool,
    /// Also show new events as they happen, until interrupted.
    #[arg(long)]
    follow: bool,
    /// Only events of this job: its id, as `pillion status` shows it.
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only events of this kind; may be repeated, or a list with commas.
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds(), hide_possible_values = true)]
    kind: Vec<String>,
    /// Only events after this number, or of the last 30s, 10m, 2h. Numbers restart with each daemon
    /// (JSON: `daemon_started_ns`).
    #[arg(long, value_name = "N|TIME", default_value = "0", value_parser = since_of)]
    since: Since,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Number(u64),
    /// So long ago, ns.
    Ago(u64),
}

/// The known kinds of events; for an unknown one the error names the nearest.
fn kinds() -> PossibleValuesParser {
    Kind::ALL
        .iter()
        .map(|kind| kind.name())
        .collect::<Vec<_>>()
        .into()
}

fn since_of(text: &str) -> Result<Since, String> {
    let is_number = text.chars().all(|c| c.is_ascii_digit());
    let since = match is_number {
        true => text.parse().ok().map(Since::Number),
        // A fraction without a unit is neither.
        false if text.ends_with(|c: char| c.is_ascii_digit()) => None,
        false => times::read(text).ok().map(Since::Ago),
    };
    since.ok_or_else(|| {
        "expected the number of an event, or a time such as 30s, 10m or 2h".to_owned()
    })
}

impl Since {
    const fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Ago(_) => 0,
        }
    }
}

struct Filter<'a> {
    options: &'a Options,
    /// Earlier events are not shown, Unix time in ms.
    begin_unix_ms: i64,
}

impl<'a> Filter<'a> {
    fn new(options: &'a Options) -> Self {
        let begin_unix_ms = match options.since {
            Since::Number(_) => i64::MIN,
            Since::Ago(ns) => {
                let ago_ms = i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX);
                Timestamp::now().as_millisecond().saturating_sub(ago_ms)
            }
        };
        Self {
            options,
            begin_unix_ms,
        }
    }

    fn is_shown(&self, event: &Value) -> bool {
        let Options { job, kind, .. } = self.options;
        let at_ms = event["at_unix_ms"].as_i64().unwrap_or(i64::MAX);
        job.as_deref().is_none_or(|job| event["job"] == job)
            && (kind.is_empty() || kind.iter().any(|kind| event["kind"] == kind.as_str()))
            && at_ms >= self.begin_unix_ms
    }

    fn of(&self, document: &Value) -> Vec<Value> {
        let events = document["events"].as_array().into_iter().flatten();
        events
            .filter(|event| self.is_shown(event))
            .cloned()
            .collect()
    }
}

const FOLLOW_NS: u64 = 500_000_000;

/// Exits 69 if `PILLION_SOCKET` names a daemon that does not answer; 0 without any daemon.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let filter = Filter::new(options);
    let since = options.since.number();
    let answers = ask_all(|_| since)?;
    if options.follow && answers.iter().any(|(_, answer)| answer.is_ok()) {
        return follow(&filter, answers);
    }
    // `--follow` prints one document per event, and there is none.
    if options.json && !options.follow {
        let (mut daemons, mut silent) = (Vec::new(), Vec::new());
        for (socket, answer) in answers {
            match answer {
                Ok(mut document) => {
                    document["events"] = filter.of(&document).into();
                    daemons.push(document);
                }
                Err(error) => silent.push(json!({
                    "socket": socket.display().to_string(),
                    "error": error.to_string(),
                })),
            }
        }
        let all = json!({"schema_version": 1, "daemons": daemons, "silent": silent});
        return out::line(format_args!("{all}"));
    }
    if options.json {
        if answers.is_empty() {
            out::note(format_args!("pillion: no daemon is running"));
        }
        for (socket, error) in answers
            .iter()
            .filter_map(|(s, a)| Some((s, a.as_ref().err()?)))
        {
            let socket = socket.display();
            out::note(format_args!(
                "pillion: no daemon answers at {socket}: {error}"
            ));
        }
        return Ok(());
    }
    print_all(&filter, answers)
}

fn print_all(filter: &Filter<'_>, answers: Answers) -> Result<(), Failure> {
    let since = filter.options.since.number();
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
                say_lost(&document, since)?;
                say_renumbered(&document, since);
                for event in filter.of(&document) {
                    print(&event, None)?;
                }
            }
            Err(error) => {
                let socket = socket.display();
                out::line(format_args!("no daemon answers at {socket}: {error}"))?;
            }
        }
    }
    Ok(())
}

type Answers = Vec<(PathBuf, Result<Value, HelloError>)>;

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

/// A daemon's identity, and the number of its last event.
type Seen = BTreeMap<PathBuf, (Value, u64)>;

/// In a container a restarted daemon may have the process id of the one before.
fn whose(document: &Value) -> Value {
    json!([document["daemon_pid"], document["daemon_started_ns"]])
}

fn follow(filter: &Filter<'_>, first: Answers) -> Result<(), Failure> {
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
            for event in filter.of(&document) {
                print(&event, Some(&document).filter(|_| filter.options.json))?;
            }
            let last = document["last_seq"].as_u64().unwrap_or(0);
            seen.insert(socket, (whose(&document), last));
        }
        clock.sleep_until(clock.now_ns() + FOLLOW_NS);
        let last = |socket: &Path| seen.get(socket).map_or(0, |(_, last)| *last);
        // A daemon that does not answer may come back.
        answers = ask_all(last).unwrap_or_default();
    }
}

/// Reports how many events are missing at the beginning.
fn say_lost(document: &Value, since: u64) -> Result<(), Failure> {
    match document["fell_out"].as_u64() {
        Some(lost @ 1..) if since == 0 => {
            out::line(format_args!("({lost} older events: see the daemon's log)"))
        }
        _ => Ok(()),
    }
}

/// Reports that no event has that number yet: the number came from another daemon.
fn say_renumbered(document: &Value, since: u64) {
    if let Some(last) = document["last_seq"].as_u64().filter(|&last| last < since) {
        out::note(format_args!(
            "pillion: no events after {since}: the last event of this daemon is number {last}; numbers restart with each daemon"
        ));
    }
}

/// Prints one line: for people, or as a document of its own that names its daemon.
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
    fn what_is_shown_begins_at_a_number_or_a_time_ago() {
        assert_eq!(since_of("7"), Ok(Since::Number(7)));
        assert_eq!(since_of("30s"), Ok(Since::Ago(30_000_000_000)));
        assert_eq!(since_of("2h"), Ok(Since::Ago(7_200_000_000_000)));
        for nonsense in ["", "-1", "yesterday", "1.5", "3d"] {
            let why = since_of(nonsense);
            assert!(
                why.is_err_and(|why| why.contains("30s, 10m or 2h")),
                "{nonsense}"
            );
        }
    }

    #[test]
    fn filters_are_of_job_kind_and_time_and_all_must_hold() {
        let options = |job: Option<&str>, kinds: &[&str]| Options {
            json: false,
            follow: false,
            job: job.map(str::to_owned),
            kind: kinds.iter().map(|&kind| kind.to_owned()).collect(),
            since: Since::Number(0),
        };
        let event = |seq: u64, job: Option<&str>, kind: &str| json!({"seq": seq, "job": job, "kind": kind, "at_unix_ms": seq * 1_000});
        let document = json!({"events": [
            event(1, None, "daemon-started"), event(2, Some("train"), "attached"),
            event(3, Some("serve"), "attached"), event(4, Some("train"), "detached"),
        ]});
        let shown = |options: &Options, begin_unix_ms| {
            let filter = Filter {
                options,
                begin_unix_ms,
            };
            let events = filter.of(&document);
            events
                .iter()
                .map(|event| event["seq"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(&options(None, &[]), i64::MIN), [1, 2, 3, 4]);
        assert_eq!(shown(&options(Some("train"), &[]), i64::MIN), [2, 4]);
        assert_eq!(shown(&options(None, &["attached"]), i64::MIN), [2, 3]);
        assert_eq!(shown(&options(Some("train"), &["attached"]), i64::MIN), [2]);
        let both = ["daemon-started", "detached"];
        assert_eq!(shown(&options(None, &both), i64::MIN), [1, 4]);
        assert_eq!(shown(&options(None, &[]), 3_000), [3, 4]);
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
