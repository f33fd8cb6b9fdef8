//! The one list of policies, read by everything that takes or shows a policy's name: configuration,
//! `config check`, status, simulator, `pillion`'s options, fault simulation, tests. A policy is a
//! file with an [`Entry`], and its line in [`POLICIES`]; see docs/add-a-policy.md.

use std::iter;

use crate::{Policy, Rules};

/// The policies, in display order.
pub const POLICIES: &[&Entry] = &[
    &crate::none::ENTRY,
    &crate::pillion::ENTRY,
    &crate::orion::ENTRY,
    &crate::temporal::ENTRY,
    &crate::launch_gate::ENTRY,
];

/// Policies accepted by name but not listed: the worked policy of docs/add-a-policy.md, whose text
/// is thus compiled and runs wherever a policy runs.
pub const EXAMPLES: &[&Entry] = &[&crate::idle_only::ENTRY];

/// Every policy that is accepted.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    POLICIES.iter().chain(EXAMPLES).copied()
}

/// The policy of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.name == name)
}

/// A policy's description.
#[derive(Debug)]
pub struct Entry {
    /// The name in configuration, options and tables.
    pub name: &'static str,
    /// What best-effort jobs may do, in a line.
    pub about: &'static str,
    /// Its numbers, and its constructor.
    pub settings: Settings,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The numbers of a policy.
#[derive(Clone, Copy, Debug)]
pub enum Settings {
    /// Plain numbers, each a key of `[policy]`: daemon and simulator read them by this list.
    Numbers {
        /// At most [`NUMBERS_MAX`].
        params: &'static [Param],
        /// The policy at work, in its initial state.
        rules: fn(&Numbers) -> Box<dyn Rules>,
    },
    /// A variant of [`Policy`], whose keys are read one by one; returns the defaults.
    Own(fn() -> Policy),
}

impl Entry {
    /// The policy with default numbers.
    #[must_use]
    pub fn policy(&'static self) -> Policy {
        match self.settings {
            Settings::Own(policy) => policy(),
            Settings::Numbers { .. } => Policy::Listed(Numbers::of(self)),
        }
    }

    /// Its plain numbers; empty for a policy with its own settings.
    #[must_use]
    pub const fn params(&self) -> &'static [Param] {
        match self.settings {
            Settings::Own(_) => &[],
            Settings::Numbers { params, .. } => params,
        }
    }
}

/// A number that a policy takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Param {
    /// Its key, as in a daemon's configuration where that has it.
    pub key: &'static str,
    /// Its meaning, in a line.
    pub about: &'static str,
    /// Least value.
    pub least: f64,
    /// Greatest value.
    pub most: f64,
    /// The value where none is given.
    pub default: f64,
    /// Only whole numbers.
    pub is_whole: bool,
    /// 1 is on and 0 off; files may also have `true` and `false`, as a daemon's.
    pub is_switch: bool,
}

impl Param {
    /// A number from `least` to `most`.
    #[must_use]
    pub const fn new(
        key: &'static str,
        about: &'static str,
        (least, most): (f64, f64),
        default: f64,
    ) -> Self {
        Self {
            key,
            about,
            least,
            most,
            default,
            is_whole: false,
            is_switch: false,
        }
    }

    /// Whether it accepts this value.
    #[must_use]
    pub fn takes(&self, value: f64) -> bool {
        (self.least..=self.most).contains(&value) && (!self.is_whole || value.fract() == 0.0)
    }

    /// The accepted values, in words.
    #[must_use]
    pub fn wanted(&self) -> String {
        let (least, most) = (self.least, self.most);
        match self {
            Self {
                is_switch: true, ..
            } => "true or false, or 1 or 0".to_owned(),
            Self { is_whole: true, .. } => format!("a whole number from {least} to {most}"),
            _ => format!("a number from {least} to {most}"),
        }
    }

    /// The nearest accepted value.
    #[must_use]
    pub fn nearest(&self, value: f64) -> f64 {
        let near = value.clamp(self.least, self.most);
        match near {
            near if near.is_nan() => self.default,
            near if self.is_whole => near.round(),
            near => near,
        }
    }
}

/// Most plain numbers of a policy.
pub const NUMBERS_MAX: usize = 16;

/// A policy of the registry and its plain numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    entry: &'static Entry,
    values: [f64; NUMBERS_MAX],
}

impl Numbers {
    fn of(entry: &'static Entry) -> Self {
        let mut values = [0.0; NUMBERS_MAX];
        for (value, param) in iter::zip(&mut values, entry.params()) {
            *value = param.default;
        }
        Self { entry, values }
    }

    /// The policy's entry.
    #[must_use]
    pub const fn entry(&self) -> &'static Entry {
        self.entry
    }

    pub(crate) fn rules(&self) -> Box<dyn Rules> {
        match self.entry.settings {
            Settings::Numbers { rules, .. } => rules(self),
            Settings::Own(policy) => policy().rules(),
        }
    }

    /// The value of the number `key`, if the policy has one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<f64> {
        self.place(key).map(|place| self.values[place])
    }

    /// The number `key`, which is in us, in ns.
    /// # Panics
    /// When the policy has no such number: a bug of its constructor.
    #[must_use]
    pub fn us_in_ns(&self, key: &str) -> u64 {
        let us = self.get(key).expect("a policy reads its own numbers");
        (us * 1e3) as u64
    }

    /// Sets the number `key`; its [`Param`] must accept `value`. False if there is no such number.
    pub fn set(&mut self, key: &str, value: f64) -> bool {
        let place = self.place(key);
        if let Some(place) = place {
            self.values[place] = value;
        }
        place.is_some()
    }

    fn place(&self, key: &str) -> Option<usize> {
        let mut params = self.entry.params().iter().take(NUMBERS_MAX);
        params.position(|param| param.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SIMULATOR_ONLY;

    #[test]
    fn each_policy_is_found_by_its_name_alone_and_starts() {
        for entry in all() {
            let same = all().filter(|other| other.name == entry.name).count();
            let simulated = SIMULATOR_ONLY.iter().any(|(name, _)| *name == entry.name);
            assert!(same == 1 && !simulated, "{}", entry.name);
            assert_eq!(find(entry.name), Some(entry));
            assert_eq!(entry.policy().name(), entry.name);
            let _ = entry.policy().rules();
        }
    }

    #[test]
    fn every_plain_number_has_a_default_that_it_takes_and_reads_back() {
        for entry in all() {
            assert!(entry.params().len() <= NUMBERS_MAX, "{}", entry.name);
            for param in entry.params() {
                let mut numbers = Numbers::of(entry);
                assert!(param.takes(param.default), "{} {}", entry.name, param.key);
                assert_eq!(numbers.get(param.key), Some(param.default));
                assert!(numbers.set(param.key, param.most));
                assert_eq!(numbers.get(param.key), Some(param.most));
                assert!(!numbers.set("speed", 1.0));
            }
        }
    }

    #[test]
    fn a_number_takes_what_is_within_its_limits() {
        let whole = Param {
            is_whole: true,
            ..Param::new("queue", "", (1.0, 8.0), 2.0)
        };
        assert!(whole.takes(8.0) && !whole.takes(0.0) && !whole.takes(1.5));
        assert!(!whole.takes(f64::NAN) && whole.nearest(f64::NAN) == 2.0);
        assert_eq!((whole.nearest(9.0), whole.nearest(1.6)), (8.0, 2.0));
    }
}
