//! The published allocations of FGD (USENIX ATC'23), column by column. The traces and the
//! publication are not in the repository (`testing::data`).

#[macro_use]
extern crate testing;

use std::process::ExitCode;

use cluster::placement::registry::by_name;
use cluster_sim::fgd::{POLICIES, SEEDS, TARGET, published, run};
use cluster_sim::sources::{openb_cluster, openb_jobs};
use cluster_sim::traces::{TraceError, openb, read};

fn main() -> ExitCode {
    testing::main()
}

fn rows<T>(file: &str, reader: fn(&str, &[u8]) -> Result<Vec<T>, TraceError>) -> Vec<T> {
    let path = testing::data(&format!("traces/alibaba_gpu_v2023_openb/{file}"));
    read(&path, reader).unwrap_or_else(|error| panic!("{error}"))
}

struct Columns {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    furthest: f64,
}

fn columns(workload: &str, policy: &str) -> Columns {
    let inventory =
        openb_cluster(&rows("openb_node_list_gpu_node.csv", openb::nodes)).expect("a cluster");
    let pods = rows(&format!("{workload}.csv"), openb::pods);
    let jobs = openb_jobs(&pods, &inventory);
    let expected = rows("fgd_allocation_expected.csv", openb::allocations);
    let expected = published(&expected, workload, policy);
    assert_eq!(expected.len(), SEEDS.count());
    let entry = by_name(policy).expect("its name");
    let mut found = Columns {
        ours: vec![0.0; openb::ASKED_PCT.len()],
        theirs: vec![0.0; openb::ASKED_PCT.len()],
        furthest: 0.0,
    };
    for row in &expected {
        let allocation = run(&inventory, &jobs, TARGET, entry, row.seed as u32);
        for (column, &asked) in openb::ASKED_PCT.iter().enumerate() {
            let ours = allocation.at(asked as usize).expect("jobs arrive there");
            let theirs = row.allocated_pct[column];
            found.furthest = found.furthest.max((ours - theirs).abs());
            found.ours[column] += ours / expected.len() as f64;
            found.theirs[column] += theirs / expected.len() as f64;
        }
    }
    found
}

/// The mean of each policy is within 0.5 of the published one at 130 %, and within 1 in each
/// column. The policies that do not draw match to the printed decimals: that checks scores, ties
/// and random numbers. The published `Random` depended on how its threads ran.
fn holds(workload: &str) {
    let mut last = Vec::new();
    for (_, policy) in POLICIES {
        let found = columns(workload, policy);
        let gap = |column: usize| (found.ours[column] - found.theirs[column]).abs();
        let all = 0..openb::ASKED_PCT.len();
        println!(
            "{workload} {policy}: {:?} furthest {:.3}",
            found.ours.last(),
            found.furthest
        );
        assert!(
            gap(all.end - 1) <= 0.5,
            "{workload} {policy}: {:?}",
            found.ours
        );
        assert!(
            all.clone().all(|column| gap(column) <= 1.0),
            "{workload} {policy}"
        );
        // Rounded to two decimals there, and not here. In one run of the thirty of FGD (seed 45 of
        // `multigpu20`) one job goes elsewhere: its scores differ by the rounding of a sum.
        let furthest = match policy {
            "random" => 2.0,
            "fgd" => 0.04,
            _ => 0.006,
        };
        assert!(
            found.furthest <= furthest,
            "{workload} {policy}: {}",
            found.furthest
        );
        last.push((policy, found.ours[all.end - 1]));
    }
    let of = |name| {
        last.iter()
            .find(|(policy, _)| *policy == name)
            .expect("it was run")
            .1
    };
    assert!(of("random") < of("dot-product"));
    for packs in ["clustering", "packing"] {
        assert!(of("dot-product") < of(packs) && of(packs) < of("best-fit"));
    }
    assert!(of("best-fit") < of("fgd"));
}

#[test]
fn the_default_workload_is_allocated_as_published() {
    holds("openb_pod_list_default");
}

#[test]
fn the_workload_with_more_shared_gpus_is_allocated_as_published() {
    holds("openb_pod_list_gpushare40");
}

#[test]
fn the_workload_with_more_gangs_is_allocated_as_published() {
    holds("openb_pod_list_multigpu20");
}
