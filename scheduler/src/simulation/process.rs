//! A process with the library in it: what it does with the pages, in the order in which the library does it.
//!
//! Of each there is the *truth* beside its pages, which the checks compare with what the daemon makes of the pages: what it has in
//! flight, what it has charged, what it holds. The truth of a dead process is that it has nothing.

use std::cell::{Cell, RefCell};
use std::mem::{offset_of, size_of};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use policy::{ClassSet, Kernel, Lease, admits};
use protocol::clock::Clock;
use protocol::hello::JobClass;
use protocol::lease::{Terms, announce, slipped};
use protocol::ledger::{Account, Kind, LEDGER_SLOTS, LedgerPage, Slot, rounded_bytes};
use protocol::pages::{
    ClientPage, Counter, DaemonPage, HpPage, LeasePage, ON_LOSS_HOLD, RING_RECORDS, SILENCE_NS_MAX,
};
use protocol::record::{Launch, Record};
use protocol::segment::{Access, Mapping, client_page};
use protocol::sync::Ordering;

use super::accounts::{Booked, Place};
use super::check;
use super::stopping::{End, Told};
use super::world::{Actor, HONEST_JOBS, MS, US, World};
use crate::core::job_key::JobKey;
use crate::host::pages::GpuFds;

/// Streams that a high-priority process uses.
const STREAMS: usize = 3;
/// Silence after which a killed daemon counts as gone for what it held because of a fault (`interpose::gate`).
const HELD_SILENCE_NS_MAX: u64 = 2_000 * MS;
/// The ring of a process's only thread.
const RING: usize = 5;

/// What a process shares with its daemons, one after the other (`interpose::link`).
pub(super) struct Link {
    pub(super) page: Mapping<ClientPage>,
    pub(super) page_fd: OwnedFd,
    pub(super) daemon: Mapping<DaemonPage>,
    pub(super) hp: Mapping<HpPage>,
    pub(super) lease: Mapping<LeasePage>,
}

impl Link {
    /// With no daemon.
    fn new() -> Self {
        let (page_fd, page) = client_page(&Clock::monotonic()).unwrap();
        Self {
            page,
            page_fd,
            daemon: Mapping::create("pillion-none").unwrap().1,
            hp: Mapping::create("pillion-none").unwrap().1,
            lease: Mapping::create("pillion-none").unwrap().1,
        }
    }
}

/// What a client has of its daemon.
pub(super) struct Seat {
    pub(super) daemon: u64,
    pub(super) client: u64,
    pub(super) key: JobKey,
    pub(super) link: Rc<Link>,
    /// Iff best-effort.
    pub(super) lease: Option<Arc<OwnedFd>>,
    /// Lost records when it came.
    pub(super) dropped: u64,
    pub(super) ledger: Option<Place>,
    /// The moment of the welcome.
    pub(super) since: u64,
    /// What it has in flight from the daemon before is booked with this one.
    pub(super) is_booked: Cell<bool>,
    /// What the daemon was to tell it of its end.
    pub(super) told: Cell<Told>,
    /// The daemon has detached it.
    pub(super) is_over: Cell<bool>,
}

impl Seat {
    pub(super) fn page(&self) -> &ClientPage {
        &self.link.page
    }

    pub(super) fn lease(&self) -> Option<&LeasePage> {
        self.lease.as_ref().map(|_| &*self.link.lease)
    }
}

/// A high-priority launch that the device has not completed, or whose completion was not told.
#[derive(Clone, Copy)]
pub(super) struct Launched {
    stream: usize,
    pub(super) seq: u64,
    /// The moment at which it was announced whole.
    pub(super) announced: u64,
    /// Its record found room.
    pub(super) is_stored: bool,
}

/// Which job a process is of.
#[derive(Clone, Copy)]
pub(super) struct Of {
    pub(super) class: JobClass,
    pub(super) job: usize,
    pub(super) uid: u32,
}

/// See the module's text.
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) class: JobClass,
    pub(super) job: usize,
    pub(super) uid: u32,
    pub(super) is_liar: bool,
    pub(super) is_alive: Cell<bool>,
    pub(super) end: End,
    link: RefCell<Option<Rc<Link>>>,
    pub(super) seat: RefCell<Option<Rc<Seat>>>,
    /// High-priority: what is in flight, and the last number of each stream.
    pub(super) launched: RefCell<Vec<Launched>>,
    seqs: RefCell<[u64; STREAMS]>,
    /// A record of its was lost and no completion was told since.
    pub(super) is_lost: Cell<bool>,
    /// Best-effort: what is in flight and charged, ns.
    pub(super) in_flight: RefCell<Vec<u64>>,
    /// What its page is to say.
    pub(super) charged_ns: Cell<u64>,
    pub(super) completed_ns: Cell<u64>,
    /// What waits at the gate, and since when.
    pub(super) waiting: Cell<Option<(Kernel, u64)>>,
    /// Launches that a lease has granted.
    pub(super) granted: Cell<u64>,
    /// The moment after which its page says that it launched a collective kernel.
    pub(super) collective_since: Cell<Option<u64>>,
    /// The CUDA result after which its context is lost; 0: it is not.
    pub(super) sticky: Cell<u32>,
    /// What it holds of the memory, and what that would be if a change that it is making is made.
    pub(super) held_bytes: Cell<u64>,
    pub(super) next_bytes: Cell<u64>,
    pub(super) booked: Cell<Booked>,
    /// When the device shows a dead process's memory free.
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
            link: RefCell::new(None),
            seat: RefCell::new(None),
            launched: RefCell::default(),
            seqs: RefCell::default(),
            is_lost: Cell::new(false),
            in_flight: RefCell::default(),
            charged_ns: Cell::new(0),
            completed_ns: Cell::new(0),
            waiting: Cell::new(None),
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

    /// What it has for the whole of its life.
    pub(super) fn link(&self, world: &World) -> Rc<Link> {
        let mut link = self.link.borrow_mut();
        Rc::clone(link.get_or_insert_with(|| Rc::new(world.aside(Link::new))))
    }

    pub(super) fn seat(&self) -> Option<Rc<Seat>> {
        self.seat.borrow().clone()
    }

    /// Its seat, if that is one of daemon `number`'s and is served.
    pub(super) fn seat_at(&self, number: u64) -> Option<Rc<Seat>> {
        self.seat()
            .filter(|seat| seat.daemon == number && !seat.is_over.get() && self.is_alive.get())
    }

    /// It has no daemon, or its daemon is gone.
    pub(super) fn is_to_come(&self, world: &World) -> bool {
        let number = world.daemon.borrow().as_ref().map(|daemon| daemon.number);
        // To one that is dying no daemon is of interest.
        !self.end.is_dying() && self.seat().is_none_or(|seat| Some(seat.daemon) != number)
    }

    /// It is killed. The device takes its time to give back what it had.
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

    /// Its connection is closed under it, and it does not know.
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

    /// It is welcome: for the first time, or by another daemon (`interpose::reattach`). Threads of
    /// it may be in the middle of a call.
    pub(super) fn take_seat(self: &Rc<Self>, world: &Rc<World>, seat: Seat, fds: &GpuFds) {
        let before = self.seat();
        // What is in flight is nothing to this daemon before it is announced to it.
        let launched = self.launched.take();
        let is_collective = self.collective_since.take().is_some();
        self.begin_to_move(&seat);
        *self.seat.borrow_mut() = Some(Rc::new(seat));
        let Some(seat) = self.seat() else { return };
        world.run(Actor::Process(Rc::clone(self)), "it takes its seat", || {
            self.link_to(&seat, fds);
            if before.is_none() {
                // As its threads do before their first records: one after the other.
                for owner in &seat.page().ring_owner[..=RING] {
                    let claimed =
                        owner.compare_exchange(0, self.pid, Ordering::AcqRel, Ordering::Relaxed);
                    assert!(claimed.is_ok(), "a page is a process's own");
                }
            }
            if before.is_some() && self.is_hp() {
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

    /// The new daemon's pages take the place of those before.
    fn link_to(&self, seat: &Seat, fds: &GpuFds) {
        let link = &seat.link;
        link.hp.replace(&fds.hp, Access::ReadWrite).unwrap();
        if let Some(fd) = &seat.lease {
            let lease = Mapping::<LeasePage>::open(&**fd, Access::ReadWrite).unwrap();
            lease.bring(&link.page);
            link.lease.replace(&**fd, Access::ReadWrite).unwrap();
        }
        link.daemon.replace(&fds.daemon_read, Access::Read).unwrap();
    }

    fn announce_again(&self, world: &Rc<World>, seat: &Seat, launched: &[Launched]) {
        let mut last: Vec<Launched> = Vec::new();
        for launched in launched {
            last.retain(|other| other.stream != launched.stream);
            last.push(*launched);
        }
        // One stands for all before it.
        for launched in &mut last {
            let record = record(launched.stream, launched.seq, 4, 0);
            launched.is_stored = seat.page().rings[RING].push(&record.encode()).is_ok();
        }
        // A launch that only the daemon before heard of; none can be of who has never launched.
        if self.seqs.borrow().iter().any(|&seq| seq > 0) {
            self.is_lost.set(true);
            seat.page().count(Counter::Dropped, 1);
        }
        announce(&seat.link.daemon, &seat.link.hp);
        let announced = world.tick();
        let last = last.into_iter().map(|launched| Launched {
            announced,
            ..launched
        });
        *self.launched.borrow_mut() = last.collect();
    }

    /// Does one thing.
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
            // What it asks for fails, and sooner or later it ends.
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
            (true, _) => run("completes", &|| self.complete_hp(world, &seat)),
            (false, 2..8) => run("launches", &|| self.launch_be(world, &seat)),
            (false, _) => run("completes", &|| self.complete_be(world, &seat)),
        };
    }

    /// A high-priority launch. It waits for nobody, so it takes few accesses.
    fn launch_hp(self: &Rc<Self>, world: &Rc<World>, seat: &Seat) -> bool {
        let stream = world.below(STREAMS as u64) as usize;
        let what = format!("process {} launches on stream {stream}", self.pid);
        let is_done = world.run(Actor::Process(Rc::clone(self)), &what, || {
            let class = [1, 2, 4][world.below(3) as usize];
            self.push_launch(world, seat, stream, class);
        });
        check::launched_without_waiting(world);
        is_done
    }

    fn push_launch(&self, world: &Rc<World>, seat: &Seat, stream: usize, class: u8) {
        let seq = {
            let mut seqs = self.seqs.borrow_mut();
            seqs[stream] += 1;
            seqs[stream]
        };
        let record = record(stream, seq, class, world.below(300 * US)).encode();
        let is_stored = match world.below(4) {
            0 => seat.page().shared_ring.push(&record).is_ok(),
            _ => seat.page().rings[RING].push(&record).is_ok(),
        };
        if !is_stored {
            self.is_lost.set(true);
            seat.page().count(Counter::Dropped, 1);
        }
        world.between();
        let begun = world.tick();
        announce(&seat.link.daemon, &seat.link.hp);
        let announced = world.tick();
        world.facts.handle_announced(seat, begun, announced);
        self.launched.borrow_mut().push(Launched {
            stream,
            seq,
            announced,
            is_stored,
        });
        world.between();
        seat.page().count_launch_of_ring(RING);
    }

    /// More than a ring holds, and one announcement for the last is as good as one for each.
    fn burst(&self, world: &Rc<World>, seat: &Seat) {
        for _ in 0..RING_RECORDS {
            let seq = {
                let mut seqs = self.seqs.borrow_mut();
                seqs[0] += 1;
                seqs[0]
            };
            if seat.page().rings[RING]
                .push(&record(0, seq, 4, 10).encode())
                .is_err()
            {
                self.is_lost.set(true);
                seat.page().count(Counter::Dropped, 1);
            }
        }
        self.push_launch(world, seat, 0, 4);
    }

    /// The application has waited for a stream.
    pub(super) fn complete_hp(&self, world: &Rc<World>, seat: &Seat) {
        let stream = world.below(STREAMS as u64) as usize;
        self.complete_stream(seat, stream);
    }

    fn complete_stream(&self, seat: &Seat, stream: usize) {
        let seq = self.seqs.borrow()[stream];
        if seq == 0 {
            return;
        }
        // From here on the daemon may know it.
        self.launched
            .borrow_mut()
            .retain(|launched| launched.stream != stream);
        let record = Record::Complete {
            stream: stream as u32,
            seq,
            at_ns: 0,
        };
        match seat.page().rings[RING].push(&record.encode()) {
            Ok(()) => self.is_lost.set(false),
            Err(_) => {
                self.is_lost.set(true);
                seat.page().count(Counter::Dropped, 1);
            }
        }
    }

    /// Every stream, as the helper tells when it is asked.
    pub(super) fn complete_all(&self, seat: &Seat) {
        (0..STREAMS).for_each(|stream| self.complete_stream(seat, stream));
    }

    /// A best-effort launch comes to the gate, or looks again (`interpose::gate`).
    pub(super) fn launch_be(&self, world: &Rc<World>, seat: &Seat) {
        let Some(lease) = seat.lease() else { return };
        let asked = check::Asked::now(world, seat);
        let kernel = self
            .waiting
            .get()
            .map_or_else(|| world.kernel(), |(kernel, _)| kernel);
        let is_collective = self.waiting.get().is_none() && world.is_collective(self);
        let cost_ns = kernel.expected_ns;
        let now_ns = world.now_ns.get();
        let charged = lease.try_charge(
            &seat.page().charged_ns,
            &seat.link.hp,
            now_ns,
            cost_ns,
            |terms, left_ns| admits(&granted(terms, left_ns), 0, &kernel),
        );
        let Ok(terms) = charged else {
            match is_collective && !lease.is_held() {
                true => self.pass(world, seat, lease, cost_ns),
                false => self.hold(world, seat, &asked, kernel),
            }
            return;
        };
        let answered = world.tick();
        self.charged_ns.set(self.charged_ns.get() + cost_ns);
        self.granted.set(self.granted.get() + 1);
        check::granted(world, self, seat, &terms, &asked);
        self.in_flight.borrow_mut().push(cost_ns);
        self.stop_waiting(seat);
        world.between();
        if world.is_faulty.get() && world.one_in(30) {
            self.in_flight.borrow_mut().pop();
            lease.refund(&seat.page().charged_ns, cost_ns);
            self.charged_ns.set(self.charged_ns.get() - cost_ns);
            return;
        }
        let looked = world.tick();
        let is_slip = slipped(&seat.link.hp, &terms);
        check::looked_back(world, seat, &terms, &asked, (answered, looked), is_slip);
        if is_collective {
            self.count_collective(world, seat);
        }
    }

    /// A collective kernel goes although no lease allows it (`interpose::gate::admit_collective`).
    fn pass(&self, world: &World, seat: &Seat, lease: &LeasePage, cost_ns: u64) {
        lease.charge(&seat.page().charged_ns, cost_ns);
        self.charged_ns.set(self.charged_ns.get() + cost_ns);
        self.in_flight.borrow_mut().push(cost_ns);
        self.count_collective(world, seat);
    }

    /// The driver has taken a collective kernel.
    fn count_collective(&self, world: &World, seat: &Seat) {
        seat.page().count(Counter::Collectives, 1);
        if self.collective_since.get().is_none() {
            self.collective_since.set(Some(world.tick()));
            world.facts.handle_collective(seat);
        }
    }

    /// It may not go: it begins to wait, goes on waiting, or has waited for long enough.
    fn hold(&self, world: &World, seat: &Seat, asked: &check::Asked, kernel: Kernel) {
        let Some(lease) = seat.lease() else { return };
        let now_ns = world.now_ns.get();
        let Some((_, since_ns)) = self.waiting.get() else {
            seat.page().waiting.fetch_add(1, Ordering::SeqCst);
            self.waiting.set(Some((kernel, now_ns)));
            return;
        };
        let daemon = &seat.link.daemon;
        let is_asleep = daemon.asleep.load(Ordering::Acquire) != 0;
        let heartbeat_ns = daemon.heartbeat_ns.load(Ordering::Acquire);
        let heard_ns = if is_asleep {
            heartbeat_ns.max(since_ns)
        } else {
            heartbeat_ns
        };
        let is_held = lease.is_held();
        check::looked_held(world, self, seat, asked, is_held);
        let is_killed = !check::is_daemon(world, seat.daemon);
        let silence_ns_max = match (is_killed, is_held) {
            (false, _) => SILENCE_NS_MAX,
            (true, true) => HELD_SILENCE_NS_MAX,
            (true, false) => 0,
        };
        let is_gone = now_ns.saturating_sub(heard_ns) >= silence_ns_max
            || seat.page().detached.load(Ordering::Acquire) != 0;
        let holds = daemon.on_daemon_loss.load(Ordering::Relaxed) == ON_LOSS_HOLD;
        if is_gone && !holds {
            return self.stop_waiting(seat);
        }
        let is_for_good = is_held && !is_gone;
        if !is_for_good && now_ns >= since_ns + daemon.max_hold_ns.load(Ordering::Relaxed) {
            lease.charge(&seat.page().charged_ns, kernel.expected_ns);
            self.charged_ns
                .set(self.charged_ns.get() + kernel.expected_ns);
            self.in_flight.borrow_mut().push(kernel.expected_ns);
            self.stop_waiting(seat);
        }
    }

    fn stop_waiting(&self, seat: &Seat) {
        if self.waiting.take().is_some() {
            seat.page().waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// One of its kernels is seen complete.
    pub(super) fn complete_be(&self, _world: &Rc<World>, seat: &Seat) {
        let Some(cost_ns) = self.in_flight.borrow_mut().pop() else {
            return;
        };
        seat.page()
            .completed_ns
            .fetch_add(cost_ns, Ordering::Release);
        self.completed_ns.set(self.completed_ns.get() + cost_ns);
    }

    /// Allocates or frees.
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
        // The driver refuses it after all.
        if world.one_in(10) {
            self.next_bytes.set(held_bytes);
            account.release(Kind::Plain, bytes);
            self.held_bytes.set(held_bytes);
        }
    }

    /// Any word, anywhere in what it may write, and half of the time in a word that decisions are made of.
    fn lie(&self, world: &World, seat: &Seat) {
        let anywhere = |bytes: usize| world.below(bytes as u64 / 8) as usize * 8;
        let client = [
            offset_of!(ClientPage, charged_ns),
            offset_of!(ClientPage, completed_ns),
            offset_of!(ClientPage, waiting),
            offset_of!(ClientPage, rings) + RING * (128 + 64 * RING_RECORDS),
        ];
        match (world.below(5), &seat.lease, &seat.ledger) {
            (0, _, _) => write(
                &seat.link.page_fd,
                client[world.below(4) as usize],
                world.word(),
            ),
            (1, _, _) => write(
                &seat.link.page_fd,
                anywhere(offset_of!(ClientPage, rings)),
                world.word(),
            ),
            (2, Some(fd), _) => write(fd, offset_of!(LeasePage, charges), world.word()),
            (3, Some(fd), _) => write(fd, anywhere(size_of::<LeasePage>()), world.word()),
            (4, _, Some(place)) if world.one_in(3) => {
                // Somebody has a slot, or had one long ago.
                let slot = size_of::<LedgerPage>() - LEDGER_SLOTS * size_of::<Slot>();
                let at = slot + world.below(8) as usize * size_of::<Slot>();
                write(&place.fd, at, world.below(30));
            }
            (4, _, Some(place)) => write(&place.fd, anywhere(4096), world.word()),
            _ if self.is_hp() => self.lie_of_epochs(world, &seat.link.hp),
            _ => {}
        }
    }

    fn lie_of_epochs(&self, world: &World, hp: &HpPage) {
        hp.epoch.store(world.word(), Ordering::Relaxed);
    }
}

fn record(stream: usize, seq: u64, class: u8, expected_ns: u64) -> Record {
    Record::Launch(Launch {
        stream: stream as u32,
        seq,
        kernel: 1,
        expected_ns,
        sm_needed: 40,
        class,
        at_ns: 0,
    })
}

/// The terms as the policy knows them (`interpose::gate`).
fn granted(terms: &Terms, left_ns: u64) -> Lease {
    Lease {
        epoch: terms.epoch,
        expiry_ns: terms.expiry_ns,
        classes: ClassSet::from_bits_truncate(terms.class_bits()),
        sms_max: terms.sms_max,
        budget_ns: left_ns,
        beside_hp: terms.beside_hp(),
        whole: terms.whole(),
        ungated: terms.ungated(),
    }
}

/// Through the descriptor, so that any byte can be.
fn write(fd: &OwnedFd, offset_bytes: usize, value: u64) {
    let _ = rustix::io::pwrite(fd, &value.to_ne_bytes(), offset_bytes as u64);
}
