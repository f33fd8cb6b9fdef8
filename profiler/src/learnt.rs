//! The durations that a program's runs have taught, as one profile. A process notes its kernels'
//! durations ([`Profile`]; a kernel's `count` includes launches of earlier runs). When a run ends,
//! its note is joined with the kept profile ([`joined`]) and has precedence for kernels in both,
//! because a run starts from the kept profile and learns on: a changed duration (another driver,
//! another clock) is right again after one run, and a kernel not launched in it is not forgotten.
//! The kept profile has bounded kernels ([`KERNELS_MAX`]) and bytes; those with most time stay.

use std::collections::{HashMap, HashSet};

use crate::limits::{DURATION_NS_MAX, NUMBER_MAX};
use crate::profile::{Durations, KernelProfile, Operator, Profile};
use crate::text;

/// Most kernels and shapes kept of a program: a network has hundreds, texts of all lengths more.
pub const KERNELS_MAX: usize = 4_096;

type Key<'a> = (&'a str, [u32; 3], [u32; 3], u32, Option<&'a Operator>);

fn key(kernel: &KernelProfile) -> Key<'_> {
    let name = kernel.mangled.as_deref().unwrap_or(&kernel.name);
    let operator = kernel.operator.as_ref();
    (
        name,
        kernel.grid,
        kernel.block,
        kernel.shared_bytes,
        operator,
    )
}

/// The profile to keep after a run that noted `now`, where `before` was kept. `now` alone if the
/// two differ in GPU or number of SMs. The order is that of `before`, then of `now`.
#[must_use]
pub fn joined(before: Profile, mut now: Profile) -> Profile {
    let is_same = before.gpu == now.gpu && sms(&before) == sms(&now);
    if is_same {
        let mut news: HashMap<Key<'_>, &KernelProfile> =
            now.kernels.iter().map(|new| (key(new), new)).collect();
        let mut kernels: Vec<KernelProfile> = Vec::with_capacity(now.kernels.len());
        for old in &before.kernels {
            kernels.push(match news.remove(&key(old)) {
                Some(new) => newer(old, new),
                None => old.clone(),
            });
        }
        let added = now
            .kernels
            .iter()
            .filter(|new| news.contains_key(&key(new)));
        kernels.extend(added.cloned());
        now.kernels = kernels;
    }
    keep_first(&mut now.kernels);
    keep_longest(&mut now.kernels, KERNELS_MAX);
    now
}

/// Keeps one kernel of each key: notes are untrusted, and profiles with duplicates are refused.
fn keep_first(kernels: &mut Vec<KernelProfile>) {
    let mut seen = HashSet::new();
    let is_first: Vec<bool> = kernels.iter().map(|k| seen.insert(key(k))).collect();
    let mut is_first = is_first.into_iter();
    kernels.retain(|_| is_first.next().unwrap_or(false));
}

/// Drops the kernels with the least total time, down to [`KERNELS_MAX`] and a text of `bytes_max`.
pub fn bound(profile: &mut Profile, bytes_max: usize) {
    keep_longest(&mut profile.kernels, KERNELS_MAX);
    // At least an eighth goes each time, so this ends.
    while !profile.kernels.is_empty() && profile.write().len() > bytes_max {
        let count = profile.kernels.len();
        keep_longest(&mut profile.kernels, count - count.div_ceil(8));
    }
}

fn keep_longest(kernels: &mut Vec<KernelProfile>, count: usize) {
    if kernels.len() <= count {
        return;
    }
    let mut sums: Vec<u64> = kernels.iter().map(|k| k.durations.sum_ns).collect();
    sums.sort_unstable_by(|a, b| b.cmp(a));
    // The least sum that stays; of those equal to it the first ones.
    let least_ns = sums.get(count.wrapping_sub(1)).copied().unwrap_or(u64::MAX);
    let longer = sums.iter().filter(|&&sum_ns| sum_ns > least_ns).count();
    let mut equal = count.saturating_sub(longer);
    kernels.retain(|kernel| {
        let sum_ns = kernel.durations.sum_ns;
        let is_last = sum_ns == least_ns && equal > 0;
        equal -= usize::from(is_last);
        count > 0 && (sum_ns > least_ns || is_last)
    });
}

fn newer(old: &KernelProfile, new: &KernelProfile) -> KernelProfile {
    let count = old.count.max(new.count);
    KernelProfile {
        // Two processes may have run at once, without each other's launches.
        count,
        durations: durations(new.durations.median_ns, new.durations.p95_ns, count),
        ..new.clone()
    }
}

/// Durations from two quantiles, at least 1 ns, and a count; the sum is taken as count × median.
#[must_use]
pub fn durations(median_ns: u64, p95_ns: u64, count: u64) -> Durations {
    let median_ns = median_ns.clamp(1, DURATION_NS_MAX);
    let p95_ns = p95_ns.clamp(median_ns, DURATION_NS_MAX);
    Durations {
        sum_ns: median_ns.saturating_mul(count).clamp(p95_ns, NUMBER_MAX),
        median_ns,
        p95_ns,
    }
}

/// Whether a profile can have a kernel or a program of that name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    text::is_name(name)
}

fn sms(profile: &Profile) -> Option<u32> {
    profile.measured.as_ref()?.sms
}

/// `given` plus the kernels of `kept` whose names it lacks entirely.
#[must_use]
pub fn completed(mut given: Profile, kept: Profile) -> Profile {
    let names: HashSet<String> = given
        .kernels
        .iter()
        .map(|kernel| key(kernel).0.to_owned())
        .collect();
    let missing = kept.kernels.into_iter();
    given
        .kernels
        .extend(missing.filter(|kernel| !names.contains(key(kernel).0)));
    given
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::ResourceClass;
    use crate::profile::{ClassRule, Evidence, Measured};

    fn kernel(name: &str, count: u64, median_ns: u64) -> KernelProfile {
        KernelProfile {
            name: name.to_owned(),
            mangled: None,
            grid: [8, 1, 1],
            block: [128, 1, 1],
            shared_bytes: 0,
            count,
            durations: durations(median_ns, median_ns * 2, count),
            registers: 0,
            sm_needed: 8,
            class: ResourceClass::Unknown,
            class_rule: ClassRule::Unknown,
            evidence: Evidence::default(),
            operator: None,
        }
    }

    fn profile(kernels: &[KernelProfile]) -> Profile {
        Profile {
            gpu: "V100".to_owned(),
            measured: Some(Measured {
                sms: Some(80),
                ..Measured::default()
            }),
            kernels: kernels.to_vec(),
            ..Profile::default()
        }
    }

    fn said(profile: &Profile) -> Vec<(&str, u64, u64, u64)> {
        let said = |k: &'_ KernelProfile| (k.count, k.durations.median_ns, k.durations.sum_ns);
        let kernels = profile.kernels.iter();
        kernels
            .map(|k| {
                let (count, median, sum) = said(k);
                (k.name.as_str(), count, median, sum)
            })
            .collect()
    }

    #[test]
    fn a_run_says_anew_what_it_launched_and_the_rest_is_kept() {
        let before = profile(&[kernel("a", 10, 100), kernel("b", 5, 7)]);
        let now = profile(&[kernel("c", 1, 3), kernel("a", 12, 200)]);
        let joined = joined(before, now);
        assert_eq!(
            said(&joined),
            [("a", 12, 200, 2400), ("b", 5, 7, 35), ("c", 1, 3, 6)]
        );
    }

    #[test]
    fn of_two_processes_at_once_the_later_does_not_take_back_launches() {
        let before = profile(&[kernel("a", 100, 50)]);
        let now = profile(&[kernel("a", 60, 40)]);
        assert_eq!(said(&joined(before, now)), [("a", 100, 40, 4000)]);
    }

    #[test]
    fn what_another_gpu_taught_is_given_up() {
        let mut before = profile(&[kernel("a", 10, 100)]);
        before.gpu = "A100".to_owned();
        let now = profile(&[kernel("b", 1, 3)]);
        assert_eq!(joined(before, now.clone()), now);
        let mut fewer = profile(&[kernel("a", 10, 100)]);
        fewer.measured = None;
        assert_eq!(joined(fewer, now.clone()), now);
    }

    #[test]
    fn of_too_much_those_stay_that_took_most_time() {
        let count = KERNELS_MAX as u64 + 10;
        let kernels: Vec<_> = (1..=count).map(|n| kernel(&n.to_string(), 2, n)).collect();
        let mut many = profile(&kernels);
        bound(&mut many, usize::MAX);
        assert_eq!(many.kernels.len(), KERNELS_MAX);
        assert_eq!(many.kernels[0].name, "11");
        let bytes = many.write().len();
        bound(&mut many, bytes / 3);
        assert!(many.write().len() <= bytes / 3 && many.kernels.len() > KERNELS_MAX / 5);
        bound(&mut many, 0);
        assert!(many.kernels.is_empty());
        let equal: Vec<_> = (0..count).map(|n| kernel(&n.to_string(), 2, 7)).collect();
        let mut equal = profile(&equal);
        bound(&mut equal, usize::MAX);
        assert_eq!(
            (equal.kernels.len(), &*equal.kernels[0].name),
            (KERNELS_MAX, "0")
        );
    }

    /// A parser takes these for different ones, because their display names differ.
    #[test]
    fn of_two_kernels_that_the_driver_knows_by_one_name_one_is_kept() {
        let mut shown = kernel("shown", 3, 50);
        shown.mangled = Some("a".to_owned());
        let now = profile(&[kernel("a", 2, 40), shown]);
        let before = profile(&[kernel("a", 10, 100), now.kernels[1].clone()]);
        let joined = joined(before, now);
        assert_eq!(joined.kernels.len(), 1, "{joined:?}");
        assert!(Profile::parse(&joined.write(), Path::new("kept")).is_ok());
    }

    #[test]
    fn what_is_kept_completes_a_profile_and_contradicts_nothing_in_it() {
        let given = profile(&[kernel("a", 10, 100)]);
        let mut kept = profile(&[kernel("a", 3, 50), kernel("b", 5, 7)]);
        kept.kernels[0].grid = [9, 9, 9];
        let both = completed(given.clone(), kept);
        assert_eq!(said(&both), [("a", 10, 100, 1000), ("b", 5, 7, 35)]);
    }

    proptest! {
        #[test]
        fn what_is_joined_is_a_profile(
            all in proptest::collection::vec((0..6u8, any::<bool>(), 1..u64::MAX, any::<u64>()), 0..12),
        ) {
            let of = |is_now: bool| {
                let mut seen = HashSet::new();
                let mine = all.iter().filter(|k| k.1 == is_now && seen.insert(k.0));
                let kernels: Vec<_> = mine
                    .map(|&(name, _, count, ns)| {
                        let mut kernel = kernel(&name.to_string(), count.min(NUMBER_MAX), 1);
                        kernel.durations = durations(ns, ns / 2, kernel.count);
                        kernel
                    })
                    .collect();
                profile(&kernels)
            };
            let joined = joined(of(false), of(true));
            let read = Profile::parse(&joined.write(), Path::new("kept"));
            prop_assert_eq!(read.unwrap(), joined);
        }
    }
}
