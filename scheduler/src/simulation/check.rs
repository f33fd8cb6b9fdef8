//! The invariants, and the history that they need.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;

use policy::{JOBS_MAX, Policy};
use protocol::hello::JobClass;
use protocol::lease::Terms;
use protocol::pages::{Counter, ON_LOSS_HOLD, RINGS, SILENCE_NS_MAX};
use protocol::sync::Ordering;

use super::accounts;
use super::daemon::{Daemon, key_of};
use super::plan;
use super::process::{Process, Seat};
use super::stopping;
use super::world::{Actor, MS, US, World};
use crate::config::Config;
use crate::config::limits::CLIENTS_MAX;
use crate::core::job_key::JobKey;
use crate::core::state::{BeJob, ENDED_MAX, Look, Refused, State};

/// Most accesses of shared memory in one high-priority launch: a record's eight words, two indices,
/// a fence, two words of the announcement, an exchange, a count; and the same for a drop.
const LAUNCH_ACCESSES_MAX: u64 = 32;
/// As above, for claiming a ring: the search for its own, and for a free one.
const CLAIM_ACCESSES_MAX: u64 = 2 * RINGS as u64;
const ANNOUNCED_MAX: usize = 64;
/// Polls, 50 µs apart, within which every waiter must be granted something once faults stop: two
/// and a half seconds, as a job that lied is left out of the decision after two.
const LOOKS_MAX: u64 = 50_000;

/// Polls, 9 ms apart, with no grant on a drained GPU: longer than a hold without a fault.
const DRAINED_LOOKS: u64 = 4;

#[derive(Default)]
pub(super) struct Facts {
    pub(super) polls: Cell<u64>,
    pub(super) polling: Cell<u32>,
    pub(super) hp_comings: Cell<u64>,
    pub(super) last_accesses: Cell<u64>,
    /// Jobs that may exceed their quota, until they are within it while idle: the quota changed, or
    /// a process booked its earlier holdings with a new daemon.
    pub(super) may_be_over: RefCell<Vec<JobKey>>,
    bound_ns: Cell<u64>,
    /// Most work in flight of a job at a grant, since the last check, ns.
    in_flight_ns: Cell<u64>,
    /// Since when leases are made by a gating policy; none: not necessarily.
    gating_since: Cell<Option<u64>>,
    /// A policy without a plain bound was in force.
    was_unbounded: Cell<bool>,
    announced: RefCell<Vec<Announced>>,
    collective: RefCell<Vec<(u64, JobKey)>>,
}

struct Announced {
    daemon: u64,
    begun: u64,
    ended: u64,
}

impl Facts {
    pub(super) fn handle_config(&self, config: &Config) {
        if !plan::is_gating(config) {
            self.gating_since.set(None);
        }
        let is_unbounded = !plan::has_plain_bound(config);
        self.was_unbounded
            .set(self.was_unbounded.get() | is_unbounded);
    }

    pub(super) fn handle_daemon_killed(&self) {
        self.in_flight_ns.set(0);
    }

    pub(super) fn handle_collective(&self, seat: &Seat) {
        let mut collective = self.collective.borrow_mut();
        collective.push((seat.daemon, seat.key.clone()));
    }

    pub(super) fn handle_announced(&self, seat: &Seat, begun: u64, ended: u64) {
        // The daemon serves it no more: no lease has the epoch for it.
        if seat.is_over.get() {
            return;
        }
        let mut announced = self.announced.borrow_mut();
        if announced.len() >= ANNOUNCED_MAX {
            announced.remove(0);
        }
        announced.push(Announced {
            daemon: seat.daemon,
            begun,
            ended,
        });
    }
}

pub(super) struct Asked {
    at: u64,
    since_ns: Option<u64>,
    heard_ns: u64,
    polls: u64,
    hp_comings: u64,
    in_flight_ns: u64,
}

impl Asked {
    pub(super) fn now(
        world: &World,
        process: &Process,
        seat: &Seat,
        since_ns: Option<u64>,
    ) -> Self {
        Self {
            since_ns,
            heard_ns: world.aside(|| heard_ns(process, seat, since_ns)),
            in_flight_ns: in_flight_ns(&clients(world, seat.daemon), seat),
            at: world.tick(),
            polls: world.facts.polls.get(),
            hp_comings: world.facts.hp_comings.get(),
        }
    }
}

impl Asked {
    pub(super) fn is_held(&self, world: &World, process: &Process, seat: &Seat) -> bool {
        is_held(world, process, seat, self)
    }
}

/// When the daemon of `seat` was last heard. A sleeping one has its time from the first ring on.
fn heard_ns(process: &Process, seat: &Seat, since_ns: Option<u64>) -> u64 {
    let daemon = &seat.client.link.daemon;
    let is_asleep = daemon.asleep.load(Ordering::Acquire) != 0;
    let heartbeat_ns = daemon.heartbeat_ns.load(Ordering::Acquire);
    let Some(since_ns) = since_ns.filter(|_| is_asleep) else {
        return heartbeat_ns;
    };
    let (before, rung_ns) = process.rung.get();
    if before != heartbeat_ns {
        process.rung.set((heartbeat_ns, since_ns));
        return since_ns.max(heartbeat_ns);
    }
    rung_ns.max(heartbeat_ns)
}

impl World {
    pub(super) fn has_ended(&self, process: RawFd) -> bool {
        let pid = self.by_descriptor.borrow().get(&process).copied();
        let processes = self.processes.borrow();
        let found = processes.iter().find(|other| Some(other.pid) == pid);
        found.is_some_and(|process| !process.is_alive.get())
    }

    /// Whether NVML lists it: late, so a dead one stays for a while; rarely a living one lacks.
    pub(super) fn is_listed(&self, pid: u32) -> bool {
        let processes = self.processes.borrow();
        let found = processes.iter().find(|process| process.pid == pid);
        found.is_some_and(|process| match process.is_alive.get() {
            true => !(self.is_faulty.get() && self.one_in(20)),
            false => self.now_ns.get() < process.free_ns.get(),
        })
    }
}

fn clients(world: &World, number: u64) -> Vec<(Rc<Process>, Rc<Seat>)> {
    let processes = world.processes.borrow();
    let seated = processes
        .iter()
        .filter_map(|process| Some((Rc::clone(process), process.seat_at(number)?)));
    seated.filter(|(process, _)| !process.is_liar).collect()
}

fn is_hp_honest(world: &World) -> bool {
    !world.plan.has_lying_hp
}

fn in_flight_ns(clients: &[(Rc<Process>, Rc<Seat>)], seat: &Seat) -> u64 {
    let is_known =
        |(_, other): &&(Rc<Process>, Rc<Seat>)| other.key == seat.key && other.is_booked.get();
    let of_job = clients.iter().filter(is_known);
    of_job.map(|(other, _)| other.in_flight_ns()).sum()
}

pub(super) fn granted(world: &World, process: &Process, seat: &Seat, terms: &Terms, asked: &Asked) {
    assert!(
        !is_held(world, process, seat, asked),
        "process {} is held because of a fault, and granted something",
        process.pid
    );
    let is_served = process.seat_at(seat.daemon).is_some() && is_daemon(world, seat.daemon);
    if process.is_liar || !is_served || !is_hp_honest(world) || !is_gated(world, asked) {
        return;
    }
    let others = clients(world, seat.daemon);
    let mut hp = others.iter().filter(|(other, _)| other.is_hp());
    if terms.is_for_nobody() {
        is_nobody_expected(world, process);
        let protected = hp.find(|(_, seat)| seat.since < asked.at);
        let protected = protected.map(|(other, _)| other.pid);
        assert_eq!(
            protected, None,
            "granted as if there was nobody to protect from process {}",
            process.pid
        );
        return;
    }
    if !terms.beside_hp() {
        let is_known = |(other, _): &&(Rc<Process>, Rc<Seat>)| {
            let launched = other.launched.borrow();
            launched
                .iter()
                .any(|launched| launched.is_stored && launched.announced < asked.at)
        };
        let busy = hp.find(is_known).map(|(other, _)| other.pid);
        assert_eq!(
            busy, None,
            "granted to process {} as beside an idle GPU",
            process.pid
        );
    }
    if !world.facts.was_unbounded.get() {
        // Grants of others meanwhile may follow this one's charge.
        let in_flight_ns = in_flight_ns(&others, seat).min(asked.in_flight_ns);
        let most_ns = &world.facts.in_flight_ns;
        most_ns.set(most_ns.get().max(in_flight_ns));
        // During a poll that has published a lease, its bound is not known yet.
        if world.facts.polling.get() == 0 {
            check_bound(world);
        }
    }
}

fn check_bound(world: &World) {
    let (in_flight_ns, bound_ns) = (world.facts.in_flight_ns.take(), world.facts.bound_ns.get());
    assert!(
        in_flight_ns <= bound_ns,
        "{in_flight_ns} ns of the job in flight, {bound_ns} ns allowed"
    );
}

fn is_gated(world: &World, asked: &Asked) -> bool {
    let since = world.facts.gating_since.get();
    since.is_some_and(|since| since < asked.at)
}

/// With an ungated lease no client of a previous daemon is expected.
fn is_nobody_expected(world: &World, process: &Process) {
    let daemon = world.daemon.borrow();
    let until_ns = daemon
        .as_ref()
        .map_or(0, |daemon| daemon.returning_until_ns);
    assert!(
        world.now_ns.get() >= until_ns,
        "granted to process {} as if nobody was to come back",
        process.pid
    );
}

fn share_of(state: &State, uid: u32) -> (usize, usize) {
    let jobs = || state.jobs.iter().filter(|job| job.key.uid == uid);
    let best_effort = jobs().filter(|job| job.key.class == JobClass::BestEffort);
    let clients = jobs().map(|job| job.clients.len()).sum();
    (clients, best_effort.count())
}

/// A process was accepted, its job's first if `is_new`: its user is within its limits.
pub(super) fn let_in(state: &State, config: &Config, key: &JobKey, is_new: bool) {
    let (clients, jobs) = share_of(state, key.uid);
    let limits = &config.limits;
    let is_new_be = is_new && key.class == JobClass::BestEffort;
    assert!(clients <= limits.clients_per_user, "{clients} clients");
    assert!(!is_new_be || jobs <= limits.jobs_per_user, "{jobs} jobs");
}

pub(super) fn turned_away(state: &State, config: &Config, key: &JobKey, refused: &Refused) {
    let (clients, jobs) = share_of(state, key.uid);
    let limits = &config.limits;
    let best_effort = state
        .jobs
        .iter()
        .filter(|job| job.key.uid == key.uid && job.key.class == JobClass::BestEffort);
    let of_best_effort: usize = best_effort.map(|job| job.clients.len()).sum();
    let is_right = match refused {
        Refused::UserClients(most) => clients >= *most && *most == limits.clients_per_user,
        Refused::UserHpRoom(most) => {
            key.class == JobClass::BestEffort && of_best_effort >= *most && *most > 0
        }
        Refused::UserJobs(most) => jobs >= *most && *most == limits.jobs_per_user,
        _ => false,
    };
    assert!(is_right, "{refused}: of {clients} clients and {jobs} jobs");
}

fn is_held(world: &World, process: &Process, seat: &Seat, asked: &Asked) -> bool {
    let daemon = world.daemon.borrow().clone();
    let daemon = daemon.filter(|daemon| daemon.number == seat.daemon && !daemon.is_dead.get());
    let is_served = process.seat_at(seat.daemon).is_some() && !process.is_liar;
    let since = daemon.and_then(|daemon| daemon.watch.held.borrow().since(&seat.key));
    is_served && since.is_some_and(|since| since < asked.at)
}

/// A non-collective launch of `process`, or one of a held job, goes without a lease: its wait timed
/// out, or the daemon has ended and it need not wait for that.
pub(super) fn went_without_lease(world: &World, process: &Process, seat: &Seat, asked: &Asked) {
    let page = &seat.client.link.daemon;
    let (holds, max_hold_ns) = world.aside(|| {
        let on_loss = page.on_daemon_loss.load(Ordering::Relaxed);
        (
            on_loss == ON_LOSS_HOLD,
            page.max_hold_ns.load(Ordering::Relaxed),
        )
    });
    let now_ns = world.now_ns.get();
    let is_silent = now_ns.saturating_sub(asked.heard_ns) >= SILENCE_NS_MAX;
    let is_gone = is_silent || seat.is_over.get() || !is_daemon(world, seat.daemon);
    let is_late = asked
        .since_ns
        .is_some_and(|since_ns| now_ns >= since_ns + max_hold_ns);
    let pid = process.pid;
    assert!(
        is_gone || !is_held(world, process, seat, asked),
        "process {pid} is held because of a fault, and goes"
    );
    assert!(
        is_late || is_gone && !holds || process.is_liar,
        "process {pid} waits for no longer than it must, and goes"
    );
}

/// A thread with a granted launch has checked for high-priority work since. It must have seen any
/// announcement completed between grant and check.
pub(super) fn looked_back(
    world: &World,
    seat: &Seat,
    terms: &Terms,
    asked: &Asked,
    (answered, looked): (u64, u64),
    is_slip: bool,
) {
    // Between the last high-priority client's end and the next one's begin no epoch is live.
    let is_same_side = world.facts.hp_comings.get() == asked.hp_comings;
    if is_slip
        || terms.is_for_nobody()
        || !is_hp_honest(world)
        || !is_same_side
        || !is_daemon(world, seat.daemon)
    {
        return;
    }
    if seat.is_over.get() {
        return;
    }
    let announced = world.facts.announced.borrow();
    // Also before the answer, if no lease was made in between.
    let from = if world.facts.polls.get() == asked.polls {
        asked.at
    } else {
        answered
    };
    let mut of_daemon = announced.iter().filter(|one| one.daemon == seat.daemon);
    let missed = of_daemon.any(|one| one.begun > from && one.ended < looked);
    assert!(
        !missed,
        "high-priority work came between grant and look, and the slip was not seen"
    );
}

pub(super) fn is_daemon(world: &World, number: u64) -> bool {
    world
        .daemon
        .borrow()
        .as_ref()
        .is_some_and(|daemon| daemon.number == number)
}

/// A high-priority launch was made, or killed half-way. A first one includes claiming a ring.
pub(super) fn launched_without_waiting(world: &World, is_first: bool) {
    let accesses = world.facts.last_accesses.get();
    let claim = if is_first { CLAIM_ACCESSES_MAX } else { 0 };
    assert!(
        accesses <= LAUNCH_ACCESSES_MAX + claim,
        "a high-priority launch took {accesses} accesses of shared memory"
    );
}

/// After a poll begun at `begun`: bounded tables, bounds in force noted, refused jobs checked.
pub(super) fn polled(world: &World, state: &State, config: &Config, begun: u64) {
    let count = state
        .jobs
        .iter()
        .map(|job| job.clients.len())
        .sum::<usize>();
    assert!(
        count <= CLIENTS_MAX
            && state.be_jobs().count() <= JOBS_MAX
            && state.ended.len() <= ENDED_MAX
    );
    let bound_ns = match &state.gate.policy() {
        Policy::Orion(params) => params.throttle().dur_threshold_ns(&state.hp),
        Policy::Temporal(params) => params.dur_threshold_ns(&state.hp),
        _ => 0,
    };
    world
        .facts
        .bound_ns
        .set(world.facts.bound_ns.get().max(bound_ns));
    check_bound(world);
    if plan::is_gating(config) && world.facts.gating_since.get().is_none() {
        world.facts.gating_since.set(Some(world.tick()));
    }
    assert!(state.hp.is_valid());
    let is_protecting = state.hp.present || state.is_expecting(world.now_ns.get());
    if plan::refuses_collectives(config) && is_protecting {
        let daemon = world.daemon.borrow();
        let number = daemon.as_ref().map_or(0, |daemon| daemon.number);
        for (process, seat) in clients(world, number) {
            if process
                .collective_since
                .get()
                .is_some_and(|since| since < begun)
            {
                check_refused(state, &process, &seat);
            }
        }
    }
}

fn check_refused(state: &State, process: &Process, seat: &Seat) {
    let job = state.jobs.iter().find(|job| job.key == seat.key);
    let Some(be_job) = job.and_then(|job| job.be_job.as_ref()) else {
        return; // Its end is known already.
    };
    assert!(
        be_job.is_refused() && be_job.is_closed(),
        "process {} launches collectives, and its job is granted {:?}",
        process.pid,
        be_job.published()
    );
}

/// A poll while all are at rest: the daemon's knowledge is true.
pub(super) fn quiet(world: &Rc<World>) {
    let Some(daemon) = world.daemon.borrow().clone() else {
        return;
    };
    daemon.poll(world);
    if world.one_in(4) {
        daemon.catch_up_with_faults(world);
    }
    let state = daemon.state.borrow();
    let page = &daemon.pages.daemon;
    assert_eq!(
        page.heartbeat_ns.load(Ordering::Relaxed),
        world.now_ns.get()
    );
    let clients = clients(world, daemon.number);
    for (process, seat) in &clients {
        let found = (
            seat.page().charged_ns.load(Ordering::Relaxed),
            seat.page().completed_ns.load(Ordering::Relaxed),
        );
        let truth = (process.charged_ns.get(), process.completed_ns.get());
        assert_eq!(
            found, truth,
            "process {}: charged and completed, once each",
            process.pid
        );
    }
    for job in state
        .jobs
        .iter()
        .filter(|job| job.key.class == JobClass::BestEffort)
    {
        let of_job = || clients.iter().filter(|(_, seat)| seat.key == job.key);
        if of_job().count() != job.clients.len() {
            continue; // Somebody's end is not known yet, or he lies.
        }
        let truth_ns: u64 = of_job().map(|(process, _)| process.in_flight_ns()).sum();
        let be_job = job.be_job.as_ref().unwrap();
        assert_eq!(
            be_job.view().in_flight_ns(),
            truth_ns,
            "in flight of job {:?}",
            job.key.id
        );
        let held = daemon.watch.held.borrow().since(&job.key);
        assert_eq!(
            (state.holds.is_held(&job.key), be_job.page().is_held()),
            (held.is_some(), held.is_some()),
            "holds of {:?}",
            job.key
        );
        let is_waiting = of_job().any(|(process, _)| process.waiting.borrow().is_some());
        assert_eq!(be_job.view().waiting, is_waiting, "job {:?}", job.key.id);
    }
    if is_hp_honest(world) {
        check_hp(&clients, &state);
    }
    accounts::check(world, &daemon);
    stopping::check_words(world, &daemon);
}

fn check_hp(clients: &[(Rc<Process>, Rc<Seat>)], state: &State) {
    let hp = || clients.iter().filter(|(process, _)| process.is_hp());
    let known = state
        .jobs
        .iter()
        .filter(|job| job.key.class == JobClass::HighPriority);
    if known.map(|job| job.clients.len()).sum::<usize>() != hp().count() {
        return;
    }
    assert_eq!(state.hp.present, hp().count() > 0);
    let is_busy = |process: &Process| {
        process.is_lost.get()
            || process
                .launched
                .borrow()
                .iter()
                .any(|launched| launched.is_stored)
    };
    let is_truly_busy = hp().any(|(process, _)| is_busy(process));
    assert!(
        state.hp.busy || !is_truly_busy,
        "high-priority work is in flight and not known"
    );
    // A client with a lost record is busy until a completion reported after that was noticed.
    let has_dropped = hp().any(|(_, seat)| seat.page().counted(Counter::Dropped) > seat.dropped);
    // The last completion of a dying client may find no room without being counted.
    let has_dropped = has_dropped || hp().any(|(process, _)| process.end.is_dying());
    assert!(
        is_truly_busy || has_dropped || !state.hp.busy,
        "no high-priority work is in flight"
    );
}

fn complete_all(world: &Rc<World>, clients: &[(Rc<Process>, Rc<Seat>)]) {
    for (process, seat) in clients {
        match process.is_hp() {
            true => process.complete_all(world, seat),
            false => {
                while !process.in_flight.borrow().is_empty() {
                    process.complete_be(world, seat);
                }
            }
        }
    }
}

/// Whether the job of `seat` is refused for its processes' collectives, present or past.
fn is_refused(
    world: &World,
    daemon: &Daemon,
    clients: &[(Rc<Process>, Rc<Seat>)],
    seat: &Seat,
) -> bool {
    let collective = world.facts.collective.borrow();
    let state = daemon.state.borrow();
    let job = state.jobs.iter().find(|job| job.key == seat.key);
    let is_known = job
        .and_then(|job| job.be_job.as_ref())
        .is_some_and(BeJob::has_collectives);
    is_known
        && plan::refuses_collectives(&daemon.config.borrow())
        && clients.iter().any(|(process, _)| process.is_hp())
        && collective.contains(&(daemon.number, seat.key.clone()))
}

/// A drained GPU: work in flight ends, and nothing more is admitted after any wait.
fn nobody_is_served(world: &Rc<World>, daemon: &Rc<Daemon>, clients: &[(Rc<Process>, Rc<Seat>)]) {
    daemon.drain(world);
    complete_all(world, clients);
    for _ in 0..DRAINED_LOOKS {
        for (process, seat) in clients.iter().filter(|(process, _)| !process.is_hp()) {
            process.launch_be(world, seat);
            let is_idle = process.in_flight.borrow().is_empty();
            assert!(is_idle, "process {} launches on a drained GPU", process.pid);
        }
        world.now_ns.set(world.now_ns.get() + 9 * MS);
        daemon.poll(world);
    }
    quiet(world);
}

pub(super) fn all_are_served(world: &Rc<World>) {
    Daemon::begin(world);
    let Some(daemon) = world.daemon.borrow().clone() else {
        return;
    };
    let goes = |process: &&Rc<Process>| {
        process.is_liar || process.sticky.get() != 0 || process.end.is_dying()
    };
    for process in world.free_processes() {
        if process.is_to_come(world) {
            daemon.meet(world, Some(process));
        }
    }
    world.finish_stops(&daemon);
    let liars: Vec<_> = world
        .processes
        .borrow()
        .iter()
        .filter(goes)
        .cloned()
        .collect();
    liars
        .into_iter()
        .for_each(|liar| world.kill(&Actor::Process(liar)));
    while !world.ended.borrow().is_empty() {
        daemon.notice_an_end(world);
    }
    quiet(world);
    let clients = clients(world, daemon.number);
    nobody_is_served(world, &daemon, &clients);
    daemon.resume_all(world);
    let mut hungry: Vec<_> = clients
        .iter()
        .filter(|(process, _)| !process.is_hp())
        .collect();
    for (process, _) in &hungry {
        process.granted.set(0);
    }
    for _ in 0..LOOKS_MAX {
        complete_all(world, &clients);
        hungry.retain(|(process, seat)| {
            process.granted.get() == 0 && !is_refused(world, &daemon, &clients, seat)
        });
        if hungry.is_empty() {
            break;
        }
        for (process, seat) in &hungry {
            process.launch_be(world, seat);
        }
        world.now_ns.set(world.now_ns.get() + 50 * US);
        daemon.poll(world);
    }
    let hungry: Vec<u32> = hungry.iter().map(|(process, _)| process.pid).collect();
    let hp = daemon.state.borrow().hp;
    assert!(
        hungry.is_empty(),
        "processes {hungry:?} are granted nothing although all HP work is complete: {hp:?}"
    );
    quiet(world);
}

pub(super) fn all_comes_back(world: &Rc<World>) {
    let Some(daemon) = world.daemon.borrow().clone() else {
        return;
    };
    daemon.all_is_forgotten(world);
    for process in world.free_processes() {
        world.kill(&Actor::Process(process));
    }
    while !world.ended.borrow().is_empty() {
        daemon.notice_an_end(world);
    }
    world.now_ns.set(world.now_ns.get() + 100 * MS);
    daemon.watch_memory(world);
    let mut state = daemon.state.borrow_mut();
    assert_eq!(
        state.poll(world.now_ns.get()),
        Look::WhenRung,
        "somebody is left"
    );
    assert_eq!(daemon.pages.daemon.live_epoch.load(Ordering::Relaxed), 0);
    let ledgers = daemon.ledgers.borrow();
    assert!(!ledgers.has_holders(), "somebody's memory is not back");
    for process in world
        .processes
        .borrow()
        .iter()
        .filter(|process| !process.is_liar)
    {
        let held_bytes = ledgers
            .status_of(&key_of(process))
            .map_or(0, |status| status.held_bytes);
        assert_eq!(held_bytes, 0, "job of process {}", process.pid);
    }
}
