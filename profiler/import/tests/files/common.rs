//! Shared by the tests: the data folder, an import of one file, Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use import::{Context, Error, Limits, Options, Source};
use profiler::Profile;

/// The folder `nsight` of the data.
pub(crate) fn data() -> PathBuf {
    testing::data("nsight")
}

/// Reads one file with the default bounds.
pub(crate) fn read(path: &Path) -> Result<Source, Error> {
    let mut context = Context {
        limits: Limits::default(),
        progress: &mut |_, _| {},
    };
    import::read(path, &mut context)
}

pub(crate) fn import(path: &Path) -> Result<Profile, Error> {
    import::reduce(&[read(path)?], &Options::default())
}

/// The output of a Python script.
pub(crate) fn python(command: &mut Command) -> String {
    let Ok(output) = command.output() else {
        testing::missing("PILLION_REQUIRE_TOOLS", "python3")
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("the script writes text")
}
