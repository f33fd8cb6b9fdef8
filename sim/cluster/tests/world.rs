//! The world by arithmetic, and what holds at every event of any run.

use cluster::interference::{Pairs, SPEED_MAX};
use cluster::mig::MigModel;
use cluster::placement::registry::{ALL, chosen};
use cluster::{Class, Inventory, JobId, JobSpec, Model, Power, View, WorkloadId};
use cluster_sim::meter::DAY_NS;
use cluster_sim::outcome::Outcome;
use cluster_sim::play::Play;
use cluster_sim::world::{Arrival, Nobody, Physics, Watch};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const BE: Class = Class::BestEffort;
const HP: Class = Class::HighPriority;

fn scene(gpus: u32, arrivals: Vec<Arrival>, pairs: Pairs) -> Play {
    let model = Model::new("V100", 16 << 30);
    let inventory = Inventory::uniform(model, gpus.div_ceil(2), 2.min(gpus)).expect("few GPUs");
    let power = Power {
        idle_w: 40.0,
        tdp_w: 300.0,
    };
    let physics = Physics {
        pairs,
        power: vec![power],
        patience_ns: 100 * SECOND,
        horizon_ns: DAY_NS,
    };
    Play::new(inventory, arrivals, physics)
}

fn arrival(number: u64, at_s: u64, length_s: u64, job: JobSpec) -> Arrival {
    Arrival {
        at_ns: at_s * SECOND,
        length_ns: length_s * SECOND,
        job: JobSpec {
            id: JobId(number),
            ..job
        },
    }
}

fn run(play: &Play, policy: &str) -> Outcome {
    let mut policy = play.policy(&chosen(policy).expect("its name"), 1);
    play.run(&mut *policy, &mut Nobody)
}

fn close(found: f64, right: f64) {
    assert!(
        (found - right).abs() < 1e-6 * right.abs().max(1.0),
        "{found}, not {right}"
    );
}

/// 110 s of work at a speed of 1.1 (half of the GPU is free), at 0.55: 100 s at 40 + 260 · 0.55 W.
#[test]
fn a_job_alone_takes_its_time_and_its_energy() {
    let play = scene(
        2,
        vec![arrival(0, 5, 110, JobSpec::new(0, BE, 1, 500))],
        Pairs::none(),
    );
    let outcome = run(&play, "first-fit");
    close(outcome.best_effort.completion_s, 110.0 / SPEED_MAX);
    close(outcome.makespan_s, 100.0);
    close(outcome.used_j, 100.0 * (40.0 + 260.0 * 0.55));
    close(outcome.idle_j, 40.0 * (2.0 * 86_400.0 - 100.0));
    close(outcome.gpus_mean, 100.0 / 86_400.0);
    close(outcome.gpus_most, 1.0);
}

/// Both use all of a GPU, and hold a tenth of it: together each at half speed. The second arrives
/// when the first has 50 s of work left, which take 100 s; then it is alone with 50 s of work left.
#[test]
fn two_trainings_slow_each_other_while_both_are_there() {
    let mut job = JobSpec::new(0, BE, 1, 1000);
    job.floor_milli = 100;
    let arrivals = vec![arrival(0, 0, 100, job.clone()), arrival(1, 50, 100, job)];
    let outcome = run(&scene(1, arrivals, Pairs::none()), "gpucolo");
    close(outcome.best_effort.completion_s, (150.0 + 150.0) / 2.0);
    close(outcome.makespan_s, 200.0);
    close(outcome.best_effort.speed, 200.0 / 300.0);
}

/// The one GPU is taken: the second waits 60 s, and is late with a promise of 1.5 times its 100 s.
#[test]
fn a_job_that_waits_is_late() {
    let mut job = JobSpec::new(0, HP, 1, 1000);
    job.slo_milli = Some(1500);
    let first = arrival(0, 0, 60, job.clone());
    let outcome = run(
        &scene(1, vec![first, arrival(1, 0, 100, job)], Pairs::none()),
        "first-fit",
    );
    close(outcome.high_priority.waiting_s, 30.0);
    assert_eq!(
        (outcome.high_priority.promised, outcome.high_priority.late),
        (2, 1)
    );
    assert_eq!(outcome.promised_daily, [(2, 1)]);
}

/// On one GPU the gang's half runs alone, on the other beside a training that takes half of it:
/// both go at half speed. When the other has ended after 200 s, 100 s of the gang's work are left.
#[test]
fn a_gang_runs_at_the_speed_of_its_slowest_gpu() {
    let mut gang = JobSpec::new(0, BE, 2, 1000);
    gang.floor_milli = 100;
    let mut one = JobSpec::new(0, BE, 1, 1000);
    one.floor_milli = 100;
    let arrivals = vec![arrival(0, 0, 200, gang), arrival(1, 0, 100, one)];
    let outcome = run(&scene(2, arrivals, Pairs::none()), "gpucolo");
    close(outcome.jobs[1].end_ns as f64 / 1e9, 200.0);
    close(outcome.jobs[0].end_ns as f64 / 1e9, 300.0);
}

/// Two sevenths each of one A100: the neighbours do not notice each other, though as neighbours on
/// one GPU each would stop the other. The third instance, of four slices, still fits: it can start
/// at the first slice alone, so the two are placed behind it.
#[test]
fn instances_do_not_notice_each_other() {
    let mig = MigModel::of("A100-SXM4-40GB").expect("it can be divided");
    let mut model = Model::new("A100-SXM4-40GB", 40 << 30);
    model.mig = Some(mig);
    let inventory = Inventory::uniform(model, 1, 1).expect("one GPU");
    let job = |number, profile| {
        let profile = mig.profile(profile).expect("it has one");
        arrival(
            number,
            0,
            70,
            JobSpec::of_instance(number, BE, mig, profile),
        )
    };
    let arrivals = vec![job(0, "1g.5gb"), job(1, "1g.5gb"), job(2, "4g.20gb")];
    let mut play = scene(1, arrivals, Pairs::new(1, |_, _| 0.0));
    play.inventory = inventory;
    for entry in ALL {
        let outcome = run(&play, entry.name);
        assert!(
            outcome.jobs.iter().all(|job| job.end_ns == 70 * SECOND),
            "{}",
            entry.name
        );
    }
}

/// GPUColo's arithmetic. 0 to 100 s: two of inference and a training, then the training alone.
#[test]
fn bounds_are_integrals_of_what_runs() {
    let mut inference = JobSpec::new(0, HP, 1, 400);
    inference.memory_bytes = 4 << 30;
    let mut training = JobSpec::new(0, BE, 1, 1000);
    training.memory_bytes = 16 << 30;
    let arrivals = vec![
        arrival(0, 0, 100, inference.clone()),
        arrival(1, 0, 100, inference),
        arrival(2, 0, 200, training),
    ];
    let bounds = scene(4, arrivals, Pairs::none()).bounds();
    close(bounds.exclusive, (100.0 * 3.0 + 100.0) / 86_400.0);
    close(bounds.separate, (100.0 * 6.0 + 100.0 * 6.0) / 86_400.0);
    // 0.8 of inference, and 24 of 16 GiB; then 16 of 16.
    close(bounds.least, (100.0 * 1.5 + 100.0) / 86_400.0);
}

#[derive(Default)]
struct Checked {
    events: u64,
    last_ns: u64,
}

impl Watch for Checked {
    fn handle_event(&mut self, view: &View, now_ns: u64) {
        assert!(view.is_valid());
        assert!(now_ns >= self.last_ns);
        self.last_ns = now_ns;
        self.events += 1;
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let job = (
        0u64..50,
        1u64..300,
        any::<bool>(),
        0u32..5,
        1u32..=10,
        0u64..12,
        0u16..3,
    );
    prop::collection::vec(job, 1..50).prop_map(|mut jobs| {
        jobs.sort_by_key(|job| job.0);
        let jobs = jobs.into_iter().enumerate().map(|(number, job)| {
            let (at_s, length_s, high, gpus, tenths, gib, workload) = job;
            let class = if high { HP } else { BE };
            let milli = if gpus > 1 { 1000 } else { 100 * tenths };
            let mut spec = JobSpec::new(0, class, gpus, milli);
            spec.floor_milli = if high { milli } else { milli.min(100) };
            spec.memory_bytes = gib << 30;
            spec.workload = WorkloadId(workload);
            spec.spread = gpus > 2;
            spec.slo_milli = high.then_some(960);
            arrival(number as u64, at_s, length_s, spec)
        });
        jobs.collect()
    })
}

fn pairs() -> Pairs {
    Pairs::new(3, |job, beside| {
        1.0 - 0.25 * (job + 2 * beside) as f64 / 3.0
    })
}

proptest! {
    /// Capacity holds (the view refuses), no job is lost or too fast, and equal runs have equal
    /// outcomes.
    #[test]
    fn every_job_ends_or_is_refused(arrivals in arrivals(), gpus in 1u32..7) {
        let play = scene(gpus, arrivals, pairs());
        for entry in ALL {
            let mut checked = Checked::default();
            let outcome = play.run(&mut *play.policy(&chosen(entry.name).expect("its name"), 1), &mut checked);
            prop_assert_eq!(checked.events, outcome.events);
            for job in &outcome.jobs {
                prop_assert!(job.refused != (job.end_ns < u64::MAX), "{}: {:?}", entry.name, job);
                if !job.refused {
                    prop_assert!(job.at_ns <= job.start_ns && job.start_ns < job.end_ns);
                    let least = job.length_ns as f64 / SPEED_MAX;
                    prop_assert!((job.end_ns - job.start_ns) as f64 >= least - 1.0);
                }
            }
            let busy: f64 = outcome.gpus_daily.iter().sum();
            prop_assert!(busy <= f64::from(2 * gpus.div_ceil(2)) + 1e-9);
            let again = play.run(&mut *play.policy(&chosen(entry.name).expect("its name"), 1), &mut Nobody);
            prop_assert_eq!(format!("{outcome:?}"), format!("{again:?}"));
        }
    }
}
