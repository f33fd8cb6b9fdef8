//! The host: delays between the jobs' threads, the driver and the daemon. A job has one thread by
//! default. It launches asynchronously and runs ahead of the device until the driver's queue is
//! full or a scheduler holds it; at the end of each request it synchronises. All delays are
//! constants, so that arrivals are a run's only randomness.
//!
//! # Sources of the defaults
//! Timelines of the PyTorch profiler: ResNet-50 training on a V100 (2021), AlexNet on an A100
//! (2023), BERT and a small language model on H100 (2025). A profiler slows the host: its times are
//! upper bounds.
//! - `launch_gap_ns`, 5 000: one `cudaLaunchKernel` takes 3 to 9 us; between launches of eager
//!   PyTorch at least 11 us. 5 us is the stand-in driver's charge for a call, so that simulator and
//!   demo agree. Orion's operators last 15 us or more on average, so threads run ahead.
//! - `launch_latency_ns`, 3 000: from the end of a call on an idle stream until its kernel starts:
//!   median 3 us (V100, 1471 launches), 1.4 to 1.7 us (H100).
//! - `notice_ns`, 5 000: from the end of the last kernel until `cudaDeviceSynchronize` returns: 5
//!   us (V100), 4.5 to 8 us (A100, H100); few samples.
//! - `driver_queue`, 1 024: launches that the driver takes before a call blocks.
//! - `poll_ns`, `idle_poll_ns`, `helper_poll_ns`, `max_hold_ns`: as shipped.
//! - `wake_ns`, 5 000: an assumption between two measurements: a thread woken by a futex runs after
//!   1.2 us on the same core, after 35 us on the other core of a small virtual machine.

use profiler::settings::whole;
use serde::Deserialize;

use crate::error::Error;

/// Times of the host, ns. [`HostModel::default`] has their sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostModel {
    /// From a thread's launch to its next, without holds: the framework's work and the driver call.
    #[serde(deserialize_with = "whole::<_, _, 0, SECOND_NS>")]
    pub launch_gap_ns: u64,
    /// From the issue of a launch (or a copy) until the device can begin it.
    #[serde(deserialize_with = "whole::<_, _, 0, SECOND_NS>")]
    pub launch_latency_ns: u64,
    /// From the completion of a request's last operation until its thread continues.
    #[serde(deserialize_with = "whole::<_, _, 0, SECOND_NS>")]
    pub notice_ns: u64,
    /// Launches and copies of a thread that the driver takes before a further call waits.
    #[serde(deserialize_with = "whole::<_, _, 1, 65_536>")]
    pub driver_queue: u32,
    /// The least time between two polls of the daemon while best-effort work waits or runs.
    #[serde(deserialize_with = "whole::<_, _, 1, SECOND_NS>")]
    pub poll_ns: u64,
    /// Between two polls of the daemon otherwise.
    #[serde(deserialize_with = "whole::<_, _, 1, SECOND_NS>")]
    pub idle_poll_ns: u64,
    /// Between two polls of a best-effort client's helper thread while work is in flight.
    #[serde(deserialize_with = "whole::<_, _, 1, SECOND_NS>")]
    pub helper_poll_ns: u64,
    /// From a ring of a bell until the sleeper runs: a waiting best-effort thread, or the daemon.
    #[serde(deserialize_with = "whole::<_, _, 0, SECOND_NS>")]
    pub wake_ns: u64,
    /// Longest wait of a best-effort launch; then it goes.
    #[serde(deserialize_with = "whole::<_, _, 0, NS_MAX>")]
    pub max_hold_ns: u64,
    /// Extra delay until the daemon learns of completions: a late thread or event. 0 by default.
    #[serde(deserialize_with = "whole::<_, _, 0, SECOND_NS>")]
    pub completion_delay_ns: u64,
    /// Length of a stall of the daemon, at most 5 s (clients take a longer silence for its death),
    /// once in [`HostModel::stall_every_ns`]. Best-effort launches that wait meanwhile go by
    /// [`HostModel::max_hold_ns`]. 0 by default.
    #[serde(deserialize_with = "whole::<_, _, 0, NS_MAX>")]
    pub stall_ns: u64,
    /// The period of stalls; the first one begins after this time.
    #[serde(deserialize_with = "whole::<_, _, 1, NS_MAX>")]
    pub stall_every_ns: u64,
    /// How far the clock of daemon and clients jumps ahead, as after a guest was stopped, once in
    /// [`HostModel::clock_jump_every_ns`]. It is monotonic. 0 by default.
    #[serde(deserialize_with = "whole::<_, _, 0, NS_MAX>")]
    pub clock_jump_ns: u64,
    /// The period of jumps; the first one is after this time.
    #[serde(deserialize_with = "whole::<_, _, 1, NS_MAX>")]
    pub clock_jump_every_ns: u64,
}

impl HostModel {
    /// A host without delays: schedulers see everything at once, launches cost nothing.
    pub const IDEAL: Self = Self {
        launch_gap_ns: 0,
        launch_latency_ns: 0,
        notice_ns: 0,
        driver_queue: 1024,
        poll_ns: 1_000,
        idle_poll_ns: 1_000,
        helper_poll_ns: 1_000,
        wake_ns: 0,
        max_hold_ns: 100_000_000,
        ..Self::UNDISTURBED
    };

    /// The fields without disturbances; the others are placeholders.
    const UNDISTURBED: Self = Self {
        launch_gap_ns: 0,
        launch_latency_ns: 0,
        notice_ns: 0,
        driver_queue: 0,
        poll_ns: 0,
        idle_poll_ns: 0,
        helper_poll_ns: 0,
        wake_ns: 0,
        max_hold_ns: 0,
        completion_delay_ns: 0,
        stall_ns: 0,
        stall_every_ns: SECOND_NS,
        clock_jump_ns: 0,
        clock_jump_every_ns: SECOND_NS,
    };

    /// The same host without disturbances.
    #[must_use]
    pub const fn undisturbed(&self) -> Self {
        Self {
            completion_delay_ns: 0,
            stall_ns: 0,
            stall_every_ns: SECOND_NS,
            clock_jump_ns: 0,
            clock_jump_every_ns: SECOND_NS,
            ..*self
        }
    }

    /// When a daemon due at `at_ns` runs: then, or after the stall at that time.
    pub(crate) const fn awake_ns(&self, at_ns: u64) -> u64 {
        let into_ns = at_ns % self.stall_every_ns;
        if at_ns < self.stall_every_ns || into_ns >= self.stall_ns {
            return at_ns;
        }
        at_ns + (self.stall_ns - into_ns)
    }

    pub(crate) const fn clock_ns(&self, now_ns: u64) -> u64 {
        let jumps = now_ns / self.clock_jump_every_ns;
        now_ns.saturating_add(jumps.saturating_mul(self.clock_jump_ns))
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Host`] names the first invalid number.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what| Err(Error::Host { what });
        if self.driver_queue == 0 {
            return wrong("driver_queue is 0: no launch could ever be made");
        }
        for (ns, what) in [
            (self.poll_ns, "poll_ns is 0 or above a second"),
            (self.idle_poll_ns, "idle_poll_ns is 0 or above a second"),
            (self.helper_poll_ns, "helper_poll_ns is 0 or above a second"),
        ] {
            if ns == 0 || ns > SECOND_NS {
                return wrong(what);
            }
        }
        for (ns, what) in [
            (self.launch_gap_ns, "launch_gap_ns is above a second"),
            (
                self.launch_latency_ns,
                "launch_latency_ns is above a second",
            ),
            (self.notice_ns, "notice_ns is above a second"),
            (self.wake_ns, "wake_ns is above a second"),
        ] {
            if ns > SECOND_NS {
                return wrong(what);
            }
        }
        for (ns, what) in [
            (
                self.completion_delay_ns,
                "completion_delay_ns is above a second",
            ),
            (self.clock_jump_ns / 3_600, "clock_jump_ns is above an hour"),
        ] {
            if ns > SECOND_NS {
                return wrong(what);
            }
        }
        if self.stall_ns > STALL_NS_MAX {
            return wrong("stall_ns is above 5 s: clients would treat the daemon as dead");
        }
        if self.stall_every_ns <= self.stall_ns || self.clock_jump_every_ns == 0 {
            return wrong("stall_every_ns is not above stall_ns, or clock_jump_every_ns is 0");
        }
        if self.max_hold_ns > 10 * SECOND_NS {
            return wrong("max_hold_ns is above 10 s, the most that the library accepts");
        }
        Ok(())
    }
}

impl Default for HostModel {
    fn default() -> Self {
        Self {
            launch_gap_ns: 5_000,
            launch_latency_ns: 3_000,
            notice_ns: 5_000,
            driver_queue: 1024,
            poll_ns: 50_000,
            idle_poll_ns: 1_000_000,
            helper_poll_ns: 20_000,
            wake_ns: 5_000,
            max_hold_ns: 100_000_000,
            ..Self::UNDISTURBED
        }
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const NS_MAX: u64 = 10 * SECOND_NS;
/// Longer silence is a daemon's death (`protocol::pages::SILENCE_NS_MAX`), which is not simulated.
const STALL_NS_MAX: u64 = 5 * SECOND_NS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_moves_what_falls_into_it_to_its_end() {
        let host = HostModel {
            stall_ns: 5,
            stall_every_ns: 100,
            ..HostModel::default()
        };
        let times = [
            (0, 0),
            (99, 99),
            (100, 105),
            (104, 105),
            (105, 105),
            (203, 205),
        ];
        for (at_ns, runs_ns) in times {
            assert_eq!(host.awake_ns(at_ns), runs_ns, "{at_ns}");
        }
        assert_eq!(HostModel::default().awake_ns(SECOND_NS), SECOND_NS);
    }

    #[test]
    fn a_clock_that_jumps_never_goes_back() {
        let host = HostModel {
            clock_jump_ns: 1_000,
            clock_jump_every_ns: 50,
            ..HostModel::default()
        };
        assert_eq!(
            [49, 50, 99, 100].map(|ns| host.clock_ns(ns)),
            [49, 1_050, 1_099, 2_100]
        );
        assert_eq!(HostModel::default().clock_ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn disturbances_that_cannot_be_meant_are_refused() {
        for change in [
            |host: &mut HostModel| host.completion_delay_ns = SECOND_NS + 1,
            |host: &mut HostModel| {
                (host.stall_ns, host.stall_every_ns) = (STALL_NS_MAX + 1, 10 * SECOND_NS);
            },
            |host: &mut HostModel| (host.stall_ns, host.stall_every_ns) = (1_000, 1_000),
            |host: &mut HostModel| host.stall_every_ns = 0,
            |host: &mut HostModel| host.clock_jump_every_ns = 0,
            |host: &mut HostModel| host.clock_jump_ns = 3_601 * SECOND_NS,
        ] {
            let mut host = HostModel::default();
            change(&mut host);
            assert!(host.check().is_err(), "{host:?}");
        }
    }
}
