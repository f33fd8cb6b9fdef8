//! The trait of a policy at work: its decisions, and its state between them. Only [`Rules::lease`]
//! is required; the other defaults fit a policy without state. [`crate::Gate`] calls them, in the
//! order of its module's text, and handles the case of no attached high-priority client itself: it
//! asks for no lease then, and only caps hold jobs. docs/add-a-policy.md develops a complete one.

use std::fmt;

use crate::{
    Ceiling, Goal, JobId, JobTerms, JobView, Kept, Kernel, Lease, Limit, Mark, Outlook, Request,
    RequestTarget, SloView, Snapshot, admits,
};

/// A policy at work. Pure: its arguments, time included, are its only input.
pub trait Rules: fmt::Debug + Send {
    /// The lease of the job at index `job` of `snapshot.be`, under the epoch of the snapshot, and
    /// the rule that limits it. An HP client is attached. Equal snapshots give equal leases.
    fn lease(&self, snapshot: &Snapshot<'_>, job: usize) -> (Lease, Limit);

    /// The law for one kernel: whether it goes after `spent_ns` were charged since the snapshot. A
    /// policy from a paper states the paper's law here, so that both check each other.
    fn eligible(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        spent_ns: u64,
        kernel: &Kernel,
    ) -> bool {
        admits(&self.lease(snapshot, job).0, spent_ns, kernel)
    }

    /// Handles what has happened since the last snapshot. Once per poll, before [`Rules::lease`];
    /// also while no high-priority client is attached.
    fn handle_snapshot(&mut self, _snapshot: &Snapshot<'_>) {}

    /// When to poll again without a ring, while best-effort work waits or is in flight.
    fn next_look_ns(&self, snapshot: &Snapshot<'_>, _outlook: &Outlook, pause_ns: u64) -> u64 {
        snapshot.now_ns.saturating_add(pause_ns)
    }

    /// See [`crate::Gate::handle_hp_request`].
    fn handle_hp_request(&mut self, _duration_ns: u64) {}

    /// See [`crate::Gate::handle_jobs`].
    fn handle_jobs(&mut self, _now_ns: u64, _jobs: &[JobView]) {}

    /// See [`crate::Gate::handle_excluded`].
    fn handle_excluded(&mut self, _now_ns: u64) {}

    /// See [`crate::Gate::handle_request`].
    fn handle_request(&mut self, _client: u64, _request: &Request) {}

    /// See [`crate::Gate::handle_mark`].
    fn handle_mark(&mut self, _client: u64, _mark: &Mark) {}

    /// See [`crate::Gate::handle_goal`].
    fn handle_goal(&mut self, _client: u64, _goal: Option<Goal>) {}

    /// See [`crate::Gate::kept`].
    fn kept(&self, _client: u64) -> Option<Kept> {
        None
    }

    /// See [`crate::Gate::restore`].
    fn restore(&mut self, _client: u64, _kept: &Kept) {}

    /// See [`crate::Gate::handle_detach`].
    fn handle_detach(&mut self, _client: u64) {}

    /// See [`crate::Gate::handle_terms`].
    fn handle_terms(&mut self, _job: JobId, _terms: JobTerms) {}

    /// See [`crate::Gate::terms`].
    fn terms(&self, _job: JobId) -> JobTerms {
        JobTerms::default()
    }

    /// See [`crate::Gate::ceiling`].
    fn ceiling(&self) -> Option<Ceiling> {
        None
    }

    /// See [`crate::Gate::gain`].
    fn gain(&self) -> Option<f64> {
        None
    }

    /// See [`crate::Gate::solo_ns`].
    fn solo_ns(&self) -> Option<u64> {
        None
    }

    /// See [`crate::Gate::slack_ns`].
    fn slack_ns(&self) -> Option<u64> {
        None
    }

    /// See [`crate::Gate::gives_priority`].
    fn gives_priority(&self) -> bool {
        false
    }

    /// See [`crate::Gate::slo_view`].
    fn slo_view(&self, _client: u64) -> Option<SloView> {
        None
    }

    /// See [`crate::Gate::request_target`].
    fn request_target(&self, _client: u64, _kind: u32) -> Option<RequestTarget> {
        None
    }

    /// See [`crate::Gate::sm_threshold`].
    fn sm_threshold(&self, _device_sms: u32) -> Option<u32> {
        None
    }
}
