//! Gangs over several nodes.

use std::cmp::Reverse;

use crate::inventory::NodeId;
use crate::job::JobSpec;
use crate::placement::Part;
use crate::view::{NodeView, View};

/// GPUs of several nodes of one model, for a gang that may be spread and holds `milli` of each.
/// GPUs with no job if there are enough, else any with room. On as few nodes as possible; of equal
/// nodes the first in `order`; of a node's GPUs those with most free. Models are tried by number.
/// No policy's rule scores this: all spread gangs alike.
#[must_use]
pub fn over_nodes(view: &View, job: &JobSpec, milli: u32, order: &[NodeId]) -> Option<Vec<Part>> {
    if !job.spread || job.gpus < 2 {
        return None;
    }
    let alone = |is_alone| over(view, job, milli, order, is_alone);
    alone(true).or_else(|| alone(false))
}

fn over(
    view: &View,
    job: &JobSpec,
    milli: u32,
    order: &[NodeId],
    is_alone: bool,
) -> Option<Vec<Part>> {
    let models = 0..view.inventory().models().len();
    models.map(|model| model as u16).find_map(|model| {
        let nodes = order.iter().map(|&id| view.node(id));
        let suited = nodes.filter(|node| node.spec.model.0 == model);
        let mut free: Vec<(NodeId, u32)> = suited
            .map(|node| (node.id, room(&node, job, milli, is_alone)))
            .filter(|(_, room)| *room > 0)
            .collect();
        free.sort_by_key(|(_, room)| Reverse(*room));
        let mut missing = job.gpus;
        let mut parts = Vec::new();
        for (node, room) in free {
            let count = room.min(missing);
            let slots = freest(&view.node(node), job, milli, count);
            parts.push(Part::new(&view.node(node), slots, milli, job));
            missing -= count;
            if missing == 0 {
                return Some(parts);
            }
        }
        None
    })
}

/// How many of the job's GPUs the node has room for; with `is_alone`, where no other job is.
fn room(node: &NodeView<'_>, job: &JobSpec, milli: u32, is_alone: bool) -> u32 {
    if !job.models.has(node.spec.model) {
        return 0;
    }
    let fitting = node.gpus.iter();
    let fitting = fitting.filter(|gpu| gpu.takes(job, milli) && (gpu.is_free() || !is_alone));
    let gpus = (fitting.count() as u32).min(job.gpus);
    let hosted = |gpus: &u32| {
        let (cpu, memory) = job.host_share(*gpus);
        node.free_cpu_milli >= cpu && node.free_host_memory_bytes >= memory
    };
    (1..=gpus).rev().find(hosted).unwrap_or(0)
}

fn freest(node: &NodeView<'_>, job: &JobSpec, milli: u32, count: u32) -> u32 {
    let gpus = node.gpus.iter().enumerate();
    let fitting = gpus.filter(|(_, gpu)| gpu.takes(job, milli));
    let mut slots: Vec<(bool, Reverse<u32>, usize)> = fitting
        .map(|(slot, gpu)| (!gpu.is_free(), Reverse(gpu.free_milli), slot))
        .collect();
    slots.sort_unstable();
    let chosen = slots.iter().take(count as usize);
    chosen.fold(0, |set, (_, _, slot)| set | 1u32 << slot)
}
