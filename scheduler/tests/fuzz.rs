//! The daemon's readers on hostile input: packets, records in rings, words in pages, and its
//! configuration. Each is read or rejected, never with a panic, and the daemon continues to serve
//! others.
//! `fuzzing` has the mutations, seeds and times, which test the readers of profiles, too.

#[path = "../../profiler/import/tests/fuzzing/mod.rs"]
mod fuzzing;

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuzzing::{Random, finds, try_broken};
use profiler::Profile;
use protocol::clock::Clock;
use protocol::hello::{
    Attach, Ending, JobClass, LearntOf, MemoryIs, MemoryOf, Reply, Request, Set, Stop, ask_learnt,
    ask_learnt_list, ask_status, connect_to, receive, send,
};
use protocol::notebook::{Notebook, TEXT_BYTES_MAX};
use protocol::pages::ClientPage;
use protocol::record::{Begin, End, Launch, Record};
use protocol::segment::{client_page, create_sealed};
use scheduler::config::ConfigError;
use scheduler::daemon::{DaemonError, Stopper};
use scheduler::faults::mps::Follower;
use scheduler::{Config, Daemon, Gpu};
use tempfile::TempDir;

const UUID: &str = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";

/// Pieces of packets: the magic, versions, kinds, excessive lengths, invalid text.
const PACKET_WORDS: [&[u8]; 12] = [
    b"PLN1",
    b"\x02\0\x01\0",
    b"\x02\0\xff\xff",
    b"\x03\0\0\0",
    b"\0\0",
    b"\xff\xff",
    b"\x00\x01",
    b"\x01\x01",
    b"\xc3\x28",
    b"40%",
    b"unlimited",
    b"\x0a",
];

const CONFIG_WORDS: [&[u8]; 24] = [
    b"[high_priority]\n",
    b"[limits]\n",
    b"[[memory.rules]]\n",
    b"[jobs.x]\n",
    b"[gpu]\n",
    b"users = [\"root\", \"0\"]\n",
    b"clients_per_user = 9223372036854775807\n",
    b"name = \"pillion\"\n",
    b"slo_p99 = \"1e308x\"\n",
    b"nan",
    b"-inf",
    b"0x7fffffffffffffff",
    b"\"\"\"",
    b"'''",
    b"{",
    b"}",
    b"[",
    b"]",
    b" = ",
    b"\xff\xfe",
    b"\0",
    b"1979-05-27T07:32:00Z",
    b"#",
    "\u{10ffff}\u{202e}".as_bytes(),
];

const NOTE_WORDS: [&[u8]; 14] = [
    b"[[kernel]]\n",
    b"[measured]\n",
    b"[requests]\n",
    b"name = \"\"\n",
    b"mangled = \"a\"\n",
    b"count = 9223372036854775807\n",
    b"sms = 0\n",
    b"{ sum = 1, median = 1, p95 = 1 }",
    b"[0, 0, 0]",
    b"\\u0000",
    b"\"\"\"",
    b"\xff\xfe",
    b"# learnt {\"program\":\"/x\"}\n",
    "\u{2028}".as_bytes(),
];

fn packets() -> Vec<Vec<u8>> {
    let attach = |class, job: &str, device: &str, memory: Option<&str>| {
        Request::Attach(Attach {
            class,
            job: job.to_owned(),
            name: "python3".to_owned(),
            profile: "/srv/profiles/resnet50.toml".to_owned(),
            profile_fit: "scaled from T4 to V100-SXM2-16GB".to_owned(),
            device: device.to_owned(),
            memory: memory.map(str::to_owned),
            slot: memory.map(|_| 3),
            falls_with_parent: memory.is_some(),
            is_on_mps: memory.map(|_| true),
            slo: "1.2x".to_owned(),
            compute: "30%".to_owned(),
            restartable: "70".to_owned(),
        })
    };
    let job = || "1234-train".to_owned();
    let of = MemoryOf {
        class: JobClass::BestEffort,
        job: job(),
        memory: "10GiB".to_owned(),
        device: UUID.to_owned(),
    };
    let requests = [
        attach(JobClass::HighPriority, "serve", UUID, Some("")),
        attach(JobClass::BestEffort, "1234-train", UUID, Some("40%")),
        attach(JobClass::BestEffort, "", "", None),
        Request::Status,
        Request::Events { since: 7 },
        Request::Set(Set {
            job: job(),
            memory: "8GiB".to_owned(),
            slo: "1.2x".to_owned(),
            compute: "30%".to_owned(),
            weight: "3".to_owned(),
            min_progress: "0.3".to_owned(),
        }),
        Request::Stop(Stop {
            job: job(),
            user: Some(1000),
        }),
        Request::Ending(Ending {
            job: job(),
            user: None,
            within_ns: 30_000_000_000,
            is_over: false,
        }),
        Request::Resume { job: job() },
        Request::Resume { job: String::new() },
        Request::Drain { is_release: true },
        Request::Memory(of),
        Request::Learnt(learnt_of("/srv/train.py")),
        Request::LearntList,
    ];
    let mut packets: Vec<Vec<u8>> = requests.iter().map(Request::encode).collect();
    for minor in [0, 1] {
        let mut older = packets[0].clone();
        older[6] = minor;
        packets.push(older);
    }
    packets
}

fn learnt_of(program: &str) -> LearntOf {
    LearntOf {
        program: program.to_owned(),
        device: UUID.to_owned(),
        user: None,
    }
}

fn replies() -> Vec<Vec<u8>> {
    let welcome = Reply::Welcome {
        client: 7,
        slot: Some(3),
        class: Some(JobClass::BestEffort),
    };
    let memory = Reply::Memory(MemoryIs {
        quota_bytes: 1 << 33,
        held_bytes: 5,
        pids: vec![7, 8, 9],
    });
    let reason = "256 clients are attached, the limit".to_owned();
    let learnt = Reply::Learnt { is_known: true };
    let replies = [
        welcome,
        Reply::Done,
        memory,
        learnt,
        Reply::Refused { reason },
    ];
    replies.iter().map(Reply::encode).collect()
}

/// A decoded packet is encoded and decoded again to the same: nothing is invented or lost.
fn read_packet(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(Request::decode(&request.encode()).expect("ours"), request);
    }
    if let Ok(reply) = Reply::decode(bytes) {
        assert_eq!(Reply::decode(&reply.encode()).expect("ours"), reply);
    }
}

fn read_config(bytes: &[u8]) {
    let path = Path::new("gpu0.toml");
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Config::check(path, text) {
        // A valid text means the same at every reading.
        Ok(config) => assert_eq!(Config::check(path, text).ok(), Some(config)),
        Err(ConfigError::Invalid(faults)) => {
            assert!(!faults.is_empty());
            for fault in faults {
                let line = fault.to_string();
                assert!(
                    line.starts_with("gpu0.toml:") && !line.contains('\n'),
                    "{line:?}"
                );
            }
        }
        Err(other) => panic!("{other}"),
    }
}

/// A daemon in this process, until dropped, which fails if a thread of it panicked.
struct Running {
    folder: TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
}

impl Running {
    fn new(sections: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = format!(
            "[gpu]\nindex = 0\nsharing = \"mps\"\n[learnt]\nkeep = true\nfolder = {:?}\n{sections}",
            folder.path().join("state")
        );
        let config = Config::check(Path::new("gpu0.toml"), &text).expect("it is right");
        let gpu = Gpu {
            uuid: UUID.to_owned(),
            name: "V100-SXM2-16GB".to_owned(),
            pci: "0000:04:00.0".parse().expect("it is one"),
            sms: 80,
            memory_bytes: 16 << 30,
            cuda_driver: 12_080,
            block_priority: None,
        };
        let socket = folder.path().join("gpu.sock");
        let daemon = Daemon::start(&config, gpu, &socket, Clock::process()).expect("it starts");
        Self {
            folder,
            stopper: daemon.stopper(),
            thread: Some(thread::spawn(|| daemon.run())),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("gpu.sock")
    }

    fn check(&self) {
        let status = ask_status(&self.socket()).expect("it answers");
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        assert_eq!(status["gpu"]["uuid"], UUID);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            assert!(matches!(ended, Some(Ok(Ok(())))), "{ended:?}");
        }
    }
}

/// A random conversation of some packets, each whole or broken, sometimes with descriptors.
fn talk(running: &Running, bytes: &[u8], held: &Mutex<Vec<OwnedFd>>, random: &mut Random) {
    let connection = connect_to(&running.socket()).expect("it listens");
    let memory = create_sealed("pillion-fuzz", 4096).expect("room");
    let file = std::fs::File::open("/dev/null").expect("there");
    for _ in 0..=random.below(3) {
        let fds = [memory.as_fd(), file.as_fd()];
        let fds = &fds[..random.below(3)];
        // It may have hung up, or refuse descriptors.
        let _ = send(&connection, bytes, fds);
    }
    match random.below(4) {
        0 => {}
        // Some stay for a while: clients, silent ones, and some that never read.
        1 => {
            let mut held = held.lock().expect("nobody panics with it");
            held.push(connection);
            if held.len() > 40 {
                let place = random.below(40);
                held.swap_remove(place);
            }
            return;
        }
        _ => {
            rustix::net::shutdown(&connection, rustix::net::Shutdown::Write).expect("open");
            while let Ok((packet, _)) = receive(&connection) {
                if packet.is_empty() {
                    break;
                }
            }
        }
    }
    drop(connection);
}

/// A client's connection and pages: the shared ones, its own, a best-effort one's lease, and its
/// job's ledger as long as this process gets one (there is a bound, because the process lives on).
fn pages_of(running: &Running, class: JobClass) -> (OwnedFd, Vec<OwnedFd>) {
    for memory in [Some("1GiB".to_owned()), None] {
        let connection = connect_to(&running.socket()).expect("it listens");
        let attach = Request::Attach(Attach {
            class,
            job: "fuzz".to_owned(),
            name: "fuzz".to_owned(),
            device: UUID.to_owned(),
            memory,
            ..Attach::default()
        });
        let (page, _mapping) = client_page(&Clock::process()).expect("room");
        send(&connection, &attach.encode(), &[page.as_fd()]).expect("it reads");
        let (reply, mut pages) = receive(&connection).expect("it answers");
        match Reply::decode(&reply).expect("it makes sense") {
            Reply::Welcome { .. } => {
                pages.insert(3, page);
                return (connection, pages);
            }
            Reply::Refused { reason } => assert!(reason.contains("hold memory"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    panic!("without an account there is no bound but that of clients")
}

fn records() -> Vec<Vec<u8>> {
    let launch = |stream, seq| {
        Record::Launch(Launch {
            stream,
            seq,
            kernel: 1,
            expected_ns: 60_000,
            sm_needed: 40,
            class: 1,
            at_ns: 0,
        })
    };
    let records = [
        launch(0, 1),
        launch(7, u64::MAX),
        Record::Complete {
            stream: 0,
            seq: 1,
            at_ns: 0,
        },
        Record::Begin(Begin {
            id: 1,
            kind: 2,
            batch: 4,
            arrived_ns: 5,
            at_ns: 7,
            is_nvtx: false,
        }),
        Record::End(End {
            id: 1,
            at_ns: 9,
            is_cancelled: true,
            with_launches: false,
        }),
        Record::Target {
            kind: 2,
            ns: 15_000_000,
            per_mille: 990,
        },
    ];
    let bytes = |record: &Record| {
        record
            .encode()
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect()
    };
    records.iter().map(bytes).collect()
}

/// Writes `bytes` into pages of an attached client: at a ring, at a counter, or anywhere.
fn scribble(running: &Running, bytes: &[u8], random: &mut Random) {
    let class = [JobClass::HighPriority, JobClass::BestEffort][random.below(2)];
    let (connection, pages) = pages_of(running, class);
    for _ in 0..20 {
        let page = &pages[random.below(pages.len())];
        let size = rustix::fs::fstat(page).expect("open").st_size as usize;
        let rings = std::mem::offset_of!(ClientPage, rings);
        let at = match random.below(3) {
            0 => random.below(size),
            1 => rings.min(size) + 8 * random.below(300),
            _ => 8 * random.below(512),
        };
        // Writes to read-only pages fail.
        let _ = rustix::io::pwrite(page, bytes, at as u64);
        if class == JobClass::HighPriority {
            // Claim the first ring and fill it, so that its content is read.
            let owner = std::mem::offset_of!(ClientPage, ring_owner);
            let _ = rustix::io::pwrite(&pages[3], &1_u32.to_ne_bytes(), owner as u64);
            let tail = random.below(4).to_ne_bytes();
            let _ = rustix::io::pwrite(&pages[3], &tail, rings as u64);
        }
        if random.below(8) == 0 {
            running.check();
        }
    }
    drop(connection);
}

#[test]
fn what_failed_once_never_does_again() {
    let running = Running::new("");
    let held = Mutex::default();
    for (name, bytes) in finds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/finds")) {
        println!("{name}");
        read_packet(&bytes);
        read_config(&bytes);
        for seed in 1..20 {
            talk(&running, &bytes, &held, &mut Random::of(seed));
            scribble(&running, &bytes, &mut Random::of(seed));
        }
    }
    running.check();
}

#[test]
fn the_hello() {
    let corpus = [packets(), replies()].concat();
    try_broken("hello", &corpus, &PACKET_WORDS, |bytes, _| {
        read_packet(bytes)
    });
}

#[test]
fn requests_at_the_socket() {
    let running =
        Running::new("[high_priority]\nusers = [\"1\"]\n[limits]\nclients_per_user = 64\n");
    let held = Mutex::default();
    let mut talks = 0_u32;
    try_broken("socket", &packets(), &PACKET_WORDS, |bytes, random| {
        talk(&running, bytes, &held, random);
        talks += 1;
        if talks.is_multiple_of(64) {
            running.check();
        }
    });
    running.check();
}

#[test]
fn records_and_words_in_pages() {
    let running = Running::new("");
    try_broken(
        "pages",
        &records(),
        &[
            &[0; 8],
            &[0xff; 8],
            &[0x7f; 8],
            &[0, 0, 0, 0, 0, 0, 0, 0x80],
        ],
        |bytes, random| {
            let mut words = bytes
                .chunks_exact(8)
                .map(|word| u64::from_ne_bytes(word.try_into().expect("eight")));
            let record = core::array::from_fn(|_| words.next().unwrap_or(0));
            if let Ok(read) = Record::decode(&record) {
                assert_eq!(Record::decode(&read.encode()), Ok(read));
            }
            scribble(&running, bytes, random);
        },
    );
    running.check();
}

fn notes() -> Vec<Vec<u8>> {
    let head = "format = \"pillion-profile\"\nversion = 2\ngpu = \"V100-SXM2-16GB\"\n\
                sources = []\n\n[measured]\nsms = 80\n";
    let kernel = |name: &str| {
        format!(
            "\n[[kernel]]\nname = \"{name}\"\nmangled = \"_Z{name}\"\n\
             operator = {{ name = \"gemm\", sizes = [1, 2, 3], batch = 4 }}\n\
             grid = [8, 1, 1]\nblock = [128, 1, 1]\nshared_bytes = 0\ncount = 7\n\
             duration_ns = {{ sum = 700, median = 90, p95 = 120 }}\nregisters = 32\n\
             sm_needed = 8\nclass = \"unknown\"\nclass_rule = \"unknown\"\n"
        )
    };
    let many: String = (0..60).map(|n| kernel(&format!("k{n}"))).collect();
    let texts = [
        head.to_owned(),
        format!("{head}{}", kernel("a")),
        format!("{head}{many}"),
    ];
    texts.map(String::into_bytes).to_vec()
}

/// A process that notes `bytes`, or has them somewhere in its notebook, and ends. The saved text of
/// its program is always a valid profile.
fn note(running: &Running, bytes: &[u8], random: &mut Random) {
    let (file, mut notebook) = Notebook::create().expect("room");
    for _ in 0..=random.below(3) {
        notebook.write(bytes);
    }
    for _ in 0..random.below(3) {
        // The head of a half, or anywhere.
        let at = [random.below(32), random.below(TEXT_BYTES_MAX)][random.below(2)];
        let half = random.below(2) * (TEXT_BYTES_MAX + 24);
        let word = random.next().to_le_bytes();
        rustix::io::pwrite(&file, &word, (at + half) as u64).expect("it is its own");
    }
    let programs = ["/srv/train.py", "/srv/\"odd\".py", " ", "a\nb", ""];
    let of = learnt_of(programs[random.below(programs.len())]);
    let connection = connect_to(&running.socket()).expect("it listens");
    let notebook = (random.below(8) != 0).then(|| file.as_fd());
    let kept = ask_learnt(&connection, &of, notebook).expect("it answers");
    if let Some(kept) = kept {
        // A file on the daemon's disk has no seals.
        let seals = rustix::fs::fcntl_get_seals(&kept).expect("it is a memory file");
        assert!(seals.contains(rustix::fs::SealFlags::WRITE), "{seals:?}");
        let mut text = String::new();
        std::fs::File::from(kept)
            .read_to_string(&mut text)
            .expect("it is text");
        let profile = Profile::parse(&text, Path::new("kept")).expect("it is a profile");
        assert_eq!(profile.sources, [of.program]);
    }
}

#[test]
fn notebooks() {
    let running = Running::new("");
    let mut notes_read = 0_u32;
    try_broken("notebooks", &notes(), &NOTE_WORDS, |bytes, random| {
        note(&running, bytes, random);
        notes_read += 1;
        if notes_read.is_multiple_of(64) {
            running.check();
        }
    });
    for whole in notes() {
        note(&running, &whole, &mut Random::of(1));
    }
    let (file, mut notebook) = Notebook::create().expect("room");
    assert!(notebook.write(&notes()[1]));
    let of = learnt_of("/srv/last.py");
    let connection = connect_to(&running.socket()).expect("it listens");
    ask_learnt(&connection, &of, Some(file.as_fd())).expect("it answers");
    drop(connection);
    let connection = connect_to(&running.socket()).expect("it listens");
    // The answer follows the saving of the previous note.
    let kept = ask_learnt(&connection, &of, None).expect("it answers");
    assert!(kept.is_some());
    let list = ask_learnt_list(&running.socket(), Duration::from_secs(10)).expect("it answers");
    let list: serde_json::Value = serde_json::from_str(&list).expect("it is JSON");
    let programs = list["programs"].as_array().expect("a list");
    let names = programs.iter().map(|listed| listed["program"].as_str());
    let names: Vec<&str> = names.flatten().collect();
    assert!(
        names.contains(&"/srv/last.py") && names.len() <= 3,
        "{list}"
    );
    running.check();
}

#[test]
fn logs_of_mps() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("control.log");
    let mut follower = Follower::new(&path);
    let corpus = [
        "[2024-04-29 11:22:10.441 Control    73] Server encountered a fatal exception. Shutting down\n",
        "[2024-04-29 11:22:10.446 Control    73] Server 95 exited with status 1\n",
        "Legacy Server   425] Failed to start : invalid argument\nServer 95 exited with status 0\r\n",
        "User did not send valid credentials\n",
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec());
    let words: [&[u8]; 6] = [
        b"\n",
        b"\0",
        b"\xff\xc3",
        b"exited with status ",
        b"fatal gpu error",
        b"valid",
    ];
    try_broken("mps", &corpus, &words, |bytes, random| {
        let append = |bytes: &[u8]| {
            let file = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path);
            file.and_then(|mut file| file.write_all(bytes))
                .expect("room");
        };
        match random.below(8) {
            0 => std::fs::write(&path, bytes).expect("room"),
            1 => {
                let _ = std::fs::remove_file(&path);
            }
            2 => append(&bytes.repeat(64)),
            _ => append(bytes),
        }
        let found = follower.poll(&["valid".to_owned()]);
        assert!(found.len() <= 64, "{}", found.len());
        for line in found {
            // Invalid text takes three bytes for each.
            assert!(line.len() <= 3 * 1024 && !line.contains('\n'), "{line:?}");
        }
        assert_eq!(follower.take_trouble(), None);
    });
}

#[test]
fn the_configuration() {
    let example = include_str!("../../examples/gpu0.toml");
    let whole: String = example
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.contains(" = ") || key.starts_with('[') => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let least = "[gpu]\nindex = 0\nsharing = \"timeslice\"\n";
    let corpus = [example, &whole, least].map(|text| text.as_bytes().to_vec());
    try_broken("config", &corpus, &CONFIG_WORDS, |bytes, _| {
        read_config(bytes)
    });
}
