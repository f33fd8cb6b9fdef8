//! Starts a job without the library if its C library cannot load it: the dynamic loader would end
//! the program before it began. That is better than not running, unless a daemon is required.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

use anyhow::anyhow;

use super::NVTX_TOOL;
use crate::failure::Failure;
use crate::out;
use crate::program::why_not_loadable;

/// Whether the program of `command` can have the library preloaded. If not, reports that and undoes
/// the settings of an outer `pillion run`, or fails if a daemon is required.
pub(super) fn is_by(
    command: &mut Command,
    library: &Path,
    is_daemon_required: bool,
) -> Result<bool, Failure> {
    let Some(unloadable) = why_not_loadable(Path::new(command.get_program()), library) else {
        return Ok(true);
    };
    let (why, mend) = (unloadable.why, unloadable.mend);
    if is_daemon_required {
        return Err(Failure::unavailable(anyhow!(
            "--require-daemon: the job would run without Pillion: {why}; {mend}"
        )));
    }
    out::note(format_args!(
        "pillion: the job runs without Pillion: {why}; {mend}"
    ));
    if let Some(set) = std::env::var_os("LD_PRELOAD") {
        command.env("LD_PRELOAD", without(&set, library));
    }
    if std::env::var_os(NVTX_TOOL).is_some_and(|tool| tool == library) {
        command.env_remove(NVTX_TOOL);
    }
    Ok(false)
}

/// Removes a library from a list; a list without it stays unchanged.
fn without(set: &OsStr, library: &Path) -> OsString {
    let library = library.as_os_str().as_bytes();
    let is_end = |byte: &u8| b" :".contains(byte);
    if !set.as_bytes().split(is_end).any(|path| path == library) {
        return set.to_owned();
    }
    let others = set.as_bytes().split(is_end).filter(|path| *path != library);
    OsString::from_vec(others.collect::<Vec<_>>().join(&b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_library_leaves_the_list() {
        let left = |set: &str| without(OsStr::new(set), Path::new("/l/libpillion.so"));
        assert_eq!(left("/l/libpillion.so"), "");
        assert_eq!(left("/l/libpillion.so:/a.so /b.so"), "/a.so:/b.so");
        assert_eq!(left("/a.so /x/libpillion.so"), "/a.so /x/libpillion.so");
    }
}
