//! The device's time, and the waking of its clients.

use std::sync::Arc;

use protocol::clock::Clock;
use protocol::clock::coordinator::Coordinator;
use protocol::pages::Bell;

#[derive(Clone, Debug)]
pub(crate) enum TimeSource {
    /// It stands still while a client runs.
    Virtual(Arc<Coordinator>),
    /// It advances with real time.
    Real(RealTime),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RealTime {
    start_ns: u64,
    /// Real nanoseconds per device nanosecond.
    scale: f64,
}

impl TimeSource {
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Self::Virtual(coordinator) => coordinator.now_ns(),
            Self::Real(time) => time.now_ns(),
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// Real nanoseconds per device nanosecond; 1 on the virtual clock.
    pub(crate) fn scale(&self) -> f64 {
        match self {
            Self::Virtual(_) => 1.0,
            Self::Real(time) => time.scale,
        }
    }

    pub(crate) fn ring(&self, bell: &Bell) {
        match self {
            Self::Virtual(coordinator) => coordinator.ring(bell),
            Self::Real(_) => bell.ring(&Clock::monotonic()),
        }
    }

    pub(crate) fn bell_key(&self) -> u64 {
        match self {
            Self::Virtual(coordinator) => coordinator.bell_key(),
            Self::Real(_) => 0,
        }
    }
}

impl RealTime {
    /// Starts device time now, at 0.
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

    /// The monotonic time of `device_ns`, rounded up so that it has been reached then.
    pub(crate) fn monotonic_ns(&self, device_ns: u64) -> u64 {
        self.start_ns
            .saturating_add((device_ns as f64 * self.scale).ceil() as u64 + 1)
    }
}
