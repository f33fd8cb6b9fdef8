//! Long best-effort copies are made in pieces, which nobody sees but the gate: the same results, bytes and counts, and a
//! high-priority request that waits for a piece and not for a copy.
//!
//! Pillion counts the copies that the program asks for; the device counts those that it is given, of one that was cut its pieces.

use protocol::hello::JobClass;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Ended, Gpu, Process, Program, until};
use crate::learnt::{HP_TRACE, Stage};

/// A kernel that outlasts every test, ns.
const FOR_EVER_NS: &str = "3600000000000";

/// Copies are gated.
fn gating(max_hold_ms: u32) -> String {
    format!("name = \"pillion\"\ngated_copies = true\nmax_hold_ms = {max_hold_ms}")
}

/// A high-priority job that launches so many kernels of that length, and is there to be protected.
fn protected(gpu: &Gpu, daemon: &Daemon, block_ns: &str, launches: &str) -> Process {
    let hp = gpu.job("protected", Program::Linked("hang"));
    let mut hp = hp.args(&[block_ns, launches]).high_priority(daemon).start();
    hp.wait_for("launched", 1);
    hp
}

/// A run of `copies` under a class, or bare.
fn run(
    gpu: &Gpu,
    daemon: &Daemon,
    label: &str,
    class: Option<JobClass>,
    words: [&str; 2],
) -> Ended {
    let job = gpu.job(label, Program::Linked("copies")).args(&words);
    let ended = match class {
        Some(class) => job.under(daemon.socket(), class).run(),
        None => job.run(),
    };
    assert_eq!((ended.code(), &*ended.errors), (0, ""), "{label} {words:?}");
    ended
}

/// How many copies were cut, after what program, Pillion and device counted was compared.
fn cut_of(gpu: &Gpu, daemon: &Daemon, label: &str, ended: &Ended) -> u64 {
    let (totals, device) = (daemon.totals(label), gpu.counts(label));
    for counted in ["copies", "copied_h2d_bytes", "copied_d2h_bytes"] {
        assert_eq!(totals[counted], ended.asked(counted), "{label}: {totals:#}");
    }
    let number = |counts: &Value, name: &str| counts[name].as_u64().expect("a number");
    let [cut, pieces] = ["copies_cut", "copy_pieces"].map(|name| number(&totals, name));
    let made = ended.asked("copies") - cut + pieces;
    assert_eq!(number(&device, "copies"), made, "{label}: {device:#}");
    for counted in ["copied_h2d_bytes", "copied_d2h_bytes"] {
        assert_eq!(device[counted], ended.asked(counted), "{label}: {device:#}");
    }
    assert!(pieces >= 2 * cut, "{pieces} pieces of {cut}");
    cut
}

#[test]
fn random_copies_have_the_same_results_and_bytes_in_pieces() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon(&gating(60_000));
    let hp = protected(&gpu, &daemon, "1000", "1");
    for seed in ["1", "2", "3"] {
        let bare = run(&gpu, &daemon, "bare", None, [seed, "alone"]);
        let ways = [
            ("be", JobClass::BestEffort, "alone", true),
            ("hp", JobClass::HighPriority, "alone", false),
            ("two", JobClass::BestEffort, "two", false),
        ];
        for (way, class, mode, is_cut) in ways {
            let label = format!("{way}{seed}");
            let ended = run(&gpu, &daemon, &label, Some(class), [seed, mode]);
            let lines = |ended: &Ended| {
                let lines = ended.output.lines().map(str::to_owned);
                let mut lines: Vec<String> = lines.collect();
                // What was asked for is compared with what was counted.
                lines.pop();
                lines
            };
            assert_eq!(lines(&ended), lines(&bare), "{label}");
            assert!(ended.output.contains("1 nodes"), "{label}");
            let cut = cut_of(&gpu, &daemon, &label, &ended);
            assert_eq!(cut > 0, is_cut, "{label}: {cut}");
        }
    }
    hp.finish().expect_success();
}

#[test]
fn copies_are_made_whole_unless_the_daemon_gates_them_and_somebody_is_to_be_protected() {
    let ended = |policy: &str, is_protected: bool| {
        let gpu = Gpu::start("mps");
        let daemon = gpu.daemon(policy);
        let hp = is_protected.then(|| protected(&gpu, &daemon, "1000", "1"));
        let be = JobClass::BestEffort;
        let ended = run(&gpu, &daemon, "be", Some(be), ["1", "alone"]);
        assert_eq!(cut_of(&gpu, &daemon, "be", &ended), 0, "{policy}");
        drop(hp);
        daemon.totals("be")
    };
    for policy in ["", "gated_copies = false"] {
        let totals = ended(policy, true);
        assert_eq!(totals["launches_held"], 0, "{policy}: {totals:#}");
    }
    ended(&gating(60_000), false);
}

/// The other thread comes at different rounds, so at some seeds in the middle of a copy.
#[test]
fn a_thread_that_comes_late_sees_all_of_a_copy_or_nothing_of_it() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon(&gating(60_000));
    let hp = protected(&gpu, &daemon, "1000", "1");
    let cut: u64 = (1..=8)
        .map(|seed| {
            let label = format!("be{seed}");
            let words = [&*seed.to_string(), "late"];
            let ended = run(&gpu, &daemon, &label, Some(JobClass::BestEffort), words);
            // A thread that lost its processor for a second in the middle of a copy, which is counted.
            let is_overtaken = daemon.total(&label, "copies_overtaken") > 0;
            let is_whole = ended.output.starts_with("whole");
            assert!(is_whole || is_overtaken, "{}", ended.output);
            cut_of(&gpu, &daemon, &label, &ended)
        })
        .sum();
    assert!(cut > 0);
    hp.finish().expect_success();
}

/// A GPU, a daemon, a high-priority job whose kernel never ends, and a best-effort job with a piece of a copy at the gate.
fn held(policy: &str, mode: &str) -> (Gpu, Daemon, Process, Process) {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon(policy);
    let hp = protected(&gpu, &daemon, FOR_EVER_NS, "1");
    let be = gpu.job("be", Program::Linked("copies")).args(&["1", mode]);
    let be = be.best_effort(&daemon).start();
    daemon.wait_until_held("be");
    (gpu, daemon, hp, be)
}

/// Signals the job until one has let a piece go.
fn let_a_piece_go(daemon: &Daemon, be: &Process) {
    daemon.job_when("be", "a piece that a signal let go", |job| {
        let is_let = job["totals"]["holds_interrupted"].as_u64() > Some(0);
        if !is_let {
            be.signal(Signal::USR1);
        }
        is_let
    });
}

#[test]
fn a_signal_lets_one_piece_of_a_held_copy_go_and_not_the_rest() {
    let (gpu, daemon, hp, mut be) = held(&gating(60_000), "once");
    until("the end of the copy", || {
        let is_running = be.is_running();
        if is_running {
            be.signal(Signal::USR1);
        }
        (!is_running).then_some(())
    });
    let ended = be.finish().expect_success();
    assert!(ended.output.contains("handled"), "{}", ended.output);
    assert_eq!(cut_of(&gpu, &daemon, "be", &ended), 1);
    let totals = daemon.totals("be");
    for (counter, count) in [
        ("copy_pieces", 8),
        ("launches_held", 8),
        ("holds_interrupted", 8),
        ("launches_forced", 0),
    ] {
        assert_eq!(totals[counter], count, "{counter}: {totals:#}");
    }
    hp.finish().expect_success();
}

#[test]
fn a_copy_is_held_for_max_hold_and_goes_whole_then() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon(&gating(20));
    let hp = protected(&gpu, &daemon, FOR_EVER_NS, "1");
    let be = Some(JobClass::BestEffort);
    let ended = run(&gpu, &daemon, "be", be, ["1", "once"]);
    assert_eq!(cut_of(&gpu, &daemon, "be", &ended), 0);
    let totals = daemon.totals("be");
    assert_eq!(totals["launches_held"], 1, "{totals:#}");
    assert_eq!(totals["launches_forced"], 1, "{totals:#}");
    hp.finish().expect_success();
}

#[test]
fn a_thread_in_its_first_call_ends_the_wait_of_a_copy_and_sees_all_of_it() {
    let (gpu, daemon, hp, be) = held(&gating(60_000), "told");
    let_a_piece_go(&daemon, &be);
    daemon.wait_until_held("be");
    be.signal(Signal::USR2);
    let ended = be.finish().expect_success();
    let is_overtaken = daemon.total("be", "copies_overtaken") > 0;
    let is_whole = ended.output.contains("whole\n");
    assert!(is_whole || is_overtaken, "{}", ended.output);
    assert_eq!(cut_of(&gpu, &daemon, "be", &ended), 1);
    let totals = daemon.totals("be");
    assert!(totals["copy_pieces"].as_u64() < Some(9), "{totals:#}");
    assert_eq!(totals["launches_forced"], 0, "{totals:#}");
    hp.finish().expect_success();
}

#[test]
fn a_job_dies_of_sigterm_between_two_pieces_as_it_would_without_us() {
    use std::os::unix::process::ExitStatusExt;
    let (gpu, daemon, hp, be) = held(&gating(60_000), "once");
    let_a_piece_go(&daemon, &be);
    daemon.wait_until_held("be");
    be.signal(Signal::TERM);
    assert_eq!(be.finish().status.signal(), Some(15));
    daemon.wait_for_clients("be", 0);
    let sent = gpu.counts("be")["copied_h2d_bytes"].clone();
    assert!(
        sent.as_u64() > Some(0) && sent.as_u64() < Some(8 << 20),
        "{sent}"
    );
    hp.finish().expect_success();
}

#[test]
fn a_held_copy_goes_on_when_the_daemon_is_killed() {
    let policy = "gated_copies = true\nmax_hold_ms = 60000\non_daemon_loss = \"run\"";
    let (gpu, daemon, hp, mut be) = held(policy, "again");
    daemon.signal(Signal::KILL);
    daemon.finish();
    be.wait_for_new("round", 5);
    let ended = be.finish().expect_success();
    let device = gpu.counts("be");
    for counted in ["copied_h2d_bytes", "copied_d2h_bytes"] {
        assert_eq!(device[counted], ended.asked(counted), "{device:#}");
    }
    hp.finish().expect_success();
}

/// A kernel that is over at once.
const COPIER_TRACE: &str = "\
pillion-trace 1
device V100-SXM2-16GB
kernel class=unknown grid=1,1,1 block=32,1,1 shared_bytes=0 registers=16 sm_needed=1 block_ns=1000 duration_ns=1000 compute_demand=0 bandwidth_demand=0 source=\"copy\" name=\"copy\"
launch 0 x1
";

/// The median request, ms, and what three jobs did that copy 64 MB again and again; 1 s on the virtual clock.
fn beside_three_copiers(is_gated: bool) -> (f64, u64) {
    let stage = Stage::new();
    let hp_trace = stage.write("hp.trace", &HP_TRACE.replace("x20", "x68"));
    let be_trace = stage.write("be.trace", COPIER_TRACE);
    let _server = stage.start_server(5);
    let daemon = stage.start_daemon(&format!("name = \"pillion\"\ngated_copies = {is_gated}"));
    let input = |bytes: &'static str| ["--seconds", "1", "--input-bytes", bytes];
    let hp = stage.start_replay("hp", 1, &hp_trace, Some(&hp_trace), &input("2400000"));
    let be = [("be1", 2), ("be2", 3), ("be3", 4)].map(|(name, rank)| {
        stage.start_replay(name, rank, &be_trace, Some(&be_trace), &input("64000000"))
    });
    hp.finish_whenever().expect_success();
    for job in be {
        job.finish_whenever().expect_success();
    }
    daemon.signal(Signal::TERM);
    daemon.finish_whenever().expect_success();
    let requests = ["be1", "be2", "be3"].map(|name| stage.report(name)["requests"].as_u64());
    let median_ms = stage.report("hp")["p50_ms"].as_f64();
    let requests = requests.map(|requests| requests.expect("a number"));
    (median_ms.expect("requests"), requests.iter().sum())
}

#[test]
fn a_request_beside_three_jobs_that_copy_takes_little_longer_than_alone() {
    let [gated, ungated] = [true, false].map(beside_three_copiers);
    println!("gated {gated:?}, ungated {ungated:?}");
    // Alone it is 6.8 ms and its copies; three copies of 64 MB are 16 ms.
    assert!(gated.0 <= 8.0, "{gated:?} {ungated:?}");
    assert!(ungated.0 >= 12.0, "{gated:?} {ungated:?}");
    // In this first second the gate learns what requests take alone, and lets little go (144 copies of 162).
    assert!(gated.1 * 5 >= ungated.1 * 4, "{gated:?} {ungated:?}");
}
