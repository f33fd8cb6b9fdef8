//! Error lines in the logs of MPS's control daemon and server.
//! The files are followed as they grow, are truncated, or are rotated. Content from before the
//! daemon's start is skipped. Much new content is read in pieces ([`READ_BYTES_MAX`] per poll), and
//! a line is truncated at [`LINE_BYTES_MAX`].

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

const READ_BYTES_MAX: u64 = 256 << 10;
/// Examined part of a line.
const LINE_BYTES_MAX: usize = 1024;
/// Faults per poll; further lines are the same trouble.
const FOUND_MAX: usize = 16;

/// A log that is missing for this long is reported, ns: MPS may start after the daemon.
pub const ABSENT_NS: u64 = 60_000_000_000;

/// Parts of lines that mean a failure of MPS, in lower case. The control daemon writes the first
/// two when a server dies; either writes the fourth when it cannot start (NVIDIA's MPS
/// documentation, "Server Log": "MPS server failed to start"; logs in
/// github.com/NVIDIA/k8s-device-plugin issues 685 and 762). The third is reportedly a server's
/// wording of a client's fatal fault; we have not seen it ourselves.
const PATTERNS: [&str; 4] = [
    "fatal exception",
    "exited with status ",
    "fatal gpu error",
    "failed to start",
];

pub(crate) fn is_fault(line: &str, more: &[String]) -> bool {
    let lower = line.to_ascii_lowercase();
    let is_told = PATTERNS.iter().any(|pattern| lower.contains(pattern));
    // A server that ends normally has status 0.
    let is_in_order = lower.trim_end().ends_with("exited with status 0");
    (is_told && !is_in_order) || more.iter().any(|pattern| line.contains(pattern.as_str()))
}

/// A followed file.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    open: Option<Open>,
    /// The file present at first is read from its end.
    has_looked: bool,
    trouble: Option<ErrorKind>,
    is_trouble_new: bool,
    is_absent: bool,
    /// Since when [`Follower::take_absence`] finds it missing.
    absent_since_ns: Option<u64>,
    is_absence_said: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    inode: (u64, u64),
    read_bytes: u64,
    line: Vec<u8>,
}

impl Follower {
    /// Follows the file of that name, which need not exist.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            open: None,
            has_looked: false,
            trouble: None,
            is_trouble_new: false,
            is_absent: false,
            absent_since_ns: None,
            is_absence_said: false,
        }
    }

    /// Whether it has been missing for [`ABSENT_NS`], once each time.
    pub fn take_absence(&mut self, now_ns: u64) -> bool {
        if !self.is_absent {
            self.absent_since_ns = None;
            self.is_absence_said = false;
            return false;
        }
        let since_ns = *self.absent_since_ns.get_or_insert(now_ns);
        let is_long = now_ns.saturating_sub(since_ns) >= ABSENT_NS;
        is_long && !std::mem::replace(&mut self.is_absence_said, true)
    }

    /// Why the file is unreadable, once. A missing file is no trouble, as it may come.
    pub fn take_trouble(&mut self) -> Option<ErrorKind> {
        let is_new = std::mem::take(&mut self.is_trouble_new);
        self.trouble.filter(|_| is_new)
    }

    fn note_trouble(&mut self, trouble: Option<ErrorKind>) {
        self.is_absent = trouble == Some(ErrorKind::NotFound);
        let trouble = trouble.filter(|_| !self.is_absent);
        self.is_trouble_new |= trouble.is_some() && trouble != self.trouble;
        self.trouble = trouble;
    }

    /// The file's name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines that report a failure, written since the last poll.
    pub fn poll(&mut self, more: &[String]) -> Vec<String> {
        let mut found = Vec::new();
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        if let Some(open) = &mut self.open {
            open.read(more, &mut found);
        }
        let there = match self.path.metadata() {
            Ok(found) if found.is_file() => Ok(found),
            Ok(_) => Err(ErrorKind::InvalidInput),
            Err(error) => Err(error.kind()),
        };
        let inode = there.as_ref().ok().map(|file| (file.dev(), file.ino()));
        if inode.is_some() && self.open.as_ref().map(|open| open.inode) == inode {
            return found;
        }
        // Rotated: everything written to the old file until now has been read.
        let opened =
            there.and_then(|_| Open::new(&self.path, is_first).map_err(|error| error.kind()));
        self.note_trouble(opened.as_ref().err().copied());
        self.open = opened.ok();
        if let Some(open) = &mut self.open {
            open.read(more, &mut found);
        }
        found
    }
}

impl Open {
    fn new(path: &Path, from_end: bool) -> std::io::Result<Self> {
        // A FIFO in its place must not hang the daemon.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits();
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.cast_signed())
            .open(path)?;
        let is = file.metadata()?;
        if !is.is_file() {
            return Err(ErrorKind::InvalidInput.into());
        }
        let read_bytes = match from_end {
            true => file.seek(SeekFrom::End(0))?,
            false => 0,
        };
        Ok(Self {
            file,
            inode: (is.dev(), is.ino()),
            read_bytes,
            line: Vec::new(),
        })
    }

    fn read(&mut self, more: &[String], found: &mut Vec<String>) {
        if self
            .file
            .metadata()
            .is_ok_and(|file| file.len() < self.read_bytes)
        {
            // Truncated: start again.
            self.read_bytes = 0;
            self.line.clear();
            let _ = self.file.seek(SeekFrom::Start(0));
        }
        let mut bytes = Vec::new();
        let read = (&self.file).take(READ_BYTES_MAX).read_to_end(&mut bytes);
        // The part that was read counts, despite a later error.
        let _ = read;
        self.read_bytes += bytes.len() as u64;
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend(part.iter().take(room));
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                if found.len() < FOUND_MAX && is_fault(&line, more) {
                    found.push(line.trim().to_owned());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_that_never_comes_is_said_once_after_a_minute_and_again_when_it_has_gone_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.log");
        let mut follower = Follower::new(&path);
        let mut said = Vec::new();
        for second in 0..400_u64 {
            match second {
                100 => fs::write(&path, "").unwrap(),
                200 => fs::remove_file(&path).unwrap(),
                _ => {}
            }
            follower.poll(&[]);
            if follower.take_absence(second * 1_000_000_000) {
                said.push(second);
            }
        }
        assert_eq!(said, [60, 260]);
    }

    const FATAL: &str = "[2024-04-29 11:22:10.441 Control    73] Server encountered a fatal exception. Shutting down";

    #[test]
    fn what_mps_writes_in_the_course_of_things_is_no_fault() {
        for (line, is_so) in [
            (FATAL, true),
            (
                "[2024-04-29 11:22:10.446 Control    73] Server 95 exited with status 1",
                true,
            ),
            (
                "[2024-04-29 11:22:10.446 Control    73] Server 95 exited with status 0",
                false,
            ),
            (
                "[2013-08-06 10:51:31.706 Server 29489] MPS server failed to start",
                true,
            ),
            (
                "Legacy Server   425] Failed to start : invalid argument",
                true,
            ),
            (
                "[2013-08-05 13:00:09.269 Server 13929] New client 14781 connected",
                false,
            ),
            (
                "[2013-08-05 13:00:09.270 Server 13929] Client 14777 disconnected",
                false,
            ),
            (
                "[2024-12-10 06:38:01.120 Control    64] User did not send valid credentials",
                false,
            ),
            (
                "[2021-12-19 16:26:44.071 Control     1] Starting new server 17 for user 1000",
                false,
            ),
        ] {
            assert_eq!(is_fault(line, &[]), is_so, "{line}");
        }
        assert!(is_fault(
            "User did not send valid credentials",
            &["valid cred".to_owned()]
        ));
    }

    #[test]
    fn a_file_is_followed_as_it_grows_is_truncated_and_is_moved_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.log");
        let append = |text: &str| {
            let mut file = OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append(&format!("{FATAL} 0\n"));
        let mut follower = Follower::new(&path);
        assert_eq!(follower.poll(&[]), [""; 0], "old news");
        append(&format!("{FATAL} 1\n{FATAL}"));
        assert_eq!(follower.poll(&[]), [format!("{FATAL} 1")]);
        append(" 2\n");
        assert_eq!(follower.poll(&[]), [format!("{FATAL} 2")]);
        fs::write(&path, format!("{FATAL} 3\n")).unwrap();
        assert_eq!(follower.poll(&[]), [format!("{FATAL} 3")], "truncated");
        append(&format!("{FATAL} 4\n"));
        fs::rename(&path, folder.path().join("control.log.1")).unwrap();
        append(&format!("{FATAL} 5\n"));
        assert_eq!(
            follower.poll(&[]),
            [format!("{FATAL} 4"), format!("{FATAL} 5")]
        );
        fs::remove_file(&path).unwrap();
        assert_eq!(follower.poll(&[]), [""; 0]);
        append(&format!("{FATAL} 6\n"));
        assert_eq!(follower.poll(&[]), [format!("{FATAL} 6")]);
    }

    #[test]
    fn a_file_that_comes_later_is_read_from_its_beginning_and_a_flood_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.log");
        let mut follower = Follower::new(&path);
        assert_eq!(follower.poll(&[]), [""; 0]);
        fs::write(&path, format!("{FATAL}\n").repeat(100)).unwrap();
        assert_eq!(follower.poll(&[]).len(), FOUND_MAX);
        let long = format!(
            "{}{FATAL}\n{FATAL} after\n",
            "x".repeat(10 * LINE_BYTES_MAX)
        );
        fs::write(&path, long).unwrap();
        assert_eq!(follower.poll(&[]), [format!("{FATAL} after")]);
    }

    #[test]
    fn what_is_no_file_is_left_alone_and_told_once_and_what_is_not_there_may_come() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.log");
        let mut follower = Follower::new(&path);
        let mut look = || (follower.poll(&[]).len(), follower.take_trouble());
        assert_eq!(look(), (0, None), "there is none");
        fs::create_dir(&path).unwrap();
        assert_eq!(look(), (0, Some(ErrorKind::InvalidInput)));
        assert_eq!(look(), (0, None), "once");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, format!("{FATAL}\n")).unwrap();
        assert_eq!(look(), (1, None));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(look(), (0, Some(ErrorKind::InvalidInput)), "again");
        // A link to itself is unresolvable: another trouble.
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let (found, trouble) = look();
        assert!(found == 0 && trouble.is_some_and(|kind| kind != ErrorKind::InvalidInput));
    }
}
