//! `pillion exporter` with real daemons and jobs: by TCP, as a file, and scraped by Prometheus.

mod prometheus;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::common::{Daemon, Gpu, Process, Program, pillion, until, workspace};

/// Headers of Prometheus 2.42.
const OPENMETRICS: &str = "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                           text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";

/// An exporter on a free port of this machine.
struct Exporter {
    process: Process,
    address: SocketAddr,
}

impl Exporter {
    fn start(gpu: &Gpu, daemon: &Daemon) -> Self {
        Self::start_at(gpu, daemon.socket())
    }

    fn start_at(gpu: &Gpu, socket: &Path) -> Self {
        let mut command = gpu.command(pillion());
        command.env("PILLION_SOCKET", socket);
        command.args(["exporter", "--listen", "127.0.0.1:0"]);
        let mut process = Process::start("pillion exporter", command);
        let line = process.next_line();
        let address = line.strip_prefix("listening on http://");
        let address = address.and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line}"));
        Self {
            process,
            address: address.parse().unwrap(),
        }
    }

    fn ask(&self, request: &str, headers: &str) -> (String, String) {
        ask(self.address, request, headers)
    }

    fn page(&self) -> String {
        let (head, body) = self.ask("GET /metrics", "");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        body
    }
}

fn ask(address: SocketAddr, request: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head ends");
    (head.to_owned(), body.to_owned())
}

fn value(page: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let mut lines = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        let is_its = rest.is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '));
        is_its && labels.iter().all(|label| line.contains(label))
    });
    let line = lines.next()?;
    assert_eq!(lines.next(), None, "{name} {labels:?}");
    line.rsplit(' ').next()?.parse().ok()
}

/// A service with a target whose requests have ended, and a training job with a quota that runs on.
fn jobs(gpu: &Gpu, daemon: &Daemon) -> [Process; 2] {
    let program = |name: &'static str| Program::Linked(name).path().display().to_string();
    let (ranges, steady) = (program("ranges"), program("steady"));
    let training = ["--class", "best-effort", "--memory", "1GiB", "--", &steady];
    let training = gpu.pillion_run("train", daemon.socket(), &training);
    let mut training = training.env("PILLION_JOB", "train").start();
    training.wait_for("round", 1);
    let service = [
        "--class",
        "high-priority",
        "--slo",
        "15ms",
        "--",
        &ranges,
        "api",
        "200",
    ];
    let service = gpu.pillion_run("serve", daemon.socket(), &service);
    let service = service.env("PILLION_JOB", "serve").start_until("served");
    [service, training]
}

#[test]
fn a_scrape_shows_what_the_daemon_counts_in_the_format_that_was_asked_for() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let exporter = Exporter::start(&gpu, &daemon);
    let uuid = gpu.stats()["uuid"].as_str().unwrap().to_owned();
    let uuid = format!("UUID=\"{uuid}\"");
    let page = exporter.page();
    assert_eq!(
        value(&page, "pillion_daemon_up", &[&uuid]),
        Some(1.0),
        "{page}"
    );
    assert_eq!(value(&page, "pillion_build_info", &[]), Some(1.0));
    let [service, training] = jobs(&gpu, &daemon);
    // The service's launches have ended, so that both agree.
    let serve = daemon.job("serve");
    let launches = serve["totals"]["launches"].as_u64().unwrap();
    assert!(launches >= 600, "{serve:#}");
    let page = exporter.page();
    let labels = [&uuid, "pillion_job=\"serve\"", "class=\"high-priority\""];
    let told = value(&page, "pillion_kernel_launches_total", &labels);
    assert_eq!(told, Some(launches as f64), "{page}");
    assert!(value(&page, "pillion_gpu_time_seconds_total", &labels) > Some(0.0));
    let labels = [&uuid, "pillion_job=\"train\"", "class=\"best-effort\""];
    assert!(value(&page, "pillion_kernel_launches_total", &labels) > Some(0.0));
    let quota = value(&page, "pillion_memory_quota_bytes", &labels);
    assert_eq!(quota, Some(f64::from(1 << 30)), "{page}");
    for class in ["high-priority", "best-effort"] {
        let labels = [&uuid, &*format!("class=\"{class}\"")];
        assert_eq!(value(&page, "pillion_jobs", &labels), Some(1.0), "{page}");
    }
    let (head, body) = exporter.ask("GET /metrics", OPENMETRICS);
    let is_open_metrics = head.contains("application/openmetrics-text; version=1.0.0");
    assert!(
        is_open_metrics && body.ends_with("# EOF\n"),
        "{head}\n{body}"
    );
    let (head, body) = exporter.ask("GET /", "");
    assert!(
        head.contains("200 OK") && body.contains("/metrics"),
        "{head}"
    );
    assert!(exporter.ask("GET /else", "").0.contains(" 404 "));
    assert!(exporter.ask("DELETE /metrics", "").0.contains(" 405 "));
    exporter.process.signal(Signal::TERM);
    exporter.process.finish_untold().expect_success();
    gpu.expect_right_end("serve", service, &daemon);
    gpu.expect_right_end("train", training, &daemon);
}

#[test]
fn a_daemon_that_is_stopped_or_killed_is_down_and_the_page_comes() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let exporter = Exporter::start(&gpu, &daemon);
    let uuid = gpu.stats()["uuid"].as_str().unwrap().to_owned();
    let uuid = format!("UUID=\"{uuid}\"");
    let up = || value(&exporter.page(), "pillion_daemon_up", &[&uuid]);
    until("the daemon to be up", || up() == Some(1.0));
    daemon.signal(Signal::STOP);
    until("the daemon to be down", || up() == Some(0.0));
    daemon.signal(Signal::CONT);
    until("the daemon to be up again", || up() == Some(1.0));
    daemon.kill();
    assert_eq!(up(), Some(0.0));
    let next = gpu.daemon("");
    until("the next daemon", || up() == Some(1.0));
    next.end();
    exporter.process.signal(Signal::INT);
    exporter.process.finish_untold().expect_success();
}

#[test]
fn a_file_for_node_exporter_is_written_with_a_daemon_and_without() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let file = gpu.path("pillion.prom");
    let path = file.to_str().unwrap().to_owned();
    let write = || gpu.tell(&daemon, &["exporter", "--textfile", &path]);
    assert_eq!(write().expect_success().output, "");
    let page = || std::fs::read_to_string(&file).unwrap();
    assert_eq!(value(&page(), "pillion_daemon_up", &[]), Some(1.0));
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    daemon.signal(Signal::KILL);
    until("the daemon to be gone", || {
        write().expect_success();
        value(&page(), "pillion_daemon_up", &[]) == Some(0.0)
    });
    assert_eq!(value(&page(), "pillion_build_info", &[]), Some(1.0));
    let shown = gpu.tell(&daemon, &["exporter", "--textfile", "-"]);
    assert_eq!(shown.expect_success().output, page());
}

#[test]
fn an_address_or_a_file_that_cannot_be_used_is_named() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let nowhere = gpu.path("none").join("pillion.prom").display().to_string();
    let folder = gpu.path("taken.prom");
    std::fs::create_dir(&folder).unwrap();
    let folder = folder.display().to_string();
    // Listening twice on it fails while this listener lives.
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let held = held.local_addr().map(|address| (address, held)).unwrap();
    for (arguments, code, part) in [
        (["--listen", "nonsense"], 2, "nonsense"),
        (["--listen", &held.0.to_string()], 1, &*held.0.to_string()),
        (["--textfile", &nowhere], 2, &*nowhere),
        (["--textfile", &folder], 2, &*folder),
        (["--textfile", "/dev/full"], 1, "/dev/full"),
    ] {
        let ended = gpu.tell(&daemon, &[&["exporter"][..], &arguments].concat());
        assert_eq!(ended.code(), code, "{ended:#?}");
        assert_eq!(ended.errors.matches(part).count(), 1, "{ended:#?}");
    }
    let both = [
        "exporter",
        "--listen",
        &taken.to_string(),
        "--textfile",
        "-",
    ];
    assert_eq!(gpu.tell(&daemon, &both).code(), 2);
}

/// Where systemd is installed, by its own judgement.
#[test]
fn systemd_understands_the_units_and_finds_little_that_is_open() {
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).output()
    };
    if analyze(&["--version"]).is_err() {
        testing::ignore("no systemd-analyze");
    }
    let folder = tempfile::tempdir().unwrap();
    let units = [
        "pillion-exporter.service",
        "pillion-textfile.service",
        "pillion-textfile.timer",
    ];
    let units = units.map(|name| {
        let shipped = workspace().join("examples/monitoring").join(name);
        let text = std::fs::read_to_string(shipped).unwrap();
        let path = folder.path().join(name);
        let program = pillion().to_str().unwrap();
        std::fs::write(&path, text.replace("/usr/bin/pillion", program)).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let [server, page, timer] = &units;
    let verified = analyze(&["verify", "--man=no", server, page, timer]).unwrap();
    let said = String::from_utf8(verified.stderr).unwrap();
    let is_about_them = |line: &&str| line.contains("pillion-");
    let complaints: Vec<&str> = said.lines().filter(is_about_them).collect();
    assert!(verified.status.success() && complaints.is_empty(), "{said}");
    for unit in [server, page] {
        let judged = analyze(&["security", "--offline=true", "--threshold=40", unit]).unwrap();
        let table = String::from_utf8_lossy(&judged.stdout).into_owned();
        assert!(judged.status.success(), "{table}");
    }
}
