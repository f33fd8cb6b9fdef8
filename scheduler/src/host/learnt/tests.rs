//! Knowledge about programs, on a failing disk, among users, and at its bounds.

mod broken;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use profiler::profile::{Evidence, Measured};
use profiler::{ClassRule, KernelProfile, ResourceClass};

use super::*;

const ANNE: u32 = 61_001;
const BOB: u32 = 61_002;
const PROGRAM: &str = "/data/anne/train.py";

struct Rig {
    store: LearntStore,
    folder: tempfile::TempDir,
}

fn gpu() -> Gpu {
    Gpu {
        uuid: "GPU-1".to_owned(),
        name: "Tesla V100/SXM2".to_owned(),
        pci: "0000:04:00.0".parse().unwrap(),
        sms: 80,
        memory_bytes: 16 << 30,
        cuda_driver: 12_080,
        block_priority: None,
    }
}

fn rig() -> Rig {
    let folder = tempfile::tempdir().unwrap();
    let store = LearntStore::new(folder.path().join("state/pillion"), &gpu());
    Rig { store, folder }
}

fn noted(kernels: &[(&str, u64)]) -> Profile {
    let kernel = |&(name, median_ns): &(&str, u64)| KernelProfile {
        name: name.to_owned(),
        mangled: None,
        grid: [8, 1, 1],
        block: [128, 1, 1],
        shared_bytes: 0,
        count: 3,
        durations: learnt::durations(median_ns, median_ns, 3),
        registers: 0,
        sm_needed: 8,
        class: ResourceClass::Unknown,
        class_rule: ClassRule::Unknown,
        evidence: Evidence::default(),
        operator: None,
    };
    Profile {
        gpu: gpu().name,
        measured: Some(Measured {
            sms: Some(80),
            ..Measured::default()
        }),
        kernels: kernels.iter().map(kernel).collect(),
        ..Profile::default()
    }
}

impl Rig {
    fn keep(&self, uid: u32, program: &str, kernels: &[(&str, u64)]) -> io::Result<Kept> {
        self.store.keep(uid, program, noted(kernels))
    }

    fn kept(&self, uid: u32, program: &str) -> Vec<(String, u64)> {
        let Some(text) = self.store.find(uid, program) else {
            return Vec::new();
        };
        let profile = Profile::parse(&text, Path::new("kept")).unwrap();
        assert_eq!(profile.sources, [program]);
        let kernels = profile.kernels.into_iter();
        kernels.map(|k| (k.name, k.durations.median_ns)).collect()
    }

    fn entries(&self) -> usize {
        self.store.all().len()
    }
}

#[test]
fn what_runs_noted_is_joined_for_each_user_and_program() {
    let rig = rig();
    assert_eq!(rig.kept(ANNE, PROGRAM), []);
    assert_eq!(
        rig.keep(ANNE, PROGRAM, &[("a", 10), ("b", 20)]).unwrap(),
        Kept::Well
    );
    assert_eq!(
        rig.keep(ANNE, PROGRAM, &[("b", 25), ("c", 30)]).unwrap(),
        Kept::Well
    );
    rig.keep(BOB, PROGRAM, &[("a", 99)]).unwrap();
    rig.keep(ANNE, "/usr/bin/serve", &[("a", 7)]).unwrap();
    let own = |name: &str, ns: u64| (name.to_owned(), ns);
    assert_eq!(
        rig.kept(ANNE, PROGRAM),
        [own("a", 10), own("b", 25), own("c", 30)]
    );
    assert_eq!(rig.kept(BOB, PROGRAM), [own("a", 99)]);
    let listed = rig.store.list(Some(ANNE));
    let mut programs: Vec<_> = listed
        .iter()
        .map(|l| (&*l.program, l.kernels, l.launches))
        .collect();
    programs.sort_unstable();
    assert_eq!(programs, [(PROGRAM, 3, 9), ("/usr/bin/serve", 1, 3)]);
    assert_eq!(rig.store.list(None).len(), 3);
}

#[test]
fn the_neighbour_of_the_same_model_begins_with_it_and_another_model_does_not() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    let of = |name: &str, sms: u32| {
        let gpu = Gpu {
            name: name.to_owned(),
            sms,
            ..gpu()
        };
        LearntStore::new(rig.store.root.clone(), &gpu).find(ANNE, PROGRAM)
    };
    assert!(of("Tesla V100/SXM2", 80).is_some());
    assert!(of("Tesla V100/SXM2", 40).is_none() && of("Tesla T4", 80).is_none());
}

#[test]
fn a_damaged_file_is_none_and_the_next_run_replaces_it() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    let path = rig.store.path(ANNE, PROGRAM);
    let whole = fs::read(&path).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"", b"\xff\xfe", b"[[kernel]]"] {
        fs::write(&path, damaged).unwrap();
        assert_eq!(rig.store.list(None), []);
        let kept = rig.keep(ANNE, PROGRAM, &[("b", 20)]).unwrap();
        assert!(matches!(kept, Kept::OverDamage(why) if why.contains(".toml")));
        assert_eq!(rig.kept(ANNE, PROGRAM), [("b".to_owned(), 20)]);
    }
    let other = rig.store.path(ANNE, "/other");
    fs::rename(&path, &other).unwrap();
    assert!(matches!(
        rig.keep(ANNE, "/other", &[("b", 20)]),
        Ok(Kept::OverDamage(_))
    ));
}

/// As a profile it would be valid.
#[test]
fn a_file_with_one_other_digit_is_none() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 1_234_567)]).unwrap();
    let path = rig.store.path(ANNE, PROGRAM);
    let whole = fs::read_to_string(&path).unwrap();
    let flipped = whole.replacen("1234567", "1934567", 1);
    assert_ne!(flipped, whole);
    fs::write(&path, flipped).unwrap();
    assert_eq!(rig.store.find(ANNE, PROGRAM), None);
    let kept = rig.keep(ANNE, PROGRAM, &[("b", 20)]).unwrap();
    assert!(matches!(kept, Kept::OverDamage(why) if why.contains("incomplete or damaged")));
    assert_eq!(rig.kept(ANNE, PROGRAM), [("b".to_owned(), 20)]);
}

/// A daemon killed between any two steps leaves the old file, whole.
#[test]
fn what_a_killed_daemon_left_half_written_is_written_over() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    fs::write(rig.store.folder.join(NEW), "format = \"pill").unwrap();
    assert_eq!(rig.kept(ANNE, PROGRAM), [("a".to_owned(), 10)]);
    rig.keep(ANNE, PROGRAM, &[("b", 20)]).unwrap();
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 2);
    let names = fs::read_dir(&rig.store.folder).unwrap();
    assert_eq!(names.count(), 2, "the user's folder and the lock");
}

#[test]
fn what_cannot_be_written_leaves_what_was_kept() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    // A folder in place of the new file: equivalent to a full disk, also for root.
    fs::create_dir(rig.store.folder.join(NEW)).unwrap();
    assert!(rig.keep(ANNE, PROGRAM, &[("b", 20)]).is_err());
    assert_eq!(rig.kept(ANNE, PROGRAM), [("a".to_owned(), 10)]);
}

/// A read error, simulated by a folder in the file's place: it may be temporary.
#[test]
fn what_cannot_be_read_just_now_stays_and_nothing_is_kept() {
    let rig = rig();
    let path = rig.store.path(ANNE, PROGRAM);
    fs::create_dir_all(path.join("in it")).unwrap();
    fs::set_permissions(rig.folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    for folder in path.ancestors().take(5) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let error = rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory, "{error}");
    assert!(path.join("in it").is_dir());
    for passing in [
        Errno::IO,
        Errno::NOMEM,
        Errno::INTR,
        Errno::ACCESS,
        Errno::MFILE,
    ] {
        assert!(!is_damage(&passing.into()), "{passing}");
    }
}

/// Instances of one template: people see the same name.
#[test]
fn what_is_kept_can_be_read_again_or_is_not_kept() {
    let rig = rig();
    let mut now = noted(&[("f<int>", 10), ("f<int>", 20)]);
    for (kernel, mangled) in now.kernels.iter_mut().zip(["_Z1fIiEvv", "_Z1fIjEvv"]) {
        kernel.mangled = Some(mangled.to_owned());
    }
    assert_eq!(rig.store.keep(ANNE, PROGRAM, now).unwrap(), Kept::Well);
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 2);
    let mut wrong = noted(&[("a", 10)]);
    wrong.kernels[0].name = "a\n".to_owned();
    // No sign of disk trouble.
    let refused = rig.store.keep(ANNE, PROGRAM, wrong);
    assert!(matches!(refused, Ok(Kept::Refused(_))), "{refused:?}");
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 2);
}

#[test]
fn the_list_says_what_is_in_a_file_by_its_first_line() {
    let rig = rig();
    let program = "/data/an \"odd\\name\" \u{2028}é.py";
    rig.keep(ANNE, program, &[("a", 5_000_000), ("b", 7)])
        .unwrap();
    let listed = rig.store.list(Some(ANNE)).pop().unwrap();
    let path = rig.store.path(ANNE, program);
    let bytes = fs::metadata(&path).unwrap().len();
    assert_eq!(
        (&*listed.program, listed.kernels, listed.launches),
        (program, 2, 6)
    );
    assert_eq!((listed.time_ms, listed.bytes), (15, bytes));
    let mut text = fs::read(&path).unwrap();
    let end = text.len();
    text[end - 40..].fill(b'?');
    fs::write(&path, text).unwrap();
    let after = rig.store.list(Some(ANNE)).pop().unwrap();
    assert_eq!((after.kernels, after.time_ms), (2, 15));
}

#[test]
fn a_folder_that_others_can_write_is_not_used() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    let folder = rig.store.user_folder(ANNE);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let error = rig
        .keep(ANNE, PROGRAM, &[("b", 20)])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("can be written by others (mode 777)"),
        "{error}"
    );
    let elsewhere = rig.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, rig.store.user_folder(BOB)).unwrap();
    let error = rig
        .keep(BOB, PROGRAM, &[("b", 20)])
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not a folder"), "{error}");
    // Nor a link in place of a file.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let path = rig.store.path(ANNE, PROGRAM);
    fs::remove_file(&path).unwrap();
    symlink("/etc/hostname", &path).unwrap();
    assert!(rig.store.find(ANNE, PROGRAM).is_none());
}

#[test]
fn while_another_daemon_writes_nothing_is_written_and_nobody_waits_for_ever() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    let other = lock(&rig.store.folder).unwrap();
    let error = rig.keep(ANNE, PROGRAM, &[("b", 20)]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 1);
    drop(other);
    rig.keep(ANNE, PROGRAM, &[("b", 20)]).unwrap();
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 2);
}

#[test]
fn of_two_daemons_that_write_one_file_neither_loses_what_the_other_wrote() {
    let rig = rig();
    std::thread::scope(|scope| {
        for daemon in ["a", "b"] {
            let store = LearntStore::new(rig.store.root.clone(), &gpu());
            scope.spawn(move || {
                for number in 0..20 {
                    let name = format!("{daemon}{number}");
                    while let Err(error) = store.keep(ANNE, PROGRAM, noted(&[(&name, 10)])) {
                        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                    }
                }
            });
        }
    });
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 40);
}

fn set_age(rig: &Rig, uid: u32, program: &str, days: u64) {
    let file = open(&rig.store.path(uid, program)).unwrap();
    let now = file.metadata().unwrap().modified().unwrap();
    let then = now - Duration::from_secs(86_400 * days);
    file.set_modified(then).unwrap();
}

#[test]
fn what_was_not_used_for_the_longest_goes_first_of_the_user_who_has_most() {
    let mut rig = rig();
    rig.store.limits.programs = 3;
    for (days, program) in [(3, "/a"), (9, "/b"), (2, "/c")] {
        rig.keep(ANNE, program, &[("k", 1)]).unwrap();
        set_age(&rig, ANNE, program, days);
    }
    assert!(rig.store.find_to_begin(ANNE, "/b").is_some());
    assert!(rig.store.find(ANNE, "/a").is_some());
    rig.keep(ANNE, "/d", &[("k", 1)]).unwrap();
    let left: Vec<bool> = ["/a", "/b", "/c", "/d"]
        .map(|program| rig.store.find(ANNE, program).is_some())
        .to_vec();
    assert_eq!(left, [false, true, true, true]);
    // Twelve of all: a user with one keeps it, however old.
    rig.keep(BOB, "/old", &[("k", 1)]).unwrap();
    set_age(&rig, BOB, "/old", 400);
    for uid in 1..=5 {
        for program in ["/x", "/y", "/z"] {
            rig.keep(uid, program, &[("k", 1)]).unwrap();
        }
    }
    assert_eq!(rig.entries(), 12);
    assert!(rig.store.find(BOB, "/old").is_some());
}

/// Many programs of one user and some of another, each with kernels that fill `kernels` entries.
fn many(programs: usize, kernels: usize) {
    let rig = rig();
    let names: Vec<String> = (0..kernels).map(|n| format!("kernel_{n}")).collect();
    let all: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 100_000)).collect();
    rig.keep(BOB, "/of/bob", &[("k", 1)]).unwrap();
    for number in 0..programs {
        rig.keep(ANNE, &format!("/p/{number}"), &all).unwrap();
    }
    let entries = rig.store.of_user(ANNE);
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let count = entries.len();
    assert!(
        count <= PROGRAMS_MAX && bytes <= BYTES_MAX,
        "{count} {bytes}"
    );
    let least = BYTES_MAX - FILE_BYTES_MAX as u64;
    assert!(
        count == PROGRAMS_MAX.min(programs) || bytes > least,
        "{count} {bytes}"
    );
    let last = format!("/p/{}", programs - 1);
    assert!(rig.store.find(ANNE, &last).is_some() && rig.store.find(BOB, "/of/bob").is_some());
    assert_eq!(rig.store.list(None).len(), count + 1);
    let files = fs::read_dir(&rig.store.folder).unwrap();
    assert_eq!(files.count(), 3, "two users and the lock");
}

/// `PILLION_KEPT_PROGRAMS=10000` is run by hand, with a network's kernels each (decision 049).
#[test]
fn ten_thousand_programs_take_the_room_of_a_thousand() {
    let programs = std::env::var("PILLION_KEPT_PROGRAMS").ok();
    match programs.and_then(|number| number.parse().ok()) {
        Some(programs) => many(programs, 200),
        None => many(1_100, 1),
    }
}

#[test]
fn who_has_one_program_keeps_it_and_no_folder_stays_of_who_has_none() {
    let mut rig = rig();
    (rig.store.limits.programs, rig.store.limits.bytes) = (1, 1 << 20);
    for uid in 1..=40 {
        rig.keep(uid, PROGRAM, &[("k", 1)]).unwrap();
        set_age(&rig, uid, PROGRAM, u64::from(50 - uid));
    }
    assert_eq!(rig.entries(), 4);
    let files = fs::read_dir(&rig.store.folder).unwrap();
    assert_eq!(files.count(), 5, "four users and the lock");
}
