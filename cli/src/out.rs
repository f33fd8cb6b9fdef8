//! The one place that prints: to whoever reads the command's output, or its complaints.
//!
//! A reader may stop reading (`pillion status | head -1`). Other programs are ended by SIGPIPE then; Rust
//! ignores that signal, and its `println!` panics instead. So a line is written here, and one that nobody
//! reads ends the command quietly with the code that a shell gives a program ended by SIGPIPE. `main.rs`
//! has the lints that keep `println!` and `eprintln!` out of the crate.

use std::io::{self, Write};
use std::path::Path;
use std::{fmt, fs};

use anyhow::Context as _;

use crate::failure::Failure;

/// Writes `text` as a line to the standard output.
pub(crate) fn line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    checked(writeln!(io::stdout(), "{text}"))
}

/// Writes `text` as it is to the standard output.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    // What has no newline at its end would stay in the buffer, and its error with it.
    let mut stdout = io::stdout();
    checked(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// Writes bytes as they are to the standard output.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    checked(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Says `text` as a line on the standard error. Where nobody listens there, nobody is told.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a file of a folder, all of it or nothing.
pub(crate) fn file(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    let partial = folder.join(format!("{name}.partial"));
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &path));
    written.with_context(|| format!("{}: cannot be written", path.display()))
}

/// Makes a folder that `--out` names, and tries whether something can be written there.
///
/// # Errors
/// Nothing can be written there; nothing is left but the folder.
pub(crate) fn folder(folder: &Path) -> anyhow::Result<()> {
    let made = fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder).map(drop));
    made.map_err(bare)
        .with_context(|| format!("--out {}: cannot be written", folder.display()))
}

/// An error of a file without the name of a temporary one beside it, which `tempfile` adds: the
/// message names the file that is meant.
pub(crate) fn bare(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path \"") {
        Some((cause, _)) => io::Error::new(error.kind(), cause),
        None => error,
    }
}

/// Whether a file cannot be written because of its place, which its user has named; a full disk is
/// another matter.
pub(crate) fn is_of_place(error: &io::Error) -> bool {
    use io::ErrorKind::{
        IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem,
    };
    matches!(
        error.kind(),
        NotFound | NotADirectory | IsADirectory | PermissionDenied | ReadOnlyFilesystem
    )
}

fn checked(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::unread()),
        result => Ok(result?),
    }
}
