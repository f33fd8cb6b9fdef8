//! `[probe]`: bounds of the probe's metrics.

use policy::{Bound, Metric, ProbeParams};
use profiler::settings::{self, Whole};
use serde::{Deserialize, Deserializer};

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProbeSection {
    #[serde(deserialize_with = "utilisation")]
    utilisation: Option<Bound>,
    #[serde(deserialize_with = "sm_activity")]
    sm_activity: Option<Bound>,
    #[serde(deserialize_with = "clock")]
    clock: Option<Bound>,
    #[serde(deserialize_with = "memory")]
    memory: Option<Bound>,
    #[serde(deserialize_with = "temperature")]
    temperature_c: Option<Bound>,
    #[serde(deserialize_with = "power")]
    power: Option<Bound>,
    clock_mhz: Option<Whole<100, 10_000>>,
}

impl ProbeSection {
    /// Applies defaults; `throttle_mhz`: the clock in `[throttle]`.
    pub(super) fn params(self, throttle_mhz: Option<u32>) -> ProbeParams {
        let given = [
            self.utilisation,
            self.sm_activity,
            self.clock,
            self.memory,
            self.temperature_c,
            self.power,
        ];
        let mut params = ProbeParams {
            clock_mhz: self.clock_mhz.map(|mhz| mhz.0 as u32).or(throttle_mhz),
            ..ProbeParams::default()
        };
        for (bound, given) in params.bounds.iter_mut().zip(given) {
            *bound = given.unwrap_or(*bound);
        }
        params
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Off(bool),
    At(Vec<f64>),
}

/// Limits of a metric's bounds, and an example.
fn range(metric: Metric) -> ([f64; 2], &'static str) {
    match metric {
        Metric::Utilisation | Metric::SmActivity => ([0.01, 1.0], "[0.95, 0.99]"),
        // From 0.95 on no clock would be calm.
        Metric::Clock => ([0.01, 0.94], "[0.9, 0.75]"),
        Metric::Memory => ([0.01, 1.0], "[0.92, 0.97]"),
        Metric::Temperature => ([1.0, 150.0], "[82, 87]"),
        Metric::Power => ([0.01, 2.0], "[1]"),
    }
}

fn bound<'de, D: Deserializer<'de>>(
    deserializer: D,
    metric: Metric,
) -> Result<Option<Bound>, D::Error> {
    let ([least, most], near) = range(metric);
    let worse = if metric.is_worse_below() {
        "below"
    } else {
        "above"
    };
    let refused = || {
        let wanted = format!(
            "false, or one or two numbers from {least} to {most}: unhealthy from the first on, \
             overlimit from the second, which lies {worse} the first"
        );
        Err(settings::wrong(wanted, Some(near.to_owned())))
    };
    let bounds = match Given::deserialize(deserializer) {
        Ok(Given::Off(false)) => return Ok(Some(Bound::Off)),
        Ok(Given::At(bounds)) => bounds,
        Ok(Given::Off(true)) | Err(_) => return refused(),
    };
    let are_within = bounds.iter().all(|bound| (least..=most).contains(bound));
    match *bounds.as_slice() {
        [first] if are_within => Ok(Some(Bound::At(first, None))),
        [first, second] if are_within && (second < first) == metric.is_worse_below() => {
            match second == first {
                true => refused(),
                false => Ok(Some(Bound::At(first, Some(second)))),
            }
        }
        _ => refused(),
    }
}

macro_rules! bounds {
    ($($name:ident: $metric:ident;)*) => {
        $(fn $name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bound>, D::Error> {
            bound(deserializer, Metric::$metric)
        })*
    };
}

bounds! {
    utilisation: Utilisation;
    sm_activity: SmActivity;
    clock: Clock;
    memory: Memory;
    temperature: Temperature;
    power: Power;
}
