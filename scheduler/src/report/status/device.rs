//! What a status says of how the device stands: what a telemetry thread reads while a law goes by
//! it.

use serde::Serialize;

use crate::core::device_watch::{DeviceWatch, names, slowed_by};

/// The device's last reading. What it does not say is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceStatus {
    /// How much of the time it was busy lately, 0 to 1.
    pub busy: Option<f64>,
    /// How many of its SMs were busy since the reading before, 0 to 1, in the mean (GPM: Hopper and
    /// later).
    pub sm_activity: Option<f64>,
    /// Its SM clock, MHz.
    pub clock_mhz: Option<u32>,
    /// The highest that it has, MHz.
    pub clock_max_mhz: Option<u32>,
    /// What it draws, W.
    pub power_w: Option<f64>,
    /// °C.
    pub temperature_c: Option<f64>,
    /// Why its clock is not higher, in the words of nvml.h (`SwPowerCap`); empty: it could be.
    pub event_reasons: Option<Vec<String>>,
    /// What of power and heat holds the clock down, for people; none: nothing does, or it is not
    /// known.
    pub slowed_by: Option<String>,
    /// How long ago it was read; none before it said anything.
    pub age_ns: Option<u64>,
    /// Values that cannot be, since the daemon started.
    pub dropped: u64,
    /// It has not said for ten seconds how much of the time it is busy.
    pub blind: bool,
}

impl DeviceStatus {
    /// `None` while nobody reads.
    pub(crate) fn of(watch: &DeviceWatch, now_ns: u64) -> Option<Self> {
        watch.is_read().then_some(())?;
        let (at_ns, reading) = watch.last().unzip();
        let reading = reading.unwrap_or_default();
        Some(Self {
            busy: reading.busy,
            sm_activity: reading.sm_activity,
            clock_mhz: reading.clock_mhz,
            clock_max_mhz: reading.clock_max_mhz,
            power_w: reading.power_w,
            temperature_c: reading.temperature_c,
            event_reasons: reading.event_reasons.map(names),
            slowed_by: slowed_by(&reading),
            age_ns: at_ns.map(|at_ns| now_ns.saturating_sub(at_ns)),
            dropped: watch.dropped(),
            blind: watch.is_blind(now_ns),
        })
    }
}
