//! Gangs over several nodes.

use std::cmp::Reverse;

use crate::inventory::{NodeId, WHOLE_MILLI};
use crate::job::JobSpec;
use crate::placement::Part;
use crate::view::View;

/// Whole GPUs of several nodes of one model, for a gang that may be spread: on as few nodes as
/// possible, and of nodes with equally many free GPUs the first in `order`. The models are tried by
/// number. The gang's host CPU and memory are taken from its first node, and each of its nodes must have
/// as much.
#[must_use]
pub fn over_nodes(view: &View, job: &JobSpec, order: &[NodeId]) -> Option<Vec<Part>> {
    if !job.spread || job.gpus < 2 {
        return None;
    }
    let models = 0..view.inventory().models().len();
    models.map(|model| model as u16).find_map(|model| {
        let nodes = order.iter().map(|&id| view.node(id));
        let suited = nodes.filter(|node| node.spec.model.0 == model && node.suits(job));
        let mut free: Vec<(NodeId, u32)> = suited
            .map(|node| {
                let gpus = node.gpus.iter();
                let fits =
                    gpus.filter(|gpu| gpu.is_free() && gpu.free_memory_bytes >= job.memory_bytes);
                (node.id, fits.count() as u32)
            })
            .filter(|(_, free)| *free > 0)
            .collect();
        free.sort_by_key(|(_, free)| Reverse(*free));
        let mut missing = job.gpus;
        let mut parts = Vec::new();
        for (node, free) in free {
            let count = free.min(missing);
            parts.push(Part {
                node,
                slots: view.node(node).free_slots(count, job.memory_bytes)?,
                milli: WHOLE_MILLI,
            });
            missing -= count;
            if missing == 0 {
                return Some(parts);
            }
        }
        None
    })
}
