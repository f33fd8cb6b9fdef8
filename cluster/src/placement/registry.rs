//! The policies by name: one list, for all code that parses or prints a name.

use crate::energy::Power;
use crate::interference::Pairs;
use crate::inventory::{NodeId, WHOLE_MILLI};
use crate::job::Models;
use crate::placement::best::Best;
use crate::placement::clustering::Clustering;
use crate::placement::dot_product::DotProduct;
use crate::placement::fgd::{Fgd, Usual};
use crate::placement::fits::{BestFit, FirstFit};
use crate::placement::gpu_packing::GpuPacking;
use crate::placement::least_risk::{LeastRisk, Terms};
use crate::placement::one_each::OneEach;
use crate::placement::random::Random;
use crate::placement::reserve_and_pack::ReserveAndPack;
use crate::placement::strict::Strict;
use crate::placement::{Holding, Placement};
use crate::view::View;

/// A policy that can be asked for.
#[derive(Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Its choice, in a line.
    pub about: &'static str,
    /// How much jobs hold under it, unless the experiment says otherwise.
    pub holding: Holding,
    make: fn(&Setting<'_>, Holding) -> Box<dyn Placement>,
}

/// The inputs from which policies are made.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The nodes in the order in which ties are broken.
    pub order: &'a [NodeId],
    /// Host CPU of the largest node.
    pub cpu_milli_max: u64,
    /// GPUs of the largest node, in thousandths.
    pub gpu_milli_max: u64,
    /// The typical requests.
    pub usual: &'a [Usual],
    /// Typical requests where high-priority jobs hold as much as keeps their promises.
    pub promised: &'a [Usual],
    /// How jobs run beside each other, as far as the policy knows.
    pub pairs: &'a Pairs,
    /// Power of each model.
    pub power: &'a [Power],
    /// The strongest models.
    pub strongest: Models,
    /// Seed of policies that draw random numbers.
    pub seed: u64,
}

impl<'a> Setting<'a> {
    /// For that cluster.
    #[must_use]
    pub fn new(view: &View, order: &'a [NodeId], usual: &'a [Usual], pairs: &'a Pairs) -> Self {
        let inventory = view.inventory();
        Self {
            order,
            cpu_milli_max: inventory.node_cpu_milli_max(),
            gpu_milli_max: u64::from(inventory.node_gpus_max()) * u64::from(WHOLE_MILLI),
            usual,
            promised: usual,
            pairs,
            power: &[],
            strongest: Models::of([]),
            seed: 1,
        }
    }
}

impl Entry {
    /// The policy for that cluster.
    #[must_use]
    pub fn make(&self, setting: &Setting<'_>) -> Box<dyn Placement> {
        (self.make)(setting, self.holding)
    }
}

/// All of them.
pub const ALL: &[Entry] = &[
    Entry {
        name: "random",
        about: "a random GPU with room",
        holding: Holding::DEMAND,
        make: |setting, holding| Box::new(Random::new(holding, setting.seed)),
    },
    Entry {
        name: "first-fit",
        about: "the first GPU with room",
        holding: Holding::DEMAND,
        make: |setting, holding| best(FirstFit, setting, holding),
    },
    Entry {
        name: "fcfs",
        about: "the first GPU with room; no job overtakes a waiting one",
        holding: Holding::DEMAND,
        make: |setting, holding| Box::new(Strict(best(FirstFit, setting, holding))),
    },
    Entry {
        name: "dot-product",
        about: "the node whose free resources point least towards the request",
        holding: Holding::DEMAND,
        make: |setting, holding| {
            let rule = DotProduct {
                cpu_milli_max: setting.cpu_milli_max,
                gpu_milli_max: setting.gpu_milli_max,
            };
            best(rule, setting, holding)
        },
    },
    Entry {
        name: "clustering",
        about: "GPUs that hold jobs of the same shape",
        holding: Holding::DEMAND,
        make: |setting, holding| {
            let rule = Clustering {
                gpu_milli_max: setting.gpu_milli_max,
            };
            best(rule, setting, holding)
        },
    },
    Entry {
        name: "packing",
        about: "used GPUs and nodes before free ones",
        holding: Holding::DEMAND,
        make: |setting, holding| best(GpuPacking, setting, holding),
    },
    Entry {
        name: "best-fit",
        about: "the node with the fewest resources left",
        holding: Holding::DEMAND,
        make: |setting, holding| {
            let rule = BestFit {
                cpu_milli_max: setting.cpu_milli_max,
                gpu_milli_max: setting.gpu_milli_max,
            };
            best(rule, setting, holding)
        },
    },
    Entry {
        name: "fgd",
        about: "the GPU where free capacity stays most usable for typical jobs",
        holding: Holding::DEMAND,
        make: |setting, holding| best(Fgd::new(setting.usual.to_vec()), setting, holding),
    },
    Entry {
        name: "reserve-and-pack",
        about: "the strongest GPUs for jobs of whole GPUs, all others packed onto the rest",
        holding: Holding::DEMAND,
        make: |setting, holding| {
            let rule = ReserveAndPack {
                reserved: setting.strongest,
            };
            best(rule, setting, holding)
        },
    },
    Entry {
        name: "exclusive",
        about: "the first free GPU; jobs never share a GPU",
        holding: Holding::WHOLE,
        make: |setting, holding| best(FirstFit, setting, holding),
    },
    Entry {
        name: "gslice",
        about: "inference shares GPUs, training has its own: the first with room (GSLICE)",
        holding: Holding::SEPARATE,
        make: |setting, holding| best(FirstFit, setting, holding),
    },
    Entry {
        name: "gpucolo",
        about: "training takes what inference leaves: the first GPU with room (GPUColo)",
        holding: Holding::ELASTIC,
        make: |setting, holding| best(FirstFit, setting, holding),
    },
    Entry {
        name: "muxflow",
        about: "one job of each class on a GPU, first come, first served (MuxFlow)",
        holding: Holding::ELASTIC,
        make: |setting, holding| Box::new(Strict(best(OneEach, setting, holding))),
    },
    Entry {
        name: "pillion",
        about: "the least predicted risk to promises, then the least capacity spent, then the least energy",
        holding: Holding::PROMISED,
        make: |setting, holding| best(least_risk(setting, Terms::ALL), setting, holding),
    },
    Entry {
        name: "pillion-without-risk",
        about: "pillion without the term for risk",
        holding: Holding::PROMISED,
        make: |setting, holding| {
            let terms = Terms {
                risk: false,
                ..Terms::ALL
            };
            best(least_risk(setting, terms), setting, holding)
        },
    },
    Entry {
        name: "pillion-without-spent",
        about: "pillion without the term for spent capacity",
        holding: Holding::PROMISED,
        make: |setting, holding| {
            let terms = Terms {
                spent: false,
                ..Terms::ALL
            };
            best(least_risk(setting, terms), setting, holding)
        },
    },
    Entry {
        name: "pillion-without-energy",
        about: "pillion without the term for energy",
        holding: Holding::PROMISED,
        make: |setting, holding| {
            let terms = Terms {
                energy: false,
                ..Terms::ALL
            };
            best(least_risk(setting, terms), setting, holding)
        },
    },
];

fn least_risk(setting: &Setting<'_>, terms: Terms) -> LeastRisk {
    let pairs = setting.pairs.clone();
    LeastRisk::new(pairs, setting.power.to_vec(), setting.promised, terms)
}

fn best<R: super::Rule + 'static>(
    rule: R,
    setting: &Setting<'_>,
    holding: Holding,
) -> Box<dyn Placement> {
    Box::new(Best::with_order(rule, holding, setting.order.to_vec()))
}

/// The holdings by name, for [`chosen`].
pub const HOLDINGS: [(&str, Holding); 5] = [
    ("demand", Holding::DEMAND),
    ("elastic", Holding::ELASTIC),
    ("promised", Holding::PROMISED),
    ("separate", Holding::SEPARATE),
    ("whole", Holding::WHOLE),
];

/// A policy, and how much jobs hold under it.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// As it was asked for.
    pub name: String,
    /// The policy.
    pub entry: &'static Entry,
    /// How much jobs hold.
    pub holding: Holding,
}

impl Chosen {
    /// The policy for that cluster.
    #[must_use]
    pub fn make(&self, setting: &Setting<'_>) -> Box<dyn Placement> {
        (self.entry.make)(setting, self.holding)
    }
}

/// The policy of that name; `NAME@HOLDING` has jobs hold otherwise than they do under it by itself.
///
/// # Errors
/// [`UnknownPolicy`] has all names.
pub fn chosen(name: &str) -> Result<Chosen, UnknownPolicy> {
    let unknown = || UnknownPolicy {
        name: name.to_owned(),
    };
    let (policy, holding) = match name.split_once('@') {
        None => (name, None),
        Some((policy, holding)) => {
            let known = HOLDINGS.iter().find(|(known, _)| *known == holding);
            (policy, Some(known.ok_or_else(unknown)?.1))
        }
    };
    let entry = by_name(policy).map_err(|_| unknown())?;
    Ok(Chosen {
        name: name.to_owned(),
        entry,
        holding: holding.unwrap_or(entry.holding),
    })
}

/// No policy has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown placement policy {name:?}: expected one of {}, or NAME@HOLDING with a holding of {}",
    names(),
    holdings()
)]
pub struct UnknownPolicy {
    /// The requested name.
    pub name: String,
}

/// The policy of that name.
///
/// # Errors
/// [`UnknownPolicy`] has all names.
pub fn by_name(name: &str) -> Result<&'static Entry, UnknownPolicy> {
    let found = ALL.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| UnknownPolicy {
        name: name.to_owned(),
    })
}

/// All names, separated by commas.
#[must_use]
pub fn names() -> String {
    let names: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
    names.join(", ")
}

fn holdings() -> String {
    HOLDINGS.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_can_be_asked_for_with_another_holding() {
        assert_eq!(chosen("fgd@promised").unwrap().holding, Holding::PROMISED);
        assert_eq!(chosen("pillion").unwrap().holding, Holding::PROMISED);
        let error = chosen("fgd@most").unwrap_err().to_string();
        assert!(
            error.contains("\"fgd@most\"") && error.contains("elastic"),
            "{error}"
        );
        assert!(chosen("fdg@demand").is_err());
    }
}
