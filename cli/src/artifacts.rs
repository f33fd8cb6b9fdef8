//! Where the parts of Pillion lie that a command needs: beside this program, or installed.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The preload library.
pub(crate) const LIBRARY: &str = "libpillion.so";

/// The same library as the driver that programs find.
const SHIM: &str = "libpillion_shim.so";

/// The folder beside it in which it has the driver's name.
const SHIM_FOLDER: &str = "shim";

/// The driver's name.
const DRIVER: &str = "libcuda.so.1";

/// The folder in which the shim has the driver's name. An installation brings it; in a build tree it
/// is made.
///
/// # Errors
/// There is no shim, or no such folder can be made beside it.
pub(crate) fn shim_folder() -> Result<PathBuf> {
    let shim = find(SHIM)?;
    let folder = shim.with_file_name(SHIM_FOLDER);
    let link = folder.join(DRIVER);
    if link.is_file() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder)
        .and_then(|()| symlink(Path::new("..").join(SHIM), &link))
        // Another `pillion run` may have been faster.
        .or_else(|error| if link.is_file() { Ok(()) } else { Err(error) })
        .with_context(|| format!("{}: cannot be made a link to {SHIM}", link.display()))?;
    Ok(folder)
}

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
