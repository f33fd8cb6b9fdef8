//! `oracle`: what a clairvoyant scheduler could give best-effort jobs. Simulator only. It knows the
//! arrival of every high-priority request, every launch of every trace, and the device as exactly
//! as the simulator does, and it keeps a promise: **no high-priority request ends later than solo
//! by more than 1 % of its solo latency** ([`OracleParams::loss_pct`]). Within that it packs
//! best-effort kernels into idle time and beside kernels that they suit. Its result is a reference:
//! not the optimum, which would be a search over all schedules, but the gain *with* the promise,
//! which only a clairvoyant scheduler can make.
//!
//! # The promise
//! Solo, request r starts at s(r) = max(arrival a(r), e(r−1)) and ends at e(r) ([`Plan`]); late by
//! ```text
//! own(r)   = 1 % of (e(r) − a(r))
//! late(r)  = min(own(r), late(r+1) + max(0, a(r+1) − e(r)))
//! ```
//! because r+1 starts late by as much as r ends late, unless there is a pause between. A closed
//! loop's next request arrives when the last one ends, so that there late(r) = own(r). *The lag* is
//! by how much the request will end late without further disturbance: its delay against the plan,
//! less its remaining pauses, in which the device waits for the host's next launch.
//!
//! # Each decision
//! An HP launch goes at once. A BE launch goes iff it keeps the promise and is worth its price:
//! 1. No HP work is in flight, and all BE work and this kernel, one after another with the device's
//!    gaps between them and half as long again, ends before HP's next request: it goes.
//! 2. Else the future is simulated on a copy of the device ([`ahead`]), with all work in flight,
//!    this kernel and coming HP launches, until no BE work is left and HP has completed one more
//!    kernel. From then on the lag cannot grow. If a request would end too late, the kernel stays.
//! 3. Its addition to the lag must be worth it: at most *price* × its duration. The lag is the
//!    whole budget, so the price is [`PACE`] times the unspent part, over HP's remaining time in
//!    this request: a kernel without cost always goes, a dear one only towards the end. Before a
//!    request, the time until it arrives is lost if nothing runs, and the price is [`PRICE_IDLE`].
//!
//! A kernel that HP has just made room for goes after HP's next has started, so that it takes the
//! rest and not the other way round. A BE client has few kernels in flight ([`AHEAD_NS`]), since
//! they cannot be recalled; but its thread runs ahead as far as it would alone, into a software
//! queue as long as the driver's, so that the host's time between launches costs nothing. With
//! several clients, each decision begins with the client after the one served last.
//!
//! # What it does not bound
//! The promise is for *every* request, and each decision is made once, for one kernel, at a price.
//! Others promise nothing and are judged at their 99th percentile, so that one may rank above it.
//! Beside training, with 25 requests of Orion's BERT and a launch every 30 µs, `temporal` let 1 or
//! 2 of them take more than 1 % longer, `orion-code` 1 to 4 (worst 1.024), the oracle none (1.010).
//! At most one high-priority job; only sharing MPS; copies go by themselves, so that best-effort
//! jobs with many copies may break the promise.

mod ahead;
mod plan;

use std::collections::VecDeque;

use softgpu::Op;

use crate::error::Error;
use crate::experiment::Experiment;
use crate::host::HostModel;
use crate::job::JobClass;
use crate::program::{Program, Step};
use crate::scheduler::{ClientId, Issue, Launch, Placement, Scheduler, State};

use super::thread::Thread;
use ahead::{Ahead, UnderWay};
pub(super) use plan::Plan;

/// The numbers of `oracle`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OracleParams {
    /// By how much a high-priority request may take longer than solo, in per cent.
    pub loss_pct: f64,
}

impl Default for OracleParams {
    fn default() -> Self {
        Self { loss_pct: 1.0 }
    }
}

/// The factor on the fair price, which spreads the budget over the rest of a request.
const PACE: f64 = 3.0;

/// Lag for each ns that would be idle otherwise.
const PRICE_IDLE: f64 = 0.2;

/// A BE client has at most two kernels in flight, more only while they and their gaps are shorter
/// than this: then the host's gap between launches (5 µs) never idles the device.
const AHEAD_NS: u64 = 100_000;

/// A margin for rule 1: contention makes several kernels at once up to a quarter slower than one
/// after another, and a launch takes a few µs to the device.
const IDLE_MARGIN_NS: u64 = 50_000;

pub(super) struct Oracle {
    host: HostModel,
    device_gap_ns: u64,
    clients: Vec<Client>,
    hp: Option<Hp>,
    be: Vec<ClientId>,
    last: usize,
    under_way: VecDeque<UnderWay>,
    is_stirred: bool,
    wake_ns: Option<u64>,
}

struct Client {
    program: Program,
    is_hp: bool,
}

struct Hp {
    id: ClientId,
    plan: Plan,
    thread: Thread,
    /// Its lag; while BE work is in flight, its lag after that.
    lag_ns: u64,
    next_lag_ns: u64,
}

impl Oracle {
    pub(super) fn new(params: OracleParams, experiment: &Experiment) -> Result<Self, Error> {
        let mut clients = Vec::new();
        let mut be = Vec::new();
        let mut hp: Option<Hp> = None;
        for (index, job) in experiment.jobs.iter().enumerate() {
            let program = Program::new(job, &experiment.device)?;
            let is_hp = job.class == JobClass::HighPriority;
            if !is_hp {
                be.push(ClientId(index));
            } else {
                hp = Some(Hp {
                    id: ClientId(index),
                    plan: Plan::new(experiment, index, &program, params.loss_pct),
                    thread: Thread::default(),
                    lag_ns: 0,
                    next_lag_ns: 0,
                });
            }
            clients.push(Client { program, is_hp });
        }
        Ok(Self {
            host: hp
                .as_ref()
                .map_or(experiment.host, |hp| experiment.host_of(hp.id.0)),
            device_gap_ns: experiment.gpu.launch_gap_ns,
            clients,
            hp,
            last: be.len().saturating_sub(1),
            be,
            under_way: VecDeque::new(),
            is_stirred: true,
            wake_ns: None,
        })
    }

    fn may_run_ahead(&self, state: &State<'_>, client: ClientId) -> bool {
        state.clients[client.0].in_flight < 2 || self.in_flight_ns(state, client) < AHEAD_NS
    }

    /// One kernel after another, with the gaps between them: the greater part for short kernels.
    fn in_flight_ns(&self, state: &State<'_>, client: ClientId) -> u64 {
        let client = &state.clients[client.0];
        let gaps_ns = u64::from(client.in_flight).saturating_mul(self.device_gap_ns);
        client.in_flight_ns.saturating_add(gaps_ns)
    }

    fn try_issue(&mut self, now_ns: u64, state: &State<'_>, launch: &Launch) -> bool {
        let stream = state.clients[launch.client.0].stream;
        let op = self.op(launch);
        let each_in_flight_ns = self.be.iter().map(|be| self.in_flight_ns(state, *be));
        let in_flight_ns: u64 = each_in_flight_ns.sum();
        let Some(hp) = &mut self.hp else {
            return true;
        };
        let work_ns = launch.kernel.expected_ns;
        let next_ns = hp.next_start_ns();
        if !hp.thread.in_request {
            let busy_ns = in_flight_ns.saturating_add(work_ns);
            let over_ns = now_ns
                .saturating_add(busy_ns + busy_ns / 2)
                .saturating_add(IDLE_MARGIN_NS);
            if over_ns <= next_ns {
                return true;
            }
        }
        let before_ns = match hp.thread.in_request {
            true => hp.lag_ns,
            false => hp.next_lag_ns,
        };
        let candidate = UnderWay {
            at_ns: now_ns.saturating_add(self.host.launch_latency_ns),
            client: launch.client,
            stream,
            op,
        };
        let ahead = Ahead::new(
            &hp.plan,
            &self.host,
            state,
            hp.id,
            &hp.thread,
            &self.under_way,
            candidate,
        );
        let price_ns = match hp.thread.in_request {
            true => {
                let left_ns = hp.plan.left_ns(hp.thread.done).max(1);
                let spare_ns = hp.late_ns_max().saturating_sub(before_ns);
                PACE * spare_ns as f64 / left_ns as f64 * work_ns as f64
            }
            false => PRICE_IDLE * work_ns.min(next_ns.saturating_sub(now_ns)) as f64,
        };
        let Some(after_ns) = ahead.lag_ns(before_ns.saturating_add(price_ns as u64)) else {
            return false;
        };
        let lag_ns = match hp.thread.in_request {
            true => &mut hp.lag_ns,
            false => &mut hp.next_lag_ns,
        };
        *lag_ns = after_ns.max(*lag_ns);
        true
    }

    fn op(&self, launch: &Launch) -> Op {
        let program = &self.clients[launch.client.0].program;
        let first = usize::from(matches!(program.steps.first(), Some(Step::Copy { .. })));
        program.op(first + launch.place as usize)
    }
}

impl Hp {
    /// `u64::MAX` if no request is left.
    fn next_start_ns(&self) -> u64 {
        self.plan
            .arrival_ns(self.thread.request)
            .unwrap_or(u64::MAX)
    }

    fn late_ns_max(&self) -> u64 {
        self.plan.late_ns_max(self.thread.request)
    }
}

impl Scheduler for Oracle {
    fn placement(&self) -> Placement {
        Placement {
            one_context: false,
            priorities: true,
        }
    }

    fn queue_depth(&self, client: ClientId) -> u32 {
        match self.clients[client.0].is_hp {
            true => 1,
            false => self.host.driver_queue,
        }
    }

    fn handle_request_start(&mut self, now_ns: u64, client: ClientId, _arrival_ns: u64) {
        let Some(hp) = self.hp.as_mut().filter(|hp| hp.id == client) else {
            return;
        };
        hp.thread.begin(now_ns);
        let start_lag_ns = hp.plan.start_lag_ns(hp.thread.request, now_ns);
        hp.lag_ns = start_lag_ns.max(std::mem::take(&mut hp.next_lag_ns));
    }

    fn handle_request_end(&mut self, _now_ns: u64, client: ClientId, _arrival_ns: u64) {
        self.is_stirred = true;
        if let Some(hp) = self.hp.as_mut().filter(|hp| hp.id == client) {
            hp.thread.end();
        }
    }

    fn handle_submit(&mut self, _now_ns: u64, launch: &Launch) {
        self.is_stirred |= !self.clients[launch.client.0].is_hp;
    }

    fn handle_complete(&mut self, now_ns: u64, launch: &Launch) {
        let Some(hp) = self.hp.as_mut().filter(|hp| hp.id == launch.client) else {
            self.is_stirred = true;
            return;
        };
        let step = hp.plan.step_of(launch.place);
        let steps = hp.plan.ops().len();
        hp.thread.handle_done(now_ns, step + 1, steps, &self.host);
        let (request, began_ns) = (hp.thread.request, hp.thread.began_ns);
        let lag_ns = hp.plan.lag_ns(request, began_ns, step, now_ns);
        hp.lag_ns = hp.lag_ns.max(lag_ns);
        self.wake_ns = Some(now_ns + self.device_gap_ns + 1);
    }

    fn handle_copied(&mut self, now_ns: u64, client: ClientId, _bytes: u64) {
        if let Some(hp) = self.hp.as_mut().filter(|hp| hp.id == client) {
            let (done, steps) = (hp.thread.done + 1, hp.plan.ops().len());
            hp.thread.handle_done(now_ns, done, steps, &self.host);
        }
    }

    fn poll(&mut self, now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>) {
        while self
            .under_way
            .pop_front_if(|launch| launch.at_ns <= now_ns)
            .is_some()
        {}
        let latency_ns = self.host.launch_latency_ns;
        if self.wake_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.wake_ns = None;
            self.is_stirred = true;
        }
        if let Some(hp) = &mut self.hp {
            let client = &state.clients[hp.id.0];
            issues.extend((0..client.queued).map(|_| Issue { client: hp.id }));
            hp.thread.act(now_ns, hp.plan.ops().len(), &self.host);
            let under_way = &mut hp.thread.under_way;
            while under_way.pop_front_if(|step| step.0 <= now_ns).is_some() {}
            debug_assert!(
                client
                    .head
                    .is_none_or(|head| hp.plan.step_of(head.place) + 1 == hp.thread.made),
                "the thread is where its mirror is"
            );
            // HP's new launches are not on the device yet: decide when they have begun.
            if !issues.is_empty() {
                if self.is_stirred || client.in_flight == 0 {
                    self.wake_ns = Some(now_ns + latency_ns + 1);
                }
                return;
            }
        }
        if !std::mem::take(&mut self.is_stirred) {
            return;
        }
        let count = self.be.len();
        let first = self.last;
        for step in 1..=count {
            let index = (first + step) % count;
            let client = self.be[index];
            let Some(launch) = state.clients[client.0].head else {
                continue;
            };
            if !self.may_run_ahead(state, client) || !self.try_issue(now_ns, state, &launch) {
                continue;
            }
            self.last = index;
            issues.push(Issue { client });
            let op = self.op(&launch);
            let stream = state.clients[client.0].stream;
            self.under_way.push_back(UnderWay {
                at_ns: now_ns + latency_ns,
                client,
                stream,
                op,
            });
            // The others are judged with this one on the device.
            self.wake_ns = Some(now_ns + latency_ns + 1);
            return;
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        self.wake_ns
    }

    fn rule(&self, _client: ClientId) -> &'static str {
        "promise"
    }
}
