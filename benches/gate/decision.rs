//! One poll, which is one decision about all jobs: read records, ask the policy, publish.

use anyhow::ensure;
use benches::alternate::{Nothing, Plan, Side, alternate};
use benches::report::{Measured, Row, Unit};
use benches::summary::Comparison;
use benches::timer::Timer;
use policy::{Class, Kernel};
use protocol::clock::Clock;
use protocol::hello::JobClass;
use protocol::sync::Ordering;

use crate::clients::{Daemon, Player};

/// Targets, ns: without further laws, and with all of them.
const TARGET_NS: [f64; 2] = [1_000.0, 700.0];
/// High-priority clients; with the best-effort ones eight.
const HP_CLIENTS: usize = 2;
const BE_CLIENTS: usize = 6;
/// All further laws on best-effort jobs: a cap for each, and a throttle and a share for all.
const ALL_LAWS: &str = "name = \"pillion\"\n[throttle]\nclock_mhz = 1380\n[share]\n\
    [jobs.job-0]\nmax_share = 0.9\n[jobs.job-1]\nmax_share = 0.9\n[jobs.job-2]\nmax_share = 0.9\n\
    [jobs.job-3]\nmax_share = 0.9\n[jobs.job-4]\nmax_share = 0.9\n[jobs.job-5]\nmax_share = 0.9";
/// The shipped `poll_us`: between two polls other code fills the caches.
const PACE_NS: u64 = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// High-priority jobs are idle, and all best-effort ones wait.
    Waiting,
    /// A high-priority job launches and completes ten kernels; best-effort ones launch and
    /// complete.
    Requests,
}

struct Rig {
    daemon: Daemon,
    hp: Vec<Player>,
    be: Vec<Player>,
    clock: Clock,
    meanwhile: Meanwhile,
    polls: u64,
    full: u64,
    granted: u64,
}

pub(crate) fn measure(timer: &Timer, quick: bool) -> anyhow::Result<Vec<Row>> {
    let pairs = if quick { 20 } else { 100 };
    let cases = [
        ("pillion", Meanwhile::Waiting, "all BE wait"),
        (
            "pillion",
            Meanwhile::Requests,
            "HP and BE launch between two",
        ),
        ("orion", Meanwhile::Requests, "HP and BE launch between two"),
        ("all laws", Meanwhile::Waiting, "all BE wait"),
        (
            "all laws",
            Meanwhile::Requests,
            "HP and BE launch between two",
        ),
    ];
    let row = |(policy, meanwhile, what): (&str, Meanwhile, &str)| {
        let (keys, target_ns) = match policy {
            "all laws" => (ALL_LAWS.to_owned(), TARGET_NS[1]),
            _ => (format!("name = \"{policy}\""), TARGET_NS[0]),
        };
        let mut rig = Rig::new(&keys, meanwhile)?;
        let plan = Plan {
            block: 50,
            pairs,
            pace_ns: PACE_NS,
        };
        let samples = alternate(plan, timer, &mut Nothing, &mut rig);
        let name = format!("decision, 8 clients, {policy}, {what}");
        let cost = Measured::Cost(Comparison::of(&samples));
        let mut row = Row::new(&name, Unit::Ns, cost, Some(target_ns));
        row.evidence = rig.check()?;
        Ok(row)
    };
    cases.into_iter().map(row).collect()
}

impl Rig {
    fn new(keys: &str, meanwhile: Meanwhile) -> anyhow::Result<Self> {
        let mut daemon = Daemon::new(keys)?;
        let mut attach = |class, count| -> anyhow::Result<Vec<Player>> {
            (0..count)
                .map(|index| daemon.attach(class, &format!("job-{index}")))
                .collect()
        };
        let hp = attach(JobClass::HighPriority, HP_CLIENTS)?;
        let be = attach(JobClass::BestEffort, BE_CLIENTS)?;
        let mut rig = Self {
            daemon,
            hp,
            be,
            clock: Clock::monotonic(),
            meanwhile,
            polls: 0,
            full: 0,
            granted: 0,
        };
        for be in &rig.be {
            be.page.waiting.store(1, Ordering::Relaxed);
        }
        // The first polls allocate for later ones.
        for _ in 0..1_000 {
            rig.call();
            rig.go_on();
        }
        Ok(rig)
    }

    fn go_on(&mut self) {
        if self.meanwhile == Meanwhile::Waiting {
            return;
        }
        let kernel = Kernel {
            class: Class::Memory,
            sm_needed: 4,
            expected_ns: 5_000,
        };
        let now_ns = self.clock.now_ns();
        let pages = &self.daemon.pages;
        for be in &self.be {
            be.drain();
            self.granted += u64::from(be.try_launch(pages, now_ns, &kernel).is_ok());
        }
        let hp = &mut self.hp[(self.polls % HP_CLIENTS as u64) as usize];
        for _ in 0..10 {
            self.full += u64::from(!hp.launch(pages, 20_000));
        }
        self.full += u64::from(!hp.complete());
    }

    fn check(&self) -> anyhow::Result<Vec<String>> {
        ensure!(
            self.full == 0,
            "{} records were lost: the ring was full",
            self.full
        );
        let is_launching = self.meanwhile == Meanwhile::Requests;
        ensure!(
            is_launching == (self.granted > 0),
            "{} best-effort launches were granted",
            self.granted
        );
        Ok(vec![format!(
            "{HP_CLIENTS} HP and {BE_CLIENTS} BE clients, {} polls, {} BE launches granted",
            self.polls, self.granted
        )])
    }
}

impl Side for Rig {
    #[inline]
    fn call(&mut self) {
        self.polls += 1;
        let now_ns = self.clock.now_ns();
        std::hint::black_box(self.daemon.state.poll(now_ns));
    }

    fn handle_call_end(&mut self) {
        self.go_on();
    }
}
