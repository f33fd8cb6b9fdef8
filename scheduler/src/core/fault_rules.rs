//! Which fault has which consequence.
//!
//! Every matching rule of the file is followed, in the file's order, and after them the first
//! matching one of the [`default_rules`], unless a matching rule of the file names the code or says
//! `report`. Actions with consequences outside the daemon are limited to `per_hour` per rule and
//! hour, so that a recurring fault does not become a storm: `restart-job` for each job, and
//! `restart-mps`, which other jobs feel, for all jobs of a user together, because a user can give
//! its jobs any name.

use std::collections::{BTreeMap, VecDeque};

use crate::config::fault_rules::{Action, FaultRule, FaultRules, default_rules};
use crate::core::event::Severity;
use crate::core::fairness::place_to_give_up;
use crate::core::fault::Fault;

impl Action {
    /// Whose count `per_hour` limits; none: repeating the action changes nothing.
    fn counted_for(&self, fault: &Fault) -> Option<Whose> {
        let job = fault.job.as_ref();
        let user = || Whose::User(job.map(|key| key.uid));
        match self {
            Self::Report | Self::HoldBe | Self::DrainGpu => None,
            // Only its own user is hurt, and the user's other jobs need not be.
            Self::RestartJob { .. } => {
                Some(job.map_or_else(user, |key| Whose::Job(key.uid, key.id.clone())))
            }
            Self::RestartMps => Some(user()),
        }
    }
}

impl FaultRule {
    /// A fault that harms nobody else must not cause an action that others feel.
    fn is_too_much_for(&self, fault: &Fault) -> bool {
        let is_felt = matches!(self.action, Action::RestartMps | Action::DrainGpu);
        is_felt && fault.severity == Some(Severity::Warning)
    }

    fn is_for(&self, fault: &Fault) -> bool {
        let is_code = |code| self.codes.contains(&code);
        self.fault == fault.kind && (self.codes.is_empty() || fault.code.is_some_and(is_code))
    }
}

const HOUR_NS: u64 = 3_600_000_000_000;
/// Rules whose past hour is remembered, by whose count it is. When full, the oldest entry of the
/// user with most is forgotten.
const REMEMBERED_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Book {
    own: Vec<FaultRule>,
    default: Vec<FaultRule>,
    taken: BTreeMap<Key, Taken>,
}

type Key = (usize, Whose);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// All jobs of a user; none: the GPU. Sorts before jobs, and is never forgotten for one.
    User(Option<u32>),
    Job(u32, String),
}

impl Whose {
    /// The user, if the entry is one that a user can create without limit.
    fn maker(&self) -> Option<u32> {
        match self {
            Self::User(_) => None,
            Self::Job(uid, _) => Some(*uid),
        }
    }
}

#[derive(Debug, Default)]
struct Taken {
    at_ns: VecDeque<u64>,
    is_said: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Act(Action),
    /// The limit is reached; returned once until the action is possible again.
    TooOften(&'static str, u32),
}

impl Book {
    pub(crate) fn new(rules: &FaultRules) -> Self {
        Self {
            own: rules.rules.clone(),
            default: default_rules(),
            taken: BTreeMap::new(),
        }
    }

    /// Decides about a fault at `now_ns`; empty for [`Action::Report`].
    pub(crate) fn handle_fault(&mut self, now_ns: u64, fault: &Fault) -> Vec<Decision> {
        let own = self
            .own
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.is_for(fault));
        let mut found: Vec<(usize, FaultRule)> =
            own.map(|(place, rule)| (place, rule.clone())).collect();
        // A rule for all Xids does not mean that a broken GPU may take more work.
        let is_instead = |rule: &FaultRule| !rule.codes.is_empty() || rule.action == Action::Report;
        if !found.iter().any(|(_, rule)| is_instead(rule)) {
            let first = self.own.len();
            let default = (first..).zip(&self.default);
            let mut default = default.filter(|(_, rule)| rule.is_for(fault));
            found.extend(default.next().map(|(place, rule)| (place, rule.clone())));
        }
        let has_consequences = |rule: &FaultRule| {
            rule.action != Action::Report && !fault.is_seen_to && !rule.is_too_much_for(fault)
        };
        let decisions = found.into_iter().filter(|(_, rule)| has_consequences(rule));
        decisions
            .filter_map(|(place, rule)| self.decide(now_ns, place, rule, fault))
            .collect()
    }

    fn decide(
        &mut self,
        now_ns: u64,
        place: usize,
        rule: FaultRule,
        fault: &Fault,
    ) -> Option<Decision> {
        let Some(whose) = rule.action.counted_for(fault) else {
            return Some(Decision::Act(rule.action));
        };
        let key = (place, whose);
        if !self.taken.contains_key(&key) && self.taken.len() >= REMEMBERED_MAX {
            self.forget_one();
        }
        let taken = self.taken.entry(key).or_default();
        while taken
            .at_ns
            .front()
            .is_some_and(|at_ns| now_ns.saturating_sub(*at_ns) >= HOUR_NS)
        {
            taken.at_ns.pop_front();
        }
        if taken.at_ns.len() < rule.per_hour as usize {
            taken.at_ns.push_back(now_ns);
            taken.is_said = false;
            return Some(Decision::Act(rule.action));
        }
        let was_said = std::mem::replace(&mut taken.is_said, true);
        (!was_said).then_some(Decision::TooOften(rule.action.name(), rule.per_hour))
    }

    /// A user's ever new job names displace only its own; without any job entry, the oldest goes.
    fn forget_one(&mut self) {
        let mut by_age: Vec<(&Key, Option<&u64>)> = self
            .taken
            .iter()
            .map(|(key, taken)| (key, taken.at_ns.back()))
            .collect();
        by_age.sort_by_key(|(_, at_ns)| *at_ns);
        let of_jobs = by_age
            .iter()
            .filter(|((_, whose), _)| whose.maker().is_some());
        let of_jobs: Vec<&Key> = of_jobs.map(|(key, _)| *key).collect();
        let makers = of_jobs.iter().filter_map(|(_, whose)| whose.maker());
        let place = place_to_give_up(makers);
        let goes = place.and_then(|place| of_jobs.get(place).copied());
        let goes = goes.or_else(|| by_age.first().map(|(key, _)| *key));
        if let Some(key) = goes.cloned() {
            self.taken.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::hello::JobClass;

    use super::*;
    use crate::config::fault_rules::{FaultKind, GRACE_NS, XIDS_OF_A_BROKEN_GPU};
    use crate::core::job_key::JobKey;

    fn xid(code: u64) -> Fault {
        Fault::of_xid(code)
    }

    fn sticky(job: &str) -> Fault {
        Fault {
            kind: FaultKind::StickyError,
            code: Some(700),
            job: Some(JobKey {
                id: job.to_owned(),
                uid: 1000,
                class: JobClass::BestEffort,
            }),
            pid: None,
            text: String::new(),
            severity: None,
            is_seen_to: false,
        }
    }

    fn book(rules: &[FaultRule]) -> Book {
        Book::new(&FaultRules {
            rules: rules.to_vec(),
            ..FaultRules::default()
        })
    }

    fn rule(fault: FaultKind, codes: &[u64], action: Action, per_hour: u32) -> FaultRule {
        let codes = codes.to_vec();
        FaultRule {
            fault,
            codes,
            action,
            per_hour,
        }
    }

    const RESTART: Action = Action::RestartJob { grace_ns: GRACE_NS };

    #[test]
    fn without_a_rule_a_broken_gpu_is_drained_and_everything_else_only_said() {
        let mut book = book(&[]);
        for code in XIDS_OF_A_BROKEN_GPU {
            assert_eq!(
                book.handle_fault(0, &xid(code)),
                [Decision::Act(Action::DrainGpu)]
            );
        }
        for code in [13, 31, 43, 45, 63, 94, 1234] {
            assert_eq!(book.handle_fault(0, &xid(code)), []);
        }
        assert_eq!(book.handle_fault(0, &sticky("job")), []);
    }

    #[test]
    fn every_rule_of_the_file_that_is_for_a_fault_is_followed_and_the_defaults_are_not() {
        let mut book = book(&[
            rule(FaultKind::Xid, &[79], Action::HoldBe, 1),
            rule(FaultKind::Xid, &[48], Action::Report, 1),
            rule(FaultKind::Xid, &[], Action::RestartMps, 9),
        ]);
        let both = [
            Decision::Act(Action::HoldBe),
            Decision::Act(Action::RestartMps),
        ];
        assert_eq!(book.handle_fault(0, &xid(79)), both);
        assert_eq!(book.handle_fault(0, &xid(48)), both[1..]);
        assert_eq!(book.handle_fault(0, &sticky("job")), []);
    }

    #[test]
    fn a_default_stays_beside_a_rule_for_everything_and_goes_for_one_that_names_the_code_or_reports()
     {
        let drain = Decision::Act(Action::DrainGpu);
        let restart = Decision::Act(Action::RestartMps);
        for (codes, action, of_79) in [
            (&[][..], Action::RestartMps, &[restart.clone(), drain][..]),
            (&[79], Action::RestartMps, std::slice::from_ref(&restart)),
            (&[], Action::Report, &[]),
            (&[79], Action::Report, &[]),
        ] {
            let is_for_all = codes.is_empty() && action == Action::RestartMps;
            let mut book = book(&[rule(FaultKind::Xid, codes, action, 9)]);
            assert_eq!(book.handle_fault(0, &xid(79)), of_79, "{codes:?}");
            let of_13 = is_for_all.then(|| restart.clone());
            let of_13: Vec<Decision> = of_13.into_iter().collect();
            assert_eq!(book.handle_fault(0, &xid(13)), of_13, "{codes:?}");
        }
    }

    #[test]
    fn a_death_that_was_seen_to_has_no_consequences_and_one_that_harms_no_others_none_for_them() {
        let actions = [
            Action::Report,
            Action::HoldBe,
            RESTART,
            Action::RestartMps,
            Action::DrainGpu,
        ];
        let own = actions.map(|action| rule(FaultKind::DiedInFlight, &[], action, 9));
        for (severity, is_seen_to, followed) in [
            (Severity::Error, false, &[1, 2, 3, 4][..]),
            (Severity::Warning, false, &[1, 2][..]),
            (Severity::Error, true, &[][..]),
            (Severity::Warning, true, &[][..]),
        ] {
            let mut fault = sticky("job");
            fault.kind = FaultKind::DiedInFlight;
            (fault.severity, fault.is_seen_to) = (Some(severity), is_seen_to);
            let expected = followed
                .iter()
                .map(|&place: &usize| own[place].action.clone());
            let expected: Vec<Decision> = expected.map(Decision::Act).collect();
            assert_eq!(book(&own).handle_fault(0, &fault), expected);
        }
    }

    #[test]
    fn what_comes_back_is_not_answered_without_end_and_each_job_has_its_own_share() {
        let mut book = book(&[rule(FaultKind::StickyError, &[], RESTART, 2)]);
        let act = [Decision::Act(RESTART)];
        assert_eq!(book.handle_fault(0, &sticky("a")), act);
        assert_eq!(book.handle_fault(1, &sticky("a")), act);
        assert_eq!(
            book.handle_fault(2, &sticky("a")),
            [Decision::TooOften("restart-job", 2)]
        );
        assert_eq!(book.handle_fault(3, &sticky("a")), [], "said once");
        assert_eq!(book.handle_fault(4, &sticky("b")), act);
        assert_eq!(
            book.handle_fault(HOUR_NS, &sticky("a")),
            act,
            "an hour after the first"
        );
        assert_eq!(
            book.handle_fault(HOUR_NS, &sticky("a")),
            [Decision::TooOften("restart-job", 2)]
        );
    }

    fn of_user(uid: u32, job: &str) -> Fault {
        let mut fault = sticky(job);
        fault.job.as_mut().expect("it has one").uid = uid;
        fault
    }

    #[test]
    fn a_user_who_calls_each_job_otherwise_does_not_set_off_more_than_one_job_could() {
        let mut book = book(&[rule(FaultKind::StickyError, &[], Action::RestartMps, 2)]);
        let acts = (0..1_000).flat_map(|n: u64| book.handle_fault(n, &sticky(&n.to_string())));
        let acts: Vec<Decision> = acts.collect();
        let act = Decision::Act(Action::RestartMps);
        let too_often = Decision::TooOften("restart-mps", 2);
        assert_eq!(acts, [act.clone(), act.clone(), too_often]);
        let other = book.handle_fault(5, &of_user(1001, "0"));
        assert_eq!(other, [act], "another user has its own share");
    }

    #[test]
    fn a_user_cannot_make_the_daemon_forget_what_was_done_for_it_or_for_others() {
        let mut book = book(&[
            rule(FaultKind::StickyError, &[], RESTART, 1),
            rule(FaultKind::StickyError, &[], Action::RestartMps, 1),
        ]);
        assert_eq!(book.handle_fault(0, &of_user(1001, "other")).len(), 2);
        for at_ns in 1..3 * REMEMBERED_MAX as u64 {
            let acts = book.handle_fault(at_ns, &sticky(&at_ns.to_string()));
            let restarts = acts.iter();
            let restarts = restarts.filter(|act| **act == Decision::Act(Action::RestartMps));
            assert_eq!(restarts.count(), usize::from(at_ns == 1), "{at_ns}");
        }
        let others = book.handle_fault(REMEMBERED_MAX as u64 * 3, &of_user(1001, "other"));
        let is_limited = |act: &Decision| matches!(act, Decision::TooOften(..));
        assert!(
            others.len() == 2 && others.iter().all(is_limited),
            "{others:?}"
        );
    }

    #[test]
    fn jobs_without_end_do_not_grow_what_is_remembered() {
        let mut book = book(&[rule(FaultKind::StickyError, &[], RESTART, 1)]);
        for at_ns in 0..3 * REMEMBERED_MAX as u64 {
            book.handle_fault(at_ns, &sticky(&at_ns.to_string()));
        }
        assert_eq!(book.taken.len(), REMEMBERED_MAX);
    }
}
