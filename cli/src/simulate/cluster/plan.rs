//! Plans runs on a cluster, from options or a suite, and checks all input.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use cluster::inventory::NODE_GPUS_MAX;
use cluster::placement::registry::{self, Chosen};
use cluster::{Inventory, JobSpec};
use cluster_sim::days::Neighbours;
use cluster_sim::play::Play;
use cluster_sim::replay::{self, Measured, Replay};
use cluster_sim::traces::{self, openb};
use cluster_sim::{fgd, sources};
use devices::Device;

use crate::simulate::cluster::Options;
use crate::simulate::cluster::suites::{self, Suite};
use crate::simulate::plan::{DATA, meant};

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) suite: Option<&'static Suite>,
    /// The trace's file name without its ending, or the name of the suite.
    pub(crate) trace: String,
    pub(crate) policies: Vec<Chosen>,
    pub(crate) seeds: Vec<u64>,
    pub(crate) what: What,
    /// Notes for a reader of the results, a line each.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum What {
    /// Jobs arrive and end; one for each seed of the plan.
    Weeks(Vec<Play>),
    /// Jobs arrive until the cluster is full, on each of these workloads.
    Inflation(Vec<Inflated>),
}

#[derive(Debug)]
pub(crate) struct Inflated {
    /// Its file name without the ending.
    pub(crate) name: String,
    pub(crate) inventory: Inventory,
    pub(crate) jobs: Vec<JobSpec>,
    /// The part of the GPUs that all jobs together request.
    pub(crate) target: f64,
    /// Published results, if this is the published experiment.
    pub(crate) published: Vec<openb::Allocation>,
}

const GPUS_MAX: u32 = 100_000;

const DAYS_MAX: u32 = 3_650;

/// Least part of a cluster's GPUs that inflation requests: results are by per cent.
const INFLATE_MIN: f64 = 0.01;

const INFLATE_MAX: f64 = 10.0;

/// Defaults.
const NODE_GPUS: u32 = 8;
const DEVICE: &str = "V100-SXM2-16GB";
const PAIRS_GPU: &str = "v100";

/// GPUs of the cluster in FGD's publication.
const PUBLISHED_GPUS: usize = 6_212;

impl Plan {
    /// Fails for any mistake in the options or in a file that they name.
    pub(crate) fn of(options: &Options) -> Result<Self> {
        let named = named(&options.policy)?;
        each_once("--seeds", &options.seeds)?;
        let data = std::env::var_os(DATA).map(PathBuf::from);
        match (&options.suite, &options.trace) {
            (Some(name), _) => Self::of_suite(options, name, named, data.as_deref()),
            (None, Some(trace)) if options.inflate.is_some() => {
                Self::of_inflation(options, trace, named, data.as_deref())
            }
            (None, Some(trace)) => Self::of_trace(options, trace, named),
            (None, None) => Err(anyhow!("--trace FILE or --suite SUITE is needed")),
        }
    }

    fn of_suite(
        options: &Options,
        name: &str,
        policies: Vec<Chosen>,
        data: Option<&Path>,
    ) -> Result<Self> {
        let suite = Suite::by_name(name)?;
        let neighbours = neighbours(options.neighbours.as_deref())?;
        ensure!(
            options.neighbours.is_none() || suite.has_neighbours,
            "--neighbours: jobs of suite {name} do not run beside each other"
        );
        if let Some(speed_max) = options.speed_max {
            ensure!(
                suite.has_neighbours,
                "--speed-max: jobs of suite {name} have fixed lengths"
            );
            ensure!(
                (1.0..=2.0).contains(&speed_max),
                "--speed-max {speed_max}: expected 1 to 2"
            );
        }
        let data = data.ok_or_else(|| {
            anyhow!("--suite {name}: {DATA} must name the folder of recorded traces")
        })?;
        let seeds = if options.seeds.is_empty() {
            suite.seeds(options.quick)
        } else {
            options.seeds.clone()
        };
        let setting = suites::Setting {
            seeds: &seeds,
            is_quick: options.quick,
            neighbours,
            speed_max: options.speed_max,
        };
        let what = suite.build(data, &setting)?;
        if matches!(what, What::Inflation(_)) {
            short_seeds(&seeds)?;
        }
        if matches!(what, What::Inflation(_)) {
            as_asked_for(&policies)?;
        }
        Ok(Self {
            suite: Some(suite),
            trace: suite.name.to_owned(),
            policies: or(policies, suite.policies.iter().copied())?,
            seeds,
            what,
            notes: Vec::new(),
        })
    }

    fn of_inflation(
        options: &Options,
        trace: &Path,
        policies: Vec<Chosen>,
        data: Option<&Path>,
    ) -> Result<Self> {
        let target = options.inflate.unwrap_or(fgd::TARGET);
        ensure!(
            (INFLATE_MIN..=INFLATE_MAX).contains(&target),
            "--inflate {target}: expected {INFLATE_MIN} to {INFLATE_MAX}"
        );
        let inventory = inventory(options)?;
        let jobs = replay::pods(trace, &inventory, options.nodes.is_some())?;
        let name = stem(trace);
        let seeds = match &options.seeds[..] {
            [] => fgd::SEEDS.map(u64::from).collect(),
            seeds => seeds.to_vec(),
        };
        short_seeds(&seeds)?;
        as_asked_for(&policies)?;
        let is_published = options.nodes.is_some()
            && (target - fgd::TARGET).abs() < 1e-9
            && inventory.gpus() == PUBLISHED_GPUS;
        let path = data.map(|data| data.join(suites::OPENB).join(suites::PUBLISHED));
        let mut published = match path.filter(|path| is_published && path.exists()) {
            Some(path) => traces::read(&path, openb::allocations)?,
            None => Vec::new(),
        };
        published.retain(|row| row.workload == name);
        Ok(Self {
            suite: None,
            trace: name.clone(),
            policies: or(policies, fgd::POLICIES.iter().map(|(_, ours)| *ours))?,
            seeds,
            what: What::Inflation(vec![Inflated {
                name,
                inventory,
                jobs,
                target,
                published,
            }]),
            notes: Vec::new(),
        })
    }

    fn of_trace(options: &Options, trace: &Path, policies: Vec<Chosen>) -> Result<Self> {
        let slo_milli = options.slo.map(slo_milli).transpose()?;
        if let Some(days) = options.days {
            ensure!(
                (1..=DAYS_MAX).contains(&days),
                "--days {days}: expected 1 to {DAYS_MAX}"
            );
        }
        let inventory = inventory(options)?;
        let unknown = sources::unknown_models(&inventory)
            .into_iter()
            .map(|model| {
                format!("unknown GPU model {model}: assumed to have 16 GiB and a P100's power")
            });
        let unknown: Vec<String> = unknown.collect();
        let gpu = options.pairs_gpu.as_deref().unwrap_or(PAIRS_GPU);
        let measured = options.pairs.as_ref();
        let measured = measured.map(|path| Measured::load(path, gpu)).transpose()?;
        let replay = Replay::load(
            trace,
            &replay::Options {
                inventory: &inventory,
                has_hosts: options.nodes.is_some(),
                slo_milli,
                days: options.days,
                measured: measured.as_ref(),
            },
        )
        .map_err(hinted)?;
        let seeds = match &options.seeds[..] {
            [] => vec![1],
            seeds => seeds.to_vec(),
        };
        let plays = seeds.iter();
        let plays = plays.map(|&seed| replay.play(&inventory, measured.as_ref(), seed));
        Ok(Self {
            suite: None,
            trace: stem(trace),
            policies: or(policies, whole())?,
            what: What::Weeks(plays.collect()),
            notes: replay.notes.iter().cloned().chain(unknown).collect(),
            seeds,
        })
    }

    pub(crate) fn runs(&self) -> usize {
        let workloads = match &self.what {
            What::Weeks(_) => 1,
            What::Inflation(workloads) => workloads.len(),
        };
        workloads * self.policies.len() * self.seeds.len()
    }
}

pub(crate) fn each_once<T: PartialEq + std::fmt::Display>(option: &str, all: &[T]) -> Result<()> {
    for (index, one) in all.iter().enumerate() {
        ensure!(
            !all[..index].contains(one),
            "{option}: {one} is given twice"
        );
    }
    Ok(())
}

/// Adds the option that helps.
fn hinted(error: replay::ReplayError) -> anyhow::Error {
    let hint = match error {
        replay::ReplayError::NeedsPairs { .. } => "; --pairs FILE provides them",
        replay::ReplayError::NoPromise { .. } => ": leave --slo out",
        _ => "",
    };
    anyhow!("{error}{hint}")
}

/// Each policy once.
fn named(names: &[String]) -> Result<Vec<Chosen>> {
    let all: Vec<&str> = registry::ALL.iter().map(|entry| entry.name).collect();
    let mut policies: Vec<Chosen> = Vec::new();
    for name in names {
        let chosen = registry::chosen(name).map_err(|error| {
            let policy = name.split('@').next().unwrap_or(name);
            anyhow!("--policy {name}: {error}{}", meant(policy, &all))
        })?;
        let is_new = !policies.iter().any(|known| known.name == chosen.name);
        ensure!(is_new, "--policy: {name} is given twice");
        policies.push(chosen);
    }
    Ok(policies)
}

fn or(asked: Vec<Chosen>, own: impl Iterator<Item = &'static str>) -> Result<Vec<Chosen>> {
    if !asked.is_empty() {
        return Ok(asked);
    }
    Ok(own.map(registry::chosen).collect::<Result<_, _>>()?)
}

/// Leaves out the policies that lack a part, which show the worth of that part.
fn whole() -> impl Iterator<Item = &'static str> {
    let names = registry::ALL.iter().map(|entry| entry.name);
    names.filter(|name| !name.contains("-without-"))
}

/// In inflation, jobs hold exactly their request.
fn as_asked_for(policies: &[Chosen]) -> Result<()> {
    match policies.iter().find(|policy| policy.name.contains('@')) {
        Some(policy) => Err(anyhow!(
            "--policy {}: in inflation, jobs hold exactly their request; expected {}",
            policy.name,
            policy.entry.name
        )),
        None => Ok(()),
    }
}

fn inventory(options: &Options) -> Result<Inventory> {
    let Some(gpus) = options.gpus else {
        let path = options.nodes.as_deref().unwrap_or(Path::new(""));
        return Ok(replay::cluster(path)?);
    };
    ensure!(
        (1..=GPUS_MAX).contains(&gpus),
        "--gpus {gpus}: expected 1 to {GPUS_MAX}"
    );
    let node_gpus = options.node_gpus.unwrap_or(NODE_GPUS);
    ensure!(
        node_gpus > 0 && node_gpus as usize <= NODE_GPUS_MAX,
        "--node-gpus {node_gpus}: expected 1 to {NODE_GPUS_MAX}"
    );
    let device = options.device.as_deref().unwrap_or(DEVICE);
    let device = Device::by_name(device).map_err(|error| anyhow!("--device {error}"))?;
    Ok(sources::uniform(&device, gpus, node_gpus)?)
}

fn slo_milli(ratio: f64) -> Result<u32> {
    ensure!(
        (0.001..=1000.0).contains(&ratio),
        "--slo {ratio}: expected 0.001 to 1000 times the length alone"
    );
    Ok((ratio * 1000.0).round() as u32)
}

fn neighbours(word: Option<&str>) -> Result<Neighbours> {
    match word {
        None | Some("measured") => Ok(Neighbours::Measured),
        Some("permuted") => Ok(Neighbours::Permuted),
        Some("unnoticed") => Ok(Neighbours::Unnoticed),
        Some(other) => Err(anyhow!(
            "--neighbours {other}: expected measured, permuted or unnoticed{}",
            meant(other, &["measured", "permuted", "unnoticed"])
        )),
    }
}

/// The published runs' generator has 32-bit seeds.
fn short_seeds(seeds: &[u64]) -> Result<()> {
    match seeds.iter().find(|&&seed| u32::try_from(seed).is_err()) {
        Some(seed) => Err(anyhow!(
            "--seeds {seed}: expected at most {}, because the published draws use 32-bit seeds",
            u32::MAX
        )),
        None => Ok(()),
    }
}

fn stem(path: &Path) -> String {
    let name = path.file_stem().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
