//! The state against simulated clients: they map the same pages and do what the library does, or
//! what it never would.

mod caps;
mod collectives;
mod comers;
mod death;
mod faulty;
mod goals;
mod gpu_time;
mod hold;
mod hostile;
mod kept;
mod leaving;
mod marks;
mod pacing;
mod promises;
mod requests;
mod share;
mod targets;
mod trace;
mod tuning;
mod user_times;
mod users;
mod words;
mod worked;

use std::os::fd::OwnedFd;
use std::path::Path;

use policy::{Class, ClassSet, Kernel, Lease, admits};
use protocol::clock::Clock;
use protocol::lease::{FIRST_TOTAL_NS, Refusal, Terms, announce};
use protocol::record::{Launch, Record};
use protocol::segment::{Access, client_page, identity};
use serde_json::Value;

use super::*;
use crate::config::MemoryRules;
use crate::config::limits::HP_ROOM;
use crate::core::block_priority::BlockPriority;
use crate::core::ledgers::Ledgers;
use crate::host::pages::lease_page;
use crate::report::events::Events;
use crate::report::status::{Identity, Status, Viewer};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

pub(super) struct Rig {
    pub(super) state: State,
    pub(super) pages: Arc<GpuPages>,
    pub(super) now_ns: u64,
    pub(super) uid: u32,
    pub(super) is_on_mps: Option<bool>,
    slo: String,
    compute: String,
    restartable: String,
}

pub(super) struct Player {
    pub(super) client: u64,
    pub(super) page: Mapping<ClientPage>,
    pub(super) page_fd: OwnedFd,
    pub(super) lease: Option<Mapping<LeasePage>>,
    pub(super) lease_fd: Option<Arc<OwnedFd>>,
    pub(super) draining: Option<String>,
    seq: u64,
}

impl Rig {
    pub(super) fn new(keys: &str) -> Self {
        Self::sharing("mps", keys)
    }

    pub(super) fn sharing(sharing: &str, keys: &str) -> Self {
        // Most facts are easiest to see under `orion`, whose bounds are plain numbers.
        let name = match keys.contains("name = ") {
            true => "",
            false => "name = \"orion\"",
        };
        let text = format!("[gpu]\nindex = 0\nsharing = \"{sharing}\"\n[policy]\n{name}\n{keys}\n");
        let mut config = Config::check(Path::new("gpu0.toml"), &text).unwrap();
        config.set_block_priority(true);
        let clock = Clock::monotonic();
        let (pages, _fds) = GpuPages::create(&config, &clock).unwrap();
        let mut state = State::new(&config, 80, Arc::clone(&pages));
        state.block_priority.known = BlockPriority::Told(true);
        Self {
            state,
            pages,
            now_ns: MS,
            uid: 1000,
            is_on_mps: None,
            slo: String::new(),
            compute: String::new(),
            restartable: String::new(),
        }
    }

    pub(super) fn poll(&mut self) -> Look {
        self.state.poll(self.now_ns)
    }

    pub(super) fn poll_after(&mut self, passed_ns: u64) -> Look {
        self.now_ns += passed_ns;
        self.poll()
    }

    pub(super) fn try_attach(&mut self, class: JobClass, job: &str) -> Result<Player, Refused> {
        let (page_fd, _page) = client_page(&Clock::monotonic()).unwrap();
        self.try_attach_with(class, job, page_fd)
    }

    /// As above, with the page of an earlier client.
    fn try_attach_with(
        &mut self,
        class: JobClass,
        job: &str,
        page_fd: OwnedFd,
    ) -> Result<Player, Refused> {
        let clock = Clock::monotonic();
        let client = Mapping::open_from_peer(&page_fd).unwrap();
        let page = Mapping::open(&page_fd, Access::ReadWrite).unwrap();
        claim_rings(&page, 1);
        let lease = lease_page(&clock).unwrap();
        let attach = Attach {
            class,
            job: job.to_owned(),
            name: "python".to_owned(),
            is_on_mps: self.is_on_mps,
            slo: self.slo.clone(),
            compute: self.compute.clone(),
            restartable: self.restartable.clone(),
            ..Attach::default()
        };
        let peer = Peer {
            pid: 7,
            uid: self.uid,
        };
        let pages = NewPages {
            client,
            file: identity(&page_fd).unwrap(),
            lease,
        };
        let attached = self.state.handle_attach(self.now_ns, peer, attach, pages)?;
        let lease = attached.lease.as_ref();
        Ok(Player {
            client: attached.client,
            page,
            page_fd,
            lease: lease.map(|fd| Mapping::open(fd, Access::ReadWrite).unwrap()),
            lease_fd: attached.lease,
            draining: attached.draining,
            seq: 0,
        })
    }

    pub(super) fn hp(&mut self, job: &str) -> Player {
        self.try_attach(JobClass::HighPriority, job).unwrap()
    }

    pub(super) fn be(&mut self, job: &str) -> Player {
        self.try_attach(JobClass::BestEffort, job).unwrap()
    }

    pub(super) fn with_two(mut self) -> (Self, Player, Player) {
        let be = self.be("train");
        let hp = self.hp("serve");
        (self, be, hp)
    }

    pub(super) fn launch(&self, hp: &mut Player, class: Class, expected_ns: u64) {
        hp.seq += 1;
        let launch = Record::Launch(Launch {
            stream: 0,
            seq: hp.seq,
            kernel: 1,
            expected_ns,
            sm_needed: 80,
            class: class.bits() as u8,
            at_ns: 0,
        });
        let _ = hp.page.rings[0].push(&launch.encode());
        announce(&self.pages.daemon, &self.pages.hp);
    }

    pub(super) fn try_launch(&self, be: &Player, kernel: &Kernel) -> Result<Terms, Refusal> {
        let lease = be.lease.as_ref().unwrap();
        let hp = &self.pages.hp;
        let cost_ns = kernel.expected_ns;
        lease.try_charge(
            &be.page.charged_ns,
            hp,
            self.now_ns,
            cost_ns,
            |terms, left| admits(&granted(terms, left), 0, kernel),
        )
    }

    pub(super) fn terms(&self, be: &Player) -> Terms {
        be.lease.as_ref().unwrap().terms().unwrap().1
    }

    fn epoch(&self) -> u64 {
        self.pages.hp.epoch.load(Ordering::Relaxed)
    }

    fn live_epoch(&self) -> u64 {
        self.pages.daemon.live_epoch.load(Ordering::Relaxed)
    }

    fn status(&self, viewer: Viewer) -> Value {
        let ledgers = Ledgers::new(MemoryRules::default(), 16 << 30);
        let identity = Identity {
            gpu: crate::Gpu {
                uuid: "GPU-1".to_owned(),
                name: "V100-SXM2-16GB".to_owned(),
                pci: "0000:04:00.0".parse().unwrap(),
                sms: 80,
                memory_bytes: 16 << 30,
                cuda_driver: 12_080,
                block_priority: None,
            },
            socket: "/run/pillion/GPU-1.sock".to_owned(),
            started_ns: 0,
            ends_when_idle: None,
        };
        let events = Events::default().status();
        let now_ns = self.now_ns;
        let status = Status::of(&self.state, &ledgers, events, &identity, now_ns, viewer);
        serde_json::from_str(&status.to_json()).unwrap()
    }
}

pub(super) fn claim_rings(page: &ClientPage, count: usize) {
    for owner in &page.ring_owner[..count] {
        owner.store(1, Ordering::Relaxed);
    }
}

impl Player {
    pub(super) fn push(&self, record: &Record) {
        self.page.rings[0].push(&record.encode()).unwrap();
    }

    pub(super) fn complete(&self) {
        self.complete_at(0);
    }

    /// As above, known to its client since then.
    pub(super) fn complete_at(&self, at_ns: u64) {
        self.push(&Record::Complete {
            stream: 0,
            seq: self.seq,
            at_ns,
        });
    }

    pub(super) fn completed(&self, cost_ns: u64) {
        self.page.completed_ns.fetch_add(cost_ns, Ordering::Relaxed);
    }

    fn waits(&self, threads: u32) {
        self.page.waiting.store(threads, Ordering::Relaxed);
    }
}

fn granted(terms: &Terms, budget_ns: u64) -> Lease {
    Lease {
        epoch: terms.epoch,
        expiry_ns: terms.expiry_ns,
        classes: ClassSet::from_bits_truncate(terms.class_bits()),
        sms_max: terms.sms_max,
        budget_ns,
        beside_hp: terms.beside_hp(),
        whole: terms.whole(),
        standing: terms.standing(),
        ungated: terms.ungated(),
    }
}

pub(super) const fn kernel(class: Class, expected_ns: u64) -> Kernel {
    Kernel {
        class,
        sm_needed: 40,
        expected_ns,
    }
}

const COMPUTE: Kernel = kernel(Class::Compute, 60 * US);
const MEMORY: Kernel = kernel(Class::Memory, 60 * US);

#[test]
fn while_clients_of_the_daemon_before_may_come_back_best_effort_jobs_are_gated() {
    let mut rig = Rig::new("name = \"pillion\"");
    rig.state.expect_returning(rig.now_ns);
    let be = rig.be("train");
    rig.poll();
    let told = |rig: &Rig| rig.status(Viewer::Operator)["jobs"][0]["enforcing"].to_string();
    assert!(!rig.terms(&be).ungated() && rig.try_launch(&be, &COMPUTE).is_ok());
    be.completed(COMPUTE.expected_ns);
    rig.poll_after(RETURN_NS - 1);
    assert!(!rig.terms(&be).ungated());
    assert!(told(&rig).contains("a high-priority client of the previous daemon may attach again"));
    rig.poll_after(1);
    assert!(rig.terms(&be).ungated());
    assert!(told(&rig).contains("no high-priority job is attached"));
    let hp = rig.hp("serve");
    rig.poll();
    assert!(!rig.terms(&be).ungated());
    rig.state.handle_detach(rig.now_ns, hp.client);
    rig.poll();
    assert!(rig.terms(&be).ungated());
}

#[test]
fn a_best_effort_job_alone_is_not_held() {
    let mut rig = Rig::new("");
    let be = rig.be("train");
    assert_eq!(rig.try_launch(&be, &COMPUTE), Err(Refusal::Stale));
    rig.poll();
    for _ in 0..100 {
        assert!(rig.try_launch(&be, &COMPUTE).unwrap().ungated());
    }
    assert_eq!(rig.live_epoch(), 0);
}

#[test]
fn leases_are_gated_by_the_poll_that_follows_a_high_priority_client() {
    let mut rig = Rig::new("");
    let be = rig.be("train");
    rig.poll();
    let _hp = rig.hp("serve");
    rig.poll();
    let terms = rig.terms(&be);
    assert!(!terms.ungated() && !terms.beside_hp());
    assert_eq!((terms.epoch, rig.live_epoch()), (1, 1));
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
}

#[test]
fn policy_none_holds_nobody() {
    let (mut rig, be, mut hp) = Rig::new("name = \"none\"").with_two();
    rig.poll();
    rig.launch(&mut hp, Class::Compute, 60 * US);
    rig.poll();
    assert!(rig.terms(&be).ungated());
    assert_eq!((rig.epoch(), rig.live_epoch()), (1, 0));
}

#[test]
fn a_high_priority_launch_voids_the_lease_and_the_next_one_suits_what_executes() {
    let (mut rig, be, mut hp) = Rig::new("").with_two();
    rig.poll();
    rig.launch(&mut hp, Class::Compute, 500 * US);
    assert_eq!(rig.try_launch(&be, &MEMORY), Err(Refusal::Stale));
    rig.poll();
    let terms = rig.terms(&be);
    assert!(terms.beside_hp());
    assert_eq!((terms.epoch, terms.sms_max), (2, 79));
    assert_eq!(rig.try_launch(&be, &COMPUTE), Err(Refusal::NotAdmitted));
    assert!(rig.try_launch(&be, &MEMORY).is_ok());
    hp.complete();
    rig.poll_after(50 * US);
    assert!(!rig.terms(&be).beside_hp());
    be.completed(60 * US);
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
}

#[test]
fn without_mps_a_busy_high_priority_job_leaves_nothing() {
    let (mut rig, be, mut hp) = Rig::sharing("timeslice", "").with_two();
    rig.launch(&mut hp, Class::Compute, 500 * US);
    rig.poll();
    for kernel in [COMPUTE, MEMORY, kernel(Class::Unknown, 1)] {
        assert!(rig.try_launch(&be, &kernel).is_err());
    }
    hp.complete();
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
}

// census: H4, H9
#[test]
fn work_in_flight_is_bounded_until_it_drains() {
    let (mut rig, be, _hp) = Rig::new("residual_us = 100").with_two();
    rig.poll();
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
    assert!(
        rig.try_launch(&be, &COMPUTE).is_err(),
        "120 of 100 us are in flight"
    );
    be.completed(60 * US);
    rig.poll_after(50 * US);
    assert!(
        rig.try_launch(&be, &COMPUTE).is_err(),
        "60 us are still in flight"
    );
    be.completed(60 * US);
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
}

#[test]
fn under_launch_gate_one_launch_is_in_flight_whatever_it_costs() {
    let mut rig = Rig::new("name = \"launch-gate\"");
    let [first, second] = ["one", "two"].map(|job| rig.be(job));
    let mut hp = rig.hp("serve");
    let long = kernel(Class::Unknown, 900 * MS);
    first.waits(1);
    second.waits(1);
    rig.poll();
    assert!(rig.try_launch(&first, &long).is_ok());
    assert!(rig.try_launch(&first, &kernel(Class::Memory, 1)).is_err());
    rig.poll_after(50 * US);
    for be in [&first, &second] {
        assert!(rig.try_launch(be, &COMPUTE).is_err(), "one is in flight");
    }
    first.completed(900 * MS);
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&first, &COMPUTE).is_err());
    assert!(rig.try_launch(&second, &COMPUTE).is_ok());
    assert!(rig.try_launch(&second, &COMPUTE).is_err());
    // While HP is busy nothing is admitted, however little is in flight.
    second.completed(60 * US);
    rig.launch(&mut hp, Class::Compute, 500 * US);
    rig.poll_after(50 * US);
    for be in [&first, &second] {
        assert!(rig.try_launch(be, &kernel(Class::Memory, 1)).is_err());
    }
    hp.complete();
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&first, &COMPUTE).is_ok());
}

#[test]
fn a_refused_launch_leaves_the_budget_whole() {
    let (mut rig, be, mut hp) = Rig::new("residual_us = 100").with_two();
    rig.launch(&mut hp, Class::Compute, 500 * US);
    rig.poll();
    for _ in 0..10 {
        assert!(rig.try_launch(&be, &COMPUTE).is_err());
        rig.poll_after(50 * US);
    }
    assert_eq!(rig.terms(&be).limit_total_ns, FIRST_TOTAL_NS + 100 * US + 1);
    assert!(rig.try_launch(&be, &MEMORY).is_ok());
}

#[test]
fn the_next_look_is_as_near_as_there_is_to_do() {
    let mut rig = Rig::new("poll_us = 20");
    let asleep = |rig: &Rig| rig.pages.daemon.asleep.load(Ordering::Relaxed);
    assert_eq!(rig.poll(), Look::WhenRung);
    assert_eq!(asleep(&rig), 1);
    let hp = rig.hp("serve");
    assert_eq!(rig.poll(), Look::At(rig.now_ns + MS));
    assert_eq!(asleep(&rig), 0);
    let be = rig.be("train");
    assert_eq!(rig.poll(), Look::At(rig.now_ns + MS));
    be.waits(1);
    assert_eq!(rig.poll(), Look::At(rig.now_ns + 20 * US));
    be.waits(0);
    rig.try_launch(&be, &COMPUTE).unwrap();
    assert_eq!(rig.poll(), Look::At(rig.now_ns + 20 * US));
    be.completed(60 * US);
    assert_eq!(rig.poll(), Look::At(rig.now_ns + MS));
    for client in [hp.client, be.client] {
        rig.state.handle_detach(rig.now_ns, client);
    }
    assert_eq!(rig.poll(), Look::WhenRung);
}

#[test]
fn each_poll_beats_the_heart_until_the_daemon_closes() {
    let mut rig = Rig::new("");
    let be = rig.be("train");
    rig.poll();
    let heartbeat = |rig: &Rig| rig.pages.daemon.heartbeat_ns.load(Ordering::Relaxed);
    assert_eq!(heartbeat(&rig), rig.now_ns);
    rig.state.close();
    assert_eq!(rig.state.bells_to_ring(), 1, "who waits must learn of it");
    rig.state.ring_bells(&Clock::monotonic());
    assert_eq!(be.lease.unwrap().bell.read(), 1);
    rig.poll_after(MS);
    assert_eq!((heartbeat(&rig), rig.live_epoch()), (0, 0));
    let refused = rig.try_attach(JobClass::BestEffort, "late").err();
    assert_eq!(refused, Some(Refused::Closing));
}

#[test]
fn a_lease_that_is_still_right_is_left_alone_until_half_its_time_is_over() {
    let (mut rig, be, _hp) = Rig::new("lease_ms = 4").with_two();
    rig.poll();
    let generation = || be.lease.as_ref().unwrap().terms().unwrap().0;
    let first = generation();
    for _ in 0..2 {
        rig.poll_after(MS);
        assert_eq!((generation(), rig.state.bells_to_ring()), (first, 0));
    }
    rig.poll_after(MS);
    assert_ne!(generation(), first);
    assert_eq!(rig.terms(&be).expiry_ns, rig.now_ns + 4 * MS);
    assert_eq!(rig.state.bells_to_ring(), 0, "nobody waits for a renewal");
    rig.poll_after(5 * MS);
    assert_eq!(
        rig.state.bells_to_ring(),
        1,
        "somebody may have met the end of it"
    );
}

#[test]
fn a_closed_lease_stays_live_until_it_is_overtaken_once() {
    let (mut rig, be, mut hp) = Rig::sharing("timeslice", "").with_two();
    rig.poll();
    rig.launch(&mut hp, Class::Compute, 60 * US);
    rig.poll();
    assert!(rig.try_launch(&be, &COMPUTE).is_err());
    for _ in 0..5 {
        rig.launch(&mut hp, Class::Compute, 60 * US);
        rig.poll_after(50 * US);
    }
    assert_eq!((rig.epoch(), rig.live_epoch()), (2, 1));
}

// census: H11
#[test]
fn clients_of_one_job_share_its_lease_and_jobs_of_two_users_do_not() {
    let mut rig = Rig::new("residual_us = 100");
    let one = rig.be("train");
    let two = rig.be("train");
    let _hp = rig.hp("serve");
    rig.poll();
    rig.try_launch(&one, &COMPUTE).unwrap();
    rig.try_launch(&two, &COMPUTE).unwrap();
    assert!(rig.try_launch(&one, &COMPUTE).is_err());
    // Half of the work in flight dies with its process; the other half still counts.
    rig.state.handle_detach(rig.now_ns, two.client);
    rig.poll_after(50 * US);
    assert_eq!(
        rig.state.jobs[0]
            .be_job
            .as_ref()
            .unwrap()
            .view()
            .in_flight_ns(),
        60 * US
    );
    one.completed(60 * US);
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&one, &COMPUTE).is_ok());
    let key = |uid| {
        let attach = Attach {
            class: JobClass::BestEffort,
            job: "train".to_owned(),
            ..Attach::default()
        };
        job_key(&attach.job, attach.class, Peer { pid: 7, uid })
    };
    assert_ne!(key(1000), key(1001));
}

#[test]
fn a_high_priority_client_that_dies_leaves_nothing_to_protect() {
    let (mut rig, be, mut hp) = Rig::new("").with_two();
    rig.launch(&mut hp, Class::Compute, 500 * US);
    rig.poll();
    rig.state.handle_detach(rig.now_ns, hp.client);
    rig.poll_after(50 * US);
    assert!(rig.terms(&be).ungated());
    assert_eq!(rig.live_epoch(), 0);
}

#[test]
fn a_dropped_record_makes_its_client_busy_until_its_next_completion() {
    let (mut rig, be, mut hp) = Rig::sharing("timeslice", "").with_two();
    rig.poll();
    hp.page.count(Counter::Dropped, 1);
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&be, &COMPUTE).is_err());
    rig.launch(&mut hp, Class::Compute, 60 * US);
    hp.complete();
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
}

#[test]
fn a_kernel_of_unknown_duration_lasts_as_long_as_configured() {
    let (mut rig, be, mut hp) = Rig::new("unknown_kernel_us = 300").with_two();
    rig.poll();
    rig.launch(&mut hp, Class::Compute, 0);
    rig.launch(&mut hp, Class::Memory, 0);
    rig.poll();
    rig.poll_after(299 * US);
    assert_eq!(rig.terms(&be).class_bits(), 0b110, "beside compute");
    rig.poll_after(US);
    assert_eq!(rig.terms(&be).class_bits(), 0b101, "beside memory");
}

#[test]
fn full_tables_refuse_with_their_bound() {
    let mut rig = Rig::new("");
    let user = |n: usize| 1000 + n as u32 / 16;
    for job in 0..JOBS_MAX {
        rig.uid = user(job);
        rig.be(&job.to_string());
    }
    let refused = rig.try_attach(JobClass::BestEffort, "one more").err();
    assert_eq!(refused, Some(Refused::Jobs));
    for client in JOBS_MAX..CLIENTS_MAX - HP_ROOM {
        rig.uid = user(client % JOBS_MAX);
        rig.be(&(client % JOBS_MAX).to_string());
    }
    let refused = rig.try_attach(JobClass::BestEffort, "0").err();
    assert_eq!(refused, Some(Refused::HpRoom));
    for _ in 0..HP_ROOM {
        rig.hp("serve");
    }
    let refused = rig.try_attach(JobClass::HighPriority, "serve").err();
    assert_eq!(refused, Some(Refused::Clients));
    rig.poll();
}

#[test]
fn jobs_that_ended_are_listed_up_to_a_bound() {
    let mut rig = Rig::new("");
    for job in 0..ENDED_MAX + 3 {
        let client = rig.be(&job.to_string()).client;
        rig.state.handle_detach(rig.now_ns, client);
    }
    assert_eq!(rig.state.ended.len(), ENDED_MAX);
    assert_eq!(rig.state.ended[0].key.id, "3");
}

#[test]
fn the_status_names_every_job_counter_and_bound() {
    let (mut rig, be, _hp) = Rig::new("residual_us = 200").with_two();
    be.page.count(Counter::Held, 3);
    rig.poll();
    let json = rig.status(Viewer::Operator);
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["gpu"]["sharing"], "mps");
    assert_eq!(json["policy"]["params"]["sm_threshold"], 80.0);
    assert_eq!(json["policy"]["dur_threshold_ns"], 200_000);
    let job = &json["jobs"][0];
    assert_eq!(job["class"], "best-effort");
    assert_eq!(job["lease"]["budget_ns"], 200_001);
    assert_eq!(
        job["enforcing"],
        "200 us of expected work in flight; beside high-priority kernels only those of another \
         class that need fewer than 80 SMs"
    );
    for counter in Counter::ALL {
        let expected = u64::from(*counter == Counter::Held) * 3;
        assert_eq!(job["totals"][counter.name()], expected);
        assert_eq!(job["clients"][0]["counters"][counter.name()], expected);
    }
    assert_eq!(json["jobs"][1]["enforcing"], "goes first; never held");
}

#[test]
fn leases_are_gated_before_a_high_priority_client_is_answered() {
    let mut rig = Rig::new("residual_us = 100");
    let be = rig.be("train");
    rig.poll();
    assert!(rig.try_launch(&be, &COMPUTE).is_ok(), "nobody to protect");
    let _hp = rig.hp("serve");
    assert!(rig.try_launch(&be, &COMPUTE).is_err());
}

#[test]
fn a_client_that_was_detached_while_it_lives_is_told_so() {
    let mut rig = Rig::new("residual_us = 100");
    let be = rig.be("train");
    rig.poll();
    assert_eq!(be.page.detached.load(Ordering::Acquire), 0);
    rig.state.handle_detach(rig.now_ns, be.client);
    assert_eq!(be.page.detached.load(Ordering::Acquire), 1);
}

fn config(keys: &str) -> Config {
    let text = format!("[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\n{keys}\n");
    let mut config = Config::check(Path::new("gpu0.toml"), &text).unwrap();
    config.set_block_priority(true);
    config
}

#[test]
fn another_configuration_is_in_force_from_the_next_poll_on() {
    let mut rig = Rig::new("name = \"none\"");
    let _hp = rig.hp("serve");
    let be = rig.be("train");
    rig.poll();
    assert!(rig.terms(&be).ungated());
    rig.state
        .handle_config_error("gpu0.toml:4:8: no".to_owned());
    rig.state.reconfigure(&config(
        "name = \"pillion\"\nmax_hold_ms = 7\nunknown_kernel_us = 30",
    ));
    rig.poll_after(MS);
    assert_eq!(rig.state.gate.policy().name(), "pillion");
    assert!(!rig.terms(&be).ungated());
    assert_eq!(rig.state.config_error, None);
    let page = &rig.pages.daemon;
    assert_eq!(page.max_hold_ns.load(Ordering::Relaxed), 7 * MS);
    assert_eq!(page.unknown_ns.load(Ordering::Relaxed), 30 * US);
    assert_eq!(page.learnt_durations.load(Ordering::Relaxed), 1);
    let keys = "name = \"pillion\"\nlearnt_durations = false";
    rig.state.reconfigure(&config(keys));
    assert_eq!(rig.pages.daemon.learnt_durations.load(Ordering::Relaxed), 0);
}

#[test]
fn what_only_a_new_daemon_can_take_over_is_named() {
    let now = config("name = \"orion\"");
    assert_eq!(now.fixed_difference(&config("name = \"pillion\"")), None);
    let sliced = Config {
        sharing: Some(Sharing::TimeSlice),
        ..now.clone()
    };
    assert_eq!(now.fixed_difference(&sliced), Some("[gpu]"));
    let elsewhere = Config {
        socket_path: Some("/run/pillion/other.sock".into()),
        ..now.clone()
    };
    assert_eq!(now.fixed_difference(&elsewhere), Some("[socket]"));
}

#[test]
fn what_a_job_was_promised_reaches_the_gate_by_its_name() {
    let mut rig = Rig::new("name = \"pillion\"");
    let _hp = rig.hp("serve");
    let (_light, _heavy) = (rig.be("light"), rig.be("heavy"));
    let promised = config("name = \"pillion\"\n[jobs.heavy]\nweight = 3");
    rig.state.reconfigure(&promised);
    rig.poll_after(MS);
    let be_jobs = rig.state.jobs.iter().filter_map(|job| job.be_job.as_ref());
    let weights: Vec<u32> = be_jobs
        .map(|be_job| rig.state.gate.terms(be_job.id()).weight)
        .collect();
    assert_eq!(weights, [1, 3]);
}
