//! Optional requirements of tests: programs, files of Debian packages, Python packages. Each
//! function returns a path, or ends its caller's test as ignored with the name of what is missing.
//! So the README's test command passes on a bare machine and shows what it left out. With
//! `PILLION_REQUIRE_TOOLS=1`, as in CI, absence is a failure. `.ci/run` installs all of them.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Cuda, workspace};

pub(crate) fn program(name: &str) -> PathBuf {
    present(&format!("program {name}"), on_path(name))
}

/// A file of an installed Debian package by the end of its path, say `/libjemalloc.so.2`.
pub(crate) fn debian_file(package: &str, end: &str) -> PathBuf {
    let found = packaged_file(package, end);
    present(
        &format!("file {end} of the Debian package {package}"),
        found,
    )
}

/// A Python that can import all of `modules`: `.venv` of the workspace if it can, else `python3`.
pub(crate) fn python(modules: &[&str]) -> PathBuf {
    let mut interpreters = interpreters();
    let found = interpreters.find(|python| can_import(python, modules));
    let what = if modules.is_empty() {
        "python3".to_owned()
    } else {
        format!("python3 with {}", modules.join(", "))
    };
    present(&what, found)
}

/// The programs of this name in the workspace's `.venv`, and the one in `PATH`.
pub(crate) fn python_programs(name: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = packages_of_python()
        .map(|package| package.join("bin").join(name))
        .filter(|path| is_executable(path))
        .chain(on_path(name))
        .collect();
    found.sort();
    let first = found.first().cloned();
    present(&format!("program {name} of a python package"), first);
    found
}

/// Folders of NVIDIA's packages: `.venv/lib/python3*/site-packages/nvidia/*`.
fn packages_of_python() -> impl Iterator<Item = PathBuf> {
    let entries = |folder: PathBuf| {
        std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    entries(workspace().join(".venv/lib"))
        .flat_map(move |python| entries(python.join("site-packages/nvidia")))
}

/// NVIDIA's headers of a release, for `cc -isystem`: the runtime's, and the compiler package's.
pub(crate) fn cuda_headers(cuda: Cuda) -> [PathBuf; 2] {
    let release = format!("#define CUDART_VERSION  {}", cuda.major());
    let has = |folder: &PathBuf, file: &str, text: &str| {
        std::fs::read_to_string(folder.join(file)).is_ok_and(|read| read.contains(text))
    };
    let includes = || packages_of_python().map(|package| package.join("include"));
    let runtime = includes().find(|folder| has(folder, "cuda_runtime_api.h", &release));
    let compiler = includes().find(|folder| has(folder, "crt/host_defines.h", ""));
    let runtime = present(&format!("headers of CUDA {}", cuda.major()), runtime);
    let compiler = present("headers of CUDA's compiler", compiler);
    [runtime, compiler]
}

/// The first of `words`, if running them works here: changing the user, creating namespaces and
/// mounting need rights that root of a container may lack.
pub(crate) fn that_runs(words: &[&str]) -> PathBuf {
    let program = program(words[0]);
    let mut command = Command::new(&program);
    command.args(&words[1..]).arg("true");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let runs = command.status().is_ok_and(|status| status.success());
    present(
        &format!("rights to run `{}`", words.join(" ")),
        runs.then_some(program),
    )
}

fn present(what: &str, found: Option<PathBuf>) -> PathBuf {
    found.unwrap_or_else(|| testing::missing("PILLION_REQUIRE_TOOLS", what))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn packaged_file(package: &str, end: &str) -> Option<PathBuf> {
    let list = Command::new("dpkg")
        .args(["-L", package])
        .stderr(Stdio::null())
        .output();
    let list = String::from_utf8(list.ok()?.stdout).ok()?;
    let mut paths = list.lines().filter(|path| path.ends_with(end));
    paths
        .find(|path| Path::new(path).is_file())
        .map(PathBuf::from)
}

fn interpreters() -> impl Iterator<Item = PathBuf> {
    let ours = workspace().join(".venv/bin/python");
    let ours = Some(ours).filter(|path| is_executable(path));
    ours.into_iter().chain(on_path("python3"))
}

fn can_import(python: &Path, modules: &[&str]) -> bool {
    let imports = modules.iter().map(|module| format!("import {module}\n"));
    Command::new(python)
        .args(["-c", &imports.collect::<String>()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_with_its_path() {
        // Every test here needs cc anyway.
        let cc = program("cc");
        assert!(cc.is_absolute() && is_executable(&cc), "{cc:?}");
    }

    #[test]
    fn a_python_is_found_with_its_path() {
        let python = python(&["sys", "json"]);
        assert!(is_executable(&python), "{python:?}");
    }

    #[test]
    fn a_file_of_a_debian_package_is_found_with_its_path() {
        let dpkg = debian_file("dpkg", "/bin/dpkg");
        assert!(is_executable(&dpkg), "{dpkg:?}");
    }

    #[test]
    fn what_is_absent_is_not_found() {
        assert_eq!(on_path("no-such-program-of-pillion"), None);
        assert_eq!(packaged_file("no-such-package-of-pillion", "/x"), None);
        assert_eq!(packaged_file("dpkg", "/no-such-file"), None);
        let modules = ["sys", "no_such_module_of_pillion"];
        assert!(!interpreters().any(|python| can_import(&python, &modules)));
    }
}
