//! Plans the runs: checked scenarios from options, a file or a suite.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use profiler::nearest::nearest;
use sim::library::{Library, TraceError, shown_name};
use sim::scenario::{self, Scenario, Shown};
use sim::suite::Suite;
use sim::{Arrivals, Experiment, HostModel, Job, JobClass, PolicySpec, ProfileErrors};
use softgpu::{Config, Device, Sharing};

use crate::simulate::Options;

/// A suite has several experiments, everything else one.
#[derive(Debug)]
pub(crate) struct Part {
    /// Empty except in a suite.
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) scenarios: Vec<Scenario>,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    pub(crate) suite: Option<&'static Suite>,
    /// Empty for all parts.
    pub(crate) chosen: Vec<String>,
    /// Notes for a reader of the results, a line each.
    pub(crate) notes: Vec<String>,
}

/// Names the folder of recorded traces.
pub(crate) const DATA: &str = "PILLION_DATA";

impl Plan {
    /// Fails for any mistake in the options or in a file that they name.
    pub(crate) fn of(options: &Options) -> Result<Self> {
        let mut library = Library::default();
        if let Some(name) = &options.suite {
            return Self::of_suite(options, name, &mut library);
        }
        let scenarios = match &options.scenario {
            Some(path) => of_file(options, path, &mut library)?,
            None => of_pair(options, &mut library)?,
        };
        let part = Part {
            key: String::new(),
            title: scenarios.first().map_or(String::new(), |s| s.name.clone()),
            scenarios,
        };
        Ok(Self {
            parts: vec![part],
            suite: None,
            chosen: Vec::new(),
            notes: Vec::new(),
        })
    }

    fn of_suite(options: &Options, name: &str, library: &mut Library) -> Result<Self> {
        let suite = Suite::by_name(name).map_err(|error| anyhow!("--suite {error}"))?;
        let data = std::env::var_os(DATA).map(PathBuf::from);
        let built = suite
            .build(data.as_deref(), options.quick, library)
            .with_context(|| format!("--suite {name}"))?;
        let keys: Vec<&str> = built.parts.iter().map(|(part, _)| part.key).collect();
        if let Some(key) = options
            .part
            .iter()
            .find(|key| !keys.contains(&key.as_str()))
        {
            let meant = meant(key, &keys);
            bail!("--part {key}: suite {name} has {}{meant}", keys.join(", "));
        }
        let is_wanted =
            |key: &str| options.part.is_empty() || options.part.iter().any(|of| of == key);
        let mut parts = Vec::new();
        for (part, mut scenarios) in built
            .parts
            .into_iter()
            .filter(|(part, _)| is_wanted(part.key))
        {
            for scenario in &mut scenarios {
                set_size(options, scenario)?;
            }
            parts.push(Part {
                key: part.key.to_owned(),
                title: part.title.to_owned(),
                scenarios,
            });
        }
        Ok(Self {
            parts,
            suite: Some(suite),
            chosen: options.part.clone(),
            notes: built.notes,
        })
    }

    pub(crate) fn suite_options(&self, suite: &Suite) -> String {
        match &self.chosen[..] {
            [] => format!("--suite {}", suite.name),
            chosen => format!("--suite {} --part {}", suite.name, chosen.join(",")),
        }
    }

    pub(crate) fn scenarios(&self) -> impl Iterator<Item = (&Part, &Scenario)> {
        let parts = self.parts.iter();
        parts.flat_map(|part| part.scenarios.iter().map(move |scenario| (part, scenario)))
    }
}

fn of_file(options: &Options, path: &Path, library: &mut Library) -> Result<Vec<Scenario>> {
    let mut scenarios = match path.to_str() {
        // Relative paths in it start at the current folder.
        Some("-") => {
            let name = Path::new("stdin");
            let text =
                io::read_to_string(io::stdin().lock()).context("standard input: cannot be read")?;
            Scenario::parse(name, &text, Path::new(""), library)?
        }
        _ => Scenario::read(path, library)?,
    };
    for scenario in &mut scenarios {
        set_size(options, scenario)?;
    }
    Ok(scenarios)
}

fn set_size(options: &Options, scenario: &mut Scenario) -> Result<()> {
    if !options.seeds.is_empty() {
        scenario.seeds.clone_from(&options.seeds);
    }
    if let Some(seconds) = options.seconds {
        scenario.experiment.duration_ns = duration_ns(seconds)?;
        scenario::check(&scenario.experiment)?;
    }
    Ok(())
}

/// One pair of jobs, or a high-priority job beside several, under each policy.
fn of_pair(options: &Options, library: &mut Library) -> Result<Vec<Scenario>> {
    let device = options
        .device
        .as_deref()
        .unwrap_or(scenario::DEVICE_DEFAULT);
    let device = Device::by_name(device).map_err(|error| anyhow!("--device: {error}"))?;
    let sharing = sharing(options.sharing.as_deref())?;
    let (hp, hp_shown) = hp_job(options, &device, library)?;
    let mut jobs = vec![hp];
    let mut shown = vec![hp_shown];
    let default = ["resnet50-training".to_owned()];
    let traces = match &options.be[..] {
        [] => &default[..],
        given => given,
    };
    for (index, name) in traces.iter().enumerate() {
        let trace = library
            .trace(name, Path::new(""), &device)
            .map_err(|error| of_flag("--be", name, &error))?;
        let class = JobClass::BestEffort;
        let arrivals = Arrivals::Closed;
        let kind = scenario::kind_of(&arrivals);
        jobs.push(Job::new(format!("be{index}"), class, kind, trace, arrivals));
        shown.push(Shown {
            trace: shown_name(name).to_owned(),
            arrivals: "closed".to_owned(),
        });
    }
    let seconds = options.seconds.unwrap_or(scenario::SECONDS_DEFAULT);
    let experiment = Experiment {
        gpu: Config::new(sharing, &device),
        device,
        jobs,
        policy: PolicySpec::Mps,
        seed: 0,
        duration_ns: duration_ns(seconds)?,
        host: HostModel::default(),
        profiles: ProfileErrors::NONE,
        laws: sim::Laws::default(),
        warmup_requests: scenario::WARMUP_DEFAULT as u32,
    };
    let mut scenarios = Vec::new();
    for policy in policies(&options.policy, sharing)? {
        let experiment = Experiment {
            policy,
            ..experiment.clone()
        };
        scenario::check(&experiment)?;
        scenarios.push(Scenario {
            name: String::new(),
            experiment,
            shown: shown.clone(),
            seeds: match &options.seeds[..] {
                [] => vec![1],
                seeds => seeds.to_vec(),
            },
            swept: Vec::new(),
        });
    }
    Ok(scenarios)
}

/// Names the flag, and the file if the error does not.
fn of_flag(flag: &str, name: &str, error: &TraceError) -> anyhow::Error {
    match error {
        TraceError::File(error) => anyhow!("{flag}: {error}"),
        error => anyhow!("{flag} {name}: {error}"),
    }
}

fn hp_job(options: &Options, device: &Device, library: &mut Library) -> Result<(Job, Shown)> {
    let name = options.hp.as_deref().unwrap_or("resnet50-inference");
    let trace = library
        .trace(name, Path::new(""), device)
        .map_err(|error| of_flag("--hp", name, &error))?;
    let (shown_arrivals, arrivals) = arrivals(options)?;
    let kind = scenario::kind_of(&arrivals);
    let job = Job::new("hp", JobClass::HighPriority, kind, trace, arrivals);
    let shown = Shown {
        trace: shown_name(name).to_owned(),
        arrivals: shown_arrivals,
    };
    Ok((job, shown))
}

fn arrivals(options: &Options) -> Result<(String, Arrivals)> {
    let word = options.arrivals.as_deref().unwrap_or("poisson");
    let has_rate = matches!(word, "poisson" | "uniform");
    let is_file = !has_rate && word != "closed";
    if let Some(rate) = options.hp_rate.filter(|_| !has_rate) {
        bail!("--hp-rate {rate}: arrivals {word} have no rate; use it with poisson or uniform");
    }
    if let Some(stream) = options.arrivals_stream.filter(|_| !is_file) {
        bail!("--arrivals-stream {stream}: arrivals {word} are not a file");
    }
    let per_s = options.hp_rate.unwrap_or(15.0);
    ensure!(
        per_s > 0.0 && per_s <= scenario::RATE_MAX,
        "--hp-rate {per_s}: expected more than 0 and at most {}",
        scenario::RATE_MAX
    );
    Ok(match word {
        "closed" => (word.to_owned(), Arrivals::Closed),
        "poisson" => (format!("poisson {per_s}/s"), Arrivals::Poisson { per_s }),
        "uniform" => (format!("uniform {per_s}/s"), Arrivals::Uniform { per_s }),
        path => {
            let stream = options.arrivals_stream.unwrap_or(0);
            ensure!(
                Path::new(path).is_file(),
                "--arrivals {path}: expected closed, poisson, uniform or a file{}",
                meant(path, &["closed", "poisson", "uniform"])
            );
            let arrivals = Arrivals::read(Path::new(path), stream)
                .map_err(|error| anyhow!("--arrivals: {error}"))?;
            (scenario::shown_arrivals(path, stream as u64), arrivals)
        }
    })
}

fn sharing(word: Option<&str>) -> Result<Sharing> {
    match word {
        None | Some("mps") => Ok(Sharing::Mps),
        Some("timeslice") => Ok(Sharing::TimeSlice),
        Some(other) => bail!(
            "--sharing {other}: expected mps or timeslice{}",
            meant(other, &scenario::SHARING_NAMES)
        ),
    }
}

/// By default all policies that suit this sharing, except the bound that no daemon can reach.
fn policies(names: &[String], sharing: Sharing) -> Result<Vec<PolicySpec>> {
    if names.is_empty() {
        let all = PolicySpec::names()
            .into_iter()
            .filter(|name| *name != "oracle");
        let all = all.filter_map(|name| name.parse().ok());
        return Ok(all
            .filter(|policy| scenario::contradiction(policy, sharing).is_none())
            .collect());
    }
    let one = |name: &String| {
        let policy = name.parse::<PolicySpec>().map_err(|_| {
            let known = PolicySpec::names().join(", ");
            let meant = meant(name, &PolicySpec::names());
            anyhow!("--policy {name}: expected one of {known}{meant}")
        })?;
        match scenario::contradiction(&policy, sharing) {
            Some(why) => bail!("--policy {name}: {why}"),
            None => Ok(policy),
        }
    };
    names.iter().map(one).collect()
}

pub(crate) fn meant(word: &str, words: &[&str]) -> String {
    nearest(word, words.iter().copied())
        .map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

fn duration_ns(seconds: f64) -> Result<u64> {
    ensure!(
        seconds > 0.0 && seconds <= scenario::SECONDS_MAX,
        "--seconds {seconds}: expected more than 0 and at most {}",
        scenario::SECONDS_MAX
    );
    // Less than 1 ns becomes 0, which is refused.
    Ok((seconds * 1e9) as u64)
}
