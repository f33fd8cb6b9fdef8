//! The host: what happens between the jobs' threads, the driver and the daemon, as times.
//!
//! A job has one thread. It launches asynchronously and runs ahead of the device until the driver's
//! queue is full or a scheduler holds it; at the end of each request it synchronises. All times are
//! constants, so that a run has no other randomness than its arrivals.
//!
//! # Where the defaults come from
//!
//! From timelines of the PyTorch profiler: ResNet-50 training on a V100 (2021), AlexNet on an A100
//! (2023), BERT and a small language model on H100 (2025). A profiler slows what it watches, so host
//! times in them are upper bounds.
//!
//! | field | ns | seen |
//! |---|--:|---|
//! | `launch_gap_ns` | 5 000 | one `cudaLaunchKernel` takes 3 to 9 us; between launches of eager PyTorch at least 11 us. 5 us is what the stand-in driver charges a call, so that simulator and demo agree. Orion's operators last 15 us or more on average, so a thread runs ahead of the device with either |
//! | `launch_latency_ns` | 3 000 | from the end of a call on an idle stream until its kernel starts: median 3 us (V100, 1471 launches), 1.4 to 1.7 us (H100) |
//! | `notice_ns` | 5 000 | from the end of the last kernel until `cudaDeviceSynchronize` returns: 5 us (V100), 4.5 to 8 us (A100, H100); few samples |
//! | `driver_queue` | 1 024 | launches that the driver takes before a call blocks |
//! | `poll_ns`, `idle_poll_ns`, `helper_poll_ns`, `max_hold_ns` | | constants and shipped configuration of daemon and library |
//! | `wake_ns` | 5 000 | an assumption between two measurements: a thread woken by a futex runs after 1.2 us on the same core, after 35 us on the other core of a small virtual machine |

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
            launch_latency_ns: 3_000,
            notice_ns: 5_000,
            driver_queue: 1024,
            poll_ns: 50_000,
            idle_poll_ns: 1_000_000,
            helper_poll_ns: 20_000,
            wake_ns: 5_000,
            max_hold_ns: 100_000_000,
        }
    }
}

const SECOND_NS: u64 = 1_000_000_000;
