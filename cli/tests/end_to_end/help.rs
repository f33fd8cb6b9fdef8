//! Every command explains itself, and a mistyped one gets the right one as a suggestion.

use std::process::Command;

use crate::common::{Ended, clean_command, collect, pillion};

fn run(arguments: &[&str]) -> Ended {
    let mut command = clean_command(pillion());
    command.args(arguments);
    collect(command)
}

fn subcommands(help: &str) -> Vec<String> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Whether a command works without a subcommand.
fn does_something(help: &str) -> bool {
    let usage = help.split("Usage: ").nth(1).unwrap_or_default();
    let mut lines = usage.lines().take_while(|line| !line.is_empty());
    lines.any(|line| !line.ends_with("<COMMAND>"))
}

fn visit(path: &[&str], seen: &mut Vec<String>) {
    let help = run(&[path, &["--help"]].concat()).expect_success().output;
    let below = subcommands(&help);
    if below.is_empty() || does_something(&help) {
        assert!(
            help.contains("Example: "),
            "pillion {} --help:\n{help}",
            path.join(" ")
        );
        seen.push(path.join(" "));
    }
    for name in below {
        visit(&[path, &[&name]].concat(), seen);
    }
}

/// All commands that do something, such as `config check`; each must have help with an example.
pub(crate) fn every_command() -> Vec<String> {
    let mut seen = Vec::new();
    visit(&[], &mut seen);
    seen
}

#[test]
fn every_command_has_help_with_an_example() {
    let seen = every_command();
    for name in [
        "run",
        "demo",
        "status",
        "top",
        "doctor",
        "exporter",
        "workload",
        "simulate",
        "simulate cluster",
        "config check",
    ] {
        assert!(
            seen.iter().any(|command| command == name),
            "{name} in {seen:?}"
        );
    }
}

#[test]
fn a_mistyped_command_or_option_is_answered_with_the_right_one() {
    for (arguments, meant) in [
        (&["staus"][..], "status"),
        (&["wokload"], "workload"),
        (&["run", "--clas", "best-effort", "--", "true"], "--class"),
        (&["demo", "--sed", "1"], "--seed"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code(), 2);
        assert!(ended.errors.contains(meant), "{ended:#?}");
    }
}

#[test]
fn completions_know_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).expect_success().output;
        for word in ["workload", "require-daemon"] {
            assert!(script.contains(word), "{word} for {shell}");
        }
    }
    // The shell itself must accept it.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pillion.bash");
    std::fs::write(&path, run(&["completions", "bash"]).output).unwrap();
    let checked = Command::new("bash").arg("-n").arg(&path).status();
    assert!(checked.is_ok_and(|status| status.success()));
}

#[test]
fn every_command_gets_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    run(&["man", "-o", &path]).expect_success();
    for (page, part) in [
        ("pillion.1", "pillion"),
        ("pillion-run.1", "require\\-daemon"),
        ("pillion-config-check.1", "FILE"),
        ("pillion-simulate-cluster.1", "\\-\\-node\\-gpus"),
    ] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
        assert!(text.contains(part), "{part} in {page}:\n{text}");
    }
    let ended = run(&["man", "-o", "/nonexistent"]);
    assert_eq!(ended.code(), 2);
    assert!(ended.errors.contains("/nonexistent"), "{ended:#?}");
}
