//! Knowledge about marked requests of high-priority clients, kept across daemons.
//! A returning client is recognised by the file of its page ([`protocol::segment::identity`]),
//! which no other process has while it lives. The knowledge thus belongs to a process, not to its
//! job: another process of the job may serve other requests.

use policy::Kept;

use super::{RETURN_NS, State};

/// Time for the previous daemon's clients to fetch it, ns: one that was stopped returns late.
const EXPECTED_NS: u64 = 60 * RETURN_NS;

/// Knowledge about one client's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRequests {
    /// Device and inode of its page.
    pub file: (u64, u64),
    /// What was learnt.
    pub learnt: Kept,
}

#[derive(Debug, Default)]
pub(super) struct Expected {
    all: Vec<KeptRequests>,
    until_ns: u64,
}

impl State {
    /// Offers the previous daemon's knowledge to its returning clients.
    pub fn expect_requests(&mut self, now_ns: u64, all: Vec<KeptRequests>) {
        self.expected = Expected {
            all,
            until_ns: now_ns.saturating_add(EXPECTED_NS),
        };
    }

    /// The unclaimed, unexpired part of the previous daemon's knowledge.
    #[must_use]
    pub fn expected_requests(&self, now_ns: u64) -> Vec<KeptRequests> {
        match now_ns < self.expected.until_ns {
            true => self.expected.all.clone(),
            false => Vec::new(),
        }
    }

    /// The high-priority client after the one of this number (0: the first one), and the knowledge
    /// about its requests, if any.
    #[must_use]
    pub fn learnt_after(&self, client: u64) -> Option<(u64, Option<KeptRequests>)> {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        let others = clients.filter(|known| known.hp_client.is_some() && known.id > client);
        let next = others.min_by_key(|known| known.id)?;
        let learnt = self.gate.kept(next.id);
        let file = next.file;
        Some((next.id, learnt.map(|learnt| KeptRequests { file, learnt })))
    }

    /// Hands returned clients' knowledge to the policy, after their goals, before their requests.
    pub(super) fn hand_over_learnt(&mut self, now_ns: u64) {
        let expected = &mut self.expected;
        if expected.all.is_empty() {
            return;
        }
        if now_ns >= expected.until_ns {
            return expected.all.clear();
        }
        for client in self.jobs.iter_mut().flat_map(|job| &mut job.clients) {
            let Some(hp_client) = &mut client.hp_client else {
                continue;
            };
            let file = client.file;
            let is_its = |kept: &KeptRequests| kept.file == file;
            if let Some(place) = expected.all.iter().position(is_its) {
                let kept = expected.all.swap_remove(place);
                hp_client.marks_mut().begin_used(now_ns);
                self.gate.restore(client.id, &kept.learnt);
                tracing::info!(
                    "client {}: continues with earlier measurements of its requests",
                    client.id
                );
            }
        }
    }
}
