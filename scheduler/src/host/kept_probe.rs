//! The probe's state and back-off, on disk, for the next daemon.
//! One file beside the socket, `<gpu uuid>.probe` ([`super::private_file`]), as JSON:
//!
//! ```text
//! {"schema_version":1,"state":"overlimit","metric":"memory","entered_unix_ms":[1764200000000],
//!   "clock_mhz":1380}
//! ```
//!
//! Times are wall-clock times, as the daemon's clock restarts with each boot.

use std::io;
use std::path::{Path, PathBuf};

use policy::{KeptProbe, Metric, ProbeState};
use serde::{Deserialize, Serialize};

use crate::host::private_file;

const SCHEMA_VERSION: u64 = 1;
/// Limit of a file that is read: ours take a tenth of it.
const FILE_BYTES_MAX: u64 = 64 << 10;

const MS_NS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct ProbeFile {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Document {
    schema_version: u64,
    state: String,
    metric: Option<String>,
    entered_unix_ms: Vec<u64>,
    clock_mhz: Option<u32>,
}

impl ProbeFile {
    pub(crate) fn beside(socket: &Path, uuid: &str) -> Self {
        Self {
            path: private_file::beside(socket, uuid, "probe"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The content, as of `unix_ms`; none without a file, an error for an unusable one.
    pub(crate) fn read(&self, unix_ms: u64) -> io::Result<Option<KeptProbe>> {
        let Some(text) = private_file::read(&self.path, FILE_BYTES_MAX)? else {
            return Ok(None);
        };
        let document: Document = serde_json::from_str(&text)?;
        let wrong = |what: String| io::Error::other(what);
        if document.schema_version != SCHEMA_VERSION {
            let version = document.schema_version;
            let why = format!("schema_version {version}, expected {SCHEMA_VERSION}");
            return Err(wrong(why));
        }
        let mut states = ProbeState::ALL.into_iter();
        let state = states.find(|state| state.name() == document.state);
        let state = state.ok_or_else(|| wrong(format!("unknown state {:?}", document.state)))?;
        let metric = match document.metric {
            None => None,
            Some(name) => {
                let known = Metric::ALL.into_iter().find(|metric| metric.name() == name);
                Some(known.ok_or_else(|| wrong(format!("unknown metric {name:?}")))?)
            }
        };
        // A time in the future counts as now.
        let ages = document.entered_unix_ms.into_iter();
        let ages = ages.map(|at_ms| unix_ms.saturating_sub(at_ms).saturating_mul(MS_NS));
        Ok(Some(KeptProbe {
            state,
            metric,
            entered_ns: ages.collect(),
            clock_mhz: document.clock_mhz,
        }))
    }

    /// Replaces the file at `unix_ms`, or removes it for none. On an error the old one remains.
    pub(crate) fn write(&self, kept: Option<&KeptProbe>, unix_ms: u64) -> io::Result<()> {
        let Some(kept) = kept else {
            return private_file::remove(&self.path);
        };
        let ages = kept.entered_ns.iter();
        let document = Document {
            schema_version: SCHEMA_VERSION,
            state: kept.state.name().to_owned(),
            metric: kept.metric.map(|metric| metric.name().to_owned()),
            entered_unix_ms: ages
                .map(|age| unix_ms.saturating_sub(age / MS_NS))
                .collect(),
            clock_mhz: kept.clock_mhz,
        };
        private_file::write(&self.path, &serde_json::to_string(&document)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW_MS: u64 = 1_764_200_000_000;

    #[test]
    fn what_is_written_is_read_and_grows_older() {
        let folder = tempfile::tempdir().unwrap();
        let file = ProbeFile::beside(&folder.path().join("gpu0.sock"), "GPU-1/2");
        assert!(file.path().ends_with("GPU-1_2.probe"));
        assert_eq!(file.read(NOW_MS).unwrap(), None);
        let kept = KeptProbe {
            state: ProbeState::Overlimit,
            metric: Some(Metric::Memory),
            entered_ns: vec![90_000 * MS_NS, 5_000 * MS_NS],
            clock_mhz: Some(1_380),
        };
        file.write(Some(&kept), NOW_MS).unwrap();
        assert_eq!(file.read(NOW_MS).unwrap(), Some(kept.clone()));
        let older = KeptProbe {
            entered_ns: vec![100_000 * MS_NS, 15_000 * MS_NS],
            ..kept.clone()
        };
        assert_eq!(file.read(NOW_MS + 10_000).unwrap(), Some(older));
        let now = file.read(NOW_MS - 90_000).unwrap().unwrap();
        assert_eq!(now.entered_ns, [0, 0]);
        file.write(None, NOW_MS).unwrap();
        file.write(None, NOW_MS).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_as_it_was_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = ProbeFile::beside(&folder.path().join("gpu0.sock"), "GPU-1");
        for (text, why) in [
            ("", "EOF while parsing"),
            (
                r#"{"schema_version":2,"state":"healthy","metric":null,"entered_unix_ms":[]}"#,
                "schema_version 2, expected 1",
            ),
            (
                r#"{"schema_version":1,"state":"ill","metric":null,"entered_unix_ms":[]}"#,
                "unknown state \"ill\"",
            ),
            (
                r#"{"schema_version":1,"state":"healthy","metric":"fan","entered_unix_ms":[]}"#,
                "unknown metric \"fan\"",
            ),
        ] {
            fs::write(file.path(), text).unwrap();
            let error = file.read(NOW_MS).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o622)).unwrap();
        let error = file.read(NOW_MS).unwrap_err().to_string();
        assert!(error.contains("can write"), "{error}");
    }
}
