//! `PILLION_DISABLE`, and panics in our hooks.

use crate::common::{Gpu, Program};

// census: G3
#[test]
fn a_panic_in_any_hook_changes_nothing_for_the_program() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let arguments = ["linked", "10", "0"];
    let alone = gpu.job("alone", "work").args(&arguments).run();
    let alone = alone.expect_success();
    for symbol in [
        "cuLaunchKernel",
        "cuCtxCreate_v2",
        "cuCtxSynchronize",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemcpyHtoD_v2",
        "cuMemcpyDtoH_v2",
        "cuModuleGetFunction",
        "cuStreamCreate",
        "cuStreamSynchronize",
    ] {
        let job = gpu.job(symbol, "work").args(&arguments);
        let job = job.best_effort(&daemon).env("PILLION_TEST_PANIC", symbol);
        let ended = job.run().expect_success();
        assert_eq!(ended.output, alone.output, "{symbol}: {ended:#?}");
        let said = ended.errors.matches("internal error").count();
        assert_eq!(said, 1, "{symbol}: {ended:#?}");
        let device = gpu.counts(symbol);
        assert_eq!(device["launches"], ended.asked("launches"), "{symbol}");
    }
    assert!(daemon.total("cuLaunchKernel", "panics_caught") >= 23);
}

#[test]
fn a_panic_in_a_hook_found_through_cu_get_proc_address_changes_nothing() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let arguments = ["proc", "10", "0"];
    let alone = gpu.job("alone", Program::Unlinked("work")).args(&arguments);
    let alone = alone.run().expect_success();
    for symbol in ["cuGetProcAddress_v2", "cuLaunchKernel"] {
        let job = gpu.job(symbol, Program::Unlinked("work")).args(&arguments);
        let job = job.high_priority(&daemon).env("PILLION_TEST_PANIC", symbol);
        let ended = job.run().expect_success();
        assert_eq!(ended.output, alone.output, "{symbol}: {ended:#?}");
    }
    assert!(daemon.total("cuLaunchKernel", "panics_caught") > 0);
}

#[test]
fn a_job_without_a_daemon_survives_a_panic_too() {
    use protocol::hello::JobClass;
    let gpu = Gpu::start("mps");
    let job = gpu.job("job", "work linked 10 0");
    let job = job.env("PILLION_TEST_PANIC", "cuLaunchKernel");
    let job = job.under(&gpu.path("nobody.sock"), JobClass::BestEffort);
    job.run()
        .expect_success()
        .expect_errors(&["internal error"]);
}

// census: J7
#[test]
fn pillion_disable_makes_the_library_a_no_op() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for (program, door) in [
        (Program::Linked("work"), "linked"),
        (Program::Unlinked("work"), "dlsym"),
        (Program::Unlinked("work"), "proc"),
    ] {
        let alone = gpu.job("alone", program).args(&[door, "10", "9"]).run();
        let job = gpu.job("job", program).args(&[door, "10", "9"]);
        let job = job.best_effort(&daemon);
        // Even when all else is broken.
        let job = job.env("PILLION_DISABLE", "1").env("PILLION_CLASS", "?");
        let ended = job.env("PILLION_PROFILE", "/nowhere").run();
        assert_eq!((ended.code(), &ended.output), (9, &alone.output));
        assert_eq!(ended.errors, "");
        assert!(daemon.job("job").is_null());
    }
}
