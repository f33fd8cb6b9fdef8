//! Gavel's measured pairs: two training jobs on one GPU, each one's steps per second beside those
//! alone (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
//! Workloads", OSDI 2020; its repository's `physical_cluster_throughputs.json`).
//!
//! *Jobs.* ResNet-18 (CIFAR-10) and ResNet-50 (ImageNet) are built-in workloads of the batch. A
//! step's solo time is taken from the file, so a pair only tests how two steps of that length share
//! the GPU. On the V100, for which the workloads' times hold, the file's excess over them is the
//! host's, between steps (about 30 ms for ResNet-50 whatever the batch). For the P100 and the K80
//! there are no recordings to check their times: kernels are scaled so that the GPU is busy all the
//! time.
//!
//! *Sharing.* The V100 under MPS. On the P100 and the K80 the two get about half each, however long
//! their kernels are (ResNet-18 of 16 and ResNet-50 of 128 on the P100: .45 and .52 of their own,
//! where MPS would give the longer kernels most of the time): they took turns. All of their pairs
//! showed that, so the held-out ones do not test it.

use std::path::Path;

use serde_json::Value;
use softgpu::{Config, Device, Sharing};
use workloads::{Precision, Workload};

use crate::Change;
use crate::driver::{Job, alone_ns, launches, run, scaled};
use crate::fact::{Fact, Unused};

struct Worker {
    key: &'static str,
    group: &'static str,
    device: Device,
    sharing: Sharing,
    is_timed: bool,
}

const NETWORKS: [(&str, &str, &[u32]); 2] = [
    (
        "ResNet-18",
        "resnet18-cifar10-training",
        &[16, 32, 64, 128, 256],
    ),
    ("ResNet-50", "resnet50-training", &[16, 32, 64, 128]),
];

struct Kind {
    key: String,
    short: String,
    reads_imagenet: bool,
    workload: &'static Workload,
    batch: u32,
}

pub(crate) fn facts(data: &Path, change: Change<'_>) -> (Vec<Fact>, Vec<Unused>) {
    let path = data.join("traces/gavel_throughputs/physical_cluster_throughputs.json");
    let text = std::fs::read_to_string(path).expect("a published file");
    let file: Value = serde_json::from_str(&text).expect("it is JSON");
    let (mut facts, mut unused) = (Vec::new(), Vec::new());
    let mut hosts = 0;
    for worker in workers() {
        let (of_worker, hosts_of_worker) = facts_of(&worker, &file[worker.key], change);
        hosts += hosts_of_worker;
        let used = of_worker.len();
        facts.extend(of_worker);
        let others = count_pairs(&file[worker.key]) - used - hosts_of_worker;
        unused.push(Unused {
            what: format!("Gavel, {}: pairs with other networks", worker.key),
            count: others,
            why: "Transformer, LM, Recommendation, A3C and CycleGAN are not built in and have no recordings; \
                  pairs with a speed of 0 did not run",
        });
    }
    unused.push(Unused {
        what: "Gavel, v100: two ResNet-50 together".to_owned(),
        count: hosts,
        why: "less than by taking turns (together .59 to .97 of one): both decode ImageNet on one host, which \
              is not the GPU's",
    });
    unused.push(Unused {
        what: "Gavel: jobs on several GPUs, and *_unconsolidated".to_owned(),
        count: 0,
        why: "one GPU is modelled, without a network",
    });
    (facts, unused)
}

fn facts_of(worker: &Worker, file: &Value, change: Change<'_>) -> (Vec<Fact>, usize) {
    let kinds = kinds();
    let jobs: Vec<Option<(Job, f64)>> = kinds
        .iter()
        .map(|kind| Some(job(worker, kind, file[&kind.key]["null"].as_f64()?)))
        .map(|job| job.filter(|(_, per_s)| *per_s > 0.0))
        .collect();
    let (mut facts, mut hosts) = (Vec::new(), 0);
    for (first, a) in kinds.iter().enumerate() {
        for (second, b) in kinds.iter().enumerate().skip(first) {
            let Some((job_a, per_s_a)) = &jobs[first] else {
                continue;
            };
            let Some((job_b, per_s_b)) = &jobs[second] else {
                continue;
            };
            let Some([pair_a, pair_b]) = speeds(&file[&a.key][&b.key]) else {
                continue;
            };
            let parts = if first == second { 1 } else { 2 };
            if worker.is_timed && a.reads_imagenet && b.reads_imagenet {
                hosts += parts;
                continue;
            }
            let config = change(Config::new(worker.sharing, &worker.device));
            let duration_ns = (STEPS * 1e9 / per_s_a.min(*per_s_b)) as u64;
            let pair = [job_a.clone(), job_b.clone()];
            let outcome = run(&worker.device, config, &pair, duration_ns);
            let fact = |part: &Kind, measured: f64, model: f64| Fact {
                group: worker.group,
                name: format!("{} {} + {}", worker.key, a.short, b.short),
                part: part.short.clone(),
                measured,
                model,
            };
            facts.push(fact(
                a,
                pair_a / per_s_a,
                outcome[0].requests_per_s / per_s_a,
            ));
            if parts == 2 {
                facts.push(fact(
                    b,
                    pair_b / per_s_b,
                    outcome[1].requests_per_s / per_s_b,
                ));
            }
        }
    }
    (facts, hosts)
}

fn job(worker: &Worker, kind: &Kind, per_s: f64) -> (Job, f64) {
    let trace = kind
        .workload
        .trace(Some(kind.batch), &worker.device, Precision::Fp32);
    let launches = launches(&trace.expect("a batch in range"));
    let step_ns = 1e9 / per_s;
    let device_ns = alone_ns(&launches, &worker.device);
    let job = if worker.is_timed && device_ns < step_ns {
        Job {
            launches,
            between_ns: (step_ns - device_ns) as u64,
            period_ns: None,
        }
    } else {
        Job {
            launches: scaled(&launches, &worker.device, step_ns),
            between_ns: 0,
            period_ns: None,
        }
    };
    (job, per_s)
}

fn kinds() -> Vec<Kind> {
    let kinds = NETWORKS.iter().flat_map(|&(name, workload, batches)| {
        batches.iter().map(move |&batch| Kind {
            key: format!("('{name} (batch size {batch})', 1)"),
            short: format!("{name} of {batch}"),
            reads_imagenet: name == "ResNet-50",
            workload: Workload::by_name(workload).expect("built in"),
            batch,
        })
    });
    kinds.collect()
}

fn speeds(pair: &Value) -> Option<[f64; 2]> {
    let speeds = [pair.get(0)?.as_f64()?, pair.get(1)?.as_f64()?];
    speeds.iter().all(|&speed| speed > 0.0).then_some(speeds)
}

fn count_pairs(worker: &Value) -> usize {
    let jobs = worker.as_object().into_iter().flatten();
    let jobs = jobs.filter(|(job, _)| job.ends_with(", 1)"));
    let pairs = jobs.flat_map(|(job, row)| {
        let row = row.as_object().into_iter().flatten();
        row.filter(move |(other, _)| other.ends_with(", 1)") && *other >= job)
            .map(move |(other, _)| if other == job { 1 } else { 2 })
    });
    pairs.sum()
}

/// Gavel's GPUs. The K80 is not in the device table: its limits are from NVIDIA's data sheet.
fn workers() -> [Worker; 3] {
    let v100 = crate::v100();
    let p100 = Device::by_name("P100-PCIE-16GB").expect("the device table has it");
    let k80 = Device {
        name: "K80".to_owned(),
        sms: 13,
        blocks_per_sm: 16,
        registers_per_sm: 131_072,
        shared_bytes_per_sm: 114_688,
        shared_bytes_per_block_optin: 49_152,
        l2_bytes: 1_572_864,
        memory_bytes: 12 << 30,
        bandwidth_gb_s: 240,
        max_clock_mhz: 875,
        fp32_per_clk_per_sm: 192,
        source: "vendor".to_owned(),
        ..v100.clone()
    };
    [
        Worker {
            key: "v100",
            group: "Gavel, V100",
            device: v100,
            sharing: Sharing::Mps,
            is_timed: true,
        },
        Worker {
            key: "p100",
            group: "Gavel, P100",
            device: p100,
            sharing: Sharing::TimeSlice,
            is_timed: false,
        },
        Worker {
            key: "k80",
            group: "Gavel, K80",
            device: k80,
            sharing: Sharing::TimeSlice,
            is_timed: false,
        },
    ]
}

const STEPS: f64 = 8.0;
