//! Makes a recording of this build, against which later builds are tested: see `3.9/README.md`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use protocol::hello::{Ending, LearntOf, MemoryOf, Request, Set, Stop, peer_version, program_key};

use super::*;

pub(super) const ASKED: &str = "asked";
/// Least number of bytes recorded of each page: all of the small ones.
const PAGE_BYTES: usize = 128;
/// A line of the client's page.
const LINE_BYTES: usize = 64;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_recording_of_this_build_is_made_where_one_is_asked_for() {
    let Some(folder) = std::env::var_os("PILLION_TEST_RECORD") else {
        testing::ignore("PILLION_TEST_RECORD names no folder to record to");
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).unwrap();
    let write = |name: &str, recorded: Value| {
        let text = format!("{recorded:#}\n");
        fs::write(folder.join(format!("{name}.json")), text).unwrap();
    };
    for job in JOBS {
        write(job.0.name(), attached(job));
    }
    write("requests", asked());
}

fn attached((class, label): (JobClass, &str)) -> Value {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let path = gpu.path("relay.sock");
    let listener = listen_at(&path).unwrap();
    let job = gpu.job(label, "work linked 10 0");
    let process = job.under(&path, class).without_profile().start();
    let (to_client, request, own) = accept_and_hear(&listener);
    let to_daemon = connect_to(daemon.socket()).unwrap();
    let lent = |fds: &[OwnedFd], to: &OwnedFd, packet: &[u8]| {
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        send(to, packet, &fds).unwrap();
    };
    lent(&own, &to_daemon, &request);
    let (answer, pages) = receive(&to_daemon).unwrap();
    let names = layout::PAGES.into_iter();
    let names = names.filter(|name| *name != "lease" || class == JobClass::BestEffort);
    let begins: Vec<Value> = names
        .zip(&pages)
        .map(|(name, fd)| begin_of(name, fd))
        .collect();
    assert_eq!(begins.len(), pages.len());
    lent(&pages, &to_client, &answer);
    drop(accept_and_hear(&listener));
    process.finish().expect_success();
    let own = File::from(own.into_iter().next().unwrap());
    let client = lines_of(&own);
    let device = uuid(&daemon);
    drop((to_client, to_daemon));
    let mut totals = daemon.totals(label);
    // This counter depends on when records arrive; a played client sends all at once.
    totals.as_object_mut().unwrap().remove("requests_inferred");
    json!({
        "device": device,
        "request": hex(&request),
        "answer": hex(&answer),
        "pages": begins,
        "client_bytes": own.metadata().unwrap().len(),
        "client": client,
        "totals": totals,
    })
}

fn begin_of(name: &str, fd: &OwnedFd) -> Value {
    let file = File::from(fd.try_clone().unwrap());
    let bytes = file.metadata().unwrap().len();
    let mut begin = vec![0; PAGE_BYTES.min(bytes as usize)];
    file.read_exact_at(&mut begin, 0).unwrap();
    json!({"name": name, "bytes": bytes, "begins": hex(&begin)})
}

/// The non-empty lines of a client's page, by offset.
fn lines_of(page: &File) -> Value {
    let mut bytes = vec![0; page.metadata().unwrap().len() as usize];
    page.read_exact_at(&mut bytes, 0).unwrap();
    let lines = bytes.chunks(LINE_BYTES).enumerate();
    let lines = lines.filter(|(_, line)| line.iter().any(|byte| *byte != 0));
    lines
        .map(|(index, line)| ((index * LINE_BYTES).to_string(), hex(line)))
        .collect()
}

/// Every request of `pillion`, and the kind of its answer. The last ones end the job.
fn asked() -> Value {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job(ASKED, "steady").best_effort(&daemon);
    let _job = job.start_until("round");
    let device = uuid(&daemon);
    let requests: Vec<Value> = requests(&device)
        .into_iter()
        .map(|(name, request)| {
            let request = request.encode();
            let mut recorded = answer(&daemon, &request);
            recorded["name"] = name.into();
            recorded["request"] = hex(&request).into();
            recorded
        })
        .collect();
    json!({"device": device, "requests": requests})
}

fn requests(device: &str) -> Vec<(&'static str, Request)> {
    let (job, device) = (ASKED.to_owned(), device.to_owned());
    let user = None;
    let memory = MemoryOf {
        class: JobClass::BestEffort,
        job: job.clone(),
        memory: String::new(),
        device: device.clone(),
    };
    let learnt = LearntOf {
        program: program_key("no-such-program"),
        device,
        user,
    };
    let ending = Ending {
        job: job.clone(),
        user,
        within_ns: 1_000_000_000,
        is_over: false,
    };
    let length_ns = 1_000_000;
    let (since, is_release) = (0, false);
    let first = [
        ("status", Request::Status),
        ("events", Request::Events { since }),
        ("memory", Request::Memory(memory)),
        ("learnt", Request::Learnt(learnt)),
        ("learnt list", Request::LearntList),
        ("trace", Request::Trace { length_ns }),
    ];
    let last = [
        ("drain", Request::Drain { is_release }),
        ("resume", Request::Resume { job: String::new() }),
        ("ending", Request::Ending(ending)),
        ("stop", Request::Stop(Stop { job, user })),
    ];
    first.into_iter().chain(changes()).chain(last).collect()
}

fn changes() -> impl Iterator<Item = (&'static str, Request)> {
    let set = || Set {
        job: ASKED.to_owned(),
        ..Set::default()
    };
    let word = str::to_owned;
    [
        (
            "set memory",
            Set {
                memory: word("40%"),
                ..set()
            },
        ),
        (
            "set compute",
            Set {
                compute: word("50%"),
                ..set()
            },
        ),
        (
            "set weight",
            Set {
                weight: word("2"),
                ..set()
            },
        ),
        (
            "set slo",
            Set {
                slo: word("15ms"),
                ..set()
            },
        ),
    ]
    .map(|(name, set)| (name, Request::Set(set)))
    .into_iter()
}

/// The daemon's answer to a packet: the kind of its reply, or the fields of a document.
pub(super) fn answer(daemon: &Daemon, request: &[u8]) -> Value {
    let connection = connect_to(daemon.socket()).unwrap();
    send(&connection, request, &[]).unwrap();
    let (packet, _) = receive(&connection).unwrap();
    if peer_version(&packet).is_some() {
        return json!({"kind": packet[8].to_string()});
    }
    let mut text = packet;
    loop {
        let (packet, _) = receive(&connection).unwrap();
        if packet.is_empty() {
            break;
        }
        text.extend(packet);
    }
    let document: Value = serde_json::from_slice(&text).unwrap();
    let keys = document
        .as_object()
        .map(|it| it.keys().cloned().collect::<Vec<_>>());
    json!({"kind": "document", "keys": keys})
}
