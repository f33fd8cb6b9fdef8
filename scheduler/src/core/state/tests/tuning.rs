//! Wanted batches: from marks to the word in the page, the status and events.

use protocol::batches::Range;
use protocol::hello::JobClass;
use protocol::pages::LEASE_PAUSED;
use protocol::record::{Begin, End};
use protocol::slo::{SloAsked, SloChange};

use super::marks::job;
use super::*;
use crate::core::event::Kind;

const KEYS: &str = "name = \"pillion\"\nslo_p99 = \"60ms\"\n[tuner]\nsettle = 20";

/// 400 requests/s in batches of b that take 2 + 0.4 b ms, beside a training with 10 ms iterations.
struct Service {
    rig: Rig,
    be: Player,
    hp: Player,
    id: u64,
    iterations: f64,
    batch: u32,
}

impl Service {
    fn new(keys: &str) -> Self {
        let (rig, be, hp) = Rig::new(keys).with_two();
        let range = Range::new(0, 1, 32, 1).unwrap();
        assert!(hp.page.told.batches.say(range));
        Self {
            rig,
            be,
            hp,
            id: 0,
            iterations: 0.0,
            batch: 2,
        }
    }

    fn run(&mut self, batches: u64) {
        for _ in 0..batches {
            let wanted = self.hp.page.told.batches.wanted(0);
            let batch = wanted.unwrap_or(self.batch);
            let every_ns = u64::from(batch) * 2_500 * US;
            let takes_ns = 2 * MS + u64::from(batch) * 400 * US;
            self.id += 1;
            let at_ns = self.rig.now_ns;
            self.hp.push(&Record::Begin(Begin {
                id: self.id,
                kind: 0,
                batch,
                arrived_ns: at_ns,
                at_ns,
                is_nvtx: false,
            }));
            self.poll_after(takes_ns);
            self.hp.push(&Record::End(End {
                id: self.id,
                at_ns: self.rig.now_ns,
                is_cancelled: false,
                with_launches: false,
            }));
            let before = self.iterations as u64;
            self.iterations += (every_ns - takes_ns) as f64 / 10e6;
            let more = self.iterations as u64 - before;
            self.be.page.count(Counter::Iterations, more);
            self.poll_after(every_ns - takes_ns);
        }
    }

    fn poll_after(&mut self, passed_ns: u64) {
        self.rig.poll_after(passed_ns);
        self.rig.state.ring_bells(&Clock::monotonic());
    }

    fn tuner(&self) -> Value {
        job(&self.rig)["control"]["tuner"].clone()
    }

    fn run_until(&mut self, state: &str) -> Value {
        for _ in 0..200 {
            self.run(20);
            let tuner = self.tuner();
            if tuner[0]["state"] == state {
                return tuner;
            }
        }
        panic!("{:#}", self.tuner());
    }

    fn is_paused(&self) -> bool {
        let terms = self
            .be
            .lease
            .as_ref()
            .unwrap()
            .terms
            .load(Ordering::Relaxed);
        terms & LEASE_PAUSED != 0
    }

    fn events(&mut self) -> Vec<Kind> {
        let news = self.rig.state.take_tuner_news().into_iter();
        news.map(|draft| draft.kind()).collect()
    }
}

#[test]
fn a_batch_is_searched_written_told_and_withdrawn_with_the_section() {
    let mut service = Service::new(KEYS);
    service.run(10);
    assert_eq!(service.tuner()[0]["state"], "looking");
    let kept = service.run_until("kept");
    let batch = service.hp.page.told.batches.wanted(0).unwrap();
    assert!((4..=22).contains(&batch), "{kept:#}");
    assert_eq!(kept[0]["batch"], batch);
    assert_eq!(kept[0]["target_ns"], 60_000_000);
    let rate = kept[0]["rate_per_s"].as_f64().unwrap();
    assert!((rate - 400.0).abs() < 4.0, "{kept:#}");
    assert!((2..=25).contains(&kept[0]["evaluations"].as_u64().unwrap()));
    assert!(kept[0]["p99_ns"].as_u64() > Some(3_000_000));
    let events = service.events();
    assert!(events.contains(&Kind::BatchWanted), "{events:?}");
    assert_eq!(events.last(), Some(&Kind::BatchKept));
    assert!(service.events().is_empty() && !service.is_paused());

    let without = Config::check(
        Path::new("gpu0.toml"),
        "[gpu]\nindex = 0\nsharing = \"mps\"",
    );
    service.rig.state.reconfigure(&without.unwrap());
    service.run(20);
    assert_eq!(service.hp.page.told.batches.wanted(0), None);
    assert_eq!(service.tuner(), Value::Array(Vec::new()));
}

#[test]
fn the_helper_of_the_client_is_rung_when_another_batch_is_wanted() {
    let mut service = Service::new(KEYS);
    let rung = |service: &Service| service.hp.page.helper_bell.read();
    let before = rung(&service);
    service.run(16);
    assert_eq!(service.hp.page.told.batches.wanted(0), None);
    assert_eq!(rung(&service), before);
    while service.hp.page.told.batches.wanted(0).is_none() {
        service.run(1);
        assert!(service.id < 1_000);
    }
    assert_ne!(rung(&service), before);
}

#[test]
fn where_no_batch_keeps_the_target_best_effort_jobs_are_paused_until_it_is_another() {
    let mut service = Service::new(&KEYS.replace("60ms", "2ms"));
    let told = service.run_until("infeasible");
    assert!(service.is_paused(), "{told:#}");
    assert_eq!(service.events(), [Kind::BatchInfeasible]);
    let key = service.rig.state.jobs[1].key.clone();
    assert_eq!(key.class, JobClass::HighPriority);
    let change = SloChange::To(SloAsked::Ns(60_000_000));
    service.rig.state.handle_slo(&key, change);
    service.run(40);
    assert!(!service.is_paused(), "{:#}", service.tuner());
    service.run_until("kept");

    service
        .rig
        .state
        .handle_slo(&key, SloChange::To(SloAsked::Ns(2_000_000)));
    service.run_until("infeasible");
    assert!(service.is_paused());
    service
        .rig
        .state
        .handle_detach(service.rig.now_ns, service.hp.client);
    service.rig.poll_after(100 * MS);
    assert!(!service.is_paused());
}

#[test]
fn without_the_section_or_a_target_nothing_is_wanted() {
    for (keys, state) in [
        ("name = \"pillion\"\nslo_p99 = \"60ms\"", Value::Null),
        (
            "name = \"pillion\"\n[tuner]\nsettle = 20",
            "no-target".into(),
        ),
    ] {
        let mut service = Service::new(keys);
        service.run(200);
        assert_eq!(service.hp.page.told.batches.wanted(0), None);
        assert_eq!(service.tuner()[0]["state"], state);
    }
    // The program's own target for the kind counts if no law uses solo times.
    let target = Record::Target {
        kind: 0,
        ns: 60_000_000,
        per_mille: 990,
    };
    let mut service = Service::new("[tuner]\nsettle = 20");
    service.hp.push(&target);
    assert_eq!(service.run_until("kept")[0]["target_ns"], 60_000_000);
    let mut service = Service::new("name = \"pillion\"\n[tuner]\nsettle = 20");
    service.hp.push(&target);
    service.run(200);
    assert_eq!(service.tuner()[0]["state"], "no-target");
    let mut service = Service::new(&KEYS.replace("60ms", "90ms"));
    service.hp.push(&target);
    assert_eq!(service.run_until("kept")[0]["target_ns"], 60_000_000);
}

#[test]
fn the_next_daemon_finds_the_range_wants_nothing_at_first_and_begins_anew() {
    let mut service = Service::new(KEYS);
    service.run_until("kept");
    assert!(service.hp.page.told.batches.wanted(0).is_some());
    let page = service.hp.page_fd.try_clone().unwrap();
    let mut next = Service::new(KEYS);
    next.rig
        .state
        .handle_detach(next.rig.now_ns, next.hp.client);
    let class = JobClass::HighPriority;
    next.hp = next.rig.try_attach_with(class, "serve", page).unwrap();
    assert_eq!(next.hp.page.told.batches.wanted(0), None);
    assert!(next.hp.page.told.batches.ranges()[0].is_some());
    next.run_until("kept");
}

#[test]
fn one_search_is_under_way_at_a_time() {
    let mut service = Service::new(KEYS);
    let other = Range::new(1, 1, 8, 1).unwrap();
    assert!(service.hp.page.told.batches.say(other));
    service.run(20);
    let states = |tuner: &Value| {
        let of = |place: usize| tuner[place]["state"].as_str().unwrap().to_owned();
        [of(0), of(1)]
    };
    assert_eq!(states(&service.tuner()), ["looking", "waiting"]);
    service.run_until("kept");
    service.run(20);
    assert_eq!(states(&service.tuner()), ["kept", "looking"]);
}
