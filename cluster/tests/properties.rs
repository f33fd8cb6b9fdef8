//! What holds of every policy on any input: nothing is held twice, gangs are placed whole, equal
//! views have equal decisions, and nobody starves.

use std::collections::HashSet;

use cluster::interference::Pairs;
use cluster::mig::MigModel;
use cluster::placement::fgd::usual;
use cluster::placement::registry::{ALL, Entry, Setting};
use cluster::queue::{Outcome, Queue};
use cluster::{
    Class, Decision, Inventory, JobId, JobSpec, Model, ModelId, Models, NodeId, NodeSpec,
    Placement, Power, View, WorkloadId,
};
use proptest::prelude::*;

fn inventories() -> impl Strategy<Value = Inventory> {
    let node = (0u32..5, 0u16..3, 4u64..20);
    prop::collection::vec(node, 1..6).prop_map(|nodes| {
        let mut models = vec![
            Model::new("small", 16 << 30),
            Model::new("large", 32 << 30),
            Model::new("divided", 40 << 30),
        ];
        models[2].mig = MigModel::of("A100-SXM4-40GB");
        let nodes = nodes.into_iter().enumerate();
        let nodes = nodes.map(|(number, (gpus, model, cpus))| NodeSpec {
            name: format!("{number}"),
            cpu_milli: cpus * 1000,
            host_memory_bytes: cpus << 32,
            gpus,
            model: ModelId(model),
        });
        Inventory::new(models, nodes.collect()).expect("such nodes are possible")
    })
}

fn jobs() -> impl Strategy<Value = Vec<JobSpec>> {
    let job = (
        (any::<bool>(), 0u32..6, 1u32..=10, 1u32..=10, any::<bool>()),
        (0u64..20, 0u64..6, 1u64..8, 0u16..3, any::<bool>()),
        0usize..18,
    );
    prop::collection::vec(job, 1..40).prop_map(|jobs| {
        let jobs = jobs.into_iter().enumerate().map(|(number, job)| {
            let (first, second, instance) = job;
            let (high, gpus, tenths, floor, spread) = first;
            let (gib, cpus, models, workload, slo) = second;
            let class = if high {
                Class::HighPriority
            } else {
                Class::BestEffort
            };
            let milli = if gpus > 1 { 1000 } else { 100 * tenths };
            let mig = MigModel::of("A100-SXM4-40GB").expect("it can be divided");
            if let Some(profile) = mig.profiles.get(instance) {
                return JobSpec::of_instance(number as u64, class, mig, profile);
            }
            JobSpec {
                floor_milli: if high { milli } else { milli.min(50 * floor) },
                memory_bytes: gib << 30,
                cpu_milli: cpus * 1000,
                models: Models::of((0..3u16).filter(|m| models >> m & 1 == 1).map(ModelId)),
                spread,
                workload: WorkloadId(workload),
                slo_milli: (slo && high).then_some(960),
                ..JobSpec::new(number as u64, class, gpus, milli)
            }
        });
        jobs.collect()
    })
}

const POWER: [Power; 3] = [
    Power {
        idle_w: 10.0,
        tdp_w: 70.0,
    },
    Power {
        idle_w: 40.0,
        tdp_w: 300.0,
    },
    Power {
        idle_w: 53.0,
        tdp_w: 400.0,
    },
];

fn policy(entry: &Entry, view: &View, jobs: &[JobSpec]) -> Box<dyn Placement> {
    let order: Vec<NodeId> = (0..view.len() as u32).rev().map(NodeId).collect();
    let pairs = Pairs::new(3, |job, beside| 1.0 - 0.2 * (job + beside) as f64);
    let usual = usual(jobs);
    let mut setting = Setting::new(view, &order, &usual, &pairs);
    setting.power = &POWER;
    setting.strongest = Models::of([ModelId(1)]);
    entry.make(&setting)
}

fn check(view: &View, job: &JobSpec, decision: &Decision) -> Result<(), TestCaseError> {
    let Decision::Place(parts) = decision else {
        return Ok(());
    };
    let nodes: HashSet<NodeId> = parts.iter().map(|part| part.node).collect();
    prop_assert_eq!(nodes.len(), parts.len());
    prop_assert!(job.spread || parts.len() == 1);
    let gpus: u32 = parts.iter().map(|part| part.slots.count_ones()).sum();
    prop_assert_eq!(gpus, job.gpus);
    for part in parts {
        let node = view.node(part.node);
        prop_assert!(job.gpus == 0 || job.models.has(node.spec.model));
        for slot in part.slots() {
            prop_assert!(node.gpus[slot].takes(job, part.milli));
        }
    }
    Ok(())
}

proptest! {
    /// The oldest job leaves after every third arrival.
    #[test]
    fn nothing_is_held_twice_and_nothing_is_lost(inventory in inventories(), jobs in jobs()) {
        for entry in ALL {
            let mut view = View::new(inventory.clone());
            let mut policy = policy(entry, &view, &jobs);
            let mut placed: Vec<JobId> = Vec::new();
            for (number, job) in jobs.iter().enumerate() {
                let decision = policy.place(&view, job, number as u64, None);
                check(&view, job, &decision)?;
                if let Decision::Place(parts) = decision {
                    view.place(job, &parts);
                    placed.push(job.id);
                }
                prop_assert!(view.is_valid(), "{} placed {:?}", entry.name, job);
                if number % 3 == 2 && !placed.is_empty() {
                    view.release(placed.remove(0));
                    prop_assert!(view.is_valid(), "{}", entry.name);
                }
            }
            for job in placed {
                view.release(job);
            }
            prop_assert!(view == View::new(inventory.clone()), "{}", entry.name);
        }
    }

    /// A policy that has seen all of it decides like a new one.
    #[test]
    fn kept_scores_are_those_of_the_view(inventory in inventories(), jobs in jobs()) {
        for entry in ALL.iter().filter(|entry| entry.name != "random") {
            let mut view = View::new(inventory.clone());
            let mut old = policy(entry, &view, &jobs);
            for job in &jobs {
                let (mut seen, mut found) = (Vec::new(), Vec::new());
                let decision = old.place(&view, job, 0, Some(&mut seen));
                let anew = policy(entry, &view, &jobs).place(&view, job, 0, Some(&mut found));
                prop_assert_eq!(&decision, &anew, "{}", entry.name);
                prop_assert_eq!(seen, found, "{}", entry.name);
                if let Decision::Place(parts) = decision {
                    view.place(job, &parts);
                }
                if job.id.0 % 4 == 3 && view.parts_of(JobId(job.id.0 - 2)).is_some() {
                    view.release(JobId(job.id.0 - 2));
                }
            }
        }
    }

    /// A job that fits into the empty cluster is placed, if all others end one after the other.
    #[test]
    fn nobody_starves(inventory in inventories(), jobs in jobs()) {
        for entry in ALL {
            let mut view = View::new(inventory.clone());
            let mut policy = policy(entry, &view, &jobs);
            let mut queue = Queue::new(5);
            let (mut running, mut placed, mut refused) = (Vec::new(), 0, 0);
            let mut now_ns = 0;
            let mut coming = jobs.iter();
            loop {
                now_ns += 1;
                match coming.next() {
                    Some(job) => queue.push(job.clone(), now_ns),
                    None if running.is_empty() => break,
                    None => {
                        view.release(running.remove(0));
                        queue.handle_release();
                    }
                }
                for outcome in queue.poll(&mut view, &mut *policy, now_ns) {
                    match outcome {
                        Outcome::Placed(job, _) => {
                            running.push(job);
                            placed += 1;
                        }
                        Outcome::Refused(_) => refused += 1,
                    }
                }
            }
            prop_assert!(queue.is_empty(), "{}: {} wait", entry.name, queue.len());
            prop_assert_eq!(placed + refused, jobs.len(), "{}", entry.name);
        }
    }
}
