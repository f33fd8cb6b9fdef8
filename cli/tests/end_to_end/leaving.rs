//! Threads that leave a driver call without returning from it end as without us, and the library
//! serves later callers. The driver is one of five functions (`pausing_driver.c`) whose
//! `cuCtxSynchronize` never returns. The first context is created after that call was left: the
//! library then looks for a daemon, which shows that it does not believe itself inside the call.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{Ended, Program, clean_command, collect, library};

fn leave(folder: &Path, how: &str, is_preloaded: bool) -> Ended {
    let mut command = clean_command(Program::Unlinked("leave").path());
    command.arg(how).env("LD_LIBRARY_PATH", folder);
    if is_preloaded {
        command
            .env("LD_PRELOAD", library())
            .env("PILLION_SOCKET", folder.join("nobody.sock"))
            .env("PILLION_LOG", "info");
    }
    collect(command)
}

fn expect_unchanged(how: &str, output: &str) {
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("libcuda.so.1");
    symlink(Program::Library("pausing_driver").path(), driver).unwrap();
    let alone = leave(folder.path(), how, false);
    assert_eq!((&*alone.output, alone.code()), (output, 5), "{alone:#?}");
    let ours = leave(folder.path(), how, true);
    assert_eq!((&*ours.output, ours.code()), (output, 5), "{ours:#?}");
    ours.expect_errors(&["pillion: this process runs unmanaged: no daemon answers at "]);
}

#[test]
fn a_thread_cancelled_inside_the_driver_unwinds_through_the_hook() {
    expect_unchanged("cancel", "after cancel: cuCtxCreate 0\ncancelled\n");
}

#[test]
fn a_thread_that_jumps_out_of_the_driver_is_served_again_from_where_it_jumped_to() {
    expect_unchanged("jump", "after jump: cuCtxCreate 0\n");
}
