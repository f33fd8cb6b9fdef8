//! Clock, power and temperature of a device: a model that is off by default.
//!
//! **Law.** Each [`TICK_NS`], C and M are the fractions of the time since the previous tick in
//! which the device computed at its full throughput (at its clock) and moved memory at its full
//! bandwidth:
//! ```text
//! P = P0 + (κ · TDP − P0) (0.6 C + 0.4 M) (f / fmax)³     P0 = 0.15 TDP
//! T → 30 °C + 45 °C · P / TDP, with a time constant of 30 s
//! f: 15 MHz less where P > limit or T ≥ 84 °C, else 15 MHz more, up to fmax
//! ```
//! κ is the device's uncapped power at its highest clock and full load, divided by its TDP: 1.6 for
//! cards whose limit is low for their size (T4, L4, A10), else 1.1. Running work is slowed down as
//! far as it computes: with a clock of f, the part C ÷ (C + M) of it takes fmax ÷ f times as long.
//! No source has all of it. The cube is that of a voltage that follows the clock; every number is
//! an assumption until the model is calibrated on a device.

use crate::contention::Demand;
use devices::Device;

/// Interval between two steps of the governor, ns.
const TICK_NS: u64 = 10_000_000;
const STEP_MHZ: f64 = 15.0;
/// Temperature at which the clock falls, °C.
pub const HOT_C: f64 = 84.0;
const AMBIENT_C: f64 = 30.0;
/// Steady rise of temperature at TDP, °C.
const RISE_C: f64 = 45.0;
const TAU_NS: f64 = 30e9;
const IDLE: f64 = 0.15;
/// Weights of C and M in P.
const POWER_SHARES: [f64; 2] = [0.6, 0.4];
/// Devices with a κ of 1.6, and the κ of the others.
const LOW_LIMITED: [&str; 3] = ["T4", "L4", "A10"];
const KAPPA: [f64; 2] = [1.6, 1.1];

/// Parameters of a device's governor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Governor {
    /// Sustained power of the device, W.
    pub tdp_w: f64,
    /// Power above which the clock falls, W; more than the device's idle power.
    pub limit_w: f64,
    /// See the module's text.
    pub kappa: f64,
    /// fmax.
    pub clock_max_mhz: u32,
    /// Lower bound of the clock.
    pub clock_min_mhz: u32,
}

impl Governor {
    /// Parameters of a device of the table: the limit is its TDP, the least clock a fifth of fmax.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        let tdp_w = f64::from(device.tdp_w.max(1));
        let is_low = LOW_LIMITED.contains(&device.name.as_str());
        Self {
            tdp_w,
            limit_w: tdp_w,
            kappa: if is_low { KAPPA[0] } else { KAPPA[1] },
            clock_max_mhz: device.max_clock_mhz,
            clock_min_mhz: device.max_clock_mhz / 5,
        }
    }
}

/// The state of a governed device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Governed {
    /// SM clock.
    pub clock_mhz: u32,
    /// Power since the last tick, W.
    pub power_w: f64,
    /// °C.
    pub temperature_c: f64,
    /// Power limits the clock.
    pub is_power_capped: bool,
    /// Temperature limits the clock.
    pub is_hot: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    governor: Governor,
    mhz: f64,
    power_w: f64,
    celsius: f64,
    at_ns: u64,
    /// Use of the device by then, ns at full use: computing, moving memory.
    used_ns: [u64; 2],
    /// Whether work has begun since, or was there before.
    is_used: bool,
    /// Whether temperature caused the last drop of the clock.
    by_heat: bool,
}

impl Clock {
    pub(crate) fn new(governor: Governor) -> Self {
        Self {
            governor,
            mhz: governor.clock_max_mhz.into(),
            power_w: governor.tdp_w * IDLE,
            celsius: AMBIENT_C + RISE_C * IDLE,
            at_ns: 0,
            used_ns: [0; 2],
            is_used: false,
            by_heat: false,
        }
    }

    pub(crate) fn use_device(&mut self) {
        self.is_used = true;
    }

    /// f / fmax.
    pub(crate) fn relative(&self) -> f64 {
        self.mhz / f64::from(self.governor.clock_max_mhz.max(1))
    }

    pub(crate) fn view(&self, now_ns: u64) -> Governed {
        let is_below = self.relative() < 1.0;
        // Steps are skipped while the device is idle: see `next_ns`.
        let rested_ns = now_ns - self.at_ns;
        let mut clock = *self;
        if rested_ns > TICK_NS && !self.is_used {
            clock.power_w = self.governor.tdp_w * IDLE;
            clock.warm(rested_ns, clock.power_w);
        }
        Governed {
            clock_mhz: self.mhz as u32,
            power_w: clock.power_w,
            temperature_c: clock.celsius,
            is_power_capped: is_below && !self.by_heat,
            is_hot: is_below && self.by_heat,
        }
    }

    /// Time of the next step. A device that was idle since the last step and has its highest clock
    /// needs none: the next step accounts for the cooling meanwhile.
    pub(crate) fn next_ns(&self, now_ns: u64, is_busy: bool) -> Option<u64> {
        (is_busy || self.is_used || self.relative() < 1.0).then(|| (now_ns / TICK_NS + 1) * TICK_NS)
    }

    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns.is_multiple_of(TICK_NS) && now_ns > self.at_ns
    }

    pub(crate) fn step(&mut self, now_ns: u64, used_ns: [u64; 2]) {
        let before_ns = std::mem::replace(&mut self.used_ns, used_ns);
        self.is_used = used_ns != before_ns;
        let passed_ns = now_ns - std::mem::replace(&mut self.at_ns, now_ns);
        // During the skipped steps the device was idle.
        self.warm(passed_ns - TICK_NS, self.governor.tdp_w * IDLE);
        let share = |of: usize| (used_ns[of] - before_ns[of]) as f64 / TICK_NS as f64;
        let relative = self.relative();
        let (compute, memory) = ((share(0) / relative).min(1.0), share(1).min(1.0));
        let used = POWER_SHARES[0] * compute + POWER_SHARES[1] * memory;
        let Governor { tdp_w, kappa, .. } = self.governor;
        let idle_w = tdp_w * IDLE;
        self.power_w = idle_w + (kappa * tdp_w - idle_w) * used * relative.powi(3);
        self.warm(TICK_NS, self.power_w);
        let is_hot = self.celsius >= HOT_C;
        let is_over = self.power_w > self.governor.limit_w || is_hot;
        if is_over {
            self.by_heat = is_hot;
        }
        let step_mhz = if is_over { -STEP_MHZ } else { STEP_MHZ };
        let Governor {
            clock_min_mhz,
            clock_max_mhz,
            ..
        } = self.governor;
        let bounds = (f64::from(clock_min_mhz), f64::from(clock_max_mhz));
        self.mhz = (self.mhz + step_mhz).clamp(bounds.0, bounds.1);
    }

    fn warm(&mut self, passed_ns: u64, power_w: f64) {
        let steady_c = AMBIENT_C + RISE_C * power_w / self.governor.tdp_w;
        let kept = (-(passed_ns as f64) / TAU_NS).exp();
        self.celsius = steady_c + (self.celsius - steady_c) * kept;
    }
}

/// The rate of work, 32 fractional bits, at a clock of `relative` times the highest, for running
/// work with the demand `asked`.
pub(crate) fn rate_at(rate_q32: u64, asked: Demand, relative: f64) -> u64 {
    let (compute, memory) = (asked.compute_q32 as f64, asked.bandwidth_q32 as f64);
    if relative >= 1.0 || compute <= 0.0 {
        return rate_q32;
    }
    let share = compute / (compute + memory);
    let slowdown = 1.0 + (1.0 / relative - 1.0) * share;
    ((rate_q32 as f64 / slowdown) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t4() -> Clock {
        Clock::new(Governor::of(&Device::by_name("T4").unwrap()))
    }

    /// Steps for that many ticks with these fractions of the device in use.
    fn run(clock: &mut Clock, ticks: u64, compute: f64, memory: f64) {
        for _ in 0..ticks {
            let computed = compute * clock.relative() * TICK_NS as f64;
            let moved = memory * TICK_NS as f64;
            let [before, moved_before] = clock.used_ns;
            let used_ns = [before + computed as u64, moved_before + moved as u64];
            clock.step(clock.at_ns + TICK_NS, used_ns);
        }
    }

    #[test]
    fn a_full_t4_is_held_at_its_limit_and_a_half_full_one_is_not() {
        let mut clock = t4();
        run(&mut clock, 1_000, 0.5, 0.3);
        assert_eq!(clock.view(clock.at_ns).clock_mhz, 1590);
        assert!(!clock.view(clock.at_ns).is_power_capped);
        run(&mut clock, 12_000, 1.0, 0.8);
        let view = clock.view(clock.at_ns);
        // (112 - 10.5) W x 0.92 x r³ + 10.5 W = 70 W.
        let steady = (59.5_f64 / (101.5 * 0.92)).cbrt() * 1590.0;
        assert!(
            (f64::from(view.clock_mhz) - steady).abs() <= 16.0,
            "{view:?}"
        );
        assert!((view.power_w - 70.0).abs() < 2.0, "{view:?}");
        assert!((view.temperature_c - 75.0).abs() < 1.0, "{view:?}");
        assert!(view.is_power_capped && !view.is_hot, "{view:?}");
    }

    #[test]
    fn a_device_at_rest_has_its_clock_and_cools_whether_it_is_looked_at_or_not() {
        let (mut seen, mut unseen) = (t4(), t4());
        for clock in [&mut seen, &mut unseen] {
            run(clock, 6_000, 1.0, 1.0);
        }
        run(&mut seen, 3_000, 0.0, 0.0);
        assert_eq!(seen.relative(), 1.0);
        assert!(seen.next_ns(seen.at_ns, false).is_none());
        run(&mut unseen, 200, 0.0, 0.0);
        let [compute, memory] = unseen.used_ns;
        unseen.step(unseen.at_ns + 2_800 * TICK_NS, [compute, memory]);
        assert_eq!(unseen.relative(), 1.0);
        let apart = (seen.celsius - unseen.celsius).abs();
        assert!(apart < 1e-6, "{} {}", seen.celsius, unseen.celsius);
        assert!((seen.celsius - 52.0).abs() < 4.0, "{}", seen.celsius);
        // A view between two steps includes the idle time since the first.
        let now_ns = seen.at_ns + 3_000 * TICK_NS;
        let view = seen.view(now_ns);
        assert!(view.temperature_c < seen.celsius - 5.0, "{view:?}");
        assert_eq!(view.power_w, 10.5);
    }

    #[test]
    fn a_hot_device_slows_down_below_its_power_limit() {
        let mut clock = t4();
        clock.celsius = 90.0;
        run(&mut clock, 10, 0.1, 0.1);
        assert_eq!(clock.view(clock.at_ns).clock_mhz, 1590 - 150);
        assert!(clock.view(clock.at_ns).is_hot && !clock.view(clock.at_ns).is_power_capped);
        // The cause is temperature, also while it recovers.
        clock.celsius = 60.0;
        run(&mut clock, 1, 0.1, 0.1);
        assert!(clock.view(clock.at_ns).is_hot);
        // Power exceeds this limit at every clock.
        clock.governor.limit_w = 10.6;
        run(&mut clock, 1_000, 1.0, 1.0);
        assert_eq!(clock.mhz, 318.0);
        assert!(clock.view(clock.at_ns).is_power_capped);
    }

    #[test]
    fn a_lower_clock_slows_down_what_computes() {
        let one = 1 << 32;
        assert_eq!(rate_at(one, Demand::new(0.0, 1.0), 0.5), one);
        assert_eq!(rate_at(one, Demand::default(), 0.5), one);
        assert_eq!(rate_at(one, Demand::new(1.0, 1.0), 1.0), one);
        assert_eq!(rate_at(one, Demand::new(0.4, 0.0), 0.5), one / 2);
        let half = rate_at(one, Demand::new(0.5, 0.5), 0.5);
        assert!((half as f64 / one as f64 - 1.0 / 1.5).abs() < 1e-9);
    }
}
