//! Sends random signals to random members: a daemon, a high-priority job and four best-effort ones.
//! Members that were not killed produce no wrong result and no failed call, requests take as long
//! on the device as in a quiet run, and afterwards nothing is left. The members are real processes
//! (`chaos.c`). A seed (`PILLION_TEST_SEED`) determines the signals, their targets and times, but
//! not the state that they meet: a failure recurs often, not always. Times of requests are the
//! device's own, from when it has all of a request until that is done, so that a busy machine is
//! not taken for a busy device. With `PILLION_TEST_LONG=1` each run takes two minutes. If the
//! device takes all processes along with one that ends with work in flight (as MPS may), no job
//! gets a signal that cannot be handled safely: SIGKILL, and SIGUSR1, which ends them as well. The
//! seed also selects the policy of best-effort jobs without a daemon (`on_daemon_loss`): of two
//! seeds in a row, and of the two tests of one seed, one holds them and the other lets them run.
//! The tests print how many requests met a time without a daemon, and the latencies of both kinds.

use std::os::unix::process::ExitStatusExt;

use protocol::clock::Clock;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Gpu, HANG, Process, Program, try_until, until};

const BEST_EFFORT: usize = 4;
/// Allowed slowdown of the slowest hundredth of the requests against the quiet run.
const SLOWER_MAX: f64 = 1.5;
const MS_NS: u64 = 1_000_000;
/// How long after a daemon listens requests are counted separately.
const BACK_NS: u64 = 100 * MS_NS;

#[test]
fn random_signals_harm_nobody_but_whom_they_kill_in_time_slices() {
    run("timeslice", Kills::Contained);
}

#[test]
fn random_signals_harm_nobody_but_whom_they_kill_under_mps() {
    run("mps", Kills::Contained);
}

#[test]
fn random_requests_to_end_harm_nobody_else_under_mps_that_contains_nothing() {
    run("mps", Kills::Contagious);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kills {
    Contained,
    Contagious,
}

fn run(sharing: &'static str, kills: Kills) {
    let is_long = std::env::var_os("PILLION_TEST_LONG").is_some_and(|value| value == "1");
    let [quiet_ns, chaos_ns] = match is_long {
        true => [60_000 * MS_NS, 120_000 * MS_NS],
        false => [3_000 * MS_NS, 6_000 * MS_NS],
    };
    let seed = seed();
    let policy = policy(seed, sharing);
    println!("{sharing}, kills {kills:?}, {policy}, PILLION_TEST_SEED={seed}");
    let gpu = match kills {
        Kills::Contained => Gpu::start(sharing),
        Kills::Contagious => Gpu::start_contagious(),
    };

    let mut cast = Cast::new(&gpu, kills, policy);
    until_ns(cast.clock.now_ns() + quiet_ns, || cast.check());
    let (quiet, daemon) = cast.finish();
    let before = Left::when_nothing_runs(&gpu, &daemon);
    daemon.end();

    let mut cast = Cast::new(&gpu, kills, policy);
    let mut random = Random(seed);
    let end_ns = cast.clock.now_ns() + chaos_ns;
    while cast.clock.now_ns() < end_ns {
        let pause_ns = 20 * MS_NS + random.below(180 * MS_NS);
        until_ns(cast.clock.now_ns() + pause_ns, || cast.check());
        cast.hit(&mut random);
    }
    let (chaos, daemon) = cast.finish();
    println!("quiet: {quiet}\nchaos: {chaos}");
    chaos.print_unguarded();
    before.expect_no_more(&gpu, &daemon);
    if kills == Kills::Contagious {
        expect_no_deaths(&daemon.log());
    }
    expect_gate_to_work(&gpu, kills, &daemon);
    assert!(chaos.rounds > 0 && chaos.killed > 0, "{chaos}");
    let slower = chaos.p99_ns() as f64 / quiet.p99_ns() as f64;
    println!("the slowest hundredth takes {slower:.2} times as long as in the quiet run");
    // Of a few hundred requests that is the third or fourth slowest: one that met a job's launch.
    assert!(
        !is_long || slower <= SLOWER_MAX,
        "p99 {slower:.2} times: {quiet}; {chaos}"
    );
}

/// Processes that were asked to end have drained: no log has a death with work in flight.
fn expect_no_deaths(log: &str) {
    let mut lines = log.lines();
    let death = lines.find(|line| {
        line.contains("died-in-flight") || line.contains("in flight, as far as it had reported")
    });
    assert_eq!(death, None, "{log}");
}

pub(crate) fn seed() -> u64 {
    std::env::var("PILLION_TEST_SEED").map_or(1, |seed| seed.parse().unwrap())
}

/// With `hold`, a launch that waits for a dead daemon goes after `max_hold`.
fn policy(seed: u64, sharing: &str) -> &'static str {
    match (seed + u64::from(sharing == "mps")) % 2 {
        0 => "on_daemon_loss = \"run\"",
        _ => "on_daemon_loss = \"hold\"",
    }
}

fn until_ns(at_ns: u64, mut look: impl FnMut()) {
    let clock = Clock::monotonic();
    while clock.now_ns() < at_ns {
        look();
        let next_ns = (clock.now_ns() + 5 * MS_NS).min(at_ns);
        let _ = try_until(|| clock.now_ns() >= next_ns);
    }
}

struct Cast<'g> {
    gpu: &'g Gpu,
    kills: Kills,
    policy: &'static str,
    clock: Clock,
    /// Only missing while it is being replaced.
    daemon: Option<Daemon>,
    daemon_goes_on_ns: Option<u64>,
    daemons_killed: usize,
    /// The high-priority one first.
    jobs: Vec<Member>,
    fallen: Vec<(Member, Signal)>,
    outcome: Outcome,
}

struct Member {
    label: String,
    process: Process,
    /// Stopped until then.
    goes_on_ns: Option<u64>,
}

#[derive(Default)]
struct Outcome {
    /// Device time of each request, sorted at the end.
    requests_ns: Vec<u64>,
    /// For each request, when its end was seen, and its device time.
    ended_ns: Vec<(u64, u64)>,
    /// Intervals in which no daemon could hold launches, and why.
    unguarded_ns: Vec<(u64, u64, Unguarded)>,
    rounds: usize,
    signals: usize,
    killed: usize,
}

impl Outcome {
    fn part_ns(&self, part: f64) -> u64 {
        assert!(!self.requests_ns.is_empty(), "no request was answered");
        let last = self.requests_ns.len() - 1;
        self.requests_ns[(last as f64 * part).ceil() as usize]
    }

    fn p99_ns(&self) -> u64 {
        self.part_ns(0.99)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unguarded {
    /// The daemon had ended, and the next one did not listen yet.
    Away,
    /// The next daemon listened, and jobs were attaching.
    Back,
    Stopped,
}

impl Outcome {
    /// Prints how long best-effort jobs had no daemon, how many requests met that, and latencies.
    fn print_unguarded(&self) {
        let mut left: Vec<(u64, u64)> = self.ended_ns.clone();
        for why in [Unguarded::Away, Unguarded::Stopped, Unguarded::Back] {
            let times = self.unguarded_ns.iter().filter(|(_, _, of)| *of == why);
            let times: Vec<(u64, u64)> = times.map(|&(from, to, _)| (from, to)).collect();
            let meets = |&(ended_ns, ns): &(u64, u64)| {
                let mut times = times.iter();
                times.any(|&(from, to)| ended_ns > from && ended_ns - ns < to)
            };
            let (met, others) = left.iter().partition(|request| meets(request));
            left = others;
            let whole_ns = times.iter().map(|(from, to)| to - from).sum::<u64>();
            println!(
                "{why:?}: {} times, {:.2} s in all, met by {}",
                times.len(),
                whole_ns as f64 / 1e9,
                times_of(met)
            );
        }
        println!("all others: {}", times_of(left));
    }
}

fn times_of(requests: Vec<(u64, u64)>) -> String {
    let mut times: Vec<u64> = requests.into_iter().map(|(_, ns)| ns).collect();
    times.sort_unstable();
    let part = |part: f64| {
        let last = times.len().saturating_sub(1) as f64;
        times
            .get((last * part).ceil() as usize)
            .copied()
            .unwrap_or(0) as f64
            / 1e6
    };
    let count = times.len();
    let (median, p90, p99) = (part(0.5), part(0.9), part(0.99));
    format!("{count} requests of {median:.2} ms (median), {p90:.2} (p90), {p99:.2} (p99)")
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |part| self.part_ns(part) as f64 / 1e6;
        write!(
            f,
            "{} requests of {:.2} ms (median), {:.2} (p99), {:.2} (longest) on the device; {} rounds of best-effort jobs; {} signals, \
             {} processes killed",
            self.requests_ns.len(),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            self.rounds,
            self.signals,
            self.killed
        )
    }
}

impl<'g> Cast<'g> {
    fn new(gpu: &'g Gpu, kills: Kills, policy: &'static str) -> Self {
        let daemon = gpu.daemon(policy);
        let jobs = (0..=BEST_EFFORT).map(|place| member(gpu, kills, place));
        let jobs: Vec<Member> = jobs.collect();
        for job in &jobs {
            daemon.wait_for_clients(&job.label, 1);
        }
        Self {
            gpu,
            kills,
            policy,
            clock: Clock::monotonic(),
            daemon: Some(daemon),
            daemon_goes_on_ns: None,
            daemons_killed: 0,
            jobs,
            fallen: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("nobody takes its place now")
    }

    /// Only killed members have ended; a member that was stopped for long enough is resumed.
    fn check(&mut self) {
        let now_ns = self.clock.now_ns();
        let is_due = |at_ns: &mut Option<u64>| at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some();
        if is_due(&mut self.daemon_goes_on_ns) {
            self.daemon().signal(Signal::CONT);
        }
        for job in &mut self.jobs {
            if is_due(&mut job.goes_on_ns) {
                job.process.signal(Signal::CONT);
            }
            let (label, process) = (&job.label, &mut job.process);
            assert!(process.is_running(), "{label} ended: {}", process.errors());
        }
        let mut place = 0;
        while place < self.fallen.len() {
            match self.fallen[place].0.process.is_running() {
                true => place += 1,
                false => {
                    let (member, signal) = self.fallen.swap_remove(place);
                    self.bury(member, signal);
                }
            }
        }
    }

    fn hit(&mut self, random: &mut Random) {
        self.outcome.signals += 1;
        let victim = random.below(self.jobs.len() as u64 + 1) as usize;
        let kind = random.below(10);
        let pause_ns = self.clock.now_ns() + 5 * MS_NS + random.below(250 * MS_NS);
        let Some(place) = victim.checked_sub(1) else {
            return self.hit_daemon(kind, pause_ns);
        };
        let job = &mut self.jobs[place];
        let signal = match (kind, self.kills) {
            (0..=3, Kills::Contained) => Signal::KILL,
            (7, Kills::Contained) => Signal::USR1,
            (0..=5, _) => Signal::TERM,
            (6 | 7, _) => Signal::INT,
            _ => Signal::STOP,
        };
        // A stopped one dies of nothing else, and one in a shell's background may ignore this.
        let is_stopped = job.goes_on_ns.is_some() && signal != Signal::KILL;
        if is_stopped || (signal == Signal::INT && ignores_interrupts()) {
            return;
        }
        job.process.signal(signal);
        if signal == Signal::STOP {
            job.goes_on_ns = Some(pause_ns);
            return;
        }
        self.replace(place, signal);
    }

    /// Replaces a job that was sent a deadly signal, whether a daemon can answer or not.
    fn replace(&mut self, place: usize, signal: Signal) {
        let successor = member(self.gpu, self.kills, place);
        let dead = std::mem::replace(&mut self.jobs[place], successor);
        self.fallen.push((dead, signal));
        self.outcome.killed += 1;
    }

    /// Asks a job that is not stopped to end, while there is no daemon.
    fn replace_one(&mut self, place: usize) {
        let job = &self.jobs[place % self.jobs.len()];
        if job.goes_on_ns.is_none() {
            job.process.signal(Signal::TERM);
            self.replace(place % self.jobs.len(), Signal::TERM);
        }
    }

    fn hit_daemon(&mut self, kind: u64, pause_ns: u64) {
        let signal = match kind {
            0..=4 => Signal::KILL,
            5 | 6 => Signal::TERM,
            7 => Signal::HUP,
            _ => Signal::STOP,
        };
        if self.daemon_goes_on_ns.is_some() && signal != Signal::KILL {
            return;
        }
        let hit_ns = self.clock.now_ns();
        self.daemon().signal(signal);
        match signal {
            Signal::HUP => {}
            Signal::STOP => {
                self.daemon_goes_on_ns = Some(pause_ns);
                self.note_unguarded(hit_ns, pause_ns, Unguarded::Stopped);
            }
            _ => {
                let ended = self.daemon.take().expect("there is one").finish();
                if self.kills == Kills::Contagious {
                    expect_no_deaths(&ended.errors);
                }
                match signal {
                    Signal::KILL => assert_eq!(ended.status.signal(), Some(9), "{ended:#?}"),
                    _ => drop(ended.expect_success()),
                }
                self.daemon_goes_on_ns = None;
                self.daemons_killed += 1;
                // The next daemon comes some milliseconds later, so one of the processes that begin
                // meanwhile is kept from it.
                self.replace_one(self.daemons_killed);
                self.daemon = Some(self.gpu.daemon(self.policy));
                let listens_ns = self.clock.now_ns();
                self.note_unguarded(hit_ns, listens_ns, Unguarded::Away);
                self.note_unguarded(listens_ns, listens_ns + BACK_NS, Unguarded::Back);
            }
        }
    }

    fn note_unguarded(&mut self, from_ns: u64, to_ns: u64, why: Unguarded) {
        self.outcome.unguarded_ns.push((from_ns, to_ns, why));
    }

    /// Checks that a member died of its signal alone, and that all its output was right.
    fn bury(&mut self, member: Member, signal: Signal) {
        let ended = member.process.finish();
        let label = &member.label;
        assert_eq!(
            ended.status.signal(),
            Some(signal.as_raw()),
            "{label}: {ended:#?}"
        );
        self.outcome.take(&ended.output);
    }

    fn finish(mut self) -> (Outcome, Daemon) {
        if self.daemon_goes_on_ns.take().is_some() {
            self.daemon().signal(Signal::CONT);
        }
        for job in std::mem::take(&mut self.jobs) {
            job.process.signal(Signal::CONT);
            let ended = job.process.finish().expect_success();
            assert!(!ended.errors.contains("panic"), "{}: {ended:#?}", job.label);
            self.outcome.take(&ended.output);
        }
        for (mut member, signal) in std::mem::take(&mut self.fallen) {
            until(&format!("the end of {}", member.label), || {
                !member.process.is_running()
            });
            self.bury(member, signal);
        }
        self.outcome.requests_ns.sort_unstable();
        self.outcome.killed += self.daemons_killed;
        (self.outcome, self.daemon.expect("there is one"))
    }
}

impl Outcome {
    fn take(&mut self, output: &str) {
        for line in output.lines() {
            if let Some((ns, at_ns)) = line
                .strip_prefix("request ")
                .and_then(|request| request.split_once(" at "))
            {
                let (ns, at_ns) = (ns.parse().unwrap(), at_ns.parse().unwrap());
                self.requests_ns.push(ns);
                self.ended_ns.push((at_ns, ns));
            }
            self.rounds += usize::from(line == "round");
        }
    }
}

fn member(gpu: &Gpu, kills: Kills, place: usize) -> Member {
    let socket = gpu.path("pillion.sock");
    let program = Program::Linked("chaos");
    let (label, job) = match place {
        0 => {
            let job = gpu.job("hp", program).args(&["hp"]);
            let job = job.under(&socket, protocol::hello::JobClass::HighPriority);
            ("hp".to_owned(), job)
        }
        _ => {
            let label = format!("be{place}");
            let job = gpu.job(&label, program).args(&["be"]);
            let job = job.under(&socket, protocol::hello::JobClass::BestEffort);
            (label, job.env("PILLION_MEMORY", "256MiB"))
        }
    };
    let job = match kills {
        Kills::Contained => job,
        // As long as a busy machine takes.
        Kills::Contagious => job.env("PILLION_DRAIN_MS", "60000"),
    };
    Member {
        label,
        process: job.start(),
        goes_on_ns: None,
    }
}

/// Whether SIGINT is ignored: children inherit that (`nohup`, a shell's background).
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .expect("proc(5)");
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    ignored & 1 << (Signal::INT.as_raw() - 1) != 0
}

/// Resources of daemon and device server: open descriptors, and mapped memory files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    daemon: [usize; 2],
    server: [usize; 2],
}

/// Polls of which the least counts: each query itself opens a connection for a moment.
const LOOKS: usize = 20;

impl Left {
    pub(crate) fn when_nothing_runs(gpu: &Gpu, daemon: &Daemon) -> Self {
        let is_free = try_until(|| {
            let held = held(&daemon.status(), &gpu.stats());
            held.is_empty()
        });
        if is_free.is_none() {
            panic!("still held: {}", held(&daemon.status(), &gpu.stats()));
        }
        let clock = Clock::monotonic();
        let looks = (0..LOOKS).map(|_| {
            let next_ns = clock.now_ns() + MS_NS;
            let _ = try_until(|| clock.now_ns() >= next_ns);
            Self::of(gpu, daemon)
        });
        let least = |a: [usize; 2], b: [usize; 2]| [a[0].min(b[0]), a[1].min(b[1])];
        let all = looks.reduce(|a, b| Self {
            daemon: least(a.daemon, b.daemon),
            server: least(a.server, b.server),
        });
        all.expect("there are several")
    }

    fn of(gpu: &Gpu, daemon: &Daemon) -> Self {
        let of = |pid: u32, prefix: &str| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
            let files = maps.lines().filter(|line| line.contains(prefix));
            [count(&format!("/proc/{pid}/fd")), files.count()]
        };
        // The daemon remembers jobs that have ended, each with its ledger.
        let status = daemon.status();
        let jobs = status["jobs"].as_array().unwrap().iter();
        let ledgers = jobs.filter(|job| !job["memory"].is_null()).count();
        Self {
            daemon: of(daemon.pid(), "/memfd:pillion-").map(|count| count - ledgers),
            server: of(gpu.server_pid(), "/memfd:softgpu-"),
        }
    }

    /// Waits until no more than this remains once nothing runs: threads close some resources later.
    pub(crate) fn expect_no_more(&self, gpu: &Gpu, daemon: &Daemon) {
        let is_no_more = |now: &Self| {
            let pairs = [(now.daemon, self.daemon), (now.server, self.server)];
            let mut pairs = pairs
                .into_iter()
                .flat_map(|(now, before)| now.into_iter().zip(before));
            pairs.all(|(now, before)| now <= before)
        };
        Self::when_nothing_runs(gpu, daemon);
        if try_until(|| is_no_more(&Self::of(gpu, daemon))).is_none() {
            panic!("{:?}, before {self:?}", Self::of(gpu, daemon));
        }
    }
}

/// Describes what is still held; empty: nothing.
fn held(status: &Value, stats: &Value) -> String {
    let mut held = String::new();
    let mut note = |what: &str, value: &Value| {
        if !(value.is_null() || *value == false || *value == 0) {
            held += &format!("{what} {value}; ");
        }
    };
    for job in status["jobs"].as_array().unwrap() {
        let name = job["job"].as_str().unwrap();
        note(
            &format!("{name} has clients"),
            &job["ended_ns"].is_null().into(),
        );
        note(&format!("{name} in flight"), &job["in_flight_ns"]);
        note(&format!("{name} holds"), &job["memory"]["held_bytes"]);
        note(&format!("{name} has accounts"), &job["memory"]["processes"]);
    }
    note("high-priority work in flight", &status["hp"]["busy"]);
    note("the device has given", &stats["memory"]["used_bytes"]);
    // The daemon itself, which asked the driver for its device, has no label.
    let labels = stats["labels"].as_object().unwrap().iter();
    for (label, counts) in labels.filter(|(label, _)| *label != "(unlabelled)") {
        note(&format!("{label} at the device"), &counts["connected"]);
    }
    held
}

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Best-effort work waits for a high-priority job's, and goes on without it; no launch went because
/// it had waited for too long.
fn expect_gate_to_work(gpu: &Gpu, kills: Kills, daemon: &Daemon) {
    let path = gpu.config(daemon.socket(), "name = \"temporal\"\nmax_hold_ms = 10000");
    assert!(path.exists());
    daemon.signal(Signal::HUP);
    until("the other policy", || {
        daemon.status()["policy"]["name"] == "temporal"
    });
    let mut hp = gpu.job("last-hp", HANG).high_priority(daemon).start();
    hp.wait_for("launched", 1);
    let mut be = gpu.job("last-be", "steady").best_effort(daemon).start();
    daemon.wait_until_held("last-be");
    if kills == Kills::Contagious {
        gpu.inject(&format!("terminate-client {}", hp.pid()));
    }
    hp.signal(Signal::KILL);
    be.wait_for("round", 5);
    be.finish().expect_success();
    assert_eq!(daemon.total("last-be", "launches_forced"), 0);
}

/// Pseudo-random numbers from a seed (splitmix64, Steele and others 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % bound
    }
}
