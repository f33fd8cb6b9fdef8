//! The operator's promises to single jobs, on disk, for the next daemon.
//! A job's ledger keeps the promise as well, and ends with the job
//! ([`protocol::ledger::Ledger::promise`]). But the job's processes can write there, and other
//! users' jobs pay for a promise. So a daemon believes a ledger's promise only if the same is
//! written here, which only the daemon and root can do. One file beside the socket, `<gpu
//! uuid>.promises` ([`super::private_file`]), with a line for each job: its user, its id in quotes,
//! and the promise as a word ([`protocol::promise::Promise::to_word`]):
//!
//! ```text
//! 1000 "4711-1c0ffee" 196611
//! ```
//!
//! A line is removed at the next write after its job has ended under this daemon, or when the
//! operator withdraws the promise. Until then a later job of that user and id could have that
//! promise, and no other, by writing it into its ledger.

use std::io;
use std::path::{Path, PathBuf};

use crate::core::job_key::JobKey;
use crate::host::private_file;

const LINES_MAX: usize = 256;
/// Limit of a file that is read: a quoted character of an id takes ten bytes at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct GrantedFile {
    path: PathBuf,
}

impl GrantedFile {
    pub(crate) fn beside(socket: &Path, uuid: &str) -> Self {
        Self {
            path: private_file::beside(socket, uuid, "promises"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this was promised to a job, by a file of the daemon's user or root.
    pub(crate) fn is_granted(&self, uid: u32, job: &str, word: u64) -> io::Result<bool> {
        let line = format!("{}{word}", begin(uid, job));
        let text = private_file::read(&self.path, FILE_BYTES_MAX)?;
        Ok(text.is_some_and(|text| text.lines().any(|known| known == line)))
    }

    /// Users with a line for a job of that id.
    pub(crate) fn users_of(&self, job: &str) -> io::Result<Vec<u32>> {
        let text = private_file::read(&self.path, FILE_BYTES_MAX)?.unwrap_or_default();
        let users = text.lines().filter_map(|line| {
            let uid: u32 = line.split(' ').next()?.parse().ok()?;
            line.starts_with(&begin(uid, job)).then_some(uid)
        });
        Ok(users.collect())
    }

    /// Writes these jobs' promises; none: no promise. `known` are this daemon's jobs, and whether
    /// any process is left: lines of ended ones are removed. An unknown job may not have attached
    /// yet: its line is removed only for lack of room, and before others. On an error the old file
    /// remains.
    pub(crate) fn keep(
        &self,
        promised: &[(JobKey, Option<u64>)],
        known: &[(JobKey, bool)],
    ) -> io::Result<()> {
        let begin_of = |key: &JobKey| begin(key.uid, &key.id);
        let changed: Vec<String> = promised.iter().map(|(key, _)| begin_of(key)).collect();
        let (left, ended): (Vec<_>, Vec<_>) = known.iter().partition(|(_, is_left)| *is_left);
        let ended: Vec<String> = ended.iter().map(|(key, _)| begin_of(key)).collect();
        let is_of = |line: &str, begins: &[String]| begins.iter().any(|b| line.starts_with(b));
        let text = private_file::read(&self.path, FILE_BYTES_MAX)?.unwrap_or_default();
        let others = text.lines();
        let others = others.filter(|line| !is_of(line, &changed) && !is_of(line, &ended));
        let mut lines: Vec<String> = others.map(str::to_owned).collect();
        let words = promised.iter().zip(&changed);
        lines.extend(words.filter_map(|((_, word), begin)| Some(format!("{begin}{}", (*word)?))));
        let gone = lines.len().saturating_sub(LINES_MAX);
        if gone > 0 {
            let mut left: Vec<String> = left.iter().map(|(key, _)| begin_of(key)).collect();
            left.extend(changed);
            lines.sort_by_key(|line| is_of(line, &left));
        }
        for line in &lines[..gone] {
            let path = self.path.display();
            tracing::warn!(
                "{path}: at most {LINES_MAX} jobs fit: the next daemon will not know {line}"
            );
        }
        match &lines[gone..] {
            [] => private_file::remove(&self.path),
            kept => private_file::write(&self.path, &(kept.join("\n") + "\n")),
        }
    }
}

/// The unique beginning of a job's line: quotes in an id are escaped.
fn begin(uid: u32, job: &str) -> String {
    format!("{uid} {job:?} ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use protocol::hello::JobClass;

    use super::*;

    fn key(uid: u32, id: &str) -> JobKey {
        JobKey {
            id: id.to_owned(),
            uid,
            class: JobClass::BestEffort,
        }
    }

    #[test]
    fn a_job_has_what_it_was_promised_last_and_no_other_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = GrantedFile::beside(&folder.path().join("gpu0.sock"), "GPU-1/2");
        assert!(file.path().ends_with("GPU-1_2.promises"));
        let has = |uid, job: &str, word| file.is_granted(uid, job, word).unwrap();
        let keep = |uid, job: &str, word| file.keep(&[(key(uid, job), word)], &[]).unwrap();
        assert!(!has(7, "a", 3));
        for (uid, job, word) in [
            (7, "a", 3),
            (7, "a", 4),
            (8, "a", 5),
            (7, "a\n7 \"b\" 9", 6),
        ] {
            keep(uid, job, Some(word));
        }
        assert!(!has(7, "a", 3) && has(7, "a", 4) && has(8, "a", 5));
        assert!(has(7, "a\n7 \"b\" 9", 6) && !has(7, "b", 9) && !has(9, "a", 4));
        assert_eq!(file.users_of("a").unwrap(), [7, 8]);
        assert!(file.users_of("b").unwrap().is_empty());
        keep(7, "a", None);
        assert!(!has(7, "a", 4) && has(8, "a", 5));
        let rest = [(key(8, "a"), None), (key(7, "a\n7 \"b\" 9"), None)];
        file.keep(&rest, &[]).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn lines_of_jobs_that_have_ended_go_and_where_there_is_no_room_those_of_unknown_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file = GrantedFile::beside(&folder.path().join("gpu0.sock"), "GPU-1");
        let has = |uid, job: &str| file.is_granted(uid, job, 1).unwrap();
        let three = ["left", "ended", "unknown"].map(|job| (key(7, job), Some(1)));
        file.keep(&three, &[]).unwrap();
        let known = [
            (key(7, "left"), true),
            (key(7, "ended"), false),
            (key(8, "unknown"), false),
        ];
        file.keep(&[(key(9, "new"), Some(1))], &known).unwrap();
        assert!(has(7, "left") && has(7, "unknown") && has(9, "new") && !has(7, "ended"));
        for job in 0..LINES_MAX {
            let job = key(10, &job.to_string());
            file.keep(&[(job, Some(1))], &known).unwrap();
        }
        assert!(has(7, "left") && !has(7, "unknown") && has(10, "255"));
        let lines = fs::read_to_string(file.path()).unwrap();
        assert_eq!(lines.lines().count(), LINES_MAX);
    }

    #[test]
    fn a_file_that_others_may_write_promises_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = GrantedFile::beside(&folder.path().join("gpu0.sock"), "GPU-1");
        file.keep(&[(key(7, "a"), Some(3))], &[]).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o622)).unwrap();
        assert!(file.is_granted(7, "a", 3).is_err() && file.users_of("a").is_err());
        assert!(file.keep(&[(key(7, "a"), None)], &[]).is_err());
    }
}
