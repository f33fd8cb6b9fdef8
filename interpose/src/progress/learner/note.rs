//! Notes what was learnt, as a profile, for the program's next start. It contains each kernel whose
//! duration some batch has shown, even if it equals the assumption, but no kernel that was only
//! seen beside high-priority work: nothing is known of those. Knowledge of earlier runs
//! accumulates: a kernel's launches are those of all runs, without those of the job's own profile,
//! and its durations stay unless contradicted ([`quantiles`]).

use std::collections::HashMap;

use policy::durations::{Durations, Taught};
use profiler::learnt::{self, KERNELS_MAX};
use profiler::profile::{self as kept, Evidence, Measured};
use profiler::{ClassRule, KernelProfile, Match, Profile, ProfileIndex, ResourceClass, names};
use protocol::notebook::TEXT_BYTES_MAX;

use super::index_of;
use crate::kernels::{KERNELS, Profiled};
use crate::process::Client;

/// A client's note, at most [`TEXT_BYTES_MAX`] long; `None` if there is nothing to note.
pub(super) fn text(client: &Client, durations: &Durations, unknown_ns: u64) -> Option<String> {
    let mut kernels: Vec<KernelProfile> = Vec::new();
    let mut places = HashMap::new();
    for launched in KERNELS.profiled(client) {
        let taught = durations.taught(index_of(launched.place));
        let Some(taught) = taught.filter(|taught| taught.is_seen) else {
            continue;
        };
        if !learnt::is_name(launched.name) {
            continue;
        }
        let kernel = entry(client, &launched, taught, unknown_ns);
        // Of kernels that a profile does not distinguish (a run-time compiler's), keep the longest.
        let key = (launched.name, launched.shape, launched.operator);
        match places
            .get(&key)
            .and_then(|&place: &usize| kernels.get_mut(place))
        {
            Some(other) if other.durations.p95_ns < kernel.durations.p95_ns => *other = kernel,
            Some(_) => {}
            None => {
                places.insert(key, kernels.len());
                kernels.push(kernel);
            }
        }
    }
    let gpu = &client.gpu;
    let mut profile = Profile {
        gpu: gpu.name.clone(),
        measured: Some(Measured {
            sms: gpu.sms,
            compute_capability: gpu.compute_capability,
            clock_mhz: gpu.clock_mhz,
            bandwidth_gb_s: gpu.bandwidth_gb_s,
        }),
        kernels,
        ..Profile::default()
    };
    learnt::bound(&mut profile, TEXT_BYTES_MAX);
    debug_assert!(profile.kernels.len() <= KERNELS_MAX);
    (!profile.kernels.is_empty()).then(|| profile.write())
}

/// Median and 95th percentile of a kernel, ns, expected to take `told_ns`. `before` is the
/// profile's exact entry, if that was the expectation. A run begins with the percentile as its
/// expectation. If its result lies between median and percentile, it confirms the old values, and
/// is not a longer median: kernels must not grow with each run.
fn quantiles(taught: Taught, told_ns: u64, before: Option<kept::Durations>) -> (u64, u64) {
    let median_ns = if taught.ns == 0 { told_ns } else { taught.ns };
    let share = |ns: u64, of: u64, whole: u64| {
        let ns = u128::from(ns) * u128::from(of) / u128::from(whole.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    };
    let is_as_before =
        |before: &kept::Durations| (before.median_ns..=before.p95_ns).contains(&median_ns);
    match (taught.latest_per_mille, before) {
        (_, Some(before)) if taught.ns == 0 => (before.median_ns, before.p95_ns),
        (Some(per_mille), Some(before))
            if is_as_before(&before)
                && share(median_ns, per_mille.into(), 1_000) <= before.p95_ns =>
        {
            (before.median_ns, before.p95_ns)
        }
        (Some(per_mille), _) => (median_ns, share(median_ns, per_mille.into(), 1_000)),
        (None, Some(before)) if is_as_before(&before) => (before.median_ns, before.p95_ns),
        (None, Some(before)) if median_ns < before.median_ns => {
            (median_ns, share(median_ns, before.p95_ns, before.median_ns))
        }
        (None, _) => (median_ns, median_ns),
    }
}

fn entry(
    client: &Client,
    launched: &Profiled<'_>,
    taught: Taught,
    unknown_ns: u64,
) -> KernelProfile {
    let Profiled { name, shape, .. } = launched;
    let (grid, block) = (shape.grid, shape.block);
    let exact = |known: &'static ProfileIndex| {
        let operator = launched.operator.as_ref();
        let found = known.find_launch(operator, name, grid, block, shape.shared_bytes);
        found.kernel.filter(|_| found.quality == Match::Exact)
    };
    let before = client.profile().and_then(exact);
    // The job's own profile counts launches that no run of the program has made.
    let kept = client.notes.kept().and_then(exact);
    let count = kept.map_or(0, |kernel| kernel.count);
    let count = taught.launches.saturating_add(count);
    let (told_ns, before) = match launched.learnt.unknown {
        0 => (
            launched.learnt.told_ns,
            before.map(|kernel| kernel.durations),
        ),
        _ => (unknown_ns, None),
    };
    let (median_ns, p95_ns) = quantiles(taught, told_ns, before);
    let shown = names::demangled(name).filter(|shown| learnt::is_name(shown));
    KernelProfile {
        mangled: shown.as_ref().map(|_| (*name).to_owned()),
        name: shown.unwrap_or_else(|| (*name).to_owned()),
        grid,
        block,
        shared_bytes: shape.shared_bytes,
        count,
        durations: learnt::durations(median_ns, p95_ns, count),
        registers: launched.registers,
        sm_needed: launched.sm_needed,
        class: ResourceClass::Unknown,
        class_rule: ClassRule::Unknown,
        evidence: Evidence {
            static_shared_bytes: Some(launched.static_shared_bytes),
            ..Evidence::default()
        },
        operator: launched.operator.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: kept::Durations = kept::Durations {
        sum_ns: 10_000_000,
        median_ns: 100_000,
        p95_ns: 140_000,
    };

    const fn taught(ns: u64, latest_per_mille: Option<u32>) -> Taught {
        Taught {
            ns,
            latest_per_mille,
            is_seen: true,
            launches: 7,
        }
    }

    #[test]
    fn what_nothing_contradicts_stays_as_it_was_kept() {
        for as_before in [
            (0, None),
            (0, Some(1_000)),
            (100_000, None),
            (140_000, None),
            (139_000, Some(1_000)),
        ] {
            let (ns, latest) = as_before;
            let kept = quantiles(taught(ns, latest), BEFORE.p95_ns, Some(BEFORE));
            assert_eq!(kept, (100_000, 140_000), "{as_before:?}");
        }
        // An unknown kernel, and the assumption was right.
        assert_eq!(quantiles(taught(0, None), 100, None), (100, 100));
    }

    #[test]
    fn what_is_contradicted_is_as_this_run_says() {
        let said = |ns, latest| quantiles(taught(ns, latest), BEFORE.p95_ns, Some(BEFORE));
        assert_eq!(said(120_000, Some(1_500)), (120_000, 180_000));
        assert_eq!(said(50_000, None), (50_000, 70_000));
        assert_eq!(said(900_000, None), (900_000, 900_000));
    }

    #[test]
    fn no_kernel_grows_from_run_to_run() {
        let mut kept = BEFORE;
        for _ in 0..100 {
            // A hundredth of the way from the expectation towards the median.
            let ns = kept.p95_ns - kept.p95_ns.saturating_sub(100_000) / 100;
            let (median_ns, p95_ns) = quantiles(taught(ns, None), kept.p95_ns, Some(kept));
            (kept.median_ns, kept.p95_ns) = (median_ns, p95_ns);
        }
        assert_eq!(kept, BEFORE);
    }
}
