//! The device's last reading, and whether power or heat throttle its clock.
//! A slowdown begins with the first reading that gives a reason for it, and ends after a minute of
//! readings without one. So at most one slowdown begins per minute. A reading in which the driver
//! reports no reasons at all, present or absent, begins no slowdown, and restarts that minute.

use policy::DeviceReading;
use policy::throttle::BLIND_NS;

use crate::core::event::{Draft, Kind};

/// A slowdown ends after this long without a reason, ns.
const ENDED_NS: u64 = 60_000_000_000;

/// Bits of nvml.h (`nvmlClocksEventReason…`, formerly `nvmlClocksThrottleReason…`), and for those
/// set by power or heat, what throttles the clock.
const REASONS: [(u64, &str, Option<&str>); 9] = [
    (0x1, "GpuIdle", None),
    (0x2, "ApplicationsClocksSetting", None),
    (0x4, "SwPowerCap", Some("its power limit")),
    (0x8, "HwSlowdown", Some("its hardware")),
    (0x10, "SyncBoost", None),
    (0x20, "SwThermalSlowdown", Some("heat")),
    (0x40, "HwThermalSlowdown", Some("heat")),
    (0x80, "HwPowerBrakeSlowdown", Some("the power brake")),
    (0x100, "DisplayClockSetting", None),
];

/// nvmlClocksEventReasonSwPowerCap.
const SW_POWER_CAP: u64 = 0x4;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceWatch {
    last: Option<(u64, DeviceReading)>,
    /// When the device's utilisation was last known, or since when it has been wanted.
    known_ns: Option<u64>,
    dropped: u64,
    is_slow: bool,
    slow_ns: u64,
    quiet_since_ns: Option<u64>,
    is_forgotten: bool,
}

impl DeviceWatch {
    pub(crate) fn handle_reading(&mut self, now_ns: u64, said: DeviceReading) -> Option<Draft> {
        let (reading, dropped) = said.checked();
        if std::mem::take(&mut self.is_forgotten) {
            self.is_slow &= now_ns.saturating_sub(self.slow_ns) < ENDED_NS;
        }
        self.dropped = self.dropped.saturating_add(dropped);
        if reading.busy.is_some() {
            self.known_ns = Some(now_ns);
        }
        self.known_ns.get_or_insert(now_ns);
        if reading != DeviceReading::default() {
            self.last = Some((now_ns, reading));
        }
        let Some(slow) = slow_bits(&reading) else {
            self.quiet_since_ns = None;
            return None;
        };
        if slow != 0 {
            self.slow_ns = now_ns;
            self.quiet_since_ns = None;
            let is_news = !std::mem::replace(&mut self.is_slow, true);
            return is_news.then(|| {
                let text = format!("the GPU is slowed down: {}", in_words(&reading));
                Draft::new(Kind::SlowedDown, text).code(Some(slow))
            });
        }
        let quiet_since_ns = *self.quiet_since_ns.get_or_insert(now_ns);
        let has_ended = self.is_slow && now_ns.saturating_sub(quiet_since_ns) >= ENDED_NS;
        has_ended.then(|| {
            self.is_slow = false;
            let text = "power and heat have not held the GPU's clock down for a minute";
            Draft::new(Kind::SlowedDownEnded, text)
        })
    }

    /// Nobody wants readings any more. An unwatched slowdown ends after a minute.
    pub(crate) fn forget(&mut self) {
        (self.last, self.known_ns, self.quiet_since_ns) = (None, None, None);
        self.is_forgotten = true;
    }

    pub(crate) fn last(&self) -> Option<(u64, DeviceReading)> {
        self.last
    }

    pub(crate) fn is_read(&self) -> bool {
        self.known_ns.is_some()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Utilisation has been unknown for [`BLIND_NS`].
    pub(crate) fn is_blind(&self, now_ns: u64) -> bool {
        let known_ns = self.known_ns.unwrap_or(now_ns);
        now_ns.saturating_sub(known_ns) >= BLIND_NS
    }
}

/// The bits set by power and heat; `None`: the device does not report.
fn slow_bits(reading: &DeviceReading) -> Option<u64> {
    let slow = REASONS.iter().filter(|(_, _, what)| what.is_some());
    let bits = reading.event_reasons? & slow.fold(0, |all, (bit, ..)| all | bit);
    // A device at its power limit may report that at its highest clock too: no slowdown.
    let clocks = reading.clock_mhz.zip(reading.clock_max_mhz);
    let is_highest = clocks.is_some_and(|(clock, max)| clock >= max);
    Some(if is_highest {
        bits & !SW_POWER_CAP
    } else {
        bits
    })
}

/// Reasons for a lower clock, in NVIDIA's words; unnamed bits by number.
pub(crate) fn names(bits: u64) -> Vec<String> {
    let set = (0..u64::BITS).map(|n| 1 << n).filter(|bit| bits & bit != 0);
    let name = |bit: u64| {
        let known = REASONS.iter().find(|(known, ..)| *known == bit);
        known.map_or_else(|| format!("{bit:#x}"), |(_, name, _)| (*name).to_owned())
    };
    set.map(name).collect()
}

/// The power or heat limit that throttles the clock, for display; `None`: none, or unknown.
pub(crate) fn slowed_by(reading: &DeviceReading) -> Option<String> {
    let bits = slow_bits(reading)?;
    let set = REASONS.iter().filter(|(bit, ..)| bits & bit != 0);
    let parts = set.filter_map(|(_, name, what)| Some(format!("{} ({name})", (*what)?)));
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

pub(crate) fn in_words(reading: &DeviceReading) -> String {
    let clock = match (reading.clock_mhz, reading.clock_max_mhz) {
        (Some(clock), Some(max)) => Some(format!("{clock} of {max} MHz")),
        (clock, _) => clock.map(|clock| format!("{clock} MHz")),
    };
    let held = slowed_by(reading).map(|by| format!("held down by {by}"));
    let power = reading.power_w.map(|power| format!("{power:.0} W"));
    let temperature = (reading.temperature_c).map(|celsius| format!("{celsius:.0} C"));
    let parts = [clock, held, power, temperature].into_iter().flatten();
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn reading(event_reasons: u64) -> DeviceReading {
        DeviceReading {
            busy: Some(0.9),
            clock_mhz: Some(1_350),
            clock_max_mhz: Some(1_590),
            power_w: Some(70.2),
            temperature_c: Some(74.0),
            event_reasons: Some(event_reasons),
            ..DeviceReading::default()
        }
    }

    fn reported(watch: &mut DeviceWatch, from_s: u64, readings: &[DeviceReading]) -> Vec<Kind> {
        let times = (from_s..).map(|s| s * SECOND_NS);
        let reports = times
            .zip(readings)
            .filter_map(|(now_ns, &reading)| watch.handle_reading(now_ns, reading));
        reports.map(|draft| draft.kind()).collect()
    }

    #[test]
    fn a_slowdown_is_reported_once_and_ends_after_a_minute_without_one() {
        let mut watch = DeviceWatch::default();
        let flapping: Vec<_> = (0..300).map(|n| reading([0x4, 0x0][n % 2])).collect();
        assert_eq!(reported(&mut watch, 0, &flapping), [Kind::SlowedDown]);
        let silent = [DeviceReading::default(); 100];
        assert_eq!(reported(&mut watch, 300, &silent), []);
        // Idle, application clocks, and the power limit at full clock are no slowdown.
        let full = DeviceReading {
            clock_mhz: Some(1_590),
            ..reading(0x4)
        };
        let quiet = [[reading(0x3); 30], [full; 30]].concat();
        assert_eq!(reported(&mut watch, 400, &quiet), []);
        assert_eq!(
            reported(&mut watch, 460, &[reading(0x3); 10]),
            [Kind::SlowedDownEnded]
        );
        assert_eq!(
            reported(&mut watch, 470, &[reading(0x40)]),
            [Kind::SlowedDown]
        );
        assert_eq!(reported(&mut watch, 471, &[reading(0); 58]), []);
        watch.forget();
        assert_eq!(reported(&mut watch, 4_000, &[reading(0); 10]), []);
        assert_eq!(
            reported(&mut watch, 4_010, &[reading(0x40)]),
            [Kind::SlowedDown]
        );
    }

    #[test]
    fn no_two_slowdowns_begin_within_a_minute() {
        let mut watch = DeviceWatch::default();
        let mut beginnings = Vec::new();
        for s in 0..1_000 {
            let is_slow = s % 130 < 5;
            let said = reading(if is_slow { 0x20 } else { 0x1 });
            let news = watch.handle_reading(s * SECOND_NS, said);
            if news.is_some_and(|draft| draft.kind() == Kind::SlowedDown) {
                beginnings.push(s);
            }
        }
        assert_eq!(beginnings.len(), 8);
        assert!(beginnings.windows(2).all(|pair| pair[1] - pair[0] > 60));
    }

    #[test]
    fn what_holds_the_clock_down_is_said_with_nvidias_name() {
        let said = watch_text(reading(0x4 | 0x1));
        let expected = "the GPU is slowed down: 1350 of 1590 MHz, held down by its power limit (SwPowerCap), 70 W, 74 C";
        assert_eq!(said, expected);
        let both = slowed_by(&reading(0x48)).unwrap();
        assert_eq!(
            both,
            "its hardware (HwSlowdown) and heat (HwThermalSlowdown)"
        );
        let only = DeviceReading {
            event_reasons: Some(0x80),
            ..DeviceReading::default()
        };
        assert_eq!(
            in_words(&only),
            "held down by the power brake (HwPowerBrakeSlowdown)"
        );
        assert_eq!(names(0x205), ["GpuIdle", "SwPowerCap", "0x200"]);
    }

    fn watch_text(said: DeviceReading) -> String {
        let draft = DeviceWatch::default().handle_reading(0, said).unwrap();
        draft.text
    }

    #[test]
    fn a_device_is_blind_where_its_busy_time_is_not_known_and_what_cannot_be_is_counted() {
        let mut watch = DeviceWatch::default();
        assert!(!watch.is_read() && !watch.is_blind(u64::MAX));
        let wrong = DeviceReading {
            busy: Some(f64::NAN),
            power_w: Some(-1.0),
            ..reading(0)
        };
        for s in 5..=15 {
            assert!(!watch.is_blind(s * SECOND_NS - 1));
            watch.handle_reading(s * SECOND_NS, wrong);
        }
        assert!(watch.is_blind(15 * SECOND_NS));
        assert_eq!(watch.dropped(), 22);
        let (at_ns, last) = watch.last().unwrap();
        assert_eq!((at_ns, last.busy), (15 * SECOND_NS, None));
        assert_eq!(last.clock_mhz, Some(1_350));
        watch.handle_reading(16 * SECOND_NS, reading(0));
        assert!(!watch.is_blind(16 * SECOND_NS));
        watch.forget();
        assert!(!watch.is_read() && watch.last().is_none());
    }
}
