//! Knowledge about marked requests, on disk, for the next daemon.
//! One file beside the socket, `<gpu uuid>.learnt`, as JSON:
//!
//! ```text
//! {"schema_version":1,"unix_ms":1764200000000,"clients":[{"device":1,"inode":4711,"level":-0.25,
//!   "has_missed":true,"kinds":[{"number":0,"services_ns":[…],"latencies_ns":[…]}]}]}
//! ```
//!
//! [`super::private_file`] describes reading and writing; the content expires after [`VALID_MS`].
//! Unusable content is reported and discarded. [`policy::Gate::restore`] bounds the values.

use std::io;
use std::path::{Path, PathBuf};

use policy::{Kept, KeptKind};
use serde::{Deserialize, Serialize};

use crate::core::state::KeptRequests;
use crate::host::private_file;

const SCHEMA_VERSION: u64 = 1;
/// Validity of the knowledge: an hour.
const VALID_MS: u64 = 3_600_000;
/// Limit of a file that is read: ours, with all that the policy knows, take a tenth of it.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug)]
pub(crate) struct RequestsFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Document {
    schema_version: u64,
    unix_ms: u64,
    clients: Vec<Client>,
}

#[derive(Serialize, Deserialize)]
struct Client {
    device: u64,
    inode: u64,
    level: f64,
    has_missed: bool,
    kinds: Vec<Kind>,
}

#[derive(Serialize, Deserialize)]
struct Kind {
    number: u32,
    services_ns: Vec<u64>,
    latencies_ns: Vec<u64>,
}

impl RequestsFile {
    pub(crate) fn beside(socket: &Path, uuid: &str) -> Self {
        Self {
            path: private_file::beside(socket, uuid, "learnt"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The content, if still valid at `unix_ms`; an error for an unusable file.
    pub(crate) fn read(&self, unix_ms: u64) -> io::Result<Vec<KeptRequests>> {
        let Some(text) = private_file::read(&self.path, FILE_BYTES_MAX)? else {
            return Ok(Vec::new());
        };
        let document: Document = serde_json::from_str(&text)?;
        if document.schema_version != SCHEMA_VERSION {
            let why = format!(
                "schema_version {}, expected {SCHEMA_VERSION}",
                document.schema_version
            );
            return Err(io::Error::other(why));
        }
        // A time in the future counts as expired.
        let age_ms = unix_ms.checked_sub(document.unix_ms);
        match age_ms.is_some_and(|age_ms| age_ms <= VALID_MS) {
            true => Ok(document.clients.into_iter().map(Into::into).collect()),
            false => Ok(Vec::new()),
        }
    }

    /// Replaces the file at `unix_ms`, or removes it for none. On an error the old one remains.
    pub(crate) fn write(&self, all: Vec<KeptRequests>, unix_ms: u64) -> io::Result<()> {
        if all.is_empty() {
            return private_file::remove(&self.path);
        }
        let document = Document {
            schema_version: SCHEMA_VERSION,
            unix_ms,
            clients: all.into_iter().map(Into::into).collect(),
        };
        private_file::write(&self.path, &serde_json::to_string(&document)?)
    }
}

impl From<KeptRequests> for Client {
    fn from(kept: KeptRequests) -> Self {
        let KeptRequests { file, learnt } = kept;
        let kinds = learnt.kinds.into_iter().map(|kind| Kind {
            number: kind.number,
            services_ns: kind.services_ns,
            latencies_ns: kind.latencies_ns,
        });
        Self {
            device: file.0,
            inode: file.1,
            level: learnt.level,
            has_missed: learnt.has_missed,
            kinds: kinds.collect(),
        }
    }
}

impl From<Client> for KeptRequests {
    fn from(client: Client) -> Self {
        let kinds = client.kinds.into_iter().map(|kind| KeptKind {
            number: kind.number,
            services_ns: kind.services_ns,
            latencies_ns: kind.latencies_ns,
        });
        Self {
            file: (client.device, client.inode),
            learnt: Kept {
                level: client.level,
                has_missed: client.has_missed,
                kinds: kinds.collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW_MS: u64 = 1_764_200_000_000;

    fn file() -> (tempfile::TempDir, RequestsFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = RequestsFile::beside(&folder.path().join("gpu0.sock"), "GPU-1");
        (folder, file)
    }

    fn learnt(inode: u64) -> KeptRequests {
        let kind = KeptKind {
            number: 3,
            services_ns: vec![5_000_000, 6_000_000],
            latencies_ns: vec![7_000_000],
        };
        KeptRequests {
            file: (1, inode),
            learnt: Kept {
                level: -0.25,
                has_missed: true,
                kinds: vec![kind],
            },
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_nobody_else_can_read_it() {
        let (folder, file) = file();
        assert_eq!(file.read(NOW_MS).unwrap(), []);
        file.write(vec![learnt(1), learnt(2)], NOW_MS).unwrap();
        file.write(vec![learnt(3)], NOW_MS).unwrap();
        assert_eq!(file.read(NOW_MS).unwrap(), [learnt(3)]);
        let found = fs::metadata(folder.path().join("GPU-1.learnt")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        for _ in 0..2 {
            file.write(Vec::new(), NOW_MS).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn what_is_not_what_was_written_or_not_the_daemons_alone_is_an_error() {
        let (_folder, file) = file();
        file.write(vec![learnt(1)], NOW_MS).unwrap();
        let whole = fs::read_to_string(file.path()).unwrap();
        for damaged in [
            "",
            &whole[..whole.len() / 2],
            "\u{0}",
            &whole.replace("-0.25", "NaN"),
            &whole.replace("-0.25", "-1e999"),
            &whole.replace("5000000", "-5"),
            &whole.replace("\"schema_version\":1", "\"schema_version\":2"),
        ] {
            fs::write(file.path(), damaged).unwrap();
            assert!(file.read(NOW_MS).is_err(), "{damaged}");
        }
        fs::write(file.path(), &whole).unwrap();
        assert_eq!(file.read(NOW_MS).unwrap(), [learnt(1)]);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o620)).unwrap();
        assert!(file.read(NOW_MS).is_err());
        fs::remove_file(file.path()).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", file.path()).unwrap();
        assert!(file.read(NOW_MS).is_err());
        file.write(vec![learnt(1)], NOW_MS).unwrap();
        assert_eq!(
            file.read(NOW_MS).unwrap(),
            [learnt(1)],
            "in place of the link"
        );
    }

    #[test]
    fn what_is_older_than_an_hour_or_of_tomorrow_counts_no_more() {
        let (_folder, file) = file();
        file.write(vec![learnt(1)], NOW_MS).unwrap();
        let whole = fs::read_to_string(file.path()).unwrap();
        for (ms, count) in [
            (NOW_MS - VALID_MS - 1, 0),
            (NOW_MS - VALID_MS, 1),
            (NOW_MS + 1, 0),
        ] {
            let text = whole.replace(&NOW_MS.to_string(), &ms.to_string());
            fs::write(file.path(), text).unwrap();
            assert_eq!(file.read(NOW_MS).unwrap().len(), count, "{ms}");
        }
    }
}
