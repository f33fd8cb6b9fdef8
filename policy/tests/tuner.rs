//! The tuner on synthetic plants: the number of evaluations, the quality of the result, and how
//! often it tries a batch that breaks the latency target.

use policy::tuner::{
    BATCHES_MAX, Choice, EVALUATIONS_MAX, Observation, Prediction, Tuner, TunerError, TunerParams,
    UTILISATION_MAX, beta,
};

const CANDIDATES: u32 = 64;

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn within(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.bits() % of.len() as u64) as usize]
    }

    /// Normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.within(f64::MIN_POSITIVE, 1.0).ln()).sqrt();
        radius * self.within(0.0, std::f64::consts::TAU).cos()
    }
}

/// A high-priority job beside a training. A batch takes `start_ns`, and `each_ns` for every `wave`
/// requests of it. While it executes, the training goes on at the pace `pace`, less with larger
/// batches by `crowding`: small batches cost the training time, and large ones pace. In the
/// simulator too latencies are affine but for waves of blocks, and the iterations of a training
/// limited to half of the SMs become longer by a quarter from 2 to 64 images a batch.
#[derive(Clone, Debug)]
struct Plant {
    step: u32,
    start_ns: f64,
    each_ns: f64,
    wave: u32,
    rate_per_s: f64,
    slo_ns: f64,
    iteration_ns: f64,
    pace: f64,
    crowding: f64,
    ripple: f64,
    phase: f64,
    noise: f64,
}

impl Plant {
    fn new(random: &mut Random) -> Self {
        let step = random.one_of(&[1, 2, 4, 8]);
        let most = f64::from(step * CANDIDATES);
        let start_ns = random.within(3e6, 30e6);
        let mut plant = Self {
            step,
            start_ns,
            each_ns: start_ns / (most * random.within(0.05, 1.0)),
            wave: step * random.one_of(&[1, 1, 2]),
            rate_per_s: 1.0,
            slo_ns: 0.0,
            iteration_ns: random.within(50e6, 800e6),
            pace: random.within(0.35, 0.9),
            crowding: random.within(0.0, 0.6),
            ripple: random.within(0.0, 0.03),
            phase: random.within(0.0, 6.0),
            noise: random.one_of(&[0.01, 0.02, 0.03, 0.05]),
        };
        let most_ns = plant.latency_ns(step * CANDIDATES);
        plant.rate_per_s = random.within(0.15, 0.6) * most / most_ns * 1e9;
        let largest = random.within(0.25, 1.3) * most;
        plant.slo_ns = plant.latency_ns(largest as u32) + largest / plant.rate_per_s * 1e9;
        plant
    }

    fn possible(random: &mut Random) -> Self {
        loop {
            let plant = Self::new(random);
            if plant.safe().count() >= 3 {
                return plant;
            }
        }
    }

    fn batches(&self) -> impl Iterator<Item = u32> + use<> {
        let step = self.step;
        (1..=CANDIDATES).map(move |index| index * step)
    }

    fn latency_ns(&self, batch: u32) -> f64 {
        let waves = batch.div_ceil(self.wave) * self.wave;
        self.start_ns + self.each_ns * f64::from(waves)
    }

    fn utilisation(&self, batch: u32) -> f64 {
        self.rate_per_s * self.latency_ns(batch) / 1e9 / f64::from(batch)
    }

    fn is_safe(&self, batch: u32) -> bool {
        let wait_ns = f64::from(batch - 1) / self.rate_per_s * 1e9;
        wait_ns + self.latency_ns(batch) <= self.slo_ns && self.utilisation(batch) < UTILISATION_MAX
    }

    fn safe(&self) -> impl Iterator<Item = u32> {
        self.batches().filter(|&batch| self.is_safe(batch))
    }

    fn iteration_ns(&self, batch: u32) -> f64 {
        let full = f64::from(batch) / f64::from(self.step * CANDIDATES);
        let pace = (self.pace - self.crowding * full).max(0.1);
        let rate = 1.0 - self.utilisation(batch) * (1.0 - pace);
        let ripple = self.ripple * (2.0 * f64::from(batch).ln() + self.phase).sin();
        self.iteration_ns / rate * (1.0 + ripple)
    }

    fn best(&self) -> u32 {
        let least = |one: &u32, other: &u32| {
            let of = |&batch: &u32| self.iteration_ns(batch);
            of(one).total_cmp(&of(other))
        };
        self.safe().min_by(least).expect("three are safe at least")
    }

    /// The relative increase of iterations over the best batch.
    fn loss(&self, batch: u32) -> f64 {
        self.iteration_ns(batch) / self.iteration_ns(self.best()) - 1.0
    }

    /// As from a latency model: for powers of two, with a common and an individual relative error.
    fn predictions(&self, errors: [f64; 2], random: &mut Random) -> Vec<Prediction> {
        let common = errors[0] * random.normal();
        let batches = self.batches().filter(|batch| batch.is_power_of_two());
        let predictions = batches.map(|batch| {
            let error = common + errors[1] * random.normal();
            let p99_ns = (self.latency_ns(batch) * error.exp()) as u64;
            Prediction { batch, p99_ns }
        });
        predictions.collect()
    }

    fn tuner(&self, errors: [f64; 2], random: &mut Random) -> Tuner {
        let params = TunerParams {
            batches: self.batches().collect(),
            rate_per_s: self.rate_per_s,
            slo_ns: self.slo_ns as u64,
        };
        Tuner::new(params, &self.predictions(errors, random)).expect("it is right")
    }

    fn observe(&self, batch: u32, random: &mut Random) -> Observation {
        let mut noisy = |ns: f64| (ns * (self.noise * random.normal()).exp()) as u64;
        Observation {
            batch,
            p99_ns: noisy(self.latency_ns(batch)),
            iteration_ns: noisy(self.iteration_ns(batch)),
        }
    }
}

#[derive(Clone, Debug)]
struct Searched {
    plant: Plant,
    tried: Vec<u32>,
    /// The kept batch; `None` where the search gave up.
    kept: Option<u32>,
}

impl Searched {
    fn new(seed: u64, errors: [f64; 2]) -> Self {
        let mut random = Random(seed);
        let plant = Plant::possible(&mut random);
        let mut tuner = plant.tuner(errors, &mut random);
        let mut tried = Vec::new();
        let kept = loop {
            match tuner.next() {
                Choice::Try(batch) => {
                    assert!(tuner.safe_batches().contains(&batch), "{seed}: {batch}");
                    tried.push(batch);
                    assert!(tuner.handle_observation(plant.observe(batch, &mut random)));
                }
                Choice::Keep(batch) => break Some(batch),
                Choice::Infeasible => break None,
            }
        };
        assert_eq!(tuner.evaluations(), tried.len(), "{seed}");
        Self { plant, tried, kept }
    }

    fn loss(&self) -> Option<f64> {
        self.kept.map(|kept| self.plant.loss(kept))
    }
}

struct Searches(Vec<Searched>);

impl Searches {
    fn new(errors: [f64; 2]) -> Self {
        Self((0..1000).map(|seed| Searched::new(seed, errors)).collect())
    }

    fn share(&self, is_counted: impl Fn(&Searched) -> bool) -> f64 {
        let counted = self.0.iter().filter(|of| is_counted(of)).count();
        counted as f64 / self.0.len() as f64
    }

    fn mean_evaluations(&self) -> f64 {
        let evaluations: usize = self.0.iter().map(|of| of.tried.len()).sum();
        evaluations as f64 / self.0.len() as f64
    }

    fn unsafe_share(&self) -> f64 {
        let tried = || {
            let searches = self.0.iter();
            searches.flat_map(|of| of.tried.iter().map(|&batch| of.plant.is_safe(batch)))
        };
        tried().filter(|is_safe| !is_safe).count() as f64 / tried().count() as f64
    }

    fn mean_loss(&self) -> f64 {
        let losses: Vec<f64> = self.0.iter().filter_map(Searched::loss).collect();
        losses.iter().sum::<f64>() / losses.len() as f64
    }

    fn show(&self, what: &str) {
        let most = self.0.iter().map(|of| of.tried.len()).max();
        let mut losses: Vec<f64> = self.0.iter().filter_map(Searched::loss).collect();
        losses.sort_unstable_by(f64::total_cmp);
        let quantile = |share: f64| 100.0 * losses[((losses.len() - 1) as f64 * share) as usize];
        println!(
            "{what}: {:.1} evaluations in the mean, {most:?} at most; {:.2} % of them unsafe; loss {:.2} % in the mean, {:.2} % p90, \
             {:.2} % p99, {:.2} % at most; {:.1} % of searches lose more than 2 %, {:.1} % give up, {:.1} % keep an unsafe batch",
            self.mean_evaluations(),
            100.0 * self.unsafe_share(),
            100.0 * self.mean_loss(),
            quantile(0.9),
            quantile(0.99),
            quantile(1.0),
            100.0 * self.share(|of| of.loss().is_some_and(|loss| loss > 0.02)),
            100.0 * self.share(|of| of.kept.is_none()),
            100.0 * self.share(|of| of.kept.is_some_and(|kept| !of.plant.is_safe(kept))),
        );
    }
}

/// Predictions have errors of 10 % in common and 5 % each, observations of 1 to 5 %.
#[test]
fn few_evaluations_find_nearly_the_best_and_hardly_any_is_unsafe() {
    let searches = Searches::new([0.1, 0.05]);
    searches.show("predictions wrong by 10 %");
    assert!(searches.mean_evaluations() <= 12.0);
    assert!(searches.unsafe_share() <= 0.01);
    // The first batch, with the widest margin, loses 2.3 %.
    assert!(searches.mean_loss() <= 0.005);
    assert!(searches.share(|of| of.loss().is_some_and(|loss| loss > 0.02)) <= 0.035);
    assert!(searches.share(|of| of.kept.is_none()) <= 0.03);
    let is_kept_unsafe = |of: &Searched| of.kept.is_some_and(|kept| !of.plant.is_safe(kept));
    assert!(searches.share(is_kept_unsafe) <= 0.001);
}

/// Errors of 16 % and 10 %: as a learnt interference model (Mudi §7.3).
#[test]
fn worse_predictions_are_no_less_safe_than_promised() {
    let searches = Searches::new([0.16, 0.1]);
    searches.show("predictions wrong by 16 %");
    assert!(searches.mean_evaluations() <= 12.0);
    assert!(searches.unsafe_share() <= 0.01);
    assert!(searches.mean_loss() <= 0.005);
}

/// So that neither the largest nor the smallest safe batch is a solution.
#[test]
fn the_best_batch_lies_in_each_third_of_the_safe_set() {
    let mut counts = [0; 3];
    for seed in 0..1000 {
        let plant = Plant::possible(&mut Random(seed));
        let safe: Vec<u32> = plant.safe().collect();
        let best = plant.best();
        let place = safe.iter().position(|&batch| batch == best);
        counts[place.expect("it is safe") * 3 / safe.len()] += 1;
    }
    assert!(counts.iter().all(|&count| count >= 100), "{counts:?}");
}

#[test]
fn equal_seeds_have_equal_searches() {
    for seed in 0..20 {
        let [one, other] = [0, 1].map(|_| Searched::new(seed, [0.1, 0.05]));
        assert_eq!((one.tried, one.kept), (other.tried, other.kept));
    }
}

/// Of 64 batches. The paper's 2 ln(|R|/n²) is below 0 from n = 9.
#[test]
fn beta_is_a_finite_number_that_grows_in_all_rounds() {
    let betas: Vec<f64> = (1..=EVALUATIONS_MAX).map(|n| beta(64, n)).collect();
    // 2 ln(64 π²/0.6) = 13.918.
    assert!((betas[0] - 13.918).abs() < 0.001, "{betas:?}");
    assert!(betas.iter().all(|beta| beta.is_finite()));
    assert!(betas.is_sorted_by(|one, next| one < next));
    assert!(beta(0, 0).is_finite());
}

const MS: u64 = 1_000_000;

/// 64 batches at 1000 requests per second within 50 ms; each is predicted to take 10 ms.
fn level(slo_ns: u64) -> Tuner {
    let params = TunerParams {
        batches: (1..=64).rev().collect(),
        rate_per_s: 1000.0,
        slo_ns,
    };
    let predicted = Prediction {
        batch: 64,
        p99_ns: 10 * MS,
    };
    Tuner::new(params, &[predicted]).expect("it is right")
}

const fn seen(batch: u32, p99_ms: u64, iteration_ms: u64) -> Observation {
    Observation {
        batch,
        p99_ns: p99_ms * MS,
        iteration_ns: iteration_ms * MS,
    }
}

#[test]
fn the_safe_set_keeps_target_and_utilisation_by_an_upper_bound() {
    // Before observations the bound is exp(2.33 √(.1² + .07² + .02²)) = 1.334 times 10 ms. 13.34 ms
    // / .95 = 14.04 requests, and 36.66 ms to wait.
    let mut tuner = level(50 * MS);
    assert_eq!(tuner.safe_batches(), (15..=37).collect::<Vec<u32>>());
    // After ten observations at 30 as predicted, the bound is about 1.06 times there.
    for _ in 0..10 {
        assert!(tuner.handle_observation(seen(30, 10, 100)));
    }
    let safe = tuner.safe_batches();
    assert_eq!((safe.first(), safe.last()), (Some(&13), Some(&40)));
    // A batch that takes half as much again is noticed at once.
    let mut tuner = level(50 * MS);
    tuner.handle_observation(seen(30, 15, 100));
    let safe = tuner.safe_batches();
    assert!(
        safe.first() > Some(&15) && safe.last() < Some(&37),
        "{safe:?}"
    );
}

#[test]
fn the_widest_margin_comes_first() {
    // (50 ms − (b − 1)) / 10 ms falls and 0.95 b / 10 rises with b: as wide at 26.
    assert_eq!(level(50 * MS).next(), Choice::Try(26));
}

#[test]
fn where_nothing_is_safe_it_says_so() {
    // At the expected latency, 11 keep up with 10 ms and wait for as long.
    assert_eq!(level(19 * MS).next(), Choice::Infeasible);
    // By the lower bound of a probe, 1.064 times, 12 keep up and have 21.6 ms.
    assert_eq!(level(21 * MS).next(), Choice::Infeasible);
    // By the others' bound, 1.334 times, 15 do and have 27.3 ms. Until then one is tried.
    assert_eq!(level(24 * MS).safe_batches(), [13]);
    assert_eq!(level(24 * MS).next(), Choice::Try(13));
    assert_eq!(level(28 * MS).safe_batches(), [15]);
    // Found out by an observation.
    let mut tuner = level(50 * MS);
    tuner.handle_observation(seen(26, 60, 100));
    assert_eq!(tuner.next(), Choice::Infeasible);
    assert_eq!(tuner.safe_batches(), []);
    let predicted = [Prediction {
        batch: 64,
        p99_ns: 10 * MS,
    }];
    tuner.handle_best_effort(&predicted).expect("it is right");
    assert_eq!(tuner.next(), Choice::Try(26));
}

#[test]
fn it_begins_anew_where_the_rate_changes_by_half() {
    let mut tuner = level(50 * MS);
    assert!(tuner.handle_observation(seen(26, 10, 100)));
    for (per_s, is_anew) in [
        (1499.0, false),
        (501.0, false),
        (1500.0, true),
        (2249.0, false),
        (700.0, true),
    ] {
        assert_eq!(tuner.handle_rate(per_s), Ok(is_anew), "{per_s}");
        assert_eq!(tuner.evaluations(), usize::from(!is_anew), "{per_s}");
        if is_anew {
            assert!(tuner.handle_observation(seen(26, 10, 100)));
        }
    }
    let before = tuner.safe_batches();
    assert_eq!(tuner.handle_rate(1000.0), Ok(false));
    assert!(tuner.safe_batches().first() > before.first());
    for per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(tuner.handle_rate(per_s).is_err());
    }
    assert_eq!(tuner.evaluations(), 1);
}

#[test]
fn no_search_has_more_than_its_evaluations() {
    let mut tuner = level(50 * MS);
    for round in 0..EVALUATIONS_MAX as u64 {
        assert!(matches!(tuner.next(), Choice::Try(_)), "{round}");
        // Between two batches no difference is settled, and so between all the others.
        let batch = if round % 2 == 0 { 26 } else { 20 };
        assert!(tuner.handle_observation(seen(batch, 10, 100)));
    }
    assert!(matches!(tuner.next(), Choice::Keep(15..=40)));
    assert!(!tuner.handle_observation(seen(26, 10, 100)));
    assert_eq!(tuner.evaluations(), EVALUATIONS_MAX);
}

#[test]
fn a_reading_of_nothing_counts_for_nothing() {
    let mut tuner = level(50 * MS);
    for nothing in [seen(0, 10, 100), seen(26, 0, 100), seen(26, 10, 0)] {
        assert!(!tuner.handle_observation(nothing));
    }
    assert_eq!(tuner.evaluations(), 0);
    let longest = Observation {
        batch: u32::MAX,
        p99_ns: u64::MAX,
        iteration_ns: u64::MAX,
    };
    assert!(tuner.handle_observation(longest));
    assert_eq!(tuner.next(), tuner.next());
}

#[test]
fn what_is_no_search_is_refused_in_words() {
    let params = |batches: &[u32], rate_per_s, slo_ns| TunerParams {
        batches: batches.to_vec(),
        rate_per_s,
        slo_ns,
    };
    let predicted = [Prediction {
        batch: 1,
        p99_ns: 1,
    }];
    let refused = |params, predicted: &[Prediction]| {
        Tuner::new(params, predicted)
            .expect_err("it is wrong")
            .to_string()
    };
    assert_eq!(
        refused(params(&[], 1.0, 1), &predicted),
        "0 candidate batches: expected 1 to 256"
    );
    let many: Vec<u32> = (1..=BATCHES_MAX as u32 + 1).collect();
    assert_eq!(
        refused(params(&many, 1.0, 1), &predicted),
        "257 candidate batches: expected 1 to 256"
    );
    assert_eq!(
        refused(params(&[0, 4], 1.0, 1), &predicted),
        "batch 0: expected at least 1"
    );
    assert_eq!(
        refused(params(&[4], f64::NAN, 1), &predicted),
        "NaN requests/s: expected a number above 0"
    );
    assert_eq!(
        refused(params(&[4], 1.0, 0), &predicted),
        "latency target 0: expected at least 1 ns"
    );
    assert_eq!(
        refused(params(&[4], 1.0, 1), &[]),
        "no predicted latency: a search needs at least one"
    );
    let zero = [Prediction {
        batch: 8,
        p99_ns: 0,
    }];
    assert_eq!(
        refused(params(&[4], 1.0, 1), &zero),
        "predicted latency of batch 8 is 0: expected at least 1 ns"
    );
    let no_batch = Tuner::new(
        params(&[4], 1.0, 1),
        &[Prediction {
            batch: 0,
            p99_ns: 1,
        }],
    );
    assert_eq!(no_batch, Err(TunerError::EmptyBatch));
}
