//! Clients that write into their pages what no library would. The tests write through the pages'
//! descriptors, so any byte may change.

use std::mem::{offset_of, size_of};

use policy::TemporalParams;
use proptest::prelude::*;
use protocol::pages::{RING_RECORDS, RINGS};
use protocol::record::EXPECTED_NS_MAX;

use super::*;

fn write(fd: &OwnedFd, offset_bytes: usize, value: u64) {
    let bytes = value.to_ne_bytes();
    let written = rustix::io::pwrite(fd, &bytes, offset_bytes as u64).unwrap();
    assert_eq!(written, bytes.len());
}

fn ring_tail(index: usize) -> usize {
    offset_of!(ClientPage, rings) + index * (128 + 64 * RING_RECORDS)
}

#[test]
fn a_record_that_does_not_decode_is_counted_and_dropped() {
    let (mut rig, be, mut hp) = Rig::new("").with_two();
    rig.poll();
    claim_rings(&hp.page, 4);
    hp.page.rings[3].push(&[0xbad; 8]).unwrap();
    hp.page.shared_ring.push(&[u64::MAX; 8]).unwrap();
    rig.launch(&mut hp, Class::Compute, 60 * US);
    rig.poll_after(50 * US);
    assert_eq!(rig.state.jobs[1].clients[0].faults().bad_records, 2);
    assert!(rig.terms(&be).beside_hp(), "the good record counts");
    hp.complete();
    rig.poll_after(50 * US);
    assert!(!rig.state.hp.busy);
}

#[test]
fn a_ring_with_an_impossible_index_is_given_up_and_its_client_busy_until_a_completion() {
    let (mut rig, be, mut hp) = Rig::sharing("timeslice", "").with_two();
    rig.poll();
    claim_rings(&hp.page, 6);
    write(&hp.page_fd, ring_tail(5), RING_RECORDS as u64 + 1);
    for _ in 0..3 {
        rig.poll_after(50 * US);
    }
    assert_eq!(rig.state.jobs[1].clients[0].faults().bad_rings, 1);
    assert!(rig.try_launch(&be, &COMPUTE).is_err());
    rig.launch(&mut hp, Class::Compute, 60 * US);
    hp.complete();
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
}

#[test]
fn a_ring_is_read_once_it_is_claimed_and_for_good() {
    let (mut rig, be, hp) = Rig::new("").with_two();
    rig.poll();
    // Its owner is written first, as by the library, and removed, as by no library.
    claim_rings(&hp.page, 4);
    rig.poll_after(50 * US);
    hp.page
        .ring_owner
        .iter()
        .for_each(|owner| owner.store(0, Ordering::Relaxed));
    let launch = Record::Launch(Launch {
        stream: 0,
        seq: 1,
        kernel: 1,
        expected_ns: 60 * US,
        sm_needed: 80,
        class: Class::Compute.bits() as u8,
        at_ns: 0,
    });
    hp.page.rings[3].push(&launch.encode()).unwrap();
    rig.poll_after(50 * US);
    assert!(rig.state.hp.busy && rig.terms(&be).beside_hp());
}

#[test]
fn a_forged_epoch_delays_leases_by_a_poll() {
    let (mut rig, be, _hp) = Rig::new("").with_two();
    for forged in [0, u64::MAX, 7] {
        rig.pages.hp.epoch.store(forged, Ordering::Relaxed);
        rig.poll_after(50 * US);
        assert_ne!(rig.terms(&be).epoch, 0);
        assert!(rig.try_launch(&be, &kernel(Class::Compute, 1)).is_ok());
        be.completed(1);
    }
}

#[test]
fn a_job_that_never_drains_is_left_out_until_it_does() {
    let mut rig = Rig::new("residual_us = 100");
    let honest = rig.be("honest");
    let liar = rig.be("liar");
    let _hp = rig.hp("serve");
    rig.poll();
    liar.page.charged_ns.store(u64::MAX, Ordering::Relaxed);
    rig.try_launch(&honest, &kernel(Class::Compute, 200 * US))
        .unwrap();
    honest.completed(200 * US);
    honest.waits(1);
    rig.poll_after(50 * US);
    assert!(
        rig.try_launch(&honest, &COMPUTE).is_err(),
        "as beside a kernel without end"
    );
    for _ in 0..=DRAIN_NS_MAX / MS {
        rig.poll_after(MS);
    }
    assert!(rig.try_launch(&honest, &COMPUTE).is_ok());
    assert!(rig.state.jobs[1].be_job.as_ref().unwrap().is_stalled());
    assert!(rig.try_launch(&liar, &COMPUTE).is_err());
    liar.page.charged_ns.store(0, Ordering::Relaxed);
    rig.poll_after(50 * US);
    assert!(!rig.state.jobs[1].be_job.as_ref().unwrap().is_stalled());
}

/// The new policy has not counted the liar's earlier charges: refunds must not lower its count.
#[test]
fn a_liar_takes_nothing_back_from_a_policy_that_has_just_begun() {
    let mut rig = Rig::new("residual_us = 100");
    let honest = rig.be("honest");
    let liar = rig.be("liar");
    let _hp = rig.hp("serve");
    rig.poll();
    rig.try_launch(&honest, &kernel(Class::Compute, 200 * US))
        .unwrap();
    let total_ns = &liar.lease.as_ref().unwrap().charges.total_ns;
    total_ns.store(900 * US, Ordering::Relaxed);
    rig.poll_after(50 * US);
    rig.state
        .reconfigure(&config("name = \"orion\"\nresidual_us = 110"));
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&honest, &COMPUTE).is_err(), "over the bound");
    total_ns.store(0, Ordering::Relaxed);
    rig.poll_after(50 * US);
    assert!(rig.try_launch(&honest, &COMPUTE).is_err(), "as before");
}

#[derive(Clone, Debug)]
enum Event {
    HonestLaunch {
        class: usize,
        expected_ns: u64,
    },
    HonestComplete,
    HpLaunch {
        class: usize,
        expected_ns: u64,
    },
    HpComplete,
    Scribble {
        page: usize,
        word: usize,
        value: u64,
    },
    LiarComes,
    LiarGoes,
    Time {
        passed_ns: u64,
    },
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0..200_000_u64,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
        1 => Just(EXPECTED_NS_MAX),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..3_usize, 1..150_000_u64)
            .prop_map(|(class, expected_ns)| Event::HonestLaunch { class, expected_ns }),
        3 => Just(Event::HonestComplete),
        2 => (0..3_usize, 0..150_000_u64)
            .prop_map(|(class, expected_ns)| Event::HpLaunch { class, expected_ns }),
        2 => Just(Event::HpComplete),
        9 => (0..2_usize, 0..64_usize, value())
            .prop_map(|(page, word, value)| Event::Scribble { page, word, value }),
        1 => Just(Event::LiarComes),
        1 => Just(Event::LiarGoes),
        3 => prop_oneof![0..200_000_u64, Just(DRAIN_NS_MAX)]
            .prop_map(|passed_ns| Event::Time { passed_ns }),
    ]
}

struct Scene {
    rig: Rig,
    hp: Player,
    honest: Player,
    liar: Option<Player>,
}

impl Scene {
    fn new(sharing: &str, keys: &str) -> Self {
        let mut rig = Rig::sharing(sharing, keys);
        let hp = rig.hp("serve");
        let honest = rig.be("honest");
        let liar = Some(rig.be("liar"));
        rig.poll();
        Self {
            rig,
            hp,
            honest,
            liar,
        }
    }

    fn handle(&mut self, event: &Event) {
        match *event {
            Event::HonestLaunch { class, expected_ns } => {
                let kernel = kernel(Class::ALL[class], expected_ns);
                let refused = self.rig.try_launch(&self.honest, &kernel).is_err();
                self.honest.waits(refused.into());
            }
            Event::HonestComplete => {
                let charged_ns = self.honest.page.charged_ns.load(Ordering::Relaxed);
                self.honest
                    .page
                    .completed_ns
                    .store(charged_ns, Ordering::Relaxed);
            }
            Event::HpLaunch { class, expected_ns } => {
                self.rig
                    .launch(&mut self.hp, Class::ALL[class], expected_ns);
            }
            Event::HpComplete => {
                if self.hp.seq > 0 {
                    self.hp.complete();
                }
            }
            Event::Scribble { page, word, value } => self.scribble(page, word, value),
            Event::LiarComes => {
                if self.liar.is_none() {
                    self.liar = Some(self.rig.be("liar"));
                }
            }
            Event::LiarGoes => {
                if let Some(liar) = self.liar.take() {
                    self.rig.state.handle_detach(self.rig.now_ns, liar.client);
                }
            }
            Event::Time { passed_ns } => self.rig.now_ns += passed_ns,
        }
        self.rig.poll();
    }

    /// A client page's counters or the lease page; half of the writes hit words that decisions use.
    fn scribble(&self, page: usize, word: usize, value: u64) {
        let Some(liar) = &self.liar else { return };
        if page == 0 {
            let sums = [
                offset_of!(ClientPage, charged_ns),
                offset_of!(ClientPage, completed_ns),
                offset_of!(ClientPage, waiting),
            ];
            let any = word * 8 % offset_of!(ClientPage, ring_owner);
            write(&liar.page_fd, *sums.get(word / 11).unwrap_or(&any), value);
        } else {
            let lease = liar.lease_fd.as_ref().unwrap();
            let offset = match word < 32 {
                true => offset_of!(LeasePage, charges),
                false => word * 8 % size_of::<LeasePage>(),
            };
            write(lease, offset, value);
        }
    }

    /// What the law would grant the honest job alone; never more may be published.
    fn check(&self) -> Result<(), TestCaseError> {
        let terms = self.rig.terms(&self.honest);
        prop_assert!(!terms.ungated());
        let hp = self.rig.state.hp;
        let bound_ns = TemporalParams::default().dur_threshold_ns(&hp);
        let load = |word: &protocol::sync::AtomicU64| word.load(Ordering::Relaxed);
        let page = &self.honest.page;
        let in_flight_ns = load(&page.charged_ns) - load(&page.completed_ns);
        let total_ns = load(&self.honest.lease.as_ref().unwrap().charges.total_ns);
        let budget_ns = terms.limit_total_ns.saturating_sub(total_ns);
        let most_ns = (bound_ns + 1).saturating_sub(in_flight_ns);
        prop_assert!(
            budget_ns <= most_ns,
            "{} > {}: {:?}",
            budget_ns,
            most_ns,
            terms
        );
        let is_open = budget_ns > 0 && terms.class_bits() != 0;
        if is_open && terms.epoch == self.rig.epoch() && hp.busy {
            prop_assert!(terms.beside_hp() && terms.sms_max < 80);
            let unsuited = hp.executing.without(Class::Unknown).bits();
            prop_assert_eq!(terms.class_bits() & unsuited, 0);
        }
        Ok(())
    }
}

/// Whether the page admits `kernel` after `spent_ns` more were charged: the library's own check.
fn page_admits(rig: &Rig, be: &Player, spent_ns: u64, kernel: &Kernel) -> bool {
    let terms = rig.terms(be);
    let total_ns = be
        .lease
        .as_ref()
        .unwrap()
        .charges
        .total_ns
        .load(Ordering::Relaxed);
    let left_ns = terms
        .limit_total_ns
        .saturating_sub(total_ns.saturating_add(spent_ns));
    let is_in_force = terms.epoch == rig.epoch() && rig.now_ns < terms.expiry_ns;
    (terms.ungated() || is_in_force) && admits(&granted(&terms, left_ns), 0, kernel)
}

/// Whether the law of the policy in force admits it, as of the last decision.
fn law_admits(rig: &Rig, job: &str, spent_ns: u64, kernel: &Kernel) -> bool {
    let state = &rig.state;
    let job = state.jobs.iter().find(|known| known.key.id == job).unwrap();
    let be_job = job.be_job.as_ref().unwrap();
    // A job that does not drain is left out of the decision, and granted nothing.
    let mut views = state.views.iter();
    let Some(place) = views.position(|view| view.id == be_job.id()) else {
        return false;
    };
    let snapshot = Snapshot {
        now_ns: rig.now_ns,
        sharing: state.ways.in_force(),
        sms: state.sms,
        epoch: rig.epoch(),
        hp: state.hp,
        be: &state.views,
    };
    state.gate.eligible(&snapshot, place, spent_ns, kernel)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_lying_job_widens_no_other_jobs_lease(
        temporal: bool, mps: bool, events in prop::collection::vec(event(), 1..120),
    ) {
        let policy = if temporal { "name = \"temporal\"" } else { "name = \"orion\"" };
        let mut scene = Scene::new(if mps { "mps" } else { "timeslice" }, policy);
        for event in &events {
            scene.handle(event);
            scene.check()?;
        }
    }

    /// The whole path: rings, sums, policy, lease, page, and back.
    #[test]
    fn what_a_page_admits_the_law_grants_and_the_other_way_round(
        policy in prop::sample::select(vec![
            "name = \"pillion\"", "name = \"pillion\"\nblock_priority = false",
            "name = \"pillion\"\nkernel_pairs = false", "name = \"orion\"", "name = \"temporal\"",
            "name = \"launch-gate\"",
        ]),
        mps: bool,
        steps in prop::collection::vec((event(), 0..3_usize, 0..400_000_u64, 0..200_000_u64), 1..100),
    ) {
        let mut scene = Scene::new(if mps { "mps" } else { "timeslice" }, policy);
        // Two honest clients: a liar's page is its own affair.
        scene.handle(&Event::LiarGoes);
        for (event, class, expected_ns, spent_ns) in &steps {
            if matches!(event, Event::LiarComes) {
                continue;
            }
            scene.handle(event);
            let kernel = kernel(Class::ALL[*class], *expected_ns);
            let by_page = page_admits(&scene.rig, &scene.honest, *spent_ns, &kernel);
            let by_law = law_admits(&scene.rig, "honest", *spent_ns, &kernel);
            prop_assert_eq!(by_page, by_law, "{:?} after {} ns", kernel, spent_ns);
        }
    }

    #[test]
    fn any_words_in_a_high_priority_clients_page_are_survived(
        writes in prop::collection::vec((0..RINGS, 0..80_usize, value()), 1..60),
        epoch: u64,
    ) {
        let (mut rig, be, mut hp) = Rig::new("").with_two();
        claim_rings(&hp.page, RINGS);
        for (ring, word, value) in writes {
            let offset = match word {
                0..16 => word * 8,
                16..24 => ring_tail(ring),
                _ => ring_tail(ring) + 128 + (word - 24) * 8,
            };
            write(&hp.page_fd, offset, value);
            rig.launch(&mut hp, Class::Compute, 10);
            rig.poll_after(50 * US);
        }
        rig.pages.hp.epoch.store(epoch, Ordering::Relaxed);
        rig.poll_after(50 * US);
        rig.state.handle_detach(rig.now_ns, hp.client);
        rig.poll_after(50 * US);
        prop_assert!(rig.terms(&be).ungated());
    }
}
