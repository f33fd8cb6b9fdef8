//! Reads a configuration, with the place of everything that is wrong in it.
//!
//! The TOML is walked by hand (`profiler::settings`) rather than derived, because only so does every
//! fault have the place of the key or value it speaks of and the nearest right one, and only so are
//! all faults found.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use policy::pillion::{THROUGHPUT_MIN, look_ns_max};
use policy::policy::simulator_only;
use policy::registry;
use policy::terms::WEIGHT_MAX;
use policy::{
    LaunchGateParams, OrionParams, PillionParams, Policy, PolicyError, Sharing, Slo, SmThreshold,
    TemporalParams,
};
use profiler::settings::{self, Fault, Reader, Section, Value};
use toml::de::{DeTable, DeValue};

use super::PATH_BYTES_MAX;
use super::{
    AUTO, Config, JobRule, OnCollectives, OnDaemonLoss, SHARING_NAMES, access, faults, memory,
    plain,
};
use crate::config::gpu::{PciAddress, Select};

const TABLES: [&str; 8] = [
    "gpu",
    "policy",
    "jobs",
    "memory",
    "faults",
    "high_priority",
    "limits",
    "socket",
];
const GPU_KEYS: [&str; 4] = ["index", "uuid", "pci", "sharing"];
const SOCKET_KEYS: [&str; 1] = ["path"];
const JOB_KEYS: [&str; 2] = ["weight", "min_progress"];
/// Keys of `[policy]` that every policy has.
const POLICY_KEYS: [&str; 6] = [
    "name",
    "poll_us",
    "max_hold_ms",
    "unknown_kernel_us",
    "on_daemon_loss",
    "collectives",
];
/// Keys that not every policy has, and the policies that look at them.
const OWN_KEYS: [(&str, &[&str]); 16] = [
    ("dur_threshold_pct", &["orion", "temporal"]),
    ("residual_us", &["orion", "temporal", "pillion"]),
    ("lease_ms", &["orion", "temporal", "launch-gate", "pillion"]),
    ("sm_threshold", &["orion"]),
    ("slo_p99", &["pillion"]),
    ("slo_throughput", &["pillion"]),
    ("block_priority", &["pillion"]),
    ("feedback", &["pillion"]),
    ("beside", &["pillion"]),
    ("kernel_pairs", &["pillion"]),
    ("idle_floor", &["pillion"]),
    ("gap_prediction", &["pillion"]),
    ("learnt_pace", &["pillion"]),
    ("learnt_durations", &["pillion"]),
    ("completion_prediction", &["pillion"]),
    ("sliding", &["pillion"]),
];

/// Most GPUs in a machine, amply.
const INDEX_MAX: u64 = 255;
/// Below 10 us the daemon would do nothing but look; above 1 ms, its slowest look, a lease could
/// end before it is renewed.
const POLL_US: RangeInclusive<u64> = 10..=1_000;
/// Above a minute it would no longer keep an application from a deadlock that people notice.
const MAX_HOLD_MS: RangeInclusive<u64> = 1..=60_000;
/// Up to a second: kernels that long are always profiled.
const UNKNOWN_KERNEL_US: RangeInclusive<u64> = 1..=1_000_000;
const RESIDUAL_US: RangeInclusive<u64> = 0..=10_000_000;
/// The limits of `policy::PolicyError::LeaseNs`.
const LEASE_MS: RangeInclusive<u64> = 1..=1_000;
const WEIGHT: RangeInclusive<u64> = 1..=WEIGHT_MAX as u64;
/// More than a GPU has: needs are not capped, and kernels of Orion's training traces need up to 112 896.
const SM_THRESHOLD: RangeInclusive<u64> = 0..=u32::MAX as u64;

/// Pillion's own: it protects by what requests were seen to take, so it needs the least to be said.
const POLICY_DEFAULT: &str = "pillion";
const POLL_US_DEFAULT: u64 = 50;
const MAX_HOLD_MS_DEFAULT: u64 = 100;
const UNKNOWN_KERNEL_US_DEFAULT: u64 = 100;

/// The configuration in `text`, or everything that is wrong with it, in the order of the file.
pub(super) fn parse(path: &Path, text: &str) -> Result<Config, Vec<Fault>> {
    let document = settings::document(path, text)?;
    let mut parser = Parser(Reader::new(path, text));
    let config = parser.config(&document);
    match (config, parser.0.into_faults()) {
        (Some(config), faults) if faults.is_empty() => Ok(config),
        (_, faults) => Err(faults),
    }
}

/// What is particular to a daemon's configuration. Whatever cannot be read is `None` and has a fault.
struct Parser<'t>(Reader<'t>);

impl Parser<'_> {
    fn config(&mut self, document: &DeTable<'_>) -> Option<Config> {
        self.0.check_keys("the file", document, &TABLES);
        let gpu = self.0.section(document, "gpu");
        let policy = self.0.section(document, "policy");
        let socket = self.0.section(document, "socket");
        if let Some(table) = gpu.table {
            self.0.check_keys("[gpu]", table, &GPU_KEYS);
        }
        if let Some(table) = socket.table {
            self.0.check_keys("[socket]", table, &SOCKET_KEYS);
        }
        let memory = memory::parse(&mut self.0, document);
        let faults = faults::parse(&mut self.0, document);
        let high_priority = access::high_priority(&mut self.0, document);
        let limits = access::limits(&mut self.0, document);
        let jobs = self.jobs(document, &policy);
        let select = self.select(&gpu);
        let sharing = self.sharing(&gpu);
        let poll_us = self.0.number(&policy, "poll_us", POLL_US, POLL_US_DEFAULT);
        let block_priority = self.block_priority(&policy);
        let rules = self.policy(&policy, poll_us.unwrap_or(POLL_US_DEFAULT));
        let hold_ms = self
            .0
            .number(&policy, "max_hold_ms", MAX_HOLD_MS, MAX_HOLD_MS_DEFAULT);
        let unknown_us = self.0.number(
            &policy,
            "unknown_kernel_us",
            UNKNOWN_KERNEL_US,
            UNKNOWN_KERNEL_US_DEFAULT,
        );
        let on_daemon_loss = self.on_daemon_loss(&policy);
        let on_collectives = self.on_collectives(&policy);
        let socket_path = self.socket_path(&socket);
        Some(Config {
            gpu: select?,
            sharing: sharing?,
            policy: rules?,
            block_priority: block_priority?,
            poll_ns: poll_us? * 1_000,
            max_hold_ns: hold_ms? * 1_000_000,
            unknown_kernel_ns: unknown_us? * 1_000,
            on_daemon_loss: on_daemon_loss?,
            on_collectives: on_collectives?,
            socket_path: socket_path?,
            memory: memory?,
            high_priority: high_priority?,
            limits: limits?,
            jobs: jobs?,
            faults: faults?,
        })
    }

    /// `[jobs.NAME]`, in the order of the names.
    fn jobs(&mut self, document: &DeTable<'_>, policy: &Section<'_, '_>) -> Option<Vec<JobRule>> {
        let section = self.0.section(document, "jobs");
        let Some(table) = section.table else {
            return Some(Vec::new());
        };
        let name = policy.get("name").and_then(|name| name.get_ref().as_str());
        if let Some(name) = name.filter(|name| *name != "pillion") {
            let what = format!("[jobs] is set, but policy {name} does not look at it");
            let near = Some("name = \"pillion\"".to_owned());
            self.0.fault(section.offset, what, near);
            return None;
        }
        // All are read before one that is wrong ends it, so that all faults are found.
        let rules: Vec<_> = table
            .iter()
            .map(|(name, value)| self.job(name.get_ref(), value))
            .collect();
        rules.into_iter().collect()
    }

    fn job(&mut self, name: &str, value: &Value<'_>) -> Option<JobRule> {
        let Some(table) = value.get_ref().as_table() else {
            let near = Some("{ weight = 1, min_progress = 0.1 }".to_owned());
            self.0.bad(value.span(), name, "a table", near);
            return None;
        };
        self.0.check_keys("a job", table, &JOB_KEYS);
        let section = Section {
            offset: value.span().start,
            table: Some(table),
        };
        let weight = self.0.number(&section, "weight", WEIGHT, 1);
        let min_progress = match section.get("min_progress") {
            None => Some(0.0),
            Some(_) => self.0.decimal(&section, "min_progress", 1.0, 0.1),
        };
        Some(JobRule {
            name: name.to_owned(),
            weight: weight? as u32,
            min_progress: min_progress?,
        })
    }

    fn select(&mut self, gpu: &Section<'_, '_>) -> Option<Select> {
        let given: Vec<&str> = GPU_KEYS[..3]
            .iter()
            .copied()
            .filter(|key| gpu.get(key).is_some())
            .collect();
        let [key] = given[..] else {
            let found = match given.len() {
                0 => "none of them".to_owned(),
                _ => given.join(" and "),
            };
            self.0.fault(
                gpu.offset,
                format!("[gpu] has {found}; needs exactly one of index, uuid, pci"),
                Some("index = 0".to_owned()),
            );
            return None;
        };
        if key == "index" {
            let index = self.0.number(gpu, key, 0..=INDEX_MAX, 0)?;
            return Some(Select::Index(index as usize));
        }
        let (span, text) = self.0.text(gpu, key, "a text")??;
        if key == "pci" {
            let address = text.parse::<PciAddress>().ok();
            if address.is_none() {
                self.0
                    .bad(span, key, "a PCI bus id such as \"0000:01:00.0\"", None);
            }
            return address.map(Select::Pci);
        }
        if !is_uuid_prefix(text) {
            self.0.bad(
                span,
                key,
                "a UUID as nvidia-smi -L prints it, GPU-… or MIG-…, or its beginning",
                None,
            );
            return None;
        }
        Some(Select::Uuid(text.to_owned()))
    }

    /// `sharing`, if it can be read: a way, or none where it is found out.
    fn sharing(&mut self, gpu: &Section<'_, '_>) -> Option<Option<Sharing>> {
        let sharing = self.0.word(gpu, "sharing", &SHARING_NAMES)?;
        Some([None, Some(Sharing::Mps), Some(Sharing::TimeSlice)][sharing.unwrap_or(0)])
    }

    /// `poll_us`: how often the daemon looks.
    fn policy(&mut self, section: &Section<'_, '_>, poll_us: u64) -> Option<Policy> {
        let name = self.policy_name(section);
        let name = name.map(|name| name.unwrap_or(POLICY_DEFAULT));
        self.check_policy_keys(section, name);
        if let Some(Policy::Listed(numbers)) = name.and_then(|name| name.parse().ok()) {
            return plain::numbers(&mut self.0, section, numbers).map(Policy::Listed);
        }
        let defaults = OrionParams::default();
        let pct = self
            .0
            .percentage(section, "dur_threshold_pct", defaults.dur_threshold_pct);
        let residual_us = defaults.residual_ns_unknown / 1_000;
        let residual_us = self
            .0
            .number(section, "residual_us", RESIDUAL_US, residual_us);
        let lease_ms = self
            .0
            .number(section, "lease_ms", LEASE_MS, defaults.lease_ns / 1_000_000);
        let sm_threshold = match section.get("sm_threshold") {
            None => Some(SmThreshold::DeviceSms),
            Some(_) => self
                .0
                .number(section, "sm_threshold", SM_THRESHOLD, 0)
                .map(|sms| SmThreshold::Sms(sms as u32)),
        };
        let throttle = TemporalParams {
            dur_threshold_pct: pct?,
            residual_ns_unknown: residual_us? * 1_000,
            lease_ns: lease_ms? * 1_000_000,
        };
        let pillion = self.pillion(section, &throttle, poll_us);
        Some(match name? {
            "none" => Policy::None,
            "temporal" => Policy::Temporal(throttle),
            "launch-gate" => Policy::LaunchGate(LaunchGateParams {
                lease_ns: throttle.lease_ns,
            }),
            "pillion" => Policy::Pillion(pillion?),
            _ => Policy::Orion(OrionParams {
                dur_threshold_pct: throttle.dur_threshold_pct,
                sm_threshold: sm_threshold?,
                residual_ns_unknown: throttle.residual_ns_unknown,
                lease_ns: throttle.lease_ns,
            }),
        })
    }

    /// `block_priority`, if it can be read: a switch, or none where it is found out.
    fn block_priority(&mut self, section: &Section<'_, '_>) -> Option<Option<bool>> {
        const KEY: &str = "block_priority";
        let Some(value) = section.get(KEY) else {
            return Some(None);
        };
        match value.get_ref() {
            DeValue::Boolean(is_on) => Some(Some(*is_on)),
            DeValue::String(word) if word == AUTO => Some(None),
            _ => {
                let nearest = Some(format!("{AUTO:?}"));
                self.0
                    .bad(value.span(), KEY, "true, false or \"auto\"", nearest);
                None
            }
        }
    }

    /// The numbers and switches of `pillion`.
    fn pillion(
        &mut self,
        section: &Section<'_, '_>,
        common: &TemporalParams,
        poll_us: u64,
    ) -> Option<PillionParams> {
        let defaults = PillionParams::default();
        let mut flag = |key, default| self.0.flag(section, key, default);
        let feedback = flag("feedback", defaults.feedback);
        let beside = flag("beside", defaults.beside);
        let kernel_pairs = flag("kernel_pairs", defaults.kernel_pairs);
        let idle_floor = flag("idle_floor", defaults.idle_floor);
        let gap_prediction = flag("gap_prediction", defaults.gap_prediction);
        let learnt_pace = flag("learnt_pace", defaults.learnt_pace);
        let learnt_durations = flag("learnt_durations", defaults.learnt_durations);
        let completion_prediction = flag("completion_prediction", defaults.completion_prediction);
        let sliding = flag("sliding", defaults.sliding);
        Some(PillionParams {
            slo: self.slo(section, defaults.slo)?,
            solo_ns: None,
            block_priority: self.block_priority(section)?.unwrap_or(false),
            feedback: feedback?,
            beside: beside?,
            kernel_pairs: kernel_pairs?,
            idle_floor: idle_floor?,
            gap_prediction: gap_prediction?,
            learnt_pace: learnt_pace?,
            learnt_durations: learnt_durations?,
            completion_prediction: completion_prediction?,
            sliding: sliding?,
            residual_ns_unknown: common.residual_ns_unknown,
            lease_ns: common.lease_ns,
            look_ns_max: look_ns_max(poll_us * 1_000),
        })
    }

    fn slo(&mut self, section: &Section<'_, '_>, default: Slo) -> Option<Slo> {
        if let Some(value) = section.get("slo_throughput") {
            if section.get("slo_p99").is_some() {
                let what =
                    "slo_throughput and slo_p99 are both set; high-priority jobs have one target";
                self.0.fault(value.span().start, what, None);
                return None;
            }
            let share = self.0.decimal(section, "slo_throughput", 1.0, 0.95)?;
            if share < THROUGHPUT_MIN {
                let wanted = format!("a number from {THROUGHPUT_MIN} to 1");
                let near = Some(THROUGHPUT_MIN.to_string());
                self.0.bad(value.span(), "slo_throughput", &wanted, near);
                return None;
            }
            return Some(Slo::Throughput(share));
        }
        let wanted = "times alone from \"1x\" to \"100x\", or ms, such as \"20ms\"";
        let Some((span, text)) = self.0.text(section, "slo_p99", wanted)? else {
            return Some(default);
        };
        let slo = text.parse().ok();
        if slo.is_none() {
            let near = Some(format!("\"{default}\""));
            self.0.bad(span, "slo_p99", wanted, near);
        }
        slo
    }

    /// `name`, as the registry has it. What only the simulator has is refused with the reason,
    /// everything else with the list.
    fn policy_name(&mut self, section: &Section<'_, '_>) -> Option<Option<&'static str>> {
        let value = section.get("name");
        let given = value.and_then(|value| Some((value.span(), value.get_ref().as_str()?)));
        if let Some(entry) = given.as_ref().and_then(|(_, name)| registry::find(name)) {
            return Some(Some(entry.name));
        }
        if let Some((span, name)) = given
            && let Some(index) = simulator_only(name)
        {
            self.0.fault(
                span.start,
                PolicyError::SimulatorOnly { index },
                Some("\"orion\"".to_owned()),
            );
            return None;
        }
        let index = self.0.word(section, "name", &Policy::NAMES)?;
        Some(index.map(|index| Policy::NAMES[index]))
    }

    /// Refuses keys that no policy has, and those that this policy does not look at: a bound that
    /// is written but not in force is worse than none.
    fn check_policy_keys(&mut self, section: &Section<'_, '_>, name: Option<&str>) {
        let Some(table) = section.table else { return };
        let own: Vec<&str> = OWN_KEYS.iter().map(|(key, _)| *key).collect();
        let plain = plain::keys(name);
        let more = plain.iter().map(|(key, _)| *key);
        let more = more.filter(|key| !own.contains(key)).collect::<Vec<_>>();
        let all = [&POLICY_KEYS[..], &own, &more].concat();
        self.0.check_keys("[policy]", table, &all);
        let Some(name) = name else { return };
        for (key, value) in table {
            let key: &str = key.get_ref();
            let own = OWN_KEYS.iter().filter(|(own, _)| *own == key);
            let users = own.flat_map(|(_, users)| users.iter().copied());
            let listed = plain.iter().filter(|(own, _)| *own == key);
            let users: Vec<&str> = users.chain(listed.map(|(_, entry)| entry.name)).collect();
            if !users.is_empty() && !users.contains(&name) {
                self.0.fault(
                    value.span().start,
                    format!("{key} is set, but policy {name} does not look at it"),
                    Some(format!("name = \"{}\"", users[0])),
                );
            }
        }
    }

    fn on_daemon_loss(&mut self, section: &Section<'_, '_>) -> Option<OnDaemonLoss> {
        let index = self
            .0
            .word(section, "on_daemon_loss", &OnDaemonLoss::NAMES)?;
        Some([OnDaemonLoss::Run, OnDaemonLoss::Hold][index.unwrap_or(0)])
    }

    fn on_collectives(&mut self, section: &Section<'_, '_>) -> Option<OnCollectives> {
        let index = self.0.word(section, "collectives", &OnCollectives::NAMES)?;
        Some([OnCollectives::Refuse, OnCollectives::Gate][index.unwrap_or(0)])
    }

    fn socket_path(&mut self, section: &Section<'_, '_>) -> Option<Option<PathBuf>> {
        let Some((span, text)) = self.0.text(section, "path", "an absolute path")? else {
            return Some(None);
        };
        if !text.starts_with('/') || text.len() > PATH_BYTES_MAX || text.contains('\0') {
            let near = Path::new("/run/pillion").join(text.trim_start_matches('/'));
            let near = (!text.is_empty() && text.len() < 80).then(|| format!("{near:?}"));
            let wanted = format!("an absolute path of at most {PATH_BYTES_MAX} bytes");
            self.0.bad(span, "path", &wanted, near);
            return None;
        }
        Some(Some(text.into()))
    }
}

/// `GPU-` or `MIG-` and at least one character of what follows, or more.
fn is_uuid_prefix(text: &str) -> bool {
    let rest = text
        .strip_prefix("GPU-")
        .or_else(|| text.strip_prefix("MIG-"));
    rest.is_some_and(|rest| {
        !rest.is_empty()
            && rest.len() <= 64
            && rest
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-/".contains(c))
    })
}
