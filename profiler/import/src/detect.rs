//! Recognises a file's format by its content, regardless of its name.

use std::io::Read;
use std::path::Path;

use crate::error::Error;
use crate::input::Input;
use crate::limits::HEAD_BYTES;
use crate::ncu::csv::is_header;

/// The accepted formats, in messages of [`Error::UnknownFormat`].
pub const ACCEPTED: &str = "an SQLite export of Nsight Systems (`nsys export --type sqlite`), a report of Nsight \
                            Compute (.ncu-rep) or its CSV (`ncu --csv --page raw`), a Chrome trace of PyTorch, CSV of \
                            `nsys stats`, a kernel file of Orion, a profile or trace of Pillion";

/// A file's format.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// An SQLite database, most likely an export of Nsight Systems.
    NsysSqlite,
    /// A folder of Parquet files, one per table of an export of Nsight Systems, or one of them.
    NsysParquet,
    /// A report of Nsight Systems itself (`.nsys-rep`, `.qdrep`).
    NsysReport {
        /// The version in its first bytes, or their content.
        version: String,
    },
    /// A report of Nsight Compute itself (`.ncu-rep`).
    NcuReport,
    /// Comma-separated output of Nsight Compute.
    NcuCsv,
    /// Output of Nsight Compute before any table.
    NcuText,
    /// Comma-separated output of `nsys stats`.
    NsysStats,
    /// JSON: perhaps a Chrome trace of PyTorch.
    Json,
    /// Human-readable tables of `nsys stats` or `nsys nvprof`.
    NsysText,
    /// A tar archive.
    Archive,
    /// A kernel file of Orion, or a trace or profile of Pillion.
    Profiler,
    /// None of these; its beginning, for messages.
    Other {
        /// Its apparent kind.
        looks_like: String,
    },
}

impl Format {
    /// Its name in messages.
    #[must_use]
    pub fn description(&self) -> &str {
        match self {
            Self::NsysSqlite => "an SQLite database",
            Self::NsysParquet => "Parquet",
            Self::NsysReport { .. } => "an Nsight Systems report",
            Self::NcuReport => "an Nsight Compute report",
            Self::NcuCsv => "CSV of Nsight Compute",
            Self::NcuText => "text of Nsight Compute",
            Self::NsysStats => "CSV of nsys stats",
            Self::Json => "JSON",
            Self::NsysText => "tables of nsys",
            Self::Archive => "a tar archive",
            Self::Profiler => "a file of Orion or Pillion",
            Self::Other { looks_like } => looks_like,
        }
    }
}

/// The format of the file at `path`; for a file compressed with gzip, that of its content.
/// # Errors
/// [`Error::Unreadable`], and [`Error::Damaged`] for a compressed file.
pub fn detect(path: &Path) -> Result<Format, Error> {
    if path.join(PARQUET_OF_KERNELS).is_file() {
        return Ok(Format::NsysParquet);
    }
    let mut input = Input::open(path, u64::MAX)?;
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let read = (&mut input).take(HEAD_BYTES as u64).read_to_end(&mut head);
    match read {
        Err(error) if head.is_empty() => Err(input.error(error)),
        // The available part may suffice; if not, the reader reports the error.
        _ => Ok(of_head(&head)),
    }
}

const PARQUET_OF_KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL.parquet";

const MAGICS: [(&[u8], &str); 7] = [
    (b"ARROW1", "Arrow"),
    (b"\x89HDF", "HDF5"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"\x7fELF", "a program"),
];

/// The format of a file that starts with `head`.
#[must_use]
pub fn of_head(head: &[u8]) -> Format {
    if head.starts_with(b"SQLite format 3\0") {
        return Format::NsysSqlite;
    }
    if head.starts_with(b"PAR1") {
        return Format::NsysParquet;
    }
    if head.starts_with(b"NVR\0") {
        return Format::NcuReport;
    }
    const USTAR: std::ops::Range<usize> = 257..262;
    if head.get(USTAR).is_some_and(|mark| mark == b"ustar") {
        return Format::Archive;
    }
    if let Some(rest) = head.strip_prefix(b"NVIDIA Tegra Profiler Report".as_slice()) {
        let version = rest
            .iter()
            .map(|&byte| char::from(byte))
            .take_while(|c| c.is_ascii_graphic() || *c == ' ')
            .take(40);
        let version: String = version.collect::<String>().replace('@', ".");
        return Format::NsysReport {
            version: format!("version {}", version.trim()),
        };
    }
    if let Some((_, name)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
        let looks_like = (*name).to_owned();
        return Format::Other { looks_like };
    }
    of_text(&text_of(head))
}

/// `head` as text, whatever its encoding; a truncated or invalid character is replaced.
fn text_of(head: &[u8]) -> String {
    let encoding = encoding_rs::Encoding::for_bom(head);
    let (encoding, bom_bytes) = encoding.unwrap_or((encoding_rs::UTF_8, 0));
    let rest = head.get(bom_bytes..).unwrap_or(head);
    encoding.decode_without_bom_handling(rest).0.into_owned()
}

fn of_text(text: &str) -> Format {
    let starts_ncu = |line: &str| is_header(line) || line.starts_with("\"Process ID\",");
    if text.lines().any(starts_ncu) {
        return Format::NcuCsv;
    }
    if text.lines().any(starts_nsys_stats) {
        return Format::NsysStats;
    }
    let looks_like = |what: &str| Format::Other {
        looks_like: what.to_owned(),
    };
    match text.trim_start().chars().next() {
        None => return looks_like("empty"),
        Some('{' | '[') if profiler::Format::detect(text).is_none() => return Format::Json,
        Some(_) => {}
    }
    let is_of_ncu = |line: &str| {
        ["==PROF==", "==ERROR==", "==WARNING=="]
            .iter()
            .any(|start| line.starts_with(start))
    };
    if text.lines().any(is_of_ncu) {
        return Format::NcuText;
    }
    let is_table = |line: &str| {
        line.contains("Executing '") && line.contains("stats report")
            || line.starts_with(" ** CUDA")
            || line.trim_start().starts_with("Time (%)  ")
    };
    if text.lines().any(is_table) {
        return Format::NsysText;
    }
    match profiler::Format::detect(text) {
        Some(profiler::Format::Orion) if !is_orion(text) => looks_like("CSV of an unknown tool"),
        Some(_) => Format::Profiler,
        None => looks_like("unknown format"),
    }
}

/// Whether the header is Orion's, possibly mistyped: other tools' tables begin with a name too.
fn is_orion(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let header = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let columns = profiler::orion::HEADER.split(',').skip(1);
    let has = |column: &&str| header.is_some_and(|header| header.contains(*column));
    columns.filter(has).count() > 0
}

fn starts_nsys_stats(line: &str) -> bool {
    let Some((first, rest)) = line.split_once(',') else {
        return false;
    };
    let is_of_kernels = rest.contains("Kernel Name");
    let has = |name: &str| {
        let mut names = line.split(',').filter_map(|cell| cell.split('(').next());
        names.any(|found| found.trim() == name)
    };
    if has("Total Time") && has("Instances") || has("Start") && has("Duration") && has("GrdX") {
        return true;
    }
    match first {
        "Time (%)" | "Time(%)" | "NVTX Range" => true,
        "PID" => is_of_kernels,
        "Name" => rest.contains("RangeId"),
        _ => first.starts_with("Start (") || first.starts_with("API Start ("),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Format, of_head};

    #[test]
    fn formats_are_told_apart_by_content() {
        let utf16: Vec<u8> = "\u{feff}\"ID\",\"Process ID\"\r\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        for (head, expected) in [
            (b"SQLite format 3\0\x10".as_slice(), Format::NsysSqlite),
            (b"NVR\0\x05", Format::NcuReport),
            (b"==PROF== x\n\"ID\",\"Process ID\"", Format::NcuCsv),
            (b"\xef\xbb\xbf\"ID\",\"Process ID\"\r\n", Format::NcuCsv),
            (&utf16, Format::NcuCsv),
            (
                b"Processing [x]...\nTime (%),Total Time (ns),Instances",
                Format::NsysStats,
            ),
            (b"Start (ns),Duration (ns),CorrId", Format::NsysStats),
            (b" Time (%)  Total Time (ns)  Instances", Format::NsysText),
            (b"{\"traceEvents\": [", Format::Json),
            (b"\n[{\"ph\": \"X\"", Format::Json),
            (
                b"Name,Profile,Memory_footprint,SM_usage,Duration\n",
                Format::Profiler,
            ),
            (b"format = \"pillion-profile\"\n", Format::Profiler),
        ] {
            assert_eq!(of_head(head), expected, "{}", String::from_utf8_lossy(head));
        }
        for (head, expected) in [
            (b"".as_slice(), "empty"),
            (b"PAR1", "Parquet"),
            (b"hello", "unknown format"),
            (b"Name,streamId,type,bytes", "CSV of an unknown tool"),
            (b"==PROF== Connected", "text of Nsight Compute"),
        ] {
            assert_eq!(of_head(head).description(), expected);
        }
    }

    #[test]
    fn the_version_of_a_report_is_said() {
        let format = of_head(b"NVIDIA Tegra Profiler Report 2024@6@2@25-\0\x01");
        let version = "version 2024.6.2.25-".to_owned();
        assert_eq!(format, Format::NsysReport { version });
    }

    proptest! {
        #[test]
        fn any_bytes_are_something(head in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!of_head(&head).description().is_empty());
        }
    }
}
