//! What the tests share: the data folder, an import of one file, Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use import::{Context, Error, Limits, Options, Source};
use profiler::Profile;

/// The folder `nsight` of the data, or `None`, said on stderr, where it is not there.
pub(crate) fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("PILLION_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = folder.join("nsight");
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("PILLION_REQUIRE_DATA").is_some_and(|value| value == "1");
    assert!(
        !required,
        "PILLION_REQUIRE_DATA=1 and no folder {}",
        folder.display()
    );
    eprintln!("skipped: no folder {}", folder.display());
    None
}

/// Reads one file with the usual bounds.
pub(crate) fn read(path: &Path) -> Result<Source, Error> {
    let mut context = Context {
        limits: Limits::default(),
        progress: &mut |_, _| {},
    };
    import::read(path, &mut context)
}

/// The profile of one file.
pub(crate) fn import(path: &Path) -> Result<Profile, Error> {
    import::reduce(&[read(path)?], &Options::default())
}

/// What a Python script prints; `None`, said on stderr, on a machine without Python.
pub(crate) fn python(command: &mut Command) -> Option<String> {
    let Ok(output) = command.output() else {
        let required = std::env::var_os("PILLION_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!required, "PILLION_REQUIRE_TOOLS=1 and no python3");
        eprintln!("skipped: no python3");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8(output.stdout).expect("the script writes text"))
}
