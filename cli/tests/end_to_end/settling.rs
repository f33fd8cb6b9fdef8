//! A high-priority job attaches beside a best-effort job that was not gated before. It runs on the
//! virtual clock; the device's record has the times. The moment of the attach depends on the
//! machine, so the assertions hold for any moment.

use protocol::hello::{JobClass, ask_status};
use serde_json::Value;

use crate::common::{Process, cargo_folder, library, until};
use crate::learnt::HP_TRACE;
use crate::order::Clocked;

/// Iterations of 20 kernels of 300 µs that fill the device.
const BE_TRACE: &str = "\
pillion-trace 1
device V100-SXM2-16GB
kernel class=compute grid=80,1,1 block=1024,1,1 shared_bytes=65536 registers=32 sm_needed=80 block_ns=300000 duration_ns=300000 compute_demand=0.8 bandwidth_demand=0.2 source=\"train\" name=\"train\"
launch 0 x20
";

/// Limit on the delay of best-effort work.
const LATE_NS_MAX: u64 = 2_000_000;

fn start_replay(
    clocked: &Clocked,
    class: JobClass,
    rank: &str,
    trace: &str,
    more: &[&str],
) -> Process {
    let name = class.name();
    let path = clocked.path(&format!("{name}.trace"));
    std::fs::write(&path, trace).unwrap();
    let mut replay = clocked.command(&cargo_folder().join("pillion-replay"), rank);
    replay.arg("--trace").arg(&path).args(more);
    replay
        .arg("--out")
        .arg(clocked.path(&format!("{name}.json")));
    replay
        .env("LD_PRELOAD", library())
        .env("PILLION_CLASS", name)
        .env("PILLION_JOB", name)
        .env("PILLION_SOCKET", clocked.path("pillion.sock"))
        .env("PILLION_PROFILE", &path);
    Process::start(name, replay)
}

/// The kernels of both jobs, best-effort first; high-priority ones begin 500 ms after the attach.
fn kernels(sharing: &str) -> [Vec<(u64, u64)>; 2] {
    // The daemon and the best-effort job; the other one joins.
    let clocked = Clocked::start(sharing, "2");
    let daemon = clocked.daemon(sharing);
    let seconds = ["--seconds", "3"];
    let be = start_replay(&clocked, JobClass::BestEffort, "2", BE_TRACE, &seconds);
    until("launches that nobody gates", || {
        let status = ask_status(&clocked.path("pillion.sock")).unwrap();
        let status: Value = serde_json::from_str(&status).unwrap();
        let launches = status["jobs"][0]["totals"]["launches"].as_u64();
        launches.filter(|&launches| launches > 40)
    });
    let arrivals = clocked.path("arrivals");
    std::fs::write(&arrivals, "0.5\n").unwrap();
    let arrivals = ["--seconds", "1", "--arrivals", arrivals.to_str().unwrap()];
    let class = JobClass::HighPriority;
    let hp = start_replay(&clocked, class, "1", HP_TRACE, &arrivals);
    for job in [hp, be] {
        job.finish_whenever().expect_success();
    }
    drop(daemon);
    let streams = clocked.finish();
    streams.try_into().expect("two streams with kernels")
}

#[test]
fn best_effort_work_goes_on_soon_after_a_high_priority_job_has_attached() {
    for sharing in ["mps", "timeslice"] {
        let [be, hp] = kernels(sharing);
        let first_ns = hp.first().expect("it had a request").0;
        let before: Vec<_> = be.iter().filter(|kernel| kernel.1 < first_ns).collect();
        let pauses = before.windows(2).map(|pair| pair[1].0 - pair[0].1);
        let longest_ns = pauses.max().expect("kernels before its first request");
        assert!(longest_ns <= LATE_NS_MAX, "{sharing}: {longest_ns} ns");
        // The high-priority job was attached for half a second then, and the other one worked on.
        let since_ns = first_ns - 400_000_000;
        let meanwhile = before.iter().filter(|kernel| kernel.0 > since_ns);
        assert!(meanwhile.count() > 500, "{sharing}");
    }
}
