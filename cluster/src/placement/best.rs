//! The search for the best node by a [`Rule`].
//!
//! Ties go to the node of the lowest *rank*: by number, or by a shuffle (the simulator of FGD draws
//! one per seed, which decides a good part of what policies with coarse scores reach).
//!
//! A score holds until its node changes, and between two arrivals few do. So scores are kept for each
//! *request* (what jobs ask for, without their number), up to [`REQUESTS_MAX`] of them, and an arrival
//! reads one small record for each node. Requests beyond that are scored anew each time.

use std::collections::HashMap;

use crate::inventory::{NodeId, WHOLE_MILLI};
use crate::job::JobSpec;
use crate::placement::{Candidate, Decision, Holding, Part, Placement, Reason, Rule, Score};
use crate::view::{View, node_id};

/// Requests whose scores are kept. Traces have about a hundred.
pub const REQUESTS_MAX: usize = 1024;

/// A node's score for one request.
#[derive(Clone, Copy)]
struct Kept {
    /// Of the node, plus one; 0: never scored.
    version: u64,
    slots: u32,
    score: Option<Score>,
}

const UNKNOWN: Kept = Kept {
    version: 0,
    slots: 0,
    score: None,
};

/// A policy that takes the best node by a rule.
pub struct Best<R> {
    rule: R,
    holding: Holding,
    /// Nodes in the order in which ties are broken.
    order: Vec<NodeId>,
    requests: HashMap<JobSpec, Vec<Kept>>,
}

impl<R: Rule> Best<R> {
    /// With ties broken by the number of the node.
    pub fn new(rule: R, holding: Holding, view: &View) -> Self {
        let order = (0..view.len()).map(node_id).collect();
        Self::with_order(rule, holding, order)
    }

    /// With ties broken in that order of all nodes.
    pub fn with_order(rule: R, holding: Holding, order: Vec<NodeId>) -> Self {
        Self {
            rule,
            holding,
            order,
            requests: HashMap::new(),
        }
    }

    /// The best node that has room for the whole job.
    fn on_one_node(
        &mut self,
        view: &View,
        job: &JobSpec,
        mut candidates: Option<&mut Vec<Candidate>>,
    ) -> Option<Part> {
        let milli = self.holding.of(job);
        let request = job.request();
        let room = self.requests.len() < REQUESTS_MAX || self.requests.contains_key(&request);
        let mut unkept;
        let kept = if room {
            let all = self.requests.entry(request);
            all.or_insert_with(|| vec![UNKNOWN; view.len()])
        } else {
            unkept = vec![UNKNOWN; view.len()];
            &mut unkept
        };
        let mut best: Option<(Score, NodeId, u32)> = None;
        for &id in &self.order {
            let version = u64::from(view.version(id)) + 1;
            let kept = &mut kept[id.index()];
            if kept.version != version {
                let scored = self.rule.score(&view.node(id), job, milli);
                let (score, slots) = scored.unzip();
                *kept = Kept {
                    version,
                    slots: slots.unwrap_or(0),
                    score,
                };
            }
            let Some(score) = kept.score else { continue };
            if best.is_none_or(|(found, _, _)| score > found) {
                best = Some((score, id, kept.slots));
            }
            if let Some(candidates) = candidates.as_deref_mut() {
                candidates.push(Candidate {
                    node: id,
                    slots: kept.slots,
                    score,
                });
            }
        }
        best.map(|(_, node, slots)| Part { node, slots, milli })
    }

    /// Whole GPUs of several nodes of one model: as few nodes as possible, and of nodes with equally
    /// many free GPUs the first in the order of ties. The models are tried by number.
    fn on_several_nodes(&self, view: &View, job: &JobSpec) -> Option<Vec<Part>> {
        let models = 0..view.inventory().models().len();
        models.map(|model| model as u16).find_map(|model| {
            let nodes = self.order.iter().map(|&id| view.node(id));
            let suited = nodes.filter(|node| node.spec.model.0 == model && node.suits(job));
            let mut free: Vec<(NodeId, u32)> = suited
                .map(|node| {
                    let fits = node
                        .gpus
                        .iter()
                        .filter(|gpu| gpu.is_free() && gpu.free_memory_bytes >= job.memory_bytes);
                    (node.id, fits.count() as u32)
                })
                .filter(|(_, free)| *free > 0)
                .collect();
            free.sort_by_key(|(_, free)| std::cmp::Reverse(*free));
            let mut missing = job.gpus;
            let mut parts = Vec::new();
            for (node, free) in free {
                let count = free.min(missing);
                let slots = view.node(node).free_slots(count, job.memory_bytes)?;
                let milli = WHOLE_MILLI;
                parts.push(Part { node, slots, milli });
                missing -= count;
                if missing == 0 {
                    return Some(parts);
                }
            }
            None
        })
    }
}

impl<R: Rule> Placement for Best<R> {
    fn place(
        &mut self,
        view: &View,
        job: &JobSpec,
        _now_ns: u64,
        candidates: Option<&mut Vec<Candidate>>,
    ) -> Decision {
        if let Some(part) = self.on_one_node(view, job, candidates) {
            return Decision::Place(vec![part]);
        }
        if job.spread
            && job.gpus > 1
            && let Some(parts) = self.on_several_nodes(view, job)
        {
            return Decision::Place(parts);
        }
        if could_ever(view, job) {
            Decision::Wait(Reason::Busy)
        } else {
            Decision::Refuse(Reason::Never)
        }
    }
}

/// Whether the job would fit into the cluster if that were empty.
pub(super) fn could_ever(view: &View, job: &JobSpec) -> bool {
    let inventory = view.inventory();
    let large = |node: &&crate::inventory::NodeSpec| {
        let memory = inventory.models().get(usize::from(node.model.0));
        node.cpu_milli >= job.cpu_milli
            && node.host_memory_bytes >= job.host_memory_bytes
            && (job.gpus == 0
                || job.models.has(node.model)
                    && memory.is_some_and(|model| model.memory_bytes >= job.memory_bytes))
    };
    let mut nodes = inventory.nodes().iter().filter(large);
    if job.spread {
        let mut gpus = vec![0u32; inventory.models().len().max(1)];
        for node in nodes {
            if let Some(sum) = gpus.get_mut(usize::from(node.model.0)) {
                *sum += node.gpus;
            }
        }
        return gpus.iter().any(|&sum| sum >= job.gpus);
    }
    nodes.any(|node| node.gpus >= job.gpus)
}
