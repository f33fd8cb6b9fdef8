//! Under MPS a process that ends with work in flight may take the others along (MuxFlow, section
//! 5); the software GPU is configured to do so. A job that is asked to end harms nobody under
//! Pillion, and does without it. A death with work in flight that cannot be prevented is an event,
//! however the GPU is shared.

use std::os::unix::process::ExitStatusExt;

use protocol::hello::JobClass;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Control, Daemon, Ended, Gpu, HANG, Job, Process, Program, collect, until};
use crate::events::{event_when, text};

const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];
const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];
/// A kernel's duration in the first try, and in further ones.
const LONG_NS: [&str; 3] = ["3000000000", "12000000000", "60000000000"];
/// Kernel duration of a job that almost always has one in flight.
const LASTING_NS: &str = "300000000";
/// A drain time for a busy machine.
const PATIENT_MS: &str = "60000";
/// Exit status of a program whose call failed (`cuda_min.h`).
const CUDA_FAILED: i32 = 90;
const WELL: &str = "launch 0 wait 0";
const LOST: &str = "launch 719 wait 719";

/// Two other processes: one works without a pause and checks its results, one launches on request.
struct Neighbours {
    steady: Process,
    asked: Process,
}

impl Neighbours {
    fn start(gpu: &Gpu, as_job: impl Fn(Job) -> Job) -> Self {
        let start = |name| as_job(gpu.job(name, Program::Linked(name))).start();
        let (mut steady, mut asked) = (start("steady"), start("faulty"));
        steady.wait_for("round", 1);
        asked.wait_for("ready", 1);
        Self { steady, asked }
    }

    fn of(gpu: &Gpu, daemon: &Daemon) -> Self {
        Self::start(gpu, |job| {
            job.under(daemon.socket(), JobClass::HighPriority)
        })
    }

    fn expect_well(self) {
        let Self {
            mut steady,
            mut asked,
        } = self;
        steady.wait_for_new("round", 3);
        assert_eq!(ask(&mut asked), WELL);
        steady.finish().expect_success();
        asked.finish().expect_success();
    }

    fn expect_lost(self) {
        let Self { steady, mut asked } = self;
        let steady = steady.finish_untold();
        assert_eq!(steady.code(), CUDA_FAILED, "{steady:#?}");
        for _ in 0..2 {
            assert_eq!(ask(&mut asked), LOST);
        }
        asked.finish().expect_success();
    }
}

fn ask(process: &mut Process) -> String {
    process.write("\n");
    process.next_line()
}

/// A job that launches one kernel after the other, waits for each, and dies of the signals.
fn working(gpu: &Gpu) -> Job {
    let job = gpu.job("working", "asked_to_end default synchronising");
    job.env("LASTING_NS", LASTING_NS)
        .env("PILLION_DRAIN_MS", PATIENT_MS)
}

fn end_by(job: Job, signal: Signal) {
    let job = job.start_until("ready");
    job.signal(signal);
    let status = job.finish_untold().status;
    assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
}

fn hanging(gpu: &Gpu, daemon: &Daemon) -> Process {
    let mut job = gpu.job("hang", HANG).best_effort(daemon).start();
    job.wait_for("launched", 1);
    job
}

fn stop(gpu: &Gpu, daemon: &Daemon, control: &Control, grace: &str) -> Ended {
    let command = gpu.stop(control, daemon, &["hang", "--grace", grace]);
    collect(command).expect_success()
}

#[test]
fn without_us_a_job_that_is_asked_to_end_takes_its_neighbours_along() {
    for signal in SIGNALS {
        let gpu = Gpu::start_contagious();
        let neighbours = Neighbours::start(&gpu, |job| job);
        end_by(working(&gpu), signal);
        neighbours.expect_lost();
    }
}

#[test]
fn a_job_that_is_asked_to_end_has_no_work_in_flight_and_its_neighbours_go_on() {
    for signal in SIGNALS {
        let gpu = Gpu::start_contagious();
        let daemon = gpu.daemon("");
        let neighbours = Neighbours::of(&gpu, &daemon);
        end_by(working(&gpu).best_effort(&daemon), signal);
        neighbours.expect_well();
        daemon.wait_for_clients("working", 0);
        assert_eq!(deaths(&daemon), 0);
    }
}

/// Its launches are not granted since the daemon was killed, yet its end waits for them.
#[test]
fn a_job_that_ends_without_its_daemon_has_no_work_in_flight() {
    let policy = "name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"run\"";
    for (how, code) in [(&[][..], None), (&["exits"], Some(7))] {
        let (gpu, daemon) = Gpu::with_daemon("mps", policy);
        let busy = hanging_in(&gpu, &daemon, JobClass::HighPriority, PATIENT_MS);
        let job = gpu.job("late", "hang").args(&[LONG_NS[0], "1"]).args(how);
        let job = job.best_effort(&daemon).env("PILLION_DRAIN_MS", PATIENT_MS);
        let mut job = job.start();
        daemon.wait_until_held("late");
        daemon.signal(Signal::KILL);
        job.wait_for("launched", 1);
        job.signal(Signal::TERM);
        let status = job.finish_untold().status;
        assert_eq!(status.code(), code, "{status:?}");
        assert_eq!(gpu.counts("late")["launches_completed"], 1);
        drop(busy);
    }
}

#[test]
fn a_stopped_job_whose_kernel_never_ends_harms_nobody_because_mps_is_asked_before() {
    let gpu = Gpu::start_contagious();
    let daemon = gpu.daemon("");
    let control = Control::that_obeys(&gpu);
    let neighbours = Neighbours::of(&gpu, &daemon);
    let job = hanging(&gpu, &daemon);
    control.knows(&[job.pid()]);
    stop(&gpu, &daemon, &control, "60s");
    assert_eq!(job.finish_untold().status.signal(), Some(9));
    neighbours.expect_well();
    // If MPS cannot be asked, the neighbour is not spared: that shows what the request is for.
    let neighbours = Neighbours::of(&gpu, &daemon);
    let job = hanging(&gpu, &daemon);
    control.knows(&[]);
    let pid = job.pid();
    stop(&gpu, &daemon, &control, "100ms");
    assert_eq!(job.finish_untold().status.signal(), Some(9));
    neighbours.expect_lost();
    // The daemon does not know the result of `pillion stop`, and claims nothing.
    let event = death_of(&gpu, &daemon, pid);
    assert_eq!(event["severity"], "error");
    assert!(text(&event).contains("is unknown here"), "{event}");
}

/// It ends by itself within the grace, long after its own time to drain. How long a kernel must
/// last for MPS to be asked, and to refuse, depends on the machine.
#[test]
fn a_stopped_job_whose_kernel_takes_its_time_harms_nobody_though_mps_does_not_end_it() {
    for how in [&[][..], &["exits"]] {
        let has_waited = LONG_NS.into_iter().any(|long_ns| {
            let gpu = Gpu::start_contagious();
            let daemon = gpu.daemon("");
            let control = Control::that_obeys(&gpu);
            let neighbours = Neighbours::of(&gpu, &daemon);
            let job = gpu.job("hang", "hang").args(&[long_ns, "1"]).args(how);
            let job = job.env("PILLION_DRAIN_MS", "50").best_effort(&daemon);
            let job = job.start_until("launched");
            let stopped = stop(&gpu, &daemon, &control, "10m");
            let status = job.finish_untold().status;
            assert_eq!(
                status.signal(),
                how.is_empty().then_some(15),
                "{stopped:#?}"
            );
            neighbours.expect_well();
            assert_eq!(deaths(&daemon), 0);
            assert!(stopped.output.contains("ended on SIGTERM"), "{stopped:#?}");
            stopped.errors.contains("it has the rest of its grace")
        });
        assert!(has_waited, "its work was complete whenever it was to end");
    }
}

/// Nothing can wait for a kill.
#[test]
fn a_kill_takes_neighbours_along_under_us_too_and_those_that_come_later_are_served() {
    let gpu = Gpu::start_contagious();
    let daemon = gpu.daemon("");
    let neighbours = Neighbours::of(&gpu, &daemon);
    let job = hanging(&gpu, &daemon);
    job.signal(Signal::KILL);
    let pid = job.pid();
    assert_eq!(job.finish_untold().status.signal(), Some(9));
    neighbours.expect_lost();
    let event = death_of(&gpu, &daemon, pid);
    assert_eq!(
        (&event["job"], &event["severity"]),
        (&"hang".into(), &"error".into())
    );
    assert!(
        text(&event).contains("other clients may have failed"),
        "{event}"
    );
    for label in ["steady", "faulty"] {
        event_when(&gpu, &daemon, "sticky-error", |event| event["job"] == label);
    }
    until("the device to be rid of them", || {
        let labels = gpu.stats()["labels"].clone();
        let connected = |label: &str| labels[label]["connected"] == 0;
        connected("steady") && connected("faulty")
    });
    Neighbours::of(&gpu, &daemon).expect_well();
}

fn deaths(daemon: &Daemon) -> u64 {
    let counts = &daemon.status()["events"]["counts"];
    counts["died-in-flight"]
        .as_u64()
        .expect("every kind is told")
}

fn death_of(gpu: &Gpu, daemon: &Daemon, pid: u32) -> Value {
    event_when(gpu, daemon, "died-in-flight", |event| event["pid"] == pid)
}

/// The job's only process, in either class, with a kernel that never ends.
fn hanging_in(gpu: &Gpu, daemon: &Daemon, class: JobClass, drain_ms: &str) -> Process {
    let job = gpu.job(class.name(), "hang 3600000000000 2");
    let job = job.under(daemon.socket(), class);
    let mut job = job.env("PILLION_DRAIN_MS", drain_ms).start();
    job.wait_for("launched", 1);
    job
}

#[test]
fn a_death_with_work_in_flight_is_told_with_how_much_it_was_and_why() {
    let (gpu, daemon) = Gpu::with_daemon("timeslice", "");
    for (drain_ms, signal, why) in [
        (
            "0",
            Signal::TERM,
            "it was killed, crashed or exited without detaching",
        ),
        ("50", Signal::TERM, "deadline: "),
        (PATIENT_MS, Signal::KILL, "it was killed"),
    ] {
        for class in CLASSES {
            let job = hanging_in(&gpu, &daemon, class, drain_ms);
            job.signal(signal);
            let pid = job.pid();
            let status = job.finish_untold().status;
            assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
            let event = death_of(&gpu, &daemon, pid);
            assert_eq!(
                (&event["job"], &event["severity"]),
                (&class.name().into(), &"warning".into())
            );
            assert!(text(&event).contains(why), "{event}");
            assert!(event["code"].as_u64() > Some(0), "{event}");
            let is_counted = text(&event).contains("died with 2 launches in flight");
            assert_eq!(is_counted, class == JobClass::HighPriority, "{event}");
        }
    }
    assert_eq!(deaths(&daemon), 6);
}

#[test]
fn a_rule_holds_the_job_of_a_process_that_died_with_work_in_flight() {
    let gpu = Gpu::start("timeslice");
    let rule = "[[faults.rules]]\nfault = \"died-in-flight\"\naction = \"hold-be\"\n";
    let daemon = gpu.daemon(&format!("[faults]\n{rule}"));
    let job = hanging(&gpu, &daemon);
    job.signal(Signal::KILL);
    let pid = job.pid();
    drop(job);
    death_of(&gpu, &daemon, pid);
    let held = event_when(&gpu, &daemon, "held", |event| event["job"] == "hang");
    let why =
        "job \"hang\" is held until `pillion resume hang`: died-in-flight of a best-effort job";
    assert_eq!(text(&held), why);
}

#[test]
fn whose_stopped_process_dies_with_work_in_flight_is_not_held_by_a_rule_for_deaths() {
    let rule = "[[faults.rules]]\nfault = \"died-in-flight\"\naction = \"hold-be\"\n";
    for sharing in ["timeslice", "mps"] {
        let gpu = Gpu::start(sharing);
        let daemon = gpu.daemon(&format!("[faults]\n{rule}"));
        let control = Control::new(&gpu);
        let job = hanging(&gpu, &daemon);
        let pid = job.pid();
        control.knows(&[pid]);
        stop(&gpu, &daemon, &control, "60s");
        assert!(job.finish_untold().status.signal().is_some());
        death_of(&gpu, &daemon, pid);
        // A held one waits for ever; an event's consequences precede the next event.
        let killed = hanging_in(&gpu, &daemon, JobClass::HighPriority, PATIENT_MS);
        killed.signal(Signal::KILL);
        death_of(&gpu, &daemon, killed.pid());
        let is_told = |event: &Value| event["job"] == JobClass::HighPriority.name();
        let held = event_when(&gpu, &daemon, "held", |_| true);
        assert!(held["job"] != "hang" && is_told(&held), "{held}");
    }
}

#[test]
fn a_process_that_was_drained_or_had_nothing_in_flight_gives_no_alarm() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for class in CLASSES {
        let label = class.name();
        for place in ["idle", "launching", "synchronising", "capturing"] {
            let job = gpu.job(label, "asked_to_end").args(&["default", place]);
            let job = job.env("PILLION_DRAIN_MS", PATIENT_MS);
            end_by(job.under(daemon.socket(), class), Signal::TERM);
        }
        let job = gpu.job(label, "steady").under(daemon.socket(), class);
        let mut steady = job.start();
        steady.wait_for("round", 3);
        steady.finish().expect_success();
        let job = gpu.job(label, "faulty").under(daemon.socket(), class);
        let mut waited = job.start_until("ready");
        assert_eq!(ask(&mut waited), WELL);
        // The job waited for its work, so nothing is in flight; its helper polls for that soon.
        daemon.wait_until_nothing_in_flight(label);
        waited.signal(Signal::KILL);
        assert_eq!(waited.finish_untold().status.signal(), Some(9));
        daemon.wait_for_clients(label, 0);
    }
    // Deaths are reported in order: those before this one have been.
    let job = hanging(&gpu, &daemon);
    job.signal(Signal::KILL);
    death_of(&gpu, &daemon, job.pid());
    assert_eq!(deaths(&daemon), 1, "{}", daemon.log());
}
