//! Sharing of the compute side: all contexts together (MPS), or one after the other (time slices).
//! In time-slice mode contexts with compute work take turns in the order of their ids. A turn ends
//! with its slice, or at once when the context has nothing that could run. A solo context
//! continues, slice after slice; one that arrives in between waits for the end of the running
//! slice. Interrupted work keeps its progress. A switch to another context than the last takes
//! `context_switch_ns`, in which nothing runs.

use crate::compute::{Compute, ContextUsage, Run, RunId, Usage};
use crate::contention::Demand;
use crate::flat::FlatMap;
use crate::gpu::{Config, Sharing};
use crate::op::{ContextId, StreamId};
use devices::Device;

#[derive(Clone, Debug)]
pub(crate) enum Engine {
    Shared(Box<Compute>),
    Sliced(Box<Sliced>),
}

#[derive(Clone, Debug)]
pub(crate) struct Sliced {
    config: Config,
    pools: FlatMap<ContextId, Compute>,
    turn: Turn,
    /// Demand of copies over the bus.
    copies: Demand,
    clock: f64,
    usage_gone: Usage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// None. The last context to compute can continue without a switch.
    Nobody { last: Option<ContextId> },
    /// One context's state is saved and the next one's restored.
    Switching { to: ContextId, until_ns: u64 },
    /// This context computes. The end is known while another one waits.
    Of {
        context: ContextId,
        since_ns: u64,
        end_ns: Option<u64>,
    },
}

impl Engine {
    pub(crate) fn new(device: &Device, config: &Config) -> Self {
        match config.sharing {
            Sharing::Mps => Self::Shared(Box::new(Compute::new(device, config, false, 0))),
            Sharing::TimeSlice => Self::Sliced(Box::new(Sliced {
                config: *config,
                pools: FlatMap::new(),
                turn: Turn::Nobody { last: None },
                copies: Demand::default(),
                clock: 1.0,
                usage_gone: Usage::default(),
            })),
        }
    }

    pub(crate) fn push(&mut self, now_ns: u64, id: RunId, run: Run, device: &Device) {
        match self {
            Self::Shared(pool) => pool.push(id, run),
            Self::Sliced(sliced) => {
                let (config, copies, clock) = (&sliced.config, sliced.copies, sliced.clock);
                let pool = sliced.pools.get_or_insert_with(run.context, || {
                    let mut pool = Compute::new(device, config, true, now_ns);
                    pool.set_copies(now_ns, copies);
                    pool.set_clock(now_ns, clock);
                    pool
                });
                pool.push(id, run);
            }
        }
    }

    /// Announces a kernel of the context. Until it arrives the context keeps its turn.
    pub(crate) fn expect_more(&mut self, context: ContextId) {
        if let Some(pool) = self.pool_of(context) {
            pool.expect_more();
        }
    }

    pub(crate) fn expect_fewer(&mut self, context: ContextId) {
        if let Some(pool) = self.pool_of(context) {
            pool.expect_fewer();
        }
    }

    pub(crate) fn set_copies(&mut self, now_ns: u64, demand: Demand) {
        match self {
            Self::Shared(pool) => pool.set_copies(now_ns, demand),
            Self::Sliced(sliced) => {
                if sliced.copies != demand {
                    sliced.copies = demand;
                    for pool in sliced.pools.values_mut() {
                        pool.set_copies(now_ns, demand);
                    }
                }
            }
        }
    }

    /// Sets the SM clock, relative to the highest.
    pub(crate) fn set_clock(&mut self, now_ns: u64, relative: f64) {
        match self {
            Self::Shared(pool) => pool.set_clock(now_ns, relative),
            Self::Sliced(sliced) => {
                sliced.clock = relative;
                for pool in sliced.pools.values_mut() {
                    pool.set_clock(now_ns, relative);
                }
            }
        }
    }

    /// The context's own pool, if it has one. In a shared pool, no caller asks whether it is busy.
    fn pool_of(&mut self, context: ContextId) -> Option<&mut Compute> {
        match self {
            Self::Shared(_) => None,
            Self::Sliced(sliced) => sliced.pools.get_mut(&context),
        }
    }

    pub(crate) fn retire(&mut self, now_ns: u64, complete: &mut Vec<Run>) {
        match self {
            Self::Shared(pool) => pool.retire(now_ns, complete),
            Self::Sliced(sliced) => {
                if let Some(pool) = sliced.active() {
                    pool.retire(now_ns, complete);
                }
            }
        }
    }

    pub(crate) fn dispatch(&mut self, now_ns: u64) {
        match self {
            Self::Shared(pool) => pool.dispatch(now_ns),
            Self::Sliced(sliced) => {
                while sliced.take_turns(now_ns) {}
                if let Some(pool) = sliced.active() {
                    pool.dispatch(now_ns);
                }
            }
        }
    }

    pub(crate) fn drop_context(&mut self, now_ns: u64, context: ContextId) {
        match self {
            Self::Shared(pool) => pool.drop_context(now_ns, context),
            Self::Sliced(sliced) => {
                if let Some(pool) = sliced.pools.remove(&context) {
                    sliced.usage_gone = sum(sliced.usage_gone, pool.usage(now_ns));
                }
            }
        }
    }

    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        match self {
            Self::Shared(pool) => pool.next_event_ns(),
            Self::Sliced(sliced) => sliced.next_event_ns(),
        }
    }

    pub(crate) fn usage(&self, now_ns: u64) -> Usage {
        match self {
            Self::Shared(pool) => pool.usage(now_ns),
            Self::Sliced(sliced) => {
                let pools = sliced.pools.values().map(|pool| pool.usage(now_ns));
                pools.fold(sliced.usage_gone, sum)
            }
        }
    }

    pub(crate) fn usage_of(&self, now_ns: u64, context: ContextId) -> ContextUsage {
        let pool = match self {
            Self::Shared(pool) => Some(&**pool),
            Self::Sliced(sliced) => sliced.pools.get(&context),
        };
        pool.map_or_else(ContextUsage::default, |pool| pool.usage_of(now_ns, context))
    }

    pub(crate) fn streams(&self) -> Vec<StreamId> {
        match self {
            Self::Shared(pool) => pool.streams().collect(),
            Self::Sliced(sliced) => sliced.pools.values().flat_map(Compute::streams).collect(),
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Shared(pool) => pool.is_valid(),
            Self::Sliced(sliced) => sliced.is_valid(),
        }
    }
}

impl Sliced {
    /// One step of the turns; returns whether another may follow at the same instant.
    fn take_turns(&mut self, now_ns: u64) -> bool {
        let next = match self.turn {
            Turn::Nobody { last } => self.turn_after(now_ns, last),
            Turn::Switching { to, .. } if !self.is_busy(to) => Turn::Nobody { last: None },
            Turn::Switching { until_ns, .. } if now_ns < until_ns => self.turn,
            Turn::Switching { to, .. } => Turn::Of {
                context: to,
                since_ns: now_ns,
                end_ns: None,
            },
            Turn::Of { context, .. } if !self.is_busy(context) => Turn::Nobody {
                last: Some(context),
            },
            Turn::Of {
                context,
                since_ns,
                end_ns,
            } if self.others_are_busy(context) => {
                let end_ns = end_ns.unwrap_or_else(|| self.slice_end_ns(since_ns, now_ns));
                if end_ns <= now_ns {
                    self.turn_after(now_ns, Some(context))
                } else {
                    Turn::Of {
                        context,
                        since_ns,
                        end_ns: Some(end_ns),
                    }
                }
            }
            Turn::Of {
                context, since_ns, ..
            } => Turn::Of {
                context,
                since_ns,
                end_ns: None,
            },
        };
        let changed = next != self.turn;
        self.change_turn(now_ns, next);
        changed
    }

    fn change_turn(&mut self, now_ns: u64, next: Turn) {
        let (old, new) = (self.turn.context(), next.context());
        self.turn = next;
        if old == new {
            return;
        }
        if let Some(pool) = old.and_then(|context| self.pools.get_mut(&context)) {
            pool.pause(now_ns);
        }
        if let Some(pool) = new.and_then(|context| self.pools.get_mut(&context)) {
            pool.resume(now_ns);
        }
    }

    /// The turn of the next context with work, cyclically after `last`, with `last` itself last.
    fn turn_after(&self, now_ns: u64, last: Option<ContextId>) -> Turn {
        let busy = || {
            self.pools
                .iter()
                .filter(|(_, pool)| pool.is_busy())
                .map(|(&id, _)| id)
        };
        let next = busy().find(|&id| Some(id) > last).or_else(|| busy().next());
        match next {
            None => Turn::Nobody { last },
            Some(to) if Some(to) == last || self.config.context_switch_ns == 0 => Turn::Of {
                context: to,
                since_ns: now_ns,
                end_ns: None,
            },
            Some(to) => {
                let until_ns = now_ns.saturating_add(self.config.context_switch_ns);
                Turn::Switching { to, until_ns }
            }
        }
    }

    /// The first slice boundary after `since_ns` that is not before `now_ns`.
    fn slice_end_ns(&self, since_ns: u64, now_ns: u64) -> u64 {
        let slice_ns = self.config.slice_ns.max(1);
        let slices = (now_ns - since_ns).div_ceil(slice_ns).max(1);
        since_ns.saturating_add(slices.saturating_mul(slice_ns))
    }

    fn next_event_ns(&self) -> Option<u64> {
        match self.turn {
            Turn::Nobody { .. } => None,
            Turn::Switching { until_ns, .. } => Some(until_ns),
            Turn::Of {
                context, end_ns, ..
            } => {
                let work_ns = self.pools.get(&context).and_then(Compute::next_event_ns);
                work_ns.into_iter().chain(end_ns).min()
            }
        }
    }

    fn active(&mut self) -> Option<&mut Compute> {
        self.pools.get_mut(&self.turn.context()?)
    }

    fn is_busy(&self, context: ContextId) -> bool {
        self.pools.get(&context).is_some_and(Compute::is_busy)
    }

    fn others_are_busy(&self, context: ContextId) -> bool {
        self.pools
            .iter()
            .any(|(&id, pool)| id != context && pool.is_busy())
    }

    fn is_valid(&self) -> bool {
        let mut running = self.pools.iter().filter(|(_, pool)| !pool.is_paused());
        let running_are_active = running.all(|(&id, _)| self.turn.context() == Some(id));
        running_are_active && self.pools.values().all(Compute::is_valid)
    }
}

impl Turn {
    fn context(self) -> Option<ContextId> {
        match self {
            Self::Of { context, .. } => Some(context),
            Self::Nobody { .. } | Self::Switching { .. } => None,
        }
    }
}

fn sum(a: Usage, b: Usage) -> Usage {
    Usage {
        busy_ns: a.busy_ns + b.busy_ns,
        busy_sm_ns: a.busy_sm_ns + b.busy_sm_ns,
        compute_q32_ns: a.compute_q32_ns + b.compute_q32_ns,
        bandwidth_q32_ns: a.bandwidth_q32_ns + b.bandwidth_q32_ns,
    }
}
