//! Work whose stream, context, device or thread ends while it runs does not stay in flight.

use crate::common::{Gpu, until};

/// How work ends; see `work_ends.c`.
const ENDINGS: [&str; 5] = ["stream", "context", "reset", "fault", "thread"];
/// Least number of launched kernels.
const KERNELS: u64 = 10;

#[test]
fn best_effort_work_that_ends_in_any_way_is_counted_complete() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for how in ENDINGS {
        let job = gpu.job(how, "work_ends").args(&[how]).best_effort(&daemon);
        let job = job.start_until("ended");
        until("the device to be done", || {
            let completed = gpu.counts(how)["launches_completed"].as_u64();
            completed >= Some(KERNELS)
        });
        // The process lives on, so that only its own account can show it.
        daemon.wait_until_nothing_in_flight(how);
        let ended = job.finish().expect_success();
        let totals = daemon.totals(how);
        assert_eq!(
            totals["launches"],
            ended.asked("launches"),
            "{how}: {totals:#}"
        );
        assert_eq!(
            gpu.counts(how)["launches"],
            ended.asked("launches"),
            "{how}"
        );
        assert_eq!(totals["panics_caught"], 0, "{how}: {totals:#}");
    }
}

#[test]
fn a_high_priority_job_whose_work_ended_in_any_way_does_not_look_busy_for_ever() {
    for how in ENDINGS {
        let gpu = Gpu::start("mps");
        let daemon =
            gpu.daemon("name = \"temporal\"\nmax_hold_ms = 10000\non_daemon_loss = \"hold\"");
        let hp = gpu.job("hp", "work_ends").args(&[how]);
        let hp = hp.high_priority(&daemon).start_until("ended");
        let mut be = gpu.job("be", "steady").best_effort(&daemon).start();
        be.wait_for("round", 3);
        gpu.expect_right_end("be", be, &daemon);
        assert_eq!(daemon.total("be", "launches_forced"), 0, "{how}");
        let ended = hp.finish().expect_success();
        let totals = daemon.totals("hp");
        assert_eq!(
            totals["launches"],
            ended.asked("launches"),
            "{how}: {totals:#}"
        );
    }
}
