//! Shows where the threads of a silent process are in a test's failure: a hang may not recur soon.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The stacks of a process and its descendants, and the kernel's view of the threads of everything
/// else that this test program started (other tests' processes among them).
pub(crate) fn of_processes(silent: u32) -> String {
    let parents = parents();
    let mut text = String::new();
    // The process first: ids wrap, and then its children's are lower.
    let started = parents
        .keys()
        .filter(|&&process| process != silent && descends(process, silent, &parents));
    for &process in std::iter::once(&silent).chain(started) {
        let _ = write!(text, "{}{}", places(process), stacks(process));
    }
    for &process in parents.keys() {
        let is_ours = descends(process, std::process::id(), &parents);
        if is_ours && process != silent && !descends(process, silent, &parents) {
            text.push_str(&places(process));
        }
    }
    text
}

fn parents() -> BTreeMap<u32, u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| Some((id, parent_of(id)?))).collect()
}

/// The fourth word of `/proc/ID/stat`; the name in parentheses before it is arbitrary (`proc(5)`).
fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(1)?.parse().ok()
}

fn descends(process: u32, from: u32, parents: &BTreeMap<u32, u32>) -> bool {
    // Bounded by the number of processes: ids may be reused during the reads.
    let mut at = process;
    for _ in 0..parents.len() {
        match parents.get(&at) {
            Some(&parent) if parent == from => return true,
            Some(&parent) => at = parent,
            None => return false,
        }
    }
    false
}

/// A process's signal dispositions; for each thread name, state, system call with arguments, wait
/// channel in the kernel, and signals.
fn places(process: u32) -> String {
    let read = |path: &Path, name: &str| {
        let text = fs::read_to_string(path.join(name)).unwrap_or_else(|error| error.to_string());
        text.trim().replace('\0', " ")
    };
    let folder = Path::new("/proc").join(process.to_string());
    let cmdline = read(&folder, "cmdline");
    let status = read(&folder, "status");
    let of_all = signals(&status, &["ShdPnd", "SigIgn", "SigCgt"]);
    let mut text = format!("--- process {process}: {cmdline}\nsignals{of_all}\n");
    for task in fs::read_dir(folder.join("task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let task = task.path();
        let stat = read(&task, "stat");
        let state = stat
            .rsplit_once(") ")
            .map_or("?", |(_, behind)| &behind[..1]);
        let _ = writeln!(
            text,
            "thread {} {} {state}: system call {}, in {}, signals{}",
            task.file_name().unwrap_or_default().display(),
            read(&task, "comm"),
            read(&task, "syscall"),
            read(&task, "wchan"),
            signals(&read(&task, "status"), &["SigPnd", "SigBlk"]),
        );
    }
    text
}

/// These lines of a `/proc/ID/status`, each a hexadecimal mask of signals (`proc_pid_status(5)`).
fn signals(status: &str, names: &[&str]) -> String {
    let lines = status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| names.contains(name));
    lines.fold(String::new(), |text, (name, mask)| {
        format!("{text} {name} {}", mask.trim())
    })
}

/// gdb's output, if it is installed and permitted.
fn stacks(process: u32) -> String {
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch", "-p", &process.to_string()]);
    gdb.args(["-ex", "thread apply all backtrace 40"]);
    match gdb.output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("gdb: {error}\n"),
    }
}

#[test]
fn a_silent_process_is_shown_with_its_threads_and_its_children() {
    let mut shell = super::Process::start("sh", {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap '' USR1; trap : USR2; sleep 1000 & echo $!; wait",
        ]);
        command
    });
    let child = shell.next_line();
    let shown = of_processes(shell.pid());
    assert!(
        shown.contains(&format!("--- process {}: sh -c", shell.pid())),
        "{shown}"
    );
    assert!(shown.contains(&format!("--- process {child}: ")), "{shown}");
    assert!(shown.contains(&format!("thread {child} ")), "{shown}");
    // Bit 0 is signal 1; the child inherits ignored signals, and no handler.
    assert_eq!(mask_of(&shown, "SigIgn") & 0xa00, 0x200, "{shown}");
    assert_eq!(mask_of(&shown, "SigCgt") & 0xa00, 0x800, "{shown}");
    assert!(shown.contains(" SigBlk 0000000000000000\n"), "{shown}");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

/// The first mask of this name in the output, which belongs to the first process.
fn mask_of(shown: &str, name: &str) -> u64 {
    let (_, behind) = shown.split_once(&format!(" {name} ")).unwrap();
    u64::from_str_radix(&behind[..16], 16).unwrap()
}
