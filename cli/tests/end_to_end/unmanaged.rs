//! Jobs and machines that are not as we would have them: the library emptied out of the
//! environment, an old processor.

use serde_json::Value;

use crate::common::{Gpu, Program, tools};

fn entries(status: &Value, pid: u32) -> Vec<Value> {
    let away = status["turned_away"].as_array().unwrap();
    let its = away.iter().filter(|entry| entry["pid"] == pid);
    its.cloned().collect()
}

/// As entry points of containers do.
#[test]
fn a_program_whose_ld_preload_was_emptied_on_the_way_is_named_unmanaged() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let load = Program::Linked("load").path();
    let text = "LD_PRELOAD= exec \"$0\" 64 rest";
    let words = ["--", "sh", "-c", text, load.to_str().unwrap()];
    let job = gpu.pillion_run("job", daemon.socket(), &words);
    let mut process = job.env("PILLION_JOB", "emptied").start_until("ready");
    let pid = process.pid();
    let named = || Some(entries(&daemon.status(), pid)).filter(|found| !found.is_empty());
    let found = crate::common::until("the process in the status", named);
    assert_eq!(
        (&found[0]["job"], &found[0]["name"]),
        (&"emptied".into(), &"load-linked".into())
    );
    let shown = daemon.explained();
    let said =
        format!("pid {pid} load-linked is not attached: it uses the GPU without the library");
    assert!(shown.contains(&said), "{shown}");
    assert!(shown.contains("emptied LD_PRELOAD"), "{shown}");
    let counts = || daemon.status()["events"]["counts"]["unmanaged"].clone();
    assert_eq!(counts(), 1);
    process.write("\n");
    process.finish();
    assert_eq!(counts(), 1);
}

/// What a processor of 2009 has not, no program of ours may use unasked: AVX, AVX2, BMI, FMA.
#[test]
fn a_processor_without_avx_runs_job_and_daemon() {
    if std::env::consts::ARCH != "x86_64" {
        testing::ignore("there is no AVX on this architecture");
    }
    let qemu = tools::program("qemu-x86_64");
    let old = [qemu.to_str().unwrap(), "-cpu", "Nehalem"];
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon_through(&old);
    let work = Program::Linked("work").path();
    let arguments = [&old[1..], &[work.to_str().unwrap(), "linked", "20", "7"]].concat();
    let alone = gpu.job_of("alone", &qemu).args(&arguments).run();
    let ended = gpu
        .job_of("job", &qemu)
        .args(&arguments)
        .best_effort(&daemon)
        .run();
    assert_eq!(ended.output, alone.output, "{ended:#?}");
    assert_eq!((ended.code(), &*ended.errors), (7, ""), "{ended:#?}");
    gpu.expect_equal_counts("job", &ended, &daemon);
}
