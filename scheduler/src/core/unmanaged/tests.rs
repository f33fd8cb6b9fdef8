//! Naming and eviction, in virtual time.

use std::cell::RefCell;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Default)]
struct Machine {
    processes: BTreeMap<u32, (u64, Sight)>,
    looked_into: RefCell<Vec<u32>>,
    computing: BTreeSet<u32>,
}

impl Eyes for Machine {
    fn started_ticks(&self, pid: u32) -> u64 {
        self.processes.get(&pid).map_or(0, |(ticks, _)| *ticks)
    }

    fn look_into(&self, pid: u32) -> Sight {
        self.looked_into.borrow_mut().push(pid);
        let seen = self.processes.get(&pid);
        seen.map_or(Sight::Exempt, |(_, sight)| sight.clone())
    }

    fn has_computed(&self, pid: u32) -> bool {
        self.computing.contains(&pid)
    }
}

fn known(uid: u32) -> Known {
    Known {
        uid: Some(uid),
        name: "python".to_owned(),
        is_sure: true,
        ..Known::default()
    }
}

struct Rig {
    machine: Machine,
    strangers: Strangers,
    clients: BTreeSet<u32>,
}

impl Rig {
    fn new(is_first_namespace: bool) -> Self {
        Self {
            machine: Machine::default(),
            strangers: Strangers::new(is_first_namespace),
            clients: BTreeSet::new(),
        }
    }

    fn with(mut self, pid: u32, started_ticks: u64, sight: Sight) -> Self {
        self.machine.processes.insert(pid, (started_ticks, sight));
        self
    }

    fn try_look(&mut self, at_ns: u64, pids: &[u32]) -> Option<Change> {
        let listed = pids.iter().map(|&pid| Process {
            pid,
            used_bytes: Some(u64::from(pid)),
        });
        let listed: Vec<Process> = listed.collect();
        self.strangers
            .handle_listed(at_ns, &listed, &self.clients, &self.machine)
    }

    /// A poll at that second: the newly named, the gone, and all named processes.
    fn look(&mut self, at_s: u64, pids: &[u32]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        let change = self.try_look(at_s * SECOND_NS, pids).unwrap();
        let pids = |named: &[Named]| named.iter().map(|it| it.pid).collect();
        let all: Vec<Named> = self.strangers.named().cloned().collect();
        (pids(&change.named), pids(&change.gone), pids(&all))
    }
}

#[test]
fn a_process_without_the_library_is_named_at_the_second_look_and_gone_at_the_first_without_it() {
    let mut rig = Rig::new(true).with(7, 1, Sight::Past(known(1000)));
    assert_eq!(rig.look(10, &[]), (vec![], vec![], vec![]));
    assert_eq!(rig.look(11, &[7]), (vec![], vec![], vec![]));
    assert!(rig.strangers.has_unnamed());
    assert_eq!(rig.look(12, &[7]), (vec![7], vec![], vec![7]));
    assert!(!rig.strangers.has_unnamed());
    let named = rig.strangers.named().next().unwrap().clone();
    assert_eq!(
        (named.since_ns, named.memory_bytes, named.started_ticks),
        (11 * SECOND_NS, Some(7), 1)
    );
    assert_eq!(rig.look(13, &[7]), (vec![], vec![], vec![7]));
    assert_eq!(rig.look(14, &[]), (vec![], vec![7], vec![]));
    assert_eq!(*rig.machine.looked_into.borrow(), [7]);
}

#[test]
fn what_comes_and_goes_between_looks_is_never_named() {
    let mut rig = Rig::new(true);
    for at_s in 0..100 {
        let pid = if at_s < 50 { at_s as u32 + 2 } else { 2 };
        let process = (at_s + 1, Sight::Past(known(1000)));
        rig.machine.processes.insert(pid, process);
        assert_eq!(rig.look(at_s, &[pid]), (vec![], vec![], vec![]), "{at_s}");
    }
    assert!(rig.machine.looked_into.borrow().is_empty());
    let at_ns = 200 * SECOND_NS;
    let mut rig = Rig::new(true).with(7, 1, Sight::Past(known(1000)));
    for at_ns in [at_ns, at_ns + APART_NS - 1] {
        assert_eq!(rig.try_look(at_ns, &[7]), Some(Change::default()));
    }
    assert_eq!(rig.try_look(at_ns + APART_NS, &[7]).unwrap().named.len(), 1);
}

#[test]
fn clients_are_never_named_and_who_attaches_is_none_any_more() {
    let mut rig = Rig::new(true).with(7, 1, Sight::Past(known(1000)));
    rig.clients.insert(7);
    for at_s in 0..30 {
        assert_eq!(rig.look(at_s, &[7]), (vec![], vec![], vec![]));
    }
    rig.clients.clear();
    rig.look(31, &[7]);
    rig.clients.insert(7);
    assert_eq!(rig.look(32, &[7]), (vec![], vec![], vec![]));
    rig.clients.clear();
    rig.look(33, &[7]);
    assert_eq!(rig.look(34, &[7]).2, [7]);
    rig.clients.insert(7);
    assert_eq!(rig.look(35, &[7]), (vec![], vec![7], vec![]));
}

#[test]
fn who_may_attach_still_has_a_grace_and_who_cannot_has_none() {
    let mut rig = Rig::new(true)
        .with(7, 1, Sight::MayAttach(known(1000)))
        .with(8, 1, Sight::MayAttach(known(1000)));
    for at_s in 0..15 {
        assert!(rig.look(at_s, &[7, 8]).2.is_empty(), "{at_s}");
    }
    rig.clients.insert(8);
    assert_eq!(rig.look(15, &[7, 8]), (vec![7], vec![], vec![7]));
    let mut rig = Rig::new(true).with(7, 1, Sight::MayAttach(known(1000)));
    rig.look(0, &[7]);
    rig.look(1, &[7]);
    let mut rig = rig.with(7, 1, Sight::Past(known(1000)));
    assert_eq!(rig.look(2, &[7]).2, [7]);
}

#[test]
fn who_cannot_be_looked_into_is_named_once_it_computes_and_after_the_grace_otherwise() {
    let rig = |computing: &[u32]| {
        let mut rig = Rig::new(true).with(7, 1, Sight::Unclear(known(1000)));
        rig.machine.computing = computing.iter().copied().collect();
        rig.look(0, &[]);
        rig
    };
    let named_at = |mut rig: Rig| {
        let mut looks = 100..200;
        looks.find(|&at_s| !rig.look(at_s, &[7]).0.is_empty())
    };
    assert_eq!(named_at(rig(&[7])), Some(101));
    assert_eq!(named_at(rig(&[8])), Some(115));
    // It was a client a moment ago, and its driver ends slowly.
    let mut former = rig(&[7]);
    former.clients.insert(7);
    former.look(99, &[7]);
    former.clients.clear();
    assert_eq!(named_at(former), Some(115));
    // It precedes the daemon: perhaps a client of the previous one.
    let mut young = Rig::new(true).with(7, 1, Sight::Unclear(known(1000)));
    young.machine.computing.insert(7);
    let mut looks = 0..60;
    let named = looks.find(|&at_s| !young.look(at_s, &[7]).0.is_empty());
    assert_eq!(named, Some(15));
    // With the library it may attach, whatever it does.
    let mut waiting = rig(&[7]).with(7, 1, Sight::MayAttach(known(1000)));
    waiting.machine.computing.insert(7);
    assert_eq!(named_at(waiting), Some(115));
}

#[test]
fn who_is_exempt_is_looked_into_once_and_never_named() {
    let mut rig = Rig::new(true).with(7, 1, Sight::Exempt);
    for at_s in 0..60 {
        assert_eq!(rig.look(at_s, &[7]), (vec![], vec![], vec![]));
    }
    assert_eq!(*rig.machine.looked_into.borrow(), [7]);
}

/// The daemon was stopped, or NVML did not answer: nobody could attach.
#[test]
fn time_in_which_nobody_looked_is_no_grace() {
    let mut rig = Rig::new(true).with(7, 1, Sight::MayAttach(known(1000)));
    rig.look(0, &[7]);
    for at_s in 100..108 {
        assert!(rig.look(at_s, &[7]).0.is_empty(), "{at_s}");
    }
    assert_eq!(rig.look(108, &[7]).0, [7]);
    let mut rig = Rig::new(true).with(7, 1, Sight::Past(known(1000)));
    rig.look(0, &[7]);
    rig.strangers.handle_silence();
    assert!(rig.look(5, &[7]).0.is_empty());
    assert_eq!(rig.look(6, &[7]).0, [7]);
    rig.strangers.handle_silence();
    assert_eq!(rig.look(20, &[7]), (vec![], vec![], vec![7]));
}

#[test]
fn another_process_of_the_number_is_another() {
    let mut rig = Rig::new(true).with(7, 1, Sight::Past(known(1000)));
    rig.look(0, &[7]);
    assert_eq!(rig.look(1, &[7]).2, [7]);
    let mut rig = rig.with(7, 2, Sight::Past(known(1001)));
    assert_eq!(rig.look(2, &[7]), (vec![], vec![7], vec![]));
    assert_eq!(rig.look(3, &[7]), (vec![7], vec![], vec![7]));
}

#[test]
fn numbers_that_may_be_the_hosts_are_counted_and_looked_up_by_nobody() {
    let mut rig = Rig::new(false).with(7, 1, Sight::Past(known(1000)));
    for at_s in 0..15 {
        assert!(rig.look(at_s, &[7]).2.is_empty(), "{at_s}");
    }
    assert_eq!(rig.look(15, &[7]).0, [7]);
    assert!(rig.machine.looked_into.borrow().is_empty());
    let named = rig.strangers.named().next().unwrap().clone();
    assert_eq!((&*named.known.name, named.known.uid), ("", None));
    assert!(named.known.reason.contains("container"), "{named:?}");
    // A client listed under another id would be a stranger.
    rig.clients.insert(3);
    assert_eq!(rig.try_look(16 * SECOND_NS, &[7]), None);
    assert_eq!(rig.strangers.named().count(), 0);
    assert_eq!(rig.try_look(17 * SECOND_NS, &[]), Some(Change::default()));
    // A client listed under its own id shows that the ids are ours.
    rig.look(18, &[3, 7]);
    assert_eq!(rig.look(19, &[7]).0, [7]);
    assert_eq!(*rig.machine.looked_into.borrow(), [7]);
}

const EVICT: UnmanagedRules = UnmanagedRules {
    action: OnUnmanaged::Evict,
    grace_ns: 30 * SECOND_NS,
    root: false,
};

/// Evictions of the first minute: time, process, and whether it is a kill.
fn evictions(mut rig: Rig, pids: &[u32], rules: &UnmanagedRules) -> Vec<(u64, u32, bool)> {
    let mut acts = Vec::new();
    for at_s in 0..60 {
        rig.look(at_s, pids);
        let now = rig.strangers.poll_evictions(at_s * SECOND_NS, rules);
        acts.extend(now.iter().map(|it| (at_s, it.process.pid, it.is_kill)));
    }
    acts
}

#[test]
fn who_is_surely_named_is_asked_to_end_after_the_grace_and_killed_later_once() {
    let rig = || {
        Rig::new(true)
            .with(6, 1, Sight::Past(known(0)))
            .with(7, 1, Sight::Past(known(1000)))
            .with(8, 1, Sight::MayAttach(known(1001)))
            .with(9, 1, Sight::Exempt)
            .with(
                10,
                1,
                Sight::Past(Known {
                    is_sure: false,
                    ..known(1000)
                }),
            )
            .with(11, 0, Sight::Past(known(1000)))
            .with(
                12,
                1,
                Sight::Past(Known {
                    uid: None,
                    ..known(1000)
                }),
            )
    };
    let pids = [6, 7, 8, 9, 10, 11, 12];
    assert_eq!(evictions(rig(), &pids, &UnmanagedRules::default()), []);
    let expected = [(30, 7, false), (30, 8, false), (40, 7, true), (40, 8, true)];
    assert_eq!(evictions(rig(), &pids, &EVICT), expected);
    let with_root = UnmanagedRules {
        root: true,
        grace_ns: 0,
        ..EVICT
    };
    let expected = [
        (1, 6, false),
        (1, 7, false),
        (11, 6, true),
        (11, 7, true),
        (15, 8, false),
        (25, 8, true),
    ];
    assert_eq!(evictions(rig(), &pids, &with_root), expected);
    // The ids are not known to be ours.
    let far = Rig::new(false).with(7, 1, Sight::Past(known(1000)));
    assert_eq!(evictions(far, &[7], &EVICT), []);
}

#[test]
fn no_more_than_a_few_are_asked_to_end_at_once() {
    let pids: Vec<u32> = (2..22).collect();
    let rig = pids.iter().fold(Rig::new(true), |rig, &pid| {
        rig.with(pid, 1, Sight::Past(known(1000)))
    });
    let acts = evictions(rig, &pids, &EVICT);
    let asked_at = |at_s| acts.iter().filter(|act| act.0 == at_s && !act.2).count();
    // None ends by itself: each is killed before another one is asked.
    let asked = [30, 40, 41, 50, 51].map(asked_at);
    assert_eq!(asked, [8, 0, 8, 0, 0], "{acts:?}");
    assert!(acts.iter().filter(|act| act.2).count() >= 8);
}

#[test]
fn what_cannot_be_ended_yet_is_its_turn_again_and_what_may_not_be_is_left() {
    let mut rig = Rig::new(true).with(7, 1, Sight::Past(known(1000)));
    let mut acts = Vec::new();
    for at_s in 0..80 {
        rig.look(at_s, &[7]);
        let now_ns = at_s * SECOND_NS;
        for eviction in rig.strangers.poll_evictions(now_ns, &EVICT) {
            acts.push((at_s, eviction.is_kill));
            match at_s {
                30 | 41 => rig.strangers.handle_put_off(&eviction, now_ns),
                42 => rig.strangers.handle_out_of_reach(7),
                _ => {}
            }
        }
    }
    assert_eq!(acts, [(30, false), (31, false), (41, true), (42, true)]);
    assert_eq!(rig.strangers.named().count(), 1);
}
