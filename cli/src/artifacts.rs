//! Where the parts of Pillion lie that a command needs: beside this program, or installed.

use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::process::geteuid;

/// The preload library.
pub(crate) const LIBRARY: &str = "libpillion.so";

/// The same library as the driver that programs find.
const SHIM: &str = "libpillion_shim.so";

/// The driver's name, and the shim's in [`shim_folder`].
const DRIVER: &str = "libcuda.so.1";

/// Where the shim looks for the driver, from its own folder (`interpose/shim/build.rs`).
const DRIVER_FOLDER: &str = "driver";

/// A folder in which the shim has the driver's name, with a link to `driver` where the shim looks for it. It is this user's, and made
/// if it is not there: in `$XDG_RUNTIME_DIR/pillion`, else in the folder for temporary files.
///
/// # Errors
/// There is no shim, or no such folder can be made.
pub(crate) fn shim_folder(driver: &Path) -> Result<PathBuf> {
    let shim = find(SHIM)?;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let user = geteuid().as_raw();
    let parent = match runtime {
        Some(runtime) => Path::new(&runtime).join("pillion"),
        None => std::env::temp_dir().join(format!("pillion-{user}")),
    };
    let name = parent.display().to_string();
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&parent);
    made.with_context(|| format!("{name}: cannot be made, for the links of the shim"))?;
    // Who could write there would choose the job's driver.
    let found = parent.symlink_metadata().context(name.clone())?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        bail!("{name}: must be a folder that user {user} alone may change");
    }
    let mut hasher = DefaultHasher::new();
    (&shim, driver).hash(&mut hasher);
    let folder = parent.join(format!("shim-{:016x}", hasher.finish()));
    let links = [
        (shim.as_path(), folder.join(DRIVER)),
        (driver, folder.join(DRIVER_FOLDER).join(DRIVER)),
    ];
    for (target, link) in &links {
        let leads_there = || std::fs::read_link(link).is_ok_and(|leads| leads == *target);
        if leads_there() {
            continue;
        }
        let made = std::fs::create_dir_all(link.parent().unwrap_or(&folder));
        made.and_then(|()| symlink(target, link))
            // Another `pillion run` may have been faster.
            .or_else(|error| if leads_there() { Ok(()) } else { Err(error) })
            .with_context(|| format!("{}: cannot be made a link", link.display()))?;
    }
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
