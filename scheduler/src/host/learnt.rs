//! What runs have taught of programs' kernels, on disk.
//!
//! One Pillion profile for each user, program and model of GPU, whose `sources` names the program:
//!
//! ```text
//! /var/lib/pillion/learnt/V100-SXM2-16GB-80/1000/3f0c….toml
//!                         model and SMs     user  the program's name as a number
//! ```
//!
//! The daemons of a machine's GPUs share the folder, so that a program that ran on one GPU is known
//! on its neighbour. A file is written beside the one it replaces and renamed, so a daemon that is
//! killed at any instant leaves the old one or the new one. Of two daemons that write at once the
//! later one reads what the earlier one wrote (a lock on the user's folder, which is not waited for
//! longer than [`LOCK_TRIES`]).
//!
//! **Bounds.** [`PROGRAMS_MAX`] programs and [`BYTES_MAX`] bytes of one user, and four times as much
//! of all: then the file goes that was not used for the longest, of the user who has most. A file
//! has at most [`FILE_BYTES_MAX`] bytes.
//!
//! **Trust.** What a process notes is parsed, bounded and written anew: nothing of its text reaches
//! the disk as it came. It can spoil what is kept of its own user's programs, and nobody else's.
//! All folders from the configured one on must belong to the daemon's user, and nobody else may
//! write to them; those that are made here nobody else can read. A file that is damaged is none, and
//! the next run replaces it.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use profiler::{Profile, learnt};
use protocol::clock::Clock;
use rustix::fs::{
    FlockOperation, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, flock, futimens,
};
use serde::{Deserialize, Serialize};

use crate::config::LearntRules;
use crate::config::gpu::Gpu;
use crate::host::measured;

/// Programs of one user.
pub const PROGRAMS_MAX: usize = 1_024;
/// Bytes of one user.
pub const BYTES_MAX: u64 = 64 << 20;
/// Of all users, as many times what one may have.
const USERS_SHARE: u64 = 4;
/// Bytes of one file, and so of one program on one model of GPU.
pub const FILE_BYTES_MAX: usize = 2 << 20;

/// How often the lock of a folder is tried that another daemon has, and how long between.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE_NS: u64 = 20_000_000;

/// In place of a time that is to stay as it is, and of the present one (utimensat(2)).
const OMITTED: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: UTIME_OMIT,
};
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: UTIME_NOW,
};

const SUFFIX: &str = "toml";
/// Of a file that is being written; left by a daemon that was killed, and written over.
const NEW_SUFFIX: &str = "new";
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct LearntStore {
    /// The configured folder.
    root: PathBuf,
    /// The GPU's folder in it.
    folder: PathBuf,
    gpu: String,
    limits: Limits,
}

/// The bounds of one user.
#[derive(Clone, Copy, Debug)]
struct Limits {
    programs: usize,
    bytes: u64,
}

/// What is kept of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Path of script or executable.
    pub program: String,
    /// Whose runs.
    pub user: u32,
    /// Kernels and shapes.
    pub kernels: usize,
    /// Launches that it rests on.
    pub launches: u64,
    /// What they took together, ms.
    pub time_ms: u64,
    /// Size of the file.
    pub bytes: u64,
    /// When a run began with it or added to it last, in unix time, ms.
    pub used_unix_ms: u64,
}

/// What came of keeping something.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is kept.
    Well,
    /// It is kept, in place of a file that could not be read, for this reason.
    OverDamage(String),
}

/// A file of the folder.
struct Entry {
    path: PathBuf,
    uid: u32,
    bytes: u64,
    used: SystemTime,
}

/// Where things are kept that outlive the daemon: where `rules` say, or beside what was measured
/// ([`measured::folder`]). `None` where there is no such place (a user without a home).
#[must_use]
pub fn state_folder(rules: &LearntRules) -> Option<PathBuf> {
    let folder = rules.folder.clone().unwrap_or_else(measured::folder);
    folder.is_absolute().then_some(folder)
}

impl LearntStore {
    /// The one in `root`, for a daemon of that GPU. Nothing is read or made yet.
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

    /// Where it is, for people.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is kept of a program, for reading; it counts as used.
    pub(crate) fn find(&self, uid: u32, program: &str) -> Option<File> {
        let file = open(&self.path(uid, program)).ok()?;
        // A folder on a medium that takes no more writing still serves what is in it.
        let now = Timestamps {
            last_access: OMITTED,
            last_modification: NOW,
        };
        let _ = futimens(&file, &now);
        Some(file)
    }

    /// Joins what a run noted with what is kept of its program.
    ///
    /// # Errors
    ///
    /// The disk is full, a folder is not the daemon's alone, or what else the system says. What was
    /// kept before is still kept.
    pub(crate) fn keep(&self, uid: u32, program: &str, now: Profile) -> io::Result<Kept> {
        let folder = self.user_folder(uid);
        self.make_folders(&folder)?;
        let _lock = lock(&folder);
        let path = self.path(uid, program);
        let before = match open(&path) {
            Ok(file) => read(file, &path, program).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        };
        let is_new = matches!(before, Ok(None));
        let (before, kept) = match before {
            Ok(before) => (before, Kept::Well),
            Err(why) => (None, Kept::OverDamage(why)),
        };
        let mut joined = match before {
            Some(before) => learnt::joined(before, now),
            None => now,
        };
        joined.sources = vec![program.to_owned()];
        joined.gpu.clone_from(&self.gpu);
        // What else a note says, nobody has use for.
        joined.notices.clear();
        joined.requests = None;
        learnt::bound(&mut joined, FILE_BYTES_MAX);
        write(&path, joined.write().as_bytes())?;
        self.bound_user(uid, &path)?;
        if is_new {
            self.bound_all(&path)?;
        }
        Ok(kept)
    }

    /// What is kept of a user's programs, or of all (`None`), the last used first. A file that
    /// cannot be read is not listed.
    pub(crate) fn list(&self, uid: Option<u32>) -> Vec<Listed> {
        let mut entries = match uid {
            Some(uid) => self.of_user(uid),
            None => self.all(),
        };
        entries.sort_by_key(|entry| core::cmp::Reverse(entry.used));
        let listed = entries.iter().filter_map(|entry| {
            let text = text_of(open(&entry.path).ok()?).ok()?;
            let profile = Profile::parse(&text, &entry.path).ok()?;
            let (count, sum) = profile.kernels.iter().fold((0_u64, 0_u64), |sums, kernel| {
                let (count, sum_ns) = (kernel.count, kernel.durations.sum_ns);
                (sums.0.saturating_add(count), sums.1.saturating_add(sum_ns))
            });
            let used = entry.used.duration_since(UNIX_EPOCH).unwrap_or_default();
            Some(Listed {
                program: profile.sources.into_iter().next()?,
                user: entry.uid,
                kernels: profile.kernels.len(),
                launches: count,
                time_ms: sum / 1_000_000,
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
        // FNV-1a; that the file is of this program it says itself.
        let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let number = program.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        let name = format!("{number:016x}.{SUFFIX}");
        self.user_folder(uid).join(name)
    }

    /// The folders down to a user's, each the daemon's alone.
    fn make_folders(&self, of_user: &Path) -> io::Result<()> {
        if let Some(parent) = self.root.parent() {
            // Of these nothing is asked: /var/lib, or somebody's home.
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

    /// Removes what one user has too much of; never the file at `new`.
    fn bound_user(&self, uid: u32, new: &Path) -> io::Result<()> {
        let mut entries = self.of_user(uid);
        entries.sort_by_key(|entry| core::cmp::Reverse(entry.used));
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        while let Some(oldest) = entries.pop() {
            let count = entries.len() + 1;
            if count <= self.limits.programs && bytes <= self.limits.bytes {
                break;
            }
            if oldest.path != new {
                fs::remove_file(&oldest.path)?;
                bytes -= oldest.bytes;
            }
        }
        Ok(())
    }

    /// Removes what all users together have too much of: of the user with most the file that was not
    /// used for the longest; never the one at `new`.
    fn bound_all(&self, new: &Path) -> io::Result<()> {
        let mut entries = self.all();
        let programs = self.limits.programs as u64 * USERS_SHARE;
        let bytes = self.limits.bytes * USERS_SHARE;
        let mut sum: u64 = entries.iter().map(|entry| entry.bytes).sum();
        while entries.len() as u64 > programs || sum > bytes {
            let mut shares: HashMap<u32, (u64, u64)> = HashMap::new();
            for entry in &entries {
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
            fs::remove_file(&removed.path)?;
            sum -= removed.bytes;
        }
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

/// That a folder is one, and nobody's but the daemon's.
fn check_folder(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let own = rustix::process::geteuid().as_raw();
    let why = match found.is_dir() {
        false => "is no folder".to_owned(),
        true if found.uid() != own => format!("belongs to user {}, not {own}", found.uid()),
        true if found.mode() & 0o022 != 0 => {
            format!("can be written by others (mode {:o})", found.mode() & 0o777)
        }
        true => return Ok(()),
    };
    let text = format!("{}: {why}", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// A file for reading; neither a link nor a FIFO in its place is followed or waited for.
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

/// What is kept of `program`, or why it cannot be used.
fn read(file: File, path: &Path, program: &str) -> Result<Profile, String> {
    let text = text_of(file).map_err(|error| format!("{}: {error}", path.display()))?;
    let profile = Profile::parse(&text, path).map_err(|error| error.to_string())?;
    match profile.sources.first().is_some_and(|of| of == program) {
        true => Ok(profile),
        false => Err(format!("{}: it is another program's", path.display())),
    }
}

/// The lock of a user's folder, unless another daemon keeps it: then what that writes may be lost,
/// which a run makes good.
fn lock(folder: &Path) -> Option<File> {
    let path = folder.join(".lock");
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed());
    let file = options.open(path).ok()?;
    let clock = Clock::monotonic();
    for _ in 0..LOCK_TRIES {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                clock.sleep_until(clock.now_ns() + LOCK_PAUSE_NS);
            }
            Err(_) => return None,
        }
    }
    None
}

/// Puts `text` at `path` in one step.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension(NEW_SUFFIX);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed())
        .open(&new)
        .and_then(|mut file| {
            file.write_all(text)?;
            // A rename that outlives the machine's power must not lead to an empty file.
            file.sync_all()
        })
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests;
