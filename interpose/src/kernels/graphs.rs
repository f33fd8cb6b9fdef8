//! The cost of executable graphs: a launch of one is one launch with the sum of its kernels. The
//! sum is made when a graph is instantiated, from the nodes that the driver lists, and read without
//! a lock at each launch. Each node's cost is kept, and the sum in a form from which a node can be
//! subtracted again ([`Totals`]): a change of one node of n takes log n steps, of all nodes n log
//! n. An executable that is not in the table, because it was replaced or its creation was not seen,
//! is launched as an unknown kernel.
//!
//! The table is bounded in executables ([`EXECS_MAX`]) and in nodes ([`ALL_NODES_MAX`]). A new
//! executable that finds no room replaces others that were not launched lately, by CLOCK as in
//! [`crate::platform::memo`]. The driver cannot list the nodes of an executable, so a replaced one
//! stays unknown. For several kernels the SM need is the largest, and the class the one that all
//! share, or else unknown. Kernels that no profile knows are counted apart: each lasts as long as
//! the daemon assumes when the graph is launched. A graph with collective kernels waits at the gate
//! as a whole, like any other. Pairing: an update gives each node of an executable the parameters
//! of its counterpart in another graph. Drivers pair by structure; here nodes are paired in the
//! order in which the driver lists them, the order of their creation. The sum is right whatever the
//! pairs.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError, TryLockError};

use abi::types::{
    CUDA_KERNEL_NODE_PARAMS, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType,
};
use policy::{Class, Kernel};
use protocol::record::EXPECTED_NS_MAX;
use protocol::sync::SeqLock;

use crate::driver;
use crate::kernels::{self, KERNELS, Known, Learnt, Number, Shape, Taken};
use crate::platform::table::Keys;
use crate::process::Client;

pub(crate) static GRAPHS: Graphs = Graphs::new();

/// Places for executables. vLLM keeps some hundred, one per batch size.
const EXECS_MAX: usize = 1 << 14;
/// Most nodes kept of one executable; a larger one is unknown.
const NODES_MAX: usize = 1 << 18;
/// Most nodes kept in all.
const ALL_NODES_MAX: usize = 1 << 21;
/// The greatest number of an executable; these numbers follow those of kernels.
#[cfg(test)]
pub(crate) const NUMBER_MAX: u16 = kernels::NUMBER_MAX + EXECS_MAX as u16;
/// Deepest nesting of child graphs.
const DEPTH_MAX: usize = 16;
/// Most reads of a sum that is changing.
const READS_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The sum of the kernels that the profile knows.
    pub(crate) kernel: Kernel,
    pub(crate) kernels: u64,
    /// Of these, kernels that no profile knows.
    pub(crate) unknown: u64,
    pub(crate) collectives: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphName(pub(crate) u64);

impl fmt::Display for GraphName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA graph of {} kernels", self.0)
    }
}

impl Cost {
    /// An unknown executable: as one unknown kernel that needs every SM.
    pub(crate) const UNKNOWN: Self = Self {
        kernel: Kernel {
            class: Class::Unknown,
            sm_needed: u32::MAX,
            expected_ns: 0,
        },
        kernels: 0,
        unknown: 1,
        collectives: 0,
    };

    /// The cost as announced: profiled only if all is. A graph without kernels takes time, too.
    pub(crate) fn known(&self) -> Known {
        Known {
            id: 0,
            number: Number::default(),
            kernel: Kernel {
                expected_ns: self.kernel.expected_ns.max(1),
                ..self.kernel
            },
            is_profiled: self.unknown == 0,
            is_learnt: false,
            is_collective: false,
        }
    }
}

pub(crate) struct Graphs {
    handles: Keys<EXECS_MAX>,
    sums: [Sum; EXECS_MAX],
    /// Held during every change, never across a driver call.
    details: Mutex<Option<Details>>,
}

struct Sum {
    /// Guards the words below, up to `collectives`.
    version: SeqLock,
    expected_ns: AtomicU64,
    /// SMs in the high half, class in the low one.
    need: AtomicU64,
    kernels: AtomicU64,
    unknown: AtomicU64,
    collectives: AtomicU64,
    /// The observed duration ([`Taken`]).
    taken: AtomicU64,
    /// Whether the executable was launched since an insertion last passed it.
    is_used: AtomicBool,
}

#[derive(Default)]
struct Details {
    execs: HashMap<u64, Exec>,
    nodes: usize,
}

struct Exec {
    parts: Vec<Part>,
    places: HashMap<u64, usize>,
    totals: Totals,
}

/// The joint needs of the enabled kernels, added and subtracted one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Totals {
    /// Expected duration of the profiled ones. Wide, so that additions can be subtracted exactly.
    expected_ns: u128,
    kernels: u64,
    unknown: u64,
    collectives: u64,
    /// Kernels by class, in the order of [`CLASSES`].
    classes: [u64; CLASSES.len()],
    needs: BTreeMap<u32, u64>,
    #[cfg(test)]
    steps: usize,
}

const CLASSES: [Class; 3] = [Class::Compute, Class::Memory, Class::Unknown];

/// A node of an executable. A child graph's nodes follow its node, one level deeper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    node: u64,
    depth: usize,
    kernel: Option<Known>,
    is_enabled: bool,
}

impl Graphs {
    const fn new() -> Self {
        Self {
            handles: Keys::new(),
            sums: [const {
                Sum {
                    version: SeqLock::new(0),
                    expected_ns: AtomicU64::new(0),
                    need: AtomicU64::new(0),
                    kernels: AtomicU64::new(0),
                    unknown: AtomicU64::new(0),
                    collectives: AtomicU64::new(0),
                    taken: AtomicU64::new(0),
                    is_used: AtomicBool::new(false),
                }
            }; EXECS_MAX],
            details: Mutex::new(None),
        }
    }

    /// The cost of a launch, and the launch as one kernel: an observed duration replaces the sum.
    #[inline]
    pub(crate) fn launched(&self, exec: CUgraphExec) -> (Cost, Known) {
        let handle = exec.0.addr() as u64;
        let place = self.handles.find(handle);
        let found = place.and_then(|place| Some((place, self.sums.get(place)?)));
        let Some((place, sum)) = found else {
            return (Cost::UNKNOWN, Cost::UNKNOWN.known());
        };
        let cost = sum.read().unwrap_or(Cost::UNKNOWN);
        let (generation, learnt_ns) = sum.taken().read();
        // Pairs with the Release stores in `SeqLock::finish` and `Taken::begin_generation`: if any
        // value above belongs to another executable, the place is seen to be that one's.
        fence(Ordering::Acquire);
        if !self.handles.is_at(place, handle) {
            return (Cost::UNKNOWN, Cost::UNKNOWN.known());
        }
        if !sum.is_used.load(Ordering::Relaxed) {
            sum.is_used.store(true, Ordering::Relaxed);
        }
        let mut known = cost.known();
        let number = kernels::NUMBER_MAX + 1 + place as u16;
        known.id = kernels::id_of(number, generation);
        known.number = Number {
            place: number,
            generation: generation as u8,
        };
        if learnt_ns != 0 {
            known.kernel.expected_ns = learnt_ns;
            known.is_learnt = true;
        }
        (cost, known)
    }

    #[cfg(test)]
    fn cost(&self, exec: CUgraphExec) -> Cost {
        self.launched(exec).0
    }

    pub(crate) fn learnt(&self, place: u16) -> Option<Learnt<'_>> {
        let place = place.checked_sub(kernels::NUMBER_MAX + 1)?;
        self.sums.get(usize::from(place))?.learnt()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u16, u64, u32, Learnt<'_>)> {
        let used = (0..)
            .zip(&self.sums)
            .filter(|(place, _)| self.handles.key_at(*place).is_some());
        used.filter_map(|(place, sum)| {
            let cost = sum.read()?;
            let number = kernels::NUMBER_MAX + 1 + place as u16;
            Some((number, cost.kernels, cost.kernel.sm_needed, sum.learnt()?))
        })
    }

    /// The numbers of the kernels that a launch runs, 0 for unknown ones. Inner `None`: an unknown
    /// executable. Outer `None`: another thread holds the table, and a launch does not wait here.
    pub(crate) fn try_numbers(&self, exec: CUgraphExec) -> Option<Option<Vec<Number>>> {
        let details = match self.details.try_lock() {
            Ok(details) => details,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let known = details.as_ref();
        let known = known.and_then(|details| details.execs.get(&(exec.0.addr() as u64)));
        Some(known.map(|known| {
            let running = known.parts.iter().filter_map(Part::running);
            running.map(|known| known.number).collect()
        }))
    }

    pub(crate) fn handle_made(&self, exec: CUgraphExec, parts: Option<Vec<Part>>) {
        self.change(exec, |_| parts);
    }

    /// An executable is about to be destroyed. Afterwards the handle may already be reused.
    pub(crate) fn handle_ending(&self, exec: CUgraphExec) {
        self.change(exec, |_| None);
    }

    pub(crate) fn handle_updated(&self, exec: CUgraphExec, new: Option<Vec<Part>>) {
        self.change(exec, |old| {
            let (old, mut new) = (old?, new?);
            pair(&mut new, &old);
            Some(new)
        });
    }

    pub(crate) fn handle_kernel(&self, exec: CUgraphExec, node: CUgraphNode, known: Known) {
        self.change_part(exec, node, |part| part.kernel = Some(known));
    }

    pub(crate) fn handle_enabled(&self, exec: CUgraphExec, node: CUgraphNode, is_enabled: bool) {
        self.change_part(exec, node, |part| part.is_enabled = is_enabled);
    }

    pub(crate) fn handle_child(
        &self,
        exec: CUgraphExec,
        node: CUgraphNode,
        new: Option<Vec<Part>>,
    ) {
        let node = node.0.addr() as u64;
        let mut is_done = false;
        if let Some(new) = &new {
            self.with_details(|details| {
                let known = details.execs.get_mut(&(exec.0.addr() as u64));
                let Some(known) = known else { return };
                is_done = known.try_exchange_child(node, new);
                if is_done {
                    _ = self.publish(exec, Some(&known.totals.cost()));
                }
            });
        }
        if is_done {
            return;
        }
        self.change(exec, |old| {
            let (mut old, mut new) = (old?, new?);
            let at = old.iter().position(|part| part.node == node)?;
            let depth = old.get(at)?.depth;
            let count = inside(&old, at)?;
            new.iter_mut().for_each(|part| part.depth += depth + 1);
            let range = at + 1..at + 1 + count;
            pair(&mut new, old.get(range.clone())?);
            old.splice(range, new);
            Some(old)
        });
    }

    fn change_part(&self, exec: CUgraphExec, node: CUgraphNode, change: impl FnOnce(&mut Part)) {
        let node = node.0.addr() as u64;
        self.with_details(|details| {
            let known = details.execs.get_mut(&(exec.0.addr() as u64));
            let Some(known) = known else { return };
            let place = known.places.get(&node).copied();
            let has_room = known.parts.len() < NODES_MAX;
            match place.and_then(|place| known.parts.get_mut(place)) {
                Some(part) => {
                    known.totals.take(part);
                    change(part);
                    known.totals.add(part);
                }
                // A node that was not listed: add its cost.
                None if has_room => {
                    let mut part = Part {
                        node,
                        depth: 0,
                        kernel: None,
                        is_enabled: true,
                    };
                    change(&mut part);
                    known.totals.add(&part);
                    known.places.insert(node, known.parts.len());
                    known.parts.push(part);
                    details.nodes += 1;
                }
                None => {}
            }
            _ = self.publish(exec, Some(&known.totals.cost()));
        });
    }

    fn change(
        &self,
        exec: CUgraphExec,
        change: impl FnOnce(Option<Vec<Part>>) -> Option<Vec<Part>>,
    ) {
        self.with_details(|details| {
            let handle = exec.0.addr() as u64;
            let old = details.execs.remove(&handle).map(|known| known.parts);
            details.nodes -= old.as_ref().map_or(0, Vec::len);
            let new = change(old).filter(|parts| self.make_room(details, parts.len(), handle));
            let totals = new.as_deref().map(Totals::of);
            let cost = totals.as_ref().map(Totals::cost);
            if let Some(replaced) = self.publish(exec, cost.as_ref()) {
                details.forget(replaced);
            }
            if let Some((parts, totals)) = new.zip(totals) {
                details.nodes += parts.len();
                let places = parts.iter().enumerate();
                let places = places.map(|(place, part)| (part.node, place)).collect();
                let known = Exec {
                    parts,
                    places,
                    totals,
                };
                details.execs.insert(handle, known);
            }
        });
    }

    fn with_details(&self, change: impl FnOnce(&mut Details)) {
        let mut details = self.details.lock().unwrap_or_else(PoisonError::into_inner);
        change(details.get_or_insert_default());
    }

    /// Forgets executables that were not launched lately until there is room for `nodes` more, of
    /// `handle`. Returns whether there is. The search may visit every place; an application that
    /// creates so many nodes has waited longer for the driver.
    fn make_room(&self, details: &mut Details, nodes: usize, handle: u64) -> bool {
        if nodes > ALL_NODES_MAX {
            return false;
        }
        // The second round also removes executables that were launched lately.
        for place in (0..EXECS_MAX).chain(0..EXECS_MAX) {
            if details.nodes + nodes <= ALL_NODES_MAX {
                break;
            }
            if let Some(other) = self.handles.key_at(place)
                && other != handle
                && !self.was_used(place)
            {
                _ = self.handles.remove(other);
                details.forget(other);
            }
        }
        details.nodes + nodes <= ALL_NODES_MAX
    }

    fn was_used(&self, place: usize) -> bool {
        let sum = self.sums.get(place);
        sum.is_some_and(|sum| sum.is_used.swap(false, Ordering::Relaxed))
    }

    /// Publishes or removes a cost, details locked. Returns the executable that it replaces.
    fn publish(&self, exec: CUgraphExec, cost: Option<&Cost>) -> Option<u64> {
        let handle = exec.0.addr() as u64;
        if handle == 0 {
            return None;
        }
        let Some(cost) = cost else {
            _ = self.handles.remove(handle);
            return None;
        };
        if let Some(sum) = self.handles.find(handle).and_then(|at| self.sums.get(at)) {
            if sum.read().is_some_and(|before| before != *cost) {
                // The executable has changed, so its observed duration no longer counts.
                sum.taken().begin_generation();
            }
            sum.write(cost);
            return None;
        }
        let fill = |place: usize| {
            if let Some(sum) = self.sums.get(place) {
                sum.write(cost);
                // The learnt duration was another executable's.
                sum.taken().begin_generation();
                sum.is_used.store(false, Ordering::Relaxed);
            }
        };
        if let Some(place) = self.handles.vacancy(handle) {
            fill(place);
            self.handles.publish(place, handle);
            return None;
        }
        let was_used = |place: usize| self.was_used(place);
        self.handles.replace(handle, was_used, fill)
    }
}

impl Details {
    fn forget(&mut self, handle: u64) {
        let parts = self
            .execs
            .remove(&handle)
            .map_or(0, |exec| exec.parts.len());
        self.nodes -= parts;
    }
}

impl Sum {
    fn write(&self, cost: &Cost) {
        let need = u64::from(cost.kernel.sm_needed) << 32 | u64::from(cost.kernel.class.bits());
        self.version.write(|| {
            self.expected_ns
                .store(cost.kernel.expected_ns, Ordering::Relaxed);
            self.need.store(need, Ordering::Relaxed);
            self.kernels.store(cost.kernels, Ordering::Relaxed);
            self.unknown.store(cost.unknown, Ordering::Relaxed);
            self.collectives.store(cost.collectives, Ordering::Relaxed);
        });
    }

    fn taken(&self) -> Taken<'_> {
        Taken(&self.taken)
    }

    fn learnt(&self) -> Option<Learnt<'_>> {
        let cost = self.read()?;
        Some(Learnt {
            told_ns: cost.kernel.expected_ns,
            unknown: cost.unknown,
            is_classed: cost.kernel.class != Class::Unknown,
            taken: self.taken(),
        })
    }

    #[inline]
    fn read(&self) -> Option<Cost> {
        for _ in 0..READS_MAX {
            if let Some((_, cost)) = self.version.read(|| self.cost()) {
                return Some(cost);
            }
            core::hint::spin_loop();
        }
        None
    }

    /// The words as they are now, perhaps of several versions.
    #[inline]
    fn cost(&self) -> Cost {
        let need = self.need.load(Ordering::Relaxed);
        Cost {
            kernel: Kernel {
                class: Class::from_bits(need as u32 & 0xff),
                sm_needed: (need >> 32) as u32,
                expected_ns: self.expected_ns.load(Ordering::Relaxed),
            },
            kernels: self.kernels.load(Ordering::Relaxed),
            unknown: self.unknown.load(Ordering::Relaxed),
            collectives: self.collectives.load(Ordering::Relaxed),
        }
    }
}

/// A graph's nodes with their costs; `None` if there are too many or the driver does not report it.
pub(crate) fn parts_of(client: &Client, graph: CUgraph) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    add_parts(client, graph, 0, &mut parts)?;
    Some(parts)
}

fn add_parts(client: &Client, graph: CUgraph, depth: usize, parts: &mut Vec<Part>) -> Option<()> {
    if depth > DEPTH_MAX {
        return None;
    }
    let nodes = driver::graph_nodes(graph, NODES_MAX.checked_sub(parts.len())?)?;
    for node in nodes {
        let kind = driver::node_type(node)?;
        let kernel = match kind {
            CUgraphNodeType::KERNEL => Some(known(client, &driver::kernel_node(node)?)),
            // The device decides what these run.
            CUgraphNodeType::CONDITIONAL => Some(Cost::UNKNOWN.known()),
            _ => None,
        };
        parts.push(Part {
            node: node.0.addr() as u64,
            depth,
            kernel,
            is_enabled: true,
        });
        if kind == CUgraphNodeType::GRAPH {
            add_parts(client, driver::child_graph(node)?, depth + 1, parts)?;
        }
    }
    Some(())
}

pub(crate) fn known(client: &Client, params: &CUDA_KERNEL_NODE_PARAMS) -> Known {
    let function = if params.v1.func.is_null() {
        CUfunction(params.kern.0)
    } else {
        params.v1.func
    };
    let shape = Shape {
        grid: params.v1.grid_dim,
        block: params.v1.block_dim,
        shared_bytes: params.v1.shared_mem_bytes,
    };
    KERNELS.look(client, function, &shape)
}

/// How many parts after the child graph node at `at` are inside it.
fn inside(parts: &[Part], at: usize) -> Option<usize> {
    let depth = parts.get(at)?.depth;
    let after = parts.iter().skip(at + 1);
    Some(after.take_while(|part| part.depth > depth).count())
}

/// Gives nodes the identity of their counterparts, if the structure is the same.
fn pair(new: &mut [Part], old: &[Part]) {
    let is_alike = |(new, old): (&Part, &Part)| {
        new.depth == old.depth && new.kernel.is_some() == old.kernel.is_some()
    };
    if new.len() != old.len() || !new.iter().zip(old).all(is_alike) {
        return;
    }
    for (new, old) in new.iter_mut().zip(old) {
        new.node = old.node;
        new.is_enabled = old.is_enabled;
    }
}

impl Exec {
    /// Replaces the nodes of a child graph, in a number of steps that does not depend on other
    /// nodes. False if their number differs (drivers refuse): then sum anew.
    fn try_exchange_child(&mut self, node: u64, new: &[Part]) -> bool {
        let Some(at) = self.places.get(&node).copied() else {
            return false;
        };
        let count = inside(&self.parts, at).filter(|count| *count == new.len());
        let Some((count, depth)) = count.zip(self.parts.get(at).map(|part| part.depth)) else {
            return false;
        };
        let Some(old) = self.parts.get_mut(at + 1..at + 1 + count) else {
            return false;
        };
        let mut new = new.to_vec();
        new.iter_mut().for_each(|part| part.depth += depth + 1);
        pair(&mut new, old);
        for (step, (old, new)) in old.iter_mut().zip(new).enumerate() {
            self.totals.take(old);
            self.totals.add(&new);
            if old.node != new.node {
                self.places.remove(&old.node);
                self.places.insert(new.node, at + 1 + step);
            }
            *old = new;
        }
        true
    }
}

impl Totals {
    fn of(parts: &[Part]) -> Self {
        let mut totals = Self::default();
        parts.iter().for_each(|part| totals.add(part));
        totals
    }

    fn add(&mut self, part: &Part) {
        self.change(part, |count| *count += 1);
        if let Some(known) = part.running().filter(|known| known.unknown() == 0) {
            self.expected_ns += u128::from(known.kernel.expected_ns);
        }
    }

    fn take(&mut self, part: &Part) {
        self.change(part, |count| *count -= 1);
        if let Some(known) = part.running().filter(|known| known.unknown() == 0) {
            self.expected_ns -= u128::from(known.kernel.expected_ns);
        }
    }

    /// Applies `change` to every count that includes the part.
    fn change(&mut self, part: &Part, change: impl Fn(&mut u64)) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let Some(known) = part.running() else { return };
        change(&mut self.kernels);
        if known.unknown() > 0 {
            change(&mut self.unknown);
        }
        if known.is_collective {
            change(&mut self.collectives);
        }
        for (class, count) in CLASSES.iter().zip(&mut self.classes) {
            if *class == known.kernel.class {
                change(count);
            }
        }
        let count = self.needs.entry(known.kernel.sm_needed).or_default();
        change(count);
        if *count == 0 {
            self.needs.remove(&known.kernel.sm_needed);
        }
    }

    fn cost(&self) -> Cost {
        let mut of_all = CLASSES.iter().zip(self.classes);
        let of_all = of_all.find(|(_, count)| *count == self.kernels);
        let expected_ns = self.expected_ns.min(u128::from(EXPECTED_NS_MAX));
        Cost {
            kernel: Kernel {
                class: match of_all {
                    Some((class, _)) if self.kernels > 0 => *class,
                    _ => Class::Unknown,
                },
                sm_needed: self.needs.last_key_value().map_or(0, |(need, _)| *need),
                expected_ns: expected_ns as u64,
            },
            kernels: self.kernels,
            unknown: self.unknown,
            collectives: self.collectives,
        }
    }
}

impl Part {
    fn running(&self) -> Option<&Known> {
        self.kernel.as_ref().filter(|_| self.is_enabled)
    }
}

#[cfg(test)]
mod tests;
