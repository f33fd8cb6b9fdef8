//! The host: what happens between the jobs' threads, the driver and the daemon, as times.
//!
//! A job has one thread. It launches asynchronously and runs ahead of the device until the driver's
//! queue is full or a scheduler holds it; at the end of each request it synchronises. All times are
//! constants, so that a run has no other randomness than its arrivals.

use crate::error::Error;

/// Times of the host, ns. [`HostModel::default`] has their sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostModel {
    /// From one launch of a thread to its next, while nothing holds it: what the framework does
    /// between, and the driver call.
    pub launch_gap_ns: u64,
    /// From a launch (or a copy) that goes until the device can begin it.
    pub launch_latency_ns: u64,
    /// From the completion of a request's last operation until its thread goes on.
    pub notice_ns: u64,
    /// Launches and copies of a thread that the driver takes before a further call waits.
    pub driver_queue: u32,
    /// Between two looks of the daemon while best-effort work waits or runs.
    pub poll_ns: u64,
    /// Between two looks of the daemon otherwise.
    pub idle_poll_ns: u64,
    /// Between two looks of a best-effort client's helper thread while work is in flight.
    pub helper_poll_ns: u64,
    /// From a ring of a bell until the thread that sleeps on it runs: of a best-effort thread that
    /// waits, and of the daemon.
    pub wake_ns: u64,
    /// Longest wait of a best-effort launch; then it goes.
    pub max_hold_ns: u64,
}

impl HostModel {
    /// A host that takes no time: schedulers see everything at once, launches cost nothing. What
    /// remains is the device.
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
    };

    /// Whether the numbers can be meant.
    ///
    /// # Errors
    /// [`Error::Host`] names the first that cannot.
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
        if self.max_hold_ns > 10 * SECOND_NS {
            return wrong("max_hold_ns is above ten seconds, which the library does not believe");
        }
        Ok(())
    }
}

impl Default for HostModel {
    fn default() -> Self {
        Self {
            launch_gap_ns: 5_000,
            launch_latency_ns: 0,
            notice_ns: 0,
            driver_queue: 1024,
            poll_ns: 50_000,
            idle_poll_ns: 1_000_000,
            helper_poll_ns: 20_000,
            wake_ns: 0,
            max_hold_ns: 100_000_000,
        }
    }
}

const SECOND_NS: u64 = 1_000_000_000;
