//! The contents of packets, and the peers from which they are accepted.

use proptest::prelude::*;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::*;

/// Size of the end of [`attach`]: texts of four, of three and of two bytes.
const TAIL_BYTES: usize = 2 + 4 + 2 + 3 + 2 + 2;

fn attach() -> Request {
    Request::Attach(Attach {
        class: JobClass::HighPriority,
        job: "job-1".into(),
        name: "serve".into(),
        device: "GPU-1".into(),
        memory: Some("40%".into()),
        slot: Some(3),
        falls_with_parent: true,
        is_on_mps: Some(true),
        slo: "1.2x".into(),
        compute: "30%".into(),
        restartable: "70".into(),
        ..Attach::default()
    })
}

#[test]
fn requests_survive_the_journey() {
    let set = Set {
        job: "job-1".into(),
        memory: "1GiB".into(),
        slo: "15ms".into(),
        compute: "default".into(),
        weight: "3".into(),
        min_progress: "30%".into(),
    };
    let of = MemoryOf {
        class: JobClass::BestEffort,
        job: "job-1".into(),
        memory: String::new(),
        device: "GPU-1".into(),
    };
    let stop = Stop {
        job: "job-1".into(),
        user: Some(1000),
    };
    let ending = Ending {
        job: "job-1".into(),
        user: None,
        within_ns: u64::MAX,
        is_over: true,
    };
    let resume = Request::Resume {
        job: "job-1".into(),
    };
    let others = [
        Request::Set(set),
        Request::Memory(of),
        Request::Stop(stop),
        Request::Ending(ending),
        resume,
        Request::Drain { is_release: false },
        Request::Drain { is_release: true },
        Request::LearntList,
        Request::Trace {
            length_ns: 5_000_000_000,
        },
        Request::Learnt(LearntOf {
            program: "/a/train.py".into(),
            device: "GPU-1".into(),
            user: Some(0),
        }),
    ];
    let events = Request::Events { since: u64::MAX };
    for request in [attach(), Request::Status, events]
        .into_iter()
        .chain(others)
    {
        assert_eq!(Request::decode(&request.encode()).unwrap(), request);
    }
}

#[test]
fn replies_survive_the_journey() {
    for reply in [
        Reply::Welcome {
            client: 7,
            slot: None,
            class: Some(JobClass::BestEffort),
        },
        Reply::Welcome {
            client: 7,
            slot: Some(255),
            class: Some(JobClass::HighPriority),
        },
        Reply::Done,
        Reply::Learnt { is_known: true },
        Reply::Memory(MemoryIs {
            quota_bytes: 1 << 40,
            held_bytes: 1,
            pids: vec![7, 8],
        }),
        Reply::Refused {
            reason: "full".into(),
        },
    ] {
        assert_eq!(Reply::decode(&reply.encode()).unwrap(), reply);
    }
}

#[test]
fn another_major_version_is_named_with_ours() {
    let mut packet = attach().encode();
    packet[4..6].copy_from_slice(&(VERSION.major + 1).to_le_bytes());
    let error = Request::decode(&packet).unwrap_err();
    let peer = format!("protocol {}.{}", VERSION.major + 1, VERSION.minor);
    let ours = format!("this program speaks {VERSION}");
    let text = error.to_string();
    assert!(text.contains(&peer) && text.contains(&ours), "{text}");
}

#[test]
fn a_newer_minor_version_is_served() {
    let mut packet = attach().encode();
    packet[6..8].copy_from_slice(&(VERSION.minor + 1).to_le_bytes());
    packet.extend_from_slice(b"something newer");
    assert_eq!(Request::decode(&packet).unwrap(), attach());
}

#[test]
fn a_change_of_an_older_tool_changes_the_quota_alone() {
    let set = |slo: &str| {
        Request::Set(Set {
            job: "job-1".into(),
            memory: "1GiB".into(),
            slo: slo.into(),
            ..Set::default()
        })
    };
    let packet = set("").encode();
    for missing in [2, 4, 6, 8] {
        assert_eq!(
            Request::decode(&packet[..packet.len() - missing]).unwrap(),
            set("")
        );
    }
}

#[test]
fn whether_mps_shares_the_device_is_yes_no_or_not_known() {
    let Request::Attach(known) = attach() else {
        unreachable!("it is one")
    };
    for is_on_mps in [None, Some(false), Some(true)] {
        let request = Request::Attach(Attach {
            is_on_mps,
            ..known.clone()
        });
        assert_eq!(Request::decode(&request.encode()).unwrap(), request);
    }
    let mut packet = attach().encode();
    packet.truncate(packet.len() - TAIL_BYTES);
    *packet.last_mut().unwrap() = 3;
    let Request::Attach(decoded) = Request::decode(&packet).unwrap() else {
        unreachable!("it is one")
    };
    assert_eq!(decoded.is_on_mps, None);
}

#[test]
fn an_attach_of_a_peer_that_names_no_device_is_served() {
    let Request::Attach(known) = attach() else {
        unreachable!("it is one")
    };
    let packet = attach().encode();
    let without_tail = &packet[..packet.len() - TAIL_BYTES];
    let known = Attach {
        slo: String::new(),
        compute: String::new(),
        restartable: String::new(),
        ..known
    };
    assert_eq!(
        Request::decode(without_tail).unwrap(),
        Request::Attach(known.clone())
    );
    let without_answer = &without_tail[..without_tail.len() - 1];
    let expected = Attach {
        is_on_mps: None,
        ..known.clone()
    };
    assert_eq!(
        Request::decode(without_answer).unwrap(),
        Request::Attach(expected)
    );
    let without_flag = &without_answer[..without_answer.len() - 1];
    let expected = Attach {
        is_on_mps: None,
        falls_with_parent: false,
        ..known.clone()
    };
    assert_eq!(
        Request::decode(without_flag).unwrap(),
        Request::Attach(expected)
    );
    let without_tailt = &without_flag[..without_flag.len() - 2];
    let expected = Attach {
        slot: None,
        falls_with_parent: false,
        is_on_mps: None,
        ..known.clone()
    };
    assert_eq!(
        Request::decode(without_tailt).unwrap(),
        Request::Attach(expected)
    );
    let older = &without_tailt[..without_tailt.len() - 2 - 3 - 2 - known.device.len()];
    let expected = Request::Attach(Attach {
        device: String::new(),
        memory: None,
        slot: None,
        falls_with_parent: false,
        is_on_mps: None,
        ..known
    });
    assert_eq!(Request::decode(older).unwrap(), expected);
    assert!(Request::decode(&packet[..packet.len() - 3]).is_err());
}

#[test]
fn a_welcome_of_a_daemon_without_ledgers_has_no_slot() {
    let welcome = |slot, class| Reply::Welcome {
        client: 7,
        slot,
        class,
    };
    let packet = welcome(Some(1), Some(JobClass::BestEffort)).encode();
    let older = Reply::decode(&packet[..packet.len() - 3]).unwrap();
    assert_eq!(older, welcome(None, None));
    let with_slot = Reply::decode(&packet[..packet.len() - 1]).unwrap();
    assert_eq!(with_slot, welcome(Some(1), None));
}

#[test]
fn descriptors_travel_with_a_packet() {
    let folder = tempdir("asked");
    let path = folder.join("s.sock");
    let listener = listen_at(&path).unwrap();
    let client = connect_to(&path).unwrap();
    let server = rustix::net::accept(&listener).unwrap();
    let memory = crate::segment::create_sealed("pillion-test", 4096).unwrap();
    send(&server, b"x", &[memory.as_fd()]).unwrap();
    let (packet, fds) = receive(&client).unwrap();
    assert_eq!((packet.as_slice(), fds.len()), (b"x".as_slice(), 1));
    drop(server);
    assert!(
        receive(&client).unwrap().0.is_empty(),
        "the end is an empty packet"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_socket_that_is_seen_listens() {
    let folder = tempdir("seen");
    let path = folder.join("s.sock");
    for _ in 0..500 {
        let seen = std::thread::scope(|scope| {
            // No daemon, and a daemon that accepts: neither counts as refused.
            let seen = scope.spawn(|| {
                loop {
                    match connect_to(&path) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        seen => return seen,
                    }
                }
            });
            let _listener = listen_whole(&path, None).unwrap();
            seen.join().unwrap()
        });
        seen.unwrap();
        fs::remove_file(&path).unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_dead_ones_socket_is_replaced_and_has_the_permissions_asked_for() {
    let folder = tempdir("replaced");
    let path = folder.join("s.sock");
    drop(listen_whole(&path, None).unwrap());
    assert!(connect_to(&path).is_err());
    // As a daemon killed before its rename would leave it.
    drop(listen_at(&folder.join("s.sock.new")).unwrap());
    for mode in [0o600, 0o666] {
        let _listener = listen_whole(&path, Some(mode)).unwrap();
        connect_to(&path).unwrap();
        let found = fs::metadata(&path).unwrap().permissions();
        assert_eq!(found.mode() & 0o777, mode);
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(folder).unwrap();
}

fn tempdir(name: &str) -> PathBuf {
    let name = format!("pillion-hello-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_uuid_is_printed_as_nvml_does() {
    let bytes = core::array::from_fn(|i| i as u8);
    assert_eq!(
        format_uuid(bytes),
        "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    );
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_decoded_to_what_is_encoded_and_decoded_the_same(
        tail in prop::collection::vec(any::<u8>(), 0..600), ours: bool,
    ) {
        let mut packet = if ours { attach().encode()[..8].to_vec() } else { Vec::new() };
        packet.extend(tail);
        // Encodings are compared, as a part of a device may be NaN.
        if let Ok(request) = Request::decode(&packet) {
            let again = Request::decode(&request.encode());
            prop_assert_eq!(again.ok().map(|request| request.encode()), Some(request.encode()));
        }
        if let Ok(reply) = Reply::decode(&packet) {
            let again = Reply::decode(&reply.encode());
            prop_assert_eq!(again.ok().map(|reply| reply.encode()), Some(reply.encode()));
        }
    }

    #[test]
    fn long_texts_are_cut_not_refused(job in "\\PC{0,400}") {
        let request = Request::Attach(Attach { job, ..Attach::default() });
        prop_assert!(Request::decode(&request.encode()).is_ok());
    }
}

#[test]
fn a_long_name_of_a_program_fits_and_is_still_its_own() {
    assert_eq!(program_key("/a/train.py"), "/a/train.py");
    let long = |first: char| format!("/{first}{}/train.py", "é".repeat(TEXT_BYTES_MAX));
    let [one, other] = ['a', 'b'].map(|first| program_key(&long(first)));
    assert!(
        one.len() <= TEXT_BYTES_MAX && one.ends_with("é/train.py"),
        "{one}"
    );
    assert_ne!(one, other);
}
