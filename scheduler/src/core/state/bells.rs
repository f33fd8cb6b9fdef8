//! Bells to ring after a poll.

use protocol::clock::Clock;
use protocol::pages::Bell;

use super::State;

#[derive(Clone, Copy, Debug)]
pub(super) enum Wake {
    Lease { job: usize },
    Helper { job: usize, client: usize },
}

impl State {
    /// Rings the bells that the last poll requires.
    pub fn ring_bells(&self, clock: &Clock) {
        for wake in &self.wakes {
            if let Some(bell) = self.bell(*wake) {
                bell.ring(clock);
            }
        }
    }

    /// How many bells [`State::ring_bells`] rings.
    #[must_use]
    pub fn bells_to_ring(&self) -> usize {
        self.wakes.len()
    }

    fn bell(&self, wake: Wake) -> Option<&Bell> {
        match wake {
            Wake::Lease { job } => Some(&self.jobs.get(job)?.be_job.as_ref()?.page().bell),
            Wake::Helper { job, client } => {
                Some(&self.jobs.get(job)?.clients.get(client)?.page.helper_bell)
            }
        }
    }
}
