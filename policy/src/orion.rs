//! `orion`: the Orion paper's Listing 1 (EuroSys'24). A BE kernel goes iff all of:
//! 1. *Throttle.* `be_duration ≤ DUR_THRESHOLD`. `be_duration` is the expected ns of what all BE
//!    jobs launched since it was last zero. It becomes zero when it is over the threshold and
//!    everything BE is complete: never before it is over, and never while something runs. The
//!    throttle binds while HP is idle too. `DUR_THRESHOLD` is 2.5 % of the HP request latency.
//! 2. *Interference.* HP is idle; or `sm_needed < SM_THRESHOLD` ([`SmThreshold`]) and the kernel's
//!    class is the opposite of the class of *every* executing HP kernel, where unknown on either
//!    side counts as opposite.
//! 3. *Turn.* It is the job's turn ([`crate::gate`], "Turns").
//!
//! The lease follows: with T = `DUR_THRESHOLD`, d = `be_duration` in integer ns, d + spent ≤ T ⇔
//! spent < T + 1 − d, so `budget_ns` = T + 1 − d, or 0 when d > T; `sms_max` = `SM_THRESHOLD` − 1;
//! classes = those opposite to all.
//! ```text
//! T = 150 000, nothing launched           budget 150 001
//! a 100 µs kernel goes       d = 100 000  budget  50 001
//! another                    d = 200 000  budget       0   until both are complete
//! both complete              d = 0        budget 150 001
//! ```
//! The listing is for one BE job and has one `be_duration`. With several jobs HP would have to wait
//! for the sum over all, so there is still one. In time slices kernels of two processes never
//! overlap: class and SMs mean nothing, and `orion` is [`temporal`] with its own numbers.
//! [`crate::orion_code`] is what the published *code* does instead.

use crate::drain::DrainSum;
use crate::gate::{limit_of, quantum_ns};
use crate::registry::{Entry, Settings};
use crate::rules::Rules;
use crate::sm_search::{SmSearch, SmSearchParams};
use crate::temporal::{self, TemporalParams};
use crate::turn::Turn;
use crate::{Class, ClassSet, Kernel, Lease, Limit, Policy, Sharing, Snapshot};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "orion",
    about: "best-effort jobs while high-priority jobs are idle, and beside them kernels that use another \
            resource and few SMs",
    settings: Settings::Own(|| Policy::Orion(OrionParams::default())),
};

/// The numbers of `orion`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrionParams {
    /// `DUR_THRESHOLD` in per cent of the HP request latency. 2.5 in the paper: latency is flat
    /// below 3 % and grows about linearly above (§6.4).
    pub dur_threshold_pct: f64,
    /// `SM_THRESHOLD`.
    pub sm_threshold: SmThreshold,
    /// `DUR_THRESHOLD` while the HP latency is not known, in ns.
    pub residual_ns_unknown: u64,
    /// How long a lease lasts unless it is renewed, in ns.
    pub lease_ns: u64,
}

/// The source of `SM_THRESHOLD`: only kernels that need fewer SMs go beside HP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SmThreshold {
    /// The number of SMs of the device: the paper's default, for an HP job with a latency goal.
    #[default]
    DeviceSms,
    /// This number.
    Sms(u32),
    /// Searched for against the throughput of a training HP job ([`crate::sm_search`]), by a
    /// simulator: the daemon knows neither what an HP job does nor when its requests end.
    Searched(SmSearchParams),
}

impl OrionParams {
    /// The parameters that remain where kernels cannot overlap.
    #[must_use]
    pub const fn throttle(&self) -> TemporalParams {
        TemporalParams {
            dur_threshold_pct: self.dur_threshold_pct,
            residual_ns_unknown: self.residual_ns_unknown,
            lease_ns: self.lease_ns,
        }
    }
}

impl Default for OrionParams {
    fn default() -> Self {
        Self {
            dur_threshold_pct: DUR_THRESHOLD_PCT,
            sm_threshold: SmThreshold::default(),
            residual_ns_unknown: RESIDUAL_NS_UNKNOWN,
            lease_ns: LEASE_NS,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Orion {
    params: OrionParams,
    drain: DrainSum,
    turn: Turn,
    sm_search: Option<SmSearch>,
}

impl Orion {
    pub(crate) fn new(params: OrionParams) -> Self {
        let sm_search = match params.sm_threshold {
            SmThreshold::Searched(search) => Some(SmSearch::new(search)),
            SmThreshold::DeviceSms | SmThreshold::Sms(_) => None,
        };
        Self {
            params,
            drain: DrainSum::default(),
            turn: Turn::default(),
            sm_search,
        }
    }

    fn threshold(&self, device_sms: u32) -> u32 {
        match (self.params.sm_threshold, self.sm_search) {
            (SmThreshold::DeviceSms, _) => device_sms,
            (SmThreshold::Sms(sms), _) => sms,
            (SmThreshold::Searched(search), running) => {
                running.unwrap_or(SmSearch::new(search)).threshold()
            }
        }
    }

    fn is_open(&self, snapshot: &Snapshot<'_>, bound_ns: u64) -> bool {
        match snapshot.sharing {
            Sharing::TimeSlice => temporal::is_open(&self.params.throttle(), snapshot),
            Sharing::Mps => self.drain.budget_ns(bound_ns) > 0,
        }
    }
}

impl Rules for Orion {
    fn handle_hp_request(&mut self, duration_ns: u64) {
        if let Some(search) = &mut self.sm_search {
            search.handle_request(duration_ns);
        }
    }

    fn sm_threshold(&self, device_sms: u32) -> Option<u32> {
        Some(self.threshold(device_sms))
    }

    fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        let bound_ns = self.params.throttle().dur_threshold_ns(&snapshot.hp);
        self.drain.handle_snapshot(snapshot, bound_ns);
        let is_open = self.is_open(snapshot, bound_ns);
        self.turn
            .handle_snapshot(snapshot, quantum_ns(bound_ns), is_open);
    }

    fn lease(&self, snapshot: &Snapshot<'_>, job: usize) -> (Lease, Limit) {
        let params = &self.params;
        if snapshot.sharing == Sharing::TimeSlice {
            return temporal::lease(&params.throttle(), &self.turn, snapshot, job);
        }
        let bound_ns = params.throttle().dur_threshold_ns(&snapshot.hp);
        let expiry_ns = snapshot.now_ns.saturating_add(params.lease_ns);
        let closed = Lease::closed(snapshot.epoch, expiry_ns);
        let job = &snapshot.be[job];
        let Some(turn_ns) = self.turn.budget_ns(job, quantum_ns(bound_ns)) else {
            return (closed, Limit::Turn);
        };
        let throttle_ns = self.drain.budget_ns(bound_ns);
        let idle = closed.with_budget(throttle_ns.min(turn_ns));
        let limit = limit_of(throttle_ns, turn_ns);
        if !snapshot.hp.busy {
            return (idle, limit);
        }
        // A threshold of 0 lets no kernel go beside HP, even one of 0 SMs.
        let Some(sms_max) = self.threshold(snapshot.sms).checked_sub(1) else {
            return (closed, Limit::HpBusy);
        };
        let lease = Lease {
            classes: suiting(snapshot.hp.executing),
            sms_max,
            beside_hp: true,
            ..idle
        };
        let is_open = limit == Limit::Budget;
        (lease, if is_open { Limit::Interference } else { limit })
    }

    fn eligible(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        spent_ns: u64,
        kernel: &Kernel,
    ) -> bool {
        let throttle = self.params.throttle();
        if snapshot.sharing == Sharing::TimeSlice {
            return temporal::eligible(&throttle, &self.turn, snapshot, job, spent_ns);
        }
        let dur_threshold_ns = throttle.dur_threshold_ns(&snapshot.hp);
        let quantum_ns = quantum_ns(dur_threshold_ns);
        if !self.turn.admits(&snapshot.be[job], spent_ns, quantum_ns) {
            return false;
        }
        // Listing 1, lines 12 to 16. handle_snapshot has zeroed a drained sum over the threshold.
        let be_duration_ns = self.drain.be_duration_ns().saturating_add(spent_ns);
        if be_duration_ns > dur_threshold_ns {
            return false;
        }
        // Lines 22 to 30, schedule_be.
        let hp_task_running = snapshot.hp.busy;
        !hp_task_running
            || (kernel.sm_needed < self.threshold(snapshot.sms)
                && Class::ALL
                    .into_iter()
                    .filter(|&hp| snapshot.hp.executing.contains(hp))
                    .all(|hp| have_different_profiles(hp, kernel.class)))
    }
}

/// Listing 1's function: opposite, or unknown on either side.
pub(crate) fn have_different_profiles(hp: Class, be: Class) -> bool {
    match (hp, be) {
        (Class::Unknown, _) | (_, Class::Unknown) => true,
        (Class::Compute, Class::Memory) | (Class::Memory, Class::Compute) => true,
        (Class::Compute, Class::Compute) | (Class::Memory, Class::Memory) => false,
    }
}

/// The classes that suit everything that executes: all other classes, and unknown always.
pub(crate) fn suiting(executing: ClassSet) -> ClassSet {
    ClassSet::from_bits_truncate(!executing.bits()).with(Class::Unknown)
}

/// Orion §5.1.1: "empirically set the default percentage to 2.5%".
pub(crate) const DUR_THRESHOLD_PCT: f64 = 2.5;

/// Design §1: 100 µs until 50 requests were seen; 2.5 % of a 4 ms request.
const RESIDUAL_NS_UNKNOWN: u64 = 100_000;

/// A hundred polls of 50 µs. HP's launches end a lease by the epoch within microseconds; the expiry
/// covers a daemon that is late or has stopped.
pub(crate) const LEASE_NS: u64 = 5_000_000;
