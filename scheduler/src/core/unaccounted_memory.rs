//! Memory that a job's processes hold outside their accounts.
//! Each process keeps its own account, which lacks memory allocated without the library (switched
//! off, a static program, a bypassing library) and the driver's own allocations. Once a second the
//! ledgers are compared with NVML's numbers for each process. No IO: NVML's answers are arguments.
//! - **A context** takes memory that only NVML reports. Its size is taken to be the least that any
//!   process of a user held outside its account, equal in two of its first polls
//!   ([`Excesses::context_bytes`]). It is measured for each user separately: users control their
//!   accounts, and what one writes there must change nothing for another.
//! - **Excess** is what exceeds account, context and the operator's slack in two consecutive polls:
//!   between NVML's answer and the account's a process may have freed memory. All memory of a
//!   process of the job that is no client is excess.
//! - **Eviction**, if so configured: in a job whose memory including excess is over its quota, the
//!   process with most excess is asked to end (SIGTERM) after [`PATIENCE_LOOKS`], and ended after
//!   as many more: a client is drained, then killed, under MPS after MPS was asked to end its work
//!   ([`crate::faults::ending`]). If it cannot be signalled, the next process follows; without room
//!   to end it, the next poll retries.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::core::job_key::JobKey;

/// A process with memory on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id in this process's namespace.
    pub pid: u32,
    /// Memory on the device, bytes; none where NVML does not report it (some drivers, and WSL).
    pub used_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) job: JobKey,
    pub(crate) pid: u32,
    /// All of it, context included.
    pub(crate) held_bytes: u64,
    pub(crate) context_bytes: u64,
}

/// Memory of a process outside its account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excess {
    /// Process id.
    pub pid: u32,
    /// Bytes, without slack and context.
    pub bytes: u64,
    /// Whether the process is a client. All memory of others is excess.
    pub is_client: bool,
}

pub(crate) struct Look<'a> {
    /// Accounts before and after NVML was queried.
    pub(crate) before: &'a [Holding],
    pub(crate) after: &'a [Holding],
    pub(crate) listed: &'a [Process],
    /// Processes without an account, and their jobs.
    pub(crate) strays: &'a [(u32, JobKey)],
    pub(crate) slack_bytes: u64,
    /// Size of a context, if configured.
    pub(crate) context_bytes: Option<u64>,
}

pub(crate) struct Balance {
    pub(crate) job: JobKey,
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) held_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    pub(crate) pid: u32,
    /// It was asked and did not end.
    pub(crate) is_kill: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Excesses {
    over: BTreeMap<u32, Over>,
    /// Processes polled for their context, and how often: [`CONTEXT_LOOKS`] at most.
    seen: Vec<Seen>,
    /// By user, the most recent last.
    contexts: Vec<Contexts>,
}

#[derive(Clone, Copy, Debug)]
struct Contexts {
    uid: u32,
    bytes: u64,
}

#[derive(Debug)]
struct Over {
    job: JobKey,
    excess: Excess,
    looks: u32,
    is_told: bool,
    looks_asked: Option<u32>,
    is_out_of_reach: bool,
    /// Ending it was postponed for lack of room or descriptors, and that was reported.
    is_put_off: bool,
}

/// Consecutive polls that establish an excess.
const SHOWN_LOOKS: u32 = 2;
/// Polls, one per second, for which an excess is tolerated before eviction.
pub(crate) const PATIENCE_LOOKS: u32 = 5;
/// Smaller amounts are no context. An H100's takes some hundred MiB.
const CONTEXT_BYTES_MIN: u64 = 16 << 20;
/// Polls of a process for its context. Its account may be ahead of the device at first: untouched
/// managed memory, or an allocation in progress in the driver.
const CONTEXT_LOOKS: u32 = 5;
/// Larger amounts are no context.
const CONTEXT_BYTES_MAX: u64 = 2 << 30;
/// Users whose contexts are remembered. Beyond it the least recently measured is forgotten, users
/// without an account first.
const USERS_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Seen {
    pid: u32,
    looks: u32,
    bytes: Option<u64>,
}

impl Seen {
    fn new(pid: u32) -> Self {
        Self {
            pid,
            looks: 0,
            bytes: None,
        }
    }
}

impl Excesses {
    pub(crate) fn context_bytes(&self, uid: u32) -> u64 {
        let known = self.contexts.iter().find(|contexts| contexts.uid == uid);
        known.map_or(0, |contexts| contexts.bytes)
    }

    fn note_context(&mut self, uid: u32, bytes: u64, holdings: &[Holding]) {
        let place = self.contexts.iter().position(|known| known.uid == uid);
        let known = place.map(|place| self.contexts.remove(place));
        if self.contexts.len() >= USERS_MAX {
            let is_gone = |known: &Contexts| holdings.iter().all(|h| h.job.uid != known.uid);
            let given_up = self.contexts.iter().position(is_gone);
            self.contexts.remove(given_up.unwrap_or(0));
        }
        let bytes = known.map_or(bytes, |known| known.bytes.min(bytes));
        self.contexts.push(Contexts { uid, bytes });
    }

    pub(crate) fn handle_look(&mut self, look: &Look<'_>) {
        self.learn_context(look);
        let found: Vec<(JobKey, Excess)> = look
            .listed
            .iter()
            .filter_map(|process| self.excess_of(look, process))
            .collect();
        let is_found = |pid| found.iter().any(|(_, excess)| excess.pid == pid);
        self.over.retain(|pid, _| is_found(*pid));
        for (job, excess) in found {
            let over = self.over.entry(excess.pid).or_insert_with(|| Over {
                job: job.clone(),
                excess: excess.clone(),
                looks: 0,
                is_told: false,
                looks_asked: None,
                is_out_of_reach: false,
                is_put_off: false,
            });
            over.looks = over.looks.saturating_add(1);
            (over.job, over.excess) = (job, excess);
        }
    }

    fn learn_context(&mut self, look: &Look<'_>) {
        for process in look.listed {
            let (before, after) = (
                held(look.before, process.pid),
                held(look.after, process.pid),
            );
            let (Some(used), Some(account)) = (process.used_bytes, after) else {
                continue;
            };
            // An account that changed meanwhile is no evidence; wait for the next poll.
            let place = self.seen.iter().position(|seen| seen.pid == process.pid);
            let seen = place.map_or(Seen::new(process.pid), |place| self.seen[place]);
            if seen.looks >= CONTEXT_LOOKS || before != after {
                continue;
            }
            let own_bytes = account.held_bytes - account.context_bytes;
            let bytes = used.saturating_sub(own_bytes);
            let is_one = (CONTEXT_BYTES_MIN..=CONTEXT_BYTES_MAX).contains(&bytes);
            // A context's size is constant; that of a transient free or allocation is not.
            let is_steady = seen.bytes == Some(bytes);
            if is_one && is_steady {
                self.note_context(account.uid, bytes, look.after);
            }
            // An account ahead of the device may be caught up with, and the context may not exist
            // yet. Otherwise later excess is not the context.
            let is_ahead = used < own_bytes || used < CONTEXT_BYTES_MIN;
            let again = is_ahead || (is_one && !is_steady);
            let looks = if again { seen.looks + 1 } else { CONTEXT_LOOKS };
            let bytes = Some(bytes);
            let seen = Seen {
                looks,
                bytes,
                ..seen
            };
            match place {
                Some(place) => self.seen[place] = seen,
                None => self.seen.push(seen),
            }
        }
        let is_listed = |pid| look.listed.iter().any(|process| process.pid == pid);
        self.seen.retain(|seen| is_listed(seen.pid));
    }

    fn excess_of(&self, look: &Look<'_>, process: &Process) -> Option<(JobKey, Excess)> {
        let (pid, used) = (process.pid, process.used_bytes?);
        let is_its = |holding: &&Holding| holding.pid == pid;
        if let Some(holding) = look.after.iter().find(is_its) {
            let account = held(look.after, pid)?;
            // Memory freed between the two reads existed when NVML was queried.
            let most = held(look.before, pid).map_or(0, |before| before.held_bytes);
            let measured = || self.context_bytes(account.uid);
            let context = look.context_bytes.unwrap_or_else(measured);
            let context = context.saturating_sub(account.context_bytes);
            let known = account.held_bytes.max(most).saturating_add(context);
            let bytes = used.saturating_sub(known);
            // A driver creates a context in steps. Until a user's first one is measured, what may
            // be a context is no excess.
            let is_measured = look.context_bytes.is_some() || measured() != 0;
            if !is_measured && bytes <= CONTEXT_BYTES_MAX && self.is_measuring(pid) {
                return None;
            }
            let is_client = true;
            let excess = Excess {
                pid,
                bytes,
                is_client,
            };
            return (bytes > look.slack_bytes).then(|| (holding.job.clone(), excess));
        }
        let (_, job) = look.strays.iter().find(|(stray, _)| *stray == pid)?;
        let excess = Excess {
            pid,
            bytes: used,
            is_client: false,
        };
        (used > 0).then(|| (job.clone(), excess))
    }

    fn is_measuring(&self, pid: u32) -> bool {
        let mut seen = self.seen.iter().filter(|seen| seen.pid == pid);
        seen.any(|seen| seen.looks < CONTEXT_LOOKS)
    }

    pub(crate) fn of_job(&self, job: &JobKey) -> Vec<Excess> {
        let its = self.over.values().filter(|over| over.job == *job);
        its.filter(|over| over.is_shown())
            .map(|over| over.excess.clone())
            .collect()
    }

    pub(crate) fn poll_news(&mut self) -> Vec<(JobKey, Excess)> {
        let news = self.over.values_mut();
        news.filter(|over| over.is_shown() && !over.is_told)
            .map(|over| {
                over.is_told = true;
                (over.job.clone(), over.excess.clone())
            })
            .collect()
    }

    /// A process could not be signalled: another one of its job must end.
    pub(crate) fn handle_out_of_reach(&mut self, pid: u32) {
        if let Some(over) = self.over.get_mut(&pid) {
            over.is_out_of_reach = true;
        }
    }

    /// Postponed for lack of room or descriptors: the next poll retries. Returns whether new.
    pub(crate) fn handle_put_off(&mut self, pid: u32, is_kill: bool) -> bool {
        let Some(over) = self.over.get_mut(&pid) else {
            return false;
        };
        over.looks_asked = is_kill.then_some(PATIENCE_LOOKS - 1);
        !std::mem::replace(&mut over.is_put_off, true)
    }

    /// A process was asked to end, or is being ended: a later postponement is news.
    pub(crate) fn handle_begun(&mut self, pid: u32) {
        if let Some(over) = self.over.get_mut(&pid) {
            over.is_put_off = false;
        }
    }

    pub(crate) fn poll_evictions(&mut self, balances: &[Balance]) -> Vec<(JobKey, Eviction)> {
        let mut evictions = Vec::new();
        for balance in balances {
            let eviction = self.eviction_of(balance);
            evictions.extend(eviction.map(|eviction| (balance.job.clone(), eviction)));
        }
        evictions
    }

    fn eviction_of(&mut self, balance: &Balance) -> Option<Eviction> {
        let is_its = |over: &&mut Over| over.job == balance.job && over.is_shown();
        let mut its: Vec<&mut Over> = self.over.values_mut().filter(is_its).collect();
        let sum = |sum: u64, over: &&mut Over| sum.saturating_add(over.excess.bytes);
        let has_bytes = its.iter().fold(balance.held_bytes, sum);
        if has_bytes <= balance.quota_bytes? {
            its.iter_mut().for_each(|over| over.is_put_off = false);
            return None;
        }
        its.retain(|over| !over.is_out_of_reach);
        its.sort_by_key(|over| (over.looks_asked, over.excess.bytes));
        its.pop()?.poll_eviction()
    }
}

impl Over {
    fn is_shown(&self) -> bool {
        self.looks >= SHOWN_LOOKS
    }

    fn poll_eviction(&mut self) -> Option<Eviction> {
        let pid = self.excess.pid;
        let is_kill = match &mut self.looks_asked {
            None if self.looks < PATIENCE_LOOKS => return None,
            None => {
                self.looks_asked = Some(0);
                false
            }
            Some(looks) => {
                *looks = looks.saturating_add(1);
                if *looks != PATIENCE_LOOKS {
                    return None;
                }
                true
            }
        };
        Some(Eviction { pid, is_kill })
    }
}

/// A process's account; it may have several slots, all of one user.
fn held(holdings: &[Holding], pid: u32) -> Option<Account> {
    let its = holdings.iter().filter(|holding| holding.pid == pid);
    its.map(|holding| Account {
        uid: holding.job.uid,
        held_bytes: holding.held_bytes,
        context_bytes: holding.context_bytes.min(holding.held_bytes),
    })
    .reduce(|a, b| Account {
        uid: a.uid,
        held_bytes: a.held_bytes.saturating_add(b.held_bytes),
        context_bytes: a.context_bytes.saturating_add(b.context_bytes),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    uid: u32,
    held_bytes: u64,
    context_bytes: u64,
}

#[cfg(test)]
mod tests {
    use protocol::hello::JobClass;

    use super::*;

    const MIB: u64 = 1 << 20;
    const UID: u32 = 1000;
    const SLACK_BYTES: u64 = 100 * MIB;

    fn job(id: &str) -> JobKey {
        JobKey {
            id: id.to_owned(),
            uid: UID,
            class: JobClass::BestEffort,
        }
    }

    fn holding(pid: u32, held: u64, context: u64) -> Holding {
        Holding {
            job: job("a"),
            pid,
            held_bytes: held * MIB,
            context_bytes: context * MIB,
        }
    }

    fn process(pid: u32, used: u64) -> Process {
        Process {
            pid,
            used_bytes: Some(used * MIB),
        }
    }

    fn look(excesses: &mut Excesses, held: &[Holding], listed: &[Process], strays: &[u32]) {
        let strays: Vec<_> = strays.iter().map(|pid| (*pid, job("a"))).collect();
        excesses.handle_look(&Look {
            before: held,
            after: held,
            listed,
            strays: &strays,
            slack_bytes: SLACK_BYTES,
            context_bytes: None,
        });
    }

    fn balance(held: u64, quota: Option<u64>) -> [Balance; 1] {
        [Balance {
            job: job("a"),
            quota_bytes: quota.map(|quota| quota * MIB),
            held_bytes: held * MIB,
        }]
    }

    #[test]
    fn what_is_beyond_account_and_slack_for_two_looks_is_said_once() {
        let mut excesses = Excesses::default();
        let held = [holding(7, 300, 0)];
        look(&mut excesses, &held, &[process(7, 300)], &[]);
        for used in [400, 401] {
            look(&mut excesses, &held, &[process(7, used)], &[]);
            assert_eq!(excesses.poll_news(), [], "{used}");
        }
        look(&mut excesses, &held, &[process(7, 900)], &[]);
        let excess = Excess {
            pid: 7,
            bytes: 600 * MIB,
            is_client: true,
        };
        assert_eq!(excesses.poll_news(), [(job("a"), excess.clone())]);
        assert_eq!(excesses.of_job(&job("a")), [excess]);
        assert_eq!(excesses.of_job(&job("b")), []);
        look(&mut excesses, &held, &[process(7, 900)], &[]);
        assert_eq!(excesses.poll_news(), []);
        look(&mut excesses, &held, &[process(7, 300)], &[]);
        assert_eq!(excesses.of_job(&job("a")), []);
    }

    #[test]
    fn what_was_freed_while_nvml_answered_is_no_excess() {
        let mut excesses = Excesses::default();
        let (before, after) = ([holding(7, 900, 0)], [holding(7, 100, 0)]);
        for _ in 0..5 {
            excesses.handle_look(&Look {
                before: &before,
                after: &after,
                listed: &[process(7, 900)],
                strays: &[],
                slack_bytes: SLACK_BYTES,
                context_bytes: None,
            });
        }
        assert_eq!(excesses.of_job(&job("a")), []);
        assert_eq!(
            excesses.context_bytes(UID),
            0,
            "nothing is learnt of it either"
        );
    }

    #[test]
    fn all_that_a_process_of_the_job_has_without_an_account_is_excess() {
        let mut excesses = Excesses::default();
        let held = [holding(7, 300, 0)];
        for _ in 0..2 {
            let listed = [process(7, 300), process(8, 50), process(9, 70)];
            look(&mut excesses, &held, &listed, &[8]);
        }
        let excess = Excess {
            pid: 8,
            bytes: 50 * MIB,
            is_client: false,
        };
        assert_eq!(excesses.of_job(&job("a")), [excess]);
    }

    #[test]
    fn a_context_takes_the_least_that_a_process_had_past_its_account_at_first() {
        let mut excesses = Excesses::default();
        assert_eq!(excesses.context_bytes(UID), 0);
        let first = [holding(7, 100, 0)];
        look(&mut excesses, &first, &[process(7, 614)], &[]);
        assert_eq!(excesses.context_bytes(UID), 0, "a moment");
        for _ in 0..2 {
            look(&mut excesses, &first, &[process(7, 550)], &[]);
        }
        assert_eq!(excesses.context_bytes(UID), 450 * MIB);
        look(
            &mut excesses,
            &[holding(7, 100, 0)],
            &[process(7, 120)],
            &[],
        );
        assert_eq!(excesses.context_bytes(UID), 450 * MIB);
        let held = [holding(7, 100, 0), holding(8, 450, 450)];
        for _ in 0..2 {
            let listed = [process(7, 550), process(8, 420)];
            look(&mut excesses, &held, &listed, &[]);
        }
        assert_eq!(excesses.context_bytes(UID), 420 * MIB);
        look(&mut excesses, &[holding(9, 100, 0)], &[process(9, 11)], &[]);
        assert_eq!(excesses.context_bytes(UID), 420 * MIB);
    }

    #[test]
    fn a_first_context_that_is_made_in_steps_is_no_excess() {
        let mut excesses = Excesses::default();
        let held = [holding(7, 100, 0)];
        for used in [2, 400, 619, 619, 619] {
            look(&mut excesses, &held, &[process(7, used)], &[]);
            assert_eq!(excesses.poll_news(), [], "{used}");
        }
        assert_eq!(excesses.context_bytes(UID), 519 * MIB);
        // An amount that never stays the same is no context.
        let mut excesses = Excesses::default();
        for used in [400, 401, 402, 403, 404, 405] {
            look(&mut excesses, &held, &[process(7, used)], &[]);
        }
        assert_eq!(excesses.poll_news().len(), 1);
    }

    #[test]
    fn a_context_that_is_in_the_account_or_not_is_no_excess() {
        let mut excesses = Excesses::default();
        for _ in 0..3 {
            let held = [holding(7, 100, 0), holding(8, 550, 450)];
            let listed = [process(7, 100 + 450 + 90), process(8, 550 + 90)];
            look(&mut excesses, &held, &listed, &[]);
        }
        assert_eq!(excesses.context_bytes(UID), 540 * MIB);
        assert_eq!(excesses.of_job(&job("a")), []);
    }

    #[test]
    fn who_is_over_the_quota_is_asked_to_end_and_then_killed() {
        let mut excesses = Excesses::default();
        let held = [holding(7, 300, 0)];
        let mut acts = Vec::new();
        for at in 0..20 {
            let listed = [process(7, 300), process(8, 800), process(9, 50)];
            look(&mut excesses, &held, &listed, &[8, 9]);
            let evictions = excesses.poll_evictions(&balance(300, Some(1000)));
            acts.extend(evictions.into_iter().map(|(_, eviction)| (at, eviction)));
        }
        let evict = |is_kill| Eviction { pid: 8, is_kill };
        assert_eq!(acts, [(4, evict(false)), (9, evict(true))]);
    }

    #[test]
    fn what_one_users_accounts_say_of_contexts_holds_for_no_other() {
        let mut excesses = Excesses::default();
        let of = |uid, pid, held| Holding {
            job: JobKey { uid, ..job("a") },
            ..holding(pid, held, 0)
        };
        // The second has a context like the first, but claims nearly all of it in its account.
        let held = [of(UID, 7, 100), of(UID + 1, 8, 530)];
        for _ in 0..2 {
            let listed = [process(7, 550), process(8, 550)];
            look(&mut excesses, &held, &listed, &[]);
        }
        assert_eq!(excesses.context_bytes(UID), 450 * MIB);
        assert_eq!(excesses.context_bytes(UID + 1), 20 * MIB);
        let mut held = held.to_vec();
        held.push(of(UID, 9, 1000));
        for _ in 0..3 {
            look(&mut excesses, &held, &[process(9, 1450)], &[]);
        }
        assert_eq!(excesses.of_job(&job("a")), []);
        for uid in 2..2 * USERS_MAX as u32 {
            excesses.note_context(UID + uid, 450 * MIB, &held);
        }
        assert_eq!(excesses.contexts.len(), USERS_MAX);
        assert_eq!(excesses.context_bytes(UID), 450 * MIB);
        for _ in 0..3 {
            excesses.handle_look(&Look {
                before: &held,
                after: &held,
                listed: &[process(9, 1450)],
                strays: &[],
                slack_bytes: SLACK_BYTES,
                context_bytes: Some(100 * MIB),
            });
        }
        assert_eq!(excesses.of_job(&job("a"))[0].bytes, 350 * MIB);
    }

    #[test]
    fn who_cannot_be_ended_keeps_no_other_from_it() {
        for is_signalled in [true, false] {
            let mut excesses = Excesses::default();
            let held = [holding(7, 300, 0)];
            let mut acts = Vec::new();
            for at in 0..24 {
                let listed = [process(7, 300), process(8, 800), process(9, 700)];
                look(&mut excesses, &held, &listed, &[8, 9]);
                let evictions = excesses.poll_evictions(&balance(300, Some(1000)));
                for (_, eviction) in evictions {
                    acts.push((at, eviction.pid, eviction.is_kill));
                    if eviction.pid == 8 && !is_signalled {
                        excesses.handle_out_of_reach(8);
                    }
                }
            }
            let expected = match is_signalled {
                true => [(4, 8, false), (9, 8, true)].as_slice(),
                false => [(4, 8, false), (5, 9, false), (10, 9, true)].as_slice(),
            };
            assert_eq!(acts, expected, "{is_signalled}");
        }
    }

    #[test]
    fn who_cannot_be_ended_for_want_of_room_is_tried_again_at_each_look() {
        let mut excesses = Excesses::default();
        let held = [holding(7, 300, 0)];
        let (mut acts, mut news) = (Vec::new(), Vec::new());
        for at in 0..16 {
            let listed = [process(7, 300), process(8, 800)];
            look(&mut excesses, &held, &listed, &[8]);
            let evictions = excesses.poll_evictions(&balance(300, Some(1000)));
            for (_, Eviction { pid, is_kill }) in evictions {
                acts.push((at, is_kill));
                if [4, 5, 11, 12].contains(&at) {
                    news.push(excesses.handle_put_off(pid, is_kill));
                } else {
                    excesses.handle_begun(pid);
                }
            }
        }
        let asked = [4, 5, 6].map(|at| (at, false));
        let killed = [11, 12, 13].map(|at| (at, true));
        assert_eq!(acts, [asked, killed].concat());
        assert_eq!(news, [true, false, true, false]);
        assert!(excesses.handle_put_off(8, true));
        assert_eq!(excesses.poll_evictions(&balance(300, Some(2000))), []);
        assert!(excesses.handle_put_off(8, true));
        assert!(!excesses.handle_put_off(9, true), "it is over nothing");
    }

    #[test]
    fn a_job_within_its_quota_or_without_one_is_left_alone() {
        for quota in [Some(1150), None] {
            let mut excesses = Excesses::default();
            for _ in 0..20 {
                let listed = [process(7, 300), process(8, 800)];
                look(&mut excesses, &[holding(7, 300, 0)], &listed, &[8]);
                assert_eq!(excesses.poll_evictions(&balance(300, quota)), []);
            }
            assert_eq!(excesses.of_job(&job("a")).len(), 1);
        }
    }
}
