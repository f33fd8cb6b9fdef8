//! The suite `predict`: how well the online predictor (`learn::predictor`) predicts throughputs
//! that Gavel's authors measured, judged by unseen samples. It places no job, so it has its own
//! lines and tables.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use cluster_sim::MODEL;
use cluster_sim::prediction::{
    Accuracy, Left, Online, Report, Sample, Target, Unseen, play, samples, shuffled, unseen,
    with_values,
};
use cluster_sim::traces::gavel::Throughput;
use cluster_sim::traces::{self, gavel};
use learn::predictor::{Learner, Predictor, Settings};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::out;
use crate::simulate::cluster::facts::mean;
use crate::simulate::cluster::{Options, own_suites};
use crate::simulate::runner::Progress;
use crate::status::table;

pub(crate) const NAME: &str = "predict";

/// Orders of samples; other orders were used to choose the settings.
const SEEDS: [u64; 3] = [1, 2, 3];
const QUICK_SEEDS: usize = 1;

/// Learnt samples before all others are predicted. OLTunes states its results for the last two.
const COUNTS: [usize; 4] = [100, 200, 500, 1400];

/// Learnt samples of a network or GPU before the rest of it is predicted.
const SHOTS: [usize; 2] = [0, 40];
const QUICK_SHOTS: usize = 1;

const TARGETS: [(Target, &str); 2] = [
    (Target::LogThroughput, "log-throughput"),
    (Target::Speed, "speed"),
];

const LEFT: [(Left, &str); 2] = [(Left::Gpu, "gpu"), (Left::Network, "network")];

/// A run's part of the progress bar.
const RUN_MS: u64 = 1_000;

struct Plan {
    measured: Vec<Throughput>,
    seeds: Vec<u64>,
    shots: &'static [usize],
}

/// Samples that the predictor did not see, the number of those it learnt, and the results.
struct Kept {
    left: &'static str,
    shots: usize,
    all: Vec<Unseen>,
}

/// Exits 2 for unusable input, before it runs or writes anything.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let plan = Plan::of(options).map_err(Failure::usage)?;
    own_suites::make_folder(options)?;
    let runs = TARGETS.len() * (plan.seeds.len() + LEFT.len() * plan.shots.len());
    let progress = Progress::new(runs as u64 * RUN_MS * 1_000_000, runs);
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress.add(RUN_MS);
        progress.runs_done(done);
    };
    let mut lines = Vec::new();
    for (target, name) in TARGETS {
        let samples = samples(&plan.measured, target);
        let reports = plan.reports(&samples, &mut step).context(name)?;
        let kept = plan.kept(&samples, &mut step).context(name)?;
        let own = lines_of(name, &plan.seeds, &reports, &kept);
        if options.json {
            own.iter()
                .try_for_each(|line| out::line(format_args!("{line}")))?;
        } else {
            print(name, samples.len(), &reports, &kept)?;
        }
        lines.extend(own);
        if let Some(folder) = &options.out {
            write_model(folder, name, &samples, plan.seeds[0])?;
        }
    }
    own_suites::write(options, &lines)
}

impl Plan {
    fn of(options: &Options) -> Result<Self> {
        ensure!(
            options.policy.is_empty(),
            "--policy: suite {NAME} places no jobs; it compares learners"
        );
        ensure!(
            options.neighbours.is_none() && options.speed_max.is_none(),
            "--neighbours, --speed-max: suite {NAME} places no jobs"
        );
        let seeds = own_suites::seeds(options, &SEEDS, QUICK_SEEDS)?;
        let data = own_suites::data(NAME)?;
        let path = data.join("traces/gavel_throughputs/physical_cluster_throughputs.json");
        let measured = traces::read(&path, gavel::throughputs);
        let shots = if options.quick {
            QUICK_SHOTS
        } else {
            SHOTS.len()
        };
        Ok(Self {
            measured: measured.with_context(|| format!("--suite {NAME}"))?,
            seeds,
            shots: &SHOTS[..shots],
        })
    }

    /// One for each seed.
    fn reports(&self, samples: &[Sample], step: &mut impl FnMut()) -> Result<Vec<Report>> {
        let mut reports = Vec::new();
        for &seed in &self.seeds {
            reports.push(play(samples, Settings::default(), seed, &COUNTS)?);
            step();
        }
        Ok(reports)
    }

    /// With the first seed's order.
    fn kept(&self, samples: &[Sample], step: &mut impl FnMut()) -> Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for (of, left) in LEFT {
            for &shots in self.shots {
                let all = unseen(samples, of, shots, Settings::default(), self.seeds[0])?;
                kept.push(Kept { left, shots, all });
                step();
            }
        }
        Ok(kept)
    }
}

fn lines_of(target: &str, seeds: &[u64], reports: &[Report], kept: &[Kept]) -> Vec<Value> {
    let line = |own: Value| {
        let mut line = json!({
            "schema_version": 1,
            "model": MODEL,
            "suite": NAME,
            "target": target,
        });
        if let (Value::Object(line), Value::Object(own)) = (&mut line, own) {
            line.extend(own);
        }
        line
    };
    let reports = seeds.iter().zip(reports).map(|(seed, report)| {
        line(json!({
            "seed": seed,
            "samples": report.samples,
            "refits": report.refits,
            "prequential_r2": report.prequential,
            "served": report.served,
            "learners": report.quality,
            "served_quality": report.served_quality,
            "accuracy": report.accuracy,
        }))
    });
    let kept = kept.iter().flat_map(|kept| {
        kept.all.iter().map(|one| {
            line(json!({
                "seed": seeds[0],
                "kept_from": kept.left,
                "name": one.name,
                "shots": kept.shots,
                "accuracy": [one.accuracy],
            }))
        })
    });
    reports.chain(kept).collect()
}

fn print(target: &str, samples: usize, reports: &[Report], kept: &[Kept]) -> Result<(), Failure> {
    let mut shown = table(&[
        "R2 of unseen samples",
        "machine",
        "linear",
        "forest",
        "served",
        "own mean",
    ]);
    for (place, count) in COUNTS.iter().enumerate() {
        let of = reports.iter().filter_map(|one| one.accuracy.get(place));
        shown.add_row(row(
            format!("after {count} samples"),
            &of.collect::<Vec<_>>(),
        ));
    }
    for kept in kept {
        for one in &kept.all {
            let name = match kept.shots {
                0 => format!("{} {}, never seen", kept.left, one.name),
                shots => format!("{} {}, {shots} samples seen", kept.left, one.name),
            };
            shown.add_row(row(name, &[&one.accuracy]));
        }
    }
    let serves: Vec<String> = reports.iter().map(|one| served(&one.served)).collect();
    let late = reports.iter().filter_map(|one| one.served_quality.r2);
    out::line(format_args!(
        "{NAME}: {target}, {samples} samples in random order, means of {} orders; rows with a network or GPU: one order\n{shown}\n\
         own mean: R2 of the served predictions against the mean of the predicted samples, for each network or GPU separately; the other columns \
         of a row with a network or GPU are against the mean of the learnt samples.\n\
         Served at the end: {}. Prequential R2 of served predictions: {:.3} over all samples, {:.3} over the latest. Recorded measurements (Gavel: K80, P100, V100).\n",
        reports.len(),
        serves.join("; "),
        mean(reports.iter().map(|report| report.prequential)).unwrap_or_default(),
        mean(late).unwrap_or_default(),
    ))
}

fn row(name: String, of: &[&Accuracy]) -> [String; 6] {
    let part = |read: fn(&Accuracy) -> f64| {
        let value = mean(of.iter().map(|&one| read(one))).unwrap_or_default();
        format!("{value:.3}")
    };
    [
        name,
        part(|one| one.machine),
        part(|one| one.linear),
        part(|one| one.forest),
        part(|one| one.served),
        part(|one| one.served_own_mean),
    ]
}

/// The learner served last, since which sample, and the number of changes.
fn served(changes: &[(u64, Learner)]) -> String {
    let name = |learner| match learner {
        Learner::Machine => "machine",
        Learner::Forest => "forest",
        Learner::Linear => "linear machine",
    };
    match changes {
        [] => "nothing".to_owned(),
        [(_, only)] => format!("the {} throughout", name(*only)),
        [.., (from, last)] => format!(
            "the {} from sample {from} on, after {} changes",
            name(*last),
            changes.len() - 1
        ),
    }
}

/// Writes a model that has learnt all samples, and reads it again.
fn write_model(folder: &Path, target: &str, samples: &[Sample], seed: u64) -> Result<()> {
    let mut online = Online::new(Settings::default())?;
    let samples = shuffled(samples, seed);
    for sample in &samples {
        with_values(sample, |values| online.learn(values, sample.target))?;
    }
    online.finish()?;
    let name = format!("{target}.model");
    let bytes = online.predictor.to_bytes();
    let text = String::from_utf8(bytes).context("the model file is not text")?;
    out::file(folder, &name, &text)?;
    let read = Predictor::from_bytes(&name, text.as_bytes())?;
    for sample in &samples {
        let predict = |one: &Predictor| with_values(sample, |row| one.predict(row));
        ensure!(
            predict(&online.predictor)? == predict(&read)?,
            "{name}: the model that was read differs from the model that was written"
        );
    }
    Ok(())
}
