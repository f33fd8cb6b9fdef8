//! What the operator has promised single jobs, on disk, for the daemon that comes next.
//!
//! A job's ledger keeps the promise as well, and ends with the job
//! ([`protocol::ledger::Ledger::promise`]). But processes of the job can write there, and other
//! users' jobs pay for a promise. So a daemon believes what a ledger says of it only where the same
//! is written here, which only the daemon and root can do.
//!
//! One file beside the socket, `<gpu uuid>.promises` ([`super::private_file`]), a line for each
//! job: its user, its id in quotes, and the promise as a word
//! ([`protocol::promise::Promise::to_word`]):
//!
//! ```text
//! 1000 "4711-1c0ffee" 196611
//! ```
//!
//! A line stays when its job has ended: a later job of that user and id could have that promise by
//! writing it into its ledger, and no other.

use std::io;
use std::path::{Path, PathBuf};

use crate::host::private_file;

/// Lines that are kept, the latest.
const LINES_MAX: usize = 256;
/// Of a file that is read: a character of an id has ten bytes in quotes at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The file of one GPU.
#[derive(Debug)]
pub(crate) struct GrantedFile {
    path: PathBuf,
}

impl GrantedFile {
    /// The one of GPU `uuid`, whose daemon listens at `socket`.
    pub(crate) fn beside(socket: &Path, uuid: &str) -> Self {
        Self {
            path: private_file::beside(socket, uuid, "promises"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a job was promised that.
    ///
    /// # Errors
    ///
    /// The file is somebody else's, or cannot be read.
    pub(crate) fn is_granted(&self, uid: u32, job: &str, word: u64) -> io::Result<bool> {
        let line = format!("{}{word}", begin(uid, job));
        let text = private_file::read(&self.path, FILE_BYTES_MAX)?;
        Ok(text.is_some_and(|text| text.lines().any(|known| known == line)))
    }

    /// A job is promised that from now on; none: nothing.
    ///
    /// # Errors
    ///
    /// What is there cannot be read, or written. It still is there.
    pub(crate) fn keep(&self, uid: u32, job: &str, word: Option<u64>) -> io::Result<()> {
        let begin = begin(uid, job);
        let text = private_file::read(&self.path, FILE_BYTES_MAX)?.unwrap_or_default();
        let others = text.lines().filter(|line| !line.starts_with(&begin));
        let mut lines: Vec<String> = others.map(str::to_owned).collect();
        lines.extend(word.map(|word| format!("{begin}{word}")));
        let gone = lines.len().saturating_sub(LINES_MAX);
        match &lines[gone..] {
            [] => private_file::remove(&self.path),
            kept => private_file::write(&self.path, &(kept.join("\n") + "\n")),
        }
    }
}

/// What a job's line begins with, and no other's: quotes in an id are escaped.
fn begin(uid: u32, job: &str) -> String {
    format!("{uid} {job:?} ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_job_has_what_it_was_promised_last_and_no_other_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = GrantedFile::beside(&folder.path().join("gpu0.sock"), "GPU-1/2");
        assert!(file.path().ends_with("GPU-1_2.promises"));
        let has = |uid, job: &str, word| file.is_granted(uid, job, word).unwrap();
        assert!(!has(7, "a", 3));
        for (uid, job, word) in [
            (7, "a", 3),
            (7, "a", 4),
            (8, "a", 5),
            (7, "a\n7 \"b\" 9", 6),
        ] {
            file.keep(uid, job, Some(word)).unwrap();
        }
        assert!(!has(7, "a", 3) && has(7, "a", 4) && has(8, "a", 5));
        assert!(has(7, "a\n7 \"b\" 9", 6) && !has(7, "b", 9) && !has(9, "a", 4));
        file.keep(7, "a", None).unwrap();
        assert!(!has(7, "a", 4) && has(8, "a", 5));
        for job in 0..LINES_MAX {
            file.keep(9, &job.to_string(), Some(1)).unwrap();
        }
        assert!(!has(8, "a", 5) && has(9, "0", 1) && has(9, "255", 1));
        for job in 0..LINES_MAX {
            file.keep(9, &job.to_string(), None).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_others_may_write_promises_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = GrantedFile::beside(&folder.path().join("gpu0.sock"), "GPU-1");
        file.keep(7, "a", Some(3)).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o622)).unwrap();
        assert!(file.is_granted(7, "a", 3).is_err() && file.keep(7, "a", None).is_err());
    }
}
