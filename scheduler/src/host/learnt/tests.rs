//! What is kept of programs, on a disk that fails, among users, and beyond its bounds.

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
        let Some(file) = self.store.find(uid, program) else {
            return Vec::new();
        };
        let profile = Profile::parse(&text_of(file).unwrap(), Path::new("kept")).unwrap();
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
    // Another program whose name has the same number.
    let other = rig.store.path(ANNE, "/other");
    fs::rename(&path, &other).unwrap();
    assert!(matches!(
        rig.keep(ANNE, "/other", &[("b", 20)]),
        Ok(Kept::OverDamage(_))
    ));
}

/// A daemon that was killed between any two steps leaves the file that was there, whole.
#[test]
fn what_a_killed_daemon_left_half_written_is_written_over() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    let path = rig.store.path(ANNE, PROGRAM);
    fs::write(path.with_extension(NEW_SUFFIX), "format = \"pill").unwrap();
    assert_eq!(rig.kept(ANNE, PROGRAM), [("a".to_owned(), 10)]);
    rig.keep(ANNE, PROGRAM, &[("b", 20)]).unwrap();
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 2);
    let names = fs::read_dir(path.parent().unwrap()).unwrap();
    assert_eq!(names.count(), 2, "the file and the lock");
}

#[test]
fn what_cannot_be_written_leaves_what_was_kept() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    let path = rig.store.path(ANNE, PROGRAM);
    // A folder where the new file would be: as good as a full disk, also for root.
    fs::create_dir(path.with_extension(NEW_SUFFIX)).unwrap();
    assert!(rig.keep(ANNE, PROGRAM, &[("b", 20)]).is_err());
    assert_eq!(rig.kept(ANNE, PROGRAM), [("a".to_owned(), 10)]);
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
    // Nor one that a link leads to.
    let elsewhere = rig.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, rig.store.user_folder(BOB)).unwrap();
    let error = rig
        .keep(BOB, PROGRAM, &[("b", 20)])
        .unwrap_err()
        .to_string();
    assert!(error.contains("is no folder"), "{error}");
    // Nor a link in place of a file.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let path = rig.store.path(ANNE, PROGRAM);
    fs::remove_file(&path).unwrap();
    symlink("/etc/hostname", &path).unwrap();
    assert!(rig.store.find(ANNE, PROGRAM).is_none());
}

#[test]
fn a_lock_that_another_daemon_keeps_is_not_waited_for_for_ever() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    let _other = lock(&rig.store.user_folder(ANNE)).unwrap();
    rig.keep(ANNE, PROGRAM, &[("b", 20)]).unwrap();
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 2);
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
    // Used now, by who only begins with it.
    assert!(rig.store.find(ANNE, "/b").is_some());
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

#[test]
fn ten_thousand_programs_take_no_more_room_than_a_thousand() {
    let mut rig = rig();
    rig.store.limits.programs = 100;
    rig.store.limits.bytes = 30_000;
    for number in 0..1_000 {
        rig.keep(ANNE, &format!("/p/{number}"), &[("k", 1)])
            .unwrap();
    }
    let entries = rig.store.of_user(ANNE);
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    assert!(
        entries.len() <= 100 && bytes <= 30_000,
        "{} {bytes}",
        entries.len()
    );
    assert!(rig.store.find(ANNE, "/p/999").is_some());
}
