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

/// Says `text` as a line on the standard error. Where nobody listens there, nobody is told.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a file of a folder, all of it or nothing.
pub(crate) fn file(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    let partial = folder.join(format!("{name}.partial"));
    fs::write(&partial, text).with_context(|| format!("{}", partial.display()))?;
    fs::rename(&partial, &path).with_context(|| format!("{}", path.display()))
}

fn checked(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::unread()),
        result => Ok(result?),
    }
}
