//! Suites of cluster experiments, and how each is read from recorded data.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use cluster_sim::days::{self, Neighbours};
use cluster_sim::fgd;
use cluster_sim::mixed::Mixed;
use cluster_sim::replay;
use cluster_sim::traces::{self, openb};

use crate::simulate::cluster::plan::{Inflated, What};

#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// One line.
    pub(crate) about: &'static str,
    pub(crate) policies: &'static [&'static str],
    pub(crate) seeds: &'static [u64],
    /// Number of seeds of a quick suite.
    quick_seeds: usize,
    /// Whether `--neighbours` applies.
    pub(crate) has_neighbours: bool,
    build: fn(&Path, &Setting<'_>) -> Result<What>,
}

#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) seeds: &'a [u64],
    pub(crate) is_quick: bool,
    pub(crate) neighbours: Neighbours,
    pub(crate) speed_max: Option<f64>,
}

const SUITES: &[Suite] = &[
    Suite {
        name: "fgd",
        about: "published allocations of FGD (ATC'23) on Alibaba's cluster of 2023",
        policies: &[
            "random",
            "dot-product",
            "clustering",
            "packing",
            "best-fit",
            "fgd",
        ],
        seeds: &[42, 43, 44, 45, 46, 47, 48, 49, 50, 51],
        quick_seeds: 2,
        has_neighbours: false,
        build: published,
    },
    Suite {
        name: "gpucolo",
        about: "57 days of inference and training jobs on 6742 GPUs, as in GPUColo's evaluation",
        policies: &[
            "exclusive",
            "gslice",
            "gpucolo",
            "muxflow",
            "first-fit@promised",
            "best-fit@promised",
            "fgd@promised",
            "pillion",
        ],
        // Seed 1 was used to choose numbers of policies.
        seeds: &[2, 3],
        quick_seeds: 1,
        has_neighbours: true,
        build: weeks,
    },
];

/// Days of a quick run of weeks.
const QUICK_DAYS: u32 = 5;

/// The folder of openb's files in the recorded data.
pub(crate) const OPENB: &str = "traces/alibaba_gpu_v2023_openb";

/// FGD's published results, in that folder.
pub(crate) const PUBLISHED: &str = "fgd_allocation_expected.csv";

impl Suite {
    /// Fails for an unknown name, and lists all names.
    pub(crate) fn by_name(name: &str) -> Result<&'static Self> {
        let found = SUITES.iter().find(|suite| suite.name == name);
        found.ok_or_else(|| {
            let names = SUITES.iter().map(|suite| suite.name);
            let names: Vec<&str> = names
                .chain([super::pairs::NAME, super::mechanisms::NAME])
                .chain([super::oltunes::NAME, super::predictions::NAME])
                .collect();
            anyhow!("--suite {name}: cluster suites are {}", names.join(", "))
        })
    }

    pub(crate) fn seeds(&self, is_quick: bool) -> Vec<u64> {
        let count = if is_quick {
            self.quick_seeds
        } else {
            self.seeds.len()
        };
        self.seeds[..count].to_vec()
    }

    /// Fails for wrong recorded data in the folder `data`.
    pub(crate) fn build(&self, data: &Path, setting: &Setting<'_>) -> Result<What> {
        (self.build)(data, setting).with_context(|| format!("--suite {}", self.name))
    }
}

fn published(data: &Path, _: &Setting<'_>) -> Result<What> {
    let folder = data.join(OPENB);
    let inventory = replay::cluster(&folder.join("openb_node_list_gpu_node.csv"))?;
    let published = traces::read(&folder.join(PUBLISHED), openb::allocations)?;
    let workloads = [
        "openb_pod_list_default",
        "openb_pod_list_gpushare40",
        "openb_pod_list_multigpu20",
    ];
    let workload = |name: &str| {
        let path = folder.join(format!("{name}.csv"));
        Ok(Inflated {
            name: name.to_owned(),
            jobs: replay::pods(&path, &inventory, true)?,
            inventory: inventory.clone(),
            target: fgd::TARGET,
            published: published.clone(),
        })
    };
    let workloads = workloads.into_iter().map(workload);
    Ok(What::Inflation(workloads.collect::<Result<_>>()?))
}

fn weeks(data: &Path, setting: &Setting<'_>) -> Result<What> {
    let play = |&seed: &u64| {
        let mut mixed = Mixed::fifty_seven_days(seed);
        if setting.is_quick {
            // As many jobs a day as in the full suite.
            mixed.inference_jobs =
                mixed.inference_jobs * u64::from(QUICK_DAYS) / u64::from(mixed.days);
            mixed.days = QUICK_DAYS;
        }
        let play = days::load(data, &mixed, setting.neighbours)?;
        Ok(match setting.speed_max {
            Some(speed_max) => play.with_speed_max(speed_max),
            None => play,
        })
    };
    let plays = setting.seeds.iter().map(play);
    Ok(What::Weeks(plays.collect::<Result<_>>()?))
}
