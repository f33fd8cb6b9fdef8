//! The search for the best node by a [`Rule`]. Ties go to the node of the lowest *rank*: by number,
//! or by a shuffle (the simulator of FGD draws one per seed, which decides a good part of what
//! policies with coarse scores reach). A score holds until its node changes, and between two
//! arrivals few do. So scores are kept for each demand (a job without its number), and an arrival
//! reads one small record for each node. All are forgotten when there are more than [`ASKED_MAX`].

use std::collections::HashMap;

use crate::inventory::NodeId;
use crate::job::JobSpec;
use crate::placement::ever::Ever;
use crate::placement::gang::over_nodes;
use crate::placement::{
    Candidate, Decision, Holding, Measured, Part, Placement, Reason, Rule, Score,
};
use crate::view::{View, node_id};

/// Different demands whose scores are kept. Traces have about a hundred.
pub const ASKED_MAX: usize = 1024;

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
    order: Vec<NodeId>,
    kept: HashMap<JobSpec, Vec<Kept>>,
    ever: Ever,
    view: Option<u64>,
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
            kept: HashMap::new(),
            ever: Ever::default(),
            view: None,
        }
    }

    fn on_one_node(
        &mut self,
        view: &View,
        job: &JobSpec,
        mut candidates: Option<&mut Vec<Candidate>>,
    ) -> Option<Part> {
        let milli = self.holding.of(job);
        if self.view.replace(view.id()) != Some(view.id()) || self.kept.len() > ASKED_MAX {
            self.kept.clear();
        }
        let kept = self.kept.entry(job.without_id());
        let kept = kept.or_insert_with(|| vec![UNKNOWN; view.len()]);
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
        best.map(|(_, node, slots)| Part::new(&view.node(node), slots, milli, job))
    }

    fn could_ever(&mut self, view: &View, job: &JobSpec) -> bool {
        if self.rule.needs_neighbours() {
            return true;
        }
        let milli = self.holding.of(job);
        let (rule, order) = (&self.rule, &self.order);
        self.ever.could(view, job, |empty| {
            let mut nodes = empty.nodes();
            nodes.any(|node| rule.score(&node, job, milli).is_some())
                || over_nodes(empty, job, milli, order).is_some()
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
        if let Some(parts) = over_nodes(view, job, self.holding.of(job), &self.order) {
            return Decision::Place(parts);
        }
        if self.could_ever(view, job) {
            Decision::Wait(Reason::Busy)
        } else {
            Decision::Refuse(Reason::Never)
        }
    }

    fn handle_measured(&mut self, measured: Measured<'_>) {
        if self.rule.handle_measured(measured) {
            self.kept.clear();
        }
    }
}
