//! The anchor of the simulator: the allocations that the authors of FGD (USENIX ATC'23) published.
//! Six policies of theirs, with their scores, ties and random numbers, on lists of pods of
//! Alibaba's cluster ([`crate::inflation`]). The publication is a table of the allocation by
//! arrived demand, for each of ten seeds; `pillion simulate cluster --suite fgd` prints it beside
//! ours.

use cluster::interference::Pairs;
use cluster::placement::fgd::usual;
use cluster::placement::registry::{Entry, Setting};
use cluster::{Inventory, JobSpec};

use crate::inflation::{Allocation, Inflation};
use crate::traces::openb;

/// The published name of each policy, and ours.
pub const POLICIES: [(&str, &str); 6] = [
    ("01-Random", "random"),
    ("02-DotProd", "dot-product"),
    ("03-GpuClustering", "clustering"),
    ("04-GpuPacking", "packing"),
    ("05-BestFit", "best-fit"),
    ("06-FGD", "fgd"),
];

/// The seeds of the publication.
pub const SEEDS: std::ops::RangeInclusive<u32> = 42..=51;

/// How much of the GPUs all jobs together ask for in it.
pub const TARGET: f64 = 1.3;

/// Plays one run.
#[must_use]
pub fn run(
    inventory: &Inventory,
    jobs: &[JobSpec],
    target: f64,
    policy: &Entry,
    seed: u32,
) -> Allocation {
    let usual = usual(jobs);
    let pairs = Pairs::none();
    let experiment = Inflation {
        inventory: inventory.clone(),
        jobs: jobs.to_vec(),
        target,
    };
    experiment.run(seed, |view, order, random| {
        let mut setting = Setting::new(view, &order, &usual, &pairs);
        setting.seed = random;
        policy.make(&setting)
    })
}

/// The published allocations of one workload under one of our names, by seed.
#[must_use]
pub fn published<'a>(
    rows: &'a [openb::Allocation],
    workload: &str,
    policy: &str,
) -> Vec<&'a openb::Allocation> {
    let theirs = POLICIES.iter().find(|(_, ours)| *ours == policy);
    let rows = rows.iter().filter(|row| {
        row.workload == workload && theirs.is_some_and(|(theirs, _)| *theirs == row.policy)
    });
    rows.collect()
}
