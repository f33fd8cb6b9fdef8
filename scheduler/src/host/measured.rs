//! Measurements of this GPU that its driver cannot report: whether priorities between blocks of
//! different processes work.
//! `benches/gpu` measures it and writes `<gpu uuid>.measured`, which the daemon reads at its start
//! and on SIGHUP:
//!
//! ```toml
//! schema_version = 1
//! uuid = "GPU-…"
//! cuda_driver = 12080        # cuDriverGetVersion: measured with another driver it does not count
//! block_priority = true
//! ```
//!
//! Further keys ([`TOLD_KEYS`]) are for display. The file lies in [`folder`], and counts only if it
//! belongs to root or the daemon's own user: it lets best-effort work go beside high-priority
//! kernels. An unusable file is reported, and counts as not measured. A software GPU is asked
//! instead ([`crate::config::gpu::Gpu::block_priority`]).

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use profiler::settings::{self, Fault, Layers, Reader, Whole};
use rustix::fs::OFlags;
use serde::Deserialize;

use crate::config::gpu::Gpu;
use crate::core::block_priority::BlockPriority;

/// The version of the file: changes when a reader of the old one would be misled.
pub const SCHEMA_VERSION: u64 = 1;
/// Keys for display only.
pub const TOLD_KEYS: [&str; 6] = ["driver", "gpu", "date", "alone_ms", "without_ms", "with_ms"];
/// Limit of a file; ours take a tenth of it.
const FILE_BYTES_MAX: u64 = 4_096;

impl BlockPriority {
    /// For `gpu`, with a file in `folder`.
    #[must_use]
    pub fn find(gpu: &Gpu, folder: &Path) -> Self {
        if let Some(works) = gpu.block_priority {
            return Self::Told(works);
        }
        // Names of MIG instances once contained slashes.
        let path = folder.join(format!("{}.measured", gpu.uuid.replace('/', "_")));
        let text = match text_of(&path) {
            Ok(Some(text)) => text,
            Ok(None) => return Self::NotMeasured(path),
            Err(error) => return Self::Unusable(format!("{}: {error}", path.display())),
        };
        match parse(&path, &text, gpu) {
            Ok(works) => Self::Measured(works, path),
            Err(why) => Self::Unusable(why),
        }
    }
}

/// The folder of measurements: the service manager's `STATE_DIRECTORY`, else `/var/lib/pillion` for
/// root, and `$XDG_STATE_HOME/pillion` (`~/.local/state/pillion`) for others.
#[must_use]
pub fn folder() -> PathBuf {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    // A service may have several; use the first.
    let given = of("STATE_DIRECTORY").and_then(|given| std::env::split_paths(&given).next());
    if let Some(given) = given {
        return given;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/pillion");
    }
    let home = || of("HOME").map(|home| Path::new(&home).join(".local/state"));
    let state = of("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    state.unwrap_or_default().join("pillion")
}

fn text_of(path: &Path) -> io::Result<Option<String>> {
    // Do not follow a link, nor wait for a FIFO, in its place.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    let mut options = OpenOptions::new();
    let file = match options
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let owner = file.metadata()?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!(
            "it belongs to user {owner}, but must belong to root or to this daemon's user"
        )));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it is longer than {FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(Some(text))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "schema_version")]
    _version: Whole<SCHEMA_VERSION, SCHEMA_VERSION>,
    uuid: String,
    /// Versions of CUDA that drivers may report.
    cuda_driver: Whole<1_000, 1_000_000>,
    block_priority: bool,
}

/// Whether priorities between blocks work on `gpu` with its driver, by the file at `path`.
fn parse(path: &Path, text: &str, gpu: &Gpu) -> Result<bool, String> {
    let lines = |faults: Vec<Fault>| settings::lines(&faults).replace('\n', "; ");
    let layers = Layers::one(path, text);
    let mut document = layers.document().map_err(lines)?;
    for key in TOLD_KEYS {
        document.remove(key);
    }
    let mut reader = Reader::of(&layers);
    let file: Option<File> = reader.read(&document);
    let file = reader.finish(file).map_err(lines)?;
    let path = path.display();
    if !gpu.is(&file.uuid) {
        return Err(format!("{path}: it was measured on GPU {}", file.uuid));
    }
    let (measured, own) = (file.cuda_driver.0, u64::from(gpu.cuda_driver));
    if measured != own {
        return Err(format!(
            "{path}: it was measured with a driver of CUDA {}, but the driver is now of CUDA {}",
            cuda_version(measured),
            cuda_version(own)
        ));
    }
    Ok(file.block_priority)
}

fn cuda_version(number: u64) -> String {
    format!("{}.{}", number / 1_000, number % 1_000 / 10)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const RIGHT: &str =
        "schema_version = 1\nuuid = \"GPU-aa11\"\ncuda_driver = 12080\nblock_priority = true\n";

    fn gpu(block_priority: Option<bool>) -> Gpu {
        Gpu {
            uuid: "GPU-aa11".to_owned(),
            name: "A100-SXM4-40GB".to_owned(),
            pci: "0000:04:00.0".parse().unwrap(),
            sms: 108,
            memory_bytes: 40 << 30,
            cuda_driver: 12_080,
            block_priority,
        }
    }

    fn found(text: &str) -> BlockPriority {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("GPU-aa11.measured"), text).unwrap();
        BlockPriority::find(&gpu(None), folder.path())
    }

    #[test]
    fn a_software_gpus_word_counts_and_else_the_file_and_without_one_it_is_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("GPU-aa11.measured");
        let find = |told| BlockPriority::find(&gpu(told), folder.path());
        assert_eq!(find(None), BlockPriority::NotMeasured(path.clone()));
        assert!(!find(None).works());
        assert!(find(None).why().contains("GPU-aa11.measured"));
        fs::write(&path, RIGHT).unwrap();
        assert_eq!(find(None), BlockPriority::Measured(true, path.clone()));
        assert!(find(None).works());
        fs::write(&path, RIGHT.replace("true", "false")).unwrap();
        assert_eq!(find(None), BlockPriority::Measured(false, path));
        for told in [false, true] {
            assert_eq!(find(Some(told)), BlockPriority::Told(told));
            assert_eq!(find(Some(told)).works(), told);
        }
    }

    #[test]
    fn what_is_for_people_is_left_aside() {
        let more = "driver = \"570.86\"\ngpu = \"A100\"\ndate = \"today\"\nalone_ms = 0.1\nwithout_ms = 9.5\nwith_ms = 0.4\n";
        assert!(found(&format!("{RIGHT}{more}")).works());
    }

    #[test]
    fn a_file_that_is_wrong_is_off_and_says_where_and_why() {
        for (text, why) in [
            ("", "GPU-aa11.measured:1:1: the file has no schema_version"),
            ("schema_version", "GPU-aa11.measured:1:"),
            (
                &RIGHT.replace("= 1\n", "= 2\n"),
                ":1:18: schema_version is 2; must be a whole number from 1 to 1",
            ),
            (
                &RIGHT.replace("true", "\"yes\""),
                ":4:18: block_priority is \"yes\"; must be true or false",
            ),
            (
                &RIGHT.replace("block_priority", "block"),
                "unknown key `block`",
            ),
            (
                &RIGHT.replace("aa11", "aa12"),
                "it was measured on GPU GPU-aa12",
            ),
            (
                &RIGHT.replace("12080", "12040"),
                "it was measured with a driver of CUDA 12.4, but the driver is now of CUDA 12.8",
            ),
            (&"#".repeat(5_000), "it is longer than 4096 bytes"),
        ] {
            let found = found(text);
            assert!(!found.works(), "{text}");
            let BlockPriority::Unusable(said) = found else {
                panic!("{found:?} of {text}")
            };
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn neither_a_link_nor_another_users_file_is_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("GPU-aa11.measured");
        let other = folder.path().join("other");
        fs::write(&other, RIGHT).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let find = || BlockPriority::find(&gpu(None), folder.path());
        assert!(matches!(find(), BlockPriority::Unusable(_)));
        fs::rename(&other, &path).unwrap();
        assert!(find().works());
        if !rustix::process::geteuid().is_root() {
            testing::ignore("only root can give a file away");
        }
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        assert!(find().why().contains("it belongs to user 65534"));
    }
}
