//! Several users at one daemon, some of whom exceed their share. Threads with other user ids, which
//! only root may assume, simulate them; otherwise the tests report that they show nothing.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use protocol::clock::Clock;
use protocol::hello::{
    Attach, JobClass, Reply, Request, Set, Stop, ask_status, connect_to, receive, send,
};
use protocol::pages::{ClientPage, Counter, HpPage};
use protocol::segment::{Access, Mapping, client_page, create_sealed};
use protocol::sync::Ordering;
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::Value;

use crate::play::{Client, Running, UUID, attach, pause};

const ANNE: u32 = 61_001;
const BOB: u32 = 61_002;
const GROUP: u32 = 61_044;

fn can_be_others() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not shown: only root can be other users");
    }
    is_root
}

/// Runs `find` as a process of that user, in these groups.
fn as_user<T: Send>(uid: u32, groups: &[u32], find: impl FnOnce() -> T + Send) -> T {
    let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_thread_groups(&groups).unwrap();
            let (gid, uid) = (Gid::from_raw(uid), Uid::from_raw(uid));
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            find()
        });
        thread.join().unwrap()
    })
}

fn request(class: JobClass, job: &str) -> Request {
    Request::Attach(Attach {
        class,
        job: job.to_owned(),
        name: format!("{job}-program"),
        profile: format!("/{job}/profile.toml"),
        profile_fit: format!("{job}-fit"),
        device: UUID.to_owned(),
        memory: Some(String::new()),
        ..Attach::default()
    })
}

fn page() -> OwnedFd {
    client_page(&Clock::process()).unwrap().0
}

fn ask(socket: &Path, packet: &[u8]) -> (Reply, Vec<OwnedFd>, OwnedFd) {
    let connection = connect_to(socket).unwrap();
    send(&connection, packet, &[page().as_fd()]).unwrap();
    let (packet, fds) = receive(&connection).unwrap();
    (Reply::decode(&packet).unwrap(), fds, connection)
}

fn try_attach(socket: &Path, class: JobClass, job: &str) -> Result<(JobClass, OwnedFd), String> {
    match ask(socket, &request(class, job).encode()) {
        (Reply::Welcome { class, .. }, fds, connection) => {
            let class = class.expect("this daemon says it");
            let access = Mapping::<HpPage>::open(&fds[1], Access::ReadWrite);
            assert_eq!(access.is_ok(), class == HighPriority);
            Ok((class, connection))
        }
        (Reply::Refused { reason }, ..) => Err(reason),
        (other, ..) => panic!("{other:?}"),
    }
}

fn class_given(socket: &Path, class: JobClass) -> JobClass {
    try_attach(socket, class, "job").unwrap().0
}

fn status(socket: &Path) -> Value {
    serde_json::from_str(&ask_status(socket).unwrap()).unwrap()
}

use JobClass::{BestEffort, HighPriority};

#[test]
fn only_whom_the_operator_names_is_high_priority_and_everybody_else_best_effort() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all(&format!(
        "[high_priority]\nusers = [\"{ANNE}\"]\ngroups = [\"{GROUP}\"]\n"
    ));
    let socket = running.socket();
    let given = |uid, groups: &[u32], asked| as_user(uid, groups, || class_given(&socket, asked));
    assert_eq!(given(ANNE, &[], HighPriority), HighPriority);
    assert_eq!(given(ANNE, &[], BestEffort), BestEffort);
    assert_eq!(given(BOB, &[5], HighPriority), BestEffort);
    assert_eq!(given(BOB, &[5, GROUP], HighPriority), HighPriority);
    assert_eq!(class_given(&socket, HighPriority), BestEffort);
}

#[test]
fn a_cgroup_may_be_high_priority_with_all_below_it() {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own
        .lines()
        .next()
        .unwrap()
        .splitn(3, ':')
        .nth(2)
        .unwrap()
        .to_owned();
    for (cgroup, expected) in [(own.as_str(), HighPriority), ("/none/such", BestEffort)] {
        let running = Running::open_to_all(&format!("[high_priority]\ncgroups = [{cgroup:?}]\n"));
        assert_eq!(
            class_given(&running.socket(), HighPriority),
            expected,
            "{cgroup}"
        );
    }
}

#[test]
fn who_may_not_be_high_priority_is_shown_so_and_not_protected() {
    let running = Running::open_to_all("[high_priority]\nusers = []\n");
    let (class, _connection) = try_attach(&running.socket(), HighPriority, "serve").unwrap();
    assert_eq!(class, BestEffort);
    let status = running.status();
    assert_eq!(status["hp"]["present"], false);
    let job = &status["jobs"][0];
    assert_eq!(job["class"], "best-effort");
    assert_eq!(job["clients"][0]["denied"], "high-priority");
    assert_eq!(job["memory"]["quota_bytes"], (16_u64 << 30) * 4 / 10);
}

#[test]
fn a_client_that_brings_no_page_is_given_one_and_with_another_file_it_is_refused() {
    let running = Running::open_to_all("");
    let packet = request(BestEffort, "train").encode();
    let answer = |fds: &[BorrowedFd<'_>]| {
        let connection = connect_to(&running.socket()).unwrap();
        send(&connection, &packet, fds).unwrap();
        let (packet, fds) = receive(&connection).unwrap();
        (Reply::decode(&packet).unwrap(), fds, connection)
    };
    let (_, fds, _connection) = answer(&[]);
    let page = Mapping::<ClientPage>::open_from_peer(fds.last().unwrap()).unwrap();
    page.count(Counter::Launches, 7);
    assert_eq!(running.status()["jobs"][0]["totals"]["launches"], 7);
    let file = create_sealed("small", 4096).unwrap();
    let (Reply::Refused { reason }, ..) = answer(&[file.as_fd()]) else {
        panic!("it is no client")
    };
    let expected =
        "the client's shared memory cannot be used: not shared memory of Pillion: 4096 bytes";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn nobody_is_told_a_name_of_another_users_job_by_status_set_or_stop() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("");
    let socket = running.socket();
    let attach = |class, job: &'static str| try_attach(&socket, class, job).unwrap().1;
    let _hp = as_user(ANNE, &[], || attach(HighPriority, "secret-serve"));
    let _be = as_user(ANNE, &[], || attach(BestEffort, "secret-train"));
    running.status_when(|status| status["hp"]["present"] == true);
    let told = as_user(BOB, &[], || status(&socket));
    assert!(!told.to_string().contains("secret"), "{told}");
    assert_eq!(
        (&told["hp"]["present"], &told["others"]["best_effort"]),
        (&true.into(), &1.into())
    );
    let refusal = |job: &str, request: fn(String) -> Request| {
        let packet = request(job.to_owned()).encode();
        match as_user(BOB, &[], || ask(&socket, &packet).0) {
            Reply::Refused { reason } => reason.replace(job, "JOB"),
            other => panic!("{other:?}"),
        }
    };
    fn change(job: String, memory: &str, slo: &str, compute: &str) -> Request {
        let [memory, slo, compute] = [memory, slo, compute].map(str::to_owned);
        Request::Set(Set {
            job,
            memory,
            slo,
            compute,
            ..Set::default()
        })
    }
    let set = |job| change(job, "1GiB", "", "");
    let set_slo = |job| change(job, "", "2x", "");
    let set_cap = |job| change(job, "", "", "30%");
    let stop = |job| Request::Stop(Stop { job, user: None });
    // The same text for existing and missing jobs.
    assert_eq!(refusal("secret-train", set), refusal("none-such", set));
    assert_eq!(
        refusal("secret-serve", set_slo),
        refusal("none-such", set_slo)
    );
    assert_eq!(
        refusal("secret-train", set_cap),
        refusal("none-such", set_cap)
    );
    assert_eq!(refusal("secret-train", stop), refusal("none-such", stop));
    for told in [as_user(ANNE, &[], || status(&socket)), status(&socket)] {
        assert_eq!(
            told["jobs"][1]["clients"][0]["name"],
            "secret-train-program"
        );
    }
    let packet = set("secret-train".to_owned()).encode();
    assert_eq!(as_user(ANNE, &[], || ask(&socket, &packet).0), Reply::Done);
}

#[test]
fn only_root_and_the_daemons_user_drain_a_gpu_release_it_and_resume_it() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("");
    let socket = running.socket();
    let resume = Request::Resume { job: String::new() };
    let [drain, release] = [false, true].map(|is_release| Request::Drain { is_release });
    for request in [&drain, &release, &resume] {
        let packet = request.encode();
        match as_user(BOB, &[], || ask(&socket, &packet).0) {
            Reply::Refused { reason } => assert!(reason.starts_with("only root"), "{reason}"),
            other => panic!("{other:?}"),
        }
        let told = status(&socket);
        assert!(
            told["draining"].is_null() && told["gpu"]["released"].is_null(),
            "{told}"
        );
    }
    for request in [drain, release, resume] {
        assert_eq!(ask(&socket, &request.encode()).0, Reply::Done);
    }
}

#[test]
fn only_root_and_the_daemons_user_promise_a_job_a_weight_or_a_share() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("");
    let socket = running.socket();
    let _be = as_user(ANNE, &[], || attach(&socket, BestEffort, "train"));
    let set = |weight: &str, min_progress: &str| {
        let [job, weight, min_progress] = ["train", weight, min_progress].map(str::to_owned);
        let packet = Request::Set(Set {
            job,
            weight,
            min_progress,
            ..Set::default()
        });
        move |socket: &Path| match ask(socket, &packet.encode()).0 {
            Reply::Refused { reason } => reason,
            other => panic!("{other:?}"),
        }
    };
    for request in [set("3", ""), set("", "30%"), set("fast", "")] {
        let reason = as_user(ANNE, &[], || request(&socket));
        assert!(
            reason.starts_with("only root and the daemon's own"),
            "{reason}"
        );
    }
    for (request, why) in [
        (
            set("101", ""),
            "weight \"101\" is invalid; expected a whole number from 1 to 100, or default",
        ),
        (
            set("", "0"),
            "least share \"0\" is invalid; expected a share above 0 to 1",
        ),
        (set("3", "30%"), "policy orion ignores weights"),
    ] {
        let reason = request(&socket);
        assert!(reason.contains(why), "{reason}");
    }
}

#[test]
fn root_says_whose_job_it_ends_where_several_users_have_one_of_that_name() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("");
    let socket = running.socket();
    let attach = || attach(&socket, BestEffort, "train");
    let annes = as_user(ANNE, &[], attach);
    let bobs = as_user(BOB, &[], attach);
    let is_asked = |client: &Client| client.page.stop.load(Ordering::Relaxed) != 0;
    let stop = |user| {
        let job = "train".to_owned();
        ask(&socket, &Request::Stop(Stop { job, user }).encode()).0
    };
    let Reply::Refused { reason } = stop(None) else {
        panic!("it is not clear whose is meant")
    };
    assert!(
        reason.contains(&ANNE.to_string()) && reason.contains(&BOB.to_string()),
        "{reason}"
    );
    assert_eq!((is_asked(&annes), is_asked(&bobs)), (false, false));
    assert_eq!(stop(Some(BOB)), Reply::Done);
    assert_eq!((is_asked(&annes), is_asked(&bobs)), (false, true));
}

/// A job's report of its context costs no other user.
#[test]
fn the_fault_of_a_high_priority_job_holds_its_users_best_effort_jobs_and_nobody_elses() {
    if !can_be_others() {
        return;
    }
    let rule =
        "[faults]\nstuck_s = 0\n[[faults.rules]]\nfault = \"sticky-error\"\naction = \"hold-be\"\n";
    let running = Running::open_to_all(rule);
    let socket = running.socket();
    let annes = as_user(ANNE, &[], || {
        let [hp, be] = [(HighPriority, "serve"), (BestEffort, "train")]
            .map(|(class, job)| attach(&socket, class, job));
        // CUDA_ERROR_ILLEGAL_ADDRESS
        hp.page.sticky.store(700, Ordering::Relaxed);
        (hp, be)
    });
    let bobs = as_user(BOB, &[], || {
        let attach = |(class, job)| attach(&socket, class, job);
        [(HighPriority, "serve"), (BestEffort, "train")].map(attach)
    });
    let is_held = |be: &Client| be.lease.as_ref().unwrap().is_held();
    running.status_when(|_| is_held(&annes.1));
    assert!(!is_held(&bobs[1]));
    let [hers, his] =
        [ANNE, BOB].map(|uid| as_user(uid, &[], || attach(&socket, BestEffort, "more")));
    running.status_when(|_| is_held(&hers));
    assert!(!is_held(&his) && !is_held(&bobs[1]));
    let told = as_user(BOB, &[], || status(&socket));
    assert!(
        !told.to_string().contains("held until `pillion resume`"),
        "{told}"
    );
}

#[test]
fn a_user_who_takes_all_it_can_leaves_places_to_others() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("[limits]\nclients_per_user = 5\njobs_per_user = 3\n");
    let socket = running.socket();
    let attach = |job: &str| try_attach(&socket, BestEffort, job);
    let (reasons, taken) = as_user(ANNE, &[], || {
        let tries = (0..20).map(|n| attach(&(n % 4).to_string()));
        let (taken, reasons): (Vec<_>, Vec<_>) = tries.partition(Result::is_ok);
        let reasons: Vec<String> = reasons.into_iter().filter_map(Result::err).collect();
        (reasons, taken)
    });
    assert_eq!(taken.len(), 5);
    for part in ["[limits] clients_per_user", "[limits] jobs_per_user"] {
        assert!(
            reasons.iter().any(|reason| reason.contains(part)),
            "{reasons:?}"
        );
    }
    as_user(BOB, &[], || attach("train")).unwrap();
    // Her refusals displaced nobody else's, and only she sees them.
    let told = as_user(BOB, &[], || status(&socket));
    assert_eq!(told["turned_away"], Value::Array(vec![]));
}

#[test]
fn silent_connections_of_one_user_cost_another_nothing() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("");
    let socket = running.socket();
    // Bob has connected and is slow; Anne connects as often as she can.
    let bobs = as_user(BOB, &[], || connect_to(&socket).unwrap());
    running.status();
    let silent = as_user(ANNE, &[], || {
        let connections = (0..300).map(|_| connect_to(&socket).unwrap());
        connections.collect::<Vec<OwnedFd>>()
    });
    running.status();
    let packet = request(BestEffort, "train").encode();
    send(&bobs, &packet, &[page().as_fd()]).unwrap();
    let (packet, _) = receive(&bobs).unwrap();
    assert!(matches!(
        Reply::decode(&packet).unwrap(),
        Reply::Welcome { .. }
    ));
    send(&silent[299], &packet, &[page().as_fd()]).unwrap();
    assert!(!receive(&silent[299]).unwrap().0.is_empty());
    assert!(receive(&silent[0]).unwrap().0.is_empty());
}

#[test]
fn a_hello_that_ends_in_the_middle_is_refused_at_every_byte() {
    let running = Running::open_to_all("");
    let packet = request(BestEffort, "train").encode();
    let Request::Attach(whole) = request(BestEffort, "train") else {
        unreachable!("it is one")
    };
    // Everything up to the device is required; behind it are the memory (empty), no slot, a flag,
    // an answer, a target and two shares (empty).
    let least = packet.len() - 2 - 2 - 2 - 2 - 2 - 1 - 1 - 2 - whole.device.len();
    for bytes in 1..least {
        let (reply, ..) = ask(&running.socket(), &packet[..bytes]);
        assert!(matches!(reply, Reply::Refused { .. }), "{bytes}: {reply:?}");
    }
    attach(&running.socket(), BestEffort, "train");
}

#[test]
fn who_asks_for_statuses_and_does_not_read_them_keeps_nobody_from_reading() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("");
    let socket = running.socket();
    let long = "x".repeat(256);
    // A document larger than a socket's buffer.
    let _jobs: Vec<OwnedFd> = as_user(ANNE, &[], || {
        let attach = |_| try_attach(&socket, HighPriority, &long).unwrap().1;
        (0..150).map(attach).collect()
    });
    let unread: Vec<OwnedFd> = as_user(ANNE, &[], || {
        let asks = (0..12).map(|_| {
            let connection = connect_to(&socket).unwrap();
            send(&connection, &Request::Status.encode(), &[]).unwrap();
            connection
        });
        asks.collect()
    });
    let told = as_user(BOB, &[], || status(&socket));
    assert_eq!(told["others"]["high_priority"], 1);
    assert_eq!(
        running.status()["jobs"][0]["clients"]
            .as_array()
            .unwrap()
            .len(),
        150
    );
    let refused = unread.iter().filter(|connection| {
        let (packet, _) = receive(connection).unwrap();
        matches!(Reply::decode(&packet), Ok(Reply::Refused { .. }))
    });
    assert_eq!(refused.count(), 10);
}

#[test]
fn descriptors_that_come_with_a_packet_are_never_the_daemons() {
    let running = Running::open_to_all("");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let connection = connect_to(&running.socket()).unwrap();
    let packet = request(BestEffort, "train").encode();
    let fds = [writer.as_fd(); 8];
    match send(&connection, &packet, &fds) {
        Ok(()) => assert!(!receive(&connection).unwrap().0.is_empty()),
        // A kernel that supports it (Linux 6.16) refuses them.
        Err(error) => assert_eq!(error.raw_os_error(), Some(1), "{error}"),
    }
    // Nor are those of an attached client.
    let client = attach(&running.socket(), BestEffort, "train");
    let _ = send(&client.socket, b"x", &fds);
    running.status();
    drop(writer);
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]).unwrap(), 0);
}

/// A TCP connection whose close waits a day for unread data.
fn endless_to_close() -> (OwnedFd, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    connection.set_nonblocking(true).unwrap();
    while connection.write(&[0; 65_536]).is_ok() {}
    let connection = OwnedFd::from(connection);
    set_socket_linger(&connection, Some(Duration::from_secs(86_400))).unwrap();
    rustix::io::ioctl_fionbio(&connection, false).unwrap();
    (connection, listener)
}

#[test]
fn descriptors_that_do_not_let_themselves_be_closed_keep_no_other_user_waiting() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("");
    let socket = running.socket();
    let mut open = Vec::new();
    let mut not_let_in = 0;
    // One with the question; one behind it, unread; one on a silent connection; many of them.
    for n in 0..150 {
        let (endless, listener) = endless_to_close();
        let (connection, sent) = as_user(ANNE, &[], || {
            let connection = connect_to(&socket).unwrap();
            // Earlier ones may be on a connection that is not accepted yet; this one's is.
            if n >= 100 {
                status(&socket);
            }
            let fds = [endless.as_fd()];
            let question = Request::Status.encode();
            let sent = match n % 3 {
                0 => send(&connection, &question, &fds),
                1 => send(&connection, &question, &[]).and_then(|()| send(&connection, b"x", &fds)),
                _ => send(&connection, b"x", &fds),
            };
            (connection, sent)
        });
        if let Err(error) = sent {
            not_let_in += usize::from(error.raw_os_error() == Some(1));
            // It was refused, so this one is the last.
            set_socket_linger(&endless, None).unwrap();
        }
        // The daemon may have closed it already, and then this one is the last, too.
        thread::spawn(move || drop(endless));
        open.push((connection, listener));
    }
    eprintln!("{not_let_in} were not let in (Linux 6.16)");
    running.status();
    for uid in [BOB, 0] {
        as_user(uid, &[], || attach(&socket, BestEffort, "train"));
    }
}

#[test]
fn a_client_that_talks_without_end_is_hung_up_on_and_told() {
    let running = Running::open_to_all("");
    let talker = attach(&running.socket(), BestEffort, "talker");
    let quiet = attach(&running.socket(), BestEffort, "quiet");
    while send(&talker.socket, b"la", &[]).is_ok() {}
    let told = running.status_when(|status| {
        let jobs = status["jobs"].as_array().unwrap();
        jobs.iter().filter(|job| job["ended_ns"].is_null()).count() == 1
    });
    assert_eq!(told["jobs"][0]["job"], "quiet");
    let detached = &talker.page.detached;
    assert_eq!(detached.load(Ordering::Acquire), 1);
    drop(quiet);
}

#[test]
fn a_process_that_comes_again_and_again_as_another_job_is_stopped_at_a_bound() {
    if !can_be_others() {
        return;
    }
    let running = Running::open_to_all("");
    let socket = running.socket();
    let reason = as_user(ANNE, &[], || {
        let mut tries = (0..2_000).map(|n| try_attach(&socket, BestEffort, &n.to_string()));
        // Each time it drops its connection and lives on.
        tries.find_map(Result::err).expect("there is a bound")
    });
    assert!(
        reason.contains("processes of its user, the limit, hold memory"),
        "{reason}"
    );
    as_user(BOB, &[], || try_attach(&socket, BestEffort, "train")).unwrap();
}

#[test]
fn no_page_can_be_shrunk_grown_or_emptied_under_the_daemon() {
    let running = Running::open_to_all("");
    let (_, be, _connection) = ask(&running.socket(), &request(BestEffort, "a").encode());
    let (_, hp, _connection_too) = ask(&running.socket(), &request(HighPriority, "b").encode());
    for fd in be.iter().chain(&hp) {
        let size = rustix::fs::fstat(fd).unwrap().st_size as u64;
        for to in [0, size - 1, size + 1] {
            assert!(rustix::fs::ftruncate(fd, to).is_err());
        }
        // Writable pages may be punched; that writes zeros.
        let holes = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(fd, holes, 0, size);
        let garbage = vec![0xa5; size as usize];
        let _ = rustix::io::pwrite(fd, &garbage, 0);
    }
    pause();
    attach(&running.socket(), BestEffort, "honest");
    assert_eq!(running.status()["jobs"].as_array().unwrap().len(), 3);
}
