//! Every command in a code block of a document is run by a test, or needs a GPU and says so.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use super::how::{COMMANDS, How};
use super::text::{CodeLine, code_lines};
use super::tutorial::built_clone;
use crate::common::{
    Cuda, Daemon, Gpu, Process, builtin_profile, clean_command, collect, pillion, workspace,
    write_script,
};
use crate::examples::{example, marking_service};
use crate::help::every_command;
use crate::torch;

/// Programs with which a line of a code block is a command.
const PROGRAMS: [&str; 24] = [
    "apt",
    "cargo",
    "cc",
    "echo",
    "export",
    "for",
    "install",
    "kill",
    "ncu",
    "nsys",
    "pillion",
    "pilliond",
    "pip",
    "podman",
    "printf",
    "python",
    "python3",
    "rpm",
    "softgpu-server",
    "softgpu-mps-control",
    "generate",
    "semanage",
    "test",
    "systemctl",
];
const FOLDERS: [&str; 6] = [
    "target/release/",
    "examples/",
    "benches/",
    ".ci/",
    "packaging/",
    "nvidia-cuda-mps",
];

struct Shown {
    document: String,
    line: usize,
    command: String,
    /// The lines of code below it, up to the next command, with their blocks.
    below: Vec<(usize, String)>,
}

impl Shown {
    /// The output that the document shows: the rest of the command's block, or else the next block.
    fn output(&self) -> Vec<&str> {
        let Some((first, _)) = self.below.first() else {
            return Vec::new();
        };
        let lines = self.below.iter().filter(|(block, _)| block == first);
        lines.map(|(_, line)| line.trim()).collect()
    }
}

/// The command of a line, without prompt and comment, or `None` if the line is none.
fn command(line: &str) -> Option<String> {
    let text = line.trim().trim_start_matches("$ ");
    let text = text.split("  #").next().unwrap_or_default().trim();
    let is_assignment = |word: &&str| {
        let named = word.split_once('=');
        let is_named = named.is_some_and(|(name, _)| !name.contains(char::is_lowercase));
        // The second word of a quoted value.
        is_named || word.ends_with('\'')
    };
    let mut words = text.split_whitespace().skip_while(is_assignment);
    let program = words.next()?;
    let is_program =
        PROGRAMS.contains(&program) || FOLDERS.iter().any(|folder| program.starts_with(folder));
    // A row of a table may begin with the name of a policy.
    let begins_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let is_row = words.next().is_some_and(begins_number);
    (is_program && !is_row).then(|| text.to_owned())
}

/// The commands of every document, in order.
fn shown() -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(workspace().join(&document)).unwrap();
        let mut continues = false;
        for CodeLine { line, block, text } in code_lines(&text) {
            let last = found.last_mut().filter(|last| last.document == document);
            if continues && let Some(last) = last {
                last.command = format!("{} {}", last.command.trim_end_matches('\\'), text.trim());
                continues = text.ends_with('\\');
                continue;
            }
            match command(&text) {
                Some(command) => {
                    continues = command.ends_with('\\');
                    found.push(Shown {
                        document: document.clone(),
                        line,
                        command,
                        below: Vec::new(),
                    });
                }
                None => {
                    if let Some(last) = last {
                        last.below.push((block, text));
                    }
                }
            }
        }
    }
    found
}

/// Every Markdown file but results and recordings, which are history.
fn documents() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(workspace().join(&folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = folder.join(&name);
            let is_ours = !name.starts_with('.')
                && !name.starts_with("target")
                && !["results", "recorded", "built"].contains(&&*name);
            if is_ours && workspace().join(&path).is_dir() {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn row(shown: &Shown) -> Option<&'static (&'static str, &'static str, How)> {
    COMMANDS.iter().find(|(document, begin, _)| {
        *document == shown.document && shown.command.starts_with(begin)
    })
}

fn how(shown: &Shown) -> Option<How> {
    row(shown).map(|row| row.2)
}

fn tests() -> String {
    let mut sources = String::new();
    let mut folders = vec![workspace().join("cli/tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                sources += &fs::read_to_string(path).unwrap();
            }
        }
    }
    sources
}

#[test]
fn every_command_of_a_document_is_run_by_a_test_or_needs_a_gpu() {
    let (tests, shown) = (tests(), shown());
    let (mut faults, count) = (Vec::new(), shown.len());
    for (document, begin, _) in COMMANDS {
        let is_used = |shown: &Shown| {
            shown.document == *document
                && shown.command.starts_with(begin)
                && row(shown).is_some_and(|row| row.1 == *begin)
        };
        if !shown.iter().any(is_used) {
            faults.push(format!("{document}: no command for the row `{begin}`"));
        }
    }
    for shown in shown {
        let fault = match how(&shown) {
            None => Some("no row in how.rs".to_owned()),
            Some(How::By(name)) if !tests.contains(&format!("fn {name}(")) => {
                Some(format!("there is no test {name}"))
            }
            Some(How::In(file, text)) => {
                let read = fs::read_to_string(workspace().join(file)).unwrap();
                (!read.contains(text)).then(|| format!("{file} has no `{text}`"))
            }
            Some(How::Gpu) => {
                let text = fs::read_to_string(workspace().join(&shown.document)).unwrap();
                let line = text.lines().nth(shown.line - 1).unwrap();
                let says_so =
                    line.contains("needs a GPU") || shown.document.contains("benches/gpu");
                (!says_so).then(|| "does not say that it needs a GPU".to_owned())
            }
            Some(How::Untried) => {
                let text = fs::read_to_string(workspace().join(&shown.document)).unwrap();
                (!text.contains("(not tried)")).then(|| "does not say `(not tried)`".to_owned())
            }
            Some(_) => None,
        };
        let place = format!("{}:{}: {}", shown.document, shown.line, shown.command);
        faults.extend(fault.map(|fault| format!("{place}: {fault}")));
    }
    assert!(count > 80, "only {count} commands found");
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The commands of `pillion` in the prose of a document, in backticks.
fn in_prose(document: &str) -> Vec<String> {
    let text = fs::read_to_string(workspace().join(document)).unwrap();
    let code: Vec<usize> = code_lines(&text).iter().map(|line| line.line).collect();
    let prose = text.lines().enumerate();
    let prose = prose.filter(|(index, _)| !code.contains(&(index + 1)));
    let prose: Vec<&str> = prose.map(|(_, line)| line.trim()).collect();
    let prose = prose.join(" ");
    let spans = prose.split('`').skip(1).step_by(2);
    let spans = spans.filter(|span| span.starts_with("pillion "));
    spans.map(str::to_owned).collect()
}

#[test]
fn commands_and_flags_in_prose_exist() {
    let known = every_command();
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let (mut faults, mut count) = (Vec::new(), 0);
    for document in documents() {
        for span in in_prose(&document) {
            count += 1;
            let words: Vec<&str> = span.split_whitespace().skip(1).collect();
            let is_of = |name: &&String| {
                let path: Vec<&str> = name.split_whitespace().collect();
                words.starts_with(&path) || path.starts_with(&words)
            };
            let fitting = known.iter().filter(is_of);
            let Some(name) = fitting.max_by_key(|name| name.len()) else {
                faults.push(format!("{document}: `{span}`: no such command"));
                continue;
            };
            let help = helps.entry(name.clone()).or_insert_with(|| {
                let mut command = clean_command(pillion());
                command.args(name.split_whitespace()).arg("--help");
                collect(command).expect_success().output
            });
            // Behind `--` stands the command of a job.
            let own = words.iter().take_while(|word| **word != "--");
            let flags = own.filter(|word| word.starts_with("--"));
            for flag in flags {
                let flag = flag.split('=').next().unwrap_or_default();
                let flag = flag.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
                let is_in_flag = |c: char| c.is_ascii_alphanumeric() || c == '-';
                if !help.split(|c| !is_in_flag(c)).any(|word| word == flag) {
                    faults.push(format!("{document}: `{span}`: {name} has no {flag}"));
                }
            }
        }
    }
    assert!(count > 100, "only {count} commands found");
    assert!(faults.is_empty(), "{faults:#?}");
}

/// A folder like a built clone, a GPU with a daemon, and the jobs that documents name.
struct World {
    gpu: Gpu,
    daemon: Daemon,
    folder: tempfile::TempDir,
    /// They end with it.
    _jobs: Vec<Process>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        built_clone(path);
        let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
        let start = |label: &str| gpu.job(label, "steady");
        let jobs = vec![
            start("serve").high_priority(&daemon).start_until("round"),
            start("nightly-train")
                .best_effort(&daemon)
                .start_until("round"),
            start("train").best_effort(&daemon).start_until("round"),
            start("4711-1c0ffee")
                .best_effort(&daemon)
                .start_until("round"),
        ];
        marking_service(path);
        // Python programs are stood for by one that launches a kernel.
        let program = path.join("saxpy");
        let mut cc = Command::new("cc");
        cc.arg("-o").arg(&program);
        cc.arg(example("1-c-program/saxpy.c")).arg("-ldl");
        collect(cc).expect_success();
        symlink(workspace().join("include"), path.join("include")).unwrap();
        fs::create_dir(path.join("tmp")).unwrap();
        let python = format!("#!/bin/sh\nexec {}\n", program.display());
        write_script(&path.join("bin/python"), &python);
        for name in ["serve", "train"] {
            fs::copy(builtin_profile(), path.join(format!("{name}.profile.toml"))).unwrap();
            fs::write(path.join(format!("{name}.py")), "").unwrap();
            let mut trace = clean_command(pillion());
            trace.args(["workload", "resnet50-inference", "-o"]);
            trace.arg(path.join(format!("{name}.trace")));
            collect(trace).expect_success();
        }
        fs::write(path.join("site.toml"), "[memory]\nbest_effort = \"50%\"\n").unwrap();
        fs::create_dir_all(path.join("etc/pillion")).unwrap();
        fs::create_dir(path.join("etc/cdi")).unwrap();
        fs::write(path.join("etc/pillion/gpu0.toml"), "[gpu]\nindex = 0\n").unwrap();
        symlink(gpu.socket(), path.join("gpu0.sock")).unwrap();
        Self {
            gpu,
            daemon,
            folder,
            _jobs: jobs,
        }
    }

    /// Runs a command as a reader does in the clone; its output.
    fn run(&self, shown: &Shown, more: &str) -> String {
        let path = self.folder.path();
        // Those folders are the machine's own.
        let line = shown.command.replace("/etc/pillion", "etc/pillion");
        let line = line.replace("/etc/cdi", "etc/cdi").replace("/tmp/", "tmp/");
        let environment = self.gpu.pillion(&self.daemon, &[]);
        let mut shell = Command::new("bash");
        shell
            .args(["-c", &format!("{line}{more}")])
            .current_dir(path);
        for (name, value) in environment.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let search = std::env::var("PATH").unwrap();
        let search = format!("{0}/bin:{0}/target/release:{search}", path.display());
        shell.env("PATH", search).env("HOME", path);
        shell.env("PILLION_CONFIG_FOLDER", path.join("etc/pillion"));
        let ended = Process::start(&line, shell).finish_whenever();
        assert_eq!(
            ended.code(),
            0,
            "{}:{}: {line}: {ended:#?}",
            shown.document,
            shown.line
        );
        ended.output
    }
}

#[test]
fn commands_of_documents_succeed_as_they_are_written() {
    let mut by_document: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    for shown in shown() {
        if matches!(how(&shown), Some(How::Run | How::Short | How::Quick)) {
            by_document
                .entry(shown.document.clone())
                .or_default()
                .push(shown);
        }
    }
    assert!(by_document.len() >= 5, "{:?}", by_document.keys());
    for shown in by_document.values() {
        let world = World::new();
        for shown in shown {
            let more = match how(shown) {
                Some(How::Short) => " --seconds 1",
                Some(How::Quick) => " --seconds 1 --part five-clients",
                _ => "",
            };
            world.run(shown, more);
        }
    }
}

#[test]
fn commands_print_what_documents_show() {
    let mut count = 0;
    for shown in shown() {
        if !matches!(how(&shown), Some(How::Prints)) {
            continue;
        }
        count += 1;
        let mut clean = clean(&shown.command);
        let folder = tempfile::tempdir().unwrap();
        built_clone(folder.path());
        clean.current_dir(folder.path());
        let search = std::env::var("PATH").unwrap();
        let path = folder.path().display();
        clean.env("PATH", format!("{path}/bin:{path}/target/release:{search}"));
        let ended = Process::start(&shown.command, clean)
            .finish_whenever()
            .expect_success();
        let printed: Vec<&str> = ended.output.lines().map(str::trim).collect();
        assert!(!shown.output().is_empty(), "{}", shown.command);
        for line in shown.output() {
            assert!(
                printed.contains(&line),
                "{}:{}: {} does not print {line:?}, but {printed:#?}",
                shown.document,
                shown.line,
                shown.command
            );
        }
    }
    assert_eq!(count, 3);
}

fn clean(line: &str) -> Command {
    let mut command = clean_command("bash");
    command.args(["-c", line]);
    command
}

#[test]
fn what_pytorch_resolves_is_listed_by_door() {
    let python = torch::python(Cuda::V13);
    let shown = shown();
    let shown = shown.iter().find(|shown| {
        shown.document == "docs/pytorch.md" && shown.command.contains("in all, .*, by ")
    });
    let shown = shown.expect("the document lists the doors");
    let folder = tempfile::tempdir().unwrap();
    built_clone(folder.path());
    symlink(workspace().join("cli"), folder.path().join("cli")).unwrap();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", python.display());
    write_script(&folder.path().join("bin/python"), &script);
    let mut command = clean(&shown.command);
    command.current_dir(folder.path());
    let search = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}/bin:{search}", folder.path().display()));
    let ended = Process::start("doors", command)
        .finish_whenever()
        .expect_success();
    for door in ["by dlsym", "by cuGetProcAddress"] {
        assert!(ended.output.contains(door), "{door}: {ended:#?}");
    }
}
