//! Any node with room, and any of its GPUs with room: what the others are compared with.

use crate::inventory::{NodeId, WHOLE_MILLI};
use crate::job::JobSpec;
use crate::placement::ever::Ever;
use crate::placement::fits::tightest;
use crate::placement::gang::over_nodes;
use crate::placement::{Candidate, Decision, Holding, Part, Placement, Reason};
use crate::view::{NodeView, View};

/// The policy. Its numbers come from the seed alone.
pub struct Random {
    holding: Holding,
    state: u64,
    ever: Ever,
}

impl Random {
    /// With that seed.
    #[must_use]
    pub fn new(holding: Holding, seed: u64) -> Self {
        Self {
            holding,
            state: seed,
            ever: Ever::default(),
        }
    }

    /// One of `count` (SplitMix64, Steele et al., OOPSLA'14; bias below 2⁻⁴⁰ for less than 2²⁴).
    fn below(&mut self, count: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * count as u128) >> 64) as usize
    }

    fn slots(&mut self, node: &NodeView<'_>, job: &JobSpec, milli: u32, tightest: u32) -> u32 {
        if job.gpus != 1 || milli == WHOLE_MILLI {
            return tightest;
        }
        let gpus = node.gpus.iter().enumerate();
        let fitting = gpus.filter(|(_, gpu)| gpu.takes(job, milli));
        let fitting: Vec<usize> = fitting.map(|(slot, _)| slot).collect();
        1 << fitting[self.below(fitting.len())]
    }
}

impl Random {
    /// For a job that fits no single node.
    fn elsewhere(&mut self, view: &View, job: &JobSpec, milli: u32) -> Decision {
        let order: Vec<NodeId> = view.nodes().map(|node| node.id).collect();
        if let Some(parts) = over_nodes(view, job, milli, &order) {
            return Decision::Place(parts);
        }
        let could = self.ever.could(view, job, |empty| {
            let mut nodes = empty.nodes();
            nodes.any(|node| tightest(&node, job, milli).is_some())
                || over_nodes(empty, job, milli, &order).is_some()
        });
        if could {
            Decision::Wait(Reason::Busy)
        } else {
            Decision::Refuse(Reason::Never)
        }
    }
}

impl Placement for Random {
    fn place(
        &mut self,
        view: &View,
        job: &JobSpec,
        _now_ns: u64,
        candidates: Option<&mut Vec<Candidate>>,
    ) -> Decision {
        let milli = self.holding.of(job);
        let fitting = view.nodes().filter_map(|node| {
            let slots = tightest(&node, job, milli)?;
            Some((node.id, slots))
        });
        let fitting: Vec<_> = fitting.collect();
        if let Some(candidates) = candidates {
            candidates.extend(fitting.iter().map(|&(node, slots)| Candidate {
                node,
                slots,
                score: [0; 3],
            }));
        }
        if fitting.is_empty() {
            return self.elsewhere(view, job, milli);
        }
        let (node, slots) = fitting[self.below(fitting.len())];
        let slots = self.slots(&view.node(node), job, milli, slots);
        Decision::Place(vec![Part::new(&view.node(node), slots, milli, job)])
    }
}
