//! Execution and leases of a phase, from the records of the device server and the daemon. On a GPU
//! of this machine the device has no record: only requests and leases are known.
//!
//! The device sees no kernel names. A replay launches its trace in order, repeatedly, with a check
//! kernel after every [`CHECK_EVERY`]-th launch. So the n-th kernel that the device completes for a
//! job is the n-th of that order, and must have its blocks and threads; a mismatch means that a
//! launch was lost, doubled or reordered, and the demo reports it.
//!
//! Times are ns of the phase's clock; in real time, since the high-priority replay began.

use std::path::Path;

use anyhow::{Context, Result};
use profiler::Trace;
use serde_json::Value;

/// Launches of the trace between two check kernels.
pub(crate) const CHECK_EVERY: usize = 50;
const CHECK_THREADS: u64 = 256;

/// A launch of a job's trace, as the device must see it.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    name: String,
    blocks: u64,
    threads: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Hp,
    Be,
}

impl Who {
    /// The device server's label, and the key in results.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Hp => "hp",
            Self::Be => "be",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) who: Who,
    pub(crate) stream: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The n-th kernel of its job.
    Kernel(usize),
    /// A copy or fill: its kind, and bytes.
    Move(&'static str, u64),
}

/// A best-effort job's lease and wait from a moment on (`scheduler::core::state::Entry` prints it).
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) at_ns: u64,
    /// closed, ungated, open, beside-hp.
    pub(crate) grant: String,
    /// Bits of `policy::ClassSet`.
    pub(crate) classes: u32,
    pub(crate) sms_max: u32,
    pub(crate) budget_ns: u64,
    pub(crate) waiting: bool,
    /// The limiting rule's name (`policy::Limit`).
    pub(crate) limit: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) arrived_ns: u64,
    pub(crate) done_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    /// In order of completion.
    pub(crate) ops: Vec<Op>,
    /// Busy SMs from a moment on.
    pub(crate) sms: Vec<(u64, u64)>,
    pub(crate) gates: Vec<Gate>,
    pub(crate) requests: Vec<Request>,
}

pub(crate) fn launches_of(trace: &Trace) -> Vec<Launch> {
    let mut launches = Vec::new();
    for (index, kernel) in trace.launched().enumerate() {
        launches.push(Launch {
            name: kernel.name.clone(),
            blocks: kernel.grid.iter().map(|&n| u64::from(n)).product(),
            threads: kernel.block.iter().map(|&n| u64::from(n)).product(),
        });
        if index % CHECK_EVERY == 0 {
            launches.push(Launch {
                name: "saxpy (check)".to_owned(),
                blocks: 1,
                threads: CHECK_THREADS,
            });
        }
    }
    launches
}

pub(crate) fn name_of(launches: &[Launch], nth: usize) -> &str {
    launches
        .get(nth % launches.len().max(1))
        .map_or("", |launch| &launch.name)
}

impl Record {
    /// Reads the records, where they exist, and the high-priority replay's report. Fails for an
    /// unexpected line, or a kernel that differs from the trace's at its place.
    pub(crate) fn read(
        device: Option<&Path>,
        gate: Option<&Path>,
        hp: Option<&Value>,
        launches: [&[Launch]; 2],
    ) -> Result<Self> {
        let mut record = Self {
            requests: hp.map_or_else(Vec::new, requests),
            ..Self::default()
        };
        if let Some(device) = device {
            let text = std::fs::read_to_string(device)
                .context("cannot read the device server's record")?;
            let mut counts = [0; 2];
            for line in text.lines() {
                record
                    .take_line(line, &mut counts, launches)
                    .with_context(|| format!("in the device server's record: {line}"))?;
            }
        }
        if let Some(path) = gate {
            let text = std::fs::read_to_string(path).context("cannot read the daemon's record")?;
            let gates = text.lines().map(|line| {
                gate_of(line).with_context(|| format!("in the daemon's record: {line}"))
            });
            record.gates = gates.collect::<Result<_>>()?;
        }
        if device.is_none() {
            record.begin_at(
                hp.and_then(|report| report["started_ns"].as_u64())
                    .unwrap_or(0),
            );
        }
        Ok(record)
    }

    /// Makes `zero_ns` the origin of all times; earlier events move to it.
    fn begin_at(&mut self, zero_ns: u64) {
        for gate in &mut self.gates {
            gate.at_ns = gate.at_ns.saturating_sub(zero_ns);
        }
        for request in &mut self.requests {
            request.arrived_ns = request.arrived_ns.saturating_sub(zero_ns);
            request.done_ns = request.done_ns.saturating_sub(zero_ns);
        }
    }

    fn take_line(
        &mut self,
        line: &str,
        counts: &mut [usize; 2],
        launches: [&[Launch]; 2],
    ) -> Result<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        if let ["sms", at_ns, sms] = fields[..] {
            self.sms.push((at_ns.parse()?, sms.parse()?));
            return Ok(());
        }
        // Usage by process: the kernels show it here.
        if fields[0] == "use" {
            return Ok(());
        }
        let (word, label, stream, start_ns, end_ns) = match fields[..] {
            [word, label, stream, start, end, ..] => (word, label, stream, start, end),
            _ => anyhow::bail!("too few fields"),
        };
        let who = match label {
            "hp" => Who::Hp,
            "be" => Who::Be,
            _ => anyhow::bail!("unknown label {label}"),
        };
        let what = match (word, &fields[5..]) {
            ("kernel", [blocks, threads]) => {
                let nth = counts[who as usize];
                counts[who as usize] += 1;
                let launches = launches[who as usize];
                let right = launches.get(nth % launches.len().max(1));
                let seen = (blocks.parse::<u64>()?, threads.parse::<u64>()?);
                anyhow::ensure!(
                    right.is_some_and(|launch| (launch.blocks, launch.threads) == seen),
                    "kernel {nth} of {label} differs from the trace, which has {right:?}"
                );
                What::Kernel(nth)
            }
            (word, [bytes]) => {
                let words = ["h2d", "d2h", "d2d", "set"];
                let word = words.into_iter().find(|known| *known == word);
                What::Move(word.context("unknown operation")?, bytes.parse()?)
            }
            _ => anyhow::bail!("unexpected fields"),
        };
        self.ops.push(Op {
            who,
            stream: stream.parse()?,
            start_ns: start_ns.parse()?,
            end_ns: end_ns.parse()?,
            what,
        });
        Ok(())
    }

    /// Busy SMs between two moments; the first entry may begin earlier.
    pub(crate) fn sms_within(&self, from_ns: u64, to_ns: u64) -> &[(u64, u64)] {
        let first = self.sms.partition_point(|&(at_ns, _)| at_ns <= from_ns);
        let end = self.sms.partition_point(|&(at_ns, _)| at_ns < to_ns);
        &self.sms[first.saturating_sub(1)..end.max(first.saturating_sub(1))]
    }
}

fn requests(report: &Value) -> Vec<Request> {
    let none = Vec::new();
    let list = |key: &str| report[key].as_array().unwrap_or(&none).iter();
    let both = list("arrived_ns").zip(list("latencies_ms"));
    both.filter_map(|(arrived, latency)| {
        let arrived_ns = arrived.as_u64()?;
        let latency_ns = (latency.as_f64()? * 1e6).round() as u64;
        Some(Request {
            arrived_ns,
            done_ns: arrived_ns + latency_ns,
        })
    })
    .collect()
}

fn gate_of(line: &str) -> Result<Gate> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [
        at_ns,
        _job,
        grant,
        classes,
        sms_max,
        budget_ns,
        waiting,
        limit,
    ] = fields[..]
    else {
        anyhow::bail!("expected 8 fields");
    };
    Ok(Gate {
        at_ns: at_ns.parse()?,
        grant: grant.to_owned(),
        classes: classes.parse()?,
        sms_max: sms_max.parse()?,
        budget_ns: budget_ns.parse()?,
        waiting: waiting == "1",
        limit: limit.to_owned(),
    })
}
