//! A stopper of a job, step by step, as `cli::stop`: asks the daemon and the processes, waits, has
//! MPS end the work in flight, and kills.
//! Between two of its steps anything may happen; it may itself be interrupted, or killed, which the
//! daemon notices later. [`Truth`](super::stopping::Truth) records its requests to the daemon.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use protocol::clock::Clock;
use protocol::ending::{DRAIN_NS, KILL_NS, SEEN_TO_NS, seen_to_until_s};

use super::daemon::Daemon;
use super::process::{Of, Process};
use super::stopping::{Told, Whose, check_words, whose};
use super::world::{Actor, MS, World};
use crate::core::job_key::Peer;
use crate::core::state::{Moment, State, Stopped};

const LOOK_NS: u64 = 250 * MS;
/// Stoppers in a seed: no more than a daemon tracks for one job.
const STOPPERS_MAX: usize = 6;
const LOOKS_MAX: usize = 800;
const ROOT: u32 = 0;

#[derive(Clone, Copy, Debug)]
enum Todo {
    SeeTo,
    Freeze,
    Leave { is_over: bool },
    Term(u32),
    AskMps(u32),
    Kill(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Begin,
    Grace,
    Drain,
    Kill,
    Again,
    Done,
}

pub(super) struct Stopper {
    pid: u32,
    uid: u32,
    whose: Whose,
    grace_ns: u64,
    begun_ns: u64,
    pub(super) is_alive: Cell<bool>,
    phase: Cell<Phase>,
    until_ns: Cell<u64>,
    is_frozen: Cell<bool>,
    todo: RefCell<VecDeque<Todo>>,
    its: RefCell<Vec<Rc<Process>>>,
    known: RefCell<BTreeSet<(u64, u64)>>,
    is_at_work: Cell<bool>,
    killed: RefCell<BTreeSet<u32>>,
}

impl World {
    /// A stopper takes a step, or another one begins. False: neither.
    pub(super) fn play_stop(self: &Rc<Self>) -> bool {
        if !self.plan.has_stops || !self.one_in(4) {
            return false;
        }
        if !self.killed_stoppers.borrow().is_empty() && self.one_in(3) {
            self.notice_killed_stopper();
            return true;
        }
        let all = self.stoppers.borrow().clone();
        let alive: Vec<_> = all.iter().filter(|one| one.is_alive.get()).collect();
        if !alive.is_empty() && !self.one_in(12) {
            let stopper = alive[self.below(alive.len() as u64) as usize];
            match stopper.any_left(self) {
                Some(process) if self.one_in(2) => process.work(self),
                _ => stopper.step(self),
            }
            return true;
        }
        if all.len() >= STOPPERS_MAX || alive.len() >= 2 || !self.one_in(4) {
            return false;
        }
        let seated = self.free_processes();
        let is_again = self.one_in(2);
        let is_meant = |process: &&Rc<Process>| {
            !is_again || all.is_empty() || all.iter().any(|one| one.is_of(process))
        };
        let mut seated = seated
            .iter()
            .filter(is_meant)
            .filter_map(|process| process.seat());
        let count = seated.clone().count() as u64;
        let Some(seat) = (count > 0)
            .then(|| seated.nth(self.below(count) as usize))
            .flatten()
        else {
            return false;
        };
        let stopper = Stopper {
            pid: 10_000 + all.len() as u32,
            uid: [seat.key.uid, ROOT][usize::from(self.one_in(3))],
            whose: whose(&seat.key),
            grace_ns: [0, 1_000, 30_000, 30_000][self.below(4) as usize] * MS,
            begun_ns: self.now_ns.get(),
            is_alive: Cell::new(true),
            phase: Cell::new(Phase::Begin),
            until_ns: Cell::default(),
            is_frozen: Cell::default(),
            todo: RefCell::default(),
            its: RefCell::default(),
            known: RefCell::default(),
            is_at_work: Cell::default(),
            killed: RefCell::default(),
        };
        self.stoppers.borrow_mut().push(Rc::new(stopper));
        true
    }

    /// An attaching process often belongs to a job that is being ended, or was.
    pub(super) fn of_job_that_ends(&self) -> Option<Of> {
        let stoppers = self.stoppers.borrow();
        let last = stoppers.last().filter(|_| self.one_in(2))?;
        let its = last.its.borrow();
        its.first().map(|process| Of {
            class: process.class,
            job: process.job,
            uid: process.uid,
        })
    }

    /// The control thread notices a killed stopper. Later, if it is killed itself, or busy.
    fn notice_killed_stopper(self: &Rc<Self>) {
        let killed = self.killed_stoppers.borrow().last().cloned();
        let daemon = self.daemon.borrow().clone();
        if let Some(stopper) =
            killed.filter(|stopper| daemon.is_none_or(|daemon| stopper.die_at(self, &daemon)))
        {
            let is_other = |other: &Rc<Stopper>| !Rc::ptr_eq(other, &stopper);
            self.killed_stoppers.borrow_mut().retain(is_other);
        }
    }

    pub(super) fn finish_stops(self: &Rc<Self>, daemon: &Rc<Daemon>) {
        let stoppers = self.stoppers.borrow().clone();
        while !self.killed_stoppers.borrow().is_empty() {
            self.notice_killed_stopper();
        }
        for _ in 0..LOOKS_MAX {
            let alive = || stoppers.iter().filter(|one| one.is_alive.get());
            if alive().next().is_none() {
                break;
            }
            alive().for_each(|stopper| stopper.step(self));
            for process in self.free_processes() {
                let seat = process.seat();
                if let Some(seat) = seat.filter(|seat| process.begins_to_end(self, seat)) {
                    process.go_on_ending(self, &seat);
                }
            }
            while !self.ended.borrow().is_empty() {
                daemon.notice_an_end(self);
            }
            self.now_ns.set(self.now_ns.get() + LOOK_NS);
        }
        for stopper in stoppers {
            assert!(!stopper.is_alive.get(), "{:?} ends for ever", stopper.whose);
        }
        check_words(self, daemon);
    }
}

impl Stopper {
    fn is_of(&self, process: &Process) -> bool {
        self.its.borrow().iter().any(|one| {
            let of = |process: &Process| (process.class, process.job, process.uid);
            of(one) == of(process)
        })
    }

    fn any_left(&self, world: &World) -> Option<Rc<Process>> {
        let its = self.its.borrow();
        let free = its
            .iter()
            .filter(|process| process.is_alive.get() && !world.is_at_work(process));
        let free: Vec<_> = free.collect();
        let count = free.len() as u64;
        (count > 0).then(|| Rc::clone(free[world.below(count) as usize]))
    }

    fn left(&self) -> Vec<u32> {
        let its = self.its.borrow();
        let left = its.iter().filter(|process| process.is_alive.get());
        left.map(|process| process.pid).collect()
    }

    fn do_next(&self, todo: impl IntoIterator<Item = Todo>) {
        self.todo.borrow_mut().extend(todo);
    }

    fn enter(&self, world: &World, phase: Phase, longest_ns: u64) {
        self.phase.set(phase);
        self.until_ns.set(world.now_ns.get() + longest_ns);
    }

    fn grace_left_ns(&self, world: &World) -> u64 {
        let spent_ns = world.now_ns.get() - self.begun_ns;
        self.grace_ns.saturating_sub(spent_ns)
    }

    fn step(self: &Rc<Self>, world: &Rc<World>) {
        if !self.is_at_work.replace(true) {
            self.do_one(world);
            self.is_at_work.set(false);
        }
    }

    fn do_one(self: &Rc<Self>, world: &Rc<World>) {
        if world.is_faulty.get() && self.phase.get() != Phase::Begin && world.one_in(25) {
            world.say(|| format!("who ends {:?} is cut off", self.whose));
            let is_said = world.one_in(2);
            self.is_alive.set(is_said);
            if !is_said {
                let mut killed = world.killed_stoppers.borrow_mut();
                killed.push(Rc::clone(self));
            }
            self.phase.set(Phase::Done);
            *self.todo.borrow_mut() = is_said
                .then_some(Todo::Leave { is_over: false })
                .into_iter()
                .collect();
            return;
        }
        let todo = self.todo.borrow().front().copied();
        if let Some(todo) = todo {
            if self.act(world, todo) {
                self.todo.borrow_mut().pop_front();
            }
            return;
        }
        let phase = self.phase.get();
        if phase == Phase::Done {
            return self.is_alive.set(false);
        }
        // Waits for killed ones without a poll.
        let is_to_look = phase != Phase::Kill || self.left().is_empty() || self.is_late(world);
        if is_to_look && !self.look(world) {
            return;
        }
        if self.todo.borrow().is_empty() || phase == Phase::Begin {
            self.go_on(world, phase);
        }
    }

    fn is_late(&self, world: &World) -> bool {
        world.now_ns.get() >= self.until_ns.get()
    }

    /// As `cli::stop::Stopping::end_all`.
    fn go_on(&self, world: &World, phase: Phase) {
        let left = self.left();
        match phase {
            Phase::Begin if left.is_empty() => self.phase.set(Phase::Done),
            Phase::Begin => self.enter(world, Phase::Grace, self.grace_ns),
            Phase::Again if left.is_empty() || self.grace_left_ns(world) == 0 => {
                let is_over = left.is_empty();
                self.do_next([Todo::Leave { is_over }]);
                self.phase.set(Phase::Done);
            }
            Phase::Again => self.enter(world, Phase::Grace, self.grace_left_ns(world)),
            _ if left.is_empty() => {
                self.do_next([Todo::Leave { is_over: true }]);
                self.phase.set(Phase::Again);
            }
            _ if !self.is_late(world) => self.wait(world),
            Phase::Grace => {
                self.is_frozen.set(true);
                self.do_next([Todo::Freeze]);
                self.enter(world, Phase::Drain, DRAIN_NS);
            }
            Phase::Drain => {
                self.kill(&left);
                self.enter(world, Phase::Kill, KILL_NS);
            }
            Phase::Kill | Phase::Done => {
                self.do_next([Todo::Leave { is_over: false }]);
                self.phase.set(Phase::Done);
            }
        }
    }

    fn wait(&self, world: &World) {
        if world.is_faulty.get() && world.one_in(2) {
            let left_ns = self.until_ns.get() - world.now_ns.get();
            let ns = match world.below(4) {
                0 => left_ns,
                _ => left_ns.min(world.below(8 * LOOK_NS)),
            };
            world.now_ns.set(world.now_ns.get() + ns);
        }
    }

    fn kill(&self, pids: &[u32]) {
        // Ask about all of them before any kill.
        self.do_next(pids.iter().map(|pid| Todo::AskMps(*pid)));
        self.do_next(pids.iter().map(|pid| Todo::Kill(*pid)));
    }

    /// Polls for arrivals and overdue processes. False: the daemon does not answer yet.
    fn look(&self, world: &Rc<World>) -> bool {
        let Some(daemon) = world.daemon.borrow().clone() else {
            return true;
        };
        let Ok(state) = daemon.state.try_borrow() else {
            return false;
        };
        let overdue = overdue(world, &daemon, &state);
        let of_job = state
            .jobs
            .iter()
            .filter(|job| whose(&job.key) == self.whose);
        let clients = of_job.flat_map(|job| &job.clients);
        let clients: Vec<(u64, u32)> = clients.map(|one| (one.id, one.peer.pid)).collect();
        drop(state);
        let mut new = Vec::new();
        let mut are_anew = false;
        for (client, pid) in clients {
            let is_new = self.known.borrow_mut().insert((daemon.number, client));
            are_anew |= is_new;
            if is_new && !self.left().contains(&pid) {
                let processes = world.processes.borrow();
                let found = processes.iter().find(|process| process.pid == pid);
                let found = found.filter(|process| process.is_alive.get()).cloned();
                new.extend(found);
            }
        }
        if are_anew || !new.is_empty() {
            let pids: Vec<u32> = new.iter().map(|process| process.pid).collect();
            self.its.borrow_mut().extend(new);
            self.do_next([Todo::SeeTo]);
            self.do_next(pids.into_iter().map(Todo::Term));
            self.do_next(self.is_frozen.get().then_some(Todo::Freeze));
        }
        let killed = self.killed.borrow();
        let mut overdue_its = self.left();
        overdue_its.retain(|pid| overdue.contains(pid) && !killed.contains(pid));
        self.kill(&overdue_its);
        true
    }

    /// False: not yet.
    fn act(&self, world: &Rc<World>, todo: Todo) -> bool {
        let find = |pid: u32| {
            let its = self.its.borrow();
            let found = its.iter().find(|process| process.pid == pid).cloned();
            found.filter(|process| process.is_alive.get())
        };
        match todo {
            Todo::SeeTo => self.tell(world, self.grace_left_ns(world) + SEEN_TO_NS, false),
            Todo::Leave { is_over } => self.tell(world, 0, is_over),
            Todo::Freeze => self.freeze(world),
            Todo::Term(pid) => {
                if let Some(process) = find(pid) {
                    world.say(|| format!("process {pid} gets SIGTERM"));
                    assert_eq!(process.uid, self.whose.1, "another user's process {pid}");
                    process.end.is_asked.set(true);
                }
                true
            }
            Todo::AskMps(pid) => {
                let is_mps = world.plan.is_mps();
                if let Some(process) = find(pid).filter(|_| is_mps) {
                    world.say(|| format!("MPS is asked to end the work of process {pid}"));
                    process.end.is_terminated.set(true);
                }
                true
            }
            Todo::Kill(pid) => {
                if let Some(process) = find(pid) {
                    let is_spared = process.end.is_terminated.get() || !world.plan.is_mps();
                    assert!(
                        is_spared || !process.has_work(),
                        "process {pid} is killed before MPS was asked"
                    );
                    world.kill(&Actor::Process(process));
                }
                self.killed.borrow_mut().insert(pid);
                true
            }
        }
    }

    fn meant(&self) -> Stopped<'_> {
        Stopped {
            job: &self.whose.0,
            user: Some(self.whose.1),
        }
    }

    /// Tells the daemon that it ends the job, or no longer. False: not yet.
    fn tell(&self, world: &Rc<World>, within_ns: u64, is_over: bool) -> bool {
        let Some(daemon) = world.daemon.borrow().clone() else {
            return true;
        };
        let Ok(mut state) = daemon.state.try_borrow_mut() else {
            return false;
        };
        let at = Moment {
            now_ns: world.now_ns.get(),
            boot_ticks: world.tick(),
        };
        let ended = world.ended.borrow();
        let gone = ended
            .iter()
            .filter(|(process, seat)| !process.is_alive.get() && seat.daemon == daemon.number);
        let gone: Vec<u64> = gone.map(|(_, seat)| seat.number).collect();
        drop(ended);
        let of_job = state
            .jobs
            .iter()
            .filter(|job| whose(&job.key) == self.whose);
        let clients = of_job.flat_map(|job| &job.clients);
        let count = clients.filter(|one| !gone.contains(&one.id)).count();
        if within_ns == 0 {
            let mut truth = daemon.truth.borrow_mut();
            truth.end(&self.whose, self.pid, at, is_over && count == 0);
        }
        let by = Peer {
            pid: self.pid,
            uid: self.uid,
        };
        let mut told = None;
        let what = format!(
            "{:?}: ended for {within_ns} ns, over: {is_over}",
            self.whose
        );
        let is_done = daemon.run(world, &what, || {
            told = Some(state.see_to(&self.meant(), by, at, (within_ns, is_over), &gone));
        });
        drop(state);
        if !is_done {
            return true;
        }
        assert_eq!(told.and_then(Result::ok).unwrap_or(0), count, "{what}");
        if within_ns != 0 {
            let mut truth = daemon.truth.borrow_mut();
            truth.begin(&self.whose, self.pid, at, within_ns);
        }
        self.all_are_told(world, &daemon, at.now_ns);
        true
    }

    /// It was killed, and this daemon notices: its requests are withdrawn. False: not yet.
    fn die_at(&self, world: &Rc<World>, daemon: &Rc<Daemon>) -> bool {
        let Ok(mut state) = daemon.state.try_borrow_mut() else {
            return false;
        };
        let at = Moment {
            now_ns: world.now_ns.get(),
            boot_ticks: world.tick(),
        };
        let mut truth = daemon.truth.borrow_mut();
        let was_asker = truth.is_asker(&self.whose, self.pid, at.now_ns);
        truth.end(&self.whose, self.pid, at, false);
        drop(truth);
        let what = format!("who ended {:?} has died", self.whose);
        let is_done = daemon.run(world, &what, || state.handle_asker_death(self.pid, at));
        let is_known = state.is_asker(self.pid, at.now_ns);
        drop(state);
        if is_done {
            assert!(!is_known, "{what}, and is known still");
        }
        if is_done && was_asker {
            self.all_are_told(world, daemon, at.now_ns);
        }
        is_done
    }

    fn all_are_told(&self, world: &World, daemon: &Daemon, now_ns: u64) {
        let truth = daemon.truth.borrow();
        let until_ns = truth.until_ns(&self.whose, now_ns);
        let until_ns = until_ns.filter(|_| truth.is_mps);
        let until_s = until_ns.map_or(0, |ns| seen_to_until_s(now_ns, ns - now_ns));
        drop(truth);
        self.each_told(world, daemon, |(is_asked, _)| (is_asked, until_s));
        check_words(world, daemon);
    }

    fn freeze(&self, world: &Rc<World>) -> bool {
        let Some(daemon) = world.daemon.borrow().clone() else {
            return true;
        };
        let Ok(mut state) = daemon.state.try_borrow_mut() else {
            return false;
        };
        let now_ns = world.now_ns.get();
        let what = format!("{:?} is to launch nothing more", self.whose);
        let is_done = daemon.run(world, &what, || {
            let _ = state.stop(&self.meant(), self.uid, now_ns, &Clock::monotonic());
        });
        drop(state);
        if is_done {
            daemon.truth.borrow_mut().freeze(&self.whose, now_ns);
            self.each_told(world, &daemon, |(_, until_s)| (true, until_s));
            check_words(world, &daemon);
        }
        true
    }

    fn each_told(&self, world: &World, daemon: &Daemon, change: impl Fn(Told) -> Told) {
        let processes = world.processes.borrow();
        let seats = processes
            .iter()
            .filter_map(|process| process.seat_at(daemon.number));
        for seat in seats.filter(|seat| whose(&seat.key) == self.whose) {
            seat.told.set(change(seat.told.get()));
        }
    }
}

/// The daemon's overdue processes: those that reported it, and are not asked anyway.
fn overdue(world: &Rc<World>, daemon: &Rc<Daemon>, state: &State) -> Vec<u32> {
    let processes = world.processes.borrow().clone();
    let honest = processes.iter().filter(|process| !process.is_liar);
    let said = honest.filter(|process| {
        let seat = process.seat_at(daemon.number);
        seat.is_some_and(|seat| !seat.told.get().0) && process.end.is_overdue.get().1
    });
    let said: Vec<_> = said.cloned().collect();
    let mut overdue = Vec::new();
    let is_done = daemon.run(world, "a status for who ends a job", || {
        overdue = state.overdue();
    });
    for process in said.iter().filter(|_| is_done) {
        let is_told = overdue.contains(&process.pid) || !process.is_alive.get();
        assert!(is_told, "process {} is overdue, and not told", process.pid);
    }
    for process in processes.iter().filter(|process| !process.is_liar) {
        let is_right = process.end.is_overdue.get().0 || !overdue.contains(&process.pid);
        assert!(is_right, "process {} is not overdue", process.pid);
    }
    overdue
}
