//! Shared by the tests: the data folder, an import of one file, Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use import::{Context, Error, Limits, Options, Source};
use profiler::Profile;

pub(crate) fn data() -> PathBuf {
    testing::data("nsight")
}

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

pub(crate) fn python(command: &mut Command) -> String {
    let Ok(output) = command.output() else {
        testing::missing("PILLION_REQUIRE_TOOLS", "python3")
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("the script writes text")
}
