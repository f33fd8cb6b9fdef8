//! Order of service, and reports.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::time::{Duration, UNIX_EPOCH};

use profiler::profile::Evidence;
use profiler::{ClassRule, KernelProfile, ResourceClass};
use protocol::notebook::Notebook;
use rustix::fs::{FlockOperation, flock};

use super::*;
use crate::config::gpu::Gpu;
use crate::config::source::Source;
use crate::daemon::Daemon;
use crate::host::fd_reaper::FdReaper;
use crate::report::status::Viewer;

const ANNE: u32 = 61_001;
const BOB: u32 = 61_002;

fn gpu() -> Gpu {
    Gpu {
        uuid: "GPU-1".to_owned(),
        name: "V100".to_owned(),
        pci: "0000:04:00.0".parse().unwrap(),
        sms: 80,
        memory_bytes: 16 << 30,
        cuda_driver: 12_080,
        block_priority: None,
    }
}

fn inlet() -> Arc<Inlet> {
    Inlet::new(LearntStore::new("/nowhere".into(), &gpu())).unwrap()
}

struct Rig {
    keeper: Keeper,
    _daemon: Daemon,
    notebooks: Vec<Notebook>,
    _folder: tempfile::TempDir,
}

fn rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu0.toml");
    let text = "[gpu]\nindex = 0\nsharing = \"mps\"\n[learnt]\nkeep = false\n";
    std::fs::write(&path, text).unwrap();
    let config = Source::File(path.clone()).load().unwrap();
    let socket = folder.path().join("gpu0.sock");
    let daemon = Daemon::start(&config, gpu(), &socket, Clock::monotonic()).unwrap();
    let store = LearntStore::new(folder.path().join("state"), &gpu());
    let keeper = Keeper::new(Arc::clone(&daemon.shared), Inlet::new(store).unwrap());
    Rig {
        keeper,
        _daemon: daemon,
        notebooks: Vec::new(),
        _folder: folder,
    }
}

impl Rig {
    fn note(&mut self, uid: u32, program: &str) {
        let kernel = KernelProfile {
            name: "k".to_owned(),
            mangled: None,
            grid: [8, 1, 1],
            block: [128, 1, 1],
            shared_bytes: 0,
            count: 3,
            durations: learnt::durations(10, 10, 3),
            registers: 0,
            sm_needed: 8,
            class: ResourceClass::Unknown,
            class_rule: ClassRule::Unknown,
            evidence: Evidence::default(),
            operator: None,
        };
        let profile = Profile {
            gpu: gpu().name,
            kernels: vec![kernel],
            ..Profile::default()
        };
        let (file, mut notebook) = Notebook::create().unwrap();
        assert!(notebook.write(profile.write().as_bytes()));
        self.notebooks.push(notebook);
        let asked = Asked {
            notebook: Some(file),
            ..asked(uid, program)
        };
        self.keeper.answer(asked);
    }

    fn kept(&self, uid: u32) -> usize {
        self.keeper.inlet.store.list(Some(uid)).len()
    }
}

fn said(shared: &Shared) -> Vec<String> {
    let events = shared.events().since(0, Viewer::Operator).into_iter();
    let ours = events.filter(|event| event.kind == Kind::LearntNotKept.name());
    ours.map(|event| event.text).collect()
}

/// The least recently used goes first: looking at it does not count as use.
#[test]
fn what_is_exported_does_not_count_as_used_and_what_a_run_begins_with_does() {
    let mut rig = rig();
    let store = Arc::clone(&rig.keeper.inlet.store);
    store.keep(ANNE, "/1", Profile::default()).unwrap();
    let mut files = std::fs::read_dir(store.folder().join(ANNE.to_string())).unwrap();
    let file = File::open(files.next().unwrap().unwrap().path()).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(7))
        .unwrap();
    let used = || store.list(Some(ANNE)).pop().unwrap().used_unix_ms;
    for user in [Some(ANNE), None] {
        assert_eq!(used(), 7_000);
        let mut asked = asked(ANNE, "/1");
        asked.of.user = user;
        rig.keeper.answer(asked);
    }
    assert!(used() > 7_000);
}

/// Otherwise a user with invalid notes could hide a full disk from everybody.
#[test]
fn a_note_that_is_refused_neither_looks_like_a_failure_of_the_disk_nor_hides_one() {
    let mut rig = rig();
    let refused = || Ok(Some(Kept::Refused("it does not read back".to_owned())));
    let full = || Err(io::ErrorKind::StorageFull.into());
    for kept in [refused(), refused(), full(), refused(), full()] {
        rig.keeper.tell(ANNE, "/nonsense", kept);
    }
    let said = said(&rig.keeper.shared);
    assert_eq!(said.len(), 2, "{said:?}");
    let refused = "durations of a run of \"/nonsense\" of user 61001: it does not read back";
    assert!(said[0].contains(refused), "{said:?}");
    assert!(
        said[1].contains("cannot keep kernel durations in"),
        "{said:?}"
    );
}

#[test]
fn at_the_daemons_end_notebooks_are_read_one_of_each_user_in_turn() {
    let mut rig = rig();
    rig.note(BOB, "bobs");
    for program in ["/1", "/2", "/3"] {
        rig.note(ANNE, program);
    }
    rig.keeper.begin_end();
    let mut kept = Vec::new();
    while rig.keeper.keep_at_end() {
        kept.push((rig.kept(ANNE), rig.kept(BOB)));
    }
    assert_eq!(kept, [(1, 0), (1, 1), (2, 1), (3, 1)]);
    rig.keeper.tell_what_is_lost();
    assert_eq!(said(&rig.keeper.shared), Vec::<String>::new());
}

#[test]
fn what_another_daemon_keeps_from_being_kept_at_the_end_is_said() {
    let mut rig = rig();
    for program in ["/1", "/2"] {
        rig.note(ANNE, program);
    }
    let store = Arc::clone(&rig.keeper.inlet.store);
    store.keep(BOB, "/bobs", Profile::default()).unwrap();
    let lock = File::open(store.folder().join(".lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    rig.keeper.shared.stop();
    let shared = Arc::clone(&rig.keeper.shared);
    rig.keeper.run();
    let said = said(&shared);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("kernel durations of 2 processes"),
        "{said:?}"
    );
    assert!(said[0].contains("another daemon is writing"), "{said:?}");
    assert_eq!(store.list(Some(ANNE)), []);
}

fn asked(uid: u32, program: &str) -> Asked {
    let (socket, _other) = UnixStream::pair().unwrap();
    let fd_reaper = Arc::new(FdReaper::start().unwrap());
    Asked {
        socket: UntrustedSocket::new(socket.into(), uid, &fd_reaper),
        uid,
        of: LearntOf {
            program: program.to_owned(),
            device: String::new(),
            user: None,
        },
        notebook: None,
    }
}

#[test]
fn a_user_who_asks_all_the_time_takes_one_turn_like_everybody_and_not_all_the_room() {
    let inlet = inlet();
    for number in 0..WAITING_OF_USER_MAX {
        assert!(inlet.put(asked(ANNE, &number.to_string())).is_ok());
    }
    assert!(inlet.put(asked(ANNE, "more")).is_err());
    assert!(inlet.put(asked(BOB, "bobs")).is_ok());
    let turn = |inlet: &Inlet| -> Vec<(u32, String)> {
        let turn = inlet.take_turn().into_iter();
        turn.map(|asked| (asked.uid, asked.of.program)).collect()
    };
    let of = |uid, program: &str| (uid, program.to_owned());
    assert_eq!(turn(&inlet), [of(ANNE, "0"), of(BOB, "bobs")]);
    assert_eq!(turn(&inlet), [of(ANNE, "1")]);
    let first = inlet.take_turn().pop().unwrap();
    inlet.put_back(first);
    assert_eq!(turn(&inlet), [of(ANNE, "2")]);
    assert!(rustix::io::read(&inlet.alarm, &mut [0; 8]).is_ok());
    while !inlet.take_turn().is_empty() {}
    assert!(rustix::io::read(&inlet.alarm, &mut [0; 8]).is_err());
}

#[test]
fn notebooks_are_read_one_of_each_user_in_turn() {
    let mut due = vec![(7, 1), (7, 2), (7, 3), (9, 4), (8, 90)];
    let (mut last_uid, mut read) = (7, Vec::new());
    while let Some(place) = next_due(due.iter().copied(), last_uid, 10) {
        last_uid = due[place].0;
        read.push(due.remove(place));
    }
    assert_eq!(read, [(9, 4), (7, 1), (7, 2), (7, 3)]);
    assert_eq!(due, [(8, 90)]);
}

#[test]
fn what_happens_all_the_time_is_said_once_a_minute_with_how_often() {
    let mut teller = Teller::default();
    let said: Vec<u32> = (0..180)
        .filter_map(|second| teller.handle(second * 1_000_000_000))
        .collect();
    assert_eq!(said, [0, 59, 59]);
    // Lasting trouble is reported once, even if another user's program is saved in between.
    let mut teller = Teller::default();
    assert_eq!(teller.handle_lasting(0), Some(0));
    assert_eq!(teller.handle_lasting(TELL_EVERY_NS * 9), None);
    teller.is_said = false;
    assert_eq!(teller.handle_lasting(TELL_EVERY_NS / 2), None);
    assert_eq!(teller.handle_lasting(TELL_EVERY_NS), Some(1));
}
