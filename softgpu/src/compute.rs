//! The compute side: kernels and their cohorts of blocks on one pool of SMs (in time slices one per
//! context, one runs), and fills and copies inside device memory, which take bandwidth but no SM.
//! Everything that runs here advances its *work* at one rate, 1 ÷ slowdown (`contention`). The pool
//! therefore keeps one counter of the work done since its creation; a cohort stores the value of
//! that counter at which it ends. A change of rate touches no cohort. Work has 32 fractional bits.
//! The counter is anchored at the last change of rate, never at a reading of the clock, so the time
//! of an end does not depend on how often the caller polls. Ends are rounded up to nanoseconds.

use crate::contention::{Contention, Demand, Load};
use crate::flat::{FlatMap, FlatSet};
use crate::governor::rate_at;
use crate::gpu::{Config, Dispatch};
use crate::kernel::{Footprint, KernelShape};
use crate::op::{ContextId, StreamId};
use crate::sm_pool::{Placement, SmPool, SmSet};
use devices::Device;

#[derive(Clone, Debug)]
pub(crate) struct Compute {
    sms: SmPool,
    dispatch: Dispatch,
    contention: Contention,
    runs: FlatMap<RunId, Run>,
    /// Kernels with blocks that wait for room, in the order of service.
    ready: FlatSet<(i32, RunId)>,
    cohorts: FlatMap<(u128, CohortId), Cohort>,
    cohort_next: CohortId,
    load: Load,
    /// Demand of copies over the bus, which are no cohorts: the bus sets their pace.
    copies: Demand,
    /// SM clock, relative to the highest.
    clock: f64,
    /// Kernels announced but not pushed yet: the pool counts as busy.
    expected: u64,
    /// Work per time; 0 while another context has the GPU.
    rate_q32: u64,
    paused: bool,
    anchor_ns: u64,
    work_q32: u128,
    usage: Usage,
    shares: FlatMap<ContextId, Share>,
    /// The last load whose rate was computed, and the rate.
    known_rate: (Load, Demand, u64),
    /// When the next cohort ends at this rate; see [`Self::next_event_ns`].
    event_ns: Option<u64>,
    /// The place of a wave that has just ended while its kernel has more blocks: kept until the
    /// next dispatch of the same instant, where the next wave usually takes it.
    freed: Option<Freed>,
    full: Vec<(i32, RunId)>,
}

/// One context's part of the running work, and of past work.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Its cohorts; it is busy while there are any.
    cohorts: u64,
    /// Sum of their bandwidth.
    bandwidth_q32: u64,
    usage: ContextUsage,
}

/// One context's integrals over time; see [`crate::ContextUtilisation`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ContextUsage {
    pub(crate) busy_ns: u64,
    pub(crate) busy_sm_ns: u64,
    pub(crate) bandwidth_q32_ns: u128,
}

/// Order of arrival at the head of a stream, over the whole GPU.
pub(crate) type RunId = u64;
type CohortId = u64;

/// A kernel prepared for the pool, computed once for all its launches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    footprint: Footprint,
    block_work_q32: u128,
    demand: Demand,
    resident: u64,
    total: u64,
}

/// SMs from the first number to the second, exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmRange(pub(crate) u32, pub(crate) u32);

pub(crate) const ALL_SMS: SmRange = SmRange(0, u32::MAX);

impl SmRange {
    fn and(self, other: Self) -> Self {
        let first = self.0.max(other.0);
        Self(first, self.1.min(other.1).max(first))
    }

    /// The rest after removing a range that begins or ends where the device does.
    fn without(self, used: Self) -> Self {
        match used.0 <= self.0 {
            true => Self(self.0.max(used.1), self.1),
            false => Self(self.0, self.1.min(used.0)),
        }
    }

    fn is_empty(self) -> bool {
        self.0 >= self.1
    }
}

/// A kernel, fill or copy at the head of its stream.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) context: ContextId,
    pub(crate) stream: StreamId,
    /// When its first block started. Only a run that has started can finish.
    pub(crate) started_ns: Option<u64>,
    /// Its place among waiting kernels; lower first.
    rank: i32,
    /// The SMs for its blocks: [`ALL_SMS`], unless its context has a limit.
    sms: SmRange,
    /// `None` for a fill or a copy, which takes no SM.
    footprint: Option<Footprint>,
    block_work_q32: u128,
    /// Demand of `resident` blocks.
    demand: Demand,
    resident: u64,
    pending: u64,
    running: u64,
    ended: u64,
    total: u64,
}

#[derive(Clone, Debug)]
struct Cohort {
    run: RunId,
    context: ContextId,
    sms: SmSet,
    blocks: u64,
    demand: Demand,
    placement: Placement,
}

#[derive(Clone, Debug)]
struct Freed {
    run: RunId,
    blocks: u64,
    footprint: Footprint,
    placement: Placement,
}

/// Integrals over time; see [`crate::Utilisation`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) busy_ns: u64,
    pub(crate) busy_sm_ns: u64,
    pub(crate) compute_q32_ns: u128,
    pub(crate) bandwidth_q32_ns: u128,
}

impl Prepared {
    /// The kernel must have passed the check against the device.
    pub(crate) fn new(shape: &KernelShape, device: &Device) -> Self {
        Self {
            footprint: shape.footprint(device),
            block_work_q32: u128::from(shape.block_ns) << 32,
            demand: Demand::new(shape.compute_demand, shape.bandwidth_demand),
            resident: shape.resident_blocks_max(device),
            total: shape.grid_blocks,
        }
    }
}

impl Run {
    pub(crate) fn kernel(
        context: ContextId,
        stream: StreamId,
        kernel: &Prepared,
        (rank, sms): (i32, SmRange),
    ) -> Self {
        Self {
            context,
            stream,
            started_ns: None,
            rank,
            sms,
            footprint: Some(kernel.footprint),
            block_work_q32: kernel.block_work_q32,
            demand: kernel.demand,
            resident: kernel.resident,
            pending: kernel.total,
            running: 0,
            ended: 0,
            total: kernel.total,
        }
    }

    /// A fill or a copy that moves so many bytes to or from device memory, at its full bandwidth.
    pub(crate) fn memory(
        context: ContextId,
        stream: StreamId,
        moved_bytes: u64,
        device: &Device,
    ) -> Self {
        let transfer_ns = moved_bytes.div_ceil(u64::from(device.bandwidth_gb_s.max(1)));
        Self {
            context,
            stream,
            started_ns: None,
            // It takes no room, so it never waits behind a kernel that does.
            rank: i32::MIN,
            sms: ALL_SMS,
            footprint: None,
            block_work_q32: u128::from(MEMORY_LATENCY_NS.saturating_add(transfer_ns)) << 32,
            demand: Demand::new(0.0, 1.0),
            resident: 1,
            pending: 1,
            running: 0,
            ended: 0,
            total: 1,
        }
    }

    fn is_complete(&self) -> bool {
        self.ended == self.total
    }
}

impl Compute {
    /// An idle pool. A paused pool accepts work but does none.
    pub(crate) fn new(device: &Device, config: &Config, paused: bool, now_ns: u64) -> Self {
        Self {
            sms: SmPool::new(device),
            dispatch: config.dispatch,
            contention: config.contention,
            runs: FlatMap::new(),
            ready: FlatSet::new(),
            cohorts: FlatMap::new(),
            cohort_next: 0,
            load: Load::default(),
            copies: Demand::default(),
            clock: 1.0,
            expected: 0,
            rate_q32: if paused {
                0
            } else {
                Demand::default().rate_q32()
            },
            paused,
            anchor_ns: now_ns,
            work_q32: 0,
            usage: Usage::default(),
            shares: FlatMap::new(),
            known_rate: (
                Load::default(),
                Demand::default(),
                Demand::default().rate_q32(),
            ),
            event_ns: None,
            full: Vec::new(),
            freed: None,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.runs.is_empty() || self.expected > 0
    }

    pub(crate) fn expect_more(&mut self) {
        self.expected += 1;
    }

    pub(crate) fn expect_fewer(&mut self) {
        self.expected -= 1;
    }

    pub(crate) fn set_copies(&mut self, now_ns: u64, demand: Demand) {
        if self.copies != demand {
            self.settle_work(now_ns);
            self.copies = demand;
            self.set_rate();
        }
    }

    pub(crate) fn set_clock(&mut self, now_ns: u64, relative: f64) {
        if self.clock != relative {
            self.settle_work(now_ns);
            self.clock = relative;
            self.find_rate();
            self.set_rate();
        }
    }

    /// Whether another context has the GPU.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn push(&mut self, id: RunId, run: Run) {
        self.ready.insert((run.rank, id));
        self.load.add_kernel(run.demand);
        let earlier = self.runs.insert(id, run);
        assert!(earlier.is_none(), "arrival numbers are unique");
    }

    /// Ends the cohorts whose work is done; appends the completed runs.
    pub(crate) fn retire(&mut self, now_ns: u64, complete: &mut Vec<Run>) {
        let done_q32 = self.work_at(now_ns);
        if self
            .cohorts
            .first()
            .is_none_or(|(&(end_q32, _), _)| end_q32 > done_q32)
        {
            return;
        }
        self.settle_work(now_ns);
        let mut is_first = true;
        while let Some((&(end_q32, _), _)) = self.cohorts.first()
            && end_q32 <= done_q32
            && let Some((_, cohort)) = self.cohorts.pop_first()
        {
            let next = self.cohorts.first();
            let is_only = is_first && next.is_none_or(|(&(end_q32, _), _)| end_q32 > done_q32);
            is_first = false;
            let id = cohort.run;
            let run = self.runs.get_mut(&id).expect("a run outlives its cohorts");
            run.running -= cohort.blocks;
            run.ended += cohort.blocks;
            let is_complete = run.is_complete();
            self.free(cohort, is_only);
            if is_complete && let Some(run) = self.runs.remove(&id) {
                self.load.remove_kernel(run.demand);
                complete.push(run);
            }
        }
        self.set_rate();
    }

    pub(crate) fn dispatch(&mut self, now_ns: u64) {
        let freed = self.freed.take();
        if self.paused || self.ready.is_empty() {
            self.release(freed);
            return;
        }
        let mut next_wave = self.keep_for_next_wave(freed);
        self.settle_work(now_ns);
        let mut full = std::mem::take(&mut self.full);
        let mut open = ALL_SMS;
        for &(rank, id) in self.ready.iter() {
            let run = self.runs.get_mut(&id).expect("a ready kernel is a run");
            let placed = match &run.footprint {
                Some(footprint) => next_wave.take().or_else(|| {
                    let sms = run.sms.and(open);
                    self.sms.try_place(footprint, run.pending, sms.0..sms.1)
                }),
                None => Some((1, Placement::new())),
            };
            if let Some((blocks, placement)) = placed {
                run.pending -= blocks;
                run.running += blocks;
                run.started_ns.get_or_insert(now_ns);
                let demand = run.demand.share(blocks, run.resident);
                self.load.demand = self.load.demand.plus(demand);
                let share = self.shares.get_or_insert_with(run.context, Share::default);
                share.cohorts += 1;
                share.bandwidth_q32 += demand.bandwidth_q32;
                let key = (self.work_q32 + run.block_work_q32, self.cohort_next);
                self.cohorts.insert(
                    key,
                    Cohort {
                        run: id,
                        context: run.context,
                        sms: SmSet::of(&placement),
                        blocks,
                        demand,
                        placement,
                    },
                );
                self.cohort_next += 1;
            }
            if run.pending == 0 {
                full.push((rank, id));
            } else if self.dispatch == Dispatch::HeadOfLine {
                // Kernels behind it may use the SMs that it may not.
                open = open.without(run.sms);
                if open.is_empty() {
                    break;
                }
            }
        }
        for key in full.drain(..) {
            self.ready.remove(&key);
        }
        self.full = full;
        self.set_rate();
    }

    /// A wave's freed place, for the kernel's next wave if that takes all of it. It does if the
    /// kernel is the first in order: every dispatch places as many of its blocks as fit.
    fn keep_for_next_wave(&mut self, freed: Option<Freed>) -> Option<(u64, Placement)> {
        let freed = freed?;
        let first = self.ready.first().and_then(|(_, id)| self.runs.get(id));
        let is_first = self.ready.first().is_some_and(|&(_, id)| id == freed.run);
        if is_first && first.is_some_and(|run| run.pending >= freed.blocks) {
            return Some((freed.blocks, freed.placement));
        }
        self.release(Some(freed));
        None
    }

    fn release(&mut self, freed: Option<Freed>) {
        if let Some(freed) = freed {
            self.sms.release(&freed.footprint, freed.placement);
        }
    }

    /// Another context gets the GPU: running work keeps its progress and its place.
    pub(crate) fn pause(&mut self, now_ns: u64) {
        let freed = self.freed.take();
        self.release(freed);
        self.settle_work(now_ns);
        self.paused = true;
        self.set_rate();
    }

    pub(crate) fn resume(&mut self, now_ns: u64) {
        self.settle_work(now_ns);
        self.paused = false;
        self.set_rate();
    }

    /// Drops all work of a context. Its blocks' resources are free at once.
    pub(crate) fn drop_context(&mut self, now_ns: u64, context: ContextId) {
        self.settle_work(now_ns);
        let dead: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.context == context)
            .map(|(&id, _)| id)
            .collect();
        for id in dead {
            let keys: Vec<_> = self
                .cohorts
                .iter()
                .filter(|(_, c)| c.run == id)
                .map(|(&key, _)| key)
                .collect();
            for key in keys {
                let cohort = self.cohorts.remove(&key).expect("the key was just listed");
                self.free(cohort, false);
            }
            let run = self.runs.remove(&id).expect("the id was just listed");
            self.load.remove_kernel(run.demand);
            self.ready.remove(&(run.rank, id));
        }
        self.shares.remove(&context);
        self.set_rate();
    }

    /// When the next cohort ends, unless something changes before.
    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        self.event_ns
    }

    /// Computes [`Self::next_event_ns`]. Valid until rate or cohorts change.
    fn find_event_ns(&self) -> Option<u64> {
        let (&(end_q32, _), _) = self.cohorts.first()?;
        if self.paused {
            return None;
        }
        let left_q32 = end_q32.saturating_sub(self.work_q32);
        let left_ns = match u64::try_from(left_q32) {
            // The usual case: up to 4 s of work. A 64-bit division is several times faster.
            Ok(left_q32) => left_q32.div_ceil(self.rate_q32),
            Err(_) => {
                let left_ns = left_q32.div_ceil(u128::from(self.rate_q32));
                u64::try_from(left_ns).unwrap_or(u64::MAX)
            }
        };
        Some(self.anchor_ns.saturating_add(left_ns))
    }

    pub(crate) fn usage(&self, now_ns: u64) -> Usage {
        let mut usage = self.usage;
        if self.paused || self.cohorts.is_empty() {
            return usage;
        }
        let time_ns = now_ns - self.anchor_ns;
        usage.busy_ns += time_ns;
        usage.busy_sm_ns += time_ns * u64::from(self.sms.sms_busy());
        usage.compute_q32_ns += self.achieved_q32_ns(self.load.demand.compute_q32, time_ns);
        usage.bandwidth_q32_ns += self.achieved_q32_ns(self.load.demand.bandwidth_q32, time_ns);
        usage
    }

    pub(crate) fn usage_of(&self, now_ns: u64, context: ContextId) -> ContextUsage {
        let share = self.shares.get(&context).copied().unwrap_or_default();
        self.usage_with(context, share, now_ns)
    }

    fn usage_with(&self, context: ContextId, share: Share, now_ns: u64) -> ContextUsage {
        let mut usage = share.usage;
        if self.paused || share.cohorts == 0 {
            return usage;
        }
        let time_ns = now_ns - self.anchor_ns;
        usage.busy_ns += time_ns;
        usage.busy_sm_ns += time_ns * u64::from(self.sms_of(context));
        usage.bandwidth_q32_ns += self.achieved_q32_ns(share.bandwidth_q32, time_ns);
        usage
    }

    fn sms_of(&self, context: ContextId) -> u32 {
        let mut sms = SmSet::default();
        for cohort in self.cohorts.values().filter(|c| c.context == context) {
            sms.add(cohort.sms);
        }
        sms.count()
    }

    /// Achieved use: demand ÷ slowdown.
    fn achieved_q32_ns(&self, demand_q32: u64, time_ns: u64) -> u128 {
        ((u128::from(demand_q32) * u128::from(self.rate_q32)) >> 32) * u128::from(time_ns)
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.runs.values().map(|run| run.stream)
    }

    /// Whether the invariants hold: sums equal the sums of their parts, no block is lost or counted
    /// twice, a kernel is ready exactly while blocks of it wait.
    pub(crate) fn is_valid(&self) -> bool {
        let mut load = Load::default();
        for cohort in self.cohorts.values() {
            load.demand = load.demand.plus(cohort.demand);
        }
        for run in self.runs.values() {
            load.add_kernel(run.demand);
        }
        let mut running: FlatMap<RunId, u64> = FlatMap::new();
        let mut shares: FlatMap<ContextId, (u64, u64)> = FlatMap::new();
        for cohort in self.cohorts.values() {
            *running.get_or_insert_with(cohort.run, || 0) += cohort.blocks;
            if let Some(run) = self.runs.get(&cohort.run) {
                let share = shares.get_or_insert_with(run.context, Default::default);
                share.0 += 1;
                share.1 += cohort.demand.bandwidth_q32;
            }
        }
        let shares_are_sums = self.shares.iter().all(|(context, share)| {
            shares.remove(context).unwrap_or_default() == (share.cohorts, share.bandwidth_q32)
        }) && shares.is_empty();
        let placements = self
            .cohorts
            .values()
            .filter_map(|c| Some((self.runs.get(&c.run)?.footprint.as_ref()?, &c.placement)));
        let runs_are_valid = self.runs.iter().all(|(id, run)| {
            run.pending + run.running + run.ended == run.total
                && run.running == running.get(id).copied().unwrap_or(0)
                && !run.is_complete()
                && self.ready.contains(&(run.rank, *id)) == (run.pending > 0)
                && run.started_ns.is_some() == (run.pending < run.total)
        });
        let rate_q32 = if self.paused {
            0
        } else {
            let rate_q32 = load.rate_q32(&self.contention, self.copies);
            rate_at(rate_q32, load.demand.plus(self.copies), self.clock)
        };
        load == self.load
            && rate_q32 == self.rate_q32
            && self.sms.is_valid(placements)
            && running.iter().all(|(id, _)| self.runs.contains_key(id))
            && self.event_ns == self.find_event_ns()
            && self.freed.is_none()
            && self.ready.len() == self.runs.values().filter(|run| run.pending > 0).count()
            && runs_are_valid
            && shares_are_sums
    }

    /// Removes a cohort. `is_only`: nothing else ends at this instant.
    fn free(&mut self, cohort: Cohort, is_only: bool) {
        self.load.demand = self.load.demand.minus(cohort.demand);
        let run = self.runs.get(&cohort.run);
        let run = run.expect("a run outlives its cohorts");
        let share = self.shares.get_mut(&run.context);
        let share = share.expect("a context that has cohorts has a share");
        share.cohorts -= 1;
        share.bandwidth_q32 -= cohort.demand.bandwidth_q32;
        let Some(footprint) = run.footprint else {
            return;
        };
        if is_only && run.pending >= cohort.blocks {
            self.freed = Some(Freed {
                run: cohort.run,
                blocks: cohort.blocks,
                footprint,
                placement: cohort.placement,
            });
        } else {
            self.sms.release(&footprint, cohort.placement);
        }
    }

    fn work_at(&self, now_ns: u64) -> u128 {
        self.work_q32 + u128::from(now_ns - self.anchor_ns) * u128::from(self.rate_q32)
    }

    /// Moves the anchor. Called only before a change of the rate, and before each one.
    fn settle_work(&mut self, now_ns: u64) {
        if now_ns == self.anchor_ns {
            return;
        }
        self.usage = self.usage(now_ns);
        let mut shares = std::mem::take(&mut self.shares);
        for (&context, share) in shares.iter_mut() {
            share.usage = self.usage_with(context, *share, now_ns);
        }
        self.shares = shares;
        self.work_q32 = self.work_at(now_ns);
        self.anchor_ns = now_ns;
    }

    fn find_rate(&mut self) {
        let rate_q32 = self.load.rate_q32(&self.contention, self.copies);
        let asked = self.load.demand.plus(self.copies);
        let rate_q32 = rate_at(rate_q32, asked, self.clock);
        self.known_rate = (self.load, self.copies, rate_q32);
    }

    fn set_rate(&mut self) {
        self.rate_q32 = if self.paused {
            0
        } else {
            if (self.load, self.copies) != (self.known_rate.0, self.known_rate.1) {
                self.find_rate();
            }
            self.known_rate.2
        };
        self.event_ns = self.find_event_ns();
    }
}

/// In a V100 ResNet-50 profile (PyTorch profiler, 2021) a memset of 128 kB takes 1 µs, and one of
/// 9.4 MB 10 µs, the peak bandwidth.
const MEMORY_LATENCY_NS: u64 = 1_000;
