//! A small world in which best-effort jobs that always want to launch use the leases of a gate.

use std::collections::VecDeque;

use policy::{Class, Gate, HpView, JobId, JobView, Kernel, Policy, Sharing, Snapshot, admits};

pub(crate) const POLL_NS: u64 = 50_000;

/// A job that always wants to launch and has launched nothing.
pub(crate) fn wanting(id: u64) -> JobView {
    JobView {
        id: JobId(id),
        charged_total_ns: 0,
        completed_total_ns: 0,
        drained: true,
        waiting: true,
    }
}

/// Jobs with kernels of one length each, on a GPU that runs them one after the other in order of
/// launch; completions are reported when the daemon polls.
pub(crate) struct World {
    pub(crate) gate: Gate,
    pub(crate) be: Vec<JobView>,
    pub(crate) launches: Vec<u64>,
    /// In flight, in order: job, expected ns, when complete.
    pub(crate) queue: VecDeque<(usize, u64, u64)>,
    now_ns: u64,
    kernels_ns: Vec<u64>,
    gpu_free_ns: u64,
}

impl World {
    pub(crate) fn new(policy: Policy, kernels_ns: &[u64]) -> Self {
        let ids = 1..=kernels_ns.len() as u64;
        Self {
            gate: Gate::new(policy),
            be: ids.map(wanting).collect(),
            launches: vec![0; kernels_ns.len()],
            queue: VecDeque::new(),
            now_ns: 0,
            kernels_ns: kernels_ns.to_vec(),
            gpu_free_ns: 0,
        }
    }

    pub(crate) fn poll(&mut self, hp: HpView) {
        self.now_ns += POLL_NS;
        while let Some(&(index, cost_ns, end_ns)) = self.queue.front()
            && end_ns <= self.now_ns
        {
            self.queue.pop_front();
            self.be[index].completed_total_ns += cost_ns;
        }
        for job in &mut self.be {
            job.drained = job.in_flight_ns() == 0;
        }
        let be = self.be.clone();
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            sharing: Sharing::Mps,
            sms: 80,
            epoch: 7,
            hp,
            be: &be,
        };
        self.gate.handle_snapshot(&snapshot);
        for index in 0..be.len() {
            let lease = self.gate.gate(&snapshot, index);
            let expected_ns = self.kernels_ns[index];
            let kernel = Kernel {
                class: Class::Compute,
                sm_needed: 500,
                expected_ns,
            };
            let mut spent_ns = 0;
            while admits(&lease, spent_ns, &kernel) {
                spent_ns += expected_ns;
                self.be[index].charged_total_ns += expected_ns;
                self.gpu_free_ns = self.gpu_free_ns.max(self.now_ns) + expected_ns;
                self.queue.push_back((index, expected_ns, self.gpu_free_ns));
                self.launches[index] += 1;
            }
        }
    }

    /// Expected work in flight of all jobs together.
    #[allow(dead_code, reason = "not every test looks at it")]
    pub(crate) fn in_flight_ns(&self) -> u64 {
        self.be.iter().map(JobView::in_flight_ns).sum()
    }

    #[allow(dead_code, reason = "not every test looks at it")]
    pub(crate) fn longest_ns(&self) -> u64 {
        self.kernels_ns.iter().copied().max().unwrap_or(0)
    }
}
