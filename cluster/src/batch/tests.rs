//! Batches as they are filled and tuned, and which GPUs get them.

use proptest::prelude::*;

use super::*;
use crate::affinity::{AFFINITY_MIN, Variant};

const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;
const RULES: Rules = Rules {
    admission: Admission::AtLeast(AFFINITY_MIN),
    tasks_max: 4,
    patience_ns: u64::MAX,
};
const TARGET: Target = Target {
    model: ModelId(0),
    free_bytes: 24 * GIB,
};

fn task(id: u64, is_critical: bool, ratio: f64, variant: Variant) -> Task {
    Task {
        id,
        is_critical,
        arrived_ns: id,
        deadline_ns: 100 * MS,
        latency_ns: 10 * MS,
        memory_bytes: GIB,
        gpus: Models::of([ModelId(0), ModelId(1)]),
        traits: Traits { ratio, variant },
        failures: 0,
    }
}

fn queues(tasks: impl IntoIterator<Item = Task>) -> Queues {
    let mut queues = Queues::default();
    for task in tasks {
        queues.push(task);
    }
    queues
}

fn filled(queues: &mut Queues, target: Target, rules: &Rules, now_ns: u64) -> Vec<u64> {
    let mut batch = Vec::new();
    fill(&mut batch, queues, target, rules, now_ns);
    batch.iter().map(|task| task.id).collect()
}

fn mixed(id: u64, is_critical: bool) -> Task {
    let (ratio, variant) = [(0.0, Variant::Low), (9.0, Variant::High)][id as usize % 2];
    task(id, is_critical, ratio, variant)
}

#[test]
fn critical_tasks_come_before_others_and_the_most_urgent_of_them_first() {
    let low = |id, is_critical| task(id, is_critical, id as f64 * 5.0, Variant::Low);
    let urgent = Task {
        deadline_ns: 20 * MS,
        ..low(3, true)
    };
    let mut queues = queues([low(0, false), low(1, true), low(2, true), urgent]);
    assert_eq!(filled(&mut queues, TARGET, &RULES, 0), [3, 1, 2, 0]);
    assert!(queues.is_empty());
}

#[test]
fn of_equally_urgent_tasks_the_shortest_goes_first() {
    let long = Task {
        deadline_ns: 400 * MS,
        latency_ns: 40 * MS,
        ..task(1, true, 0.0, Variant::Low)
    };
    let mut queues = queues([long, task(2, true, 0.0, Variant::Low)]);
    assert_eq!(filled(&mut queues, TARGET, &RULES, 0), [2]);
}

#[test]
fn a_task_of_no_affinity_is_passed_over_and_waits_on() {
    let tasks = [
        task(1, true, 0.0, Variant::High),
        task(2, true, 9.0, Variant::High),
        task(3, true, 9.0, Variant::Low),
    ];
    let mut queues = queues(tasks);
    assert_eq!(filled(&mut queues, TARGET, &RULES, 0), [1, 3]);
    assert_eq!(queues.len(), (1, 0));
}

#[test]
fn inverted_affinity_admits_the_others_and_ignored_affinity_all() {
    let tasks = [
        task(1, true, 0.0, Variant::High),
        task(2, true, 9.0, Variant::High),
        task(3, true, 9.0, Variant::Low),
    ];
    let with = |admission| {
        let rules = Rules { admission, ..RULES };
        filled(&mut queues(tasks.clone()), TARGET, &rules, 0)
    };
    assert_eq!(with(Admission::Below(AFFINITY_MIN)), [1, 2]);
    assert_eq!(with(Admission::All), [1, 2, 3]);
}

#[test]
fn a_task_for_other_gpus_is_left() {
    let elsewhere = Task {
        gpus: Models::of([ModelId(1)]),
        ..task(1, true, 0.0, Variant::Low)
    };
    let mut queues = queues([elsewhere]);
    assert_eq!(filled(&mut queues, TARGET, &RULES, 0), [0; 0]);
}

#[test]
fn a_task_that_waited_for_the_patience_goes_first_whatever_its_affinity() {
    let rules = Rules {
        patience_ns: 1000,
        ..RULES
    };
    let starving = task(0, false, 0.0, Variant::High);
    let all = [starving, task(5, true, 0.0, Variant::High)];
    assert_eq!(filled(&mut queues(all.clone()), TARGET, &rules, 999), [5]);
    assert_eq!(filled(&mut queues(all), TARGET, &rules, 1000), [0]);
    let mut batch = vec![task(5, true, 0.0, Variant::High)];
    let mut waiting = queues([task(0, false, 0.0, Variant::High)]);
    fill(&mut batch, &mut waiting, TARGET, &rules, 1000);
    assert_eq!(batch.len(), 2);
}

#[test]
fn a_failed_batch_waits_among_critical_tasks_with_more_urgency() {
    let mut queues = queues([task(1, true, 0.0, Variant::Low)]);
    queues.handle_failed(vec![task(2, false, 0.0, Variant::Low)]);
    assert_eq!(queues.len(), (2, 0));
    let order: Vec<(u64, u32)> = queues.iter().map(|task| (task.id, task.failures)).collect();
    assert_eq!(order, [(2, 1), (1, 0)]);
}

fn standing(is_empty: bool, free: f64, longest_done: f64, utilisation: f64) -> Standing {
    Standing {
        is_empty,
        is_mig: false,
        free,
        longest_done,
        utilisation,
        ready_ns: (utilisation * 1e3) as u64,
    }
}

#[test]
fn empty_gpus_are_targets_then_those_with_room_then_the_one_that_is_ready_first() {
    let (full, near) = (
        standing(false, 0.7, 0.7, 0.9),
        standing(false, 0.7, 0.8, 0.5),
    );
    let (roomy, empty) = (
        standing(false, 0.8, 0.0, 0.2),
        standing(true, 1.0, 0.0, 0.6),
    );
    assert_eq!(targets(&[full, near, roomy, empty]), [3]);
    assert_eq!(targets(&[full, near, roomy]), [2, 1]);
    assert_eq!(targets(&[full, standing(false, 0.1, 0.1, 0.3)]), [1]);
    let mig = Standing {
        is_mig: true,
        ..full
    };
    assert_eq!(targets(&[mig, near, empty]), [2, 0]);
    assert_eq!(targets(&[]), [0; 0]);
}

fn on(batch: u32, latency_s: f64, memory_gib: u64) -> Combination {
    Combination {
        gpu: ModelId(0),
        batch,
        share: 1.0,
        memory_bytes: memory_gib * GIB,
        latency_s,
        throughput_per_s: f64::from(batch) / latency_s,
        epc: 100.0,
    }
}

fn tunable(is_critical: bool, kept: &[Combination]) -> Tunable {
    Tunable {
        is_critical,
        current: on(8, 1.0, 4),
        kept: kept.to_vec(),
    }
}

#[test]
fn one_task_is_tuned_and_a_throughput_oriented_one_before_a_critical_one() {
    let better = [on(16, 0.9, 5), on(32, 2.0, 6)];
    let batch = [tunable(true, &better), tunable(false, &better)];
    assert_eq!(tune(&batch, 2 * GIB), Some((1, better[0])));
    assert_eq!(tune(&batch[..1], 2 * GIB), Some((0, better[0])));
}

#[test]
fn nothing_is_tuned_without_a_predicted_gain_within_the_free_memory() {
    let slower = [on(16, 2.0, 5), on(32, 4.0, 6)];
    assert_eq!(tune(&[tunable(false, &slower)], 2 * GIB), None);
    let larger = [on(16, 0.5, 7), on(32, 0.5, 9)];
    assert_eq!(tune(&[tunable(false, &larger)], 2 * GIB), None);
    assert_eq!(tune(&[tunable(false, &larger[..1])], 8 * GIB), None);
    let elsewhere = larger.map(|with| Combination {
        gpu: ModelId(1),
        ..with
    });
    assert_eq!(tune(&[tunable(false, &elsewhere)], 8 * GIB), None);
    assert_eq!(
        tune(&[tunable(false, &larger)], 3 * GIB),
        Some((0, larger[0]))
    );
}

proptest! {
    #[test]
    fn no_task_is_lost_and_a_batch_keeps_to_memory_and_size(
        kinds in prop::collection::vec((any::<bool>(), 1u64..12, 0u64..200), 0..60),
        tasks_max in 1usize..5, patience_ns in prop::sample::select(vec![0, 50, u64::MAX]),
    ) {
        let tasks = (0..).zip(&kinds).map(|(id, &(is_critical, gib, arrived_ns))| Task {
            memory_bytes: gib * GIB,
            arrived_ns,
            ..mixed(id, is_critical)
        });
        let mut queues = queues(tasks);
        let rules = Rules { tasks_max, patience_ns, ..RULES };
        let mut seen: Vec<u64> = Vec::new();
        loop {
            let mut batch = Vec::new();
            fill(&mut batch, &mut queues, TARGET, &rules, 200);
            prop_assert!(batch.len() <= tasks_max);
            prop_assert!(batch.iter().map(|task| task.memory_bytes).sum::<u64>() <= 24 * GIB);
            if batch.is_empty() {
                break;
            }
            seen.extend(batch.iter().map(|task| task.id));
        }
        seen.sort_unstable();
        prop_assert!(queues.is_empty());
        prop_assert_eq!(seen, (0..kinds.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn without_patience_every_pair_of_a_batch_was_admitted(
        kinds in prop::collection::vec((0.0..6.0f64, 0usize..3), 0..30),
    ) {
        let variants = [Variant::High, Variant::Low, Variant::Only];
        let tasks = (0..).zip(&kinds);
        let mut queues = queues(tasks.map(|(id, &(ratio, of))| task(id, true, ratio, variants[of])));
        let mut batch = Vec::new();
        fill(&mut batch, &mut queues, TARGET, &RULES, 0);
        for count in 1..batch.len() {
            let before: Vec<Traits> = batch[..count].iter().map(|task| task.traits).collect();
            prop_assert!(of_batch(batch[count].traits, &before) >= AFFINITY_MIN);
        }
    }
}
