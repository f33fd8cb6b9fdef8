//! Faults and their consequences: lost contexts, Xids, rules, holds, `pillion resume`.
//! Beside the daemon's data a plain model of the expected state is kept: who is held and since when
//! ([`Held`]), which rule acted when ([`Done`]), which clients reported a lost context and which
//! reports were passed on ([`Lost`]).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use protocol::hello::JobClass;
use protocol::sync::Ordering;

use super::daemon::{Daemon, USERS, key_of, name_of};
use super::process::{Process, Seat};
use super::world::{HONEST_JOBS, World};
use crate::config::Config;
use crate::config::fault_rules::{Action, FaultRule, FaultRules};
use crate::core::fault::Fault;
use crate::core::fault_rules::{Book, Decision};
use crate::core::job_key::JobKey;
use crate::core::state::{NewlyHeld, State, Sticky, Whose};

const HOUR_NS: u64 = 3_600_000_000_000;
const STICKY: [u32; 2] = [700, 719];
/// Xids: of a program's mistakes, with a possible rule in the file, or none; of a broken GPU.
const XIDS: [u64; 3] = [13, 31, 79];

pub(super) struct Watch {
    /// The thread's own, while it is not at work.
    book: RefCell<Book>,
    waiting: RefCell<VecDeque<Fault>>,
    pub(super) held: RefCell<Held>,
    done: RefCell<Vec<Done>>,
    lost: RefCell<Vec<Lost>>,
}

#[derive(Default)]
pub(super) struct Held {
    all: Option<u64>,
    users: Vec<(u32, u64)>,
    jobs: Vec<(JobKey, u64)>,
    pub(super) is_draining: bool,
}

struct Done {
    at_ns: u64,
    whose: (&'static str, Option<u32>, Option<String>),
}

struct Lost {
    pid: u32,
    is_due: bool,
    is_told: bool,
}

impl Held {
    pub(super) fn since(&self, key: &JobKey) -> Option<u64> {
        let users = self.users.iter().filter(|(uid, _)| *uid == key.uid);
        let jobs = self.jobs.iter().filter(|(held, _)| held == key);
        let named = users.map(|(_, at)| at).chain(jobs.map(|(_, at)| at));
        named.copied().chain(self.all).min()
    }

    fn hold(&mut self, whose: Whose<'_>, at: u64) -> Option<NewlyHeld> {
        match whose {
            Whose::Everybody => {
                let was_held = self.all.is_some();
                self.all = self.all.or(Some(at));
                (!was_held).then_some(NewlyHeld::All)
            }
            Whose::Job(key) if self.since(key).is_none() => {
                self.jobs.push((key.clone(), at));
                Some(NewlyHeld::Job)
            }
            Whose::User(uid)
                if self.all.is_none() && self.users.iter().all(|(held, _)| *held != uid) =>
            {
                self.users.push((uid, at));
                Some(NewlyHeld::User(uid))
            }
            Whose::Job(_) | Whose::User(_) => None,
        }
    }
}

pub(super) fn rules(mut below: impl FnMut(u64) -> u64) -> String {
    let mut text = String::new();
    let mut rule = |fault: &str, action: &str| {
        text += &format!("[[faults.rules]]\nfault = \"{fault}\"\n{action}\n");
    };
    let [first, second] = [1 + below(3), 1 + below(3)];
    if below(2) == 0 {
        let restart = format!("action = \"restart-job\"\ngrace_s = 1\nper_hour = {first}");
        rule("sticky-error", &restart);
    }
    if below(2) == 0 {
        rule("sticky-error", "action = \"hold-be\"");
    }
    if below(2) == 0 {
        let restart = format!("action = \"restart-mps\"\nper_hour = {second}");
        rule("xid", &format!("codes = [{}]\n{restart}", XIDS[0]));
    }
    text
}

impl Watch {
    pub(super) fn new(rules: &FaultRules) -> Self {
        Self {
            book: RefCell::new(Book::new(rules)),
            waiting: RefCell::default(),
            held: RefCell::default(),
            done: RefCell::default(),
            lost: RefCell::default(),
        }
    }

    pub(super) fn handle_rules(&self, before: &FaultRules, rules: &FaultRules) {
        if before != rules {
            *self.book.borrow_mut() = Book::new(rules);
            self.done.borrow_mut().clear();
        }
    }

    /// A client's report is passed on: at most once for each attach, and only if it reported.
    fn handle_told(&self, world: &World, sticky: &Sticky) {
        let mut lost = self.lost.borrow_mut();
        let processes = world.processes.borrow();
        let process = processes.iter().find(|other| other.pid == sticky.pid);
        let is_liar = process.is_some_and(|process| process.is_liar);
        let untold = lost.iter_mut().filter(|known| !known.is_told);
        let own = untold.filter(|known| known.pid == sticky.pid);
        match own.max_by_key(|known| known.is_due) {
            Some(known) => known.is_told = true,
            None => assert!(is_liar, "{sticky:?}: was it said, and told?"),
        }
        let key = process.map(|process| key_of(process));
        assert_eq!(key.as_ref(), Some(&sticky.key), "of its own job");
    }

    /// If the thread has just polled, every client's report was passed on.
    pub(super) fn check_all_told(&self) {
        for lost in self.lost.borrow().iter() {
            let is_told = lost.is_told || !lost.is_due;
            assert!(is_told, "process {} said its context is lost", lost.pid);
        }
    }

    /// The rules' decisions are as expected: none above the hourly limit, and all below it.
    fn check_decisions(&self, config: &Config, now_ns: u64, fault: &Fault, found: &[Decision]) {
        let rules = config.faults.rules.iter();
        let is_for = |rule: &&FaultRule| {
            let codes = &rule.codes;
            rule.fault == fault.kind
                && (codes.is_empty() || fault.code.is_some_and(|code| codes.contains(&code)))
        };
        let (uid, id) = fault
            .job
            .as_ref()
            .map(|key| (key.uid, key.id.clone()))
            .unzip();
        for rule in rules.filter(is_for) {
            let name = rule.action.name();
            let whose = match rule.action {
                Action::RestartJob { .. } => (name, uid, id.clone()),
                Action::RestartMps => (name, uid, None),
                _ => continue,
            };
            let mut done = self.done.borrow_mut();
            let is_recent = |done: &&Done| done.whose == whose && now_ns - done.at_ns < HOUR_NS;
            let recent = done.iter().filter(is_recent).count();
            let is_done = found.contains(&Decision::Act(rule.action.clone()));
            let may_be = recent < rule.per_hour as usize;
            assert_eq!(is_done, may_be, "{name} for {fault:?}, done {recent} times");
            if is_done {
                done.push(Done {
                    at_ns: now_ns,
                    whose,
                });
            }
        }
    }
}

impl Process {
    pub(super) fn lose_context(&self, world: &World, seat: &Seat) {
        self.sticky.set(STICKY[world.below(2) as usize]);
        self.say_sticky(world, seat);
    }

    pub(super) fn bring_sticky(&self, daemon: &Daemon) {
        if self.sticky.get() != 0 {
            daemon.watch.lost.borrow_mut().push(Lost {
                pid: self.pid,
                is_due: !self.is_liar,
                is_told: false,
            });
        }
    }

    /// As above for a context lost during the attach: passed on if it is a client then.
    pub(super) fn bring_late_sticky(&self, world: &World, daemon: &Daemon, is_client: bool) {
        let client = self.client(world);
        let is_said = world.aside(|| client.page.sticky.load(Ordering::Relaxed)) != 0;
        let mut lost = daemon.watch.lost.borrow_mut();
        let is_known = lost
            .iter()
            .any(|lost| lost.pid == self.pid && !lost.is_told);
        if self.sticky.get() != 0 && !is_known {
            lost.push(Lost {
                pid: self.pid,
                is_due: is_client && is_said && !self.is_liar,
                is_told: false,
            });
        }
    }

    pub(super) fn say_sticky(&self, world: &World, seat: &Seat) {
        let daemon = world.daemon.borrow().clone();
        let daemon = daemon.filter(|daemon| daemon.number == seat.daemon);
        // From here on it may be known.
        if let Some(daemon) = &daemon {
            daemon.watch.lost.borrow_mut().push(Lost {
                pid: self.pid,
                is_due: false,
                is_told: false,
            });
        }
        client::ending::tell_sticky(seat.page(), self.sticky.get());
        let is_client = !seat.is_over.get() && daemon.is_some() && !self.is_liar;
        for daemon in daemon.into_iter().filter(|_| is_client) {
            let mut lost = daemon.watch.lost.borrow_mut();
            let mine = lost.iter_mut().filter(|lost| lost.pid == self.pid);
            mine.for_each(|lost| lost.is_due = true);
        }
    }
}

impl Daemon {
    /// The fault thread continues: with a pending fault, or a poll.
    pub(super) fn look_for_faults(self: &Rc<Self>, world: &Rc<World>) {
        let Ok(mut book) = self.watch.book.try_borrow_mut() else {
            return;
        };
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return;
        };
        let fault = self.watch.waiting.borrow_mut().pop_front();
        if let Some(fault) = fault {
            return self.handle_fault(world, &mut state, &mut book, &fault);
        }
        let mut found = Vec::new();
        self.run(world, "a look for faults", || {
            found = state.take_stickies();
        });
        if self.is_dead.get() {
            return;
        }
        let mut waiting = self.watch.waiting.borrow_mut();
        for sticky in found {
            self.watch.handle_told(world, &sticky);
            waiting.push_back(Fault::of_sticky(sticky));
        }
    }

    /// As above, until nothing is pending; then all reports were passed on.
    pub(super) fn catch_up_with_faults(self: &Rc<Self>, world: &Rc<World>) {
        while !self.watch.waiting.borrow().is_empty() {
            self.look_for_faults(world);
        }
        self.look_for_faults(world);
        self.watch.check_all_told();
    }

    pub(super) fn handle_xid(&self, world: &World) {
        let xid = XIDS[world.below(XIDS.len() as u64) as usize];
        // Broken GPUs are rarer.
        if xid != XIDS[2] || world.one_in(4) {
            let mut waiting = self.watch.waiting.borrow_mut();
            waiting.push_back(Fault::of_xid(xid));
        }
    }

    fn handle_fault(
        self: &Rc<Self>,
        world: &Rc<World>,
        state: &mut State,
        book: &mut Book,
        fault: &Fault,
    ) {
        let now_ns = world.now_ns.get();
        let decisions = book.handle_fault(now_ns, fault);
        self.watch
            .check_decisions(&self.config.borrow(), now_ns, fault, &decisions);
        for decision in decisions {
            match decision {
                Decision::Act(Action::HoldBe) => self.hold(world, state, fault.whose(), false),
                Decision::Act(Action::DrainGpu) => {
                    self.hold(world, state, Whose::Everybody, true);
                }
                Decision::Act(_) | Decision::TooOften(..) => {}
            }
        }
    }

    fn hold(
        self: &Rc<Self>,
        world: &Rc<World>,
        state: &mut State,
        whose: Whose<'_>,
        is_drain: bool,
    ) {
        let mut newly = None;
        let mut is_new_drain = false;
        let is_done = self.run(world, &format!("a hold of {whose:?}"), || {
            match is_drain {
                true => is_new_drain = state.drain_gpu("a fault"),
                false => newly = state.hold(whose, "a fault"),
            };
        });
        if !is_done {
            return;
        }
        let mut held = self.watch.held.borrow_mut();
        let expected = held.hold(whose, world.tick());
        let was_draining = held.is_draining;
        held.is_draining |= is_drain;
        match is_drain {
            true => assert_eq!(is_new_drain, !was_draining),
            false => assert_eq!(newly, expected, "{whose:?}"),
        }
    }

    pub(super) fn drain(self: &Rc<Self>, world: &Rc<World>) {
        let mut state = self.state.borrow_mut();
        self.hold(world, &mut state, Whose::Everybody, true);
    }

    pub(super) fn resume_all(self: &Rc<Self>, world: &Rc<World>) {
        self.resume(world, &mut self.state.borrow_mut(), true);
    }

    pub(super) fn resume(self: &Rc<Self>, world: &Rc<World>, state: &mut State, is_all: bool) {
        let name = name_of(
            JobClass::BestEffort,
            world.below(HONEST_JOBS as u64) as usize,
        );
        let named = (!is_all).then_some(name.as_str());
        let mut before = self.watch.held.take();
        let (gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut before.jobs)
            .into_iter()
            .partition(|(key, _)| is_all || key.id == name);
        let others = before.users.len()
            + usize::from(before.all.is_some())
            + usize::from(before.is_draining);
        // They may go from the first instruction on.
        *self.watch.held.borrow_mut() = match is_all {
            true => Held::default(),
            false => Held {
                jobs: stay,
                ..before
            },
        };
        let released = state.release(named);
        let gone: Vec<JobKey> = gone.into_iter().map(|(key, _)| key).collect();
        assert_eq!(released.jobs, gone, "named {named:?}");
        assert_eq!(released.others, if is_all { others } else { 0 });
        for uid in USERS {
            let key = JobKey {
                id: name.clone(),
                uid,
                class: JobClass::BestEffort,
            };
            let is_held = self.watch.held.borrow().since(&key).is_some();
            assert_eq!(state.holds.is_held(&key), is_held, "{key:?}");
        }
    }
}
