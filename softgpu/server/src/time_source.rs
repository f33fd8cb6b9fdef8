//! Which time the device lives in, and how its clients are woken.

use std::sync::Arc;

use protocol::clock::Clock;
use protocol::clock::coordinator::Coordinator;
use protocol::pages::Bell;

/// The device's time.
#[derive(Clone, Debug)]
pub(crate) enum TimeSource {
    /// It stands still while a client runs.
    Virtual(Arc<Coordinator>),
    /// It passes with the real time.
    Real(RealTime),
}

/// Real time, scaled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RealTime {
    start_ns: u64,
    /// Real nanoseconds per device nanosecond.
    scale: f64,
}

impl TimeSource {
    /// Device time now.
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Self::Virtual(coordinator) => coordinator.now_ns(),
            Self::Real(time) => time.now_ns(),
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// Real nanoseconds per device nanosecond; 1 where there is no such thing.
    pub(crate) fn scale(&self) -> f64 {
        match self {
            Self::Virtual(_) => 1.0,
            Self::Real(time) => time.scale,
        }
    }

    /// Wakes whoever waits for a bell of this server.
    pub(crate) fn ring(&self, bell: &Bell) {
        match self {
            Self::Virtual(coordinator) => coordinator.ring(bell),
            Self::Real(_) => bell.ring(&Clock::monotonic()),
        }
    }

    /// A key for a new bell.
    pub(crate) fn bell_key(&self) -> u64 {
        match self {
            Self::Virtual(coordinator) => coordinator.bell_key(),
            Self::Real(_) => 0,
        }
    }
}

impl RealTime {
    /// Device time starts now, at 0.
    pub(crate) fn start(scale: f64) -> Self {
        Self {
            start_ns: Clock::monotonic().now_ns(),
            scale,
        }
    }

    fn now_ns(&self) -> u64 {
        let passed_ns = Clock::monotonic().now_ns().saturating_sub(self.start_ns);
        (passed_ns as f64 / self.scale) as u64
    }

    /// The monotonic time at which it is `device_ns`, rounded up so that it has come by then.
    pub(crate) fn monotonic_ns(&self, device_ns: u64) -> u64 {
        self.start_ns
            .saturating_add((device_ns as f64 * self.scale).ceil() as u64 + 1)
    }
}
