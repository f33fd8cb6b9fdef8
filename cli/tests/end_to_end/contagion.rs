//! Under MPS a process that ends with work in flight may take the others along (MuxFlow, section 5): the software GPU is told that it
//! does. A job that is asked to end harms nobody under Pillion, and does without it.

use std::os::unix::process::ExitStatusExt;

use protocol::hello::JobClass;
use rustix::process::Signal;

use crate::common::{Control, Daemon, Ended, Gpu, Job, Process, Program, collect, pillion, until};

const SIGNALS: [Signal; 2] = [Signal::TERM, Signal::INT];
const FOR_EVER_NS: &str = "3600000000000";
/// What a kernel takes of a job that always has one in flight, but for the moment between two.
const LASTING_NS: &str = "300000000";
/// It drains for as long as a busy machine takes.
const PATIENT_MS: &str = "60000";
/// What programs end with whose call has failed (`cuda_min.h`).
const CUDA_FAILED: i32 = 90;
const WELL: &str = "launch 0 wait 0";
const LOST: &str = "launch 719 wait 719";

/// Two processes beside the one that ends: one works without a pause and compares what comes of it, one launches when it is asked to.
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

    /// They go on, and nothing that they computed is wrong.
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

    /// They get nothing more done, for good.
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

/// Has it launch once; what that came to.
fn ask(process: &mut Process) -> String {
    process.write("\n");
    process.next_line()
}

/// A job that launches one kernel after the other, waits for each, and dies of the signals.
fn working(gpu: &Gpu) -> Job {
    let job = gpu.job("working", Program::Linked("asked_to_end"));
    let job = job.args(&["default", "synchronising"]);
    job.env("LASTING_NS", LASTING_NS)
        .env("PILLION_DRAIN_MS", PATIENT_MS)
}

fn end_by(job: Job, signal: Signal) {
    let mut job = job.start();
    job.wait_for("ready", 1);
    job.signal(signal);
    let status = job.finish_untold().status;
    assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
}

/// A job with a kernel that never ends.
fn hanging(gpu: &Gpu, daemon: &Daemon) -> Process {
    let job = gpu.job("hang", Program::Linked("hang"));
    let mut job = job.args(&[FOR_EVER_NS, "1"]).best_effort(daemon).start();
    job.wait_for("launched", 1);
    job
}

fn stop(gpu: &Gpu, daemon: &Daemon, control: &Control) -> Ended {
    let mut command = gpu.command(pillion());
    command.env("PILLION_SOCKET", daemon.socket());
    command.env("PATH", control.search_path());
    command.args(["stop", "hang"]);
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
    stop(&gpu, &daemon, &control);
    assert_eq!(job.finish_untold().status.signal(), Some(9));
    neighbours.expect_well();
    // Where MPS cannot be asked, it is not spared: that is what the asking is for.
    let neighbours = Neighbours::of(&gpu, &daemon);
    let job = hanging(&gpu, &daemon);
    control.knows(&[]);
    stop(&gpu, &daemon, &control);
    assert_eq!(job.finish_untold().status.signal(), Some(9));
    neighbours.expect_lost();
}

/// What nobody can wait for.
#[test]
fn a_kill_takes_neighbours_along_under_us_too_and_those_that_come_later_are_served() {
    let gpu = Gpu::start_contagious();
    let daemon = gpu.daemon("");
    let neighbours = Neighbours::of(&gpu, &daemon);
    let job = hanging(&gpu, &daemon);
    job.signal(Signal::KILL);
    assert_eq!(job.finish_untold().status.signal(), Some(9));
    neighbours.expect_lost();
    until("the device to be rid of them", || {
        let labels = gpu.stats()["labels"].clone();
        let connected = |label: &str| labels[label]["connected"] == 0;
        (connected("steady") && connected("faulty")).then_some(())
    });
    Neighbours::of(&gpu, &daemon).expect_well();
}
