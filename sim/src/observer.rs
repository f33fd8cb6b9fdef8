//! Observers of a run: a timeline, a test. [`Experiment::run`](crate::Experiment::run) is generic
//! over the observer, so that [`NoObserver`] costs nothing.

use softgpu::OpKind;

use crate::scheduler::{ClientId, Launch};

/// Receives events in order of time. Every method does nothing by default.
pub trait Observer {
    /// A request begins: its thread starts to launch. `arrival_ns` is when it should have begun.
    fn request_started(&mut self, now_ns: u64, client: ClientId, request: u64, arrival_ns: u64) {
        let _ = (now_ns, client, request, arrival_ns);
    }

    /// Its thread has noticed that it is complete.
    fn request_ended(&mut self, now_ns: u64, client: ClientId, request: u64, arrival_ns: u64) {
        let _ = (now_ns, client, request, arrival_ns);
    }

    /// A launch did not go at the instant of its submission. `rule` is the scheduler's reason.
    fn hold_started(&mut self, now_ns: u64, launch: &Launch, rule: &'static str) {
        let _ = (now_ns, launch, rule);
    }

    /// A launch that was held goes.
    fn hold_ended(&mut self, now_ns: u64, launch: &Launch) {
        let _ = (now_ns, launch);
    }

    /// A launch goes to the device.
    fn issued(&mut self, now_ns: u64, launch: &Launch) {
        let _ = (now_ns, launch);
    }

    /// A kernel is complete; its first block started at `started_ns`.
    fn kernel_completed(&mut self, started_ns: u64, now_ns: u64, launch: &Launch) {
        let _ = (started_ns, now_ns, launch);
    }

    /// A copy is complete.
    fn copy_completed(&mut self, started_ns: u64, now_ns: u64, client: ClientId, kind: OpKind) {
        let _ = (started_ns, now_ns, client, kind);
    }
}

/// An observer that ignores every event.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
