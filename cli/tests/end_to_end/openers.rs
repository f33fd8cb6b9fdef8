//! Libraries that open libraries find the same as without us, and we leave no error to `dlerror`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ended, clean_command, collect, driver_folder, library};

fn compile(folder: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/openers.c");
    let out = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-o"]).arg(&out);
    cc.arg(source).args(arguments).arg("-ldl");
    let status = cc.status().expect("a C compiler is installed as cc");
    assert!(status.success(), "{cc:?} failed");
    out
}

/// Runs the program with a library that only the opener's search path, of this kind, finds, and
/// with the path of that library.
fn run(folder: &Path, tags: &str, is_preloaded: bool) -> Ended {
    let hidden = folder.join("hidden");
    std::fs::create_dir_all(&hidden).unwrap();
    let shared = ["-shared", "-fPIC"];
    let [l, path] = ["-L", "-Wl,-rpath,"].map(|flag| format!("{flag}{}", hidden.display()));
    let dependency = [&shared[..], &["-DDEPENDENCY"]].concat();
    compile(&hidden, "libdependency.so", &dependency);
    let needs = [
        "-DWANTING",
        &l,
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--no-as-needed",
        "-ldependency",
    ];
    let wanting = [&shared[..], &needs].concat();
    let wanting = compile(&hidden, "libwanting.so", &wanting);
    let opener = [&shared[..], &["-DOPENER", tags, &path]].concat();
    let opener = compile(folder, "libopener.so", &opener);
    // `dlsym` must find its own function of a driver's name.
    let mut command = clean_command(compile(folder, "openers", &["-rdynamic"]));
    command.arg(opener).arg(wanting).arg("libwanting.so");
    command.env("LD_LIBRARY_PATH", driver_folder());
    if is_preloaded {
        command.env("LD_PRELOAD", library());
    }
    collect(command)
}

// census: L1
#[test]
fn what_a_library_opens_is_found_along_its_own_search_path_and_leaves_no_error() {
    for tags in ["-Wl,--disable-new-dtags", "-Wl,--enable-new-dtags"] {
        let folder = tempfile::tempdir().unwrap();
        let alone = run(folder.path(), tags, false).expect_success();
        for way in ["deep", "plain"] {
            let said = format!("{way}: found, no error\n");
            assert_eq!(alone.output.matches(&said).count(), 4, "{tags}: {alone:#?}");
        }
        let ours = run(folder.path(), tags, true).expect_success();
        assert_eq!(ours.output, alone.output, "{tags}");
    }
}
