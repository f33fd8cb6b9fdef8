//! How much best-effort work a law allows at a moment, and how several laws compose. Every law of
//! [`crate::pillion`] yields a [`Ceiling`]. The lease follows from their [`Ceiling::meet`], the
//! least of each component: the order of laws does not matter, and a further law never grants more.
//! A law whose ceiling was not in force does not rise ([`Binding`]; tracking anti-windup), because
//! admitted work is no evidence for work that another law held. It may always fall.

/// The best-effort work that one law, or the meet of several, allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    /// Expected ns of it in flight while HP is idle.
    pub idle_ns: u64,
    /// The same while HP is busy; at most `idle_ns`.
    pub beside_ns: u64,
    /// A kernel must fit into the bound while HP is idle, too.
    pub whole: bool,
    /// Work beside HP must suit the HP kernels.
    pub pairs: bool,
    /// `idle_ns` is the floor: the gain alone would give less.
    pub floor: bool,
    /// Whether any work may go now.
    pub duty: Duty,
}

/// Whether best-effort work may go at this moment; the greater value allows less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Work may go.
    #[default]
    On,
    /// Not in this part of the period.
    Off,
    /// Paused until that law ends the pause. Neither `max_hold` nor a promised share lifts it.
    Paused,
}

impl Ceiling {
    /// The ceiling that satisfies both.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        Self {
            idle_ns: self.idle_ns.min(other.idle_ns),
            beside_ns: self.beside_ns.min(other.beside_ns),
            whole: self.whole || other.whole,
            pairs: self.pairs || other.pairs,
            floor: self.floor && other.floor,
            duty: self.duty.max(other.duty),
        }
    }

    /// Whether this ceiling limits best-effort work where `all`, a meet with it, is in force.
    #[must_use]
    pub fn binds(&self, all: &Self, hp_busy: bool) -> bool {
        match hp_busy {
            true => self.beside_ns <= all.beside_ns,
            false => self.idle_ns <= all.idle_ns,
        }
    }
}

/// How much of the time a law's ceiling was in force, while best-effort work wanted to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    share: f64,
}

impl Default for Binding {
    /// Before any measurement the law counts as in force.
    fn default() -> Self {
        Self { share: 1.0 }
    }
}

impl Binding {
    /// Best-effort work wanted to go for `ns`; `binds` is whether the law's ceiling was in force.
    pub(crate) fn handle_time(&mut self, ns: u64, binds: bool) {
        let weight = ns.min(OVER_NS) as f64 / OVER_NS as f64;
        self.share += weight * (f64::from(u8::from(binds)) - self.share);
    }

    /// Whether requests may raise the law: its ceiling was in force for most of the time.
    pub(crate) fn may_rise(self) -> bool {
        self.share >= 0.5
    }
}

/// About one second of history: requests of one law's job come in bursts between another's.
const OVER_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ceilings() -> impl Strategy<Value = Ceiling> {
        let duty = prop::sample::select(vec![Duty::On, Duty::Off, Duty::Paused]);
        let bits = any::<(bool, bool, bool)>();
        (0..4_u64, 0..4_u64, bits, duty).prop_map(|(idle_ns, beside_ns, bits, duty)| Ceiling {
            idle_ns,
            beside_ns: beside_ns.min(idle_ns),
            whole: bits.0,
            pairs: bits.1,
            floor: bits.2,
            duty,
        })
    }

    proptest! {
        #[test]
        fn neither_order_nor_grouping_matters_and_one_more_law_never_grants_more(
            (a, b, c) in (ceilings(), ceilings(), ceilings())
        ) {
            prop_assert_eq!(a.meet(a), a);
            prop_assert_eq!(a.meet(b), b.meet(a));
            prop_assert_eq!(a.meet(b).meet(c), a.meet(b.meet(c)));
            let all = a.meet(b);
            prop_assert!(all.idle_ns <= a.idle_ns && all.beside_ns <= a.beside_ns);
            prop_assert!(all.whole >= a.whole && all.pairs >= a.pairs && all.duty >= a.duty);
            for hp_busy in [false, true] {
                prop_assert!(a.binds(&all, hp_busy) || b.binds(&all, hp_busy));
            }
        }
    }

    #[test]
    fn a_law_may_rise_while_it_was_in_force_for_most_of_the_last_second() {
        let mut binding = Binding::default();
        assert!(binding.may_rise());
        let after = |binding: &mut Binding, looks: u32, binds| {
            (0..looks).for_each(|_| binding.handle_time(50_000, binds));
            binding.may_rise()
        };
        assert!(after(&mut binding, 10_000, false), "half a second");
        assert!(!after(&mut binding, 10_000, false));
        assert!(!after(&mut binding, 4_000, true), "a fifth");
        assert!(after(&mut binding, 2_000, true));
    }
}
