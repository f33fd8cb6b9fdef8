//! Layouts against the rules read naively, and against NVIDIA's published ones.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn model(device: &str) -> &'static MigModel {
    MigModel::of(device).expect("it can be divided")
}

fn layout(device: &str, instances: &[(&str, u32)]) -> Layout {
    let mut layout = Layout::empty(model(device));
    for &(name, start) in instances {
        let profile = layout.model.profile(name).unwrap();
        layout.place(profile, Start(start)).unwrap();
    }
    layout
}

fn best(layout: &Layout, name: &str) -> Option<u32> {
    let profile = layout.model.profile(name).unwrap();
    layout.best_start(profile).map(|start| start.0)
}

/// Names and starts of all layouts beside which none of `profiles` fits.
fn full(layout: &Layout, profiles: &[&'static Profile]) -> BTreeSet<Vec<(&'static str, u32)>> {
    let mut found = BTreeSet::new();
    for &profile in profiles {
        for start in layout.starts(profile) {
            let mut after = layout.clone();
            after.place(profile, start).unwrap();
            found.append(&mut full(&after, profiles));
        }
    }
    if found.is_empty() {
        let instances = layout.instances().iter();
        found.insert(instances.map(|i| (i.profile.name, i.start.0)).collect());
    }
    found
}

#[test]
fn an_a100_is_full_in_19_ways_and_in_78_with_the_profile_of_double_memory() {
    let model = model("A100-SXM4-40GB");
    let all: Vec<_> = model.profiles.iter().collect();
    let first: Vec<_> = all
        .iter()
        .copied()
        .filter(|profile| profile.name != "1g.10gb")
        .collect();
    let layouts = full(&Layout::empty(model), &first);
    // By halves of the memory: 7g, or one of six on the left (4g, 3g, and 2g or two 1g on each of
    // two pairs of slices) with one of three on the right (3g, 2g and 1g, three 1g).
    assert_eq!(layouts.len(), 1 + 6 * 3);
    let sizes = layouts.iter().map(|layout| {
        let mut names: Vec<_> = layout.iter().map(|&(name, _)| name).collect();
        names.sort_unstable();
        names
    });
    assert_eq!(sizes.collect::<BTreeSet<_>>().len(), 14);
    // With 1g.10gb each pair has three ways, and slice 6 two.
    assert_eq!(
        full(&Layout::empty(model), &all).len(),
        1 + (2 + 3 * 3) * (1 + 3 * 2)
    );
}

#[test]
fn an_a30_is_full_in_five_ways() {
    let model = model("A30");
    let all: Vec<_> = model.profiles.iter().collect();
    assert_eq!(full(&Layout::empty(model), &all).len(), 1 + 2 * 2);
}

#[test]
fn as_many_instances_of_a_profile_fit_as_nvidia_says() {
    for (device, counts) in [
        ("A100-SXM4-40GB", &[7, 4, 3, 2, 1, 1][..]),
        ("H200", &[7, 4, 3, 2, 1, 1]),
        ("A30", &[4, 2, 1]),
    ] {
        for (profile, &count) in model(device).profiles.iter().zip(counts) {
            let mut layout = Layout::empty(model(device));
            while let Some(start) = layout.best_start(profile) {
                layout.place(profile, start).unwrap();
            }
            assert_eq!(
                layout.instances().len(),
                count,
                "{} of {device}",
                profile.name
            );
        }
    }
}

#[test]
fn the_best_start_is_where_it_hinders_least() {
    let empty = layout("A100-SXM4-40GB", &[]);
    // Slice 6 is the only one that no 2g can use; the left half is the only place of a 4g.
    assert_eq!(best(&empty, "1g.5gb"), Some(6));
    assert_eq!(best(&empty, "2g.10gb"), Some(4));
    assert_eq!(best(&empty, "3g.20gb"), Some(4));
    let begun = layout("A100-SXM4-40GB", &[("1g.5gb", 1)]);
    assert_eq!(best(&begun, "4g.20gb"), None);
    assert_eq!(best(&layout("A30", &[]), "1g.6gb"), Some(0));
    assert_eq!(best(&layout("A30", &[("1g.6gb", 2)]), "1g.6gb"), Some(3));
}

#[test]
fn what_is_refused_is_said_with_what_would_be_possible() {
    let mut layout = layout("H100-PCIe", &[("3g.40gb", 0)]);
    let profile = layout.model.profile("2g.20gb").unwrap();
    let refused = layout.place(profile, Start(2)).unwrap_err();
    let text = "2g.20gb cannot start at memory slice 2; free starts: [4]";
    assert_eq!(refused.to_string(), text);
    assert_eq!(layout.remove(Start(1)), None);
    assert_eq!(layout.model.profile("2g.10gb"), None);
    // A profile of another model is none of this one's.
    let other = model("A30").profile("1g.6gb").unwrap();
    assert_eq!(layout.starts(other).count(), 0);
}

#[test]
fn models_are_those_of_the_device_table_that_can_be_divided() {
    let table = include_str!("../../../devices/gpus.csv");
    for model in &MODELS {
        let row = table
            .lines()
            .find(|row| row.split(',').next() == Some(model.device));
        let row: Vec<_> = row.expect(model.device).split(',').collect();
        let memory_mib = row[9].parse::<u64>().unwrap() >> 20;
        for profile in model.profiles {
            // Part of the memory is the driver's, at most an eighth.
            let share_mib =
                memory_mib * u64::from(profile.memory_slices) / u64::from(model.memory_slices);
            let got_mib = u64::from(profile.memory_mib);
            assert!(
                got_mib <= share_mib && 8 * got_mib > 7 * share_mib,
                "{} {profile:?}",
                model.device
            );
        }
    }
    assert_eq!(MigModel::of("V100-SXM2-16GB"), None);
}

proptest! {
    #[test]
    fn any_sequence_keeps_the_invariants_and_agrees_with_the_rules(
        device in prop::sample::select(MODELS.each_ref().map(|model| model.device).to_vec()),
        steps in prop::collection::vec((any::<bool>(), 0usize..6, 0u32..8), 0..40),
    ) {
        let mut layout = Layout::empty(model(device));
        for (is_place, index, start) in steps {
            let profile = &layout.model.profiles[index % layout.model.profiles.len()];
            let end = start + profile.memory_slices;
            let sum: u32 = layout.instances().iter().map(|i| i.profile.compute_slices).sum();
            let is_free = profile.starts.contains(&start)
                && sum + profile.compute_slices <= layout.model.compute_slices
                && layout.instances().iter().all(|other| {
                    end <= other.start.0 || other.start.0 + other.profile.memory_slices <= start
                });
            let before = layout.clone();
            if is_place {
                prop_assert_eq!(layout.place(profile, Start(start)).is_ok(), is_free);
            } else if let Some(removed) = layout.remove(Start(start)) {
                let mut again = layout.clone();
                again.place(removed.profile, removed.start).unwrap();
                prop_assert_eq!(again, before);
            }
            prop_assert!(layout.is_valid());
            prop_assert_eq!(layout.best_start(profile).is_some(), layout.starts(profile).next().is_some());
        }
    }
}
