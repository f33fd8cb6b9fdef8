//! The parties, their turns, and their faults: all from one seed.
//! There is one thread. Active parties form a stack: at a step of the top one ([`World::between`])
//! others may be pushed, to complete an activity or be killed in the middle of it, before it
//! continues. So an interrupted party sees everything that could have happened meanwhile, except
//! activities that were interrupted later and continue later.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use policy::{Class, Kernel};
use protocol::clock::Clock;
use protocol::hello::JobClass;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::check;
use super::daemon::{Daemon, USERS};
use super::plan::Plan;
use super::process::{Of, Process, Seat};
use super::stopper::Stopper;
use super::stopping::End;

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;

const STEPS: u64 = 160;
const DEPTH_MAX: usize = 4;
const PROCESSES_MAX: usize = 24;
pub(super) const KERNEL_NS_MAX: u64 = 150 * US;

/// Names of honest jobs; the processes of later ones lie.
pub(super) const HONEST_JOBS: usize = 3;
/// The honest job whose processes may launch collective kernels.
const COLLECTIVE_JOB: usize = 1;
const LYING_JOBS: usize = 2;

pub(super) struct Killed;

#[derive(Clone)]
pub(super) enum Actor {
    Daemon(Rc<Daemon>),
    Process(Rc<Process>),
}

impl Actor {
    fn is_dead(&self) -> bool {
        match self {
            Self::Daemon(daemon) => daemon.is_dead.get(),
            Self::Process(process) => !process.is_alive.get(),
        }
    }
}

pub(super) struct Time(Clock);

impl Time {
    fn at(now_ns: u64) -> Self {
        let time = Self(CLOCK.with(|clock| *clock));
        time.set(now_ns);
        time
    }

    pub(super) fn clock(&self) -> Clock {
        self.0
    }

    pub(super) fn get(&self) -> u64 {
        self.0.now_ns()
    }

    pub(super) fn set(&self, now_ns: u64) {
        self.0.set(now_ns);
    }
}

pub(super) struct World {
    rng: RefCell<Pcg64Mcg>,
    pub(super) plan: Plan,
    pub(super) config: Cell<usize>,
    pub(super) now_ns: Time,
    /// Increases with every event: orders them.
    moment: Cell<u64>,
    pub(super) daemon: RefCell<Option<Rc<Daemon>>>,
    pub(super) daemons_ever: Cell<u64>,
    pub(super) processes: RefCell<Vec<Rc<Process>>>,
    pub(super) by_descriptor: RefCell<HashMap<RawFd, u32>>,
    /// Ended connections that the control thread has not noticed.
    pub(super) ended: RefCell<Vec<(Rc<Process>, Rc<Seat>)>>,
    pub(super) stoppers: RefCell<Vec<Rc<Stopper>>>,
    pub(super) killed_stoppers: RefCell<Vec<Rc<Stopper>>>,
    stack: RefCell<Vec<Actor>>,
    /// Accesses of those above, for each on the stack.
    accesses_above: RefCell<Vec<u64>>,
    pub(super) is_faulty: Cell<bool>,
    pub(super) facts: check::Facts,
    story: Option<RefCell<Vec<String>>>,
}

thread_local! {
    /// Shared by all worlds of this thread, one after the other: its page stays.
    static CLOCK: Clock = Clock::set_by_hand().expect("there is memory for a page");
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

/// Queries the world that is simulated in this thread.
pub(super) fn with_world<T>(op: impl FnOnce(&World) -> Option<T>) -> Option<T> {
    let world = WORLD.with_borrow(Clone::clone);
    world.and_then(|world| op(&world))
}

/// Accesses of shared memory by this thread; 0 if not counted.
fn accesses() -> u64 {
    #[cfg(stepped)]
    return protocol::sync::stepped::taken();
    #[cfg(not(stepped))]
    0
}

impl World {
    pub(super) fn new(seed: u64, is_told: bool) -> Rc<Self> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let plan = Plan::of(&mut rng);
        let world = Rc::new(Self {
            rng: RefCell::new(rng),
            plan,
            config: Cell::new(0),
            now_ns: Time::at(MS),
            moment: Cell::new(1),
            daemon: RefCell::new(None),
            daemons_ever: Cell::new(0),
            processes: RefCell::new(Vec::new()),
            by_descriptor: RefCell::new(HashMap::new()),
            ended: RefCell::new(Vec::new()),
            stoppers: RefCell::default(),
            killed_stoppers: RefCell::default(),
            stack: RefCell::new(Vec::new()),
            accesses_above: RefCell::new(Vec::new()),
            is_faulty: Cell::new(false),
            facts: check::Facts::default(),
            story: is_told.then(RefCell::default),
        });
        WORLD.set(Some(Rc::clone(&world)));
        world
    }

    pub(super) fn bury(&self) {
        #[cfg(stepped)]
        protocol::sync::stepped::call_after(0, protocol::sync::stepped::Steps::All, step);
        WORLD.set(None);
        self.stack.borrow_mut().clear();
        self.ended.borrow_mut().clear();
        self.processes.borrow_mut().clear();
        self.stoppers.borrow_mut().clear();
        self.killed_stoppers.borrow_mut().clear();
        *self.daemon.borrow_mut() = None;
    }

    pub(super) fn story(&self) -> Vec<String> {
        self.story.as_ref().map_or_else(Vec::new, RefCell::take)
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if let Some(story) = &self.story {
            let depth = self.stack.borrow().len();
            let line = format!(
                "{:>10} {:indent$}{}",
                self.now_ns.get(),
                "",
                what(),
                indent = 2 * depth
            );
            story.borrow_mut().push(line);
        }
    }

    pub(super) fn tick(&self) -> u64 {
        self.moment.set(self.moment.get() + 1);
        self.moment.get()
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().random_range(0..bound)
    }

    pub(super) fn one_in(&self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Any word, preferring small and extreme ones.
    pub(super) fn word(&self) -> u64 {
        match self.below(5) {
            0 => self.rng.borrow_mut().random(),
            1 => u64::MAX,
            2 => 0,
            _ => self.below(200_000),
        }
    }

    pub(super) fn kernel(&self) -> Kernel {
        Kernel {
            class: Class::ALL[self.below(3) as usize],
            sm_needed: self.below(100) as u32,
            expected_ns: 1 + self.below(KERNEL_NS_MAX),
        }
    }

    pub(super) fn is_collective(&self, process: &Process) -> bool {
        self.plan.has_collectives && process.job == COLLECTIVE_JOB && self.one_in(3)
    }

    /// A whole life: events, then without faults all must be served, then all end.
    pub(super) fn live(self: &Rc<Self>) {
        Daemon::begin(self);
        self.is_faulty.set(true);
        for step in 0..STEPS {
            self.act();
            if step % 8 == 7 {
                self.is_faulty.set(false);
                check::quiet(self);
                self.is_faulty.set(true);
            }
        }
        self.is_faulty.set(false);
        check::all_are_served(self);
        check::all_comes_back(self);
    }

    pub(super) fn run(self: &Rc<Self>, actor: Actor, what: &str, op: impl FnOnce()) -> bool {
        if self.is_faulty.get() {
            self.say(|| what.to_owned());
        }
        self.stack.borrow_mut().push(actor);
        self.accesses_above.borrow_mut().push(0);
        let before = accesses();
        self.arm();
        let result = catch_unwind(AssertUnwindSafe(op));
        self.stack.borrow_mut().pop();
        let above = self.accesses_above.borrow_mut().pop().unwrap_or(0);
        let all = accesses() - before;
        if let Some(under) = self.accesses_above.borrow_mut().last_mut() {
            *under += all;
        }
        self.facts.last_accesses.set(all - above);
        match result {
            Ok(()) => true,
            Err(payload) if payload.is::<Killed>() => {
                self.say(|| "  … was killed in it".to_owned());
                false
            }
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Runs, in one step, what belongs to no party on the stack: its accesses are not theirs.
    pub(super) fn aside<T>(&self, op: impl FnOnce() -> T) -> T {
        let was_faulty = self.is_faulty.replace(false);
        let before = accesses();
        let result = op();
        if let Some(under) = self.accesses_above.borrow_mut().last_mut() {
            *under += accesses() - before;
        }
        self.is_faulty.set(was_faulty);
        self.arm();
        result
    }

    pub(super) fn is_at_work(&self, process: &Rc<Process>) -> bool {
        let stack = self.stack.borrow();
        stack
            .iter()
            .any(|actor| matches!(actor, Actor::Process(other) if Rc::ptr_eq(other, process)))
    }

    /// A step of the active party: others may run here, and it may be killed.
    pub(super) fn between(self: &Rc<Self>) {
        if !self.is_faulty.get() || std::thread::panicking() {
            return;
        }
        let depth = self.stack.borrow().len();
        if depth < DEPTH_MAX {
            (0..self.below(3)).for_each(|_| self.act());
        }
        let top = self.stack.borrow().last().cloned();
        let Some(top) = top else { return };
        if !top.is_dead() && self.one_in(self.plan.kill_one_in) {
            self.kill(&top);
        }
        if top.is_dead() {
            resume_unwind(Box::new(Killed));
        }
        self.arm();
    }

    /// Chooses the next access at which [`World::between`] is called.
    #[cfg(stepped)]
    fn arm(&self) {
        use protocol::sync::stepped::{Steps, call_after};
        if !self.is_faulty.get() {
            return call_after(0, Steps::All, step);
        }
        let counted = match self.one_in(2) {
            true => Steps::Writes,
            false => Steps::All,
        };
        call_after(1 + self.below(self.plan.gap.into()) as u32, counted, step);
    }

    #[cfg(not(stepped))]
    fn arm(&self) {}

    pub(super) fn kill(&self, actor: &Actor) {
        match actor {
            Actor::Daemon(daemon) => {
                self.say(|| format!("daemon {} is killed", daemon.number));
                daemon.is_dead.set(true);
                self.facts.handle_daemon_killed();
                *self.daemon.borrow_mut() = None;
            }
            Actor::Process(process) => process.die(self),
        }
    }

    pub(super) fn free_processes(&self) -> Vec<Rc<Process>> {
        let processes = self.processes.borrow();
        let free = processes
            .iter()
            .filter(|process| process.is_alive.get() && !self.is_at_work(process));
        free.cloned().collect()
    }

    fn any(&self, processes: &[Rc<Process>]) -> Option<Rc<Process>> {
        let count = processes.len() as u64;
        (count > 0).then(|| Rc::clone(&processes[self.below(count) as usize]))
    }

    fn act(self: &Rc<Self>) {
        if self.play_stop() {
            return;
        }
        let drawn = self.below(100);
        let process = self.any(&self.free_processes());
        let daemon = self.daemon.borrow().clone();
        match (drawn, process, daemon) {
            (0..30, _, Some(daemon)) => daemon.poll(self),
            (30..66, Some(process), _) => process.work(self),
            (66..72, _, _) => self.pass_time(),
            (72..80, _, Some(daemon)) => daemon.meet(self, self.process_to_come()),
            (80..85, _, Some(daemon)) => daemon.notice_an_end(self),
            (85..90, _, Some(daemon)) => daemon.watch_memory(self),
            (90..92, Some(process), _) => self.kill(&Actor::Process(process)),
            (92, Some(process), _) => process.lose_connection(self),
            (93, _, Some(daemon)) => self.kill(&Actor::Daemon(daemon)),
            (94..97, _, None) => Daemon::begin(self),
            (97..99, _, Some(daemon)) => daemon.answer(self),
            (99, _, Some(daemon)) => match self.below(2) {
                0 => daemon.handle_xid(self),
                _ => daemon.look_for_faults(self),
            },
            _ => {}
        }
    }

    /// Mostly some microseconds, occasionally a pause of the whole machine.
    fn pass_time(&self) {
        let passed_ns = match self.below(24) {
            23 => 40 * 60_000 * MS,
            0 => 3_000 * MS,
            1 => 15 * MS,
            2..6 => self.below(3 * MS),
            _ => self.below(100 * US),
        };
        self.now_ns.set(self.now_ns.get() + passed_ns);
    }

    fn process_to_come(&self) -> Option<Rc<Process>> {
        let waiting: Vec<_> = self
            .free_processes()
            .into_iter()
            .filter(|process| process.is_to_come(self))
            .collect();
        if !waiting.is_empty() && !self.one_in(3) {
            return self.any(&waiting);
        }
        if self.processes.borrow().len() >= PROCESSES_MAX {
            return None;
        }
        if let Some(of) = self.of_job_that_ends() {
            return Some(self.start(of, End::drawn(self)));
        }
        let is_hp = self.one_in(3);
        let job = self.below((HONEST_JOBS + LYING_JOBS) as u64) as usize;
        let class = if is_hp {
            JobClass::HighPriority
        } else {
            JobClass::BestEffort
        };
        let of = Of {
            class,
            job,
            uid: USERS[usize::from(self.one_in(4))],
        };
        Some(self.start(of, End::drawn(self)))
    }

    pub(super) fn start(&self, of: Of, end: End) -> Rc<Process> {
        let mut processes = self.processes.borrow_mut();
        let pid = processes.len() as u32 + 1;
        let process = Rc::new(Process::new(pid, of, self.plan.has_lying_hp, end));
        processes.push(Rc::clone(&process));
        process
    }
}

#[cfg(stepped)]
fn step() {
    let world = WORLD.with_borrow(Clone::clone);
    if let Some(world) = world {
        world.between();
    }
}
