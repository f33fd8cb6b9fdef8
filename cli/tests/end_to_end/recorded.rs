//! Recordings of old builds' packets and pages, byte by byte, against today's daemon and library.
//! `recorded/VERSION` has a recording of the last build of that protocol version, see the README
//! there. An *old library* is played from it: it sends the old packet, and accesses the old pages
//! at their old offsets, which [`layout`] has as numbers and not as today's types. An *old daemon*
//! is played likewise: it answers with the old packet and pages.

mod layout;
mod making;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use protocol::clock::Clock;
use protocol::hello::{JobClass, connect_to, listen_at, receive, send};
use protocol::pages::BellPage;
use protocol::segment::{Access, Mapping, create_sealed};
use serde_json::{Value, json};

use crate::common::{Daemon, Gpu, until};
use crate::peers::accept_and_hear;

use layout::{client, lease};

/// The classes, with the ids of the recorded jobs.
const JOBS: [(JobClass, &str); 2] = [
    (JobClass::HighPriority, "old-hp"),
    (JobClass::BestEffort, "old-be"),
];

fn versions() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/recorded");
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert!(!folders.is_empty());
    folders
}

fn read(folder: &Path, name: &str) -> Value {
    let path = folder.join(format!("{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn bytes_of(hex: &Value) -> Vec<u8> {
    let (pairs, _) = hex.as_str().unwrap().as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(byte).collect()
}

/// An old packet, for today's device.
fn about(packet: &Value, then: &Value, now: &str) -> Vec<u8> {
    let (mut packet, then) = (bytes_of(packet), then.as_str().unwrap().as_bytes());
    if let Some(at) = packet.windows(then.len()).position(|part| part == then) {
        packet[at..at + then.len()].copy_from_slice(now.as_bytes());
    }
    packet
}

fn uuid(daemon: &Daemon) -> String {
    daemon.status()["gpu"]["uuid"].as_str().unwrap().to_owned()
}

struct Words(File);

impl Words {
    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn half(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.0.read_exact_at(&mut bytes, at).unwrap();
        u32::from_le_bytes(bytes)
    }

    fn set(&self, at: u64, value: u64) {
        self.0.write_all_at(&value.to_le_bytes(), at).unwrap();
    }

    fn add(&self, at: u64, by: u64) {
        self.set(at, self.word(at) + by);
    }
}

struct OldClient {
    /// Its end is the client's.
    _connection: OwnedFd,
    then: Value,
    own: Words,
    pages: BTreeMap<&'static str, Words>,
}

impl OldClient {
    fn attach(folder: &Path, daemon: &Daemon, (class, label): (JobClass, &str)) -> Self {
        let then = read(folder, class.name());
        let own = create_sealed("pillion-client", then["client_bytes"].as_u64().unwrap()).unwrap();
        let own = Words(own.into());
        own.set(client::MAGIC, layout::MAGIC);
        let connection = connect_to(daemon.socket()).unwrap();
        let request = about(&then["request"], &then["device"], &uuid(daemon));
        send(&connection, &request, &[own.0.as_fd()]).unwrap();
        let (answer, fds) = receive(&connection).unwrap();
        expect_same_answer(&answer, &bytes_of(&then["answer"]));
        let pages = named(&then, fds);
        daemon.wait_for_clients(label, 1);
        Self {
            _connection: connection,
            then,
            own,
            pages,
        }
    }

    fn page(&self, name: &str) -> &Words {
        &self.pages[name]
    }

    /// Every page exists with its old size, and constant fields have their values at their places.
    fn expect_pages_as_then(&self) {
        for recorded in self.then["pages"].as_array().unwrap() {
            let name = recorded["name"].as_str().unwrap();
            let page = self.page(name);
            let bytes = page.0.metadata().unwrap().len();
            assert!(
                bytes >= recorded["bytes"].as_u64().unwrap(),
                "{name}: {bytes} bytes"
            );
            let then = bytes_of(&recorded["begins"]);
            for field in layout::STEADY.iter().filter(|field| field.page == name) {
                let mut now = vec![0; field.bytes];
                page.0.read_exact_at(&mut now, field.at as u64).unwrap();
                let then = &then[field.at..field.at + field.bytes];
                assert_eq!(now, then, "{} of the page {name}", field.name);
            }
        }
        let heartbeat_ns = self.page("daemon").word(layout::HEARTBEAT_NS);
        let now_ns = Clock::monotonic().now_ns();
        assert!(
            heartbeat_ns > 0 && heartbeat_ns <= now_ns,
            "{heartbeat_ns} of {now_ns}"
        );
    }

    /// Writes all that the old client had written at its end; words that announce it come last.
    fn say_all(&self) {
        let lines = self.then["client"].as_object().unwrap();
        let mut lines: Vec<(u64, Vec<u8>)> = lines
            .iter()
            .map(|(at, line)| (at.parse().unwrap(), bytes_of(line)))
            .collect();
        lines.sort();
        for (at, line) in lines.iter().rev() {
            self.own.0.write_all_at(line, *at).unwrap();
        }
    }

    /// Charges a launch as that library did, if the lease admits it.
    fn try_launch(&self, cost_ns: u64) -> bool {
        let page = self.page("lease");
        let generation = page.word(lease::GENERATION);
        let terms = page.half(lease::TERMS);
        let epoch = self.page("hp").word(0);
        if !generation.is_multiple_of(2) {
            return false;
        }
        let before = page.word(lease::CHARGED_NS);
        self.own.add(client::CHARGED_NS, cost_ns);
        page.set(lease::CHARGED_NS, before + cost_ns);
        let is_ungated = terms & lease::UNGATED != 0;
        let is_live = page.word(lease::EPOCH) == epoch || terms & lease::STANDING != 0;
        let is_in_time = Clock::monotonic().now_ns() < page.word(lease::EXPIRY_NS);
        let is_within = before < page.word(lease::LIMIT_NS);
        let is_same = page.word(lease::GENERATION) == generation;
        if is_ungated || is_same && is_live && is_in_time && is_within {
            return true;
        }
        page.set(lease::CHARGED_NS, page.word(lease::CHARGED_NS) - cost_ns);
        page.add(lease::REFUNDS, 1);
        self.own.set(
            client::CHARGED_NS,
            self.own.word(client::CHARGED_NS) - cost_ns,
        );
        false
    }

    /// Waits at the gate as a thread of that library did, until a launch may go.
    fn launch(&self, cost_ns: u64) {
        let bell = &self.page("bell").0;
        let bell = Mapping::<BellPage>::open(bell, Access::ReadWrite).unwrap();
        self.own
            .0
            .write_all_at(&1_u32.to_le_bytes(), client::WAITING)
            .unwrap();
        until("a lease that admits a launch", || {
            bell.bell.ring_surely(&Clock::monotonic());
            self.try_launch(cost_ns)
        });
        self.own
            .0
            .write_all_at(&0_u32.to_le_bytes(), client::WAITING)
            .unwrap();
    }
}

fn named(then: &Value, fds: Vec<OwnedFd>) -> BTreeMap<&'static str, Words> {
    let names = then["pages"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|page| page["name"].as_str().unwrap()).collect();
    assert_eq!(fds.len(), names.len(), "pages of the answer");
    let known = layout::PAGES.iter().filter(|page| names.contains(page));
    known
        .copied()
        .zip(fds.into_iter().map(|fd| Words(fd.into())))
        .collect()
}

/// Whether an answer is of the same kind, with all old fields at their places. Only the minor
/// version and the client's number may differ; additions follow at the end.
fn expect_same_answer(now: &[u8], then: &[u8]) {
    assert!(now.len() >= then.len(), "{now:?} was {then:?}");
    let same = |range: std::ops::Range<usize>| {
        assert_eq!(now[range.clone()], then[range], "{now:?} was {then:?}")
    };
    same(0..6);
    assert!(now[6..8] >= then[6..8]);
    same(8..9);
    same(17..then.len());
}

// census: J3
#[test]
fn todays_daemon_gives_an_old_library_pages_that_it_can_read() {
    for folder in versions() {
        for job in JOBS {
            let (_gpu, daemon) = Gpu::with_daemon("mps", "");
            let client = OldClient::attach(&folder, &daemon, job);
            client.expect_pages_as_then();
        }
    }
}

// census: J3
#[test]
fn todays_daemon_counts_what_an_old_library_counts() {
    for folder in versions() {
        for job in JOBS {
            let (_gpu, daemon) = Gpu::with_daemon("mps", "");
            let client = OldClient::attach(&folder, &daemon, job);
            client.say_all();
            let then = client.then["totals"].clone();
            // The client had ended when its totals were recorded.
            drop(client);
            let named = daemon.job_when(job.1, "what was counted then", |job| {
                let mut then = then.as_object().unwrap().iter();
                then.all(|(name, count)| job["totals"][name] == *count)
            });
            assert_eq!(named["faults"]["bad_records"], 0, "{named:#}");
        }
    }
}

// census: J3
#[test]
fn an_old_best_effort_library_is_granted_launches_beside_an_old_high_priority_one() {
    const COST_NS: u64 = 1_000;
    for folder in versions() {
        let (_gpu, daemon) = Gpu::with_daemon("mps", "");
        let [hp, be] = JOBS.map(|job| OldClient::attach(&folder, &daemon, job));
        // With a job to protect nothing launches without a lease.
        until("a lease with terms", || {
            be.page("lease").half(lease::TERMS) & lease::UNGATED == 0
        });
        be.launch(COST_NS);
        let in_flight = |job: &Value| job["in_flight_ns"].as_u64();
        daemon.job_when("old-be", "what is in flight", |job| {
            in_flight(job) == Some(COST_NS)
        });
        be.own.add(client::COMPLETED_NS, COST_NS);
        daemon.job_when("old-be", "what is complete", |job| {
            in_flight(job) == Some(0)
        });
        // A high-priority launch voids all leases.
        hp.say_all();
        hp.page("hp").add(0, 1);
        let epoch = hp.page("hp").word(0);
        be.launch(COST_NS);
        assert!(be.page("lease").word(lease::EPOCH) >= epoch);
    }
}

// census: J3
#[test]
fn todays_library_runs_under_an_old_daemon() {
    for folder in versions() {
        for (class, label) in JOBS {
            let gpu = Gpu::start("mps");
            let path = gpu.path("old.sock");
            let listener = listen_at(&path).unwrap();
            let then = read(&folder, class.name());
            let job = gpu.job(label, "work linked 10 0");
            let process = job.under(&path, class).start();
            let (socket, request, own) = accept_and_hear(&listener);
            assert_eq!(request[8], bytes_of(&then["request"])[8], "no attach");
            // Fields unknown to that daemon follow those that it knew.
            let own = Words(own.into_iter().next().unwrap().into());
            assert_eq!(own.0.metadata().unwrap().len(), then["client_bytes"]);
            let pages = then["pages"].as_array().unwrap().iter().map(page_of_then);
            let pages: Vec<OwnedFd> = pages.collect();
            let pages: Vec<BorrowedFd<'_>> = pages.iter().map(AsFd::as_fd).collect();
            send(&socket, &bytes_of(&then["answer"]), &pages).unwrap();
            // The library asks for its program's kept durations, and continues without an answer.
            drop(accept_and_hear(&listener));
            let ended = process.finish().expect_success();
            assert_eq!(ended.errors, "", "{label}");
            let launches = gpu.counts(label)["launches"].as_u64().unwrap();
            assert_eq!(launches, ended.asked("launches"));
            let told = own.word(client::COUNTERS) + client::launches_of_rings(&own);
            assert_eq!(told, launches, "launches that were told to the daemon");
        }
    }
}

fn page_of_then(page: &Value) -> OwnedFd {
    let name = page["name"].as_str().unwrap();
    let fd = create_sealed(name, page["bytes"].as_u64().unwrap()).unwrap();
    let file = File::from(fd);
    file.write_all_at(&bytes_of(&page["begins"]), 0).unwrap();
    if name == "daemon" {
        // The heartbeat: this daemon lives.
        let now_ns = Clock::monotonic().now_ns();
        file.write_all_at(&now_ns.to_le_bytes(), layout::HEARTBEAT_NS)
            .unwrap();
    }
    file.into()
}

// census: J3
#[test]
fn todays_daemon_answers_what_old_tools_ask_as_it_did() {
    for folder in versions() {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        let job = gpu.job(making::ASKED, "steady").best_effort(&daemon);
        let _job = job.start_until("round");
        let then = read(&folder, "requests");
        for asked in then["requests"].as_array().unwrap() {
            let request = about(&asked["request"], &then["device"], &uuid(&daemon));
            let now = making::answer(&daemon, &request);
            let name = &asked["name"];
            assert_eq!(now["kind"], asked["kind"], "{name}: {now} was {asked}");
            let keys = asked["keys"].as_array().into_iter().flatten();
            for key in keys {
                assert!(
                    now["keys"].as_array().unwrap().contains(key),
                    "{name}: {key}"
                );
            }
        }
    }
}
