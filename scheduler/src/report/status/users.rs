//! Status of users: the GPU time of their jobs.

use serde::Serialize;

use super::Viewer;
use crate::core::state::State;

/// Use of all jobs of a user that this daemon has seen, including unlisted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UserStatus {
    /// User id; none: all users beyond the first 1024 together.
    pub uid: Option<u32>,
    /// Sum of their `gpu_time_ns`. Never decreases while the daemon lives.
    pub gpu_time_ns: u64,
    /// Number of jobs. A job that returns when no longer listed counts again.
    pub jobs: u64,
}

pub(super) fn users(state: &State, viewer: Viewer) -> Vec<UserStatus> {
    let sees = |uid: Option<u32>| match uid {
        Some(uid) => viewer.sees(uid),
        None => viewer == Viewer::Operator,
    };
    let times = state.user_times().filter(|(uid, _)| sees(*uid));
    let users = times.map(|(uid, time)| UserStatus {
        uid,
        gpu_time_ns: time.gpu_time_ns,
        jobs: time.jobs,
    });
    users.collect()
}
