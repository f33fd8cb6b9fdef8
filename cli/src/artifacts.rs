//! Locates the parts of Pillion that a command needs: beside this program, or installed.

use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::geteuid;

pub(crate) const LIBRARY: &str = "libpillion.so";

/// The same library under the driver's name, for programs that bypass the preload.
const SHIM: &str = "libpillion_shim.so";

const DRIVER: &str = "libcuda.so.1";

/// Where the shim looks for the driver, relative to its own folder (`interpose/shim/build.rs`).
const DRIVER_FOLDER: &str = "driver";

/// A folder where the shim has the driver's name, with a link to `driver` where the shim looks for
/// it: this user's, created on demand in `$XDG_CACHE_HOME` or `~/.cache`, which outlive a login,
/// else in the folder for temporary files. Fails without shim or folder, or if the driver is the
/// shim.
pub(crate) fn shim_folder(driver: &Path) -> Result<PathBuf> {
    let shim = find(SHIM)?;
    if driver.canonicalize().is_ok_and(|driver| driver == shim) {
        bail!(
            "{}: this is the shim, not the driver that it needs",
            driver.display()
        );
    }
    let user = geteuid().as_raw();
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty());
    let home = std::env::home_dir().map(|home| home.join(".cache"));
    let cache = cache.map(PathBuf::from).or(home);
    let temporary = std::env::temp_dir().join(format!("pillion-{user}"));
    let parents = cache.filter(|cache| is_of(cache, user)).into_iter();
    let parents = parents.map(|cache| cache.join("pillion"));
    let mut why = None;
    for parent in parents.chain([temporary]) {
        match own_folder(&parent, user) {
            Ok(()) => return links(&parent, &shim, driver),
            Err(error) => why = why.or(Some(error)),
        }
    }
    Err(why.unwrap_or_else(|| anyhow!("cannot create the links of the shim: no folder for them")))
}

/// Whether a folder, or its parent if the folder does not exist, is this user's: the environment
/// may be another's (sudo -E).
fn is_of(folder: &Path, user: u32) -> bool {
    let there = folder.ancestors().take(2).find_map(|it| it.metadata().ok());
    there.is_some_and(|there| there.uid() == user)
}

/// Creates a folder that only this user may change: any writer there would choose the job's driver.
fn own_folder(folder: &Path, user: u32) -> Result<()> {
    let name = folder.display().to_string();
    let make = |folder: &Path| match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    let made = make(folder.parent().unwrap_or(folder)).and_then(|()| make(folder));
    made.with_context(|| format!("cannot create the folder {name} for the links of the shim"))?;
    let found = folder.symlink_metadata().context(name.clone())?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        bail!("{name}: must be a folder of user {user} that other users cannot write to");
    }
    Ok(())
}

fn links(parent: &Path, shim: &Path, driver: &Path) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (shim, driver).hash(&mut hasher);
    let folder = parent.join(format!("shim-{:016x}", hasher.finish()));
    let links = [
        (shim, folder.join(DRIVER)),
        (driver, folder.join(DRIVER_FOLDER).join(DRIVER)),
    ];
    for (target, link) in &links {
        let leads_there = || std::fs::read_link(link).is_ok_and(|leads| leads == *target);
        if leads_there() {
            continue;
        }
        let made = std::fs::create_dir_all(link.parent().unwrap_or(&folder));
        made.and_then(|()| symlink(target, link))
            // Another `pillion run` may have created it in the meantime.
            .or_else(|error| if leads_there() { Ok(()) } else { Err(error) })
            .with_context(|| format!("cannot create the link {}", link.display()))?;
    }
    Ok(folder)
}

/// Finds the part `name` beside this program (a build tree, a tarball), or in `../lib` or
/// `../lib/pillion` (an installation). The error lists the folders and how to build the part.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
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
