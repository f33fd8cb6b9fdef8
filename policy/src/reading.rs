//! A device's readings, and the check of their ranges.

const POWER_W: [f64; 2] = [0.0, 10_000.0];
/// Temperatures of a working device, °C.
const TEMPERATURE_C: [f64; 2] = [-50.0, 150.0];
const CLOCK_MHZ: [f64; 2] = [1.0, 10_000.0];
const SHARE: [f64; 2] = [0.0, 1.0];

/// A device's reading. `None`: not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceReading {
    /// The busy share of recent time, 0 to 1.
    pub busy: Option<f64>,
    /// The recent mean share of busy SMs, 0 to 1.
    pub sm_activity: Option<f64>,
    /// Its SM clock, MHz.
    pub clock_mhz: Option<u32>,
    /// Its highest SM clock, MHz.
    pub clock_max_mhz: Option<u32>,
    /// Power draw, W.
    pub power_w: Option<f64>,
    /// Temperature, °C.
    pub temperature_c: Option<f64>,
    /// Why its clock is not higher, the bits `nvmlClocksEventReason…` of nvml.h.
    pub event_reasons: Option<u64>,
    /// The used share of its memory, 0 to 1.
    pub memory_used: Option<f64>,
    /// Power limit, W.
    pub power_limit_w: Option<f64>,
    /// The temperature at which it slows itself down, °C.
    pub slowdown_c: Option<f64>,
    /// The driver reports it as lost.
    pub is_lost: bool,
}

impl DeviceReading {
    /// The reading without impossible values (no number, or out of range), and how many there were.
    #[must_use]
    pub fn checked(self) -> (Self, u64) {
        let mut dropped = 0;
        let mut within = |value: Option<f64>, [least, most]: [f64; 2]| {
            let kept = value.filter(|value| (least..=most).contains(value));
            dropped += u64::from(kept != value);
            kept
        };
        let mut clocks = [self.clock_mhz, self.clock_max_mhz].map(|clock| {
            let mhz = within(clock.map(f64::from), CLOCK_MHZ);
            clock.filter(|_| mhz.is_some())
        });
        let mut above = 0;
        if let [Some(clock), Some(max)] = clocks
            && clock > max
        {
            // Either of the two may be wrong.
            (clocks, above) = ([None; 2], 2);
        }
        let [clock_mhz, clock_max_mhz] = clocks;
        let reading = Self {
            busy: within(self.busy, SHARE),
            sm_activity: within(self.sm_activity, SHARE),
            power_w: within(self.power_w, POWER_W),
            temperature_c: within(self.temperature_c, TEMPERATURE_C),
            clock_mhz,
            clock_max_mhz,
            event_reasons: self.event_reasons,
            memory_used: within(self.memory_used, SHARE),
            power_limit_w: within(self.power_limit_w, POWER_W),
            slowdown_c: within(self.slowdown_c, TEMPERATURE_C),
            is_lost: self.is_lost,
        };
        (reading, dropped + above)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_be_is_dropped_and_counted_and_what_was_not_said_is_not() {
        let reading = DeviceReading {
            busy: Some(f64::NAN),
            sm_activity: Some(1.01),
            power_w: Some(70.0),
            temperature_c: Some(f64::INFINITY),
            clock_mhz: Some(1_590),
            ..DeviceReading::default()
        };
        let kept = DeviceReading {
            power_w: Some(70.0),
            clock_mhz: Some(1_590),
            ..DeviceReading::default()
        };
        assert_eq!(reading.checked(), (kept, 3));
        // A clock above the highest, and one that is not a number.
        for (clock_mhz, clock_max_mhz, kept, dropped) in [
            (1_600, 1_590, [None, None], 2),
            (u32::MAX, 1_590, [None, Some(1_590)], 1),
            (1_590, 1_590, [Some(1_590); 2], 0),
        ] {
            let reading = DeviceReading {
                clock_mhz: Some(clock_mhz),
                clock_max_mhz: Some(clock_max_mhz),
                ..DeviceReading::default()
            };
            let (of, count) = reading.checked();
            assert_eq!(([of.clock_mhz, of.clock_max_mhz], count), (kept, dropped));
        }
        let nothing = DeviceReading::default();
        assert_eq!(nothing.checked(), (nothing, 0));
    }

    fn any_value() -> impl Strategy<Value = Option<f64>> {
        prop::option::of(prop_oneof![
            any::<f64>(),
            -0.5..1.5_f64,
            -100.0..20_000.0_f64
        ])
    }

    proptest! {
        #[test]
        fn what_is_kept_is_as_it_was_and_within_its_range(
            [busy, sm_activity, power_w, temperature_c] in [any_value(), any_value(), any_value(), any_value()],
            event_reasons in prop::option::of(any::<u64>()),
        ) {
            let said = DeviceReading {
                busy, sm_activity, power_w, temperature_c, event_reasons, ..DeviceReading::default()
            };
            let (kept, dropped) = said.checked();
            let values = |of: DeviceReading| [of.busy, of.sm_activity, of.power_w, of.temperature_c];
            let mut missing = 0;
            for ((said, kept), [least, most]) in values(said).into_iter().zip(values(kept)).zip([SHARE, SHARE, POWER_W, TEMPERATURE_C]) {
                match kept {
                    Some(value) => {
                        prop_assert_eq!(said, kept);
                        prop_assert!(least <= value && value <= most);
                    }
                    None => missing += u64::from(said.is_some()),
                }
            }
            prop_assert_eq!(dropped, missing);
            prop_assert_eq!(kept.event_reasons, event_reasons);
            prop_assert_eq!(kept.checked(), (kept, 0));
        }
    }
}
