//! Programs whose C library cannot load the preload library: `pillion run` starts them without it,
//! and reports that. No newer C library is at hand. So the library beside a copy of `pillion` needs
//! a version, and a function, that no C library has; it is linked against a stand-in with both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Ended, clean_command, collect, copy_program, pillion, tools};

const VERSION: &str = "GLIBC_2.99";
const WITHOUT: &str = "the job runs without Pillion";

struct Newer {
    folder: TempDir,
}

impl Newer {
    fn build() -> Self {
        let newer = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let write = |name: &str, text: &str| fs::write(newer.path(name), text).unwrap();
        write("stand_in.c", "void of_tomorrow(void) {}\n");
        write(
            "map",
            &format!("{VERSION} {{ global: of_tomorrow; local: *; }};\n"),
        );
        write(
            "library.c",
            "void of_tomorrow(void);\nvoid use(void) { of_tomorrow(); }\n",
        );
        let map = format!("-Wl,--version-script={}", newer.path("map").display());
        newer.link(
            "libc.so.6",
            &["stand_in.c"],
            &[&map, "-Wl,-soname,libc.so.6"],
        );
        newer.link("libpillion.so", &["library.c", "libc.so.6"], &[]);
        copy_program(pillion(), &newer.path("pillion"));
        newer
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn link(&self, out: &str, parts: &[&str], options: &[&str]) {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-nostdlib"]).args(options);
        cc.args(parts.iter().map(|part| self.path(part)));
        collect(cc_to(cc, &self.path(out))).expect_success();
    }

    fn pillion(&self, words: &[&str]) -> Command {
        let mut command = clean_command(self.path("pillion"));
        command
            .args(words)
            .env("PILLION_SOCKET", "/nowhere/pillion.sock");
        command
    }

    /// The dynamic loader's own behaviour with the library.
    fn preloaded_by_hand(&self, program: &Path) -> Ended {
        let mut command = clean_command(program);
        command.env("LD_PRELOAD", self.path("libpillion.so"));
        collect(command)
    }

    /// The job ends as its program does, and the message has all `parts`.
    fn expect_started_without(&self, program: &str, parts: &[&str]) {
        let ended = collect(self.pillion(&["run", "--", program])).expect_success();
        assert_eq!(ended.errors.lines().count(), 1, "{ended:#?}");
        let library = self.path("libpillion.so").display().to_string();
        ended
            .expect_errors(&[WITHOUT, program, &library])
            .expect_errors(parts);
        let refused = collect(self.pillion(&["run", "--require-daemon", "--", program]));
        assert_eq!(refused.code(), 69, "{refused:#?}");
    }
}

fn cc_to(mut cc: Command, out: &Path) -> Command {
    cc.arg("-o").arg(out);
    cc
}

// census: J8
#[test]
fn a_program_of_an_older_glibc_is_started_without_the_library() {
    let newer = Newer::build();
    let by_hand = newer.preloaded_by_hand(Path::new("/bin/true"));
    assert_ne!(by_hand.code(), 0, "{by_hand:#?}");
    by_hand.expect_errors(&[VERSION]);
    newer.expect_started_without("/bin/true", &[VERSION, "libc.so.6", "GLIBC_2."]);
    // A script runs by such a program, too, whatever `env` is in PATH.
    let script = newer.path("script");
    crate::common::write_script(&script, "#!/usr/bin/env true\n");
    let ended = collect(newer.pillion(&["run", "--", script.to_str().unwrap()]));
    ended
        .expect_success()
        .expect_errors(&[WITHOUT, "env", VERSION]);
}

// census: J8
#[test]
fn a_program_of_a_musl_that_lacks_what_the_library_needs_is_started_without_it() {
    let newer = Newer::build();
    let mut cc = Command::new(tools::program("musl-gcc"));
    fs::write(newer.path("main.c"), "int main(void) { return 0; }\n").unwrap();
    cc.arg(newer.path("main.c"));
    let program = newer.path("by-musl");
    collect(cc_to(cc, &program)).expect_success();
    let by_hand = newer.preloaded_by_hand(&program);
    assert_ne!(by_hand.code(), 0, "{by_hand:#?}");
    let program = program.to_str().unwrap();
    newer.expect_started_without(program, &["musl", "of_tomorrow"]);
}

#[test]
fn what_leads_to_the_library_is_left_out_and_what_the_user_preloads_is_not() {
    let newer = Newer::build();
    let library = newer.path("libpillion.so").display().to_string();
    let environment = |preload: &str, tool: &str| {
        let words = ["run", "--shim", "--", "/usr/bin/env"];
        let mut command = newer.pillion(&words);
        command
            .env("LD_PRELOAD", preload)
            .env("NVTX_INJECTION64_PATH", tool);
        collect(command)
    };
    let ended = environment("/nowhere/a.so", "/nowhere/tool.so").expect_success();
    for line in [
        "LD_PRELOAD=/nowhere/a.so\n",
        "NVTX_INJECTION64_PATH=/nowhere/tool.so\n",
    ] {
        assert!(ended.output.contains(line), "{ended:#?}");
    }
    let ended = environment("", &library).expect_success();
    assert!(!ended.output.contains("libpillion"), "{ended:#?}");
    assert!(!ended.output.contains("LD_LIBRARY_PATH"), "{ended:#?}");
}

/// A runtime's steps for a container with this machine's programs: it mounts as the CDI file says,
/// runs the hook before it changes the root, then the entry point.
#[test]
fn a_container_whose_image_cannot_load_the_library_starts_without() {
    let newer = Newer::build();
    let unshare = tools::that_runs(&["unshare", "--mount", "--"]);
    let bundle = newer.path("bundle");
    for folder in [
        "rootfs/usr/lib/pillion",
        "rootfs/lib64",
        "rootfs/lib",
        "rootfs/bin",
    ] {
        fs::create_dir_all(bundle.join(folder)).unwrap();
    }
    fs::write(bundle.join("rootfs/usr/lib/pillion/libpillion.so"), "").unwrap();
    let run = |program: &str, preload: &str| {
        let config = serde_json::json!({
            "root": { "path": "rootfs" },
            "process": {
                "args": [program], "cwd": "/", "env": ["PATH=/bin", format!("LD_PRELOAD={preload}")],
            },
        });
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        let state = serde_json::json!({ "ociVersion": "1.0.2", "id": "c1", "bundle": bundle });
        fs::write(newer.path("state.json"), state.to_string()).unwrap();
        let script = "set -e; cd \"$1\"; mount --bind \"$0\" bundle/rootfs/usr/lib/pillion/libpillion.so\n\
                      for d in bin lib lib64 usr/bin; do mkdir -p bundle/rootfs/$d; mount --rbind /$d bundle/rootfs/$d; done\n\
                      ./pillion cdi hook <state.json\n\
                      exec chroot bundle/rootfs /usr/bin/env LD_PRELOAD=\"$3\" \"$2\"";
        let mut command = clean_command(&unshare);
        command.args(["--mount", "--", "sh", "-c", script]);
        command.args([&newer.path("libpillion.so"), newer.folder.path()]);
        command.args([program, preload]);
        collect(command)
    };
    const OURS: &str = "/usr/lib/pillion/libpillion.so";
    let ended = run("/bin/true", OURS).expect_success();
    ended.expect_errors(&[
        "pillion: container c1 runs without Pillion: /bin/true uses a C library",
        VERSION,
    ]);
    // A library that can be loaded stays.
    fs::copy(crate::common::library(), newer.path("libpillion.so")).unwrap();
    let ended = run("/bin/true", OURS).expect_success();
    assert_eq!(ended.errors, "");
    let ended = run("true", "/x.so").expect_success();
    ended.expect_errors(&[
        "pillion: container c1 runs without Pillion: its LD_PRELOAD is \"/x.so\"",
    ]);
}

#[test]
fn doctor_says_that_such_a_program_would_run_without_the_library() {
    let newer = Newer::build();
    let ended = collect(newer.pillion(&["doctor", "--json", "/bin/true"]));
    let document: serde_json::Value = serde_json::from_str(&ended.output).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let check = checks
        .iter()
        .find(|check| check["check"] == "program /bin/true");
    let check = check.unwrap();
    assert_eq!(check["verdict"], "error", "{check}");
    assert!(
        check["found"].as_str().unwrap().contains(VERSION),
        "{check}"
    );
}
