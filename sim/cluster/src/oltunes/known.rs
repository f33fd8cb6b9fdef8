//! What `OLTunes` and Pillion's policy both derive from predictions: candidates and a task's choice
//! of them, waiting tasks, tunable settings, and progress of running tasks.

use cluster::batch::{Standing, Task, Tunable};
use cluster::job::Models;
use cluster::objective::{Choice, Combination, Weights, Wish, choose, epc};

use crate::oltunes::facts::model_id;
use crate::oltunes::foresight::{Cell, Foresight};
use crate::oltunes::gpu::{Gpu, Running, Setting};
use crate::oltunes::requests::Request;
use crate::oltunes::world::{Ended, Seen};
use crate::oltunes_table::{BATCHES, SHARES_PCT};

pub(crate) fn takes_s(
    seen: &Seen<'_>,
    foresight: &mut Foresight,
    request: &Request,
    gpu: usize,
    setting: Setting,
) -> f64 {
    let cell = Cell {
        gpu,
        model: request.model,
        setting,
    };
    let runs = f64::from(setting.runs(request.inputs));
    foresight.predict_ms(seen.facts, cell) / 1e3 * runs
}

pub(crate) fn combination(
    seen: &Seen<'_>,
    foresight: &mut Foresight,
    request: &Request,
    gpu: usize,
    setting: Setting,
) -> Combination {
    let latency_s = takes_s(seen, foresight, request, gpu, setting);
    let memory_bytes = seen.facts.memory_bytes((request.model, setting.batch));
    let share = f64::from(SHARES_PCT[setting.share]) / 100.0;
    let of = &seen.facts.gpus[gpu];
    let memory = memory_bytes as f64 / of.memory_bytes as f64;
    Combination {
        gpu: model_id(gpu),
        batch: BATCHES[setting.batch],
        share,
        memory_bytes,
        latency_s,
        throughput_per_s: f64::from(request.inputs) / latency_s,
        epc: epc(of.power, share, memory, latency_s),
    }
}

/// The setting of a combination.
///
/// # Panics
/// If it is of none of the table's settings: all combinations are made of these.
pub(crate) fn setting(of: &Combination) -> Setting {
    let batch = BATCHES.iter().position(|&batch| batch == of.batch);
    let pct = (of.share * 100.0).round() as u32;
    let share = SHARES_PCT.iter().position(|&share| share == pct);
    Setting {
        batch: batch.expect("combinations have the table's batches"),
        share: share.expect("combinations have the table's shares"),
    }
}

/// Its settings on all models of GPU: batches up to its inputs, all shares, within empty memory.
pub(crate) fn choice(
    seen: &Seen<'_>,
    foresight: &mut Foresight,
    request: &Request,
    weights: &Weights,
) -> Choice {
    let all: Vec<usize> = (0..seen.facts.gpus.len()).collect();
    choice_on(seen, foresight, request, weights, &all, u64::MAX)
}

pub(crate) fn choice_on(
    seen: &Seen<'_>,
    foresight: &mut Foresight,
    request: &Request,
    weights: &Weights,
    gpus: &[usize],
    room: u64,
) -> Choice {
    let mut candidates = Vec::new();
    for &gpu in gpus {
        let room = room.min(seen.facts.gpus[gpu].memory_bytes);
        let batches = (0..BATCHES.len()).filter(|&batch| BATCHES[batch] <= request.inputs);
        for batch in batches {
            if seen.facts.memory_bytes((request.model, batch)) > room {
                continue;
            }
            for share in 0..SHARES_PCT.len() {
                let setting = Setting { batch, share };
                candidates.push(combination(seen, foresight, request, gpu, setting));
            }
        }
    }
    let wish = Wish {
        lambda: request.lambda,
        deadline_s: request.deadline_ns as f64 / 1e9,
    };
    choose(wish, &candidates, weights, load(seen.gpus))
}

pub(crate) fn load(gpus: &[Gpu]) -> f64 {
    let busy = gpus.iter().filter(|gpu| !gpu.running.is_empty()).count();
    busy as f64 / gpus.len() as f64
}

pub(crate) fn waiting(seen: &Seen<'_>, number: usize, choice: &Choice, gpus: Models) -> Task {
    let request = &seen.requests[number];
    let latencies = choice.combinations.iter().map(|with| with.latency_s);
    let mean_s = latencies.sum::<f64>() / choice.combinations.len().max(1) as f64;
    Task {
        id: number as u64,
        is_critical: request.is_critical,
        arrived_ns: request.at_ns,
        deadline_ns: request.deadline_ns,
        latency_ns: (mean_s * 1e9) as u64,
        memory_bytes: seen.facts.memory_bytes((request.model, request.batch)),
        gpus,
        traits: seen.facts.models[request.model].traits,
        failures: 0,
    }
}

/// The task as it would start on a model of GPU: the batch that it asks for, on all SMs.
pub(crate) fn tunable(
    seen: &Seen<'_>,
    foresight: &mut Foresight,
    task: &Task,
    gpu: usize,
    choice: &Choice,
) -> Tunable {
    let request = &seen.requests[task.id as usize];
    let asked = Setting::whole(request.batch);
    Tunable {
        is_critical: request.is_critical,
        current: combination(seen, foresight, request, gpu, asked),
        kept: choice.combinations.clone(),
    }
}

pub(crate) fn expected_ns(
    seen: &Seen<'_>,
    foresight: &mut Foresight,
    gpu: usize,
    task: &Running,
) -> f64 {
    let request = &seen.requests[task.request];
    1e9 * takes_s(seen, foresight, request, gpu, task.setting)
}

pub(crate) fn standing(seen: &Seen<'_>, foresight: &mut Foresight, gpu: &Gpu) -> Standing {
    let mut longest = (0.0, 1.0);
    let mut ready_ns = seen.now_ns;
    for task in &gpu.running {
        let expected = expected_ns(seen, foresight, gpu.model, task);
        let done = (seen.now_ns - task.started_ns) as f64 / expected;
        if expected > longest.0 {
            longest = (expected, done.min(1.0));
        }
        ready_ns = ready_ns.max(task.started_ns + expected as u64);
    }
    Standing {
        is_empty: gpu.running.is_empty(),
        is_mig: false,
        free: gpu.free_bytes() as f64 / gpu.memory_bytes as f64,
        longest_done: longest.1,
        utilisation: gpu.monitored,
        ready_ns,
    }
}

/// Learns a measured run: the mean of a task's runs, as slowed by its neighbours.
pub(crate) fn learn(seen: &Seen<'_>, foresight: &mut Foresight, ended: &Ended) {
    let request = &seen.requests[ended.task.request];
    let cell = Cell {
        gpu: seen.gpus[ended.gpu].model,
        model: request.model,
        setting: ended.task.setting,
    };
    let runs = f64::from(ended.task.setting.runs(request.inputs));
    foresight.handle_measured(seen.facts, cell, ended.took_ns as f64 / 1e6 / runs);
}
