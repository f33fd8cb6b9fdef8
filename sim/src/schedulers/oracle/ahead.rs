//! The future on a copy of the device: a best-effort kernel's cost for the high-priority job.

use std::collections::VecDeque;

use softgpu::{Completion, Gpu, Op, OpKind, StreamId};

use super::plan::Plan;
use crate::host::HostModel;
use crate::scheduler::{ClientId, State};
use crate::schedulers::thread::Thread;

#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) at_ns: u64,
    pub(super) client: ClientId,
    pub(super) stream: StreamId,
    pub(super) op: Op,
}

pub(super) struct Ahead<'a> {
    plan: &'a Plan,
    host: &'a HostModel,
    gpu: Gpu,
    hp: ClientId,
    stream: StreamId,
    thread: Thread,
    under_way: VecDeque<UnderWay>,
    be_left: u64,
    lag_ns: u64,
}

enum Step {
    On,
    Over,
    Broken,
}

impl<'a> Ahead<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        host: &'a HostModel,
        state: &State<'_>,
        hp: ClientId,
        thread: &Thread,
        under_way: &VecDeque<UnderWay>,
        candidate: UnderWay,
    ) -> Self {
        let best_effort = state.clients.iter().enumerate();
        let best_effort = best_effort.filter(|&(index, _)| ClientId(index) != hp);
        let in_flight: u64 = best_effort
            .map(|(_, client)| u64::from(client.in_flight))
            .sum();
        let mut gpu = state.gpu.clone();
        let mut under_way = under_way.clone();
        if candidate.at_ns <= gpu.now_ns() {
            // It goes at this instant, before anything else in it.
            let now_ns = gpu.now_ns();
            let UnderWay { stream, op, .. } = candidate;
            gpu.submit(now_ns, stream, op).expect(OPEN);
        } else {
            under_way.push_back(candidate);
        }
        Self {
            plan,
            host,
            gpu,
            hp,
            stream: state.clients[hp.0].stream,
            thread: thread.clone(),
            under_way,
            be_left: in_flight + 1,
            lag_ns: 0,
        }
    }

    /// The high-priority job's greatest lag, ns; `None` above `lag_ns_max` or if a request is late.
    pub(super) fn lag_ns(mut self, lag_ns_max: u64) -> Option<u64> {
        let mut completions = Vec::new();
        loop {
            let now_ns = self.next_ns()?;
            match self.step(now_ns, lag_ns_max, &mut completions) {
                Step::On => {}
                Step::Over => return Some(self.lag_ns),
                Step::Broken => return None,
            }
        }
    }

    /// The next event. There is one as long as best-effort work is left.
    fn next_ns(&self) -> Option<u64> {
        let now_ns = self.gpu.now_ns();
        let starts_ns = match self.thread.in_request {
            true => None,
            false => self.plan.start_ns(self.thread.request, now_ns),
        };
        let next_ns = [
            self.gpu.next_event_ns(),
            self.thread.acts_ns,
            self.thread.notices_ns,
            self.thread.under_way.front().map(|step| step.0),
            self.under_way.front().map(|launch| launch.at_ns),
            starts_ns,
        ];
        let next_ns = next_ns.into_iter().flatten().min()?;
        Some(next_ns.max(now_ns))
    }

    /// Handles one instant, in the order of the world: device, deliveries, thread.
    fn step(&mut self, now_ns: u64, lag_ns_max: u64, completions: &mut Vec<Completion>) -> Step {
        self.gpu.advance_into(now_ns, completions);
        let mut hp_completed = false;
        for completion in completions.drain(..) {
            if completion.stream != self.stream {
                self.be_left -= u64::from(completion.kind == OpKind::Kernel);
                continue;
            }
            hp_completed = true;
            let step = self.thread.done;
            let steps = self.plan.ops().len();
            self.thread.handle_done(now_ns, step + 1, steps, self.host);
            let (request, began_ns) = (self.thread.request, self.thread.began_ns);
            let lag_ns = self.plan.lag_ns(request, began_ns, step, now_ns);
            if lag_ns > self.plan.late_ns_max(request).min(lag_ns_max) {
                return Step::Broken;
            }
            self.lag_ns = self.lag_ns.max(lag_ns);
        }
        self.act(now_ns);
        self.deliver(now_ns);
        let is_over = self.be_left == 0 && (hp_completed || !self.thread.in_request);
        if is_over { Step::Over } else { Step::On }
    }

    fn act(&mut self, now_ns: u64) {
        if self.thread.notices_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.thread.end();
        }
        let starts_ns = match self.thread.in_request {
            true => None,
            false => self.plan.start_ns(self.thread.request, now_ns),
        };
        if starts_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.thread.begin(now_ns);
        }
        self.thread.act(now_ns, self.plan.ops().len(), self.host);
    }

    fn deliver(&mut self, now_ns: u64) {
        self.deliver_best_effort(now_ns, |client, hp| client < hp);
        while let Some((_, step)) = self.thread.under_way.pop_front_if(|step| step.0 <= now_ns) {
            let op = self.plan.ops()[step].clone();
            self.gpu.submit(now_ns, self.stream, op).expect(OPEN);
        }
        self.deliver_best_effort(now_ns, |_, _| true);
    }

    fn deliver_best_effort(&mut self, now_ns: u64, may: impl Fn(ClientId, ClientId) -> bool) {
        let hp = self.hp;
        while let Some(launch) = self
            .under_way
            .pop_front_if(|launch| launch.at_ns <= now_ns && may(launch.client, hp))
        {
            self.gpu
                .submit(now_ns, launch.stream, launch.op)
                .expect(OPEN);
        }
    }
}

const OPEN: &str = "the stream is open and the kernel was checked against the device";
