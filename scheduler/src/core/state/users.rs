//! GPU time of each user: of all its jobs that the daemon has ever seen.
//!
//! *GPU time* of a job is the sum of what its launches take alone, as it was expected when each was
//! made, in ns: what a profile tells, what was learnt, or what is assumed of a kernel that nobody
//! knows. Of a best-effort job that is what was charged, so large copies, which are charged, count,
//! too. Of a high-priority job its records tell it ([`super::Totals::gpu_time_ns`]).
//!
//! It is that of all the job's clients, also of those that have gone, and never becomes less. What
//! a client adds to its job's sum when it goes, it adds to its user's sum at the same moment; until
//! then it is read where it is. So the sum over users is the sum over all jobs, also over those
//! that are no longer listed, and a job that comes again counts once.

use std::collections::BTreeMap;

use super::State;

/// Users that are told apart, the first ones; all further ones are one entry.
pub(crate) const USERS_MAX: usize = 1024;

/// What a user's jobs have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserTime {
    /// See the module's text.
    pub(crate) gpu_time_ns: u64,
    /// How many there were. One that comes again when it is no longer listed is another one.
    pub(crate) jobs: u64,
}

/// What is counted for good: jobs, and GPU time of clients that have gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    known: BTreeMap<u32, UserTime>,
    /// Of all users beyond [`USERS_MAX`].
    others: UserTime,
}

impl Users {
    /// A job of that user has come that is not listed.
    pub(super) fn handle_new_job(&mut self, uid: u32) {
        let time = self.entry(uid);
        time.jobs = time.jobs.saturating_add(1);
    }

    /// A client of that user has gone, and has used so much for its job.
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
    /// What each user's jobs have used until now, by user id; at the end, of no id, what users
    /// beyond [`USERS_MAX`] have used together, if there are such.
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
