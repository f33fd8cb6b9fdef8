//! Where the parts of Pillion lie that a command needs: beside this program, or installed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The preload library.
pub(crate) const LIBRARY: &str = "libpillion.so";

/// A part called `name`: in the folder of this program (a build tree, a tarball), or in `../lib` or
/// `../lib/pillion` beside it (an installation).
///
/// # Errors
/// None is there: says where it looked and how to build it.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program lies")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let folders = [
        folder.to_owned(),
        folder.join("../lib/pillion"),
        folder.join("../lib"),
    ];
    for folder in &folders {
        let path = folder.join(name);
        if path.is_file() {
            return Ok(path.canonicalize()?);
        }
    }
    let places: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
    bail!(
        "{name} is in none of {}; build it with `cargo build --release`",
        places.join(", ")
    )
}
