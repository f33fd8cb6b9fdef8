//! Status of the device, from the telemetry thread's readings while a law or the probe needs them.

use serde::Serialize;

use crate::core::device_watch::{DeviceWatch, names, slowed_by};

/// The device's last reading. Unreported values are none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceStatus {
    /// Recent busy share of the time, 0 to 1.
    pub busy: Option<f64>,
    /// Mean share of busy SMs since the previous reading, 0 to 1 (GPM: Hopper and later).
    pub sm_activity: Option<f64>,
    /// Its SM clock, MHz.
    pub clock_mhz: Option<u32>,
    /// Its highest SM clock, MHz.
    pub clock_max_mhz: Option<u32>,
    /// Power, W.
    pub power_w: Option<f64>,
    /// Temperature, °C.
    pub temperature_c: Option<f64>,
    /// Reasons for a lower clock, in the words of nvml.h (`SwPowerCap`); empty: none.
    pub event_reasons: Option<Vec<String>>,
    /// The power or heat limit that throttles the clock, for display; none: none, or unknown.
    pub slowed_by: Option<String>,
    /// Age of the reading; none before the first.
    pub age_ns: Option<u64>,
    /// Impossible values since the daemon started.
    pub dropped: u64,
    /// Utilisation has been unknown for ten seconds.
    pub blind: bool,
}

impl DeviceStatus {
    /// `None` without a reader.
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
