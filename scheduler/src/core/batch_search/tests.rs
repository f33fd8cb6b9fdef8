//! A search against a simulated service and best-effort job, in virtual time.

use super::*;

const MS: u64 = 1_000_000;
const SETTLE: usize = 30;
const LOOK_NS: u64 = 50 * MS;

/// A service whose batches take `fixed_ns`, and `each_ns` for each request, beside a training whose
/// iterations slow down with the service's share of the time.
struct World {
    search: BatchSearch,
    now_ns: u64,
    full_ns: u64,
    looked_ns: u64,
    id: u64,
    rate_per_s: f64,
    fixed_ns: f64,
    each_ns: f64,
    batch: u32,
    obeys: bool,
    slo_ns: Option<u64>,
    /// None: no training.
    training: Option<u64>,
    has_iterations: bool,
    done: f64,
    batches: Vec<u32>,
    news: Vec<News>,
}

impl World {
    fn new() -> Self {
        let range = Range::new(0, 1, 64, 1).unwrap();
        Self {
            search: BatchSearch::new(range, SETTLE),
            now_ns: 1_000 * MS,
            full_ns: 1_000 * MS,
            looked_ns: 0,
            id: 0,
            rate_per_s: 400.0,
            fixed_ns: 2e6,
            each_ns: 0.4e6,
            batch: 2,
            obeys: true,
            slo_ns: Some(60 * MS),
            training: Some(1),
            has_iterations: true,
            done: 0.0,
            batches: Vec::new(),
            news: Vec::new(),
        }
    }

    fn wanted(&self) -> u32 {
        match self.search.wanted() {
            Some(wanted) if self.obeys => wanted,
            _ => self.batch,
        }
    }

    fn takes_ns(&self, batch: u32) -> f64 {
        self.fixed_ns + self.each_ns * f64::from(batch)
    }

    fn busy(&self, batch: u32) -> f64 {
        (self.takes_ns(batch) / SECOND_NS * self.rate_per_s / f64::from(batch)).min(1.0)
    }

    fn run(&mut self, seconds: u64) {
        let end_ns = self.now_ns + seconds * 1_000 * MS;
        while self.now_ns < end_ns {
            let batch = self.wanted();
            let every_ns = (f64::from(batch) / self.rate_per_s * SECOND_NS) as u64;
            self.full_ns += every_ns;
            while self.looked_ns + LOOK_NS < self.full_ns {
                self.looked_ns = self.looked_ns.max(self.full_ns - every_ns) + LOOK_NS;
                self.look(self.looked_ns);
            }
            self.done += every_ns as f64 / 10e6 * (1.0 - self.busy(batch)).max(0.001);
            self.now_ns = self.full_ns;
            self.id += 1;
            self.batches.push(batch);
            self.search.handle_begin(self.id, batch, self.now_ns);
            let noise = 1.0 + (self.id % 7) as f64 / 200.0;
            let took_ns = self.takes_ns(batch) * noise;
            self.search
                .handle_end(self.id, self.now_ns + took_ns as u64, false);
        }
    }

    fn look(&mut self, now_ns: u64) {
        let done = match self.has_iterations {
            true => self.done as u64,
            // An iteration is 4 ms of work.
            false => (self.done * 4e6) as u64,
        };
        let work = self.training.map(|job| Work {
            job: JobId(job),
            has_iterations: self.has_iterations,
            done,
        });
        let work: Vec<Work> = work.into_iter().collect();
        let around = Around {
            slo_ns: self.slo_ns,
            best_effort: &work,
            is_free: true,
        };
        self.news.extend(self.search.look(now_ns, &around));
    }

    fn keeps(&self, batch: u32) -> bool {
        let wait_ns = f64::from(batch - 1) / self.rate_per_s * SECOND_NS;
        let takes_ns = self.takes_ns(batch) * 1.03;
        wait_ns + takes_ns <= self.slo_ns.unwrap() as f64 && self.busy(batch) < 0.95
    }

    fn best(&self) -> u32 {
        let kept = (1..=64).filter(|batch| self.keeps(*batch));
        kept.min_by(|one, other| self.busy(*one).total_cmp(&self.busy(*other)))
            .unwrap()
    }
}

fn kept(world: &World) -> u32 {
    match world.search.stand() {
        Stand::Kept(batch) => batch,
        other => panic!("{other:?}: {:?}", world.news),
    }
}

#[test]
fn a_service_is_led_to_a_batch_that_keeps_its_target_and_costs_the_training_little() {
    let mut world = World::new();
    world.run(300);
    let (found, best) = (kept(&world), world.best());
    assert_eq!(world.search.wanted(), Some(found));
    assert!(
        found <= best,
        "{found} breaks the target, {best} is the largest that keeps it"
    );
    let lost = (1.0 - world.busy(best)) / (1.0 - world.busy(found)) - 1.0;
    assert!(lost < 0.05, "{found}, not {best}: {lost}");
    assert!(world.search.evaluations() <= 25);
    let left = world
        .news
        .iter()
        .filter(|news| matches!(news, News::Kept(_)));
    assert_eq!(left.count(), 1, "{:?}", world.news);
    let most = world.batches.iter().max();
    assert!(most <= Some(&best), "{most:?}, {best}");
    let count = world.news.len();
    world.run(300);
    assert_eq!((world.news.len(), kept(&world)), (count, found));
}

#[test]
fn a_training_that_marks_no_iterations_counts_by_its_work() {
    let mut world = World::new();
    world.has_iterations = false;
    world.run(300);
    let (found, best) = (kept(&world), world.best());
    let lost = (1.0 - world.busy(best)) / (1.0 - world.busy(found)) - 1.0;
    assert!(found <= best && lost < 0.05, "{found}, not {best}: {lost}");
}

#[test]
fn a_service_that_ignores_what_is_wanted_is_left_in_peace() {
    let mut world = World::new();
    world.obeys = false;
    world.run(60);
    assert_eq!(world.search.stand(), Stand::Ignored, "{:?}", world.news);
    assert_eq!(world.search.wanted(), None);
    let wanted = |news: &&News| matches!(news, News::Wanted(_));
    assert_eq!(world.news.iter().filter(wanted).count(), 1);
    world.run(600);
    assert_eq!(world.news.len(), 2, "{:?}", world.news);
    world.training = Some(2);
    world.run(60);
    assert_eq!(world.news.len(), 4, "{:?}", world.news);
    assert_eq!(world.search.stand(), Stand::Ignored);
}

#[test]
fn a_search_begins_anew_where_the_rate_changes_by_half_and_not_for_less() {
    let mut world = World::new();
    world.run(300);
    let (before, count) = (kept(&world), world.news.len());
    world.rate_per_s = 520.0;
    world.run(100);
    assert_eq!(world.news.len(), count);
    world.rate_per_s = 900.0;
    world.run(300);
    let found = kept(&world);
    assert!(
        world.news.len() > count && found > before,
        "{found}, {before} before"
    );
    assert!(found <= world.best(), "{found}, {}", world.best());
}

#[test]
fn a_search_begins_anew_where_best_effort_jobs_come_and_ends_where_they_go() {
    let mut world = World::new();
    world.training = None;
    world.run(20);
    assert_eq!(
        (world.search.stand(), world.search.wanted()),
        (Stand::Alone, None)
    );
    assert!(world.news.is_empty());
    world.training = Some(1);
    world.run(300);
    let found = kept(&world);
    world.training = Some(2);
    world.run(1);
    assert!(world.search.is_under_way());
    assert_eq!(world.search.wanted(), Some(found), "it begins from there");
    world.run(300);
    kept(&world);
    world.training = None;
    world.run(1);
    assert_eq!(
        (world.search.stand(), world.search.wanted()),
        (Stand::Alone, None)
    );
}

#[test]
fn where_no_batch_is_safe_best_effort_work_is_paused_until_one_is() {
    let mut world = World::new();
    // A request takes 5 ms alone, in any batch: 198 per second take 99 % of the time.
    (world.fixed_ns, world.each_ns, world.rate_per_s) = (0.0, 5e6, 198.0);
    world.run(60);
    assert!(
        matches!(world.search.stand(), Stand::Infeasible(_)),
        "{:?}",
        world.news
    );
    assert_eq!(world.news.last(), Some(&News::Infeasible));
    world.run(30);
    assert!(matches!(world.search.stand(), Stand::Infeasible(_)));
    assert!(world.search.wanted().is_some_and(|batch| batch <= 4));
    // The rate drops by less than half: the same measurements make some batch safe.
    world.rate_per_s = 120.0;
    world.run(30);
    assert!(
        !matches!(world.search.stand(), Stand::Infeasible(_)),
        "{:?}",
        world.news
    );
    world.run(300);
    assert!(world.keeps(kept(&world)));
}

#[test]
fn a_pause_is_not_for_good() {
    let mut world = World::new();
    (world.fixed_ns, world.each_ns, world.rate_per_s) = (0.0, 5e6, 198.0);
    world.run(60);
    assert!(matches!(world.search.stand(), Stand::Infeasible(_)));
    world.each_ns = 1e6;
    world.run(RETRY_NS / 1_000 / MS + 200);
    assert!(world.keeps(kept(&world)));
}

#[test]
fn a_program_that_falls_silent_is_in_the_way_of_nobody() {
    let work = [Work {
        job: JobId(1),
        has_iterations: true,
        done: 7,
    }];
    let around = Around {
        slo_ns: Some(60 * MS),
        best_effort: &work,
        is_free: true,
    };
    let silent = |world: &mut World| {
        // Queued requests end later than now.
        let now_ns = world.now_ns + 3 * SILENT_NS;
        assert_eq!(world.search.look(now_ns, &around), None);
        (world.search.stand(), world.search.wanted())
    };
    let mut world = World::new();
    (world.fixed_ns, world.each_ns, world.rate_per_s) = (0.0, 5e6, 198.0);
    world.run(60);
    assert!(matches!(world.search.stand(), Stand::Infeasible(_)));
    assert_eq!(silent(&mut world), (Stand::Waiting, None));
    let mut world = World::new();
    world.run(2);
    assert!(world.search.is_under_way());
    assert_eq!(silent(&mut world), (Stand::Waiting, None));
    let mut world = World::new();
    assert_eq!(world.search.look(world.now_ns, &around), None);
    assert_eq!(world.search.stand(), Stand::Looking);
    assert_eq!(silent(&mut world), (Stand::Waiting, None));
    world.now_ns += 3 * SILENT_NS;
    world.run(60);
    assert!(world.keeps(kept(&world)));
}

#[test]
fn without_a_target_and_beside_another_search_nothing_is_wanted() {
    let mut world = World::new();
    world.slo_ns = None;
    world.run(30);
    assert_eq!(
        (world.search.stand(), world.search.wanted()),
        (Stand::NoTarget, None)
    );
    let work = [Work {
        job: JobId(1),
        has_iterations: true,
        done: 7,
    }];
    let mut around = Around {
        slo_ns: Some(60 * MS),
        best_effort: &work,
        is_free: false,
    };
    assert_eq!(world.search.look(world.now_ns, &around), None);
    assert_eq!(world.search.stand(), Stand::Waiting);
    around.is_free = true;
    assert_eq!(world.search.look(world.now_ns, &around), None);
    assert_eq!(world.search.stand(), Stand::Looking);
}

#[test]
fn the_rate_is_that_of_the_last_seconds_and_of_a_silent_service_there_is_none() {
    let mut rate = Rate::default();
    let begin = |rate: &mut Rate, from_ns: u64, count: u64, every_ns: u64, batch: u32| {
        for number in 1..=count {
            rate.handle_begin(from_ns + number * every_ns, batch);
        }
        from_ns + count * every_ns
    };
    let mut now_ns = begin(&mut rate, 0, 8, 10 * MS, 4);
    assert_eq!(rate.per_s(now_ns), None);
    now_ns = begin(&mut rate, now_ns, 1_000, 10 * MS, 4);
    let close =
        |rate: &Rate, now_ns, to: f64| (rate.per_s(now_ns).unwrap() / to - 1.0).abs() < 0.01;
    assert!(close(&rate, now_ns, 400.0));
    now_ns = begin(&mut rate, now_ns, 300, 40 * MS, 16);
    assert!(close(&rate, now_ns, 400.0));
    now_ns = begin(&mut rate, now_ns, 600, 20 * MS, 16);
    assert!(close(&rate, now_ns, 800.0));
    assert!(rate.points.len() <= 1_002);
    assert_eq!(rate.per_s(now_ns + 2 * RATE_NS), None);
}
