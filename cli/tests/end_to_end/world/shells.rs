//! Shells, pipelines, and the programs that they start: none touches CUDA, none may notice us.

use crate::common::{Gpu, tools};

use super::expect_untouched;

/// Scripts for any shell: pipelines, substitution, statuses of commands, of signals and of programs
/// that cannot be started.
const SCRIPTS: [&str; 9] = [
    "cat | tr a-z A-Z | sort -r | head -n 2",
    "x=$(printf '%s' one two; echo three); echo \"<$x>\"",
    "false; echo $?; true && echo yes; (exit 9); echo $?",
    "sh -c 'kill -TERM $$'; echo $?",
    "no-such-command-anywhere 2>/dev/null; echo $?",
    "printf 'a\\nb\\nc\\n' | xargs -n 1 echo item",
    "env -i /bin/echo bare; env -u PATH /bin/echo half; exec env -i FOO=1 /usr/bin/env",
    "{ echo out; echo err >&2; } 2>&1 | cat; exit 17",
    "for i in 1 2 3 4 5; do (sleep 0; echo $i) & wait; done; ulimit -c 0; sh -c 'kill -ABRT $$'",
];

/// Runs each script in a shell; `command` is the words before the script.
fn expect_scripts_untouched(shell: &str, words: &[&str]) {
    let shell = tools::program(shell);
    for script in SCRIPTS {
        let make = |gpu: &Gpu| {
            let mut command = gpu.command(&shell);
            command.args(words).arg(script);
            // Excludes start-up files.
            command.env_remove("HOME").env_remove("TMPDIR");
            command
        };
        let ours = expect_untouched(make, "pear\napple\nplum\n");
        assert!(!ours.output.is_empty(), "{script}");
    }
}

// census: A11, A28
#[test]
fn scripts_of_the_standard_shell_run_unchanged() {
    expect_scripts_untouched("sh", &["-c"]);
}

#[test]
fn scripts_of_bash_run_unchanged() {
    expect_scripts_untouched("bash", &["-c"]);
}

#[test]
fn scripts_of_busybox_run_unchanged() {
    expect_scripts_untouched("busybox", &["sh", "-c"]);
}

#[test]
fn timeout_and_its_statuses_are_unchanged() {
    let timeout = tools::program("timeout");
    for (arguments, status) in [
        (&["600", "true"][..], 0),
        (&["0.1", "sleep", "600"][..], 124),
        (&["-s", "KILL", "0.1", "sleep", "600"][..], 137),
        (&["600", "sh", "-c", "exit 3"][..], 3),
    ] {
        let make = |gpu: &Gpu| {
            let mut command = gpu.command(&timeout);
            command.args(arguments);
            command
        };
        let ours = expect_untouched(make, "");
        // timeout kills itself with the same signal, which shells call 137.
        let killed = std::os::unix::process::ExitStatusExt::signal(&ours.status);
        let seen = killed.map_or_else(|| ours.code(), |signal| 128 + signal);
        assert_eq!(seen, status, "{arguments:?}");
    }
}

fn expect_script_untouched(interpreter: &str, arguments: &[&str], output: &str) {
    let interpreter = tools::program(interpreter);
    let make = |gpu: &Gpu| {
        let mut command = gpu.command(&interpreter);
        command.args(arguments);
        command
    };
    let ours = expect_untouched(make, "six\nseven\n").expect_success();
    assert_eq!(ours.output, output);
}

#[test]
fn a_perl_program_runs_unchanged() {
    let script = "use POSIX; my $pid = fork; if (!$pid) { exit 4 } waitpid $pid, 0; print $? >> 8, qq(\\n); \
                  open my $p, '-|', 'echo piped'; print <$p>; print sort <STDIN>; print `echo quoted`;";
    expect_script_untouched("perl", &["-e", script], "4\npiped\nseven\nsix\nquoted\n");
}

#[test]
fn a_tcl_program_runs_unchanged() {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        script.path(),
        "puts [exec echo piped | tr a-z A-Z]; puts [gets stdin]; exit 0\n",
    )
    .unwrap();
    let path = script
        .path()
        .to_str()
        .expect("paths of these tests are text");
    expect_script_untouched("tclsh", &[path], "PIPED\nsix\n");
}
