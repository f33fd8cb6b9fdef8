//! Finds out how a program that is to run as a job will be executed. A *script* runs by the
//! interpreter that its first line names. A dynamically linked program runs by a dynamic *loader*,
//! which is part of its C library and preloads libraries into it; [`libc`] checks whether it can
//! load ours. A statically linked program has no loader.

mod elf;
pub(crate) mod libc;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use object::read::ReadCache;

use libc::Unloadable;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A script's interpreter, and, if that is `env`, the program for `env` to find.
    Script(Vec<PathBuf>),
    Static,
    Dynamic(Dynamic),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dynamic {
    pub(crate) loader: PathBuf,
    machine: elf::Machine,
}

/// Why a file is none of them.
pub(crate) type Reason = &'static str;

/// Limit on nested scripts as interpreters.
pub(crate) const SCRIPTS_MAX: u32 = 4;
/// Limit on a script's first line, above the kernel's.
const LINE_BYTES_MAX: u64 = 4096;

/// Resolves a name in `PATH`; a path stays.
pub(crate) fn located(program: &Path) -> Option<PathBuf> {
    let is_executable = |path: &Path| {
        fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if program.components().count() > 1 {
        return is_executable(program).then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|candidate| is_executable(candidate))
}

/// How the file at `path` is executed, if it can be read.
pub(crate) fn kind(path: &Path) -> io::Result<Result<Kind, Reason>> {
    let file = elf::open(path)?;
    let mut start = Vec::new();
    (&file).take(LINE_BYTES_MAX).read_to_end(&mut start)?;
    Ok(kind_of(&start, file))
}

fn kind_of(start: &[u8], file: File) -> Result<Kind, Reason> {
    if let Some(programs) = programs_of_script(start) {
        return Ok(Kind::Script(programs));
    }
    if !start.starts_with(elf::MAGIC) {
        return Err("neither a script nor an ELF program");
    }
    let (machine, loader) =
        elf::loader(&ReadCache::new(file)).map_err(|_error| "a damaged ELF file")?;
    Ok(loader.map_or(Kind::Static, |loader| {
        Kind::Dynamic(Dynamic { loader, machine })
    }))
}

/// Why the C library of the finally executed file cannot preload a library; `None` also if unknown.
pub(crate) fn why_not_loadable(program: &Path, library: &Path) -> Option<Unloadable> {
    let mut paths = vec![located(program)?];
    for _ in 0..=2 * SCRIPTS_MAX {
        let path = paths.pop()?;
        match kind(&path) {
            Ok(Ok(Kind::Dynamic(program))) => {
                if let Some(why) = libc::why_not_loadable(&path, &program, library) {
                    return Some(why);
                }
            }
            Ok(Ok(Kind::Script(named))) => {
                paths.extend(named.iter().rev().filter_map(|program| located(program)));
            }
            Ok(Ok(Kind::Static) | Err(_)) | Err(_) => {}
        }
    }
    None
}

/// The programs on a first line that begins with `#!`.
fn programs_of_script(bytes: &[u8]) -> Option<Vec<PathBuf>> {
    let line = bytes.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = PathBuf::from(words.next()?);
    let is_env = first.file_name().is_some_and(|name| name == "env");
    let found = words.find(|word| is_env && !word.starts_with('-') && !word.contains('='));
    Some(
        [first]
            .into_iter()
            .chain(found.map(PathBuf::from))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_program_asks_for_a_loader() {
        let Kind::Dynamic(own) = kind(Path::new("/proc/self/exe")).unwrap().unwrap() else {
            panic!("it is linked dynamically");
        };
        assert!(own.loader.starts_with("/lib") || own.loader.starts_with("/lib64"));
    }

    #[test]
    fn a_script_is_its_interpreter_and_what_env_finds() {
        let of = |text: &str| {
            let programs = programs_of_script(text.as_bytes())?;
            Some(
                programs
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        assert_eq!(of("#!/bin/sh -e\n").unwrap(), "/bin/sh");
        assert_eq!(
            of("#! /usr/bin/env python3\n").unwrap(),
            "/usr/bin/env python3"
        );
        assert_eq!(
            of("#!/usr/bin/env -S A=1 perl -w\n").unwrap(),
            "/usr/bin/env perl"
        );
        assert_eq!(of("plain text"), None);
        assert_eq!(of("#!\n"), None);
    }

    #[test]
    fn a_script_that_runs_itself_comes_to_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        fs::write(&path, format!("#!{0}\n", path.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(why_not_loadable(&path, Path::new("/nowhere.so")).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_at_most_one_of_script_and_program(mut bytes: Vec<u8>, start in 0..4usize) {
            let start: &[u8] = [b"".as_slice(), b"\x7fELF\x02\x01\x01", b"\x7fELF\x01\x01\x01", b"#!"][start];
            bytes.splice(0..0, start.iter().copied());
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            let kind = kind(file.path()).unwrap();
            prop_assert!(!matches!(kind, Ok(Kind::Script(_))) || bytes.starts_with(b"#!"));
            prop_assert!(!matches!(kind, Ok(Kind::Static | Kind::Dynamic(_))) || bytes.starts_with(b"\x7fELF"));
        }
    }
}
