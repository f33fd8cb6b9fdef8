//! Reads a scenario file, with the place of every fault.

use std::path::Path;

use policy::share::PERCENT_MIN;
use policy::throttle::{UTILISATION, UTILISATION_DEFAULT};
use policy::{Param, PillionParams, ShareMode, Slo, ThrottleParams};
use profiler::nearest::nearest;
use profiler::settings::or_nearest;
use profiler::settings::{self, Decimal, Fault, Layers, Reader, Table, Value, Whole};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use softgpu::{Config, Contention, Device, Dispatch, Governor, Sharing};
use toml::de::{DeTable, DeValue};

use super::job::{JobReader, JobSection};
use super::{Scenario, Shown};
use crate::arrivals::ARRIVALS_MAX;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::host::HostModel;
use crate::job::Job;
use crate::laws::{self, Laws};
use crate::library::Library;
use crate::profile_errors::ProfileErrors;
use crate::schedulers::PolicySpec;
use crate::sweep::{self, Combination};

/// The number of a policy that is a text in a daemon's configuration.
const SLO_KEY: &str = "slo_p99";

/// Default device seconds of a scenario: 900 requests at 15 per second, nine of them above the p99.
pub const SECONDS_DEFAULT: f64 = 60.0;
/// Longest run: a day of the device.
pub const SECONDS_MAX: f64 = 86_400.0;
/// Default device of a scenario: Orion's.
pub const DEVICE_DEFAULT: &str = "V100-SXM2-16GB";
/// The words of `sharing`.
pub const SHARING_NAMES: [&str; 2] = ["mps", "timeslice"];
/// Default number of requests left out of the latencies: as Orion's harness.
pub const WARMUP_DEFAULT: u64 = 10;
const SEEDS_MAX: usize = 1_000;

pub(super) fn parse(
    path: &Path,
    text: &str,
    folder: &Path,
    library: &mut Library,
) -> Result<Vec<Scenario>, Vec<Fault>> {
    let layers = Layers::one(path, text);
    let document = layers.document()?;
    let mut reader = Reader::of(&layers);
    let mut scenarios = Vec::new();
    for combination in sweep::combinations(&mut reader, &document).unwrap_or_default() {
        let mut parser = Parser {
            reader: &mut reader,
            folder,
            library,
        };
        scenarios.extend(parser.scenario(combination));
    }
    reader.finish(Some(scenarios))
}

/// A file of one combination, without the numbers of its policy ([`Parser::policy`]).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "device")]
    device: Option<Device>,
    #[serde(default, deserialize_with = "sharing")]
    sharing: Option<Sharing>,
    seconds: Option<Decimal<{ SECONDS_MAX as u64 }>>,
    requests: Option<Whole<1, { ARRIVALS_MAX as u64 }>>,
    #[serde(default = "seed", deserialize_with = "seeds")]
    seeds: Vec<u64>,
    warmup_requests: Option<Whole<0, 1_000_000>>,
    #[serde(rename = "policy")]
    _policy: Table<PolicySection>,
    jobs: Vec<Table<JobSection>>,
    #[serde(default)]
    gpu: Table<GpuSection>,
    throttle: Option<Table<ThrottleSection>>,
    share: Option<Table<ShareSection>>,
    #[serde(default)]
    host: Table<HostModel>,
    #[serde(default)]
    profiles: Table<ProfileErrors>,
    #[serde(rename = "sweep")]
    _sweep: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PolicySection {
    #[serde(rename = "name", deserialize_with = "policy_name")]
    _name: PolicySpec,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GpuSection {
    slice_ns: Option<Whole<10_000, 10_000_000_000>>,
    context_switch_ns: Option<Whole<0, 1_000_000_000>>,
    block_priority: Option<bool>,
    #[serde(deserialize_with = "dispatch")]
    dispatch: Option<Dispatch>,
    contention: Option<Decimal<1_000>>,
    governor: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ThrottleSection {
    #[serde(deserialize_with = "utilisation")]
    utilisation: Option<f64>,
    clock_mhz: Option<Whole<100, 10_000>>,
}

/// As a daemon's, without its mode: dynamic without a percentage.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ShareSection {
    percent: Option<Whole<{ PERCENT_MIN as u64 }, 100>>,
}

fn utilisation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let [least, most] = UTILISATION;
    let value = f64::deserialize(deserializer)?;
    if (least..=most).contains(&value) {
        return Ok(Some(value));
    }
    let near = value.clamp(least, most);
    let near = near.is_finite().then(|| near.to_string());
    Err(settings::wrong(format!("{least} to {most}"), near))
}

impl File {
    fn laws(&self) -> Laws {
        let throttle = self.throttle.as_ref().map(|section| ThrottleParams {
            utilisation: section.0.utilisation.unwrap_or(UTILISATION_DEFAULT),
            clock_mhz: section.0.clock_mhz.as_ref().map(|clock| clock.0 as u32),
        });
        let share = self.share.as_ref().map(|section| match &section.0.percent {
            Some(percent) => ShareMode::Static(percent.0 as u32),
            None => ShareMode::Dynamic,
        });
        Laws {
            throttle,
            share,
            by_sm_activity: false,
        }
    }
}

impl GpuSection {
    fn config(&self, usual: Config, device: &Device) -> Config {
        let slice_ns = self.slice_ns.map(|ns| ns.0);
        let switch_ns = self.context_switch_ns.map(|ns| ns.0);
        let scale = self.contention.map(|scale| scale.0);
        Config {
            slice_ns: slice_ns.unwrap_or(usual.slice_ns),
            context_switch_ns: switch_ns.unwrap_or(usual.context_switch_ns),
            block_priority: self.block_priority.unwrap_or(usual.block_priority),
            dispatch: self.dispatch.unwrap_or(usual.dispatch),
            contention: Contention {
                scale: scale.unwrap_or(usual.contention.scale),
                ..usual.contention
            },
            governor: self.governor.then(|| Governor::of(device)),
            ..usual
        }
    }
}

fn device<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Device>, D::Error> {
    let name = String::deserialize(deserializer)?;
    Device::by_name(&name).map(Some).map_err(D::Error::custom)
}

fn sharing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sharing>, D::Error> {
    let kinds = [Sharing::Mps, Sharing::TimeSlice];
    settings::word(deserializer, &SHARING_NAMES).map(|index| Some(kinds[index]))
}

fn dispatch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Dispatch>, D::Error> {
    let kinds = [Dispatch::HeadOfLine, Dispatch::FillIn];
    settings::word(deserializer, &["head-of-line", "fill-in"]).map(|index| Some(kinds[index]))
}

fn policy_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicySpec, D::Error> {
    let names = PolicySpec::names();
    let wanted = format!("one of {}", names.join(", "));
    settings::text(deserializer, &wanted, |name| {
        let nearest = |_| settings::nearest_word(name, &names);
        name.parse().map_err(nearest)
    })
}

fn seed() -> Vec<u64> {
    vec![1]
}

fn seeds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    let seeds: Vec<u64> = Vec::deserialize(deserializer)?;
    if (1..=SEEDS_MAX).contains(&seeds.len()) {
        return Ok(seeds);
    }
    let wanted = format!("a list of 1 to {SEEDS_MAX} whole numbers");
    Err(settings::wrong(wanted, Some("[1, 2, 3]".to_owned())))
}

struct Parser<'r, 'f> {
    reader: &'r mut Reader<'f>,
    folder: &'r Path,
    library: &'r mut Library,
}

impl Parser<'_, '_> {
    fn scenario(&mut self, combination: Combination<'_>) -> Option<Scenario> {
        let Combination { document, swept } = combination;
        let file: Option<File> = self.reader.read(&document);
        let policy = self.policy(&document);
        let file = file?;
        let laws = file.laws();
        let device = file.device.or(Device::by_name(DEVICE_DEFAULT).ok())?;
        let jobs = JobReader {
            reader: self.reader,
            document: &document,
            folder: self.folder,
            library: self.library,
            device: &device,
        }
        .jobs(file.jobs);
        let (jobs, shown): (Vec<Job>, Vec<Shown>) = jobs?.into_iter().unzip();
        let sharing = file.sharing.unwrap_or(Sharing::Mps);
        let seconds = match file.requests {
            Some(requests) => self.seconds_of(requests.0, &file.seconds, &jobs, &document)?,
            None => file.seconds.map_or(SECONDS_DEFAULT, |seconds| seconds.0),
        };
        let warmup = file.warmup_requests.map_or(WARMUP_DEFAULT, |count| count.0);
        let experiment = Experiment {
            laws,
            gpu: file.gpu.0.config(Config::new(sharing, &device), &device),
            device,
            jobs,
            policy: policy?,
            seed: 0,
            duration_ns: (seconds * 1e9) as u64,
            host: file.host.0,
            profiles: file.profiles.0,
            warmup_requests: warmup as u32,
        };
        self.check(&experiment, &document)?;
        Some(Scenario {
            name: file.name,
            experiment,
            shown,
            seeds: file.seeds,
            swept,
        })
    }

    fn seconds_of(
        &mut self,
        requests: u64,
        seconds: &Option<Decimal<{ SECONDS_MAX as u64 }>>,
        jobs: &[Job],
        document: &DeTable<'_>,
    ) -> Option<f64> {
        let per_s = jobs.iter().find_map(|job| job.arrivals.per_s());
        let wrong = match (per_s, seconds) {
            (_, Some(_)) => {
                "requests and seconds are both set: expected one of them for the length of a run"
            }
            (None, _) => "requests is set, but no job has a rate; nearest is seconds = 60",
            (Some(per_s), None) => {
                let seconds = requests as f64 / per_s;
                if seconds <= SECONDS_MAX {
                    return Some(seconds);
                }
                "requests is more than arrive in a day at that rate"
            }
        };
        let offset = settings::offset(document, "requests");
        self.reader.fault(offset, wrong);
        None
    }

    fn check(&mut self, experiment: &Experiment, document: &DeTable<'_>) -> Option<()> {
        let mut is_right = true;
        for index in 0..experiment.jobs.len() {
            if let Err(error) = experiment.check_job(index) {
                let key = match &error {
                    Error::Arrivals { .. } => "arrivals",
                    _ => "trace",
                };
                let offset = settings::offset(document, &format!("jobs.{index}.{key}"));
                self.reader.fault(offset, error);
                is_right = false;
            }
        }
        if !is_right {
            return None;
        }
        let Err(error) = check(experiment) else {
            return Some(());
        };
        let path = match &error {
            Error::Device { .. } => "device",
            Error::Duration { .. } => "seconds",
            Error::Host { .. } => "host",
            Error::Policy(_) => "policy",
            Error::Memory { .. } => &format!("jobs.{}.memory", first_too_many(experiment)),
            _ => "jobs",
        };
        self.reader.fault(settings::offset(document, path), error);
        None
    }

    fn policy(&mut self, document: &DeTable<'_>) -> Option<PolicySpec> {
        let table = document.get("policy")?.get_ref().as_table()?;
        let name = table.get("name")?.get_ref().as_str()?;
        let mut policy: PolicySpec = name.parse().ok()?;
        let mut is_right = true;
        for (key, value) in table {
            let word: &str = key.get_ref();
            if word == "name" {
                continue;
            }
            let params = policy.params();
            let Some(param) = params.iter().find(|param| param.key == word) else {
                let keys: Vec<&str> = params.iter().map(|param| param.key).collect();
                let what = match keys[..] {
                    [] => format!("policy {policy} has no numbers, but {word} is set"),
                    _ => format!("policy {policy} has no {word}; it has {}", keys.join(", ")),
                };
                let words = keys.iter().copied().chain(["name"]);
                let near = nearest(word, words).map(|key| format!("`{key}`"));
                self.reader
                    .fault(key.span().start, what + &or_nearest(near));
                is_right = false;
                continue;
            };
            is_right &= self.policy_number(&mut policy, param, value);
        }
        is_right.then_some(policy)
    }

    /// Sets a policy's number, written as here or as in a daemon's file; false if it is invalid.
    fn policy_number(&mut self, policy: &mut PolicySpec, param: &Param, value: &Value<'_>) -> bool {
        let is_target = param.key == SLO_KEY;
        if let Some(Ok(slo)) = value.get_ref().as_str().map(str::parse::<Slo>)
            && is_target
        {
            return policy.set_slo(slo);
        }
        let switch = value.get_ref().as_bool().filter(|_| param.is_switch);
        let number = switch.map(|is_on| f64::from(u8::from(is_on)));
        let number = number.or_else(|| number_of(value));
        if let Some(number) = number.filter(|&number| param.takes(number)) {
            return policy.set(param.key, number);
        }
        let near = number.map(|number| param.nearest(number).to_string());
        let near = near.or_else(|| {
            is_target.then(|| format!("\"{}\"", PillionParams::default().goal(false).slo))
        });
        let wanted = wanted(param) + &or_nearest(near);
        self.reader.bad(value.span(), param.key, wanted);
        false
    }
}

fn first_too_many(experiment: &Experiment) -> usize {
    let mut needed: u64 = 0;
    let mut jobs = experiment.jobs.iter();
    let place = jobs.position(|job| {
        needed = needed.saturating_add(job.memory_bytes.unwrap_or(0));
        needed > experiment.device.memory_bytes
    });
    place.unwrap_or(0)
}

fn wanted(param: &Param) -> String {
    let (least, most) = (param.least, param.most);
    match param.key {
        SLO_KEY => format!(
            "times alone, \"{least}x\" to \"{most}x\" or {least} to {most}, or ms, such as \"20ms\""
        ),
        _ => param.wanted(),
    }
}

fn number_of(value: &Value<'_>) -> Option<f64> {
    let number: f64 = match value.get_ref() {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok()?,
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// Checks everything that a run would refuse, including the policy's own conditions.
///
/// # Errors
/// The first fault.
pub fn check(experiment: &Experiment) -> Result<(), Error> {
    experiment.check()?;
    let policy = &experiment.policy;
    if let Some(why) = contradiction(policy, experiment.gpu.sharing) {
        return Err(Error::Policy(format!("policy {policy}: {why}")));
    }
    laws::be_percent(experiment)?;
    policy.build(experiment).map(drop)
}

/// Why the policy is meaningless with this sharing, if it is.
pub fn contradiction(policy: &PolicySpec, sharing: Sharing) -> Option<&'static str> {
    (policy.needs_mps() && sharing == Sharing::TimeSlice).then_some(
        "on time slices, kernels of several jobs never compute at the same time; expected sharing \
         mps, or a policy by lease: none, pillion, orion, temporal or launch-gate",
    )
}
