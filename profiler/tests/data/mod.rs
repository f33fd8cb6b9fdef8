//! Where tests find published recordings, one place for all crates (they name this file by its path).
//!
//! The files are not part of the repository. They are looked for in `PILLION_DATA`, by default
//! `../shared/data` beside the workspace; where what a test needs is absent it says so and passes, unless
//! `PILLION_REQUIRE_DATA=1`.

use std::path::{Path, PathBuf};

/// `part` of the folder of recordings, or `None`, said aloud, where it is absent.
pub(crate) fn folder(part: &str) -> Option<PathBuf> {
    // The crates that ask lie in the workspace's own folder.
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("PILLION_DATA")
        .map_or_else(default, PathBuf::from)
        .join(part);
    if folder.is_dir() {
        return Some(folder);
    }
    let is_required = std::env::var_os("PILLION_REQUIRE_DATA").is_some_and(|value| value == "1");
    assert!(
        !is_required,
        "PILLION_REQUIRE_DATA=1 and no folder {}",
        folder.display()
    );
    eprintln!("skipped: no folder {}", folder.display());
    None
}
