//! Elects the daemon that supervises MPS, one of a machine with a daemon for each GPU, and keeps
//! its state for the next one.
//!
//! The lock is on a file in the folder of the sockets, one for each folder of MPS's pipes. The
//! kernel's lock (flock(2)) ends with the process, however that ends; another daemon then gets it
//! at its next poll. The file stays. Daemons with sockets in different folders do not see each
//! other's lock; then two of them supervise, and of two control daemons that they start the second
//! one ends at once.
//! - **The file** contains a line of JSON ([`Kept`]): the restarts of MPS in the last hour, and
//!   whether they were given up, so that the hourly limit holds for the machine, across daemons.
//!   Renaming a new file over this one would lose the lock, so it is written in place, in one
//!   write(2) of less than a page, and truncated after the line. A daemon killed in between leaves
//!   a whole line followed by the rest of a longer one, which nobody reads.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::core::mps_supervisor::Past;

/// Limit of the line: times of as many restarts as may be configured, and the reason for giving up.
const LINE_BYTES_MAX: usize = 4_096;
/// Limit of that reason; a character takes six bytes of JSON at most.
const WHY_CHARS_MAX: usize = 500;
const SECOND_NS: u64 = 1_000_000_000;

/// The file's content, in time that survives a boot.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    restarts_s: Vec<u64>,
    started_s: Option<u64>,
    given_up: Option<String>,
}

impl Kept {
    /// `now`: on the daemon's clock, ns, and in seconds since 1970.
    fn of(past: &Past, now: (u64, u64)) -> Self {
        let (now_ns, now_s) = now;
        let age_s = |at_ns: &u64| now_ns.saturating_sub(*at_ns) / SECOND_NS;
        let restarts = past.restarts_ns.iter();
        let started_s = past.started_ns.as_ref();
        let given_up = past.given_up.as_ref();
        Self {
            restarts_s: restarts
                .map(|at_ns| now_s.saturating_sub(age_s(at_ns)))
                .collect(),
            started_s: started_s.map(|at_ns| now_s.saturating_sub(age_s(at_ns))),
            given_up: given_up.map(|why| why.chars().take(WHY_CHARS_MAX).collect()),
        }
    }

    /// A restart in the future, after the clock was set back, counts as now.
    fn past(self, now: (u64, u64)) -> Past {
        let (now_ns, now_s) = now;
        let at_ns = |at_s: &u64| {
            let age_s = now_s.saturating_sub(*at_s);
            now_ns.saturating_sub(age_s.saturating_mul(SECOND_NS))
        };
        let mut restarts_ns: Vec<u64> = self.restarts_s.iter().map(at_ns).collect();
        restarts_ns.sort_unstable();
        Past {
            restarts_ns,
            started_ns: self.started_s.as_ref().map(at_ns),
            given_up: self.given_up,
        }
    }
}

/// The right to start and restart MPS, while held.
#[derive(Debug)]
pub(crate) struct MpsLock {
    path: PathBuf,
    held: Option<File>,
    is_told: bool,
}

impl MpsLock {
    /// For MPS's pipes of this name, in this folder. Nothing is locked yet.
    pub(crate) fn new(folder: &Path, pipes: &str) -> Self {
        Self {
            path: folder.join(format!("mps-{pipes}.lock")),
            held: None,
            is_told: false,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(crate) fn try_hold(&mut self) -> bool {
        if self.held.is_some() {
            return true;
        }
        match self.take() {
            Ok(file) => self.held = file,
            Err(error) if !std::mem::replace(&mut self.is_told, true) => {
                let path = self.path.display();
                tracing::warn!("cannot lock {path}: {error}; this daemon does not supervise MPS");
            }
            Err(_) => {}
        }
        self.held.is_some()
    }

    fn take(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        // A user who may open the file may lock it.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let options = options.custom_flags(flags).read(true).write(true);
        let file = options.create(true).truncate(false).mode(0o600);
        let file = file.open(&self.path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The previous daemon's state, for the holder of the lock; empty for a new file. `now`: on the
    /// daemon's clock, ns, and in seconds since 1970.
    pub(crate) fn past(&self, now: (u64, u64)) -> io::Result<Past> {
        let Some(file) = &self.held else {
            return Ok(Past::default());
        };
        let mut buffer = [0; LINE_BYTES_MAX];
        let read = file.read_at(&mut buffer, 0)?;
        let text = buffer.get(..read).unwrap_or_default();
        if text.is_empty() {
            return Ok(Past::default());
        }
        let mut lines = text.splitn(2, |&byte| byte == b'\n');
        let (line, rest) = (lines.next().unwrap_or_default(), lines.next());
        if rest.is_none() {
            return Err(io::Error::other("it has no complete line"));
        }
        let kept: Kept = serde_json::from_slice(line)?;
        Ok(kept.past(now))
    }

    /// Saves the state for the next daemon, which does not know it after an error.
    pub(crate) fn keep(&self, past: &Past, now: (u64, u64)) -> io::Result<()> {
        let Some(file) = &self.held else {
            return Ok(());
        };
        let mut line = serde_json::to_vec(&Kept::of(past, now))?;
        line.push(b'\n');
        file.write_all_at(&line, 0)?;
        file.set_len(line.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn held(folder: &Path) -> MpsLock {
        let mut lock = MpsLock::new(folder, "a");
        assert!(lock.try_hold());
        lock
    }

    fn past(restarts_s: &[u64], given_up: Option<&str>) -> Past {
        Past {
            restarts_ns: restarts_s.iter().map(|at_s| at_s * SECOND_NS).collect(),
            started_ns: restarts_s.first().map(|at_s| at_s * SECOND_NS),
            given_up: given_up.map(str::to_owned),
        }
    }

    #[test]
    fn one_daemon_of_several_supervises_and_the_next_when_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let lock = |pipes| MpsLock::new(folder.path(), pipes);
        let (mut first, mut second, mut other) = (lock("a"), lock("a"), lock("b"));
        assert!(first.try_hold() && !second.try_hold());
        assert!(first.try_hold(), "it keeps it");
        assert!(other.try_hold(), "of another MPS");
        drop(first);
        assert!(second.try_hold());
    }

    #[test]
    fn where_there_is_no_folder_nobody_supervises() {
        assert!(!MpsLock::new(Path::new("/no/such/folder"), "a").try_hold());
    }

    #[test]
    fn what_one_daemon_keeps_the_next_one_finds_on_its_own_clock() {
        let folder = tempfile::tempdir().unwrap();
        let first = held(folder.path());
        let now = (9_000 * SECOND_NS, 1_700_000_000);
        assert_eq!(first.past(now).unwrap(), Past::default(), "a new file");
        let why = Some("it \"ended\"\n\u{1} ä");
        for kept in [past(&[8_000, 8_500], why), past(&[8_990], None)] {
            first.keep(&kept, now).unwrap();
            assert_eq!(first.past(now).unwrap(), kept);
        }
        drop(first);
        let next = held(folder.path());
        let found = next.past((500 * SECOND_NS, 1_700_000_060)).unwrap();
        assert_eq!(found, past(&[430], None));
        // A boot that began after it; a clock that was set back.
        for (now, at_s) in [((5, 1_700_000_060), 0), ((7 * SECOND_NS, 1_000), 7)] {
            assert_eq!(next.past(now).unwrap(), past(&[at_s], None));
        }
    }

    #[test]
    fn who_is_killed_before_the_file_is_cut_leaves_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let lock = held(folder.path());
        let now = (9_000 * SECOND_NS, 1_700_000_000);
        lock.keep(&past(&[8_000, 8_500], Some("it has ended")), now)
            .unwrap();
        let longer = fs::read(lock.path()).unwrap();
        let kept = past(&[8_990], None);
        lock.keep(&kept, now).unwrap();
        let mut text = fs::read(lock.path()).unwrap();
        text.extend_from_slice(&longer[text.len()..]);
        fs::write(lock.path(), &text).unwrap();
        assert_eq!(lock.past(now).unwrap(), kept);
    }

    #[test]
    fn what_is_damaged_is_an_error_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let lock = held(folder.path());
        let now = (9_000 * SECOND_NS, 1_700_000_000);
        let kept = past(&[8_000], Some("it has ended"));
        lock.keep(&kept, now).unwrap();
        let whole = fs::read(lock.path()).unwrap();
        for length in 1..whole.len() {
            fs::write(lock.path(), &whole[..length]).unwrap();
            assert!(lock.past(now).is_err(), "{length} bytes of it");
        }
        for text in [
            "\n",
            "{}\n",
            "no JSON\n",
            "[1]\n",
            "{\"restarts_s\":[-1],\"started_s\":null,\"given_up\":null}\n",
        ] {
            fs::write(lock.path(), text).unwrap();
            assert!(lock.past(now).is_err(), "{text}");
        }
        fs::write(lock.path(), vec![b'['; 100_000]).unwrap();
        assert!(lock.past(now).is_err());
        lock.keep(&kept, now).unwrap();
        assert_eq!(lock.past(now).unwrap(), kept);
    }

    #[test]
    fn the_longest_that_is_kept_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let lock = held(folder.path());
        let now = (u64::MAX, u64::MAX);
        let kept = past(&[18_446_744_073; 20], Some(&"\u{1}".repeat(10_000)));
        lock.keep(&kept, now).unwrap();
        let found = lock.past(now).unwrap();
        assert_eq!(found.restarts_ns.len(), 20);
        let why = found.given_up.unwrap();
        assert_eq!(why, "\u{1}".repeat(WHY_CHARS_MAX));
    }
}
