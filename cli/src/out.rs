//! The only place that prints, to the command's output or its standard error. A reader may stop
//! reading (`pillion status | head -1`). SIGPIPE ends other programs then; Rust ignores that
//! signal, and its `println!` panics instead. Here a line that nobody reads ends the command
//! quietly with the code that a shell gives a program ended by SIGPIPE. Lints in `main.rs` keep
//! `println!` and `eprintln!` out of the crate.

use std::io::{self, Write};
use std::path::Path;
use std::{fmt, fs};

use anyhow::Context as _;

use crate::failure::Failure;

pub(crate) fn line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    checked(writeln!(io::stdout(), "{text}"))
}

pub(crate) fn text(text: &str) -> Result<(), Failure> {
    // Text without a final newline would stay in the buffer, and hide its error.
    let mut stdout = io::stdout();
    checked(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout();
    checked(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Writes `text` as a line to the standard error; a failure is ignored.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a file in a folder, whole or not at all.
pub(crate) fn file(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    let partial = folder.join(format!("{name}.partial"));
    let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &path));
    written.with_context(|| format!("{}: cannot be written", path.display()))
}

/// Creates the folder of `--out` and tests that it is writable; an error leaves only the folder.
pub(crate) fn folder(folder: &Path) -> anyhow::Result<()> {
    let made = fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder).map(drop));
    made.map_err(bare)
        .with_context(|| format!("--out {}: cannot be written", folder.display()))
}

/// Removes the name of `tempfile`'s temporary file from an error: the message names the real one.
pub(crate) fn bare(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path \"") {
        Some((cause, _)) => io::Error::new(error.kind(), cause),
        None => error,
    }
}

/// Whether the error is due to the place that the user named; a full disk is not.
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
