//! What was learnt of the requests that high-priority clients mark, from one daemon to the next.
//!
//! A client that comes back is known by the file of its page ([`protocol::segment::identity`]), which no
//! other process has as long as it lives. So what was learnt is a process's, and not its job's: another
//! process of the job may serve other requests.

use policy::Kept;

use super::{RETURN_NS, State};

/// So long a client of the daemon before finds what was learnt of it, ns: one that was stopped comes
/// later than the others.
const EXPECTED_NS: u64 = 60 * RETURN_NS;

/// What was learnt of one client's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRequests {
    /// Device and inode of its page.
    pub file: (u64, u64),
    /// What was learnt.
    pub learnt: Kept,
}

/// Of clients that have not come back yet.
#[derive(Debug, Default)]
pub(super) struct Expected {
    all: Vec<KeptRequests>,
    until_ns: u64,
}

impl State {
    /// What the daemon before has learnt, which its clients find when they come back.
    pub fn expect_requests(&mut self, now_ns: u64, all: Vec<KeptRequests>) {
        self.expected = Expected {
            all,
            until_ns: now_ns.saturating_add(EXPECTED_NS),
        };
    }

    /// What is not taken yet of what the daemon before has learnt, and still may be.
    #[must_use]
    pub fn expected_requests(&self, now_ns: u64) -> Vec<KeptRequests> {
        match now_ns < self.expected.until_ns {
            true => self.expected.all.clone(),
            false => Vec::new(),
        }
    }

    /// The high-priority client after the one of this number (0: the first one), and what is learnt of
    /// its requests by now, if anything.
    #[must_use]
    pub fn learnt_after(&self, client: u64) -> Option<(u64, Option<KeptRequests>)> {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        let others = clients.filter(|known| known.hp_client.is_some() && known.id > client);
        let next = others.min_by_key(|known| known.id)?;
        let learnt = self.gate.kept(next.id);
        let file = next.file;
        Some((next.id, learnt.map(|learnt| KeptRequests { file, learnt })))
    }

    /// Gives clients that have come back what was learnt of them. After the policy has heard of their
    /// goals, and before it hears of their requests.
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
                    "client {}: begins with what was learnt of its requests before",
                    client.id
                );
            }
        }
    }
}
