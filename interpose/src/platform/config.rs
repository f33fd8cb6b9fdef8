//! The library's settings: environment variables, read once, when CUDA is first touched.
//! - `PILLION_CLASS`: `high-priority` or `best-effort`. Class of the job; best-effort if not set.
//! - `PILLION_MEMORY`: `10GiB`, `40%`, `unlimited`. The job's quota on each device; see [`quotas`].
//! - `PILLION_PROFILE`: file with the profile of the job's kernels.
//! - `PILLION_RECORD_SPOOL`: folder for this process's record, set by `pillion profile record`.
//! - `PILLION_RECORD_CUPTI`: `auto`, `off`, or a library's path. Timing of a recorded process;
//!   default `auto`.
//! - `PILLION_SOCKET`: the daemon's socket, instead of the device's own.
//! - `PILLION_JOB`: id of the job; set by `pillion run`, one per process if not set.
//! - `PILLION_LOG`: `error`, `warn`, `info`, `debug`. Log level on standard error, default `warn`.
//! - `PILLION_REQUEST_RANGE`, `PILLION_ITERATION_RANGE`: `DOMAIN/GLOB`. Which NVTX ranges are
//!   requests, or iterations; see [`protocol::ranges`].
//! - `PILLION_SLO`: `1.2x`, `15ms`. A high-priority job's latency target ([`protocol::slo`]).
//! - `PILLION_COMPUTE`: `30%`. Cap on a best-effort job's GPU time ([`protocol::compute`]).
//! - `PILLION_RESTARTABLE`: `70`. A supervisor restarts the best-effort job when it ends; the
//!   value is the share of the SMs it was started with, per cent.
//! - `CUDA_DEVICE_SM_LIMIT`: `30`; `0`, or 100 and more, is no cap. HAMi's name for
//!   `PILLION_COMPUTE`, used where that is not set.
//! - `PILLION_DRAIN_MS`: 0 to 60000. Longest wait for work in flight when a signal ends the
//!   process or it exits; 2000 if not set, 0: none.
//! - `PILLION_DISABLE`: not empty, not `0`. Forward everything, do nothing.
//! - `PILLION_TEST_PANIC`: a symbol. For tests: its hook panics before each call.
//!
//! An invalid value is logged and replaced by the default: a job never fails on our account.

use core::sync::atomic::Ordering;
use std::ffi::{CString, OsStr, OsString};
use std::path::PathBuf;

use protocol::compute::{self, Cap};
use protocol::hello::JobClass;
use protocol::ranges::{self, RangePattern};
use protocol::slo::{self, SloAsked};

use crate::platform::inherited::INHERITED;
use crate::platform::log::Level;
use crate::platform::sys;

mod quotas;

pub(crate) use quotas::Quotas;

/// The variable that switches the library off; also read by `dlsym`.
pub(crate) const DISABLE: &core::ffi::CStr = c"PILLION_DISABLE";

/// Most managed devices of a process; NVIDIA's largest machines have 16.
pub(crate) const DEVICES_MAX: usize = 16;

/// Default hardware queues of a context (CUDA C++ Programming Guide, "Environment Variables").
pub(crate) const CONNECTIONS: u32 = 8;
/// The largest value the driver accepts.
const CONNECTIONS_MAX: u32 = 32;

/// Default longest wait for work in flight before the process dies of a signal, ms: well below the
/// time after which Kubernetes (30 s) and torchrun (30 s for all processes of a node) kill.
const DRAIN_MS: u32 = 2000;
/// Largest accepted value, ms.
const DRAIN_MS_MAX: u32 = 60_000;

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) class: JobClass,
    pub(crate) profile: Option<PathBuf>,
    pub(crate) record: Option<PathBuf>,
    pub(crate) cupti: Library,
    pub(crate) is_profiled: bool,
    pub(crate) socket: Option<PathBuf>,
    /// Id of the job, if set; then a daemon is expected.
    pub(crate) job: Option<String>,
    /// Whether `PILLION_CLASS`, `PILLION_JOB` or `PILLION_SOCKET` is set.
    pub(crate) expects_daemon: bool,
    pub(crate) quotas: Quotas,
    #[cfg_attr(shim, allow(dead_code, reason = "signals are not the shim's"))]
    pub(crate) drain_ms: u32,
    #[cfg_attr(shim, allow(dead_code, reason = "ranges are not the shim's"))]
    pub(crate) request_range: Option<RangePattern>,
    #[cfg_attr(shim, allow(dead_code, reason = "ranges are not the shim's"))]
    pub(crate) iteration_range: Option<RangePattern>,
    pub(crate) slo: Option<SloAsked>,
    pub(crate) cap: Option<Cap>,
    /// The share of the SMs, per cent, that a restartable job was started with.
    pub(crate) restartable: Option<u32>,
    /// Hardware queues of a context, from the driver's own `CUDA_DEVICE_MAX_CONNECTIONS`.
    pub(crate) connections: u32,
    pub(crate) log: Level,
    /// Index in [`abi::ENTRY_POINTS`] of the hook that panics.
    pub(crate) panic_at: Option<usize>,
    pub(crate) complaints: Vec<String>,
}

impl Config {
    pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut complaints = Vec::new();
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let class = set("PILLION_CLASS").map_or(JobClass::BestEffort, |value| {
            word(&value, JobClass::from_name).unwrap_or_else(|| {
                let taken = JobClass::BestEffort.name();
                complaints.push(expected("PILLION_CLASS", &value, &JobClass::NAMES, taken));
                JobClass::BestEffort
            })
        });
        let log = set("PILLION_LOG").map_or(Level::Warn, |value| {
            word(&value, Level::from_name).unwrap_or_else(|| {
                complaints.push(expected("PILLION_LOG", &value, &Level::NAMES, "warn"));
                Level::Warn
            })
        });
        let panic_at = set("PILLION_TEST_PANIC").and_then(|value| hook(&value, &mut complaints));
        let drain_ms = set("PILLION_DRAIN_MS").map_or(DRAIN_MS, |value| {
            let number = value.to_str().and_then(|text| text.parse().ok());
            number.filter(|ms| *ms <= DRAIN_MS_MAX).unwrap_or_else(|| {
                let value = value.to_string_lossy();
                complaints.push(format!(
                    "PILLION_DRAIN_MS={value:?}: expected milliseconds, 0 to {DRAIN_MS_MAX}; using {DRAIN_MS}"
                ));
                DRAIN_MS
            })
        });
        let mut range = |name: &str| {
            let value = set(name)?;
            let found = word(&value, RangePattern::parse);
            if found.is_none() {
                let (value, expected) = (value.to_string_lossy(), ranges::EXPECTED);
                complaints.push(format!(
                    "{name}={value:?}: expected {expected}; value ignored"
                ));
            }
            found
        };
        let request_range = range("PILLION_REQUEST_RANGE");
        let iteration_range = range("PILLION_ITERATION_RANGE");
        let slo = slo(class, set("PILLION_SLO"), &mut complaints);
        let cap = cap(class, set, &mut complaints);
        let restartable = restartable(class, set, &mut complaints);
        let quotas = Quotas::read(&variable, &mut complaints);
        Self {
            connections: connections(set("CUDA_DEVICE_MAX_CONNECTIONS").as_deref()),
            class,
            quotas,
            drain_ms,
            request_range,
            iteration_range,
            slo,
            cap,
            restartable,
            profile: set("PILLION_PROFILE").map(PathBuf::from),
            record: set("PILLION_RECORD_SPOOL").map(PathBuf::from),
            cupti: library(set("PILLION_RECORD_CUPTI")),
            is_profiled: PROFILED.into_iter().any(|name| set(name).is_some()),
            socket: set("PILLION_SOCKET").map(PathBuf::from),
            expects_daemon: ["PILLION_CLASS", "PILLION_JOB", "PILLION_SOCKET"]
                .into_iter()
                .any(|name| set(name).is_some()),
            job: set("PILLION_JOB").map(|value| value.to_string_lossy().into_owned()),
            log,
            panic_at,
            complaints,
        }
    }
}

fn slo(class: JobClass, value: Option<OsString>, complaints: &mut Vec<String>) -> Option<SloAsked> {
    let value = value?;
    let found = word(&value, SloAsked::parse);
    let why = match (class, found) {
        (JobClass::HighPriority, Some(_)) => return found,
        (JobClass::HighPriority, None) => format!("expected {}", slo::EXPECTED),
        (JobClass::BestEffort, _) => {
            "the job is best-effort, and only high-priority jobs have a latency target".into()
        }
    };
    let value = value.to_string_lossy();
    complaints.push(format!("PILLION_SLO={value:?}: {why}; value ignored"));
    None
}

fn cap(
    class: JobClass,
    set: impl Fn(&str) -> Option<OsString>,
    complaints: &mut Vec<String>,
) -> Option<Cap> {
    let is_capped = class == JobClass::BestEffort;
    let (name, value, found, expected) = match (set("PILLION_COMPUTE"), set(HAMI_CAP)) {
        (Some(value), _) => {
            let found = word(&value, Cap::parse).map(Some);
            ("PILLION_COMPUTE", value, found, compute::EXPECTED)
        }
        (None, Some(value)) => {
            let found = word(&value, hami_cap);
            (
                HAMI_CAP,
                value,
                found,
                "per cent of the GPU's time, such as 30",
            )
        }
        (None, None) => return None,
    };
    let why = match found {
        Some(cap) if is_capped || cap.is_none() => return cap,
        Some(_) => "the job is high-priority, and only best-effort jobs can have a cap".to_owned(),
        None => format!("expected {expected}"),
    };
    let value = value.to_string_lossy();
    complaints.push(format!("{name}={value:?}: {why}; value ignored"));
    None
}

fn restartable(
    class: JobClass,
    set: impl Fn(&str) -> Option<OsString>,
    complaints: &mut Vec<String>,
) -> Option<u32> {
    let value = set("PILLION_RESTARTABLE")?;
    let share = |text: &str| text.parse().ok().filter(|pct| (1..=100).contains(pct));
    let found = word(&value, share);
    if found.is_none() {
        complaints.push(format!(
            "PILLION_RESTARTABLE={:?}: expected a whole number from 1 to 100; the job is not restarted for another share",
            value.to_string_lossy()
        ));
    }
    found.filter(|_| class == JobClass::BestEffort)
}

/// The variable that HAMi's device plugin sets.
const HAMI_CAP: &str = "CUDA_DEVICE_SM_LIMIT";

/// Parses it: 0, and 100 and more, are no cap.
fn hami_cap(text: &str) -> Option<Option<Cap>> {
    let pct: u32 = text.trim().parse().ok()?;
    Some(match pct {
        0 | 100.. => None,
        1..=99 => Cap::of_share(f64::from(pct) / 100.0),
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Auto,
    Off,
    At(PathBuf),
}

/// Set by NVIDIA's tools in a process that they profile. The driver loads the library named by the
/// first (CUPTI's documentation, "Profiling"); the others are Nsight Systems' and Nsight Compute's.
const PROFILED: [&str; 3] = [
    "CUDA_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE",
];

fn library(value: Option<OsString>) -> Library {
    match value {
        None => Library::Auto,
        Some(value) if value == "auto" => Library::Auto,
        Some(value) if value == "off" => Library::Off,
        Some(path) => Library::At(PathBuf::from(path)),
    }
}

/// Whether the library is switched off; read from the environment once. Neither locks nor
/// allocates, so that `dlsym` may call it.
pub(crate) fn is_disabled() -> bool {
    // 0: not read yet.
    const ON: u8 = 1;
    const OFF: u8 = 2;
    let switch = &INHERITED.switch;
    match switch.load(Ordering::Relaxed) {
        ON => false,
        OFF => true,
        _ => {
            let disabled = sys::is_switched_on(DISABLE);
            switch.store(if disabled { OFF } else { ON }, Ordering::Relaxed);
            disabled
        }
    }
}

fn word<T>(value: &OsStr, from_name: impl Fn(&str) -> Option<T>) -> Option<T> {
    value.to_str().and_then(from_name)
}

fn expected(variable: &str, value: &OsStr, names: &[&str], taken: &str) -> String {
    let (value, names) = (value.to_string_lossy(), names.join(", "));
    format!("{variable}={value:?}: expected one of {names}; using {taken}")
}

fn hook(value: &OsStr, complaints: &mut Vec<String>) -> Option<usize> {
    let found = hooked(value);
    if found.is_none() {
        let value = value.to_string_lossy();
        complaints.push(format!(
            "PILLION_TEST_PANIC={value:?}: expected the name of a hooked function"
        ));
    }
    found
}

fn hooked(symbol: &OsStr) -> Option<usize> {
    let symbol = CString::new(symbol.as_encoded_bytes()).ok()?;
    let index = abi::lookup(&symbol)?;
    let entry_point = abi::ENTRY_POINTS.get(index)?;
    (entry_point.route == abi::Route::Hook).then_some(index)
}

/// Hardware queues; the driver uses its default for a value that it does not accept.
fn connections(value: Option<&OsStr>) -> u32 {
    let asked = value.and_then(|value| value.to_str()?.trim().parse().ok());
    let taken = asked.filter(|asked| (1..=CONNECTIONS_MAX).contains(asked));
    taken.unwrap_or(CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Config {
        Config::read(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn an_empty_environment_is_a_best_effort_job_that_only_warns() {
        let config = config(&[]);
        assert_eq!(config.class, JobClass::BestEffort);
        assert_eq!(config.log, Level::Warn);
        assert_eq!(
            (config.profile, config.socket, config.job),
            (None, None, None)
        );
        assert!(config.complaints.is_empty());
    }

    #[test]
    fn an_unknown_class_is_said_with_the_list() {
        let config = config(&[("PILLION_CLASS", "highprio")]);
        assert_eq!(config.class, JobClass::BestEffort);
        let complaint = &config.complaints[0];
        for part in ["\"highprio\"", "high-priority, best-effort"] {
            assert!(complaint.contains(part), "{complaint}");
        }
    }

    #[test]
    fn a_share_of_the_gpus_time_is_of_best_effort_jobs_and_hamis_where_ours_is_not_set() {
        let of = |settings: &[(&str, &str)]| {
            let config = config(settings);
            let cap = config.cap.map_or_else(String::new, |cap| cap.to_string());
            (cap, config.complaints.concat())
        };
        let none = String::new();
        for (settings, cap) in [
            (&[("PILLION_COMPUTE", "30%")][..], "30%"),
            (&[(HAMI_CAP, "30")], "30%"),
            (&[("PILLION_COMPUTE", "12.5%"), (HAMI_CAP, "30")], "12.5%"),
            (&[(HAMI_CAP, "0")], ""),
            (&[(HAMI_CAP, "100")], ""),
            (&[(HAMI_CAP, "100"), ("PILLION_CLASS", "high-priority")], ""),
            (&[], ""),
        ] {
            assert_eq!(of(settings), (cap.to_owned(), none.clone()), "{settings:?}");
        }
        for (settings, why) in [
            (
                &[("PILLION_COMPUTE", "30")][..],
                "PILLION_COMPUTE=\"30\": expected a part of the GPU's time",
            ),
            (
                &[(HAMI_CAP, "-1")],
                "CUDA_DEVICE_SM_LIMIT=\"-1\": expected per cent",
            ),
            (
                &[(HAMI_CAP, "30"), ("PILLION_CLASS", "high-priority")],
                "the job is high-priority",
            ),
        ] {
            let (cap, complaint) = of(settings);
            assert!(cap.is_empty() && complaint.contains(why), "{complaint}");
        }
    }

    #[test]
    fn an_unknown_level_is_said_with_the_list() {
        let config = config(&[("PILLION_LOG", "trace")]);
        assert_eq!(config.log, Level::Warn);
        assert!(config.complaints[0].contains("error, warn, info, debug; using warn"));
    }

    #[test]
    fn values_are_taken_as_given() {
        let config = config(&[
            ("PILLION_CLASS", "high-priority"),
            ("PILLION_PROFILE", "p.toml"),
            ("PILLION_RECORD_SPOOL", "/dev/shm/r"),
            ("PILLION_SOCKET", "/run/x.sock"),
            ("PILLION_JOB", "7"),
            ("PILLION_TEST_PANIC", "cuLaunchKernel"),
        ]);
        assert_eq!(config.class, JobClass::HighPriority);
        assert_eq!(config.profile.unwrap().to_str(), Some("p.toml"));
        assert_eq!(config.record.unwrap().to_str(), Some("/dev/shm/r"));
        assert_eq!(config.socket.unwrap().to_str(), Some("/run/x.sock"));
        assert_eq!(config.job.as_deref(), Some("7"));
        assert_eq!(config.panic_at, Some(abi::id::cuLaunchKernel));
    }

    #[test]
    fn the_wait_for_what_is_in_flight_is_bounded_and_nonsense_is_said() {
        assert_eq!(config(&[]).drain_ms, 2000);
        assert_eq!(config(&[("PILLION_DRAIN_MS", "0")]).drain_ms, 0);
        for nonsense in ["2s", "-1", "60001", "99999999999"] {
            let config = config(&[("PILLION_DRAIN_MS", nonsense)]);
            assert_eq!(config.drain_ms, 2000);
            assert!(config.complaints[0].contains("0 to 60000; using 2000"));
        }
    }

    #[test]
    fn what_requests_may_take_is_read_and_nonsense_or_a_best_effort_jobs_is_said() {
        let of = |class: &str, slo: &str| {
            let config = config(&[("PILLION_CLASS", class), ("PILLION_SLO", slo)]);
            (config.slo, config.complaints.concat())
        };
        let asked = (Some(SloAsked::Ns(15_000_000)), String::new());
        assert_eq!(of("high-priority", "15ms"), asked);
        assert_eq!(of("high-priority", ""), (None, String::new()));
        let said = "PILLION_SLO=\"fast\": expected times alone from 1x to 100x";
        let (slo, complaint) = of("high-priority", "fast");
        assert!(slo.is_none() && complaint.starts_with(said), "{complaint}");
        let (slo, complaint) = of("best-effort", "1.2x");
        assert!(
            slo.is_none() && complaint.contains("is best-effort"),
            "{complaint}"
        );
    }

    #[test]
    fn only_a_hook_can_be_made_to_panic() {
        for symbol in ["cuGetExportTable", "cuNoSuch", "malloc"] {
            let config = config(&[("PILLION_TEST_PANIC", symbol)]);
            assert_eq!(config.panic_at, None);
            assert_eq!(config.complaints.len(), 1);
        }
    }
}
