//! A full disk, and killed daemons, each in a separate process.

use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg32;

use super::*;

/// The folder for the parts of these tests in separate processes, which do nothing without it.
const FOLDER_ENV: &str = "PILLION_TEST_KEEP_IN";

/// As many kernels as a network has: some 60 KB.
const KERNELS: u64 = 200;

fn store_of_parent() -> Option<LearntStore> {
    let folder = std::env::var_os(FOLDER_ENV)?;
    Some(LearntStore::new(folder.into(), &gpu()))
}

fn kept_in(store: &LearntStore) -> Vec<(String, u64)> {
    let text = store.find(ANNE, PROGRAM).expect("what was kept before");
    let profile = Profile::parse(&text, Path::new("kept")).unwrap();
    let kernels = profile.kernels.into_iter();
    kernels.map(|k| (k.name, k.durations.median_ns)).collect()
}

fn noted_by(numbers: impl Iterator<Item = u64>) -> Profile {
    let names: Vec<(String, u64)> = numbers.map(|n| (format!("k{}", n % KERNELS), n)).collect();
    let kernels: Vec<(&str, u64)> = names.iter().map(|(name, ns)| (&**name, *ns)).collect();
    noted(&kernels)
}

#[test]
fn a_process_whose_disk_takes_a_few_kilobytes() {
    let Some(store) = store_of_parent() else {
        return;
    };
    // Like ENOSPC except for its number: the write is partial.
    let error = store
        .keep(ANNE, PROGRAM, noted_by(1..=KERNELS))
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::FBIG.raw_os_error()));
    assert!(!store.folder.join(NEW).exists(), "it takes room");
    assert_eq!(kept_in(&store), [("a".to_owned(), 10)]);
    let kept = store.keep(ANNE, PROGRAM, noted(&[("b", 20)]));
    assert!(matches!(kept, Ok(Kept::Well)), "{kept:?}");
}

/// A file size limit simulates the full disk: it needs no right to mount one.
#[test]
fn a_disk_that_is_full_in_the_middle_of_a_file_leaves_what_was_kept() {
    let rig = rig();
    rig.keep(ANNE, PROGRAM, &[("a", 10)]).unwrap();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact \"$1\"";
    let name = "host::learnt::tests::broken::a_process_whose_disk_takes_a_few_kilobytes";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env(FOLDER_ENV, &rig.store.root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(rig.kept(ANNE, PROGRAM).len(), 2, "{output:?}");
}

/// File with the number of the killed process's last saved note.
const DONE: &str = "done";

/// Runs until killed: each note has one kernel, with its number as duration.
#[test]
fn a_process_that_keeps_until_it_is_killed() {
    let Some(store) = store_of_parent() else {
        return;
    };
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let done = options.open(store.root.join(DONE)).unwrap();
    let first = number_in(&done) + 1;
    for number in first..first + 10_000 {
        store
            .keep(ANNE, PROGRAM, noted_by(number..=number))
            .unwrap();
        done.write_all_at(&number.to_ne_bytes(), 0).unwrap();
    }
}

fn number_in(done: &File) -> u64 {
    let mut number = [0; 8];
    done.read_exact_at(&mut number, 0).unwrap();
    u64::from_ne_bytes(number)
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kept_up_to(last: u64) -> Vec<(String, u64)> {
    let mut numbers: Vec<u64> = (last - KERNELS + 1..=last).collect();
    numbers.sort_by_key(|number| (number + KERNELS - 1) % KERNELS);
    let kernels = numbers.into_iter();
    kernels.map(|n| (format!("k{}", n % KERNELS), n)).collect()
}

#[test]
fn of_a_daemon_that_is_killed_at_any_instant_all_is_kept_that_it_had_kept() {
    const ROUNDS: u32 = 30;
    let rig = rig();
    let clock = Clock::monotonic();
    let first = rig.store.keep(ANNE, PROGRAM, noted_by(1..=KERNELS));
    assert!(matches!(first, Ok(Kept::Well)));
    let path = rig.store.root.join(DONE);
    fs::write(&path, KERNELS.to_ne_bytes()).unwrap();
    let done = File::open(&path).unwrap();
    let mut random = Pcg32::seed_from_u64(24);
    let (mut last, mut half_written) = (KERNELS, 0);
    for round in 0..ROUNDS {
        let process = Command::new(std::env::current_exe().unwrap())
            .arg("--exact")
            .arg("host::learnt::tests::broken::a_process_that_keeps_until_it_is_killed")
            .env(FOLDER_ENV, &rig.store.root)
            .stdout(Stdio::null())
            .spawn();
        let mut process = Killed(process.unwrap());
        // A half-written file of the previous process does no harm.
        while number_in(&done) == last {
            assert!(process.0.try_wait().unwrap().is_none(), "round {round}");
            clock.sleep_until(clock.now_ns() + 100_000);
        }
        clock.sleep_until(clock.now_ns() + random.random_range(0..10_000_000));
        drop(process);
        half_written += u32::from(rig.store.folder.join(NEW).exists());
        last = number_in(&done);
        let kept = kept_in(&rig.store);
        // It may have been killed after saving and before recording the number.
        let is_whole = kept == kept_up_to(last) || kept == kept_up_to(last + 1);
        assert!(is_whole, "round {round}, after note {last}: {kept:?}");
    }
    println!("{half_written} of {ROUNDS} were killed while they wrote a file");
    rig.keep(ANNE, PROGRAM, &[("b", 20)]).unwrap();
    assert_eq!(rig.kept(ANNE, PROGRAM).len() as u64, KERNELS + 1);
    let names = fs::read_dir(&rig.store.folder).unwrap();
    assert_eq!(names.count(), 2, "the user's folder and the lock");
}
