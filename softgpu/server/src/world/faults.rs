//! Faults that the device was told to have, with what a driver makes of them.
//!
//! | injected | contexts | NVML |
//! |---|---|---|
//! | a sticky error | those of the label answer it for good | - |
//! | Xid 13, 31, 43, 45 | of the label (under MPS of everybody): launch failed, of 31 an illegal address | the Xid |
//! | Xid 48, 95 | of everybody: uncorrectable ECC error | the Xid, one more uncorrected error |
//! | Xid 94 | of the label: a contained error | the Xid, one more uncorrected error |
//! | Xid 63 | - | the Xid, and a row waits to be replaced |
//! | Xid 79 | of everybody: an unknown error | the Xid, then the device is lost |
//! | Xid 119 and others like it | of everybody: an unknown error | the Xid |
//! | any other Xid | - | the Xid |
//! | errors in memory | - | the counters, and a report |
//! | stuck | nothing completes | busy all the time |
//! | a fault of the MPS server | of everybody: the call to the server failed; no new ones until those are gone | - |
//!
//! Meanings are those of NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors) and of its text on MPS and errors: a fatal
//! fault of one client is everybody's.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use softgpu::wire::{Health, HealthReport, Injection, REPORTS_MAX};
use softgpu::{Completion, Sharing};

use super::World;

/// CUDA_ERROR_ECC_UNCORRECTABLE.
const ECC_UNCORRECTABLE: u32 = 214;
/// CUDA_ERROR_CONTAINED.
const CONTAINED: u32 = 226;
/// CUDA_ERROR_LAUNCH_FAILED.
const LAUNCH_FAILED: u32 = 719;
/// CUDA_ERROR_MPS_RPC_FAILURE.
const MPS_RPC_FAILURE: u32 = 806;
/// CUDA_ERROR_MPS_SERVER_NOT_READY.
const MPS_SERVER_NOT_READY: u32 = 807;
/// CUDA_ERROR_UNKNOWN.
const UNKNOWN: u32 = 999;
/// nvmlEventTypeSingleBitEccError, nvmlEventTypeDoubleBitEccError, nvmlEventTypeXidCriticalError.
const SINGLE_BIT: u64 = 1;
const DOUBLE_BIT: u64 = 2;
const XID: u64 = 8;

/// What is broken.
#[derive(Debug, Default)]
pub(super) struct Broken {
    health: Health,
    report_last: u64,
    /// Since when nothing completes: device time, and how long it had been busy.
    stuck_since: Option<(u64, u64)>,
    /// Time that it looked busy while it was stuck before.
    busy_extra_ns: u64,
    /// What would have completed.
    withheld: VecDeque<Completion>,
    /// The MPS server failed, and clients of that time are still there.
    is_mps_failed: bool,
    mps_log: Option<PathBuf>,
}

impl Broken {
    pub(super) fn health(&self) -> Health {
        self.health.clone()
    }

    /// A completion that is to be seen, unless the device is stuck.
    pub(super) fn withhold(&mut self, completion: Completion) -> Option<Completion> {
        if self.stuck_since.is_none() {
            return Some(completion);
        }
        self.withheld.push_back(completion);
        None
    }

    /// By how much the device looks busier than the model is: all of the time in which it is stuck counts.
    pub(super) fn busy_extra_ns(&self, now_ns: u64, busy_ns: u64) -> u64 {
        let (since_ns, before_ns) = self.stuck_since.unwrap_or((now_ns, busy_ns));
        let idle_ns = now_ns
            .saturating_sub(since_ns)
            .saturating_sub(busy_ns - before_ns);
        self.busy_extra_ns + idle_ns
    }

    fn report(&mut self, kind: u64, data: u64) {
        self.report_last += 1;
        let seq = self.report_last;
        let reports = &mut self.health.reports;
        if reports.len() >= REPORTS_MAX {
            reports.remove(0);
        }
        reports.push(HealthReport { seq, kind, data });
    }

    /// As MPS's control daemon does it. A file that cannot be written is left.
    fn write_mps_log(&self, lines: &[&str]) {
        let Some(path) = &self.mps_log else { return };
        let file = OpenOptions::new().append(true).create(true).open(path);
        if let Ok(mut file) = file {
            for line in lines {
                let _ = writeln!(file, "[software GPU Control     1] {line}");
            }
        }
    }
}

/// Whom something befalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Nobody,
    /// The processes of the label; where kernels of all run side by side, everybody.
    Label,
    /// The processes of the label, and nobody else.
    LabelOnly,
    Everybody,
}

/// What befalls contexts with an Xid: the CUDA result, and whose.
fn consequence(xid: u32) -> (u32, Whom) {
    match xid {
        31 => (super::ILLEGAL_ADDRESS, Whom::Label),
        13 | 43 | 45 => (LAUNCH_FAILED, Whom::Label),
        94 => (CONTAINED, Whom::LabelOnly),
        48 | 95 => (ECC_UNCORRECTABLE, Whom::Everybody),
        61 | 62 | 79 | 119 | 120 => (UNKNOWN, Whom::Everybody),
        _ => (0, Whom::Nobody),
    }
}

impl World {
    /// Says what MPS would into this file.
    pub(crate) fn log_mps_to(&mut self, path: &Path) {
        self.broken.mps_log = Some(path.to_owned());
        self.broken
            .write_mps_log(&["Starting control daemon using socket (none)"]);
    }

    /// Has a fault from now on.
    pub(crate) fn inject(&mut self, fault: &Injection) {
        self.step();
        match fault {
            Injection::Sticky { code, label } => {
                self.fail(*code, Whom::LabelOnly, label.as_deref())
            }
            Injection::Xid { number, label } => self.have_xid(*number, label.as_deref()),
            Injection::Ecc {
                corrected,
                uncorrected,
            } => self.have_memory_errors(*corrected, *uncorrected),
            Injection::Stuck(true) => {
                let now = (self.gpu.now_ns(), self.gpu.utilisation().busy_ns);
                self.broken.stuck_since.get_or_insert(now);
            }
            Injection::Stuck(false) => self.go_on(),
            Injection::MpsFault => {
                self.broken.is_mps_failed = true;
                self.fail(MPS_RPC_FAILURE, Whom::Everybody, None);
                self.broken.write_mps_log(&[
                    "Server encountered a fatal exception. Shutting down",
                    "Server 2 exited with status 1",
                ]);
            }
        }
        self.ring_doorbell();
    }

    /// Why no context can be made now, as a CUDA result.
    pub(super) fn refusal_of_contexts(&mut self) -> Option<u32> {
        if self.broken.health.is_lost {
            return Some(UNKNOWN);
        }
        if !self.broken.is_mps_failed {
            return None;
        }
        let mut contexts = self.clients.values().flat_map(|client| &client.contexts);
        self.broken.is_mps_failed = contexts.any(Option::is_some);
        self.broken.is_mps_failed.then_some(MPS_SERVER_NOT_READY)
    }

    fn have_xid(&mut self, xid: u32, label: Option<&str>) {
        let (code, whom) = consequence(xid);
        self.fail(code, whom, label);
        let broken = &mut self.broken;
        broken.report(XID, xid.into());
        match xid {
            48 | 94 | 95 => {
                broken.health.uncorrected += 1;
                broken.report(DOUBLE_BIT, 0);
            }
            63 => broken.health.is_pending = true,
            79 => broken.health.is_lost = true,
            _ => {}
        }
    }

    fn have_memory_errors(&mut self, corrected: u64, uncorrected: u64) {
        let broken = &mut self.broken;
        let health = &mut broken.health;
        health.corrected = health.corrected.saturating_add(corrected);
        health.uncorrected = health.uncorrected.saturating_add(uncorrected);
        for (count, kind) in [(corrected, SINGLE_BIT), (uncorrected, DOUBLE_BIT)] {
            if count > 0 {
                broken.report(kind, 0);
            }
        }
    }

    /// Contexts answer nothing but this from now on.
    fn fail(&mut self, code: u32, whom: Whom, label: Option<&str>) {
        let is_everybody = match whom {
            Whom::Nobody => return,
            Whom::LabelOnly => false,
            Whom::Label => self.gpu.config().sharing == Sharing::Mps,
            Whom::Everybody => true,
        };
        for client in self.clients.values() {
            if is_everybody || label.is_none_or(|label| label == client.label) {
                let contexts = (0_u32..).zip(&client.contexts);
                for (slot, _) in contexts.filter(|(_, context)| context.is_some()) {
                    client.fail_context(slot, code);
                }
            }
        }
    }

    /// What was withheld completes now.
    fn go_on(&mut self) {
        let busy_ns = self.gpu.utilisation().busy_ns;
        let broken = &mut self.broken;
        broken.busy_extra_ns = broken.busy_extra_ns(self.gpu.now_ns(), busy_ns);
        broken.stuck_since = None;
        for completion in std::mem::take(&mut broken.withheld) {
            self.handle_completion(completion);
        }
        self.let_complete();
    }
}
