//! Best-effort jobs that launch kernels of collective communication (NCCL, NVSHMEM).
//! Such a kernel occupies its GPU until its peers on other GPUs have begun. A rank held on this GPU
//! therefore makes its peers spin on theirs, beside the high-priority jobs there. Daemons of
//! different GPUs do not know of each other, so ranks are not held together. `[policy]
//! collectives = "refuse"`: a job that launches collectives is granted nothing while a
//! high-priority client is attached. Its collective kernels go without a lease, because their peers
//! may have begun; each other launch waits for `max_hold`.
//!
//! `"gate"`: the job is granted what the policy grants any job, and its collective kernels go
//! without a lease where there is none. The poll after a client's first such launch detects it, by
//! [`Counter::Collectives`](protocol::pages::Counter::Collectives).

use policy::Policy;

use super::{BeJob, Job, State};
use crate::config::OnCollectives;
use crate::core::event::{Draft, Kind};

impl State {
    pub(super) fn refuses_collectives(&self) -> bool {
        let is_gating = *self.gate.policy() != Policy::None;
        is_gating && self.on_collectives == OnCollectives::Refuse
    }

    pub(crate) fn take_collectives(&mut self) -> Vec<Draft> {
        if !self.refuses_collectives() {
            return Vec::new();
        }
        let is_new = |job: &&mut Job| {
            let be_job = job.be_job.as_ref();
            !job.is_collective_told && be_job.is_some_and(BeJob::has_collectives)
        };
        let new = self.jobs.iter_mut().filter(is_new);
        new.map(|job| {
            job.is_collective_told = true;
            let text = format!(
                "best-effort job {:?} launches collective kernels (NCCL, NVSHMEM), which wait for other GPUs: it gets no lease \
                 while a high-priority job is attached ([policy] collectives)",
                job.key.id
            );
            Draft::new(Kind::Collectives, text).of_job(&job.key)
        })
        .collect()
    }
}
