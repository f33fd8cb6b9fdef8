//! Injected faults of the device, and their effects as a driver shows them.
//!
//! | injected | contexts | NVML |
//! |---|---|---|
//! | a sticky error | the label's: every call fails with it | - |
//! | Xid 13, 31, 43, 45 | the label's (1): launch failed; for 31 an illegal address | the Xid |
//! | Xid 48, 95 | all: uncorrectable ECC error | the Xid, one more uncorrected error |
//! | Xid 94 | the label's: a contained error | the Xid, one more uncorrected error |
//! | Xid 63 | - | the Xid, and a row waits to be replaced |
//! | Xid 79 | all: an unknown error | the Xid, then the device is lost |
//! | Xid 119 and similar ones | all: an unknown error | the Xid |
//! | any other Xid | - | the Xid |
//! | memory errors | - | the counters, and a report |
//! | stuck | nothing completes | busy all the time |
//! | the MPS server dies | all: the call to the server failed (2) | - |
//! | a managed MPS server's process ends | its clients': the call to the server failed (3) | - |
//! | an MPS server does not start | - | - |
//! | the MPS server reports a fatal fault | all: launch failed (2) | - |
//! | MPS is asked to end a client's work | that process's: the client was terminated | - |
//!
//! 1. Under MPS all contexts.
//! 2. No new contexts until those have ended.
//! 3. No new contexts until those have ended, or another server runs.
//!
//! Meanings are those of NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors) and of its text
//! on MPS and errors: a fatal fault of one client affects all.
//!
//! **A process that ends with work in flight**, in any way, harms no other, unless the server
//! models what MPS may do ([`MpsKill::Contagious`]). The end then acts like a fatal fault of that
//! process, without log lines, unless MPS was asked before to end that work, or the process's
//! context already had an error: the device then works on none of it. NVIDIA calls the outcome
//! undefined (MPS, "Client Early Termination"). That neighbours are affected was observed by
//! MuxFlow (section 5), whose authors do not name the error. We have not observed it; here it is
//! the error of a fatal fault.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use softgpu::wire::{Health, HealthReport, Injection, MpsFault, REPORTS_MAX};
use softgpu::{Completion, Sharing};

use super::World;
use crate::client::Client;

/// CUDA_ERROR_ECC_UNCORRECTABLE.
const ECC_UNCORRECTABLE: u32 = 214;
/// CUDA_ERROR_CONTAINED.
const CONTAINED: u32 = 226;
/// CUDA_ERROR_LAUNCH_FAILED.
const LAUNCH_FAILED: u32 = 719;
/// CUDA_ERROR_MPS_RPC_FAILURE.
const MPS_RPC_FAILURE: u32 = 806;
/// CUDA_ERROR_MPS_CLIENT_TERMINATED.
const MPS_CLIENT_TERMINATED: u32 = 810;
/// CUDA_ERROR_MPS_SERVER_NOT_READY.
const MPS_SERVER_NOT_READY: u32 = 807;
/// CUDA_ERROR_UNKNOWN.
const UNKNOWN: u32 = 999;
/// nvmlEventTypeSingleBitEccError, nvmlEventTypeDoubleBitEccError, nvmlEventTypeXidCriticalError.
const SINGLE_BIT: u64 = 1;
const DOUBLE_BIT: u64 = 2;
const XID: u64 = 8;

/// Fate of the other MPS clients when one ends with work in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MpsKill {
    /// Nothing.
    #[default]
    Contained,
    /// Their contexts are lost, as by a fatal fault.
    Contagious,
}

#[derive(Debug, Default)]
pub(super) struct Broken {
    health: Health,
    report_last: u64,
    /// Since when nothing completes: device time, and its busy time by then.
    stuck_since: Option<(u64, u64)>,
    /// Additional busy time of earlier stuck periods.
    busy_extra_ns: u64,
    withheld: VecDeque<Completion>,
    /// Whether the MPS server has failed and clients of that time are left.
    is_mps_failed: bool,
    mps_kill: MpsKill,
    control_log: Option<PathBuf>,
    server_log: Option<PathBuf>,
}

impl Broken {
    pub(super) fn health(&self) -> Health {
        self.health.clone()
    }

    pub(super) fn withhold(&mut self, completion: Completion) -> Option<Completion> {
        if self.stuck_since.is_none() {
            return Some(completion);
        }
        self.withheld.push_back(completion);
        None
    }

    /// By how much the device appears busier than the model: while stuck it is always busy.
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

    /// Writes lines as MPS's control daemon does.
    fn write_control_log(&self, lines: &[&str]) {
        write_log(self.control_log.as_deref(), "Control     1", lines);
    }

    /// Writes lines as MPS's server does.
    fn write_server_log(&self, lines: &[&str]) {
        write_log(self.server_log.as_deref(), "Server     2", lines);
    }
}

/// A failure to write is ignored.
fn write_log(path: Option<&Path>, who: &str, lines: &[&str]) {
    let Some(path) = path else { return };
    let file = OpenOptions::new().append(true).create(true).open(path);
    if let Ok(mut file) = file {
        for line in lines {
            let _ = writeln!(file, "[software GPU {who}] {line}");
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Nobody,
    /// The processes of the label; all, if all processes' kernels run side by side.
    Label,
    LabelOnly,
    Everybody,
}

/// An Xid's effect on contexts: the CUDA result, and the affected processes.
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
    pub(crate) fn log_mps_to(&mut self, control: Option<&Path>, server: Option<&Path>) {
        let broken = &mut self.broken;
        broken.control_log = control.map(Path::to_owned);
        broken.server_log = server.map(Path::to_owned);
        broken.write_control_log(&["Starting control daemon using socket (none)"]);
        broken.write_server_log(&["Waiting for new client(s)"]);
    }

    pub(crate) fn set_mps_kill(&mut self, kill: MpsKill) {
        self.broken.mps_kill = kill;
    }

    pub(super) fn handle_death_in_flight(&mut self) {
        let is_on_mps = self.gpu.config().sharing == Sharing::Mps;
        if is_on_mps && self.broken.mps_kill == MpsKill::Contagious {
            self.fail_mps(LAUNCH_FAILED);
        }
    }

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
            Injection::MpsFault(fault) => self.have_mps_fault(*fault),
            Injection::TerminateClient(pid) => {
                let client = |client: &&Client| client.pid == Some(*pid);
                let clients = self.clients.values().filter(client);
                clients.for_each(|client| fail_contexts(client, MPS_CLIENT_TERMINATED));
            }
        }
        self.ring_doorbell();
    }

    /// Why no context can currently be created, as a CUDA result.
    pub(super) fn refusal_of_contexts(&mut self) -> Option<u32> {
        if self.broken.health.is_lost {
            return Some(UNKNOWN);
        }
        self.is_mps_in_fault().then_some(MPS_SERVER_NOT_READY)
    }

    pub(super) fn is_mps_in_fault(&mut self) -> bool {
        if self.broken.is_mps_failed {
            let mut contexts = self.clients.values().flat_map(|client| &client.contexts);
            self.broken.is_mps_failed = contexts.any(Option::is_some);
        }
        self.broken.is_mps_failed
    }

    pub(super) fn end_mps_fault(&mut self) {
        self.broken.is_mps_failed = false;
    }

    /// Handles the loss of an MPS server: its clients are lost, and no new ones are accepted until
    /// they have ended, or another server runs.
    pub(super) fn lose_mps_server(&mut self, server: u32) {
        let clients = self.clients.values();
        for client in clients.filter(|client| client.mps_server == Some(server)) {
            self.broken.is_mps_failed |= client.contexts.iter().any(Option::is_some);
            fail_contexts(client, MPS_RPC_FAILURE);
        }
    }

    fn have_mps_fault(&mut self, fault: MpsFault) {
        match fault {
            MpsFault::Server => {
                self.fail_mps(MPS_RPC_FAILURE);
                self.broken.write_control_log(&[
                    "Server encountered a fatal exception. Shutting down",
                    "Server 2 exited with status 1",
                ]);
            }
            MpsFault::Start => {
                let broken = &self.broken;
                broken.write_control_log(&["Failed to start : invalid argument"]);
                broken.write_server_log(&["MPS server failed to start"]);
            }
            MpsFault::Gpu => {
                self.fail_mps(LAUNCH_FAILED);
                self.broken.write_server_log(&[
                    "Fatal GPU error of a client. Waiting for all clients to end",
                ]);
            }
        }
    }

    /// All clients are lost, and no new ones are accepted until they are gone.
    fn fail_mps(&mut self, code: u32) {
        self.broken.is_mps_failed = true;
        self.fail(code, Whom::Everybody, None);
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

    fn fail(&mut self, code: u32, whom: Whom, label: Option<&str>) {
        let is_everybody = match whom {
            Whom::Nobody => return,
            Whom::LabelOnly => false,
            Whom::Label => self.gpu.config().sharing == Sharing::Mps,
            Whom::Everybody => true,
        };
        for client in self.clients.values() {
            if is_everybody || label.is_none_or(|label| label == client.label) {
                fail_contexts(client, code);
            }
        }
    }

    /// Delivers the withheld completions.
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

fn fail_contexts(client: &Client, code: u32) {
    let contexts = (0_u32..).zip(&client.contexts);
    for (slot, _) in contexts.filter(|(_, context)| context.is_some()) {
        client.fail_context(slot, code);
    }
}
