//! Random choices for a whole seed: the operator's configurations, and the rates of faults.

use std::path::Path;

use policy::{Policy, Sharing, registry};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::daemon::name_of;
use super::faults;
use super::world::HONEST_JOBS;
use crate::config::{Config, OnCollectives};
use protocol::hello::JobClass;

pub(super) const CONFIGS: usize = 3;

pub(super) struct Plan {
    /// They differ in what a running daemon can apply.
    pub(super) configs: Vec<Config>,
    pub(super) has_lying_hp: bool,
    pub(super) has_collectives: bool,
    pub(super) has_stops: bool,
    /// One in so many steps kills the active party.
    pub(super) kill_one_in: u64,
    /// One in so many accesses is a step.
    #[cfg_attr(
        not(stepped),
        expect(dead_code, reason = "accesses are steps with `--cfg stepped` only")
    )]
    pub(super) gap: u32,
}

impl Plan {
    pub(super) fn of(rng: &mut Pcg64Mcg) -> Self {
        let sharing = ["mps", "timeslice"][rng.random_range(0..2)];
        let excess = ["ignore", "report", "evict"][rng.random_range(0..3)];
        let fixed = format!(
            "[gpu]\nindex = 0\nsharing = \"{sharing}\"\n\
             [memory]\nexcess = \"{excess}\"\nbest_effort = \"1GiB\"\n"
        );
        // In half of the seeds one policy is in force throughout.
        let policies: Vec<&str> = registry::all().map(|entry| entry.name).collect();
        let first = rng.random_range(0..policies.len());
        let is_one_policy = rng.random_range(0..2) == 0;
        let mut config = || {
            let policy = match is_one_policy {
                true => first,
                false => rng.random_range(0..policies.len()),
            };
            let text = format!("{fixed}{}", changing(rng, policies[policy]));
            Config::check(Path::new("seed.toml"), &text).unwrap()
        };
        Self {
            configs: (0..CONFIGS).map(|_| config()).collect(),
            has_lying_hp: rng.random_range(0..4) == 0,
            has_collectives: rng.random_range(0..3) == 0,
            has_stops: rng.random_range(0..2) == 0,
            kill_one_in: [30, 100, 1000][rng.random_range(0..3)],
            gap: [6, 40, 400][rng.random_range(0..3)],
        }
    }
}

impl Plan {
    pub(super) fn is_mps(&self) -> bool {
        self.configs[0].sharing == Some(Sharing::Mps)
    }
}

fn changing(rng: &mut Pcg64Mcg, policy: &str) -> String {
    let residual = match policy {
        "orion" | "temporal" => "residual_us = 200\n",
        _ => "",
    };
    let loss = ["run", "hold"][rng.random_range(0..2)];
    let collectives = ["refuse", "gate"][rng.random_range(0..2)];
    let hold_ms = [20, 5][rng.random_range(0..2)];
    // Small enough to refuse some, and mostly large enough to refuse none.
    let clients = [4, 8, 192][rng.random_range(0..3)];
    let jobs = [2, 48][rng.random_range(0..2)];
    let promise = match (policy, rng.random_range(0..3)) {
        ("pillion", 0) => {
            let name = name_of(JobClass::BestEffort, rng.random_range(0..HONEST_JOBS));
            format!("[jobs.{name}]\nweight = 3\nmin_progress = 0.2\n")
        }
        _ => String::new(),
    };
    let rules = faults::rules(|bound| rng.random_range(0..bound));
    format!(
        "[policy]\nname = \"{policy}\"\n{residual}max_hold_ms = {hold_ms}\non_daemon_loss = \"{loss}\"\n\
         collectives = \"{collectives}\"\n\
         [limits]\nclients_per_user = {clients}\njobs_per_user = {jobs}\n{promise}{rules}"
    )
}

pub(super) fn is_gating(config: &Config) -> bool {
    config.policy != Policy::None
}

pub(super) fn refuses_collectives(config: &Config) -> bool {
    is_gating(config) && config.on_collectives == OnCollectives::Refuse
}

pub(super) fn has_plain_bound(config: &Config) -> bool {
    matches!(
        config.policy,
        Policy::Orion(_) | Policy::Temporal(_) | Policy::LaunchGate(_)
    )
}
