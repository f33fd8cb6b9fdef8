//! Builds the driver and the device server, starts servers, compiles and runs `tests/programs`,
//! linked against the driver as any program is against `libcuda.so.1`.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// Cargo's output folder for the profile of this test.
pub(crate) fn profile_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let profile = test.parent().unwrap().parent().unwrap().to_owned();
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "-p",
            "pillion-softgpu-driver",
            "-p",
            "pillion-softgpu-server",
        ]);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        // Only the profile `dev` has a folder of another name.
        let name = profile.file_name().filter(|name| *name != "debug");
        build.arg("--profile").arg(name.unwrap_or("dev".as_ref()));
        assert!(build.status().unwrap().success(), "cargo build failed");
        profile
    })
}

/// A folder with the driver under its SONAME, as programs find it.
pub(crate) fn driver_folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = TempDir::new().unwrap();
            let library = profile_folder().join("libcuda.so");
            std::os::unix::fs::symlink(library, folder.path().join("libcuda.so.1")).unwrap();
            folder
        })
        .path()
}

/// A compiled program, ready to be run against the driver.
pub(crate) fn program(name: &str) -> Command {
    let folder = driver_folder();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    // Concurrent tests may compile the same program: each has its own file.
    let thread = format!("{:?}", std::thread::current().id());
    let program = folder.join(format!("{name}-{}", thread.replace(['(', ')'], "")));
    let mut compile = Command::new("cc");
    compile
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-pthread",
            "-o",
        ])
        .arg(&program);
    compile
        .arg(sources.join(format!("{name}.c")))
        .arg(folder.join("libcuda.so.1"));
    assert!(
        compile.status().unwrap().success(),
        "{name}.c does not compile"
    );
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder).stdin(Stdio::null());
    for name in [
        "LD_PRELOAD",
        "PILLION_CLOCK",
        "SOFTGPU_SOCKET",
        "SOFTGPU_LABEL",
        "SOFTGPU_NULL",
        "SOFTGPU_EVENT_NS",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_MAX_CONNECTIONS",
    ] {
        command.env_remove(name);
    }
    command
}

pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

pub(crate) fn stats_of(args: &[&str], program: &str) -> Value {
    let server = Server::start(args);
    run(&mut server.program(program));
    server.finish()
}

pub(crate) fn start(program: &mut Command) -> (Child, String) {
    let mut child = program.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let stdout = child.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    (child, line)
}

pub(crate) fn server_command() -> Command {
    Command::new(profile_folder().join("softgpu-server"))
}

pub(crate) struct Server {
    child: Option<Child>,
    folder: TempDir,
}

impl Server {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_in(TempDir::new().unwrap(), args)
    }

    /// Starts a server on a virtual clock for that many processes.
    pub(crate) fn start_virtual(processes: u32, args: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let page = folder.path().join("clock");
        let (page, processes) = (page.to_str().unwrap().to_owned(), processes.to_string());
        let mut all = vec!["--clock-page", &page, "--processes", &processes];
        all.extend(args);
        Self::start_in(folder, &all)
    }

    fn start_in(folder: TempDir, args: &[&str]) -> Self {
        let socket = folder.path().join("socket");
        let mut command = server_command();
        command
            .arg("--socket")
            .arg(&socket)
            .args(args)
            .arg("--json-stats");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        while !is_listening(&socket) {
            assert_eq!(child.try_wait().unwrap(), None, "{command:?} ended");
            std::thread::yield_now();
        }
        Self {
            child: Some(child),
            folder,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = program(name);
        command
            .env("SOFTGPU_SOCKET", self.socket())
            .env("SOFTGPU_LABEL", name);
        command
    }

    /// A program on the server's virtual clock; programs of lower rank run first.
    pub(crate) fn virtual_program(&self, name: &str, rank: u16) -> Command {
        let mut command = self.program(name);
        command.env("PILLION_CLOCK", self.folder.path().join("clock"));
        command.env("PILLION_CLOCK_RANK", rank.to_string());
        command
    }

    pub(crate) fn stats(&self) -> Value {
        let socket = protocol::hello::connect_to(&self.socket()).unwrap();
        let request = softgpu::wire::Request::Stats.encode();
        protocol::hello::send(&socket, &request, &[]).unwrap();
        let mut json = Vec::new();
        loop {
            let (packet, _) = protocol::hello::receive(&socket).unwrap();
            if packet.is_empty() {
                return serde_json::from_slice(&json).unwrap();
            }
            json.extend(packet);
        }
    }

    /// Ends the server as an operator does, and returns its counters.
    pub(crate) fn finish(mut self) -> Value {
        let child = self.child.take().unwrap();
        signal(&child, "TERM");
        let Output { status, stdout, .. } = child.wait_with_output().unwrap();
        assert!(status.success(), "{status:?}");
        assert!(!self.socket().exists(), "the socket is left behind");
        serde_json::from_slice(&stdout).unwrap()
    }

    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn count(stats: &Value, label: &str, counter: &str) -> u64 {
    stats["labels"][label][counter]
        .as_u64()
        .unwrap_or_else(|| panic!("{label} {counter}: {stats}"))
}

pub(crate) fn tool(name: &str, args: &[&str]) -> String {
    let library = profile_folder().join("libcuda.so");
    let output = Command::new(name).args(args).arg(library).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn signal(child: &Child, name: &str) {
    let mut kill = Command::new("kill");
    assert!(
        kill.arg(format!("-{name}"))
            .arg(child.id().to_string())
            .status()
            .unwrap()
            .success()
    );
}

/// Whether a server listens: it refuses a stream socket with a specific error.
fn is_listening(socket: &Path) -> bool {
    match UnixStream::connect(socket) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(PROTOTYPE),
    }
}

/// EPROTOTYPE on Linux: the socket exists, with another type.
const PROTOTYPE: i32 = 91;
