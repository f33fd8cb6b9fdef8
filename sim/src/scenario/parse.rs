//! Reads a scenario file, with the place of everything that is wrong in it.

use std::path::Path;

use policy::{Param, PillionParams, Slo};
use profiler::nearest::nearest;
use profiler::settings::{self, Fault, Reader, Section, Value};
use softgpu::{Config, Contention, Device, Dispatch, Sharing};
use toml::de::{DeTable, DeValue};

use super::job::JobReader;
use super::{Scenario, Shown};
use crate::error::Error;
use crate::experiment::Experiment;
use crate::host::HostModel;
use crate::job::{Job, JobClass};
use crate::library::Library;
use crate::profile_errors::ProfileErrors;
use crate::schedulers::PolicySpec;
use crate::sweep::{self, Combination};

const KEYS: [&str; 12] = [
    "name",
    "device",
    "sharing",
    "seconds",
    "seeds",
    "warmup_requests",
    "policy",
    "jobs",
    "gpu",
    "host",
    "profiles",
    "sweep",
];
const GPU_KEYS: [&str; 5] = [
    "slice_ns",
    "context_switch_ns",
    "block_priority",
    "dispatch",
    "contention",
];
const HOST_KEYS: [&str; 14] = [
    "launch_gap_ns",
    "launch_latency_ns",
    "notice_ns",
    "driver_queue",
    "poll_ns",
    "idle_poll_ns",
    "helper_poll_ns",
    "wake_ns",
    "max_hold_ns",
    "completion_delay_ns",
    "stall_ns",
    "stall_every_ns",
    "clock_jump_ns",
    "clock_jump_every_ns",
];
const PROFILE_KEYS: [&str; 5] = [
    "of",
    "duration_factor",
    "wrong_share",
    "flipped_share",
    "unknown_share",
];

/// The number of a policy that a daemon's configuration has as a text.
const SLO_KEY: &str = "slo_p99";

/// Device seconds if a scenario does not say: 900 requests at 15 per second, so that nine of them
/// lie behind the 99th percentile.
pub const SECONDS_DEFAULT: f64 = 60.0;
/// Longest run: a day of the device.
pub const SECONDS_MAX: f64 = 86_400.0;
/// Device if a scenario does not say: Orion's.
pub const DEVICE_DEFAULT: &str = "V100-SXM2-16GB";
/// The words of `sharing`.
pub const SHARING_NAMES: [&str; 2] = ["mps", "timeslice"];
/// Requests left out of the latencies if a scenario does not say: as Orion's harness.
pub const WARMUP_DEFAULT: u64 = 10;
/// The host's times, and the longest that [`HostModel::check`] takes of any.
pub(super) const SECOND_NS: u64 = 1_000_000_000;
const HOST_NS_MAX: u64 = 10 * SECOND_NS;
/// The words of `of` in `[profiles]`.
const PROFILE_OWNERS: [&str; 3] = ["all", "high-priority", "best-effort"];
/// Greatest factor of a duration or of the contention: beyond it nothing more is to be learnt.
const FACTOR_MAX: f64 = 1_000.0;
/// Most seeds of a scenario.
const SEEDS_MAX: usize = 1_000;

/// Every combination of the file, or everything that is wrong with it, in the order of the file.
pub(super) fn parse(
    path: &Path,
    text: &str,
    folder: &Path,
    library: &mut Library,
) -> Result<Vec<Scenario>, Vec<Fault>> {
    let document = settings::document(path, text)?;
    let mut reader = Reader::new(path, text);
    let mut scenarios = Vec::new();
    for combination in sweep::combinations(&mut reader, &document).unwrap_or_default() {
        let mut parser = Parser {
            reader: &mut reader,
            folder,
            library,
        };
        scenarios.extend(parser.scenario(combination));
    }
    let faults = reader.into_faults();
    if faults.is_empty() {
        Ok(scenarios)
    } else {
        Err(faults)
    }
}

struct Parser<'r, 'f> {
    reader: &'r mut Reader<'f>,
    folder: &'r Path,
    library: &'r mut Library,
}

impl Parser<'_, '_> {
    fn scenario(&mut self, combination: Combination<'_>) -> Option<Scenario> {
        let Combination { document, swept } = combination;
        self.reader.check_keys("the file", &document, &KEYS);
        let root = Section {
            offset: 0,
            table: Some(&document),
        };
        let name = self.reader.text(&root, "name", "a text");
        let device = self.device(&root);
        let sharing = self.reader.word(&root, "sharing", &SHARING_NAMES);
        let seconds = self
            .reader
            .decimal(&root, "seconds", SECONDS_MAX, SECONDS_DEFAULT);
        let seeds = self.seeds(&root);
        let warmup = self
            .reader
            .number(&root, "warmup_requests", 0..=1_000_000, WARMUP_DEFAULT);
        let policy = self.policy(&document);
        let host = self.host(&document);
        let profiles = self.profiles(&document);
        // Where the device is wrong, the rest is still checked, on another.
        let known = device.clone().or(Device::by_name(DEVICE_DEFAULT).ok())?;
        let kinds = [Sharing::Mps, Sharing::TimeSlice];
        let gpu = self.gpu(&document, &known, kinds[sharing.flatten().unwrap_or(0)]);
        let jobs = JobReader {
            reader: self.reader,
            folder: self.folder,
            library: self.library,
            device: &known,
        }
        .jobs(&document);
        let (jobs, shown): (Vec<Job>, Vec<Shown>) = jobs?.into_iter().unzip();
        sharing?;
        let experiment = Experiment {
            device: device?,
            gpu: gpu?,
            jobs,
            policy: policy?,
            seed: 0,
            duration_ns: (seconds? * 1e9) as u64,
            host: host?,
            profiles: profiles?,
            warmup_requests: warmup? as u32,
        };
        self.check(&experiment, &document)?;
        Some(Scenario {
            name: name?.map_or("", |(_, name)| name).to_owned(),
            experiment,
            shown,
            seeds: seeds?,
            swept,
        })
    }

    /// What is right key by key may still not go together; each fault is at what it speaks of, those of
    /// all jobs at their own keys.
    fn check(&mut self, experiment: &Experiment, document: &DeTable<'_>) -> Option<()> {
        let mut is_right = true;
        for index in 0..experiment.jobs.len() {
            if let Err(error) = experiment.check_job(index) {
                let key = match &error {
                    Error::Arrivals { .. } => "arrivals",
                    _ => "trace",
                };
                let offset = offset_in_job(document, index, key);
                self.reader.fault(offset, error, None);
                is_right = false;
            }
        }
        if !is_right {
            return None;
        }
        let Err(error) = check(experiment) else {
            return Some(());
        };
        let offset_of = |key: &str| document.get(key).map_or(0, |value| value.span().start);
        let offset = match &error {
            Error::Device { .. } => offset_of("device"),
            Error::Duration { .. } => offset_of("seconds"),
            Error::Host { .. } => offset_of("host"),
            Error::Policy(_) => offset_of("policy"),
            Error::Memory { .. } => offset_in_job(document, first_too_many(experiment), "memory"),
            _ => offset_of("jobs"),
        };
        self.reader.fault(offset, error, None);
        None
    }

    fn policy(&mut self, document: &DeTable<'_>) -> Option<PolicySpec> {
        let section = self.reader.section(document, "policy");
        let given = section
            .get("name")
            .and_then(|value| value.get_ref().as_str());
        let known: Option<PolicySpec> = given.and_then(|name| name.parse().ok());
        if known.is_none() {
            (self.reader).word(&section, "name", &PolicySpec::names())?;
        }
        let Some(mut policy) = known else {
            let near = Some("name = \"orion\"".to_owned());
            let what = "the scenario has no policy; needs [policy] with a name";
            self.reader.fault(section.offset, what, near);
            return None;
        };
        let table = section.table?;
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
                self.reader.fault(key.span().start, what, near);
                is_right = false;
                continue;
            };
            is_right &= self.policy_number(&mut policy, param, value);
        }
        is_right.then_some(policy)
    }

    /// Sets a number of a policy, written as here or as in a daemon's configuration; false if it cannot be meant.
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
        let near =
            near.or_else(|| is_target.then(|| format!("\"{}\"", PillionParams::default().slo)));
        self.reader
            .bad(value.span(), param.key, &wanted(param), near);
        false
    }

    fn host(&mut self, document: &DeTable<'_>) -> Option<HostModel> {
        let section = self.reader.section(document, "host");
        if let Some(table) = section.table {
            self.reader.check_keys("[host]", table, &HOST_KEYS);
        }
        let mut host = HostModel::default();
        // As `HostModel::check` takes them, so that what it would refuse is refused at its value.
        let (time, pause) = (0..=SECOND_NS, 1..=SECOND_NS);
        let (any, period) = (0..=HOST_NS_MAX, 1..=HOST_NS_MAX);
        let times = [
            ("launch_gap_ns", &mut host.launch_gap_ns, &time),
            ("launch_latency_ns", &mut host.launch_latency_ns, &time),
            ("notice_ns", &mut host.notice_ns, &time),
            ("poll_ns", &mut host.poll_ns, &pause),
            ("idle_poll_ns", &mut host.idle_poll_ns, &pause),
            ("helper_poll_ns", &mut host.helper_poll_ns, &pause),
            ("wake_ns", &mut host.wake_ns, &time),
            ("max_hold_ns", &mut host.max_hold_ns, &any),
            ("completion_delay_ns", &mut host.completion_delay_ns, &time),
            ("stall_ns", &mut host.stall_ns, &any),
            ("stall_every_ns", &mut host.stall_every_ns, &period),
            ("clock_jump_ns", &mut host.clock_jump_ns, &any),
            (
                "clock_jump_every_ns",
                &mut host.clock_jump_every_ns,
                &period,
            ),
        ];
        let mut is_right = true;
        for (key, ns, range) in times {
            match self.reader.number(&section, key, range.clone(), *ns) {
                Some(number) => *ns = number,
                None => is_right = false,
            }
        }
        let queue = u64::from(host.driver_queue);
        let queue = self
            .reader
            .number(&section, "driver_queue", 1..=65_536, queue);
        host.driver_queue = queue? as u32;
        is_right.then_some(host)
    }

    fn profiles(&mut self, document: &DeTable<'_>) -> Option<ProfileErrors> {
        let section = self.reader.section(document, "profiles");
        if let Some(table) = section.table {
            self.reader.check_keys("[profiles]", table, &PROFILE_KEYS);
        }
        let none = ProfileErrors::NONE;
        let of = self.reader.word(&section, "of", &PROFILE_OWNERS);
        let factor = self.reader.decimal(
            &section,
            "duration_factor",
            FACTOR_MAX,
            none.duration_factor,
        );
        let [wrong, flipped, unknown] = [
            ("wrong_share", none.wrong_share),
            ("flipped_share", none.flipped_share),
            ("unknown_share", none.unknown_share),
        ]
        .map(|(key, share)| self.share(&section, key, share));
        let owners = [
            None,
            Some(JobClass::HighPriority),
            Some(JobClass::BestEffort),
        ];
        Some(ProfileErrors {
            duration_factor: factor?,
            wrong_share: wrong?,
            flipped_share: flipped?,
            unknown_share: unknown?,
            of: of?.and_then(|index| owners[index]),
        })
    }

    /// A number from 0 to 1.
    fn share(&mut self, section: &Section<'_, '_>, key: &str, default: f64) -> Option<f64> {
        let Some(value) = section.get(key) else {
            return Some(default);
        };
        let number = number_of(value);
        let share = number.filter(|share| (0.0..=1.0).contains(share));
        if share.is_none() {
            let near = number.map(|number| number.clamp(0.0, 1.0).to_string());
            self.reader
                .bad(value.span(), key, "a share from 0 to 1", near);
        }
        share
    }

    fn device(&mut self, root: &Section<'_, '_>) -> Option<Device> {
        let Some((span, name)) = self.reader.text(root, "device", "a model of GPU")? else {
            return Device::by_name(DEVICE_DEFAULT).ok();
        };
        match Device::by_name(name) {
            Ok(device) => Some(device),
            Err(error) => {
                self.reader.fault(span.start, error, None);
                None
            }
        }
    }

    fn seeds(&mut self, root: &Section<'_, '_>) -> Option<Vec<u64>> {
        let Some(value) = root.get("seeds") else {
            return Some(vec![1]);
        };
        let seeds = match value.get_ref() {
            DeValue::Array(values) if (1..=SEEDS_MAX).contains(&values.len()) => values
                .iter()
                .map(|seed| {
                    let integer = seed.get_ref().as_integer()?;
                    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
                })
                .collect::<Option<Vec<u64>>>(),
            _ => None,
        };
        if seeds.is_none() {
            let wanted = format!("a list of 1 to {SEEDS_MAX} whole numbers");
            let near = Some("[1, 2, 3]".to_owned());
            self.reader.bad(value.span(), "seeds", &wanted, near);
        }
        seeds
    }

    fn gpu(&mut self, document: &DeTable<'_>, device: &Device, sharing: Sharing) -> Option<Config> {
        let section = self.reader.section(document, "gpu");
        if let Some(table) = section.table {
            self.reader.check_keys("[gpu]", table, &GPU_KEYS);
        }
        let usual = Config::new(sharing, device);
        let slice_ns = self.reader.number(
            &section,
            "slice_ns",
            10_000..=10_000_000_000,
            usual.slice_ns,
        );
        let switch_ns = self.reader.number(
            &section,
            "context_switch_ns",
            0..=1_000_000_000,
            usual.context_switch_ns,
        );
        let block_priority = self
            .reader
            .flag(&section, "block_priority", usual.block_priority);
        let scale = self
            .reader
            .decimal(&section, "contention", FACTOR_MAX, usual.contention.scale);
        let words = ["head-of-line", "fill-in"];
        let dispatch = self.reader.word(&section, "dispatch", &words)?;
        let kinds = [Dispatch::HeadOfLine, Dispatch::FillIn];
        Some(Config {
            slice_ns: slice_ns?,
            context_switch_ns: switch_ns?,
            block_priority: block_priority?,
            dispatch: dispatch.map_or(usual.dispatch, |index| kinds[index]),
            contention: Contention {
                scale: scale?,
                ..usual.contention
            },
            ..usual
        })
    }
}

/// Where a key of a job begins; where the job begins, if it has no such key.
fn offset_in_job(document: &DeTable<'_>, index: usize, key: &str) -> usize {
    let jobs = document.get("jobs");
    let list = jobs.and_then(|jobs| jobs.get_ref().as_array());
    let Some(job) = list.and_then(|list| list.get(index)) else {
        return jobs.map_or(0, |jobs| jobs.span().start);
    };
    let table = job.get_ref().as_table();
    let value = table.and_then(|table| table.get(key));
    value.map_or(job.span().start, |value| value.span().start)
}

/// The first job that has no room beside those before it.
fn first_too_many(experiment: &Experiment) -> usize {
    let mut needed: u64 = 0;
    let mut jobs = experiment.jobs.iter();
    let place = jobs.position(|job| {
        needed = needed.saturating_add(job.memory_bytes.unwrap_or(0));
        needed > experiment.device.memory_bytes
    });
    place.unwrap_or(0)
}

/// What it can be set to, in words.
fn wanted(param: &Param) -> String {
    let (least, most) = (param.least, param.most);
    match param.key {
        SLO_KEY => format!(
            "times alone, \"{least}x\" to \"{most}x\" or {least} to {most}, or ms, such as \"20ms\""
        ),
        _ => param.wanted(),
    }
}

/// A number as written, whole or with a fraction.
fn number_of(value: &Value<'_>) -> Option<f64> {
    let number: f64 = match value.get_ref() {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok()?,
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// Everything that a run would refuse, the policy's own conditions too.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(experiment: &Experiment) -> Result<(), Error> {
    experiment.check()?;
    let policy = &experiment.policy;
    if let Some(why) = contradiction(policy, experiment.gpu.sharing) {
        return Err(Error::Policy(format!("policy {policy}: {why}")));
    }
    policy.build(experiment).map(drop)
}

/// Why the policy cannot be meant with this sharing, if it cannot.
pub fn contradiction(policy: &PolicySpec, sharing: Sharing) -> Option<&'static str> {
    (policy.needs_mps() && sharing == Sharing::TimeSlice).then_some(
        "on time slices kernels of several jobs never compute side by side; sharing timeslice goes \
         with none, temporal, orion and launch-gate",
    )
}
