//! Knowledge about programs' kernels from their runs, on disk.
//! One Pillion profile for each user, program and model of GPU, whose `sources` names the program:
//!
//! ```text
//! /var/lib/pillion/learnt/V100-SXM2-16GB-80/1000/3f0c….toml
//!                         model and SMs     user  the program's name as a number
//! ```
//!
//! Its first line is a comment: a checksum of the rest ([`sum_of`]), the file's entry in a list,
//! and the length of the rest ([`Heading`]), so that listing reads no profile. The daemons of a
//! machine's GPUs share the folder, so that a program that ran on one GPU is known on its
//! neighbour.
//! - **Atomic.** A file is written beside the folders and renamed, so a daemon that is killed at
//!   any instant leaves the old one or the new one, and the next daemon overwrites a half-written
//!   file. All changes happen under one lock for each model of GPU: of two daemons that write at
//!   once the later one reads what the earlier one wrote. Without the lock nothing is written
//!   ([`LOCK_TRIES`]). A text is parsed again before it is written.
//! - **Bounds.** [`PROGRAMS_MAX`] programs and [`BYTES_MAX`] bytes of one user, and four times as
//!   much of all users. Beyond it the least recently used file of the user with most is removed. A
//!   file has at most [`FILE_BYTES_MAX`] bytes.
//! - **Trust.** A process's notes are parsed, bounded and rewritten: none of its text reaches the
//!   disk unchanged. It can spoil the knowledge about its own user's programs, and nobody else's.
//!   All folders from the configured one on must belong to the daemon's user, and be writable by
//!   nobody else; those made here are readable by nobody else.
//! - **Damage.** An invalid file counts as missing, and the next run replaces it. A file that
//!   cannot be read at present (disk failure, no memory) may be valid: it stays, and nothing is
//!   saved.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use profiler::{Profile, learnt};
use protocol::clock::Clock;
use protocol::notebook;
use rustix::fs::{
    FlockOperation, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, flock, futimens,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::config::LearntRules;
use crate::config::gpu::Gpu;
use crate::host::measured;

/// Programs of one user.
pub const PROGRAMS_MAX: usize = 1_024;
/// Bytes of one user.
pub const BYTES_MAX: u64 = 64 << 20;
/// Multiple of one user's bounds for all users.
const USERS_SHARE: u64 = 4;
/// Bytes of one file, and so of one program on one model of GPU: the size of a note.
pub const FILE_BYTES_MAX: usize = notebook::TEXT_BYTES_MAX;
/// Bound of the first line: a name of 256 bytes, each escaped, and numbers.
const HEADING_BYTES_MAX: usize = 1_024;
const HEADING_START: &str = "# learnt ";

/// Attempts to get a lock that another daemon has, and the pause between.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE_NS: u64 = 20_000_000;

/// Stand for an unchanged time and the present one (utimensat(2)).
const OMITTED: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: UTIME_OMIT,
};
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: UTIME_NOW,
};

const SUFFIX: &str = "toml";
/// The file being written; a remnant of a killed daemon is overwritten.
const NEW: &str = ".new";
const LOCK: &str = ".lock";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

#[derive(Debug)]
pub(crate) struct LearntStore {
    root: PathBuf,
    folder: PathBuf,
    gpu: String,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    programs: usize,
    bytes: u64,
}

/// Knowledge about one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Path of script or executable.
    pub program: String,
    /// User of the runs.
    pub user: u32,
    /// Kernels and shapes.
    pub kernels: usize,
    /// Launches behind it.
    pub launches: u64,
    /// Sum of their durations, ms.
    pub time_ms: u64,
    /// Size of the file.
    pub bytes: u64,
    /// When a run last began with it or added to it, unix time, ms.
    pub used_unix_ms: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Well,
    /// Saved, in place of an unreadable file, for this reason.
    OverDamage(String),
    /// Rejected because of the notes, for this reason. No sign of disk trouble.
    Refused(String),
}

/// The first line of a file, after [`HEADING_START`] and the sum, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Heading {
    program: String,
    kernels: usize,
    launches: u64,
    time_ms: u64,
    bytes: u64,
}

enum Before {
    Nothing,
    Profile(Profile),
    Damage(String),
}

struct Entry {
    path: PathBuf,
    uid: u32,
    bytes: u64,
    used: SystemTime,
}

/// The folder for persistent state: as configured in `rules`, or beside the measurements
/// ([`measured::folder`]). `None` if there is no such folder (a user without a home).
#[must_use]
pub fn state_folder(rules: &LearntRules) -> Option<PathBuf> {
    let folder = rules.folder.clone().unwrap_or_else(measured::folder);
    folder.is_absolute().then_some(folder)
}

impl LearntStore {
    pub(crate) fn new(root: PathBuf, gpu: &Gpu) -> Self {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let model: String = gpu
            .name
            .chars()
            .map(|c| if is_plain(c) { c } else { '-' })
            .take(64)
            .collect();
        Self {
            folder: root.join("learnt").join(format!("{model}-{}", gpu.sms)),
            root,
            gpu: gpu.name.clone(),
            limits: Limits {
                programs: PROGRAMS_MAX,
                bytes: BYTES_MAX,
            },
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A program's knowledge, as a profile's text, for a run that begins with it: marks it as used.
    pub(crate) fn find_to_begin(&self, uid: u32, program: &str) -> Option<String> {
        let text = self.find(uid, program)?;
        // A read-only medium still serves its content.
        let now = Timestamps {
            last_access: OMITTED,
            last_modification: NOW,
        };
        let _ = open(&self.path(uid, program)).map(|file| futimens(&file, &now));
        Some(text)
    }

    /// As above, for readers that do not use it.
    pub(crate) fn find(&self, uid: u32, program: &str) -> Option<String> {
        let file = open(&self.path(uid, program)).ok()?;
        let text = text_of(file).ok()?;
        let heading = heading_of_whole(&text)?;
        (heading.program == program).then_some(text)
    }

    /// Merges a run's notes into its program's knowledge, which stays if the notes are rejected.
    /// Error: the disk is full, a folder is not the daemon's alone, or another system error; kind
    /// [`io::ErrorKind::WouldBlock`] if another daemon is writing. The old knowledge remains.
    pub(crate) fn keep(&self, uid: u32, program: &str, now: Profile) -> io::Result<Kept> {
        self.make_folders(&self.folder)?;
        let _lock = lock(&self.folder)?;
        self.make_folders(&self.user_folder(uid))?;
        let path = self.path(uid, program);
        let (joined, kept) = match before(&path, program)? {
            Before::Nothing => (now, Kept::Well),
            Before::Profile(before) => (learnt::joined(before, now), Kept::Well),
            Before::Damage(why) => (now, Kept::OverDamage(why)),
        };
        let text = match self.text(program, joined) {
            Ok(text) => text,
            Err(why) => return Ok(Kept::Refused(why)),
        };
        write(&self.folder.join(NEW), &path, text.as_bytes())?;
        self.bound(uid, &path)?;
        Ok(kept)
    }

    /// The file's text, which parses again; else why there is none.
    fn text(&self, program: &str, mut profile: Profile) -> Result<String, String> {
        profile.sources = vec![program.to_owned()];
        profile.gpu.clone_from(&self.gpu);
        // Drop unused parts of a note.
        profile.notices.clear();
        profile.requests = None;
        learnt::bound(&mut profile, FILE_BYTES_MAX - HEADING_BYTES_MAX);
        let rest = profile.write();
        let kernels = profile.kernels.iter();
        let (launches, sum_ns) = kernels.fold((0_u64, 0_u64), |sums, kernel| {
            let (count, sum_ns) = (kernel.count, kernel.durations.sum_ns);
            (sums.0.saturating_add(count), sums.1.saturating_add(sum_ns))
        });
        let heading = serde_json::to_string(&Heading {
            program: program.to_owned(),
            kernels: profile.kernels.len(),
            launches,
            time_ms: sum_ns / 1_000_000,
            bytes: rest.len() as u64,
        });
        let heading = heading.map_err(|error| error.to_string())?;
        let summed = format!("{heading}\n{rest}");
        let sum = sum_of(&summed);
        let text = format!("{HEADING_START}{sum:016x} {summed}");
        let read = Profile::parse(&text, Path::new("the recorded durations"));
        let is_same = read.map_err(|error| error.to_string())? == profile;
        match is_same && text.len() <= FILE_BYTES_MAX {
            true => Ok(text),
            false => Err("it does not read back as it was written".to_owned()),
        }
    }

    /// Of a user, or all (`None`), most recently used first, without unreadable files.
    pub(crate) fn list(&self, uid: Option<u32>) -> Vec<Listed> {
        let mut entries = match uid {
            Some(uid) => self.of_user(uid),
            None => self.all(),
        };
        entries.sort_by_key(|entry| core::cmp::Reverse(entry.used));
        let listed = entries.iter().filter_map(|entry| {
            let mut start = Vec::new();
            let file = open(&entry.path).ok()?;
            file.take(HEADING_BYTES_MAX as u64)
                .read_to_end(&mut start)
                .ok()?;
            let heading = heading_of(&String::from_utf8_lossy(&start), entry.bytes)?;
            let used = entry.used.duration_since(UNIX_EPOCH).unwrap_or_default();
            Some(Listed {
                program: heading.program,
                user: entry.uid,
                kernels: heading.kernels,
                launches: heading.launches,
                time_ms: heading.time_ms,
                bytes: entry.bytes,
                used_unix_ms: u64::try_from(used.as_millis()).unwrap_or(u64::MAX),
            })
        });
        listed.collect()
    }

    fn user_folder(&self, uid: u32) -> PathBuf {
        self.folder.join(uid.to_string())
    }

    fn path(&self, uid: u32, program: &str) -> PathBuf {
        // The number may collide: the file names its program.
        let number = sum_of(program);
        let name = format!("{number:016x}.{SUFFIX}");
        self.user_folder(uid).join(name)
    }

    /// Creates the folders down to a user's, each the daemon's alone.
    fn make_folders(&self, of_user: &Path) -> io::Result<()> {
        if let Some(parent) = self.root.parent() {
            // Not checked: /var/lib, or a home.
            DirBuilder::new().recursive(true).create(parent)?;
        }
        let below: Vec<&Path> = of_user
            .ancestors()
            .take_while(|path| path.starts_with(&self.root))
            .collect();
        for folder in below.into_iter().rev() {
            match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => check_folder(folder)?,
            }
        }
        Ok(())
    }

    /// Removes what exceeds one user's bounds, and all users'; never the file at `new`.
    fn bound(&self, uid: u32, new: &Path) -> io::Result<()> {
        let mut entries = self.all();
        let of_user = self.bound_user(uid, new, &mut entries);
        of_user.and(self.bound_all(new, &mut entries))
    }

    /// For one user: the least recently used files.
    fn bound_user(&self, uid: u32, new: &Path, entries: &mut Vec<Entry>) -> io::Result<()> {
        loop {
            let own = || entries.iter().filter(|entry| entry.uid == uid);
            let bytes: u64 = own().map(|entry| entry.bytes).sum();
            if own().count() <= self.limits.programs && bytes <= self.limits.bytes {
                return Ok(());
            }
            let others = entries.iter().enumerate();
            let others = others.filter(|(_, entry)| entry.uid == uid && entry.path != new);
            let Some((place, _)) = others.min_by_key(|(_, entry)| entry.used) else {
                return Ok(());
            };
            self.remove(&entries.swap_remove(place))?;
        }
    }

    /// For all users: the least recently used file of the user with most.
    fn bound_all(&self, new: &Path, entries: &mut Vec<Entry>) -> io::Result<()> {
        let programs = self.limits.programs as u64 * USERS_SHARE;
        let bytes = self.limits.bytes * USERS_SHARE;
        let mut sum: u64 = entries.iter().map(|entry| entry.bytes).sum();
        while entries.len() as u64 > programs || sum > bytes {
            let mut shares: HashMap<u32, (u64, u64)> = HashMap::new();
            for entry in entries.iter() {
                let share = shares.entry(entry.uid).or_default();
                *share = (share.0 + entry.bytes, share.1 + 1);
            }
            let share = |entry: &Entry| shares.get(&entry.uid).copied();
            let others = entries.iter().enumerate().filter(|(_, e)| e.path != new);
            let oldest = others
                .max_by_key(|(_, entry)| (share(entry), core::cmp::Reverse(entry.used)))
                .map(|(place, _)| place);
            let Some(place) = oldest else {
                return Ok(());
            };
            let removed = entries.swap_remove(place);
            self.remove(&removed)?;
            sum -= removed.bytes;
        }
        Ok(())
    }

    fn remove(&self, entry: &Entry) -> io::Result<()> {
        match fs::remove_file(&entry.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Fails if the folder is not empty.
        let _ = fs::remove_dir(self.user_folder(entry.uid));
        Ok(())
    }

    fn all(&self) -> Vec<Entry> {
        let folders = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let users = folders.filter_map(|user| user.file_name().to_str()?.parse().ok());
        users.flat_map(|uid| self.of_user(uid)).collect()
    }

    fn of_user(&self, uid: u32) -> Vec<Entry> {
        let files = fs::read_dir(self.user_folder(uid)).into_iter().flatten();
        files
            .flatten()
            .filter_map(|file| {
                let path = file.path();
                let is_kept = path.extension().is_some_and(|suffix| suffix == SUFFIX);
                let found = file.metadata().ok().filter(|_| is_kept)?;
                Some(Entry {
                    path,
                    uid,
                    bytes: found.len(),
                    used: found.modified().unwrap_or(UNIX_EPOCH),
                })
            })
            .collect()
    }
}

/// Checks that a folder is one, and the daemon's alone.
fn check_folder(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let own = rustix::process::geteuid().as_raw();
    let why = match found.is_dir() {
        false => "is not a folder".to_owned(),
        true if found.uid() != own => format!("belongs to user {}, not {own}", found.uid()),
        true if found.mode() & 0o022 != 0 => {
            format!("can be written by others (mode {:o})", found.mode() & 0o777)
        }
        true => return Ok(()),
    };
    let text = format!("{}: {why}", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Opens a file for reading, without following a link or waiting for a FIFO in its place.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)
}

fn text_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    let most = FILE_BYTES_MAX as u64 + 1;
    let read = file.take(most).read_to_string(&mut text)?;
    if read as u64 == most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// The file of `program` at `path`; an error if it cannot be read at present.
fn before(path: &Path, program: &str) -> io::Result<Before> {
    let text = match open(path).and_then(text_of) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Before::Nothing),
        Err(error) if is_damage(&error) => {
            return Ok(Before::Damage(format!("{}: {error}", path.display())));
        }
        Err(error) => return Err(error),
    };
    let damage = |why: &str| Ok(Before::Damage(format!("{}: {why}", path.display())));
    match heading_of_whole(&text) {
        None => return damage("it is incomplete or damaged"),
        Some(heading) if heading.program != program => {
            return damage("it belongs to another program");
        }
        Some(_) => {}
    }
    Ok(match Profile::parse(&text, path) {
        Ok(profile) => Before::Profile(profile),
        Err(error) => Before::Damage(error.to_string()),
    })
}

/// Whether a read error means foreign content: no text, too long, a link. Others may pass.
fn is_damage(error: &io::Error) -> bool {
    let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::FileTooLarge];
    is_link || kinds.contains(&error.kind())
}

/// FNV-1a, 64 bits.
fn sum_of(text: &str) -> u64 {
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn heading_of_whole(text: &str) -> Option<Heading> {
    let (sum, summed) = text.strip_prefix(HEADING_START)?.split_once(' ')?;
    let is_same = u64::from_str_radix(sum, 16) == Ok(sum_of(summed));
    heading_of(text, text.len() as u64).filter(|_| is_same)
}

/// The heading of a file of so many bytes that begins with `text`, if the file is complete.
fn heading_of(text: &str, bytes: u64) -> Option<Heading> {
    let (line, _) = text.split_once('\n')?;
    let (_, heading) = line.strip_prefix(HEADING_START)?.split_once(' ')?;
    let heading: Heading = serde_json::from_str(heading).ok()?;
    let whole = heading.bytes.checked_add(line.len() as u64 + 1);
    (whole == Some(bytes)).then_some(heading)
}

/// Locks a model's folder; [`io::ErrorKind::WouldBlock`] if another daemon holds the lock.
fn lock(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed());
    let file = options.open(folder.join(LOCK))?;
    let clock = Clock::monotonic();
    for _ in 0..LOCK_TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                clock.sleep_until(clock.now_ns() + LOCK_PAUSE_NS);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let text = "another daemon is writing there";
    Err(io::Error::new(io::ErrorKind::WouldBlock, text))
}

/// Atomically puts `text` at `path`, by way of `new`.
fn write(new: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed())
        .open(new)
        .and_then(|mut file| {
            file.write_all(text)?;
            // Sync first: after a power failure the rename must not yield an empty file.
            file.sync_all()
        })
        .and_then(|()| fs::rename(new, path));
    if written.is_err() {
        let _ = fs::remove_file(new);
    }
    written
}

#[cfg(test)]
mod tests;
