//! Events about targets: one server answers randomly arriving requests in order, in virtual time.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::marks::{begin, end, job};
use super::*;
use crate::core::event::Kind;

const SECOND: u64 = 1_000 * MS;

const RATE: f64 = 60.0;

struct Service {
    rig: Rig,
    hp: Player,
    be: Player,
    random: Pcg64,
    arrived_ns: f64,
    free_ns: u64,
    id: u64,
    events: Vec<(u64, Kind, String)>,
}

impl Service {
    fn start(seed: u64, keys: &str) -> Self {
        let (rig, be, hp) = Rig::new(&format!("name = \"pillion\"\n{keys}")).with_two();
        Self {
            arrived_ns: rig.now_ns as f64,
            free_ns: rig.now_ns,
            rig,
            hp,
            be,
            random: Pcg64::seed_from_u64(seed),
            id: 0,
            events: Vec::new(),
        }
    }

    /// Serves requests for that long in `service_ns` each, give or take a tenth.
    fn run(&mut self, seconds: u64, service_ns: u64) {
        let until_ns = self.rig.now_ns + seconds * SECOND;
        while self.rig.now_ns < until_ns {
            let gap = -(1.0 - self.random.random::<f64>()).ln() / RATE;
            self.arrived_ns += gap * 1e9;
            let arrived_ns = self.arrived_ns as u64;
            let began_ns = arrived_ns.max(self.free_ns);
            let part = self.random.random_range(0.9..1.1);
            self.free_ns = began_ns + (service_ns as f64 * part) as u64;
            self.id += 1;
            let mut record = begin(self.id, began_ns);
            if let Record::Begin(begin) = &mut record {
                begin.arrived_ns = arrived_ns;
            }
            self.poll(began_ns);
            self.hp.push(&record);
            self.poll(began_ns);
            self.poll(self.free_ns);
            self.hp.push(&end(self.id, self.free_ns));
            self.poll(self.free_ns);
        }
    }

    fn poll(&mut self, at_ns: u64) {
        self.rig.now_ns = self.rig.now_ns.max(at_ns);
        self.rig.poll();
        for draft in self.rig.state.take_slo_news() {
            assert_eq!(draft.job, Some(("serve".to_owned(), 1000)));
            self.events
                .push((self.rig.now_ns, draft.kind(), draft.text));
        }
    }

    fn is_missed(&self) -> bool {
        job(&self.rig)["requests"]["is_missed"] == true
    }
}

#[test]
fn an_hour_at_rest_has_no_event_whether_best_effort_work_waits_or_not() {
    for (seed, is_wanted) in [(1, false), (2, true)] {
        let mut service = Service::start(seed, "slo_p99 = \"1.2x\"");
        service.be.waits(u32::from(is_wanted));
        service.run(3_600, 10 * MS);
        assert_eq!(service.events, Vec::new(), "seed {seed}");
        let requests = job(&service.rig)["requests"].clone();
        assert!(requests["count"].as_u64().unwrap() > 200_000, "{requests}");
        assert!(requests["over_target"].as_u64().unwrap() > 0, "{requests}");
    }
}

#[test]
fn an_overload_is_told_within_three_seconds_once_and_its_end_after_ten() {
    for seed in 1..=20 {
        let mut service = Service::start(seed, "slo_p99 = \"1.2x\"");
        service.run(120, 10 * MS);
        assert_eq!(service.events, Vec::new(), "seed {seed}");
        let injected_ns = service.rig.now_ns;
        // 33 of 60 requests per second are answered.
        service.run(10, 30 * MS);
        let kinds: Vec<Kind> = service.events.iter().map(|event| event.1).collect();
        assert_eq!(
            kinds,
            [Kind::SloMissed],
            "seed {seed}: {:?}",
            service.events
        );
        let (at_ns, _, text) = &service.events[0];
        assert!(at_ns - injected_ns <= 3 * SECOND, "seed {seed}: {text}");
        assert!(
            text.contains("best-effort jobs are") && text.contains(" ms"),
            "{text}"
        );
        assert!(service.is_missed());
        let ended_ns = service.rig.now_ns;
        service.run(180, 10 * MS);
        assert_eq!(service.events.len(), 2, "seed {seed}: {:?}", service.events);
        let (at_ns, kind, _) = &service.events[1];
        assert_eq!(*kind, Kind::SloMet, "seed {seed}");
        assert!(*at_ns >= ended_ns + 10 * SECOND, "seed {seed}");
        assert!(!service.is_missed());
    }
}

#[test]
fn a_mean_that_is_missed_is_told_and_so_is_its_end() {
    let mut service = Service::start(1, "slo_mean = \"25ms\"");
    service.run(60, 10 * MS);
    assert_eq!(service.events, Vec::new());
    service.run(10, 30 * MS);
    assert_eq!(service.events.len(), 1, "{:?}", service.events);
    assert!(
        service.events[0]
            .2
            .contains("the mean of the last requests"),
        "{:?}",
        service.events
    );
    service.run(60, 10 * MS);
    let kinds: Vec<Kind> = service.events.iter().map(|event| event.1).collect();
    assert_eq!(kinds, [Kind::SloMissed, Kind::SloMet]);
}

#[test]
fn a_job_that_makes_no_requests_any_more_meets_nothing() {
    let mut service = Service::start(1, "slo_p99 = \"1.2x\"");
    service.run(60, 10 * MS);
    service.run(10, 30 * MS);
    assert!(service.is_missed());
    let now_ns = service.rig.now_ns;
    for second in 1..200 {
        service.poll(now_ns + second * SECOND);
    }
    assert_eq!(service.events.len(), 1, "{:?}", service.events);
    assert!(service.is_missed());
}

#[test]
fn one_late_request_of_a_job_that_makes_few_is_no_event_and_five_are() {
    let mut service = Service::start(1, "slo_p99 = \"1.2x\"");
    service.run(60, 10 * MS);
    let late = |service: &mut Service, count: u64| {
        for _ in 0..count {
            service.id += 1;
            let now_ns = service.rig.now_ns + 15 * SECOND;
            service.hp.push(&begin(service.id, now_ns));
            service.poll(now_ns);
            service.hp.push(&end(service.id, now_ns + SECOND));
            service.poll(now_ns + SECOND);
        }
    };
    service.poll(service.rig.now_ns + 70 * SECOND);
    service.poll(service.rig.now_ns + SECOND);
    late(&mut service, 2);
    assert_eq!(service.events, Vec::new());
    late(&mut service, 4);
    assert_eq!(service.events.len(), 1, "{:?}", service.events);
}
