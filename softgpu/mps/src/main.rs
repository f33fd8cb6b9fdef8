//! `softgpu-mps-control`: a stand-in for NVIDIA's MPS control daemon, its program, and its servers,
//! beside `softgpu-server --sharing mps --mps-managed`.
//!
//! | arguments | what it is |
//! |---|---|
//! | none | reads commands from standard input, prints the daemon's answers (`front`) |
//! | `-d` | the daemon, in a session of its own (`daemon`); returns once it listens |
//! | `-f` | the daemon, here, its logs on standard output |
//! | `-h`, `--help` | a text |
//! | `--server` | an MPS server; the daemon starts it (`server`) |
//!
//! `CUDA_MPS_PIPE_DIRECTORY` and `CUDA_MPS_LOG_DIRECTORY` have the same meaning as for NVIDIA's,
//! `SOFTGPU_SOCKET` is the device server's, and `SOFTGPU_MPS_RELEASE` (535, 550, 555) selects the
//! release whose words it uses. Tests run it under the name `nvidia-cuda-mps-control`.
//!
//! **NVIDIA's words.** The answers of NVIDIA's control daemon without a GPU were recorded from
//! three releases (`docs/mps.md`), and a test compares both. With a GPU nothing was recorded: the
//! answers of a working server are from NVIDIA's man page and guide, and where these have no words,
//! from the command's answers elsewhere; `answers` has the sources. The packets on the socket
//! `control` are ours: NVIDIA's program and driver cannot use them.

use std::io::{BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use crate::daemon::Daemon;
use crate::release::Release;

mod answers;
mod daemon;
mod device;
mod front;
mod log;
mod process;
mod release;
mod server;
mod settings;

/// Environment variable for the folder of the pipes (NVIDIA's MPS guide).
const PIPES_ENV: &str = "CUDA_MPS_PIPE_DIRECTORY";
const PIPES: &str = "/tmp/nvidia-mps";
const HELP: &str = "A stand-in for NVIDIA's MPS control daemon, for the software GPU.\n\
                    See the manual page of nvidia-cuda-mps-control for its commands.\n";
/// The daemon's output once it listens.
const LISTENS: &[u8] = b"\0";

fn main() -> ExitCode {
    let release = match Release::of_environment() {
        Ok(release) => release,
        Err(wrong) => {
            eprintln!("softgpu-mps-control: {wrong}");
            return ExitCode::FAILURE;
        }
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words {
        ["--server"] => server::run(),
        ["--daemon"] => serve(release, true),
        ["-f"] => serve(release, false),
        ["-d"] => start(),
        ["-h" | "--help"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        [_, ..] if release.refuses_options() => {
            print!("{HELP}");
            ExitCode::FAILURE
        }
        _ => front::run(&pipes().join("control")),
    }
}

fn pipes() -> PathBuf {
    std::env::var_os(PIPES_ENV)
        .filter(|folder| !folder.is_empty())
        .map_or_else(|| PathBuf::from(PIPES), PathBuf::from)
}

fn serve(release: Release, is_background: bool) -> ExitCode {
    let daemon = Daemon::open(&pipes(), release, is_background);
    let daemon = match daemon {
        Ok(daemon) => daemon,
        Err(why) => {
            println!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if is_background {
        // It is no group leader, so this cannot fail.
        let _ = rustix::process::setsid();
        let mut output = std::io::stdout();
        let _ = output.write_all(LISTENS).and_then(|()| output.flush());
    }
    daemon.run()
}

/// Starts the daemon, and returns when it listens.
fn start() -> ExitCode {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--daemon");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("softgpu-mps-control: cannot start the daemon");
        return ExitCode::FAILURE;
    };
    let mut said = Vec::new();
    let output = child.stdout.take();
    let mut bytes = output
        .into_iter()
        .flat_map(|output| BufReader::new(output).bytes().flatten());
    let is_listening = bytes.any(|byte| {
        said.push(byte);
        [byte] == LISTENS
    });
    if is_listening {
        return ExitCode::SUCCESS;
    }
    let _ = child.wait();
    print!("{}", String::from_utf8_lossy(&said));
    ExitCode::FAILURE
}
