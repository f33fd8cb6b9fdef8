//! `pillion doctor --bundle FILE`: collects an error report in one archive without names.
//! [`gather`] collects it, with a timeout for each query of a daemon or a program, a size limit for
//! each output and file, and a reason for each missing answer. [`scrub`] removes names from all of
//! it, [`configuration`] from configuration files. `manifest.json` lists each file with its size
//! and replacements, missing files with reasons, and the kept data. Nothing is sent: the user
//! inspects the archive first.

mod configuration;
mod gather;
mod read;
mod scrub;

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::{Value, json};
use tar::{Builder, Header};

use self::gather::{Content, Gathered};
use self::scrub::{KEPT_PATHS, Scrubber, Tally};
use super::{Finding, Options};
use crate::failure::Failure;
use crate::out;
use crate::status::table;

const FOLDER: &str = "pillion-bundle";
/// Size limit of one scrubbed file; a longer one is listed as missing.
const BYTES_MAX: usize = 4 << 20;

const STAYS: [&str; 6] = [
    "numbers, times and process ids",
    "versions of Pillion, the kernel, the C library, the driver and the distribution",
    "names of GPUs, their UUIDs and PCI addresses",
    "names of kernels, as in `pillion profile scrub`",
    "keys, numbers and Pillion's own keywords of configuration files, without comments",
    "system paths, listed in kept_paths",
];

struct Entry {
    path: String,
    text: String,
    replaced: Tally,
}

/// Exits 2 if the file exists, its place is not writable, or `-` is a terminal; 1 if writing fails
/// otherwise; else 0, whatever the checks found.
pub(super) fn run(options: &Options, path: &Path, findings: &[Finding]) -> Result<(), Failure> {
    let is_stdout = path == Path::new("-");
    if is_stdout && io::stdout().is_terminal() {
        let why = "--bundle -: standard output is a terminal; name a file, or redirect it";
        return Err(Failure::usage(anyhow!(why)));
    }
    if !is_stdout && path.symlink_metadata().is_ok() {
        return Err(taken(path));
    }
    let gathered = gather::everything(options, findings);
    let (entries, manifest) = scrubbed(&gathered);
    let archive = archive(&entries, &manifest).context("cannot create the archive")?;
    if is_stdout {
        out::bytes(&archive)?;
    } else {
        write(path, &archive)?;
    }
    if options.json && !is_stdout {
        return out::line(format_args!("{manifest}"));
    }
    let said = told(path, &manifest);
    match is_stdout {
        true => out::note(format_args!("{said}")),
        false => out::line(format_args!("{said}"))?,
    }
    Ok(())
}

fn taken(path: &Path) -> Failure {
    let path = path.display();
    Failure::usage(anyhow!(
        "--bundle {path}: already exists and is not overwritten; name another file"
    ))
}

/// Writes the whole archive or nothing, with mode 0600.
fn write(path: &Path, archive: &[u8]) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let unwritten = |error: io::Error| {
        let is_of_place = out::is_of_place(&error);
        let error = anyhow::Error::new(out::bare(error));
        let error = error.context(format!("--bundle {}: cannot be written", path.display()));
        match is_of_place {
            true => Failure::usage(error),
            false => error.into(),
        }
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(unwritten)?;
    file.write_all(archive).map_err(unwritten)?;
    file.persist_noclobber(path)
        .map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => taken(path),
            _ => unwritten(error.error),
        })?;
    Ok(())
}

/// Learns names from all files before it scrubs any.
fn scrubbed(gathered: &Gathered) -> (Vec<Entry>, Value) {
    let mut scrubber = Scrubber::default();
    gathered.names.teach(&mut scrubber);
    for (_, content) in &gathered.files {
        match content {
            Ok(Content::Json(value)) => scrubber.learn_json(value),
            Ok(Content::Text(text)) => scrubber.learn_text(text),
            Ok(Content::Configuration(text)) => {
                configuration::scrubbed(text, &mut scrubber, &mut Tally::new());
            }
            Err(_) => {}
        }
    }
    let (mut entries, mut missing) = (Vec::new(), Vec::new());
    for (path, content) in &gathered.files {
        let mut replaced = Tally::new();
        let text = match content {
            Ok(Content::Json(value)) => {
                let value = scrubber.json(value, &mut replaced);
                serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"
            }
            Ok(Content::Text(text)) => scrubber.text(text, &mut replaced),
            Ok(Content::Configuration(text)) => {
                configuration::scrubbed(text, &mut scrubber, &mut replaced)
            }
            Err(why) => {
                let why = scrubber.text(why, &mut replaced);
                missing.push(json!({"path": path, "why": why}));
                continue;
            }
        };
        let path = path.clone();
        match text.len() > BYTES_MAX {
            true => {
                let why = format!("it has {} bytes; the limit is {BYTES_MAX}", text.len());
                missing.push(json!({"path": path, "why": why}));
            }
            false => entries.push(Entry {
                path,
                text,
                replaced,
            }),
        }
    }
    let files: Vec<Value> = entries.iter().map(described).collect();
    let manifest = json!({
        "schema_version": 1,
        "pillion": env!("CARGO_PKG_VERSION"),
        "made_unix_ms": Timestamp::now().as_millisecond(),
        "files": files,
        "missing": missing,
        "names": scrubber.given(),
        "stays": STAYS,
        "kept_paths": KEPT_PATHS,
    });
    (entries, manifest)
}

fn described(entry: &Entry) -> Value {
    json!({"path": entry.path, "bytes": entry.text.len(), "replaced": entry.replaced})
}

/// Entries belong to root and have one timestamp, so that they do not show who made the archive.
fn archive(entries: &[Entry], manifest: &Value) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let made_s = manifest["made_unix_ms"].as_u64().unwrap_or(0) / 1_000;
    let manifest = serde_json::to_string_pretty(manifest)? + "\n";
    let manifest = ("manifest.json", &*manifest);
    let files = entries.iter().map(|entry| (&*entry.path, &*entry.text));
    for (path, text) in [manifest].into_iter().chain(files) {
        let mut header = Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(made_s);
        archive.append_data(&mut header, format!("{FOLDER}/{path}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}

fn told(path: &Path, manifest: &Value) -> String {
    let list = |name: &str| manifest[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut rows = table(&["CHECK", "BYTES", "FOUND"]);
    rows.set_header(["FILE", "BYTES", "REPLACED"]);
    for file in list("files") {
        let replaced = file["replaced"].as_object().into_iter().flatten();
        let replaced: Vec<String> = replaced.map(|(class, n)| format!("{n} {class}")).collect();
        let replaced = match replaced.is_empty() {
            true => "nothing".to_owned(),
            false => replaced.join(", "),
        };
        rows.add_row([text(&file["path"]), file["bytes"].to_string(), replaced]);
    }
    let mut said = format!("{rows}\n");
    for missing in list("missing") {
        let (path, why) = (text(&missing["path"]), text(&missing["why"]));
        said.push_str(&format!("missing: {path}: {why}\n"));
    }
    said.push_str(&format!("kept: {}\n", STAYS.join("; ")));
    let path = path.display();
    said + &format!("{path}: inspect it before you send it (tar -xzOf {path} | less)")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_archive_has_the_manifest_first_and_every_file_whole_and_of_nobody() {
        let entries = [
            ("doctor.txt", "all is well\n"),
            ("daemons/1/status.json", "{}\n"),
        ];
        let entries = entries.map(|(path, text)| Entry {
            path: path.to_owned(),
            text: text.to_owned(),
            replaced: Tally::new(),
        });
        let packed = archive(&entries, &json!({"made_unix_ms": 7_500})).unwrap();
        let mut unpacked = tar::Archive::new(flate2::read::GzDecoder::new(&*packed));
        let mut found = Vec::new();
        for entry in unpacked.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            assert_eq!(
                (
                    entry.header().uid().unwrap(),
                    entry.header().mtime().unwrap()
                ),
                (0, 7)
            );
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push((path, text));
        }
        let expected = [
            (
                "pillion-bundle/manifest.json",
                "{\n  \"made_unix_ms\": 7500\n}\n",
            ),
            ("pillion-bundle/doctor.txt", "all is well\n"),
            ("pillion-bundle/daemons/1/status.json", "{}\n"),
        ];
        let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
        assert_eq!(found, expected);
    }
}
