//! What is free in a cluster, and which jobs are where. A job *holds* a part of each of its GPUs:
//! what the policy reserved, which may be less than it would use alone. All jobs of a GPU hold at
//! most the GPU and its memory; likewise for a node's CPU and memory. [`View::place`] panics rather
//! than break that, so an overcommitting policy is found at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::inventory::{Inventory, NODE_GPUS_MAX, NodeId, NodeSpec, WHOLE_MILLI};
use crate::job::{Class, JobId, JobSpec, WorkloadId};
use crate::mig::{Layout, MigModel, Start};
use crate::placement::Part;

/// A job on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The job.
    pub job: JobId,
    /// Its class.
    pub class: Class,
    /// Its workload.
    pub workload: WorkloadId,
    /// The part that it holds.
    pub held_milli: u32,
    /// The part that it would use alone.
    pub gpu_milli: u32,
    /// As in [`JobSpec::floor_milli`].
    pub floor_milli: u32,
    /// Its device memory.
    pub memory_bytes: u64,
    /// As in [`JobSpec::slo_milli`].
    pub slo_milli: Option<u32>,
    /// Where its instance begins, if it has one.
    pub start: Option<Start>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuState {
    /// The part that no job holds, of [`WHOLE_MILLI`].
    pub free_milli: u32,
    /// Device memory that no job holds.
    pub free_memory_bytes: u64,
    /// The jobs on it, in the order of their placement.
    pub residents: Vec<Resident>,
    /// Of a GPU in MIG mode, its instances.
    pub layout: Option<Layout>,
}

impl GpuState {
    /// Whether no job is on it.
    #[must_use]
    pub const fn is_free(&self) -> bool {
        self.residents.is_empty()
    }

    /// Whether the job can still hold so much of it, or have its instance there.
    #[must_use]
    pub fn takes(&self, job: &JobSpec, milli: u32) -> bool {
        match (&self.layout, job.instance) {
            (None, None) => self.free_milli >= milli && self.free_memory_bytes >= job.memory_bytes,
            (Some(layout), Some(profile)) => layout.starts(profile).next().is_some(),
            _ => false,
        }
    }

    /// The jobs of that class on it.
    pub fn of(&self, class: Class) -> impl Iterator<Item = &Resident> {
        self.residents.iter().filter(move |r| r.class == class)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeState {
    free_cpu_milli: u64,
    free_host_memory_bytes: u64,
    version: u32,
    /// Jobs by the number of whole GPUs that they hold here; at 0 those with a part of one.
    shapes: [u16; NODE_GPUS_MAX + 1],
}

/// One node as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// Its number.
    pub id: NodeId,
    /// Its specification.
    pub spec: &'a NodeSpec,
    /// Its GPUs, by slot.
    pub gpus: &'a [GpuState],
    /// Host CPU that no job holds.
    pub free_cpu_milli: u64,
    /// Host memory that no job holds.
    pub free_host_memory_bytes: u64,
    /// How often the node has changed, modulo 2³²: with an equal version it is the same.
    pub version: u32,
    shapes: &'a [u16; NODE_GPUS_MAX + 1],
}

impl NodeView<'_> {
    /// The part that no job holds, all GPUs together.
    #[must_use]
    pub fn free_milli(&self) -> u64 {
        self.gpus.iter().map(|gpu| u64::from(gpu.free_milli)).sum()
    }

    /// Whether its host CPU and memory suffice, and the job may have its model.
    #[must_use]
    pub fn suits(&self, job: &JobSpec) -> bool {
        self.free_cpu_milli >= job.cpu_milli
            && self.free_host_memory_bytes >= job.host_memory_bytes
            && (job.gpus == 0 || job.models.has(self.spec.model))
    }

    /// How many jobs hold so many whole GPUs of it; 0: a part of one.
    #[must_use]
    pub fn jobs_of_shape(&self, gpus: usize) -> u16 {
        self.shapes[gpus]
    }

    /// How many jobs hold GPUs of it, parts or whole.
    #[must_use]
    pub fn gpu_jobs(&self) -> u32 {
        self.shapes.iter().map(|&jobs| u32::from(jobs)).sum()
    }

    /// The first of its GPUs with nothing on them, for all of the job's, as a set of slots.
    #[must_use]
    pub fn free_slots(&self, job: &JobSpec) -> Option<u32> {
        let count = job.gpus;
        let mut slots = 0u32;
        for (slot, gpu) in self.gpus.iter().enumerate() {
            if slots.count_ones() == count {
                break;
            }
            if gpu.is_free() && gpu.takes(job, WHOLE_MILLI) {
                slots |= 1 << slot;
            }
        }
        (slots.count_ones() == count).then_some(slots)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    parts: Vec<Part>,
    hosts: Vec<(u64, u64)>,
}

static VIEWS: AtomicU64 = AtomicU64::new(0);

/// The state of a cluster.
#[derive(Debug)]
pub struct View {
    id: u64,
    inventory: Inventory,
    nodes: Vec<NodeState>,
    gpus: Vec<GpuState>,
    jobs: HashMap<JobId, Held>,
}

impl View {
    /// The cluster with no job.
    #[must_use]
    pub fn new(inventory: Inventory) -> Self {
        let node = |spec: &NodeSpec| NodeState {
            free_cpu_milli: spec.cpu_milli,
            free_host_memory_bytes: spec.host_memory_bytes,
            version: 0,
            shapes: [0; NODE_GPUS_MAX + 1],
        };
        let gpus = inventory.nodes().iter().flat_map(|spec| {
            let free_memory_bytes = memory_of(&inventory, spec);
            let gpu = GpuState {
                free_milli: WHOLE_MILLI,
                free_memory_bytes,
                residents: Vec::new(),
                layout: mig_of(&inventory, spec).map(Layout::empty),
            };
            std::iter::repeat_n(gpu, spec.gpus as usize)
        });
        Self {
            nodes: inventory.nodes().iter().map(node).collect(),
            gpus: gpus.collect(),
            jobs: HashMap::new(),
            id: VIEWS.fetch_add(1, Ordering::Relaxed),
            inventory,
        }
    }

    /// A number that no other view of this process has: versions of nodes are of one view.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The cluster's inventory.
    #[must_use]
    pub const fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the cluster has no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// One node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> NodeView<'_> {
        let spec = &self.inventory.nodes()[id.index()];
        let state = &self.nodes[id.index()];
        let first = self.inventory.first_gpu(id);
        NodeView {
            id,
            spec,
            gpus: &self.gpus[first..first + spec.gpus as usize],
            free_cpu_milli: state.free_cpu_milli,
            free_host_memory_bytes: state.free_host_memory_bytes,
            version: state.version,
            shapes: &state.shapes,
        }
    }

    /// How often that node has changed: the field of [`NodeView`] without the rest.
    #[must_use]
    pub fn version(&self, id: NodeId) -> u32 {
        self.nodes[id.index()].version
    }

    /// All nodes, by number.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        (0..self.nodes.len()).map(|index| self.node(node_id(index)))
    }

    /// All GPUs, numbered through.
    #[must_use]
    pub fn gpus(&self) -> &[GpuState] {
        &self.gpus
    }

    /// Where the job is; `None`: nowhere.
    #[must_use]
    pub fn parts_of(&self, job: JobId) -> Option<&[Part]> {
        self.jobs.get(&job).map(|held| held.parts.as_slice())
    }

    /// How many jobs are placed.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Places the job there.
    ///
    /// # Panics
    /// If the job is placed already, has no part, or holds more than is free: a policy's defect, or
    /// a decision about an older view.
    pub fn place(&mut self, job: &JobSpec, parts: &[Part]) {
        assert!(!parts.is_empty(), "job {:?} is placed nowhere", job.id);
        let gpus: u32 = parts.iter().map(|part| part.slots.count_ones()).sum();
        assert_eq!(gpus, job.gpus, "a gang is placed as a whole: {:?}", job.id);
        let hosts: Vec<_> = parts
            .iter()
            .map(|part| job.host_share(part.slots.count_ones()))
            .collect();
        for (part, &(cpu_milli, memory_bytes)) in parts.iter().zip(&hosts) {
            let host = &mut self.nodes[part.node.index()];
            host.free_cpu_milli = less(host.free_cpu_milli, cpu_milli, job.id);
            let memory = host.free_host_memory_bytes;
            host.free_host_memory_bytes = less(memory, memory_bytes, job.id);
            self.place_part(job, part);
        }
        let held = Held {
            parts: parts.to_vec(),
            hosts,
        };
        let before = self.jobs.insert(job.id, held);
        assert!(before.is_none(), "job {:?} is placed twice", job.id);
    }

    fn place_part(&mut self, job: &JobSpec, part: &Part) {
        let first = self.inventory.first_gpu(part.node);
        let count = self.inventory.nodes()[part.node.index()].gpus as usize;
        for slot in part.slots() {
            assert!(slot < count, "job {:?}: slot {slot} of {count}", job.id);
            let gpu = &mut self.gpus[first + slot];
            let is_new = gpu.residents.iter().all(|resident| resident.job != job.id);
            assert!(is_new, "job {:?} is twice on slot {slot}", job.id);
            if let (Some(layout), Some(profile)) = (&mut gpu.layout, job.instance) {
                let placed = part.start.map(|start| layout.place(profile, start));
                assert_eq!(placed, Some(Ok(())), "the instance of job {:?}", job.id);
            }
            gpu.free_milli = less(gpu.free_milli.into(), part.milli.into(), job.id) as u32;
            gpu.free_memory_bytes = less(gpu.free_memory_bytes, job.memory_bytes, job.id);
            gpu.residents.push(Resident {
                job: job.id,
                class: job.class,
                workload: job.workload,
                held_milli: part.milli,
                gpu_milli: job.gpu_milli,
                floor_milli: job.floor_milli,
                memory_bytes: job.memory_bytes,
                slo_milli: job.slo_milli,
                start: part.start,
            });
        }
        let node = &mut self.nodes[part.node.index()];
        node.version = node.version.wrapping_add(1);
        if let Some(shape) = part.shape() {
            node.shapes[shape] += 1;
        }
    }

    /// Takes the job away.
    ///
    /// # Panics
    /// If it is nowhere.
    pub fn release(&mut self, job: JobId) {
        let Some(held) = self.jobs.remove(&job) else {
            panic!("job {job:?} is nowhere");
        };
        for (part, &(cpu_milli, memory_bytes)) in held.parts.iter().zip(&held.hosts) {
            let host = &mut self.nodes[part.node.index()];
            host.free_cpu_milli += cpu_milli;
            host.free_host_memory_bytes += memory_bytes;
            let first = self.inventory.first_gpu(part.node);
            for slot in part.slots() {
                let gpu = &mut self.gpus[first + slot];
                let Some(at) = gpu.residents.iter().position(|r| r.job == job) else {
                    panic!("job {job:?} is not where it is noted");
                };
                let resident = gpu.residents.remove(at);
                if let (Some(layout), Some(start)) = (&mut gpu.layout, resident.start) {
                    layout.remove(start);
                }
                gpu.free_milli += resident.held_milli;
                gpu.free_memory_bytes += resident.memory_bytes;
            }
            let node = &mut self.nodes[part.node.index()];
            node.version = node.version.wrapping_add(1);
            if let Some(shape) = part.shape() {
                node.shapes[shape] -= 1;
            }
        }
    }

    /// Whether the sums are those of the jobs: no GPU and no node is held twice, nothing is lost.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let gpus = self.nodes().all(|node| {
            let memory = memory_of(&self.inventory, node.spec);
            node.gpus.iter().all(|gpu| {
                let milli: u32 = gpu.residents.iter().map(|r| r.held_milli).sum();
                let bytes: u64 = gpu.residents.iter().map(|r| r.memory_bytes).sum();
                let instances = gpu.layout.as_ref().is_none_or(|layout| {
                    layout.is_valid() && layout.instances().len() == gpu.residents.len()
                });
                instances
                    && milli + gpu.free_milli == WHOLE_MILLI
                    && bytes + gpu.free_memory_bytes == memory
            })
        });
        let mut cpus: Vec<u64> = self.nodes.iter().map(|node| node.free_cpu_milli).collect();
        let mut memories: Vec<u64> = self
            .nodes
            .iter()
            .map(|n| n.free_host_memory_bytes)
            .collect();
        for held in self.jobs.values() {
            for (part, &(cpu_milli, memory_bytes)) in held.parts.iter().zip(&held.hosts) {
                cpus[part.node.index()] += cpu_milli;
                memories[part.node.index()] += memory_bytes;
            }
        }
        let specs = self.inventory.nodes().iter();
        let hosts = specs
            .zip(cpus.iter().zip(&memories))
            .all(|(spec, (&cpu, &memory))| {
                spec.cpu_milli == cpu && spec.host_memory_bytes == memory
            });
        gpus && hosts && self.is_where_it_is_noted()
    }
}

impl View {
    fn is_where_it_is_noted(&self) -> bool {
        let noted = self.jobs.iter().flat_map(|(&job, held)| {
            let slots = held.parts.iter().flat_map(|part| {
                let first = self.inventory.first_gpu(part.node);
                part.slots().map(move |slot| first + slot)
            });
            slots.map(move |gpu| (gpu, job))
        });
        let mut noted: Vec<(usize, JobId)> = noted.collect();
        let there = self.gpus.iter().enumerate().flat_map(|(gpu, state)| {
            state
                .residents
                .iter()
                .map(move |resident| (gpu, resident.job))
        });
        let mut there: Vec<(usize, JobId)> = there.collect();
        noted.sort_unstable();
        there.sort_unstable();
        noted == there
    }
}

/// Two views are equal if the same is free and the same jobs are there.
impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        let free = |nodes: &[NodeState]| -> Vec<(u64, u64)> {
            let free = |node: &NodeState| (node.free_cpu_milli, node.free_host_memory_bytes);
            nodes.iter().map(free).collect()
        };
        self.inventory == other.inventory
            && self.gpus == other.gpus
            && self.jobs == other.jobs
            && free(&self.nodes) == free(&other.nodes)
    }
}

fn mig_of(inventory: &Inventory, spec: &NodeSpec) -> Option<&'static MigModel> {
    inventory.models().get(usize::from(spec.model.0))?.mig
}

fn memory_of(inventory: &Inventory, spec: &NodeSpec) -> u64 {
    let model = inventory.models().get(usize::from(spec.model.0));
    model.map_or(0, |model| model.memory_bytes)
}

fn less(free: u64, taken: u64, job: JobId) -> u64 {
    match free.checked_sub(taken) {
        Some(left) => left,
        None => panic!("job {job:?} takes {taken} of {free} that are free"),
    }
}

/// Inventories have far fewer than 2³² nodes.
pub(crate) fn node_id(index: usize) -> NodeId {
    NodeId(u32::try_from(index).expect("an inventory has fewer than 2^32 nodes"))
}
