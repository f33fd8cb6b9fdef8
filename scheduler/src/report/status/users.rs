//! The part of the status about users: how much of the GPU's time their jobs have used.

use serde::Serialize;

use super::Viewer;
use crate::core::state::State;

/// What all jobs of a user that this daemon has seen have used, also those that are no longer
/// listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UserStatus {
    /// User id; none: all users beyond the first 1024 together.
    pub uid: Option<u32>,
    /// Sum of their `gpu_time_ns`. It never becomes less while the daemon lives.
    pub gpu_time_ns: u64,
    /// How many jobs there were. One that comes again when it is no longer listed is another one.
    pub jobs: u64,
}

/// Those that the viewer sees jobs of, by user id.
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
