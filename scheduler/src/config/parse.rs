//! Reads a configuration: the sections in the file's form, and their consistency.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use policy::pillion::{MISS_MAX, THROUGHPUT_MIN, look_ns_max};
use policy::policy::simulator_only;
use policy::registry;
use policy::share::{PERCENT_MIN, RESTART_NS};
use policy::terms::WEIGHT_MAX;
use policy::throttle::{UTILISATION, UTILISATION_DEFAULT};
use policy::usage::SHARE_MIN;
use policy::{
    LaunchGateParams, OrionParams, PillionParams, Policy, PolicyError, ShareMode, ShareParams,
    Sharing, Slo, SmThreshold, TemporalParams, ThrottleParams,
};
use profiler::settings::{self, Decimal, Fault, Layers, Reader, Table, Whole};
use protocol::compute::Cap;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::de::DeTable;

use super::probe::ProbeSection;
use super::{Config, JobRule, LearntRules, MemoryRules, OnCollectives, OnDaemonLoss, TunerRules};
use super::{PATH_BYTES_MAX, SHARING_NAMES};
use super::{faults, mps_rules, plain, unmanaged_rules};
use crate::config::fault_rules::FaultRules;
use crate::config::gpu::{PciAddress, Select};
use crate::config::limits::{HpAccess, Limits};
use crate::config::mps_rules::MpsRules;
use crate::config::unmanaged_rules::UnmanagedRules;

const OWN_KEYS: [(&str, &[&str]); 15] = [
    ("dur_threshold_pct", &["orion", "temporal"]),
    ("residual_us", &["orion", "temporal", "pillion"]),
    ("lease_ms", &["orion", "temporal", "launch-gate", "pillion"]),
    ("sm_threshold", &["orion"]),
    ("slo_p99", &["pillion"]),
    ("slo_miss", &["pillion"]),
    ("slo_quantile", &["pillion"]),
    ("slo_mean", &["pillion"]),
    ("slo_throughput", &["pillion"]),
    ("block_priority", &["pillion"]),
    ("feedback", &["pillion"]),
    ("beside", &["pillion"]),
    ("kernel_pairs", &["pillion"]),
    ("gap_prediction", &["pillion"]),
    ("learnt_durations", &["pillion"]),
];

/// The highest quantile, which one request in ten thousand exceeds: nothing is known of rarer ones.
const QUANTILE_MAX: f64 = 0.9999;

/// Pillion's own policy: it uses measured request durations, so it needs the least configuration.
const POLICY_DEFAULT: &str = "pillion";

pub(super) struct Named<'s> {
    /// Other than by a file.
    pub(super) given: Option<&'s Select>,
    /// Begin of the GPU's own files: those before are for all GPUs, and select none.
    pub(super) own_start: usize,
}

pub(super) fn parse(layers: &Layers, named: &Named<'_>) -> Result<Config, Vec<Fault>> {
    let mut document = layers.document()?;
    let mut reader = Reader::of(layers);
    let numbers = plain::take(&mut reader, &mut document);
    mps_rules::refuse_moved(&mut reader, &mut document);
    let file: Option<File> = reader.read(&document);
    let config = file.and_then(|file| file.validate(named, &mut reader, &document));
    let config = config.map(|config| match numbers {
        Some(numbers) => Config {
            policy: Policy::Listed(numbers),
            ..config
        },
        None => config,
    });
    reader.finish(config)
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    gpu: Table<GpuSection>,
    policy: Table<PolicySection>,
    jobs: Table<BTreeMap<String, Table<JobSection>>>,
    throttle: Option<Table<ThrottleSection>>,
    share: Option<Table<ShareSection>>,
    probe: Option<Table<ProbeSection>>,
    tuner: Option<Table<TunerSection>>,
    memory: Table<MemoryRules>,
    faults: Table<FaultRules>,
    unmanaged: Table<UnmanagedRules>,
    mps: Table<MpsRules>,
    high_priority: Option<Table<HpAccess>>,
    limits: Table<Limits>,
    learnt: Table<LearntRules>,
    socket: Table<SocketSection>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GpuSection {
    /// Far more GPUs than a machine has.
    index: Option<Whole<0, 255>>,
    #[serde(deserialize_with = "uuid")]
    uuid: Option<Select>,
    #[serde(deserialize_with = "pci")]
    pci: Option<Select>,
    #[serde(deserialize_with = "sharing")]
    sharing: Option<Sharing>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PolicySection {
    #[serde(deserialize_with = "policy_name")]
    name: Option<String>,
    /// Below 10 us the daemon only polls; above 1 ms, its longest interval, leases may lapse.
    poll_us: Option<Whole<10, 1_000>>,
    /// As clients take no longer one for right (`HOLD_NS_MAX` of their gate).
    max_hold_ms: Option<Whole<1, 10_000>>,
    /// Up to a second: longer kernels are always profiled.
    unknown_kernel_us: Option<Whole<1, 1_000_000>>,
    on_daemon_loss: OnDaemonLoss,
    collectives: OnCollectives,
    dur_threshold_pct: Option<Decimal<100>>,
    residual_us: Option<Whole<0, 10_000_000>>,
    /// The limits of `policy::PolicyError::LeaseNs`.
    lease_ms: Option<Whole<1, 1_000>>,
    /// More than a GPU has: needs are not capped, and Orion's training traces need up to 112 896.
    sm_threshold: Option<Whole<0, { u32::MAX as u64 }>>,
    #[serde(deserialize_with = "slo_p99")]
    slo_p99: Option<Slo>,
    #[serde(deserialize_with = "slo_miss")]
    slo_miss: Option<f64>,
    #[serde(deserialize_with = "slo_quantile")]
    slo_quantile: Option<f64>,
    #[serde(deserialize_with = "slo_mean")]
    slo_mean: Option<Slo>,
    #[serde(deserialize_with = "slo_throughput")]
    slo_throughput: Option<Slo>,
    block_priority: Option<Switch>,
    feedback: Option<bool>,
    beside: Option<bool>,
    kernel_pairs: Option<bool>,
    gap_prediction: Option<bool>,
    learnt_durations: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobSection {
    weight: Option<Whole<1, { WEIGHT_MAX as u64 }>>,
    min_progress: Option<Decimal<1>>,
    #[serde(default, deserialize_with = "max_share")]
    max_share: Option<Cap>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ThrottleSection {
    #[serde(deserialize_with = "utilisation")]
    utilisation: Option<f64>,
    /// Every GPU's clock is within.
    clock_mhz: Option<Whole<100, 10_000>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ShareSection {
    #[serde(deserialize_with = "share_mode")]
    mode: ShareWord,
    percent: Option<Whole<{ PERCENT_MIN as u64 }, 100>>,
    /// Up to a day.
    restart_s: Option<Whole<1, 86_400>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TunerSection {
    /// Of fewer than twenty the p99 is the longest by chance; more than ten thousand take hours.
    settle: Option<Whole<20, 10_000>>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum ShareWord {
    Off,
    Static,
    #[default]
    Dynamic,
    Target,
}

impl ShareWord {
    const NAMES: [&'static str; 4] = ["off", "static", "dynamic", "target"];
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SocketSection {
    #[serde(deserialize_with = "socket_path")]
    path: Option<PathBuf>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(
    untagged,
    expecting = "no switch, expected true, false or \"auto\"; nearest is \"auto\""
)]
enum Switch {
    Set(bool),
    Found(Auto),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Auto {
    Auto,
}

impl File {
    fn validate(
        self,
        named: &Named<'_>,
        reader: &mut Reader<'_>,
        document: &DeTable<'_>,
    ) -> Option<Config> {
        let name = self.policy.0.name.as_deref().unwrap_or(POLICY_DEFAULT);
        check_policy(name, reader, document);
        check_jobs(name, &self.jobs.0, reader, document);
        faults::check(&self.faults.0.rules, reader, document);
        mps_rules::check(&self.mps.0, reader, document);
        unmanaged_rules::check(&self.unmanaged.0, reader, document);
        let share = self
            .share
            .and_then(|Table(section)| section.params(reader, document));
        let is_by_target = share.is_some_and(|share| share.mode == ShareMode::Target);
        if let (Some(value), true) = (settings::at(document, "share.mode"), is_by_target)
            && name != "pillion"
        {
            let what = format!(
                "mode is \"target\", but policy {name} has no target; nearest is \"dynamic\""
            );
            reader.fault(value.span().start, what);
        }
        let access = document.get("high_priority");
        let access = access.and_then(|access| access.get_ref().as_table());
        if access.is_some_and(DeTable::is_empty) {
            let what = "[high_priority] is empty; needs users, groups or cgroups (users = [] \
                        allows nobody); nearest is users = [\"1000\"]";
            reader.fault(settings::offset(document, "high_priority"), what);
        }
        let throttle = self.throttle.map(|Table(section)| section.params());
        let throttle_mhz = throttle.and_then(|params| params.clock_mhz);
        let section = self.policy.0;
        let poll_us = section.poll_us.map_or(50, |number| number.0);
        let jobs = self.jobs.0.into_iter().map(|(name, Table(job))| JobRule {
            name,
            weight: job.weight.map_or(1, |weight| weight.0 as u32),
            min_progress: job.min_progress.map_or(0.0, |share| share.0),
            max_share: job.max_share,
        });
        Some(Config {
            gpu: self.gpu.0.select(named, reader, document)?,
            sharing: self.gpu.0.sharing,
            policy: section.policy(poll_us * 1_000),
            block_priority: section.block_priority(),
            poll_ns: poll_us * 1_000,
            max_hold_ns: section.max_hold_ms.map_or(100, |number| number.0) * 1_000_000,
            unknown_kernel_ns: section.unknown_kernel_us.map_or(100, |number| number.0) * 1_000,
            on_daemon_loss: section.on_daemon_loss,
            on_collectives: section.collectives,
            socket_path: self.socket.0.path,
            memory: self.memory.0,
            high_priority: self.high_priority.map(|access| access.0),
            limits: self.limits.0,
            jobs: jobs.collect(),
            throttle,
            share,
            probe: self
                .probe
                .map(|Table(section)| section.params(throttle_mhz)),
            tuner: self.tuner.map(|Table(section)| TunerRules {
                settle: section.settle.map_or(100, |number| number.0 as usize),
            }),
            faults: self.faults.0,
            unmanaged: self.unmanaged.0,
            mps: self.mps.0,
            learnt: self.learnt.0,
        })
    }
}

/// Rejects keys that the policy ignores, because a bound that is written but not in force is worse
/// than none, and two targets.
fn check_policy(name: &str, reader: &mut Reader<'_>, document: &DeTable<'_>) {
    let get = |key: &str| settings::at(document, &format!("policy.{key}"));
    let own = OWN_KEYS.iter().filter(|(_, users)| !users.contains(&name));
    let own = own.filter_map(|(key, users)| Some((*key, get(key)?, users[0])));
    for (key, value, user) in own {
        reader.fault(value.span().start, not_looked_at(key, name, user));
    }
    for (one, other) in [
        ("slo_throughput", "slo_p99"),
        ("slo_mean", "slo_p99"),
        ("slo_throughput", "slo_mean"),
    ] {
        if let (Some(value), Some(_)) = (get(one), get(other)) {
            let what =
                format!("{one} and {other} are both set; high-priority jobs have one target");
            reader.fault(value.span().start, what);
        }
    }
    if let (Some(value), Some(_)) = (get("slo_quantile"), get("slo_miss")) {
        let what = "slo_quantile and slo_miss are both set, but both give the quantile of slo_p99; \
                    nearest is slo_miss alone, 1 minus the quantile";
        reader.fault(value.span().start, what);
    }
    let keys = ["slo_miss", "slo_quantile"].into_iter();
    let means = ["slo_throughput", "slo_mean"];
    for (key, mean) in keys.flat_map(|key| means.map(|mean| (key, mean))) {
        if let (Some(value), Some(_)) = (get(key), get(mean)) {
            let what = format!(
                "{key} is set beside {mean}, which bounds the mean and has no quantile; nearest is \
                 slo_p99 in place of {mean}"
            );
            reader.fault(value.span().start, what);
        }
    }
}

fn not_looked_at(key: &str, name: &str, user: &str) -> String {
    format!("{key} is set, but policy {name} ignores it; nearest is name = \"{user}\"")
}

/// Rejects promises that the policy ignores or that exceed the cap, which every policy keeps.
fn check_jobs(
    name: &str,
    jobs: &BTreeMap<String, Table<JobSection>>,
    reader: &mut Reader<'_>,
    document: &DeTable<'_>,
) {
    let tables = document
        .get("jobs")
        .and_then(|jobs| jobs.get_ref().as_table());
    for (job, Table(section)) in jobs {
        let table = tables.and_then(|jobs| jobs.get(job.as_str())?.get_ref().as_table());
        let get = |key: &str| table.and_then(|table| table.get(key));
        for key in ["weight", "min_progress"] {
            if let (Some(value), true) = (get(key), name != "pillion") {
                reader.fault(value.span().start, not_looked_at(key, name, "pillion"));
            }
        }
        let (least, most) = (section.min_progress.as_ref(), section.max_share);
        if let (Some(least), Some(most), Some(value)) = (least, most, get("min_progress"))
            && least.0 > most.share()
        {
            let (least, most) = (least.0, most.share());
            let what = format!("min_progress is {least}, above max_share; nearest is {most}");
            reader.fault(value.span().start, what);
        }
    }
}

impl ThrottleSection {
    fn params(self) -> ThrottleParams {
        let clock = self.clock_mhz.map(|clock| clock.0 as u32);
        ThrottleParams {
            utilisation: self.utilisation.unwrap_or(UTILISATION_DEFAULT),
            clock_mhz: clock,
        }
    }
}

impl ShareSection {
    /// Rejects an ignored percentage, and a static share without one.
    fn params(self, reader: &mut Reader<'_>, document: &DeTable<'_>) -> Option<ShareParams> {
        let start = |key: &str| settings::at(document, key).map_or(0, |value| value.span().start);
        let restart_ns = self
            .restart_s
            .map_or(RESTART_NS, |number| number.0 * 1_000_000_000);
        let params = |mode| Some(ShareParams { mode, restart_ns });
        match (self.mode, self.percent) {
            (ShareWord::Static, Some(percent)) => params(ShareMode::Static(percent.0 as u32)),
            (ShareWord::Static, None) => {
                let what = "mode is static, but percent, the share, is missing; nearest is mode = \
                            \"dynamic\", which needs no percent";
                reader.fault(start("share.mode"), what);
                None
            }
            (ShareWord::Off, None) if self.restart_s.is_some() => {
                let what =
                    "restart_s is set, but mode \"off\" ignores it; nearest is mode = \"dynamic\"";
                reader.fault(start("share.restart_s"), what);
                None
            }
            (_, Some(_)) => {
                let what = format!(
                    "percent is set, but mode \"{}\" ignores it; nearest is mode = \"static\"",
                    ShareWord::NAMES[self.mode as usize]
                );
                reader.fault(start("share.percent"), what);
                None
            }
            (ShareWord::Dynamic, None) => params(ShareMode::Dynamic),
            (ShareWord::Target, None) => params(ShareMode::Target),
            (ShareWord::Off, None) => None,
        }
    }
}

impl GpuSection {
    fn select(
        &self,
        named: &Named<'_>,
        reader: &mut Reader<'_>,
        document: &DeTable<'_>,
    ) -> Option<Select> {
        let places = ["index", "uuid", "pci"]
            .map(|key| (key, settings::at(document, &format!("gpu.{key}"))));
        for (key, value) in places {
            let start = value.map(|value| value.span().start);
            if let Some(start) =
                start.filter(|&start| start < named.own_start || named.given.is_some())
            {
                let what = format!(
                    "{key} selects a GPU in a file for all GPUs; nearest is the GPU's own file"
                );
                reader.fault(start, what);
            }
        }
        if let Some(given) = named.given {
            return Some(given.clone());
        }
        let index = self.index.map(|index| Select::Index(index.0 as usize));
        let ways = [
            ("index", index),
            ("uuid", self.uuid.clone()),
            ("pci", self.pci.clone()),
        ];
        let mut given: Vec<_> = ways
            .into_iter()
            .filter(|(_, select)| select.is_some())
            .collect();
        if given.len() == 1 {
            return given.pop()?.1;
        }
        let found: Vec<&str> = given.iter().map(|(key, _)| *key).collect();
        let found = match &found[..] {
            [] => "none of them".to_owned(),
            found => found.join(" and "),
        };
        let what = format!("[gpu] has {found}; needs exactly one of index, uuid, pci");
        let offset = settings::at(document, "gpu").map_or(named.own_start, |gpu| gpu.span().start);
        reader.fault(offset, what + "; nearest is index = 0");
        None
    }
}

impl PolicySection {
    /// `block_priority`; none: automatic.
    fn block_priority(&self) -> Option<bool> {
        match self.block_priority {
            Some(Switch::Set(is_on)) => Some(is_on),
            Some(Switch::Found(Auto::Auto)) | None => None,
        }
    }

    fn policy(&self, poll_ns: u64) -> Policy {
        let defaults = OrionParams::default();
        let pct = self.dur_threshold_pct.map(|pct| pct.0);
        let residual_ns = self.residual_us.map(|us| us.0 * 1_000);
        let lease_ns = self.lease_ms.map(|ms| ms.0 * 1_000_000);
        let throttle = TemporalParams {
            dur_threshold_pct: pct.unwrap_or(defaults.dur_threshold_pct),
            residual_ns_unknown: residual_ns.unwrap_or(defaults.residual_ns_unknown),
            lease_ns: lease_ns.unwrap_or(defaults.lease_ns),
        };
        let sms = self.sm_threshold.map(|sms| SmThreshold::Sms(sms.0 as u32));
        match self.name.as_deref().unwrap_or(POLICY_DEFAULT) {
            "none" => Policy::None,
            "temporal" => Policy::Temporal(throttle),
            "launch-gate" => Policy::LaunchGate(LaunchGateParams {
                lease_ns: throttle.lease_ns,
            }),
            "pillion" => Policy::Pillion(self.pillion(&throttle, poll_ns)),
            _ => Policy::Orion(OrionParams {
                dur_threshold_pct: throttle.dur_threshold_pct,
                sm_threshold: sms.unwrap_or_default(),
                residual_ns_unknown: throttle.residual_ns_unknown,
                lease_ns: throttle.lease_ns,
            }),
        }
    }

    fn pillion(&self, common: &TemporalParams, poll_ns: u64) -> PillionParams {
        let defaults = PillionParams::default();
        PillionParams {
            slo: self.slo_throughput.or(self.slo_mean).or(self.slo_p99),
            miss: self.slo_miss.or(self.slo_quantile).unwrap_or(defaults.miss),
            solo_ns: None,
            block_priority: self.block_priority().unwrap_or(false),
            feedback: self.feedback.unwrap_or(defaults.feedback),
            beside: self.beside.unwrap_or(defaults.beside),
            kernel_pairs: self.kernel_pairs.unwrap_or(defaults.kernel_pairs),
            gap_prediction: self.gap_prediction.unwrap_or(defaults.gap_prediction),
            learnt_durations: self.learnt_durations.unwrap_or(defaults.learnt_durations),
            residual_ns_unknown: common.residual_ns_unknown,
            lease_ns: common.lease_ns,
            look_ns_max: look_ns_max(poll_ns),
        }
    }
}

/// Rejects simulator-only policies with the reason, everything else with the list.
fn policy_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let mut simulators = None;
    let wanted = format!("one of {}", Policy::NAMES.join(", "));
    let name = settings::text(deserializer, &wanted, |name| {
        simulators = simulator_only(name);
        match registry::find(name).is_some() || simulators.is_some() {
            true => Ok(Some(name.to_owned())),
            false => Err(settings::nearest_word(name, &Policy::NAMES)),
        }
    });
    match simulators {
        Some(index) => {
            let error = PolicyError::SimulatorOnly { index };
            let near = "nearest is \"orion\"";
            Err(D::Error::custom(format_args!("{error}; {near}")))
        }
        None => name,
    }
}

fn slo_p99<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Slo>, D::Error> {
    let wanted =
        "a multiple of the time alone from \"1x\" to \"100x\", or milliseconds such as \"20ms\"";
    settings::text(deserializer, wanted, |text| {
        let slo = text.parse().map(Some);
        slo.map_err(|_| Some(format!("\"{}\"", PillionParams::default().goal(false).slo)))
    })
}

/// In the form of `slo_p99`, for the mean.
fn slo_mean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Slo>, D::Error> {
    let slo = slo_p99(deserializer)?;
    Ok(slo.map(Slo::of_mean))
}

fn slo_miss<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    settings::number(deserializer, f64::MIN_POSITIVE..=MISS_MAX).map(Some)
}

/// The share of requests over that quantile.
fn slo_quantile<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let quantile = settings::number(deserializer, 1.0 - MISS_MAX..=QUANTILE_MAX)?;
    // Rounded to the written value: 1 - 0.99 is not 0.01.
    Ok(Some(((1.0 - quantile) * 1e9).round() / 1e9))
}

fn max_share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cap>, D::Error> {
    let share = settings::number(deserializer, SHARE_MIN..=1.0)?;
    Ok(Cap::of_share(share))
}

fn utilisation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let [least, most] = UTILISATION;
    settings::number(deserializer, least..=most).map(Some)
}

fn share_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ShareWord, D::Error> {
    let modes = [
        ShareWord::Off,
        ShareWord::Static,
        ShareWord::Dynamic,
        ShareWord::Target,
    ];
    settings::word(deserializer, &ShareWord::NAMES).map(|index| modes[index])
}

fn slo_throughput<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Slo>, D::Error> {
    let share = settings::number(deserializer, THROUGHPUT_MIN..=1.0)?;
    Ok(Some(Slo::Throughput(share)))
}

fn sharing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sharing>, D::Error> {
    let kinds = [None, Some(Sharing::Mps), Some(Sharing::TimeSlice)];
    settings::word(deserializer, &SHARING_NAMES).map(|index| kinds[index])
}

fn pci<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Select>, D::Error> {
    let wanted = "a PCI bus id such as \"0000:01:00.0\"";
    settings::text(deserializer, wanted, |text| {
        let address = text.parse::<PciAddress>().map_err(|_| None)?;
        Ok(Some(Select::Pci(address)))
    })
}

/// `GPU-` or `MIG-` and at least one further character.
fn uuid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Select>, D::Error> {
    let wanted = "a UUID as nvidia-smi -L prints it, GPU-… or MIG-…, or a prefix of one";
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-/".contains(c);
    settings::text(deserializer, wanted, |text| {
        let rest = text
            .strip_prefix("GPU-")
            .or_else(|| text.strip_prefix("MIG-"));
        let rest = rest.filter(|rest| (1..=64).contains(&rest.len()) && rest.chars().all(is_part));
        rest.map(|_| Some(Select::Uuid(text.to_owned())))
            .ok_or(None)
    })
}

fn socket_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let wanted = format!("an absolute path of at most {PATH_BYTES_MAX} bytes");
    settings::text(deserializer, &wanted, |text| {
        if text.starts_with('/') && text.len() <= PATH_BYTES_MAX && !text.contains('\0') {
            return Ok(Some(text.into()));
        }
        let near = Path::new("/run/pillion").join(text.trim_start_matches('/'));
        Err((!text.is_empty() && text.len() < 80).then(|| format!("{near:?}")))
    })
}

pub(super) fn folder<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    let wanted = "an absolute path; nearest is \"/var/lib/pillion\"";
    settings::text(deserializer, wanted, |text| {
        let path = PathBuf::from(text);
        match path.is_absolute() {
            true => Ok(Some(path)),
            false => Err(None),
        }
    })
}
