//! GPU time of each user: of all its jobs that the daemon has ever seen.
//! *GPU time* of a job is the sum of its launches' expected durations alone, at the time of each
//! launch, in ns: from a profile, learnt, or assumed for unknown kernels. For a best-effort job
//! that is its charges, including large copies. For a high-priority job it comes from its records
//! ([`super::Totals::gpu_time_ns`]). It includes departed clients, and never decreases. A departing
//! client's time moves from its job's sum to its user's sum at the same moment; until then it is
//! read in place. So the sum over users equals the sum over all jobs, including unlisted ones, and
//! a returning job counts once.

use std::collections::BTreeMap;

use super::State;

/// Users with their own entry, the first ones; all further ones share an entry.
pub(crate) const USERS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserTime {
    pub(crate) gpu_time_ns: u64,
    /// Number of jobs. A job that returns when no longer listed counts again.
    pub(crate) jobs: u64,
}

/// Final counts: jobs, and GPU time of departed clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    known: BTreeMap<u32, UserTime>,
    others: UserTime,
}

impl Users {
    pub(super) fn handle_new_job(&mut self, uid: u32) {
        let time = self.entry(uid);
        time.jobs = time.jobs.saturating_add(1);
    }

    pub(super) fn handle_gone(&mut self, uid: u32, gpu_time_ns: u64) {
        let time = self.entry(uid);
        time.gpu_time_ns = time.gpu_time_ns.saturating_add(gpu_time_ns);
    }

    fn entry(&mut self, uid: u32) -> &mut UserTime {
        match self.known.len() < USERS_MAX || self.known.contains_key(&uid) {
            true => self.known.entry(uid).or_default(),
            false => &mut self.others,
        }
    }
}

impl State {
    /// Each user's use until now, by user id; last, without id, that of users beyond [`USERS_MAX`].
    pub(crate) fn user_times(&self) -> impl Iterator<Item = (Option<u32>, UserTime)> + use<> {
        let mut users = self.users.clone();
        for job in &self.jobs {
            let clients = job.clients.iter();
            let times = clients.map(|client| client.totals().gpu_time_ns(job.key.class));
            users.handle_gone(job.key.uid, times.fold(0, u64::saturating_add));
        }
        let Users { known, others } = users;
        let others = (others.jobs > 0).then_some((None, others));
        let known = known.into_iter().map(|(uid, time)| (Some(uid), time));
        known.chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_beyond_the_bound_are_one_entry_and_none_is_given_up_for_them() {
        let mut users = Users::default();
        let all = USERS_MAX as u32 + 2;
        for uid in (0..all).chain(0..all) {
            users.handle_new_job(uid);
            users.handle_gone(uid, 10);
        }
        assert_eq!(users.known.len(), USERS_MAX);
        let of = |jobs: u64| UserTime {
            gpu_time_ns: 10 * jobs,
            jobs,
        };
        assert!(users.known.values().all(|time| *time == of(2)));
        assert_eq!(users.others, of(4));
    }
}
