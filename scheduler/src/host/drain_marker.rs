//! Persists that a GPU is drained, for the next daemon.
//!
//! A restart or upgrade of the daemon does not repair a broken GPU. So the reason of a drain is
//! kept in a file beside the socket (`<gpu uuid>.drained`), which the next daemon reads and
//! `pillion resume` removes. A second line records a released device (`pillion drain --release`):
//! the next daemon leaves it closed. The usual folders (`/run/pillion`, `$XDG_RUNTIME_DIR/pillion`)
//! are emptied at boot, including the file.
//!
//! Only the daemon's user and root can write the file (and the folder). Another user's file is
//! ignored and reported: it would let any user drain the GPU. If the daemon's own file is
//! unreadable or not text, the GPU counts as drained for an unknown reason: an operator ends that
//! with one command, whereas nobody would notice a broken GPU taken for a good one. The file is
//! replaced whole ([`private_file::write`]).

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::host::private_file;

const RELEASED: &str = "released";
/// Limit of the reason.
const WHY_BYTES_MAX: usize = 1_000;
/// Limit of the file, with both lines.
const FILE_BYTES_MAX: u64 = 1_024;

#[derive(Debug)]
pub(crate) struct DrainMarker {
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// The reason, and whether the device is released.
    Why(String, bool),
    Foreign(u32),
}

impl DrainMarker {
    pub(crate) fn beside(socket: &Path, uuid: &str) -> Self {
        // Names of MIG instances once contained slashes.
        let name = format!("{}.drained", uuid.replace('/', "_"));
        Self {
            path: socket.with_file_name(name),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn read(&self) -> Found {
        let owner = match fs::symlink_metadata(&self.path) {
            Ok(found) => found.uid(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Found::Nothing,
            Err(error) => return self.illegible(&error.to_string()),
        };
        if owner != 0 && owner != rustix::process::geteuid().as_raw() {
            return Found::Foreign(owner);
        }
        match self.text() {
            Ok(text) => {
                let text = text.trim_end();
                let (why, is_released) = match text.split_once('\n') {
                    Some((why, RELEASED)) => (why, true),
                    _ => (text, false),
                };
                match why {
                    "" => self.illegible("it is empty"),
                    _ if why.chars().any(char::is_control) => self.illegible("it is not text"),
                    _ => Found::Why(why.to_owned(), is_released),
                }
            }
            Err(error) => self.illegible(&error.to_string()),
        }
    }

    fn illegible(&self, why: &str) -> Found {
        let path = self.path.display();
        let why = format!(
            "the previous daemon has drained it, for a reason that cannot be read ({path}: {why})"
        );
        Found::Why(why, false)
    }

    fn text(&self) -> io::Result<String> {
        // Do not follow a link, nor wait for a FIFO, in its place.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.cast_signed())
            .open(&self.path)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Writes that the GPU is drained, for this reason, and whether its device is released. Of a
    /// reason with a part of another program's log, control characters and a long rest are lost. On
    /// an error the earlier file remains.
    pub(crate) fn keep(&self, why: &str, is_released: bool) -> io::Result<()> {
        let why: String = why
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let why = &why[..why.floor_char_boundary(WHY_BYTES_MAX)];
        let released = if is_released { RELEASED } else { "" };
        private_file::write(&self.path, format!("{why}\n{released}").trim_end())
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn word() -> (tempfile::TempDir, DrainMarker) {
        let folder = tempfile::tempdir().unwrap();
        let word = DrainMarker::beside(&folder.path().join("gpu0.sock"), "GPU-1");
        (folder, word)
    }

    #[test]
    fn what_was_kept_is_found_until_it_is_removed_and_nobody_else_can_write_it() {
        let (folder, word) = word();
        assert_eq!(word.read(), Found::Nothing);
        word.keep("Xid 48: worse", true).unwrap();
        assert_eq!(word.read(), Found::Why("Xid 48: worse".to_owned(), true));
        word.keep("Xid 79: gone", false).unwrap();
        let path = folder.path().join("GPU-1.drained");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(word.read(), Found::Why("Xid 79: gone".to_owned(), false));
        for _ in 0..2 {
            word.remove().unwrap();
            assert_eq!(word.read(), Found::Nothing);
        }
    }

    #[test]
    fn a_long_reason_with_a_tab_is_kept_and_that_the_device_is_released() {
        let (_folder, word) = word();
        word.keep(&format!("MPS:\tfault {}", "é".repeat(1_024)), true)
            .unwrap();
        match word.read() {
            Found::Why(why, true) => assert!(why.starts_with("MPS: fault éé"), "{why}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_kept_leaves_the_earlier_reason() {
        let (folder, word) = word();
        word.keep("Xid 48", false).unwrap();
        // In the place of the new file.
        fs::create_dir(folder.path().join("GPU-1.drained.new")).unwrap();
        assert!(word.keep("Xid 79", true).is_err());
        assert_eq!(word.read(), Found::Why("Xid 48".to_owned(), false));
    }

    #[test]
    fn what_cannot_be_read_says_that_it_is_drained_all_the_same() {
        let (_folder, word) = word();
        let expect_drained = |part: &str| match word.read() {
            Found::Why(why, false) => assert!(why.contains(part), "{why}"),
            other => panic!("{other:?} where {part} was to be said"),
        };
        for (bytes, part) in [
            (b"".as_slice(), "it is empty"),
            (b"\xff\xfe", "valid UTF-8"),
            (b"a\x1b[2J", "it is not text"),
            (b"a\nreleased\nb", "it is not text"),
        ] {
            fs::write(word.path(), bytes).unwrap();
            expect_drained(part);
        }
        word.remove().unwrap();
        std::os::unix::fs::symlink("/etc/hostname", word.path()).unwrap();
        expect_drained("cannot be read");
        word.remove().unwrap();
        fs::create_dir(word.path()).unwrap();
        expect_drained("cannot be read");
        assert!(word.remove().is_err() && word.keep("Xid 48", false).is_err());
    }
}
