//! `orion-code`: what Orion's published program does (`src/scheduler/scheduler_eval.cpp`,
//! `busy_wait_profile`, main of 2024-03-10), where it differs from the paper. One thread spins over
//! the queues. A pass:
//! ```text
//! size = 0
//! if HP has an op: it goes; hp_class = its class
//! for each BE client, in turn after the last that was served, with an op at the head:
//!     schedule = HP has no request in progress
//!             or the op is an allocation, a copy, a fill or a free
//!             or the client is in its first `warmup_requests` requests
//!             or HP trains, has come to its update phase, and op.sm_needed ≤ threshold
//!             or size + op.sm_needed ≤ threshold and class differs from hp_class, or one unknown
//!     if schedule and over:  if every BE client's last op is complete: over = false; sum = 0
//!                            else: schedule = false
//!     if schedule:  size += op.sm_needed;  if it is a kernel: sum += its duration
//!                   if sum > max_be_duration: over = true
//!                   it goes
//! ```
//! `threshold` is 80, a constant: a V100's SMs; beside a training HP it starts at half of what the
//! first BE client needs at most and is searched ([`SmSearch`]) against a manual bound.
//! # Differences from the paper ([`crate::orion`])
//! | paper, Listing 1 | code |
//! |---|---|
//! | class of the executing HP kernel | of the HP op *submitted last*; HP submits far ahead |
//! | `sm_needed < SM_THRESHOLD` | `≤`, ignoring the SMs in use |
//! | reset when the last BE op submitted is complete | when the last op of *every* BE client is |
//! | 2.5 % of HP's latency | `--orion_max_be_duration` in ns, by hand; 1 unless given |
//! | the class decides beside HP | until the tenth BE request everything goes |
//! | memory operations go at once | they do |
//!
//! `size` is zeroed in each pass, so it only matters between BE clients of one pass. The default
//! bound of 1 ns lets one kernel go at a time. HP is *busy* from the first op of a request until
//! all of them are complete. A held BE op blocks its client: the queue is in order. With several BE
//! clients there is one sum for all. As in the paper, the sum may pass the bound by one kernel, and
//! binds while HP is idle too. In the artefact's scripts the free pass of the first ten requests
//! ends at a barrier of all clients before any measurement; the default here is therefore none.

use crate::Class;
use crate::orion::have_different_profiles;
use crate::queue::{Op, OpKind, QueueClient, round_robin};
use crate::sm_search::{SmSearch, SmSearchParams};

/// The numbers of `orion-code`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrionCodeParams {
    /// `--orion_max_be_duration`: the sum of expected ns above which BE work drains.
    pub max_be_duration_ns: u64,
    /// `max_sms`, a constant of the program.
    pub sms: u32,
    /// Requests of a BE client during which all its ops go.
    pub warmup_requests: u32,
    /// The kind of HP job.
    pub hp: CodeHp,
}

/// The kind of HP job, as the program's configuration states it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CodeHp {
    /// Requests with a latency goal.
    Inference,
    /// Iterations.
    Training {
        /// `--orion_hp_limit`: the bound on the mean of ten iterations of HP, in ns.
        request_ns_max: u64,
        /// `--orion_start_update`: ops of an iteration before its update phase, in which the rule
        /// of classes does not hold; `None` for never.
        update_start: Option<u32>,
        /// The most SMs that an op of the first BE client needs.
        sm_needed_max: u32,
    },
}

impl OrionCodeParams {
    /// The artefact's parameters: the bound is given by hand, on a V100.
    #[must_use]
    pub const fn new(max_be_duration_ns: u64) -> Self {
        Self {
            max_be_duration_ns,
            sms: 80,
            warmup_requests: 0,
            hp: CodeHp::Inference,
        }
    }
}

/// The policy and its state.
#[derive(Clone, Debug)]
pub struct OrionCode {
    params: OrionCodeParams,
    /// `profiles[hp]`; unknown before the first op.
    hp_class: Class,
    /// `seen[hp]`: ops of HP's request that have gone.
    hp_issued: u32,
    hp_completed: u32,
    be: Vec<BeClient>,
    last: usize,
    /// `large_found`.
    is_over: bool,
    sum_ns: u64,
    search: Option<SmSearch>,
}

#[derive(Clone, Copy, Debug, Default)]
struct BeClient {
    in_flight: u32,
    requests: u32,
}

impl OrionCode {
    /// A scheduler of one HP client and `be_count` BE clients.
    #[must_use]
    pub fn new(params: OrionCodeParams, be_count: usize) -> Self {
        let search = match params.hp {
            CodeHp::Inference => None,
            CodeHp::Training {
                request_ns_max,
                sm_needed_max,
                ..
            } => Some(SmSearch::new(SmSearchParams {
                sm_needed_max,
                solo_ns: request_ns_max,
                loss_pct_max: 0.0,
            })),
        };
        Self {
            params,
            hp_class: Class::Unknown,
            hp_issued: 0,
            hp_completed: 0,
            be: vec![BeClient::default(); be_count],
            last: be_count.saturating_sub(1),
            is_over: false,
            sum_ns: 0,
            search,
        }
    }

    /// One pass over the heads of the queues; appends the ops that go.
    pub fn poll(&mut self, hp: Option<&Op>, be: &[Option<Op>], goes: &mut Vec<QueueClient>) {
        debug_assert_eq!(be.len(), self.be.len());
        if let Some(op) = hp {
            self.hp_class = op.kernel.class;
            self.hp_issued += 1;
            goes.push(QueueClient::Hp);
        }
        let mut size: u32 = 0;
        for index in round_robin(self.last, be.len()) {
            let Some(op) = &be[index] else { continue };
            if !self.is_suitable(index, op, size) || !self.try_lift() {
                continue;
            }
            size = size.saturating_add(op.kernel.sm_needed);
            if op.kind == OpKind::Kernel {
                self.sum_ns = self.sum_ns.saturating_add(op.kernel.expected_ns);
            }
            self.is_over |= self.sum_ns > self.params.max_be_duration_ns;
            self.be[index].in_flight += 1;
            self.last = index;
            goes.push(QueueClient::Be(index));
        }
    }

    /// The oldest op of the client is complete.
    pub fn handle_complete(&mut self, client: QueueClient) {
        match client {
            QueueClient::Hp => self.hp_completed += 1,
            QueueClient::Be(index) => {
                let client = &mut self.be[index];
                debug_assert!(client.in_flight > 0);
                client.in_flight = client.in_flight.saturating_sub(1);
            }
        }
    }

    /// The client's request is complete; it took `duration_ns`.
    pub fn handle_request_end(&mut self, client: QueueClient, duration_ns: u64) {
        match client {
            QueueClient::Hp => {
                self.hp_issued = 0;
                self.hp_completed = 0;
                if let Some(search) = &mut self.search {
                    search.handle_request(duration_ns);
                }
            }
            QueueClient::Be(index) => {
                let client = &mut self.be[index];
                client.requests = client.requests.saturating_add(1);
            }
        }
    }

    /// The SM threshold now.
    #[must_use]
    pub fn sm_threshold(&self) -> u32 {
        self.search
            .map_or(self.params.sms, |search| search.threshold())
    }

    /// The first `schedule` of the pass.
    fn is_suitable(&self, index: usize, op: &Op, size: u32) -> bool {
        let threshold = self.sm_threshold();
        let sm_needed = op.kernel.sm_needed;
        self.hp_issued == 0
            || op.kind == OpKind::Memory
            || self.be[index].requests < self.params.warmup_requests
            || (self.is_update_phase() && sm_needed <= threshold)
            || (size.saturating_add(sm_needed) <= threshold
                && have_different_profiles(self.hp_class, op.kernel.class))
    }

    fn is_update_phase(&self) -> bool {
        match self.params.hp {
            CodeHp::Training {
                update_start: Some(start),
                ..
            } => self.hp_issued >= start && self.hp_completed >= start,
            CodeHp::Training { .. } | CodeHp::Inference => false,
        }
    }

    /// Whether the throttle lets a suitable op go.
    fn try_lift(&mut self) -> bool {
        if self.is_over && self.be.iter().all(|client| client.in_flight == 0) {
            self.is_over = false;
            self.sum_ns = 0;
        }
        !self.is_over
    }
}
