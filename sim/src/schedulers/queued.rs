//! Policies about queues of launches ([`policy::queue`]) behind [`Scheduler`]. Orion's program and
//! REEF's run all jobs as threads of one process, under one thread that spins over the heads of
//! their queues. The placement is therefore one context, and the spin is an instant: launches go at
//! the event that allows them. For the policy a request ends when its last launch is complete on
//! the device, which that thread sees by an event.

use policy::{Op, OrionCode, QueueClient, ReefN};

use crate::experiment::Experiment;
use crate::job::JobClass;
use crate::scheduler::{ClientId, Issue, Launch, Placement, Scheduler, State};

pub(super) trait QueuePolicy {
    fn poll(&mut self, hp: Option<&Op>, be: &[Option<Op>], goes: &mut Vec<QueueClient>);
    fn handle_complete(&mut self, client: QueueClient);
    fn handle_request_end(&mut self, client: QueueClient, duration_ns: u64);
}

impl QueuePolicy for OrionCode {
    fn poll(&mut self, hp: Option<&Op>, be: &[Option<Op>], goes: &mut Vec<QueueClient>) {
        Self::poll(self, hp, be, goes);
    }

    fn handle_complete(&mut self, client: QueueClient) {
        Self::handle_complete(self, client);
    }

    fn handle_request_end(&mut self, client: QueueClient, duration_ns: u64) {
        Self::handle_request_end(self, client, duration_ns);
    }
}

impl QueuePolicy for ReefN {
    fn poll(&mut self, hp: Option<&Op>, be: &[Option<Op>], goes: &mut Vec<QueueClient>) {
        Self::poll(self, hp, be, goes);
    }

    fn handle_complete(&mut self, client: QueueClient) {
        Self::handle_complete(self, client);
    }

    fn handle_request_end(&mut self, client: QueueClient, _duration_ns: u64) {
        Self::handle_request_end(self, client);
    }
}

#[derive(Debug)]
pub(super) struct Queued<P> {
    policy: P,
    priorities: bool,
    clients: Vec<QueueClient>,
    hp: Option<ClientId>,
    be: Vec<ClientId>,
    began_ns: Vec<u64>,
    heads: Vec<Option<Op>>,
    goes: Vec<QueueClient>,
    polls_again: bool,
}

impl<P: QueuePolicy> Queued<P> {
    pub(super) fn new(policy: P, experiment: &Experiment, priorities: bool) -> Self {
        let mut hp = None;
        let mut be = Vec::new();
        let jobs = experiment.jobs.iter().enumerate();
        let clients = jobs.map(|(index, job)| match job.class {
            JobClass::HighPriority => {
                hp = Some(ClientId(index));
                QueueClient::Hp
            }
            JobClass::BestEffort => {
                be.push(ClientId(index));
                QueueClient::Be(be.len() - 1)
            }
        });
        let clients: Vec<QueueClient> = clients.collect();
        Self {
            policy,
            priorities,
            began_ns: vec![0; clients.len()],
            clients,
            hp,
            be,
            heads: Vec::new(),
            goes: Vec::new(),
            polls_again: false,
        }
    }

    fn id(&self, client: QueueClient) -> ClientId {
        match client {
            QueueClient::Hp => self.hp.expect("a policy serves HP only if it has a head"),
            QueueClient::Be(index) => self.be[index],
        }
    }
}

fn head(state: &State<'_>, client: ClientId) -> Option<Op> {
    Some(Op::kernel(state.clients[client.0].head?.kernel))
}

impl<P: QueuePolicy> Scheduler for Queued<P> {
    fn placement(&self) -> Placement {
        Placement {
            one_context: true,
            priorities: self.priorities,
        }
    }

    fn handle_request_start(&mut self, now_ns: u64, client: ClientId, _arrival_ns: u64) {
        self.began_ns[client.0] = now_ns;
    }

    fn handle_complete(&mut self, now_ns: u64, launch: &Launch) {
        let client = self.clients[launch.client.0];
        self.policy.handle_complete(client);
        if launch.is_last {
            let duration_ns = now_ns - self.began_ns[launch.client.0];
            self.policy.handle_request_end(client, duration_ns);
        }
    }

    fn poll(&mut self, _now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>) {
        // The present heads go at most once; another thread's launch behind one goes later.
        self.polls_again = false;
        self.heads.clear();
        self.heads
            .extend(self.be.iter().map(|&client| head(state, client)));
        let mut hp = self.hp.and_then(|client| head(state, client));
        loop {
            self.goes.clear();
            self.policy.poll(hp.as_ref(), &self.heads, &mut self.goes);
            if self.goes.is_empty() {
                return;
            }
            for &client in &self.goes {
                match client {
                    QueueClient::Hp => hp = None,
                    QueueClient::Be(index) => self.heads[index] = None,
                }
                let client = self.id(client);
                self.polls_again |= state.clients[client.0].queued > 1;
                issues.push(Issue { client });
            }
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        self.polls_again.then_some(0)
    }
}
