//! The daemon's threads: the shipped core, and their use of it, one call at a time.
//! The poll thread has the state while it polls; the control and memory threads skip their turn if
//! another has what they need. A killed daemon leaves everything as it was.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use client::Client;
use protocol::clock::Clock;
use protocol::hello::{Attach, JobClass, Request};
use protocol::pages::{ClientPage, Counter};
use protocol::quota::Quota;
use protocol::segment::{self, Mapping};

use super::accounts::{Place, brought, cancel_account, open_account};
use super::check;
use super::faults::Watch;
use super::plan::CONFIGS;
use super::process::{Process, Seat};
use super::stopping::Truth;
use super::world::{Actor, HONEST_JOBS, MS, World};
use crate::Gpu;
use crate::config::Config;
use crate::core::job_key::{JobKey, Peer, job_key};
use crate::core::ledgers::Ledgers;
use crate::core::pages::GpuPages;
use crate::core::state::{NewPages, RETURN_NS, State, TurnedAway};
use crate::core::unaccounted_memory::Process as Listed;
use crate::host::pages::{GpuFds, client_page_of_peer, lease_page};
use crate::report::events::Events;
use crate::report::status::{Identity, Status, Viewer};

/// Most processes belong to the first of these users; some jobs of the other have the same name.
pub(super) const USERS: [u32; 2] = [1000, 1001];
const DEVICE_BYTES: u64 = 16 << 30;
const SMS: u32 = 80;

pub(super) struct Daemon {
    pub(super) number: u64,
    pub(super) state: RefCell<State>,
    pub(super) ledgers: RefCell<Ledgers>,
    pub(super) pages: Arc<GpuPages>,
    descriptors: GpuFds,
    pub(super) is_dead: Cell<bool>,
    pub(super) config: RefCell<Config>,
    pub(super) watch: Watch,
    pub(super) truth: RefCell<Truth>,
    pub(super) returning_until_ns: u64,
    away: RefCell<Vec<u32>>,
}

pub(super) fn name_of(class: JobClass, job: usize) -> String {
    format!("{}-{job}", class.name())
}

pub(super) fn key_of(process: &Process) -> JobKey {
    job_key(
        &name_of(process.class, process.job),
        process.class,
        peer_of(process),
    )
}

pub(super) const NOBODY: u32 = 65_534;

pub(super) fn peer_of(process: &Process) -> Peer {
    Peer {
        pid: process.pid,
        uid: process.uid,
    }
}

impl Daemon {
    pub(super) fn begin(world: &Rc<World>) {
        if world.daemon.borrow().is_some() {
            return;
        }
        let config = &world.plan.configs[world.config.get()];
        let make = || GpuPages::create(config, &Clock::monotonic()).unwrap();
        let (pages, descriptors) = world.aside(make);
        let mut state = State::new(config, SMS, Arc::clone(&pages));
        let now_ns = world.now_ns.get();
        let is_first = world.daemons_ever.get() == 0;
        if !is_first {
            state.expect_returning(now_ns);
        }
        world.daemons_ever.set(world.daemons_ever.get() + 1);
        world.facts.handle_config(config);
        let daemon = Self {
            number: world.daemons_ever.get(),
            state: RefCell::new(state),
            returning_until_ns: if is_first { 0 } else { now_ns + RETURN_NS },
            ledgers: RefCell::new(Ledgers::new(config.memory.clone(), DEVICE_BYTES)),
            pages,
            descriptors,
            is_dead: Cell::new(false),
            config: RefCell::new(config.clone()),
            watch: Watch::new(&config.faults),
            truth: RefCell::new(Truth::new(world.plan.is_mps())),
            away: RefCell::default(),
        };
        world.say(|| format!("daemon {} begins", daemon.number));
        *world.daemon.borrow_mut() = Some(Rc::new(daemon));
    }

    pub(super) fn run(self: &Rc<Self>, world: &Rc<World>, what: &str, op: impl FnOnce()) -> bool {
        world.run(Actor::Daemon(Rc::clone(self)), what, op)
    }

    pub(super) fn poll(self: &Rc<Self>, world: &Rc<World>) {
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return;
        };
        world.facts.polls.set(world.facts.polls.get() + 1);
        world.facts.polling.set(world.facts.polling.get() + 1);
        let begun = world.tick();
        self.run(world, "poll", || {
            let now_ns = world.now_ns.get();
            state.poll(now_ns);
            state.ring_bells(&Clock::monotonic());
        });
        world.facts.polls.set(world.facts.polls.get() + 1);
        world.facts.polling.set(world.facts.polling.get() - 1);
        if !self.is_dead.get() {
            check::polled(world, &state, &self.config.borrow(), begun);
        }
    }

    pub(super) fn meet(self: &Rc<Self>, world: &Rc<World>, process: Option<Rc<Process>>) {
        let Some(process) = process else { return };
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return;
        };
        let Ok(mut ledgers) = self.ledgers.try_borrow_mut() else {
            return;
        };
        let mut seat = None;
        let what = format!(
            "process {} ({:?}, job {}) attaches",
            process.pid, process.class, process.job
        );
        let is_done = self.run(world, &what, || {
            seat = self.try_attach(world, &mut state, &mut ledgers, &process);
        });
        process.bring_late_sticky(world, self, is_done && seat.is_some());
        drop((state, ledgers));
        let Some(seat) = seat.filter(|_| is_done) else {
            return;
        };
        if !process.is_alive.get() {
            // It ended before it read the reply: the control thread finds its connection closed.
            world.ended.borrow_mut().push((process, Rc::new(seat)));
            return;
        }
        process.take_seat(world, seat, &self.descriptors);
    }

    /// As `control::Control::try_attach`: account, then state; undone if the reply is lost.
    fn try_attach(
        &self,
        world: &Rc<World>,
        state: &mut State,
        ledgers: &mut Ledgers,
        process: &Rc<Process>,
    ) -> Option<Seat> {
        let peer = peer_of(process);
        let now_ns = world.now_ns.get();
        let Some(attach) = heard(world, process) else {
            self.turn_away(world, state, process, "garbled");
            return None;
        };
        let client = process.client(world);
        let (page, file) = self.take_page(world, state, process, &client)?;
        let lease = lease_page(&Clock::monotonic()).unwrap();
        let key = job_key(&attach.job, attach.class, peer);
        let opened = match &attach.memory {
            Some(asked) => {
                let brought = brought(world, process);
                Some(open_account(world, ledgers, &key, process, asked, brought)?)
            }
            None => None,
        };
        let class = attach.class;
        let pages = NewPages {
            client: page,
            file,
            lease,
        };
        let is_new = state.pids_of(&key).is_empty();
        let attached = match state.handle_attach(now_ns, peer, attach, pages) {
            Ok(attached) => attached,
            Err(refused) => {
                check::turned_away(state, &self.config.borrow(), &key, &refused);
                cancel_account(ledgers, &key, opened.as_ref());
                self.turn_away(world, state, process, &refused.to_string());
                return None;
            }
        };
        process.bring_sticky(self);
        check::let_in(state, &self.config.borrow(), &key, is_new);
        let number = (attached.client, now_ns);
        let told = self.tell_comer(world, state, &client.page, process, number);
        let is_new_hp = class == JobClass::HighPriority && is_new;
        let is_warned = is_new_hp && self.watch.held.borrow().is_draining;
        assert_eq!(
            attached.draining.is_some(),
            is_warned,
            "a high-priority job comes all the same"
        );
        if !world.is_faulty.get() || !world.one_in(20) {
            let ledger = opened.map(Place::of);
            if class == JobClass::HighPriority {
                world.facts.hp_comings.set(world.facts.hp_comings.get() + 1);
            }
            return Some(Seat {
                daemon: self.number,
                number: attached.client,
                key,
                lease: attached.lease,
                dropped: client.page.counted(Counter::Dropped),
                client,
                ledger,
                since: world.tick(),
                is_booked: Cell::new(false),
                is_over: Cell::new(false),
                told: Cell::new(told),
            });
        }
        world.say(|| "  the welcome is lost".to_owned());
        state.handle_detach(now_ns, attached.client);
        cancel_account(ledgers, &key, opened.as_ref());
        None
    }

    fn take_page(
        &self,
        world: &World,
        state: &mut State,
        process: &Process,
        client: &Client,
    ) -> Option<(Mapping<ClientPage>, (u64, u64))> {
        let file = world.aside(|| client.page_file()).unwrap();
        let Ok(page) = client_page_of_peer(&file) else {
            assert!(process.is_liar, "process {} brings its page", process.pid);
            self.turn_away(world, state, process, "no page");
            return None;
        };
        Some((page, segment::identity(&file).unwrap()))
    }

    fn turn_away(&self, world: &World, state: &mut State, process: &Process, reason: &str) {
        let is_news = state.handle_turned_away(TurnedAway {
            pid: process.pid,
            started_ticks: u64::from(process.pid),
            uid: process.uid,
            name: String::new(),
            job: String::new(),
            attached: false,
            reason: reason.to_owned(),
            at_ns: world.now_ns.get(),
        });
        let mut away = self.away.borrow_mut();
        assert_eq!(is_news, !away.contains(&process.pid), "{reason}");
        away.push(process.pid);
    }

    pub(super) fn notice_an_end(self: &Rc<Self>, world: &Rc<World>) {
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return;
        };
        let Ok(mut ledgers) = self.ledgers.try_borrow_mut() else {
            return;
        };
        let count = world.ended.borrow().len() as u64;
        if count == 0 {
            return;
        }
        let (process, seat) = world
            .ended
            .borrow_mut()
            .swap_remove(world.below(count) as usize);
        if seat.daemon != self.number {
            return;
        }
        self.run(
            world,
            &format!("the end of process {}'s connection", process.pid),
            || {
                seat.is_over.set(true);
                state.handle_detach(world.now_ns.get(), seat.number);
                if let Some(place) = &seat.ledger {
                    ledgers.handle_detach(&seat.key, place.slot as u16);
                }
            },
        );
    }

    fn reconfigure(&self, world: &World, state: &mut State) {
        world.config.set(world.below(CONFIGS as u64) as usize);
        let config = &world.plan.configs[world.config.get()];
        let before = self.config.replace(config.clone());
        assert_eq!(before.fixed_difference(config), None);
        world.facts.handle_config(config);
        self.watch.handle_rules(&before.faults, &config.faults);
        state.reconfigure(config);
    }

    pub(super) fn watch_memory(self: &Rc<Self>, world: &Rc<World>) {
        let Ok(mut ledgers) = self.ledgers.try_borrow_mut() else {
            return;
        };
        self.run(world, "a look at memory", || {
            let has_ended = |process: &OwnedFd| world.has_ended(process.as_raw_fd());
            let is_anybody_over = ledgers.leaving(has_ended).is_anybody_over;
            if is_anybody_over && !(world.is_faulty.get() && world.one_in(4)) {
                ledgers.poll_leaving(|pid| world.is_listed(pid));
            }
            if world.one_in(2) {
                compare(world, &mut ledgers);
            }
        });
    }

    pub(super) fn answer(self: &Rc<Self>, world: &Rc<World>) {
        let Ok(mut state) = self.state.try_borrow_mut() else {
            return;
        };
        let Ok(mut ledgers) = self.ledgers.try_borrow_mut() else {
            return;
        };
        let now_ns = world.now_ns.get();
        let job = name_of(
            JobClass::BestEffort,
            world.below(HONEST_JOBS as u64) as usize,
        );
        let uid = USERS[world.below(2) as usize];
        self.run(world, "a request", || match world.below(5) {
            0 => {
                let text = Status::of(
                    &state,
                    &ledgers,
                    Events::default().status(),
                    &identity(),
                    now_ns,
                    Viewer::Operator,
                )
                .to_json();
                assert!(text.len() > 100, "{text}");
            }
            1 => {
                let quota = Quota::Bytes((1 + world.below(2048)) << 20);
                let key = job_key(&job, JobClass::BestEffort, Peer { pid: 0, uid });
                world.facts.may_be_over.borrow_mut().push(key);
                ledgers.set_quota(&job, Some(uid), quota).unwrap();
            }
            2 => self.refuse_stop(world, &mut state, &job, uid),
            3 => self.resume(world, &mut state, world.one_in(2)),
            _ => {
                self.reconfigure(world, &mut state);
            }
        });
    }
}

fn heard(world: &World, process: &Process) -> Option<Attach> {
    let attach = Request::Attach(Attach {
        class: process.class,
        job: name_of(process.class, process.job),
        name: "python".to_owned(),
        profile: String::new(),
        profile_fit: String::new(),
        device: String::new(),
        memory: Some(String::new()),
        slot: None,
        falls_with_parent: false,
        is_on_mps: None,
        slo: String::new(),
        compute: String::new(),
        restartable: String::new(),
    });
    let mut packet = attach.encode();
    if world.is_faulty.get() && world.one_in(10) {
        for _ in 0..=world.below(4) {
            let place = world.below(packet.len() as u64) as usize;
            packet[place] = world.word() as u8;
        }
        packet.truncate(packet.len() - world.below(3) as usize);
    }
    match Request::decode(&packet) {
        // Garbled into another job or class it would be another process; those come by themselves.
        Ok(request) if request == attach => match request {
            Request::Attach(attach) => Some(attach),
            _ => None,
        },
        _ => None,
    }
}

fn compare(world: &World, ledgers: &mut Ledgers) {
    let before = ledgers.holdings();
    let processes = world.processes.borrow().clone();
    let listed = processes
        .iter()
        .filter(|process| world.is_listed(process.pid));
    let listed: Vec<Listed> = listed
        .map(|process| Listed {
            pid: process.pid,
            used_bytes: match world.below(10) {
                0 => None,
                1 => Some(world.word()),
                _ => Some(process.held_bytes.get() + (300 << 20)),
            },
        })
        .collect();
    let strays: Vec<(u32, JobKey)> = match before.first() {
        Some(holding) if world.one_in(5) => vec![(999, holding.job.clone())],
        _ => Vec::new(),
    };
    let compared = ledgers.handle_listed(&before, &listed, &strays);
    for (_, eviction) in compared.evictions {
        let found = processes.iter().find(|process| process.pid == eviction.pid);
        if let Some(process) = found.filter(|process| process.is_alive.get()) {
            world.say(|| format!("  process {} is evicted", process.pid));
            process.die(world);
        }
    }
}

fn identity() -> Identity {
    Identity {
        gpu: Gpu {
            uuid: "GPU-1".to_owned(),
            name: "V100-SXM2-16GB".to_owned(),
            pci: "0000:04:00.0".parse().unwrap(),
            sms: SMS,
            memory_bytes: DEVICE_BYTES,
            cuda_driver: 12_080,
            block_priority: None,
        },
        socket: "/run/pillion/GPU-1.sock".to_owned(),
        started_ns: MS,
        ends_when_idle: None,
    }
}
