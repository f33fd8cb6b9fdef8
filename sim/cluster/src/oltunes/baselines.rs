//! The publications that `OLTunes` compares itself with (section 4.1.2). Neither predicts.

use std::collections::VecDeque;

use crate::oltunes::gpu::Setting;
use crate::oltunes::world::{BATCH_MAX, Ended, Policy, Seen, Start};
use crate::oltunes_table::{GPUS, Mechanism};

/// Orion's sharing, on the first GPU that is free. A GPU has one latency-critical task, which is
/// high-priority, and one throughput-oriented beside it. Tasks of a class start in the order of
/// their arrival, LC tasks first, with the setting that they asked for. GPUs are taken in their
/// order, which begins with the fastest: Orion has no rule for it.
#[derive(Debug, Default)]
pub(crate) struct OrionFirstFree {
    /// LC and TO.
    queues: [VecDeque<usize>; 2],
}

impl Policy for OrionFirstFree {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Orion
    }

    fn handle_arrival(&mut self, seen: &Seen<'_>, request: usize) {
        let queue = usize::from(!seen.requests[request].is_critical);
        self.queues[queue].push_back(request);
    }

    fn handle_end(&mut self, _: &Seen<'_>, _: &Ended) {}

    fn poll(&mut self, seen: &Seen<'_>) -> Vec<Start> {
        for (queue, is_high) in self.queues.iter_mut().zip([true, false]) {
            let Some(&request) = queue.front() else {
                continue;
            };
            let of = &seen.requests[request];
            let needed = seen.facts.memory_bytes((of.model, of.batch));
            let free = seen.gpus.iter().position(|gpu| {
                let has_none = gpu.running.iter().all(|task| task.is_high != is_high);
                has_none && needed <= gpu.free_bytes()
            });
            if let Some(gpu) = free {
                queue.pop_front();
                let setting = Setting::whole(of.batch);
                return vec![Start {
                    request,
                    gpu,
                    setting,
                    is_high,
                }];
            }
        }
        Vec::new()
    }
}

/// Models that ask for much of a GPU, by Table 6: sizes L (BERT-base), XL (ResNet-152), XXL
/// (GPT-2). The publication's own rule is a quota of GPUs, which requests here lack.
const LARGE: [&str; 3] = ["bert-base", "resnet152", "gpt2"];

/// The reserved model of GPU: the paper's high-performance nodes.
const RESERVED: &str = "A100-SXM4-40GB";

/// Reserving and packing: large models first go to the reserved GPUs, all others first to the rest,
/// then to the other side, as by `cluster`'s rule of that name. Among equals the GPU with the most
/// tasks, at most [`BATCH_MAX`], which share it by MPS. First come, first served, whatever the
/// class.
#[derive(Debug, Default)]
pub(crate) struct ReserveAndPack {
    queue: VecDeque<usize>,
}

impl Policy for ReserveAndPack {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Mps
    }

    fn handle_arrival(&mut self, _: &Seen<'_>, request: usize) {
        self.queue.push_back(request);
    }

    fn handle_end(&mut self, _: &Seen<'_>, _: &Ended) {}

    fn poll(&mut self, seen: &Seen<'_>) -> Vec<Start> {
        let Some(&request) = self.queue.front() else {
            return Vec::new();
        };
        let of = &seen.requests[request];
        let needed = seen.facts.memory_bytes((of.model, of.batch));
        let is_large = LARGE.contains(&seen.facts.models[of.model].name);
        let gpus = seen.gpus.iter().enumerate();
        let has_room =
            gpus.filter(|(_, gpu)| gpu.running.len() < BATCH_MAX && needed <= gpu.free_bytes());
        let best = has_room.max_by_key(|(place, gpu)| {
            let is_reserved = GPUS[gpu.model] == RESERVED;
            let apt = is_reserved == is_large;
            (apt, gpu.running.len(), std::cmp::Reverse(*place))
        });
        let Some((gpu, _)) = best else {
            return Vec::new();
        };
        self.queue.pop_front();
        vec![Start {
            request,
            gpu,
            setting: Setting::whole(of.batch),
            is_high: of.is_critical,
        }]
    }
}
