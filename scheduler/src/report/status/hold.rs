//! Why a best-effort job does not get on, as numbers: what it gets of its rate alone, how long it stood still and by which
//! rule, and which of its kernels are so long that a high-priority request is late by one of them alone.

use std::collections::BTreeMap;

use policy::{Held, Progress, Share, Sharing};
use protocol::longest::LongKernel;
use serde::Serialize;

use crate::core::state::{Job, State};

/// Kernels listed of a job.
const TOO_LONG_MAX: usize = 8;

/// What a job gets of what it wants.
#[derive(Clone, Debug, Serialize)]
pub struct ProgressStatus {
    /// 0 to 1, over the last `over_ns`; none before it has wanted anything for a second.
    pub share: Option<f64>,
    /// What it is a share of. `alone`: of its rate while no high-priority job was attached. `asked`: of the time in which it
    /// wanted the GPU, because its rate alone is not known; then it is an upper bound.
    pub share_of: Option<&'static str>,
    /// The time that the share and `held_recently_ns` are of: the last ten seconds in which the job wanted the GPU.
    pub over_ns: u64,
    /// Time that it stood still (a thread waited and nothing of it was in flight) in that time, by the word in `held_by`.
    pub held_recently_ns: BTreeMap<&'static str, u64>,
    /// The same since the job came.
    pub held_ns: BTreeMap<&'static str, u64>,
}

impl ProgressStatus {
    pub(super) fn of(progress: &Progress) -> Self {
        let share = progress.share();
        Self {
            share: share.map(Share::value),
            share_of: share.map(|share| match share {
                Share::OfAlone(_) => "alone",
                Share::OfAsked(_) => "asked",
            }),
            over_ns: progress.recent_ns(),
            held_recently_ns: by_name(&progress.held_recently()),
            held_ns: by_name(&progress.held()),
        }
    }
}

fn by_name(held: &Held) -> BTreeMap<&'static str, u64> {
    let times = held.by_limit().filter(|(_, ns)| *ns > 0);
    times.map(|(limit, ns)| (limit.name(), ns)).collect()
}

/// A kernel that no policy can protect a request against, once it is launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TooLong {
    /// The beginning of its name.
    pub name: String,
    /// Expected duration of a launch, as learnt or as the profile says, ns.
    pub expected_ns: u64,
    /// How long a request may wait for it: a wave of its blocks where blocks have priorities, else all of it, ns.
    pub blocks_for_ns: u64,
}

/// What a request can afford to wait for, ns; none under a policy that has no such number.
pub(super) fn affordable_ns(state: &State) -> Option<u64> {
    let params = state.gate.policy().throttle_params();
    state
        .gate
        .slack_ns()
        .or_else(|| params.map(|params| params.dur_threshold_ns(&state.hp)))
}

/// The job's kernels that a request waits longer for than it can afford, the longest wait first: by what they were seen to
/// take, else by what their profile says. Of a kernel that no profile knows nobody knows that before, and it is not listed.
pub(super) fn too_long(state: &State, job: &Job) -> Vec<TooLong> {
    // While nobody knows how long a request takes there is no evidence against any kernel.
    let is_known = state.gate.solo_ns().or(state.hp.latency_ns).is_some();
    let Some(affordable_ns) = affordable_ns(state).filter(|_| state.hp.present && is_known) else {
        return Vec::new();
    };
    let pages = job.clients.iter().map(|client| &client.page.told.longest);
    let mut found: Vec<TooLong> = Vec::new();
    for kernel in pages.flat_map(|longest| longest.read()) {
        let blocks_for_ns = blocks_for_ns(state, &kernel);
        if blocks_for_ns <= affordable_ns {
            continue;
        }
        let kernel = TooLong {
            name: kernel.name,
            expected_ns: kernel.expected_ns,
            blocks_for_ns,
        };
        match found.iter_mut().find(|known| known.name == kernel.name) {
            Some(known) if known.blocks_for_ns >= kernel.blocks_for_ns => {}
            Some(known) => *known = kernel,
            None => found.push(kernel),
        }
    }
    found.sort_by_key(|kernel| std::cmp::Reverse(kernel.blocks_for_ns));
    found.truncate(TOO_LONG_MAX);
    found
}

/// A kernel that needs n times the SMs there are comes in n waves, and where blocks of different processes have priorities a
/// request's blocks go before the next wave's.
fn blocks_for_ns(state: &State, kernel: &LongKernel) -> u64 {
    let has_priorities = state.block_priority.is_on();
    let is_known = kernel.sm_needed != u32::MAX;
    if !has_priorities || !is_known || state.ways.in_force() == Sharing::TimeSlice {
        return kernel.expected_ns;
    }
    let waves = kernel.sm_needed.div_ceil(state.sms.max(1)).max(1);
    kernel.expected_ns.div_ceil(waves.into())
}
