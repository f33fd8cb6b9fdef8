//! Clients' counters, added up for their job.

use protocol::hello::JobClass;
use protocol::pages::Counter;

use super::Faults;

/// Running totals, and current values of counters that are no totals ([`Counter::is_total`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) counters: [u64; Counter::ALL.len()],
    pub(crate) charged_ns: u64,
    pub(crate) faults: Faults,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            counters: [0; Counter::ALL.len()],
            charged_ns: 0,
            faults: Faults::default(),
        }
    }
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, add) in self.counters.iter_mut().zip(other.counters) {
            *sum = sum.saturating_add(add);
        }
        self.charged_ns = self.charged_ns.saturating_add(other.charged_ns);
        self.faults.bad_records += other.faults.bad_records;
        self.faults.bad_rings += other.faults.bad_rings;
    }

    /// The increase since `before`, which a lying page may have lowered.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        for (now, before) in self.counters.iter_mut().zip(before.counters) {
            *now = now.saturating_sub(before);
        }
        self.charged_ns = self.charged_ns.saturating_sub(before.charged_ns);
        self
    }

    /// GPU time ([`super::users`]), ns; of best-effort clients [`Counter::GpuTime`] is a sample.
    pub(crate) fn gpu_time_ns(&self, class: JobClass) -> u64 {
        match class {
            JobClass::HighPriority => self.of(Counter::GpuTime),
            JobClass::BestEffort => self.charged_ns,
        }
    }

    pub(crate) fn of(&self, counter: Counter) -> u64 {
        let counts = Counter::ALL.iter().zip(self.counters);
        let mut its = counts.filter(|(known, _)| **known == counter);
        its.next().map_or(0, |(_, count)| count)
    }

    pub(crate) fn set(&mut self, counter: Counter, to: u64) {
        for (known, count) in Counter::ALL.iter().zip(&mut self.counters) {
            if *known == counter {
                *count = to;
            }
        }
    }

    pub(crate) fn of_ended(mut self) -> Self {
        for (counter, count) in Counter::ALL.iter().zip(&mut self.counters) {
            if !counter.is_total() {
                *count = 0;
            }
        }
        self
    }
}
