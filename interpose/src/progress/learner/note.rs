//! What was learnt, as a profile: a note for the next start of the program.
//!
//! A kernel that was seen complete is in it with what it is expected to take, also where that is
//! still what was assumed of it and nothing contradicted. What is kept of the runs before counts on:
//! a kernel's launches are those of all runs.

use std::collections::HashMap;

use policy::durations::{Durations, Taught};
use profiler::learnt::{self, KERNELS_MAX};
use profiler::profile::{Evidence, Measured};
use profiler::{ClassRule, KernelProfile, Match, Profile, ResourceClass, names};
use protocol::notebook::TEXT_BYTES_MAX;

use super::index_of;
use crate::kernels::{KERNELS, Profiled};
use crate::process::Client;

/// The note of a client, at most [`TEXT_BYTES_MAX`] long.
pub(super) fn text(client: &Client, durations: &Durations, unknown_ns: u64) -> String {
    let mut kernels: Vec<KernelProfile> = Vec::new();
    let mut places = HashMap::new();
    for launched in KERNELS.profiled(client) {
        let Some(taught) = durations.taught(index_of(launched.place)) else {
            continue;
        };
        if !learnt::is_name(launched.name) {
            continue;
        }
        let kernel = entry(client, &launched, taught, unknown_ns);
        // Of kernels that a profile does not tell apart (a compiler at run time gives each the same
        // name), the longest.
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
    profile.write()
}

fn entry(
    client: &Client,
    launched: &Profiled<'_>,
    taught: Taught,
    unknown_ns: u64,
) -> KernelProfile {
    let Profiled { name, shape, .. } = launched;
    let (grid, block) = (shape.grid, shape.block);
    let before = client.profile().map(|known| {
        let operator = launched.operator.as_ref();
        known.find_launch(operator, name, grid, block, shape.shared_bytes)
    });
    let exact = before.filter(|found| found.quality == Match::Exact);
    let before = exact
        .and_then(|found| found.kernel)
        .map_or(0, |kernel| kernel.count);
    let count = taught.launches.saturating_add(before);
    let told_ns = match launched.learnt.unknown {
        0 => launched.learnt.told_ns,
        _ => unknown_ns,
    };
    let median_ns = if taught.ns == 0 { told_ns } else { taught.ns };
    let p95_ns = median_ns.saturating_mul(taught.latest_per_mille.into()) / 1_000;
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
