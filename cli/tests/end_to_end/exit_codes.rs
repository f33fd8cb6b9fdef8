//! Every command's exit codes; an error names its file exactly once. The contract: 0 done; 1
//! failed; 2 usage or unusable input, nothing written; 69 the daemon is required and not reachable,
//! where `status` and `events` without any daemon are 0; `run` passes the child's status on (128 +
//! n for a signal), 126 and 127 as env(1).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Ended, Gpu, cargo_folder, clean_command, collect, pillion};
use crate::help::every_command;

const UNAVAILABLE: i32 = 69;

/// Commands that ask a daemon, with their exit code where there is none.
const ASKS_A_DAEMON: [(&str, i32); 20] = [
    ("config show", 0),
    ("config show --json", 0),
    ("status", 0),
    ("status --json", 0),
    ("status --all", 0),
    ("events", 0),
    ("events --json", 0),
    ("events --follow", 0),
    ("events --follow --json", 0),
    ("events --job train --kind xid,ecc --since 1h", 0),
    ("set train --memory 1GiB", UNAVAILABLE),
    ("set train --slo 2x", UNAVAILABLE),
    ("set train --weight 2", UNAVAILABLE),
    ("stop train", UNAVAILABLE),
    ("drain", UNAVAILABLE),
    ("resume", UNAVAILABLE),
    ("profile learnt", UNAVAILABLE),
    ("trace -o /dev/null", UNAVAILABLE),
    ("run --require-daemon -- true", UNAVAILABLE),
    ("run -- true", 0),
];

/// Commands that ask none, or whose row is in another table, so that none is forgotten.
const ASKS_NONE: [&str; 16] = [
    "cdi generate",
    "top",
    "exporter",
    "demo",
    "doctor",
    "completions",
    "man",
    "workload",
    "simulate",
    "simulate cluster",
    "config check",
    "profile import",
    "profile record",
    "profile show",
    "profile compare",
    "profile check",
];

const BY_FILES: [&str; 1] = ["profile scrub"];

/// Nonsensical words, and a part of the answer.
const NONSENSE: [(&str, &str); 37] = [
    ("", "Usage: pillion"),
    ("statsu", "status"),
    ("config", "Usage: pillion config"),
    ("profile", "Usage: pillion profile"),
    ("run", "<CMD>"),
    (
        "run python x.py",
        "put -- before the command: pillion run [OPTIONS] -- python",
    ),
    ("run --class highest -- true", "best-effort"),
    ("run --memory much -- true", "10GiB"),
    ("run --compute 0% -- true", "1% to 100%"),
    ("run --slo fast -- true", "fast"),
    (
        "run --slo 2x -- true",
        "a target applies only to high-priority jobs",
    ),
    ("run --job= -- true", "at least one character"),
    ("run --request-range /forward* --shim -- true", "--shim"),
    ("set train", "--memory"),
    ("set train --memory 0", "1MiB at least"),
    ("set train --weight 101", "from 1 to 100"),
    ("set train --min-progress 0", "above 0 to 1"),
    ("stop train --grace soon", "500ms, 30s, 2m or 1h"),
    ("stop train --user root", "root"),
    ("events --kind attache", "attached"),
    ("events --since yesterday", "30s, 10m or 2h"),
    ("demo --policy fair", "pillion"),
    ("demo --device V100", "V100-SXM2-16GB"),
    ("demo --seconds -1", "-1"),
    ("demo --arrivals often", "poisson"),
    ("workload resnet5", "resnet50-training"),
    ("workload resnet50-training", "-o"),
    ("workload resnet50-training --batch 0 -o -", "0"),
    ("simulate --policy fair", "pillion"),
    ("simulate --suite none", "orion"),
    ("simulate cluster", "--trace <FILE>"),
    ("simulate cluster --suite none", "gpucolo"),
    ("simulate --policy mps cluster", "cluster"),
    ("completions nosh", "zsh"),
    ("top", "needs a terminal"),
    ("exporter --listen everywhere", "everywhere"),
    ("profile record -- true", "--output"),
];

/// A machine without a daemon, a GPU and a home.
struct Bare {
    folder: TempDir,
}

impl Bare {
    fn new() -> Self {
        let sockets = fs::read_dir("/run/pillion").into_iter().flatten().flatten();
        if sockets.count() > 0 {
            testing::ignore("a daemon of this machine's root may answer");
        }
        cargo_folder();
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = clean_command(pillion());
        command.args(words);
        command.current_dir(self.folder.path());
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        command.env("PILLION_CONFIG_FOLDER", self.folder.path());
        command
    }

    fn run(&self, words: &str) -> Ended {
        let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
        collect(self.command(&words))
    }
}

#[test]
fn every_command_answers_help_with_0_and_an_unknown_flag_with_2() {
    let bare = Bare::new();
    for command in every_command() {
        let helped = bare.run(&format!("{command} --help"));
        assert_eq!((helped.code(), &*helped.errors), (0, ""), "{command}");
        let refused = bare.run(&format!("{command} --no-such-flag"));
        assert_eq!((refused.code(), &*refused.output), (2, ""), "{command}");
        refused.expect_errors(&["--no-such-flag"]);
    }
    assert_eq!(bare.run("--version").code(), 0);
}

#[test]
fn every_command_ends_without_a_daemon_as_the_contract_says() {
    let bare = Bare::new();
    let first = |row: &str, command: &str| format!("{row} ").starts_with(&format!("{command} "));
    for command in every_command() {
        let asks = ASKS_A_DAEMON.iter().any(|(row, _)| first(row, &command));
        let is_other = ASKS_NONE.contains(&&*command) || BY_FILES.contains(&&*command);
        assert!(asks || is_other, "say how {command} ends without a daemon");
    }
    for (words, code) in ASKS_A_DAEMON {
        let ended = bare.run(words);
        assert_eq!(ended.code(), code, "{words}: {ended:#?}");
        let said = format!("{}{}", ended.output, ended.errors);
        let is_quiet = words == "run -- true" || words.contains("--json");
        assert!(
            is_quiet || said.contains("no daemon is running"),
            "{words}: {ended:#?}"
        );
    }
}

#[test]
fn a_socket_that_is_named_and_silent_is_69_and_named_once() {
    let bare = Bare::new();
    // A named daemon is required, by whichever command.
    for (words, _) in ASKS_A_DAEMON {
        let mut command = bare.command(&words.split(' ').collect::<Vec<_>>());
        let silent = bare.folder.path().join("silent.sock");
        command.env("PILLION_SOCKET", &silent);
        let ended = collect(command);
        if words == "run -- true" {
            assert_eq!(ended.code(), 0, "{ended:#?}");
            continue;
        }
        assert_eq!(
            (ended.code(), &*ended.output),
            (UNAVAILABLE, ""),
            "{words}: {ended:#?}"
        );
        expect_once(&ended, &silent, words);
    }
}

#[test]
fn what_cannot_be_meant_is_2_and_says_what_can() {
    let bare = Bare::new();
    for (words, part) in NONSENSE {
        let ended = bare.run(words);
        assert_eq!(
            (ended.code(), &*ended.output),
            (2, ""),
            "{words}: {ended:#?}"
        );
        ended.expect_errors(&[part]);
    }
    let left: Vec<_> = fs::read_dir(bare.folder.path())
        .unwrap()
        .flatten()
        .collect();
    assert!(left.is_empty(), "nothing is written: {left:?}");
}

#[test]
fn run_ends_as_its_command_does_or_as_env_where_there_is_none() {
    let bare = Bare::new();
    let run = |words: &[&str]| collect(bare.command(&[&["run", "--"], words].concat()));
    assert_eq!(run(&["true"]).code(), 0);
    assert_eq!(run(&["sh", "-c", "exit 7"]).code(), 7);
    assert_eq!(
        run(&["no-such-program"])
            .expect_errors(&["no-such-program"])
            .code(),
        127
    );
    let folder = bare.folder.path().to_str().unwrap();
    assert_eq!(run(&[folder]).expect_errors(&[folder]).code(), 126);
    let shell = "\"$0\" run -- sh -c 'kill -9 $$'; exit $?";
    let pillion = pillion().to_str().unwrap();
    assert_eq!(run(&["sh", "-c", shell, pillion]).code(), 128 + 9);
}

#[test]
fn a_profile_that_cannot_be_read_is_2_and_one_of_the_environment_a_warning() {
    let bare = Bare::new();
    for words in [
        "run --profile nosuch -- touch started",
        "run --profile . -- touch started",
    ] {
        let ended = bare.run(words);
        assert_eq!(ended.code(), 2, "{ended:#?}");
        assert!(!bare.folder.path().join("started").exists(), "{words}");
    }
    let mut command = bare.command(&["run", "--", "true"]);
    command.env("PILLION_PROFILE", "nosuch");
    assert_eq!(collect(command).code(), 0);
}

fn bad_files(folder: &Path) -> Vec<PathBuf> {
    let write = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let directory = folder.join("directory.file");
    fs::create_dir(&directory).unwrap();
    vec![
        folder.join("missing.file"),
        directory,
        write("words.file", b"these are words\n"),
        write("bytes.file", b"\xff\xfe\x00\x01["),
        write("open.file", b"{\"traceEvents\": [{\"ph\": 1"),
        write("table.file", b"[gpu\n"),
    ]
}

/// Commands that read a file, with FILE in its place, and their exit codes.
const READS: [(&str, i32); 18] = [
    ("run --profile FILE -- true", 2),
    ("demo --hp FILE --device V100-SXM2-16GB", 2),
    ("demo --be FILE --device V100-SXM2-16GB", 2),
    ("demo --arrivals FILE --device V100-SXM2-16GB", 2),
    ("config check FILE", 2),
    ("profile show FILE", 2),
    ("profile compare FILE FILE", 2),
    ("profile check FILE", 2),
    ("profile import FILE", 2),
    ("profile scrub FILE copy", 2),
    ("simulate --scenario FILE", 2),
    ("simulate --hp FILE", 2),
    ("simulate --be FILE", 2),
    ("simulate --arrivals FILE", 2),
    ("simulate cluster --gpus 8 --trace FILE", 2),
    ("simulate cluster --trace trace.csv --nodes FILE", 2),
    (
        "simulate cluster --gpus 8 --trace trace.csv --pairs FILE",
        2,
    ),
    ("doctor --config FILE", 1),
];

/// Standard error has the path once, and a system error at most once.
fn expect_once(ended: &Ended, path: &Path, words: &str) {
    let named = ended.errors.matches(path.to_str().unwrap()).count();
    assert_eq!(named, 1, "{words}: {ended:#?}");
    expect_one_reason(&ended.errors.replace(path.to_str().unwrap(), "FILE"), words);
}

fn expect_one_reason(text: &str, words: &str) {
    assert!(text.matches("os error").count() <= 1, "{words}: {text}");
    for reason in [
        "No such file",
        "Is a directory",
        "Permission denied",
        "cannot be read",
    ] {
        assert!(
            text.matches(reason).count() <= 1,
            "{words}: {reason} in {text}"
        );
    }
    assert!(!text.contains(".tmp"), "{words}: {text}");
}

#[test]
fn every_command_that_reads_a_file_names_one_that_it_cannot_use_once() {
    let bare = Bare::new();
    let files = tempfile::tempdir().unwrap();
    for path in bad_files(files.path()) {
        for (words, code) in READS {
            let words = words.replace("FILE", path.to_str().unwrap());
            let ended = bare.run(&words);
            assert_eq!(ended.code(), code, "{words}: {ended:#?}");
            if code == 2 {
                assert_eq!(ended.output, "", "{words}");
                expect_once(&ended, &path, &words);
                continue;
            }
            let rows: Vec<&str> = ended.output.lines().collect();
            let of_it = |row: &&&str| row.contains(path.to_str().unwrap());
            let [row] = rows.iter().filter(of_it).collect::<Vec<_>>()[..] else {
                panic!("one row: {ended:#?}")
            };
            assert_eq!(row.matches(path.to_str().unwrap()).count(), 1, "{row}");
            expect_one_reason(&row.replace(path.to_str().unwrap(), "FILE"), &words);
        }
        let mut daemon = clean_command(cargo_folder().join("pilliond"));
        daemon.arg("--config").arg(&path);
        let ended = collect(daemon);
        assert_eq!((ended.code(), &*ended.output), (2, ""), "{ended:#?}");
        expect_once(&ended, &path, "pilliond --config");
    }
    let left: Vec<_> = fs::read_dir(bare.folder.path())
        .unwrap()
        .flatten()
        .collect();
    assert!(left.is_empty(), "nothing is written: {left:?}");
}

/// Commands that write a file or into a folder, with FILE in its place.
const WRITES: [&str; 9] = [
    "man -o FILE",
    "workload resnet50-training -o FILE",
    "profile record -o FILE -- true",
    "profile import PROFILE -o FILE",
    "profile scrub TRACE FILE",
    "simulate --seconds 1 --out FILE/new",
    "simulate cluster --gpus 8 --trace JOBS --out FILE/new",
    "demo --seconds 0.1 --device V100-SXM2-16GB --out FILE/new",
    "profile import PROFILE --output FILE",
];

#[test]
fn a_place_where_nothing_can_be_written_is_2_and_named_once() {
    let bare = Bare::new();
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name);
    let in_a_file = path("file").join("out");
    fs::write(path("file"), "").unwrap();
    let trace = path("trace.json");
    let kernel = "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"ts\": 1, \"dur\": 2, \"args\": {}}";
    fs::write(&trace, format!("{{\"traceEvents\": [{kernel}]}}")).unwrap();
    let jobs = path("jobs.csv");
    let header = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval";
    fs::write(&jobs, format!("{header}\n0,1,0,606,vgg19,164,30\n")).unwrap();
    let profile = crate::common::builtin_profile();
    for words in WRITES {
        let words = words.replace("JOBS", jobs.to_str().unwrap());
        let words = words.replace("PROFILE", profile.to_str().unwrap());
        let words = words.replace("TRACE", trace.to_str().unwrap());
        let words = words.replace("FILE", in_a_file.to_str().unwrap());
        let ended = bare.run(&words);
        assert_eq!(
            (ended.code(), &*ended.output),
            (2, ""),
            "{words}: {ended:#?}"
        );
        expect_once(&ended, &in_a_file, &words);
    }
}

#[test]
fn with_a_daemon_a_job_that_is_not_there_is_1_and_one_that_is_there_0() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("train", "load 64 rest").best_effort(&daemon);
    let job = job.start_until("ready");
    let tell = |words: &str| gpu.tell(&daemon, &words.split(' ').collect::<Vec<_>>());
    for (words, code) in [
        ("status", 0),
        ("events", 0),
        ("events --job nobody", 0),
        ("set nobody --memory 1GiB", 1),
        ("set nobody --compute 50%", 1),
        ("stop nobody --grace 0", 1),
        ("resume nobody", 1),
        ("set train --memory 8GiB", 0),
        ("set train --slo 2x", 1),
        ("set train --weight 2 --min-progress 0.2", 0),
        ("set train --weight default --min-progress default", 0),
        ("profile learnt", 0),
        ("profile learnt nothing", 2),
        ("doctor", 0),
        ("drain", 0),
        ("resume", 0),
    ] {
        let ended = tell(words);
        assert_eq!(ended.code(), code, "{words}: {ended:#?}");
    }
    let said = tell("set train --memory 6GiB").expect_success().output;
    let promised = "weight 1 (configuration), no least share (configuration)";
    let expected = format!("job train, best-effort: memory 6.00 GiB; {promised}\n");
    assert_eq!(said, expected);
    let refused = tell("set train --memory 100GiB");
    assert_eq!((refused.code(), &*refused.output), (2, ""), "{refused:#?}");
    refused.expect_errors(&["--memory 100.00 GiB", "has 16.00 GiB", "or unlimited"]);
    assert_eq!(daemon.job("train")["memory"]["quota_bytes"], 6_u64 << 30);
    let stopped = tell("stop train --grace 30");
    assert_eq!(stopped.code(), 0, "{stopped:#?}");
    job.finish();
}
