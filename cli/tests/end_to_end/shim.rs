//! Libraries that bypass a preloaded library are reported and counted, and the shim reaches them.
//! `host.c` opens `plugin.c` in ways that bind it to its own `libc` or put it into a namespace of
//! its own; the plugin finds the driver by itself. Pillion's counts are compared with the device's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::common::{
    Daemon, Ended, Gpu, Job, Program, builtin_profile, cargo_folder, clean_command, collect,
    driver_folder, library, pillion, shim_folder,
};

const PLUGIN: Program = Program::Library("plugin");
const HOST: Program = Program::Unlinked("host");
const STATUS: i32 = 6;
const ROUNDS: u64 = 15;

fn driver() -> PathBuf {
    cargo_folder().join("libcuda.so")
}

fn search_path() -> OsString {
    let mut path = shim_folder(&driver()).into_os_string();
    path.push(":");
    path.push(driver_folder());
    path
}

/// The shim set up by hand, without the preload library.
fn with_shim(job: Job, daemon: &Daemon) -> Job {
    job.best_effort(daemon)
        .env("LD_PRELOAD", "")
        .env("LD_LIBRARY_PATH", search_path())
}

/// `host` with its arguments: the way, the plugin, its door, its rounds, the host's own rounds.
fn host(gpu: &Gpu, label: &str, way: &str, own: u64) -> Job {
    let (rounds, own) = (ROUNDS.to_string(), own.to_string());
    let plugin = PLUGIN.path();
    gpu.job(label, HOST)
        .args(&[way, text(&plugin), "proc", &rounds, &own])
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of these tests are text")
}

fn alone(gpu: &Gpu, way: &str, own: u64) -> Ended {
    let ended = host(gpu, "alone", way, own).run();
    assert_eq!(
        (ended.code(), &*ended.errors),
        (STATUS, ""),
        "{way}: {ended:#?}"
    );
    ended
}

fn launches(gpu: &Gpu, label: &str) -> u64 {
    gpu.counts(label)["launches"].as_u64().unwrap()
}

// census: L1
#[test]
fn a_library_that_passes_by_the_preload_library_is_named_with_the_remedy() {
    for (way, how) in [
        ("deep", "was opened with RTLD_DEEPBIND"),
        (
            "namespace",
            "was opened by dlmopen in a namespace of its own",
        ),
    ] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let alone = alone(&gpu, way, 0);
        let job = host(&gpu, "job", way, 0).best_effort(&daemon);
        let ended = job.run();
        assert_eq!(ended.output, alone.output, "{way}");
        assert_eq!(ended.code(), STATUS, "{way}: {ended:#?}");
        // It did bypass: the device has the launches, and the daemon does not know the process.
        assert_eq!(launches(&gpu, "job"), ROUNDS, "{way}");
        assert!(daemon.job("job").is_null(), "{way}");
        let said = ended.errors.matches("pillion: ").count();
        assert_eq!(said, 1, "{way}: {ended:#?}");
        let plugin = PLUGIN.path();
        ended.expect_errors(&[text(&plugin), how, "`pillion run --shim`"]);
    }
}

#[test]
fn what_passes_by_a_client_is_counted_in_the_status() {
    for way in ["deep", "namespace"] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let alone = alone(&gpu, way, 5);
        let ended = host(&gpu, "job", way, 5).best_effort(&daemon).run();
        assert_eq!((&*ended.output, ended.code()), (&*alone.output, STATUS));
        assert_eq!(launches(&gpu, "job"), ROUNDS + 5, "{way}");
        let totals = daemon.totals("job");
        assert_eq!(totals["launches"], 5, "{way}: {totals:#}");
        assert_eq!(totals["bypasses"], 1, "{way}: {totals:#}");
        ended.expect_errors(&["its CUDA calls bypass Pillion"]);
    }
}

#[test]
fn a_library_that_has_nothing_to_do_with_cuda_is_not_named() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let ended = host(&gpu, "job", "plain", 5).best_effort(&daemon).run();
    assert_eq!((ended.code(), &*ended.errors), (STATUS, ""), "{ended:#?}");
    gpu.expect_equal_counts("job", &ended, &daemon);
    assert_eq!(daemon.total("job", "bypasses"), 0);
}

#[test]
fn a_launch_function_of_another_copy_of_the_driver_is_said_and_counted() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libcuda.so.1");
    std::fs::copy(driver(), &copy).unwrap();
    let job = gpu.job("job", "two_drivers").arg(&copy);
    let ended = job.best_effort(&daemon).run();
    assert_eq!(ended.code(), 4, "{ended:#?}");
    let said = "pillion: cuLaunchKernel bypasses Pillion";
    assert_eq!(ended.errors.matches(said).count(), 1, "{ended:#?}");
    assert_eq!(ended.errors.lines().count(), 1, "{ended:#?}");
    assert_eq!(daemon.total("job", "launch_functions_passed_by"), 1);
    let socket = daemon.socket().to_str().unwrap();
    for (words, part) in [
        (
            ["status", "--explain", "job"].as_slice(),
            "the job bypasses Pillion with 1 launch function: ",
        ),
        (&["doctor"], "1 launch function of the job bypasses Pillion"),
    ] {
        let mut command = gpu.command(pillion());
        command.args(words).env("PILLION_SOCKET", socket);
        let shown = collect(command).output;
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(part), "no {part} in {shown}");
    }
}

#[test]
fn a_driver_whose_resolver_answers_with_what_it_does_not_export_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("libcuda.so.1");
    std::os::unix::fs::symlink(Program::Library("hiding_driver").path(), driver).unwrap();
    let script = folder.path().join("script");
    // Calls other than launches are only counted.
    let lines = [
        "cuInit",
        "cuMemAlloc",
        "cuLaunchKernel",
        "cuLaunchKernel",
        "cuLaunchNew",
    ];
    let text: String = lines.map(|name| format!("! {name} 12000 0\n")).concat();
    std::fs::write(&script, text).unwrap();
    let run = |preload: &Path| {
        let mut command = clean_command(Program::Unlinked("script").path());
        command.arg(&script).env("LD_PRELOAD", preload);
        command.env("LD_LIBRARY_PATH", folder.path());
        collect(command)
    };
    let (alone, ended) = (run(Path::new("")), run(&library()));
    assert_eq!((ended.code(), &ended.output), (alone.code(), &alone.output));
    let said = |name| format!("pillion: {name} bypasses Pillion");
    for name in ["cuLaunchKernel", "cuLaunchNew"] {
        assert_eq!(ended.errors.matches(&said(name)).count(), 1, "{ended:#?}");
    }
    assert_eq!(ended.errors.lines().count(), 2, "{ended:#?}");
}

// census: L1
#[test]
fn the_shim_serves_every_way_of_opening_a_library() {
    for way in ["plain", "deep", "namespace", "twice"] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let alone = alone(&gpu, way, 0);
        let ended = with_shim(host(&gpu, "job", way, 0), &daemon).run();
        assert_eq!(ended.output, alone.output, "{way}: {ended:#?}");
        assert_eq!(
            (ended.code(), &*ended.errors),
            (STATUS, ""),
            "{way}: {ended:#?}"
        );
        gpu.expect_equal_counts("job", &ended, &daemon);
    }
}

/// Our helper in a namespace is a thread of that namespace's libc, and the program's libc must know
/// that there are threads. Otherwise it loses the wake-ups of the dynamic linker's lock: one of two
/// threads that take it then sleeps for ever. (So it is for any program that does this.)
#[test]
fn the_programs_libc_knows_that_there_are_threads_in_a_namespace() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let ended = with_shim(host(&gpu, "job", "threads", 0), &daemon).run();
    assert_eq!((ended.code(), &*ended.errors), (STATUS, ""), "{ended:#?}");
    gpu.expect_equal_counts("job", &ended, &daemon);
}

#[test]
fn the_shim_serves_the_program_and_its_libraries_at_once() {
    for way in ["deep", "namespace"] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let alone = alone(&gpu, way, 5);
        let ended = with_shim(host(&gpu, "job", way, 5), &daemon).run();
        assert_eq!(ended.output, alone.output, "{way}: {ended:#?}");
        assert_eq!(ended.errors, "", "{way}");
        gpu.expect_equal_counts("job", &ended, &daemon);
    }
}

#[test]
fn the_shim_serves_linked_programs_and_every_door() {
    for (program, door) in [
        (Program::Linked("work"), "linked"),
        (Program::Unlinked("work"), "dlsym"),
        (Program::Unlinked("work"), "proc"),
        (Program::Unlinked("work"), "proc-ptsz"),
    ] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let arguments = [door, "20", "7"];
        let alone = gpu.job("alone", program).args(&arguments).run();
        let job = gpu.job("job", program).args(&arguments);
        let ended = with_shim(job, &daemon).run();
        assert_eq!(ended.output, alone.output, "{door}: {ended:#?}");
        assert_eq!((ended.code(), &*ended.errors), (7, ""), "{door}");
        gpu.expect_equal_counts("job", &ended, &daemon);
    }
}

#[test]
fn pillion_run_sets_the_shim_up_and_the_preload_library_steps_aside() {
    let plugin = PLUGIN.path();
    let (host, work) = (HOST.path(), Program::Linked("work").path());
    let rounds = ROUNDS.to_string();
    let deep = [text(&host), "deep", text(&plugin), "dlsym", &rounds, "5"];
    let space = [
        text(&host),
        "namespace",
        text(&plugin),
        "proc",
        &rounds,
        "5",
    ];
    let linked = [text(&work), "linked", "20", "6"];
    for command in [&deep[..], &space[..], &linked[..]] {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let profile = builtin_profile();
        let arguments: Vec<&str> = ["--shim", "--profile", text(&profile), "--"]
            .iter()
            .chain(command)
            .copied()
            .collect();
        let job = gpu.pillion_run("job", daemon.socket(), &arguments);
        let ended = job.env("XDG_CACHE_HOME", gpu.path("")).run();
        assert_eq!(
            (ended.code(), &*ended.errors),
            (STATUS, ""),
            "{command:?}: {ended:#?}"
        );
        let job = daemon.status()["jobs"][0]["job"].clone();
        let totals = daemon.totals(job.as_str().unwrap());
        for counted in ["launches", "copied_h2d_bytes", "copied_d2h_bytes"] {
            let asked = ended.asked(counted);
            assert_eq!(totals[counted], asked, "{counted} of {command:?}");
            assert_eq!(
                gpu.counts("job")[counted],
                asked,
                "{counted} of {command:?}"
            );
        }
        assert_eq!(totals["bypasses"], 0, "{command:?}");
    }
}

#[test]
fn the_shim_can_be_switched_off() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("off", Program::Unlinked("work"));
    let job = with_shim(job.args(&["proc", "20", "7"]), &daemon);
    let off = job.env("PILLION_DISABLE", "1").run();
    assert_eq!((off.code(), &*off.errors), (7, ""), "{off:#?}");
    assert_eq!(launches(&gpu, "off"), off.asked("launches"));
    assert!(daemon.job("off").is_null());
}

#[test]
fn one_run_with_a_shim_within_another_has_the_same_driver() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let (work, pillion) = (Program::Linked("work").path(), text(pillion()));
    let inner = ["--shim", "--", pillion, "run", "--shim", "--", text(&work)];
    let words: Vec<&str> = [&inner[..], &["linked", "20", "7"]].concat();
    let job = gpu.pillion_run("job", daemon.socket(), &words);
    let job = job.env("PILLION_PROFILE", builtin_profile());
    let ended = job.env("XDG_CACHE_HOME", gpu.path("")).run();
    assert_eq!((ended.code(), &*ended.errors), (7, ""), "{ended:#?}");
    assert_eq!(launches(&gpu, "job"), ended.asked("launches"));
}

#[test]
fn without_a_driver_behind_it_the_shim_is_as_absent_as_the_driver() {
    let nowhere = tempfile::tempdir().unwrap();
    let run = |search_path: &Path| {
        let mut command = clean_command(Program::Unlinked("work").path());
        command.args(["proc", "20", "7"]);
        command.env("LD_LIBRARY_PATH", search_path);
        collect(command)
    };
    let (alone, ended) = (
        run(nowhere.path()),
        run(&shim_folder(Path::new("/no/driver"))),
    );
    assert_eq!(ended.code(), alone.code(), "{ended:#?}");
    assert!(!ended.errors.contains("pillion: "), "{ended:#?}");
}

#[test]
fn a_folder_of_links_that_another_user_may_change_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let gpu = Gpu::start("mps");
    let folder = gpu.path("pillion");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let words = ["--shim", "--", "true"];
    let job = gpu.pillion_run("job", Path::new("/no/socket"), &words);
    let job = job.env("XDG_CACHE_HOME", gpu.path(""));
    let ended = job.env("TMPDIR", "/dev/null").run();
    assert_eq!(ended.code(), 1, "{ended:#?}");
    ended.expect_errors(&[text(&folder), "that other users cannot write to"]);
}

#[test]
fn the_shim_itself_is_refused_as_the_driver_behind_it() {
    let gpu = Gpu::start("mps");
    let shim = cargo_folder().join("libpillion_shim.so");
    let words = ["--shim", "--", "true"];
    let job = gpu.pillion_run("job", Path::new("/no/socket"), &words);
    let ended = job.env("PILLION_DRIVER", &shim).run();
    assert_eq!(ended.code(), 1, "{ended:#?}");
    ended.expect_errors(&[text(&shim), "is the shim"]);
}

#[test]
fn a_driver_that_is_no_file_is_refused() {
    let gpu = Gpu::start("mps");
    let words = ["--shim", "--", "true"];
    let job = gpu.pillion_run("job", Path::new("/no/socket"), &words);
    let ended = job.env("PILLION_DRIVER", "/no/driver").run();
    assert_eq!(ended.code(), 2, "{ended:#?}");
    ended.expect_errors(&["PILLION_DRIVER=/no/driver: no such file"]);
}

#[test]
fn a_run_path_that_beats_the_search_path_is_left_to_the_preload_library() {
    // DT_RPATH is searched before LD_LIBRARY_PATH: such a program never meets the shim.
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let program = Program::RunPath("work");
    let work = |label: &str| gpu.job(label, program).args(&["linked", "20", "7"]);
    let shim_alone = with_shim(work("shim"), &daemon).run();
    assert_eq!(shim_alone.code(), 7, "{shim_alone:#?}");
    assert!(daemon.job("shim").is_null());
    let both = with_shim(work("both"), &daemon).env("LD_PRELOAD", library());
    let both = both.run();
    assert_eq!((both.code(), &*both.errors), (7, ""), "{both:#?}");
    gpu.expect_equal_counts("both", &both, &daemon);
}
