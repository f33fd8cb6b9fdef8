//! A process with the library: the shipped client ([`client`]), driven by the application, the
//! driver and the library's threads.
//! Beside its pages the *truth* is kept, which the checks compare with the daemon's view of the
//! pages: work in flight, charges, holdings. The truth of a dead process is that it has nothing.

use std::cell::{Cell, RefCell};
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use client::announce::{self, Announced};
use client::gate::{self, Grant, Held, Hold, Step};
use client::link::Pages;
use client::marks::{Issued, Marks, Seen};
use client::rings::{self, Claimed, Thread};
use client::{Client, Welcome, completion};
use policy::Kernel;
use protocol::hello::JobClass;
use protocol::ledger::{Account, Kind, LEDGER_SLOTS, LedgerPage, Slot, rounded_bytes};
use protocol::pages::{ClientPage, Counter, HpPage, LeasePage, RING_RECORDS};
use protocol::sync::Ordering;

use super::accounts::{Booked, Place};
use super::check;
use super::stopping::{End, Told};
use super::world::{Actor, HONEST_JOBS, MS, US, World};
use crate::core::job_key::JobKey;
use crate::host::pages::GpuFds;

const STREAMS: usize = 3;
const THREADS: usize = 3;

pub(super) struct Seat {
    pub(super) daemon: u64,
    pub(super) number: u64,
    pub(super) key: JobKey,
    pub(super) client: Rc<Client>,
    pub(super) lease: Option<Arc<OwnedFd>>,
    pub(super) dropped: u64,
    pub(super) ledger: Option<Place>,
    pub(super) since: u64,
    pub(super) is_booked: Cell<bool>,
    pub(super) told: Cell<Told>,
    pub(super) is_over: Cell<bool>,
}

impl Seat {
    pub(super) fn page(&self) -> &ClientPage {
        &self.client.page
    }
}

#[derive(Default)]
struct Stream {
    issued: Issued,
    seen: Seen,
}

impl Marks for Stream {
    fn issued_marks(&self) -> &Issued {
        &self.issued
    }

    fn seen_marks(&self) -> &Seen {
        &self.seen
    }
}

struct Launcher {
    id: Cell<u32>,
    ring: Cell<Claimed>,
}

impl Launcher {
    fn new(id: u32) -> Self {
        Self {
            id: Cell::new(id),
            ring: Cell::new(Claimed::NONE),
        }
    }
}

impl Thread for Launcher {
    fn id(&self) -> u32 {
        self.id.get()
    }

    fn is_alive(&self, _id: u32) -> bool {
        // There are always unclaimed rings.
        true
    }

    fn ring(&self) -> Claimed {
        self.ring.get()
    }

    fn set_ring(&self, ring: Claimed) {
        self.ring.set(ring);
    }

    fn prepare_to_write<T>(&self, _line: *const T) {}
}

#[derive(Clone, Copy)]
pub(super) struct Launched {
    stream: usize,
    /// The moment after its announcement.
    pub(super) announced: u64,
    pub(super) is_stored: bool,
}

#[derive(Clone, Copy)]
pub(super) struct InFlight {
    pub(super) cost_ns: u64,
    stream: usize,
    /// Position after it in the stream's count.
    mark: u64,
}

pub(super) struct Waiting {
    hold: Hold,
    since_ns: u64,
    is_collective: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Of {
    pub(super) class: JobClass,
    pub(super) job: usize,
    pub(super) uid: u32,
}

pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) class: JobClass,
    pub(super) job: usize,
    pub(super) uid: u32,
    pub(super) is_liar: bool,
    pub(super) is_alive: Cell<bool>,
    pub(super) end: End,
    client: RefCell<Option<Rc<Client>>>,
    pub(super) seat: RefCell<Option<Rc<Seat>>>,
    streams: [Stream; STREAMS],
    threads: [Launcher; THREADS],
    pub(super) launched: RefCell<Vec<Launched>>,
    pub(super) is_lost: Cell<bool>,
    pub(super) in_flight: RefCell<Vec<InFlight>>,
    pub(super) charged_ns: Cell<u64>,
    pub(super) completed_ns: Cell<u64>,
    /// The waiting launch, and since when; none while it checks.
    pub(super) waiting: RefCell<Option<Waiting>>,
    /// Best-effort: the daemon's heartbeat before its present sleep, and the first ring since.
    pub(super) rung: Cell<(u64, u64)>,
    pub(super) granted: Cell<u64>,
    pub(super) collective_since: Cell<Option<u64>>,
    pub(super) sticky: Cell<u32>,
    pub(super) held_bytes: Cell<u64>,
    pub(super) next_bytes: Cell<u64>,
    pub(super) booked: Cell<Booked>,
    pub(super) free_ns: Cell<u64>,
}

impl Process {
    pub(super) fn new(pid: u32, of: Of, has_lying_hp: bool, end: End) -> Self {
        let Of { class, job, uid } = of;
        let is_hp = class == JobClass::HighPriority;
        Self {
            pid,
            class,
            job,
            uid,
            is_liar: job >= HONEST_JOBS && (!is_hp || has_lying_hp),
            is_alive: Cell::new(true),
            end,
            client: RefCell::new(None),
            seat: RefCell::new(None),
            streams: Default::default(),
            threads: std::array::from_fn(|nth| Launcher::new(pid * 100 + nth as u32 + 1)),
            launched: RefCell::default(),
            is_lost: Cell::new(false),
            in_flight: RefCell::default(),
            charged_ns: Cell::new(0),
            completed_ns: Cell::new(0),
            waiting: RefCell::new(None),
            rung: Cell::default(),
            granted: Cell::new(0),
            collective_since: Cell::new(None),
            sticky: Cell::new(0),
            held_bytes: Cell::new(0),
            next_bytes: Cell::new(0),
            booked: Cell::default(),
            free_ns: Cell::new(u64::MAX),
        }
    }

    pub(super) fn is_hp(&self) -> bool {
        self.class == JobClass::HighPriority
    }

    pub(super) fn client(&self, world: &World) -> Rc<Client> {
        let make = || Rc::new(Client::new(self.class, world.now_ns.clock()).unwrap());
        let mut client = self.client.borrow_mut();
        Rc::clone(client.get_or_insert_with(|| world.aside(make)))
    }

    pub(super) fn in_flight_ns(&self) -> u64 {
        let in_flight = self.in_flight.borrow();
        in_flight.iter().map(|launched| launched.cost_ns).sum()
    }

    pub(super) fn seat(&self) -> Option<Rc<Seat>> {
        self.seat.borrow().clone()
    }

    /// Its seat, if at daemon `number` and served.
    pub(super) fn seat_at(&self, number: u64) -> Option<Rc<Seat>> {
        self.seat()
            .filter(|seat| seat.daemon == number && !seat.is_over.get() && self.is_alive.get())
    }

    pub(super) fn is_to_come(&self, world: &World) -> bool {
        let number = world.daemon.borrow().as_ref().map(|daemon| daemon.number);
        // A dying one ignores daemons.
        !self.end.is_dying() && self.seat().is_none_or(|seat| Some(seat.daemon) != number)
    }

    pub(super) fn die(&self, world: &World) {
        if !self.is_alive.replace(false) {
            return;
        }
        world.say(|| format!("process {} is killed", self.pid));
        self.launched.borrow_mut().clear();
        self.in_flight.borrow_mut().clear();
        self.free_ns.set(world.now_ns.get() + world.below(50 * MS));
        let this = world
            .processes
            .borrow()
            .iter()
            .find(|other| other.pid == self.pid)
            .cloned();
        if let Some((this, seat)) = this.zip(self.seat.borrow_mut().take()) {
            world.ended.borrow_mut().push((this, seat));
        }
    }

    pub(super) fn lose_connection(self: &Rc<Self>, world: &World) {
        if let Some(seat) = self.seat() {
            world.say(|| format!("process {} loses its connection", self.pid));
            let is_known = world
                .ended
                .borrow()
                .iter()
                .any(|(_, known)| Rc::ptr_eq(known, &seat));
            if !is_known && !seat.is_over.get() {
                world.ended.borrow_mut().push((Rc::clone(self), seat));
            }
        }
    }

    /// It attaches: for the first time, or to another daemon. None of its threads is in a call.
    pub(super) fn take_seat(self: &Rc<Self>, world: &Rc<World>, seat: Seat, fds: &GpuFds) {
        let before = self.seat();
        // This daemon does not know the work in flight before it is announced.
        let launched = self.launched.take();
        let is_collective = self.collective_since.take().is_some();
        self.begin_to_move(&seat);
        *self.seat.borrow_mut() = Some(Rc::new(seat));
        let Some(seat) = self.seat() else { return };
        world.run(Actor::Process(Rc::clone(self)), "it takes its seat", || {
            let welcome = welcome(&seat, fds);
            let connection = fds.bell.try_clone().unwrap();
            if seat.client.accept(connection, welcome).is_err() {
                // A liar of the same job has written into the lease's page.
                assert!(self.is_liar, "process {} takes its pages", self.pid);
                world
                    .ended
                    .borrow_mut()
                    .push((Rc::clone(self), Rc::clone(&seat)));
                *self.seat.borrow_mut() = None;
                return;
            }
            seat.client.note_taken();
            if self.is_hp() {
                self.announce_again(world, &seat, &launched);
            }
            seat.is_booked.set(true);
            if is_collective {
                self.collective_since.set(Some(world.tick()));
                world.facts.handle_collective(&seat);
            }
            self.go_on(world, before.as_deref(), &seat);
        });
    }

    /// Announces work in flight to the new daemon; a stream's last launch stands for all.
    fn announce_again(&self, world: &Rc<World>, seat: &Seat, launched: &[Launched]) {
        let mut last: Vec<Launched> = Vec::new();
        for launched in launched {
            last.retain(|other| other.stream != launched.stream);
            last.push(*launched);
        }
        let has_launched = self.streams.iter().any(Marks::has_launched);
        let dropped = dropped(world, seat);
        announce::again(&seat.client, self.thread(world), self.streams());
        // A launch known only to the previous daemon; impossible for a process that never launched.
        let lost = dropped_since(world, seat, dropped);
        if has_launched {
            self.is_lost.set(true);
        }
        let announced = world.tick();
        let last = last.into_iter().map(|launched| Launched {
            announced,
            is_stored: lost == u64::from(has_launched),
            ..launched
        });
        *self.launched.borrow_mut() = last.collect();
    }

    fn thread(&self, world: &World) -> &Launcher {
        let thread = &self.threads[world.below(THREADS as u64) as usize];
        if thread.ring() == Claimed::NONE && world.one_in(3) {
            // As if others had claimed all rings.
            thread.set_ring(Claimed::SHARED);
        }
        thread
    }

    fn streams(&self) -> impl Iterator<Item = (u32, &Stream)> {
        (0..).zip(&self.streams)
    }

    pub(super) fn work(self: &Rc<Self>, world: &Rc<World>) {
        let Some(seat) = self.seat() else { return };
        let run = |what: &str, op: &dyn Fn()| {
            let what = format!("process {} {what}", self.pid);
            world.run(Actor::Process(Rc::clone(self)), &what, op)
        };
        if self.is_liar && world.one_in(2) {
            run("writes what it wants", &|| self.lie(world, &seat));
            return;
        }
        if self.begins_to_end(world, &seat) {
            run("is to end", &|| self.go_on_ending(world, &seat));
            return;
        }
        if self.sticky.get() != 0 {
            if world.one_in(6) {
                self.die(world);
            }
            return;
        }
        match (self.is_hp(), world.below(10)) {
            _ if world.one_in(60) => run("loses its context", &|| self.lose_context(world, &seat)),
            (_, 0..2) => run("changes its memory", &|| self.change_memory(world, &seat)),
            (true, 2..7) => self.launch_hp(world, &seat),
            (true, 7) if world.one_in(4) => {
                run("launches very often", &|| self.burst(world, &seat))
            }
            (true, 8) => run("looks whether it is asked", &|| self.answer(world, &seat)),
            (true, _) => run("completes", &|| self.complete_hp(world, &seat)),
            (false, 2..8) => run("launches", &|| self.launch_be(world, &seat)),
            (false, _) => run("completes", &|| self.complete_be(world, &seat)),
        };
    }

    fn launch_hp(self: &Rc<Self>, world: &Rc<World>, seat: &Seat) -> bool {
        let stream = world.below(STREAMS as u64) as usize;
        let thread = self.thread(world);
        let is_first = thread.ring() == Claimed::NONE;
        let what = format!("process {} launches on stream {stream}", self.pid);
        let is_done = world.run(Actor::Process(Rc::clone(self)), &what, || {
            self.launch_by(world, seat, thread, stream);
        });
        check::launched_without_waiting(world, is_first);
        is_done
    }

    fn launch_by(&self, world: &Rc<World>, seat: &Seat, thread: &Launcher, stream: usize) {
        let client = &*seat.client;
        let slot = (stream as u32, &self.streams[stream]);
        let kernel = world.kernel();
        let launch = Announced {
            id: 1,
            kernel: Kernel {
                expected_ns: world.below(300 * US),
                ..kernel
            },
            is_profiled: world.one_in(2),
        };
        let dropped = dropped(world, seat);
        let begun = world.tick();
        let seq = announce::submit(client, thread, slot, &launch);
        let announced = world.tick();
        let is_stored = dropped_since(world, seat, dropped) == 0;
        if !is_stored {
            self.is_lost.set(true);
        }
        world.facts.handle_announced(seat, begun, announced);
        self.launched.borrow_mut().push(Launched {
            stream,
            announced,
            is_stored,
        });
        world.between();
        let is_taken = !world.is_faulty.get() || !world.one_in(30);
        if !is_taken && self.streams[stream].completed() + 1 == seq {
            // Everything is complete, and the daemon hears of it at once.
            self.forget(stream);
        }
        self.telling(world, seat, stream, || {
            announce::handle_launched(client, thread, slot, seq, is_taken);
        });
        if is_taken {
            rings::count_launch(&client.page, thread);
        }
    }

    fn burst(&self, world: &Rc<World>, seat: &Seat) {
        let thread = self.thread(world);
        for _ in 0..=RING_RECORDS {
            self.launch_by(world, seat, thread, 0);
        }
    }

    fn forget(&self, stream: usize) {
        let mut launched = self.launched.borrow_mut();
        launched.retain(|launched| launched.stream != stream);
    }

    /// An operation that may report completions of a stream, which end the effect of lost records.
    fn telling(&self, world: &World, seat: &Seat, stream: usize, op: impl FnOnce()) {
        let (was_told, dropped) = (self.streams[stream].told(), dropped(world, seat));
        op();
        if dropped_since(world, seat, dropped) > 0 {
            self.is_lost.set(true);
        } else if self.streams[stream].told() != was_told {
            self.is_lost.set(false);
        }
    }

    pub(super) fn complete_hp(&self, world: &Rc<World>, seat: &Seat) {
        self.complete_stream(world, seat, world.below(STREAMS as u64) as usize);
    }

    fn complete_stream(&self, world: &World, seat: &Seat, stream: usize) {
        self.forget(stream);
        let slot = (stream as u32, &self.streams[stream]);
        let (thread, mark) = (self.thread(world), slot.1.issued());
        self.telling(world, seat, stream, || {
            completion::complete(&seat.client, thread, slot, mark);
        });
    }

    pub(super) fn complete_all(&self, world: &World, seat: &Seat) {
        for stream in 0..STREAMS {
            if self.streams[stream].is_in_flight() {
                self.complete_stream(world, seat, stream);
            }
        }
        self.answer(world, seat);
    }

    pub(super) fn complete_at_end(&self, seat: &Seat) {
        self.launched.borrow_mut().clear();
        self.is_lost.set(false);
        for (index, stream) in self.streams() {
            completion::complete_at_end(&seat.client, (index, stream), stream.issued());
        }
        let complete_ns = self.in_flight_ns();
        self.in_flight.borrow_mut().clear();
        self.completed_ns.set(self.completed_ns.get() + complete_ns);
    }

    fn answer(&self, world: &World, seat: &Seat) {
        let (thread, dropped) = (self.thread(world), dropped(world, seat));
        let is_asked = world.aside(|| seat.page().probe.load(Ordering::SeqCst) != 0);
        let tells = |stream: &Stream| !stream.is_in_flight() && stream.completed() > 0;
        announce::answer(&seat.client, thread, self.streams());
        if dropped_since(world, seat, dropped) > 0 {
            self.is_lost.set(true);
        } else if is_asked && self.streams.iter().any(tells) {
            self.is_lost.set(false);
        }
    }

    pub(super) fn launch_be(&self, world: &Rc<World>, seat: &Seat) {
        if seat.lease.is_none() {
            return;
        }
        let client = &*seat.client;
        let is_over = || client.connection.has_ended();
        if !check::is_daemon(world, seat.daemon) && !is_over() && world.one_in(2) {
            client.handle_end();
        }
        let waiting = self.waiting.take();
        let since_ns = waiting.as_ref().map(|waiting| waiting.since_ns);
        let asked = check::Asked::now(world, self, seat, since_ns);
        let Some(waiting) = waiting else {
            return self.come_to_the_gate(world, seat, &asked);
        };
        let grant = match waiting.hold.poll(client) {
            Step::Go(grant) => grant,
            Step::SleepUntil(_) => return *self.waiting.borrow_mut() = Some(waiting),
        };
        self.handle_grant(world, seat, &grant, (&asked, waiting.is_collective));
        waiting.hold.end(client);
        self.launch_granted(world, seat, &grant, &asked);
    }

    fn come_to_the_gate(&self, world: &Rc<World>, seat: &Seat, asked: &check::Asked) {
        let client = &*seat.client;
        let kernel = world.kernel();
        let is_collective = world.is_collective(self);
        let looked = match is_collective {
            true => {
                // From here on the daemon may know.
                world.facts.handle_collective(seat);
                let looked = gate::look_collective(client, &kernel, 0);
                if self.collective_since.get().is_none() {
                    self.collective_since.set(Some(world.tick()));
                }
                looked
            }
            false => gate::look(client, &kernel, 0),
        };
        match looked {
            Ok(grant) => {
                self.handle_grant(world, seat, &grant, (asked, is_collective));
                self.launch_granted(world, seat, &grant, asked);
            }
            Err(kernel) => {
                let since_ns = world.now_ns.get();
                let what = match is_collective {
                    true => Held::Collective,
                    false => Held::Launch,
                };
                let hold = Hold::begin(client, kernel, what);
                *self.waiting.borrow_mut() = Some(Waiting {
                    hold,
                    since_ns,
                    is_collective,
                });
            }
        }
    }

    fn handle_grant(
        &self,
        world: &World,
        seat: &Seat,
        grant: &Grant,
        (asked, is_collective): (&check::Asked, bool),
    ) {
        self.charged_ns.set(self.charged_ns.get() + grant.cost_ns);
        match grant.terms() {
            Some(terms) => {
                self.granted.set(self.granted.get() + 1);
                check::granted(world, self, seat, terms, asked);
            }
            None if is_collective && !asked.is_held(world, self, seat) => {}
            None => check::went_without_lease(world, self, seat, asked),
        }
    }

    fn launch_granted(&self, world: &Rc<World>, seat: &Seat, grant: &Grant, asked: &check::Asked) {
        let client = &*seat.client;
        let answered = world.tick();
        let stream = world.below(STREAMS as u64) as usize;
        self.in_flight.borrow_mut().push(InFlight {
            cost_ns: grant.cost_ns,
            stream,
            mark: u64::MAX,
        });
        world.between();
        let is_taken = !world.is_faulty.get() || !world.one_in(30);
        if !is_taken {
            self.in_flight.borrow_mut().pop();
            gate::handle_launched(client, grant, false);
            self.charged_ns.set(self.charged_ns.get() - grant.cost_ns);
            return;
        }
        let counted = || world.aside(|| seat.page().counted(Counter::Slips));
        let (slips, looked) = (counted(), world.tick());
        gate::handle_launched(client, grant, true);
        if let Some(terms) = grant.terms() {
            let is_slip = counted() > slips;
            check::looked_back(world, seat, terms, asked, (answered, looked), is_slip);
        }
        let mark = self.streams[stream].add_issued(grant.cost_ns);
        if let Some(launched) = self.in_flight.borrow_mut().last_mut() {
            launched.mark = mark;
        }
    }

    pub(super) fn complete_be(&self, world: &Rc<World>, seat: &Seat) {
        let (stream, mark) = {
            let in_flight = self.in_flight.borrow();
            if in_flight.is_empty() {
                return;
            }
            let last = in_flight[world.below(in_flight.len() as u64) as usize];
            (last.stream, last.mark)
        };
        let is_complete = |one: &InFlight| one.stream == stream && one.mark <= mark;
        let mut complete_ns = 0;
        self.in_flight.borrow_mut().retain(|one| {
            complete_ns += if is_complete(one) { one.cost_ns } else { 0 };
            !is_complete(one)
        });
        let slot = (stream as u32, &self.streams[stream]);
        completion::complete(&seat.client, self.thread(world), slot, mark);
        self.completed_ns.set(self.completed_ns.get() + complete_ns);
    }

    fn change_memory(&self, world: &Rc<World>, seat: &Seat) {
        let Some(place) = &seat.ledger else {
            return;
        };
        let Some(mut account) = Account::resume(&*place.page, place.slot) else {
            return;
        };
        let held_bytes = self.held_bytes.get();
        if world.one_in(3) {
            let bytes = rounded_bytes(world.below(held_bytes + 1)).min(held_bytes);
            self.next_bytes.set(held_bytes - bytes);
            account.release(Kind::Plain, bytes);
            self.held_bytes.set(held_bytes - bytes);
            return;
        }
        let bytes = rounded_bytes(1 + world.below(400 << 20));
        self.next_bytes.set(held_bytes + bytes);
        if account.try_reserve(Kind::Plain, bytes).is_err() {
            self.next_bytes.set(held_bytes);
            return;
        }
        self.held_bytes.set(held_bytes + bytes);
        world.between();
        if world.one_in(10) {
            self.next_bytes.set(held_bytes);
            account.release(Kind::Plain, bytes);
            self.held_bytes.set(held_bytes);
        }
    }

    /// Writes any word, anywhere it may, and half of the time a word that decisions use.
    fn lie(&self, world: &World, seat: &Seat) {
        let anywhere = |bytes: usize| world.below(bytes as u64 / 8) as usize * 8;
        let client = [
            offset_of!(ClientPage, charged_ns),
            offset_of!(ClientPage, completed_ns),
            offset_of!(ClientPage, waiting),
            offset_of!(ClientPage, rings),
        ];
        let page = world.aside(|| seat.client.page_file());
        match (world.below(5), &seat.lease, &seat.ledger) {
            (0, _, _) => write(page.as_ref(), client[world.below(4) as usize], world.word()),
            (1, _, _) => write(
                page.as_ref(),
                anywhere(offset_of!(ClientPage, rings)),
                world.word(),
            ),
            (2, Some(fd), _) => write(Some(fd), offset_of!(LeasePage, charges), world.word()),
            (3, Some(fd), _) => write(Some(fd), anywhere(size_of::<LeasePage>()), world.word()),
            (4, _, Some(place)) if world.one_in(3) => {
                // A slot in use, or used long ago.
                let slot = size_of::<LedgerPage>() - LEDGER_SLOTS * size_of::<Slot>();
                let at = slot + world.below(8) as usize * size_of::<Slot>();
                write(Some(&place.fd), at, world.below(30));
            }
            (4, _, Some(place)) => write(Some(&place.fd), anywhere(4096), world.word()),
            _ if self.is_hp() => self.lie_of_epochs(world, &seat.client.link.hp_written),
            _ => {}
        }
    }

    fn lie_of_epochs(&self, world: &World, hp: &HpPage) {
        hp.epoch.store(world.word(), Ordering::Relaxed);
    }
}

/// A daemon's reply to an accepted client. The caller handles the ledger.
fn welcome(seat: &Seat, fds: &GpuFds) -> Welcome {
    let (hp, lease) = match &seat.lease {
        Some(lease) => (&fds.hp_read, Some(lease.try_clone().unwrap())),
        None => (&fds.hp, None),
    };
    Welcome {
        pages: Pages {
            daemon: fds.daemon_read.try_clone().unwrap(),
            hp: hp.try_clone().unwrap(),
            bell: fds.bell.try_clone().unwrap(),
            lease,
        },
        ledger: None,
        own: None,
    }
}

fn dropped(world: &World, seat: &Seat) -> u64 {
    world.aside(|| seat.page().counted(Counter::Dropped))
}

fn dropped_since(world: &World, seat: &Seat, before: u64) -> u64 {
    dropped(world, seat).saturating_sub(before)
}

/// Through the descriptor, so that any byte may change.
fn write(fd: Option<impl AsFd>, offset_bytes: usize, value: u64) {
    if let Some(fd) = fd {
        let _ = rustix::io::pwrite(fd, &value.to_ne_bytes(), offset_bytes as u64);
    }
}
