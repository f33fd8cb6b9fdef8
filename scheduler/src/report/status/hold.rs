//! Why a best-effort job makes no progress, in numbers: its share of its rate alone, the time that
//! it was held by each rule, and its kernels that are long enough to make a high-priority request
//! late by themselves.

use std::collections::BTreeMap;

use policy::{Held, Progress, Share, Sharing};
use protocol::longest::LongKernel;
use serde::Serialize;

use crate::core::state::{Job, State};

const TOO_LONG_MAX: usize = 8;

/// Granted part of a job's demand.
#[derive(Clone, Debug, Serialize)]
pub struct ProgressStatus {
    /// 0 to 1, over the last `over_ns`; none before it has had demand for a second.
    pub share: Option<f64>,
    /// What it is a share of. `alone`: of its rate without a high-priority job. `asked`: of the
    /// time in which it had demand, because its rate alone is unknown; then it is an upper bound.
    pub share_of: Option<&'static str>,
    /// Time base of the share and `held_recently_ns`: the last ten seconds with demand.
    pub over_ns: u64,
    /// Time in which it was held (a thread waited and none of its work was in flight) in that time,
    /// by the word in `held_by`.
    pub held_recently_ns: BTreeMap<&'static str, u64>,
    /// As above, since the job came.
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

/// A kernel that delays requests under any policy, once launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TooLong {
    /// The beginning of its name.
    pub name: String,
    /// Expected duration of a launch, learnt or from the profile, ns.
    pub expected_ns: u64,
    /// Delay of a request by it, ns: a wave of its blocks if blocks have priorities, else all.
    pub blocks_for_ns: u64,
}

/// Affordable delay of a request, ns; none under a policy without such a number.
pub(super) fn affordable_ns(state: &State) -> Option<u64> {
    let params = state.gate.policy().throttle_params();
    state
        .gate
        .slack_ns()
        .or_else(|| params.map(|params| params.dur_threshold_ns(&state.hp)))
}

/// The job's kernels with a longer delay than a request can afford, longest first: by measurement,
/// else by profile. Kernels without either are not listed.
pub(super) fn too_long(state: &State, job: &Job) -> Vec<TooLong> {
    // Without a known request duration there is no evidence against any kernel.
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

/// A kernel that needs n times the device's SMs runs in n waves. With priorities between blocks of
/// different processes, a request's blocks precede the next wave.
fn blocks_for_ns(state: &State, kernel: &LongKernel) -> u64 {
    let has_priorities = state.block_priority.is_on();
    let is_known = kernel.sm_needed != u32::MAX;
    if !has_priorities || !is_known || state.ways.in_force() == Sharing::TimeSlice {
        return kernel.expected_ns;
    }
    let waves = kernel.sm_needed.div_ceil(state.sms.max(1)).max(1);
    kernel.expected_ns.div_ceil(waves.into())
}
