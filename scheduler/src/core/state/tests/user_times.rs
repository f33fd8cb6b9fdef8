//! GPU time of jobs and users: every launch counts once, whatever comes, goes and returns.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::users::UserTime;
use super::*;

fn users(rig: &Rig) -> BTreeMap<Option<u32>, UserTime> {
    rig.state.user_times().collect()
}

fn time_of(rig: &Rig, uid: u32) -> u64 {
    users(rig)[&Some(uid)].gpu_time_ns
}

fn listed(rig: &Rig) -> BTreeMap<u64, u64> {
    let status = rig.status(Viewer::Operator);
    let mut sums = BTreeMap::new();
    for job in status["jobs"].as_array().unwrap() {
        *sums.entry(job["uid"].as_u64().unwrap()).or_default() +=
            job["gpu_time_ns"].as_u64().unwrap();
    }
    sums
}

fn again(rig: &mut Rig, class: JobClass, job: &str, player: &Player) -> Result<Player, Refused> {
    let page = player.page_fd.try_clone().unwrap();
    rig.try_attach_with(class, job, page)
}

fn charge(be: &Player, ns: u64) {
    be.page.charged_ns.fetch_add(ns, Ordering::Relaxed);
}

#[test]
fn jobs_that_are_listed_no_more_are_in_their_users_time_and_come_again_as_others() {
    let mut rig = Rig::new("");
    let mut all_ns = 0;
    for job in 0..ENDED_MAX as u64 + 3 {
        let be = rig.be(&job.to_string());
        charge(&be, 10 + job);
        all_ns += 10 + job;
        rig.state.handle_detach(rig.now_ns, be.client);
    }
    assert_eq!(time_of(&rig, 1000), all_ns);
    assert_eq!(listed(&rig)[&1000], all_ns - 10 - 11 - 12, "three are not");
    // One of these returns, and one that is listed.
    for (job, new_ns) in [("0", 5), ("200", 7)] {
        let be = rig.be(job);
        charge(&be, new_ns);
        all_ns += new_ns;
        assert_eq!(time_of(&rig, 1000), all_ns);
        rig.state.handle_detach(rig.now_ns, be.client);
        assert_eq!(time_of(&rig, 1000), all_ns);
    }
    let jobs = rig.status(Viewer::Operator)["jobs"].clone();
    let mut jobs = jobs.as_array().unwrap().iter();
    assert_eq!(jobs.clone().count(), ENDED_MAX);
    let own = jobs.find(|job| job["job"] == "200").unwrap();
    assert_eq!(own["gpu_time_ns"], 10 + 200 + 7);
    let seen = users(&rig)[&Some(1000)].jobs;
    assert_eq!(seen, ENDED_MAX as u64 + 4);
}

#[test]
fn what_a_high_priority_client_launched_just_before_it_went_counts() {
    let mut rig = Rig::new("unknown_kernel_us = 100");
    let mut hp = rig.hp("serve");
    rig.launch(&mut hp, Class::Compute, 200 * US);
    rig.poll();
    rig.launch(&mut hp, Class::Compute, 30 * US);
    rig.launch(&mut hp, Class::Unknown, 0);
    rig.state.handle_detach(rig.now_ns, hp.client);
    assert_eq!(time_of(&rig, 1000), 330 * US);
    assert_eq!(
        rig.status(Viewer::Operator)["jobs"][0]["gpu_time_ns"],
        330 * US
    );
}

#[test]
fn a_client_that_is_refused_when_it_comes_again_is_not_counted_twice_later() {
    let mut rig = Rig::new("");
    rig.state.limits = Limits {
        clients_per_user: 1,
        ..Limits::default()
    };
    let be = rig.be("train");
    charge(&be, 100);
    rig.state.handle_detach(rig.now_ns, be.client);
    let other = rig.be("other");
    for _ in 0..2 {
        let refused = again(&mut rig, JobClass::BestEffort, "train", &be).err();
        assert_eq!(refused, Some(Refused::UserClients(1)));
    }
    rig.state.handle_detach(rig.now_ns, other.client);
    let be = again(&mut rig, JobClass::BestEffort, "train", &be).unwrap();
    assert_eq!(time_of(&rig, 1000), 100);
    charge(&be, 1);
    assert_eq!(time_of(&rig, 1000), 101);
    let job = &rig.status(Viewer::Operator)["jobs"][0];
    assert_eq!(
        (&job["job"], &job["gpu_time_ns"]),
        (&"train".into(), &101.into())
    );
}

#[test]
fn a_page_that_lies_lowers_nothing_that_was_told() {
    let mut rig = Rig::new("");
    let be = rig.be("train");
    let tell = |ns: u64| be.page.charged_ns.store(ns, Ordering::Relaxed);
    tell(500);
    assert_eq!(time_of(&rig, 1000), 500);
    tell(0);
    assert_eq!(
        (time_of(&rig, 1000), listed(&rig)[&1000]),
        (500, 500),
        "attached"
    );
    rig.state.handle_detach(rig.now_ns, be.client);
    assert_eq!(
        (time_of(&rig, 1000), listed(&rig)[&1000]),
        (500, 500),
        "gone"
    );
    let _be = again(&mut rig, JobClass::BestEffort, "train", &be).unwrap();
    tell(300);
    assert_eq!(time_of(&rig, 1000), 500, "what was counted is");
    tell(501);
    assert_eq!((time_of(&rig, 1000), listed(&rig)[&1000]), (501, 501));
    tell(u64::MAX);
    assert_eq!(
        (time_of(&rig, 1000), listed(&rig)[&1000]),
        (u64::MAX, u64::MAX)
    );
}

#[test]
fn a_user_is_told_of_its_own_time_and_the_operator_of_everybodys() {
    let mut rig = Rig::new("");
    charge(&rig.be("train"), 70);
    rig.uid = 1001;
    charge(&rig.be("train"), 5);
    let one = |uid, ns| serde_json::json!({"uid": uid, "gpu_time_ns": ns, "jobs": 1});
    let told = |viewer| rig.status(viewer)["users"].clone();
    assert_eq!(told(Viewer::User(1000)), Value::from(vec![one(1000, 70)]));
    assert_eq!(told(Viewer::User(1001)), Value::from(vec![one(1001, 5)]));
    assert_eq!(told(Viewer::User(1002)), Value::from(Vec::<Value>::new()));
    let all = vec![one(1000, 70), one(1001, 5)];
    assert_eq!(told(Viewer::Operator), Value::from(all));
}

#[derive(Clone, Debug)]
enum Step {
    Come {
        uid: u32,
        is_hp: bool,
        job: u8,
    },
    /// The page of that process, which may still be attached.
    ComeAgain {
        process: usize,
        job: u8,
    },
    Leave {
        process: usize,
    },
    Launch {
        process: usize,
        us: u64,
    },
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    let process = 0..1000_usize;
    prop_oneof![
        2 => (1000..1003_u32, any::<bool>(), 0..3_u8)
            .prop_map(|(uid, is_hp, job)| Step::Come { uid, is_hp, job }),
        2 => (process.clone(), 0..3_u8).prop_map(|(process, job)| Step::ComeAgain { process, job }),
        2 => process.clone().prop_map(|process| Step::Leave { process }),
        6 => (process, 0..400_u64).prop_map(|(process, us)| Step::Launch { process, us }),
        2 => Just(Step::Poll),
    ]
}

struct Process {
    player: Player,
    uid: u32,
    class: JobClass,
    is_attached: bool,
    /// Launched while it was no client and not counted yet, ns.
    pending_ns: u64,
}

#[derive(Default)]
struct Truth {
    processes: Vec<Process>,
    times_ns: BTreeMap<u32, u64>,
    jobs: BTreeSet<(u32, bool, u8)>,
}

impl Truth {
    fn handle(&mut self, rig: &mut Rig, step: &Step) {
        let count = self.processes.len().max(1);
        match *step {
            Step::Come { uid, is_hp, job } => {
                let class = match is_hp {
                    true => JobClass::HighPriority,
                    false => JobClass::BestEffort,
                };
                rig.uid = uid;
                if let Ok(player) = rig.try_attach(class, &job.to_string()) {
                    self.jobs.insert((uid, is_hp, job));
                    self.processes.push(Process {
                        player,
                        uid,
                        class,
                        is_attached: true,
                        pending_ns: 0,
                    });
                }
            }
            Step::ComeAgain { process, job } => self.come_again(rig, process % count, job),
            Step::Leave { process } => {
                if let Some(process) = self.processes.get_mut(process % count) {
                    rig.state.handle_detach(rig.now_ns, process.player.client);
                    process.is_attached = false;
                }
            }
            Step::Launch { process, us } => self.launch(rig, process % count, us * US),
            Step::Poll => {
                rig.poll_after(50 * US);
            }
        }
    }

    fn come_again(&mut self, rig: &mut Rig, process: usize, job: u8) {
        let Some(process) = self.processes.get_mut(process) else {
            return;
        };
        rig.uid = process.uid;
        let came = again(rig, process.class, &job.to_string(), &process.player);
        process.is_attached = came.is_ok();
        if let Ok(player) = came {
            process.player = player;
            let is_hp = process.class == JobClass::HighPriority;
            self.jobs.insert((process.uid, is_hp, job));
            let pending_ns = std::mem::take(&mut process.pending_ns);
            *self.times_ns.entry(process.uid).or_default() += pending_ns;
        }
    }

    fn launch(&mut self, rig: &Rig, process: usize, ns: u64) {
        let Some(process) = self.processes.get_mut(process) else {
            return;
        };
        let counted = self.times_ns.entry(process.uid).or_default();
        match (process.class, process.is_attached) {
            (JobClass::HighPriority, true) => {
                rig.launch(&mut process.player, Class::Compute, ns);
                // In a record 0 is an unknown duration.
                *counted += if ns == 0 { 100 * US } else { ns };
            }
            // Nobody reads its records.
            (JobClass::HighPriority, false) => {}
            (JobClass::BestEffort, true) => {
                charge(&process.player, ns);
                *counted += ns;
            }
            (JobClass::BestEffort, false) => {
                charge(&process.player, ns);
                process.pending_ns += ns;
            }
        }
    }

    fn check(&self, rig: &Rig) -> Result<(), TestCaseError> {
        let listed = listed(rig);
        for (uid, found) in users(rig) {
            let uid = uid.unwrap();
            let jobs = self.jobs.iter().filter(|(of, ..)| *of == uid).count();
            prop_assert_eq!(found.jobs, jobs as u64);
            let true_ns = self.times_ns.get(&uid).copied().unwrap_or(0);
            prop_assert_eq!(found.gpu_time_ns, true_ns);
            prop_assert_eq!(listed[&uid.into()], true_ns);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_launch_counts_once_for_its_job_and_its_user(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut rig = Rig::new("unknown_kernel_us = 100");
        // So few that some are refused.
        rig.state.limits = Limits { clients_per_user: 4, ..Limits::default() };
        let mut truth = Truth::default();
        for step in &steps {
            let before = users(&rig);
            truth.handle(&mut rig, step);
            for (uid, now) in users(&rig) {
                let before = before.get(&uid).copied().unwrap_or_default();
                prop_assert!(now.gpu_time_ns >= before.gpu_time_ns);
            }
        }
        rig.poll_after(50 * US);
        truth.check(&rig)?;
        for process in &truth.processes {
            rig.state.handle_detach(rig.now_ns, process.player.client);
        }
        truth.check(&rig)?;
    }
}
