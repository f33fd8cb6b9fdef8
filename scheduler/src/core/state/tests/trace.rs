//! Notes of a trace, and none without one.

use protocol::record::{Begin, Direction, End, Memcpy, NamePart};
use protocol::trace::{ENTRIES_MAX, Entry, Grant};

use super::*;

const LENGTH_NS: u64 = 10 * MS;

/// The end of a trace, with the time for names.
const AFTER_NS: u64 = LENGTH_NS + 150 * MS;

fn launch(kernel: u64, at_ns: u64) -> Record {
    Record::Launch(Launch {
        stream: 3,
        seq: 1,
        kernel,
        expected_ns: 5 * US,
        sm_needed: 4,
        class: 1,
        at_ns,
    })
}

impl Rig {
    fn begin_trace(&mut self, uid: Option<u32>) -> u32 {
        let begun = self.state.begin_trace(self.now_ns, LENGTH_NS, uid);
        let number = begun.unwrap();
        assert_eq!(self.told(), number);
        assert_ne!(number, 0);
        self.poll();
        number
    }

    fn told(&self) -> u32 {
        self.pages.daemon.trace.load(Ordering::Relaxed)
    }

    fn end_trace(&mut self, number: u32) -> Traced {
        assert!(self.state.take_trace(number).is_none());
        self.poll_after(AFTER_NS);
        assert_eq!(self.told(), 0);
        self.state.take_trace(number).unwrap().into_traced()
    }
}

fn entries(traced: &Traced) -> Vec<Entry> {
    let all = traced.entries.iter().flatten();
    all.map(|words| Entry::decode(words).unwrap()).collect()
}

fn launches(traced: &Traced) -> Vec<(u64, u64, u64)> {
    let entries = entries(traced).into_iter();
    entries
        .filter_map(|entry| match entry {
            Entry::Record {
                client,
                record: Record::Launch(launch),
                ..
            } => Some((client, launch.kernel, launch.at_ns)),
            _ => None,
        })
        .collect()
}

#[test]
fn launches_of_both_classes_are_noted_once_and_only_those_of_its_time() {
    let (mut rig, be, mut hp) = Rig::new("name = \"pillion\"").with_two();
    rig.launch(&mut hp, Class::Compute, 50 * US);
    let begin_ns = rig.now_ns;
    let number = rig.begin_trace(None);
    be.push(&launch(1, begin_ns - 1));
    be.push(&launch(2, begin_ns));
    rig.launch(&mut hp, Class::Compute, 50 * US);
    rig.poll_after(MS);
    hp.complete();
    let late = rig.be("late");
    late.push(&launch(3, rig.now_ns));
    rig.state.handle_detach(rig.now_ns, late.client);
    be.push(&launch(4, begin_ns + LENGTH_NS));
    be.push(&launch(5, begin_ns + LENGTH_NS + 1));
    let traced = rig.end_trace(number);
    assert_eq!(
        launches(&traced),
        [
            (be.client, 2, begin_ns),
            (hp.client, 1, 0),
            (late.client, 3, begin_ns + MS),
            (be.client, 4, begin_ns + LENGTH_NS),
        ]
    );
    assert_eq!(traced.ended_ns - traced.began_ns, LENGTH_NS);
    let jobs: Vec<&str> = traced.jobs.iter().map(|key| &*key.id).collect();
    assert_eq!(jobs, ["train", "serve", "late"]);
    let clients: Vec<(u64, u32)> = traced.clients.iter().map(|is| (is.id, is.job)).collect();
    assert_eq!(clients, [(be.client, 0), (hp.client, 1), (late.client, 2)]);
    let ended = |entry: &Entry| matches!(entry, Entry::Lease(lease) if (lease.job, lease.grant) == (2, Grant::Ended));
    assert_eq!(
        entries(&traced).iter().filter(|entry| ended(entry)).count(),
        1
    );
}

#[test]
fn without_a_trace_nothing_is_noted_and_best_effort_rings_are_not_read() {
    let (mut rig, be, mut hp) = Rig::new("").with_two();
    let number = rig.begin_trace(None);
    rig.end_trace(number);
    rig.launch(&mut hp, Class::Compute, 50 * US);
    for kernel in 0..2_000 {
        // Its ring is full for a while, as nobody drains it.
        let _ = be.page.rings[0].push(&launch(kernel, rig.now_ns).encode());
    }
    rig.poll_after(MS);
    assert!(be.page.rings[0].push(&launch(9, 1).encode()).is_err());
    for client in rig.state.jobs.iter().flat_map(|job| &job.clients) {
        let hp_client = client.hp_client.as_ref();
        assert!(hp_client.is_none_or(|hp_client| hp_client.traced.is_none()));
    }
    let number = rig.begin_trace(None);
    be.push(&launch(7, rig.now_ns));
    let traced = rig.end_trace(number);
    assert_eq!(launches(&traced), [(be.client, 7, traced.began_ns)]);
}

#[test]
fn names_copies_requests_and_leases_are_noted() {
    let (mut rig, be, hp) = Rig::new("name = \"pillion\"").with_two();
    let number = rig.begin_trace(None);
    let at_ns = rig.now_ns;
    let copy = Memcpy {
        stream: 1,
        direction: Direction::ToHost,
        bytes: 77,
        at_ns,
        waited_ns: 5,
        expected_ns: 6,
    };
    be.push(&Record::Memcpy(copy));
    let long = "n".repeat(1_000);
    for name in ["gemm", &long] {
        NamePart::of(name.len() as u64, name).for_each(|part| be.push(&Record::Name(part)));
    }
    let begin = Begin {
        id: 1,
        kind: 0,
        batch: 0,
        arrived_ns: at_ns,
        at_ns,
        is_nvtx: false,
    };
    hp.push(&Record::Begin(begin));
    let end = End {
        id: 1,
        at_ns: at_ns + MS,
        is_cancelled: false,
        with_launches: false,
    };
    hp.push(&Record::End(end));
    rig.poll_after(2 * MS);
    let traced = rig.end_trace(number);
    let names: Vec<(u64, usize)> = traced
        .kernels
        .iter()
        .map(|((_, kernel), name)| (*kernel, name.len()))
        .collect();
    assert_eq!(names, [(4, 4), (1_000, 384)]);
    let entries = entries(&traced);
    let is_copy = |entry: &Entry| matches!(entry, Entry::Record { record: Record::Memcpy(noted), .. } if *noted == copy);
    assert!(entries.iter().any(is_copy), "{entries:#?}");
    let requests: Vec<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Request(request) => Some(request),
            _ => None,
        })
        .collect();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].ended_ns - requests[0].arrived_ns, MS);
    assert_eq!((requests[0].kind, requests[0].job), (Some(0), 1));
    assert!(entries.iter().any(|entry| matches!(entry, Entry::Lease(_))));
}

#[test]
fn a_user_sees_the_jobs_of_that_user_alone() {
    let mut rig = Rig::new("name = \"none\"");
    let own = rig.be("own");
    rig.uid = 2000;
    let mut other = rig.hp("other");
    let number = rig.begin_trace(Some(1000));
    let at_ns = rig.now_ns;
    own.push(&launch(1, at_ns));
    rig.launch(&mut other, Class::Compute, US);
    let another = rig.be("another");
    // More than its ring holds: it is not traced, and nothing of it counts as lost.
    for _ in 0..5 {
        for _ in 0..500 {
            another.push(&launch(2, at_ns));
        }
        rig.poll();
    }
    rig.poll_after(MS);
    let traced = rig.end_trace(number);
    assert_eq!(launches(&traced), [(own.client, 1, at_ns)]);
    assert_eq!((traced.jobs.len(), traced.clients.len()), (1, 1));
}

fn request(rig: &mut Rig, hp: &Player, id: u64) {
    let at_ns = rig.now_ns;
    hp.push(&Record::Begin(Begin {
        id,
        kind: 0,
        batch: 0,
        arrived_ns: at_ns,
        at_ns,
        is_nvtx: false,
    }));
    hp.push(&Record::End(End {
        id,
        at_ns: at_ns + MS,
        is_cancelled: false,
        with_launches: false,
    }));
    rig.poll_after(2 * MS);
}

fn requests_of(traced: &Traced) -> usize {
    let entries = entries(traced);
    let is_request = |entry: &&Entry| matches!(entry, Entry::Request(_));
    entries.iter().filter(is_request).count()
}

#[test]
fn requests_of_a_job_that_comes_again_are_noted_in_a_trace_alone_and_for_who_may_see_them() {
    let mut rig = Rig::new("name = \"pillion\"");
    let _be = rig.be("train");
    rig.uid = 2000;
    let hp = rig.hp("serve");
    let number = rig.begin_trace(None);
    request(&mut rig, &hp, 1);
    rig.state.handle_detach(rig.now_ns, hp.client);
    let traced = rig.end_trace(number);
    assert_eq!(requests_of(&traced), 1);
    let hp = rig.hp("serve");
    request(&mut rig, &hp, 1);
    let number = rig.begin_trace(Some(1000));
    request(&mut rig, &hp, 2);
    rig.state.handle_detach(rig.now_ns, hp.client);
    let traced = rig.end_trace(number);
    assert_eq!((requests_of(&traced), traced.jobs.len()), (0, 1));
    let hp = rig.hp("serve");
    request(&mut rig, &hp, 1);
    let number = rig.begin_trace(None);
    request(&mut rig, &hp, 2);
    let traced = rig.end_trace(number);
    assert_eq!(requests_of(&traced), 1);
}

#[test]
fn a_best_effort_job_that_comes_again_in_a_trace_has_its_lease_told_again() {
    let mut rig = Rig::new("name = \"none\"");
    let be = rig.be("train");
    let number = rig.begin_trace(None);
    rig.state.handle_detach(rig.now_ns, be.client);
    rig.poll_after(MS);
    let _again = rig.be("train");
    rig.poll_after(MS);
    let traced = rig.end_trace(number);
    let grants: Vec<Grant> = entries(&traced)
        .iter()
        .filter_map(|entry| match entry {
            Entry::Lease(lease) => Some(lease.grant),
            _ => None,
        })
        .collect();
    assert_eq!(grants, [Grant::Ungated, Grant::Ended, Grant::Ungated]);
}

#[test]
fn a_trace_of_all_jobs_takes_the_place_of_a_users() {
    let mut rig = Rig::new("");
    let own = rig.be("own");
    let users = rig.begin_trace(Some(1000));
    assert!(
        rig.state
            .begin_trace(rig.now_ns, LENGTH_NS, Some(7))
            .is_err()
    );
    rig.now_ns += MS;
    let number = rig.begin_trace(None);
    assert!(!rig.state.has_trace(users) && rig.state.take_trace(users).is_none());
    rig.state.drop_trace(users);
    own.push(&launch(1, rig.now_ns));
    let traced = rig.end_trace(number);
    assert_eq!(launches(&traced).len(), 1);
}

#[test]
fn one_trace_is_taken_at_a_time_and_one_that_nobody_wants_is_dropped() {
    let mut rig = Rig::new("");
    let _be = rig.be("train");
    let number = rig.begin_trace(None);
    assert!(rig.state.begin_trace(rig.now_ns, LENGTH_NS, None).is_err());
    rig.state.drop_trace(number + 2);
    assert_eq!(rig.told(), number);
    rig.state.drop_trace(number);
    assert_eq!(rig.told(), 0);
    rig.now_ns += MS;
    let number = rig.begin_trace(None);
    rig.state.end_trace(number, rig.now_ns + MS);
    let traced = rig.end_trace(number);
    assert_eq!(traced.ended_ns - traced.began_ns, MS);
    // Clients of an ending daemon stop reporting, too.
    rig.now_ns += MS;
    rig.begin_trace(None);
    rig.state.close();
    assert_eq!(rig.told(), 0);
}

#[test]
fn a_full_trace_ends_and_a_ring_that_was_full_is_told() {
    let mut rig = Rig::new("");
    let be = rig.be("train");
    claim_rings(&be.page, 40);
    let number = rig.begin_trace(None);
    let mut pushed = 0;
    while pushed <= ENTRIES_MAX {
        for ring in &be.page.rings[..40] {
            while ring.push(&launch(1, rig.now_ns).encode()).is_ok() {
                pushed += 1;
            }
        }
        rig.poll_after(10 * US);
    }
    be.page.count(Counter::Dropped, 3);
    let traced = rig.end_trace(number);
    assert!(traced.is_full && traced.ended_ns < traced.began_ns + LENGTH_NS);
    let entries: usize = traced.entries.iter().map(Vec::len).sum();
    assert_eq!(entries, ENTRIES_MAX);
    assert_eq!(traced.dropped, 3);
}
