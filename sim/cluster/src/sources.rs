//! From the rows of recorded traces to the simulator's jobs and clusters.

use std::collections::HashMap;

use cluster::interference::Pairs;
use cluster::{
    Class, Inventory, InventoryError, JobSpec, Model, ModelId, Models, NodeSpec, Power, WorkloadId,
};
use devices::Device;

use crate::traces::{gavel, openb, pai};

/// A model of GPU in a published cluster, the device, and the one with its power at rest.
struct Known {
    published: &'static str,
    device: &'static str,
    idle: &'static str,
}

/// The models of Alibaba's clusters. `MISC` are "older generations" and `G2`, `G3` are not named by
/// the publications; they are taken for P100, the oldest that is named. The power at rest of a V100
/// of 16 GB is that of 32 GB, which has the same chip.
const KNOWN: [Known; 9] = [
    known("P100", "P100-PCIE-16GB", "P100-PCIE-16GB"),
    known("T4", "T4", "T4"),
    known("V100", "V100-SXM2-16GB", "V100-SXM2-32GB"),
    known("V100M16", "V100-SXM2-16GB", "V100-SXM2-32GB"),
    known("V100M32", "V100-SXM2-32GB", "V100-SXM2-32GB"),
    known("MISC", "P100-PCIE-16GB", "P100-PCIE-16GB"),
    known("G2", "P100-PCIE-16GB", "P100-PCIE-16GB"),
    known("G3", "P100-PCIE-16GB", "P100-PCIE-16GB"),
    known("A10", "A10", "T4"),
];

const fn known(published: &'static str, device: &'static str, idle: &'static str) -> Known {
    Known {
        published,
        device,
        idle,
    }
}

/// Power at rest without a known reading, ÷ board power: the middle of the known ones, which are
/// 0.02 to 0.18 (docs/model.md, "Power at rest").
const IDLE_SHARE: f64 = 0.12;

pub(crate) fn device_of(model: &str) -> Option<(Device, f64)> {
    let known = KNOWN.iter().find(|known| known.published == model);
    let (device, idle) = known.map_or((model, model), |known| (known.device, known.idle));
    let device = Device::by_name(device).ok()?;
    let idle = Device::by_name(idle).ok().and_then(|idle| idle.idle_w);
    let idle_w = idle.map_or(IDLE_SHARE * f64::from(device.tdp_w), f64::from);
    Some((device, idle_w))
}

/// The models of an inventory of which nothing is known: they have 16 GiB and a P100's power.
#[must_use]
pub fn unknown_models(inventory: &Inventory) -> Vec<&str> {
    let has_gpus = |number: usize| {
        let mut nodes = inventory.nodes().iter();
        nodes.any(|node| node.gpus > 0 && usize::from(node.model.0) == number)
    };
    let models = inventory.models().iter().enumerate();
    let unknown =
        models.filter(|(number, model)| has_gpus(*number) && device_of(&model.name).is_none());
    unknown.map(|(_, model)| model.name.as_str()).collect()
}

fn memory_bytes(model: &str) -> u64 {
    device_of(model).map_or(16 << 30, |(device, _)| device.memory_bytes)
}

/// Power of each model of the inventory; of one that is not known as of a P100.
#[must_use]
pub fn power(inventory: &Inventory) -> Vec<Power> {
    let power = |model: &Model| {
        let device = device_of(&model.name).or_else(|| device_of("P100"));
        device.map_or(
            Power {
                idle_w: 0.0,
                tdp_w: 0.0,
            },
            |(device, idle_w)| Power {
                idle_w,
                tdp_w: f64::from(device.tdp_w),
            },
        )
    };
    inventory.models().iter().map(power).collect()
}

/// The models with the most single-precision operations per second, within a tenth.
#[must_use]
pub fn strongest(inventory: &Inventory) -> Models {
    let strength: Vec<f64> = inventory.models().iter().map(strength_of).collect();
    let most = strength.iter().copied().fold(0.0, f64::max);
    let strong = strength.iter().enumerate();
    let strong = strong.filter(|(_, strength)| **strength >= 0.9 * most);
    Models::of(strong.map(|(number, _)| ModelId(number as u16)))
}

fn strength_of(model: &Model) -> f64 {
    device_of(&model.name).map_or(0.0, |(device, _)| device.fp32_tflops())
}

fn inventory(
    nodes: impl Iterator<Item = (NodeSpec, Option<String>)>,
) -> Result<Inventory, InventoryError> {
    let mut all: Vec<_> = nodes.collect();
    all.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let mut models: Vec<Model> = Vec::new();
    let nodes = all.into_iter().map(|(mut node, model)| {
        let name = model.unwrap_or_else(|| "no GPU".to_owned());
        let place = models.iter().position(|model| model.name == name);
        let place = place.unwrap_or_else(|| {
            models.push(Model::new(&name, memory_bytes(&name)));
            models.len() - 1
        });
        node.model = ModelId(place as u16);
        node
    });
    let nodes = nodes.collect();
    Inventory::new(models, nodes)
}

/// The cluster of an openb list of nodes.
///
/// # Errors
/// [`InventoryError`] for what no inventory can be.
pub fn openb_cluster(nodes: &[openb::Node]) -> Result<Inventory, InventoryError> {
    inventory(nodes.iter().map(|node| {
        let spec = NodeSpec {
            name: node.name.clone(),
            cpu_milli: node.cpu_milli,
            host_memory_bytes: node.memory_mib << 20,
            gpus: node.gpus,
            model: ModelId(0),
        };
        (spec, node.gpu_model.clone())
    }))
}

/// The cluster of PAI's list of machines, without those that have no GPU.
///
/// # Errors
/// [`InventoryError`] for what no inventory can be.
pub fn pai_cluster(machines: &[pai::Machine]) -> Result<Inventory, InventoryError> {
    let machines = machines.iter().filter(|machine| machine.gpus > 0);
    inventory(machines.map(|machine| {
        let spec = NodeSpec {
            name: machine.name.clone(),
            cpu_milli: u64::from(machine.cpus) * 1000,
            host_memory_bytes: u64::from(machine.memory_gib) << 30,
            gpus: machine.gpus,
            model: ModelId(0),
        };
        (spec, Some(machine.gpu_type.clone()))
    }))
}

/// So many GPUs of one model, on nodes of `node_gpus` each; the last has the rest. No host data.
///
/// # Errors
/// [`InventoryError`] if a node has more GPUs than an inventory can have.
pub fn uniform(device: &Device, gpus: u32, node_gpus: u32) -> Result<Inventory, InventoryError> {
    let nodes = gpus.div_ceil(node_gpus.max(1));
    let node = |number: u32| NodeSpec {
        name: format!("node-{number:05}"),
        cpu_milli: 0,
        host_memory_bytes: 0,
        gpus: node_gpus.min(gpus - number * node_gpus),
        model: ModelId(0),
    };
    let model = Model::new(&device.name, device.memory_bytes);
    Inventory::new(vec![model], (0..nodes).map(node).collect())
}

/// The job with any model and no demands of hosts: for a cluster of which only GPUs are known.
pub fn without_hosts(job: &mut JobSpec) {
    job.cpu_milli = 0;
    job.host_memory_bytes = 0;
    job.models = Models::ANY;
}

/// The jobs of an openb list of pods, by name: each one's demands, without times.
#[must_use]
pub fn openb_jobs(pods: &[openb::Pod], inventory: &Inventory) -> Vec<JobSpec> {
    let mut pods: Vec<&openb::Pod> = pods.iter().collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    let job = |(number, pod): (usize, &&openb::Pod)| openb_job(number as u64, pod, inventory);
    pods.iter().enumerate().map(job).collect()
}

/// Pods that serve requests (`LS`) are high-priority. Nothing satisfies a model that no node has.
pub(crate) fn openb_job(number: u64, pod: &openb::Pod, inventory: &Inventory) -> JobSpec {
    let class = match pod.qos {
        Some(openb::Qos::LatencySensitive) => Class::HighPriority,
        _ => Class::BestEffort,
    };
    let mut job = JobSpec::new(number, class, pod.gpus, pod.gpu_milli);
    job.cpu_milli = pod.cpu_milli;
    job.host_memory_bytes = pod.memory_mib << 20;
    if !pod.gpu_models.is_empty() {
        let models = inventory.models().iter().enumerate();
        let asked = models.filter(|(_, model)| pod.gpu_models.contains(&model.name));
        job.models = Models::of(asked.map(|(number, _)| ModelId(number as u16)));
    }
    job
}

/// The parts of their speed that Gavel's workloads keep beside each other on one GPU of that name,
/// and the workloads' names by number: those of one GPU that were measured alone. Both of a pair
/// had half of the GPU, so a job keeps its measured part of the speed alone, divided by one half,
/// and at most all. A pair that was not measured, or has a speed of 0 (it did not fit), is taken
/// for the mean of the pairs that were.
#[must_use]
pub fn gavel_pairs(rows: &[gavel::Throughput], gpu: &str) -> (Vec<String>, Pairs) {
    let one = |kind: &gavel::ScaledType| kind.scale_factor == 1;
    let rows: Vec<_> = rows
        .iter()
        .filter(|row| row.gpu == gpu && one(&row.job))
        .collect();
    let solo = rows
        .iter()
        .filter(|row| row.other.is_none() && row.this_per_s > 0.0);
    let mut names: Vec<(&str, f64)> = solo
        .map(|row| (row.job.job_type.as_str(), row.this_per_s))
        .collect();
    names.sort_by_key(|(name, _)| *name);
    let places: HashMap<&str, usize> = (0..names.len()).map(|i| (names[i].0, i)).collect();
    let mut kept = vec![None; names.len() * names.len()];
    for row in rows {
        let Some(other) = row.other.as_ref().filter(|other| one(other)) else {
            continue;
        };
        let job = places.get(row.job.job_type.as_str());
        let beside = places.get(other.job_type.as_str());
        if let (Some(&job), Some(&beside)) = (job, beside)
            && row.this_per_s > 0.0
        {
            let part = row.this_per_s / names[job].1;
            kept[job * names.len() + beside] = Some((2.0 * part).min(1.0));
        }
    }
    let measured: Vec<f64> = kept.iter().copied().flatten().collect();
    let mean = measured.iter().sum::<f64>() / measured.len().max(1) as f64;
    let pairs = Pairs::new(names.len(), |job, beside| {
        kept[job * names.len() + beside].unwrap_or(mean)
    });
    (
        names.into_iter().map(|(name, _)| name.to_owned()).collect(),
        pairs,
    )
}

/// The number of a workload of that name.
#[must_use]
pub fn workload(names: &[String], name: &str) -> Option<WorkloadId> {
    let place = names.iter().position(|known| known == name)?;
    Some(WorkloadId(place as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throughput(job: &str, other: Option<&str>, this_per_s: f64) -> gavel::Throughput {
        let kind = |name: &str| gavel::ScaledType {
            job_type: name.to_owned(),
            scale_factor: 1,
        };
        gavel::Throughput {
            gpu: "v100".to_owned(),
            job: kind(job),
            other: other.map(kind),
            this_per_s,
            other_per_s: None,
        }
    }

    /// Alone 10 per s, beside `b` 4: 0.8 of its half. `b` loses nothing; unmeasured pairs have 0.9.
    #[test]
    fn a_pair_keeps_its_part_of_a_half() {
        let rows = [
            throughput("a", None, 10.0),
            throughput("b", None, 2.0),
            throughput("a", Some("b"), 4.0),
            throughput("b", Some("a"), 1.5),
            throughput("a", Some("a"), 0.0),
        ];
        let (names, pairs) = gavel_pairs(&rows, "v100");
        assert_eq!(names, ["a", "b"]);
        let kept = |job, beside| pairs.kept(WorkloadId(job), WorkloadId(beside), 0.5);
        let near = |found: f64, right: f64| assert!((found - right).abs() < 1e-9, "{found}");
        near(kept(0, 1), 0.8);
        near(kept(1, 0), 1.0);
        near(kept(0, 0), 0.9);
    }

    #[test]
    fn models_of_published_clusters_are_devices() {
        for known in &KNOWN {
            assert!(device_of(known.published).is_some(), "{}", known.published);
        }
    }
}
