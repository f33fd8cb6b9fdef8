//! Checks whether a program's C library can load the preload library. If its loader cannot, it ends
//! the program before the program has begun. glibc's fails if the library needs a *version*
//! (`GLIBC_2.35`) that `libc.so.6` beside the loader lacks: the library was linked on a newer
//! system. musl's has no versions, and fails if a symbol or a library is missing. A loader of
//! another machine reports an error and continues, which does not help either.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::Dynamic;
use super::elf::{Version, with_library};

#[derive(Debug)]
pub(crate) struct Unloadable {
    /// The reason, with the paths of program and library.
    pub(crate) why: String,
    pub(crate) mend: &'static str,
}

const OLDER: &str = "install a release (its library needs only glibc 2.17), or build the library as \
                     docs/operating.md describes";
pub(crate) const MUSL: &str = "NVIDIA's driver and this library are for glibc: use a glibc image";
const OTHER: &str = "use a 64-bit program for this machine's architecture";
const GLIBC: &str = "libc.so.6";

pub(crate) fn is_musls(loader: &Path) -> bool {
    loader.to_string_lossy().contains("ld-musl")
}

/// Why the loader of the program at `path` cannot load `library`; `None` also if unknown.
pub(super) fn why_not_loadable(
    path: &Path,
    program: &Dynamic,
    library: &Path,
) -> Option<Unloadable> {
    let (path, shown) = (path.display(), library.display());
    let machine = with_library(library, |library| Ok(library.machine)).ok()?;
    if program.machine != machine {
        return Some(Unloadable {
            why: format!("{path} is a program for another architecture than {shown}"),
            mend: OTHER,
        });
    }
    let loader = program.loader.canonicalize().ok()?;
    // musl may be installed under the name of glibc's loader.
    if is_musls(&program.loader) || is_musls(&loader) {
        let missing = missing_of_musl(&loader, library).ok()??;
        let musl = program.loader.display();
        return Some(Unloadable {
            why: format!(
                "{path} uses musl's C library ({musl}), which lacks {missing}, needed by {shown}"
            ),
            mend: MUSL,
        });
    }
    let libc = loader.with_file_name(GLIBC);
    let (has, needs) = missing_of_glibc(&libc, library).ok()??;
    let libc = libc.display();
    Some(Unloadable {
        why: format!(
            "{path} uses a C library that has at most {has} ({libc}), but {shown} needs {needs}"
        ),
        mend: OLDER,
    })
}

/// The newest version of a glibc, and the newest that a library needs and the glibc lacks.
fn missing_of_glibc(libc: &Path, library: &Path) -> io::Result<Option<(String, String)>> {
    let needed = with_library(library, |library| library.versions_needed())?;
    let has = with_library(libc, |libc| libc.versions())?;
    // A C library without versions checks none.
    let newest = has.iter().max_by_key(|name| number(name)).cloned();
    Ok(newest.and_then(|newest| Some((newest, missing(&has, &needed)?))))
}

fn missing(has: &HashSet<String>, needed: &[Version]) -> Option<String> {
    let newest = has.iter().filter_map(|name| number(name)).max();
    let missing = needed.iter().filter(|version| {
        let name = &version.name;
        // `libc.so.6` lacks some versions of glibc's other libraries. Such a version is missing
        // only if it is newer than the newest of `libc.so.6`.
        let is_in_order = version.file != GLIBC && number(name) <= newest;
        name.starts_with(PREFIX) && !has.contains(name) && !is_in_order
    });
    let newest = missing.max_by_key(|version| number(&version.name));
    newest.map(|version| version.name.clone())
}

const PREFIX: &str = "GLIBC_";

/// The number of a version; some are words (`GLIBC_ABI_DT_RELR`).
fn number(version: &str) -> Option<Vec<u32>> {
    let parts = version.strip_prefix(PREFIX)?.split('.');
    parts.map(|part| part.parse().ok()).collect()
}

/// A library or symbol that a library needs and musl, which is its own loader, lacks.
fn missing_of_musl(musl: &Path, library: &Path) -> io::Result<Option<String>> {
    let (libraries, symbols) = with_library(library, |library| {
        Ok((library.libraries_needed()?, library.symbols_needed()?))
    })?;
    if let Some(other) = libraries.into_iter().find(|name| !is_in_musl(name)) {
        return Ok(Some(other));
    }
    let has = with_library(musl, |musl| musl.symbols())?;
    Ok(symbols.into_iter().find(|symbol| !has.contains(symbol)))
}

/// Whether musl itself stands for a library of that name (`ldso/dynlink.c`, `reserved`).
fn is_in_musl(library: &str) -> bool {
    let stem = library
        .strip_prefix("lib")
        .and_then(|name| name.split_once('.'));
    let names = ["c", "pthread", "rt", "m", "dl", "util", "xnet"];
    stem.is_some_and(|(stem, _)| names.contains(&stem))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::{Kind, kind};
    use super::*;

    const SELF: &str = "/proc/self/exe";

    fn own() -> Dynamic {
        match kind(Path::new(SELF)).unwrap().unwrap() {
            Kind::Dynamic(own) => own,
            other => panic!("{other:?}"),
        }
    }

    fn versions(file: &str, names: &[&str]) -> Vec<Version> {
        let version = |name: &&str| Version {
            file: file.to_owned(),
            name: (*name).to_owned(),
        };
        names.iter().map(version).collect()
    }

    #[test]
    fn what_runs_here_can_be_loaded_here() {
        // This program needs the same of this C library as any other that was built here.
        let why = why_not_loadable(Path::new("p"), &own(), Path::new(SELF));
        assert!(why.is_none(), "{why:?}");
    }

    #[test]
    fn a_version_is_missing_where_it_is_newer_or_a_word_that_libc_lacks() {
        let has = ["GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.31"].map(str::to_owned);
        let has = HashSet::from(has);
        let lacks = |file: &str, names: &[&str]| missing(&has, &versions(file, names));
        assert_eq!(lacks(GLIBC, &["GLIBC_2.9", "GLIBC_2.31", "GCC_3.0"]), None);
        let newer = ["GLIBC_2.100", "GLIBC_2.32", "GLIBC_2.35", "GLIBC_2.9"];
        assert_eq!(lacks(GLIBC, &newer).unwrap(), "GLIBC_2.100");
        assert_eq!(
            lacks(GLIBC, &["GLIBC_ABI_DT_RELR"]).unwrap(),
            "GLIBC_ABI_DT_RELR"
        );
        // libm has a version 2.29 and libc none.
        assert_eq!(lacks("libm.so.6", &["GLIBC_2.29"]), None);
        assert_eq!(lacks("libm.so.6", &["GLIBC_2.35"]).unwrap(), "GLIBC_2.35");
    }

    #[test]
    fn musl_stands_for_libcs_family() {
        for name in ["libc.so.6", "libpthread.so.0", "libdl.so.2", "libm.so.6"] {
            assert!(is_in_musl(name), "{name}");
        }
        for name in [
            "libgcc_s.so.1",
            "ld-linux-x86-64.so.2",
            "libmvec.so.1",
            "libc",
        ] {
            assert!(!is_in_musl(name), "{name}");
        }
    }

    #[test]
    fn a_program_of_another_machine_is_told_apart() {
        let mut bytes = std::fs::read(SELF).unwrap();
        bytes[18] ^= 0xff;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let Kind::Dynamic(other) = kind(file.path()).unwrap().unwrap() else {
            panic!("the loader is still there");
        };
        let why = why_not_loadable(file.path(), &other, Path::new(SELF)).unwrap();
        assert!(why.why.contains("another architecture"), "{why:?}");
    }

    #[test]
    fn what_is_not_known_is_no_reason() {
        let lost = Dynamic {
            loader: PathBuf::from("/nowhere/ld-linux-x86-64.so.2"),
            ..own()
        };
        assert!(why_not_loadable(Path::new("p"), &lost, Path::new(SELF)).is_none());
        assert!(why_not_loadable(Path::new("p"), &own(), Path::new("/nowhere.so")).is_none());
    }
}
