//! A program that is to run as a job: whether a library can be preloaded into it.
//!
//! The dynamic loader preloads libraries into programs that are dynamically linked, by the loader of
//! the C library that ours was built for, and that do not change their user. A script is what its
//! interpreter is.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Finding;

/// Interpreters that run interpreters before it is no script any more.
const SCRIPTS_MAX: u32 = 4;
/// Bits of a file's mode that make the kernel run it as another user or group.
const SET_ID: u32 = 0o6000;

pub(super) fn examine(program: &Path) -> Finding {
    let subject = format!("program {}", program.display());
    let Some(path) = located(program) else {
        return Finding::error(
            subject,
            "not found in PATH, or not executable",
            "give the path of the program that `pillion run` is to start",
        );
    };
    judge(subject, &path, SCRIPTS_MAX)
}

fn judge(subject: String, path: &Path, scripts_left: u32) -> Finding {
    let shown = path.display();
    let (bytes, metadata) = match fs::read(path).and_then(|b| Ok((b, fs::metadata(path)?))) {
        Ok(found) => found,
        Err(error) => {
            let mend = "the loader can read it all the same; doctor cannot look into it";
            return Finding::warning(subject, format!("{shown}: {error}"), mend);
        }
    };
    if let Some(interpreter) = interpreter_of_script(&bytes) {
        return match located(&interpreter) {
            Some(next) if scripts_left > 0 => judge(subject, &next, scripts_left - 1),
            _ => Finding::error(
                subject,
                format!("{shown} is a script for {}", interpreter.display()),
                "its interpreter cannot be found",
            ),
        };
    }
    let is_other_user = metadata.permissions().mode() & SET_ID != 0;
    if is_other_user && metadata.uid() != rustix::process::getuid().as_raw() {
        return Finding::error(
            subject,
            format!("{shown} changes its user (set-user-ID or set-group-ID)"),
            "the loader preloads nothing into such programs: start what it starts as the job",
        );
    }
    match interpreter_of_elf(&bytes) {
        Err(reason) => Finding::error(
            subject,
            format!("{shown}: {reason}"),
            "give a program of this machine's kind",
        ),
        Ok(None) => Finding::error(
            subject,
            format!("{shown} is statically linked"),
            "nothing can be preloaded into it, and it cannot load a driver either, unless it \
             starts other programs",
        ),
        Ok(Some(loader)) if loader.contains("ld-musl") => Finding::error(
            subject,
            format!("{shown} is of musl's C library ({loader})"),
            "NVIDIA's driver and this library are for glibc: use a glibc image",
        ),
        Ok(Some(loader)) => Finding::ok(subject, format!("{shown}, dynamically linked ({loader})")),
    }
}

/// A path as it is, a name as `PATH` has it.
fn located(program: &Path) -> Option<PathBuf> {
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

/// The program on a first line that begins with `#!`; of `env`, what `env` is to find.
fn interpreter_of_script(bytes: &[u8]) -> Option<PathBuf> {
    let line = bytes.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = Path::new(words.next()?);
    let is_env = first.file_name().is_some_and(|name| name == "env");
    let found = words.find(|word| is_env && !word.starts_with('-') && !word.contains('='));
    Some(found.map_or_else(|| first.to_owned(), PathBuf::from))
}

/// The loader that a 64-bit little-endian ELF file asks for; `None` if it asks for none.
fn interpreter_of_elf(bytes: &[u8]) -> Result<Option<String>, &'static str> {
    const MAGIC: &[u8] = b"\x7fELF\x02\x01";
    /// `PT_INTERP` (elf.h).
    const INTERPRETER: u64 = 3;
    if !bytes.starts_with(MAGIC) {
        return Err("neither a script nor a 64-bit ELF program");
    }
    let number = |at: usize, length: usize| {
        let field = bytes.get(at..at.checked_add(length)?)?;
        let fold = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(field.iter().rev().fold(0, fold))
    };
    let malformed = "a damaged ELF file";
    let headers = number(0x20, 8).ok_or(malformed)? as usize;
    let size = number(0x36, 2).ok_or(malformed)? as usize;
    let count = number(0x38, 2).ok_or(malformed)? as usize;
    for index in 0..count {
        let at = headers.saturating_add(index * size);
        if number(at, 4).ok_or(malformed)? != INTERPRETER {
            continue;
        }
        let start = number(at.saturating_add(8), 8).ok_or(malformed)? as usize;
        let length = number(at.saturating_add(0x20), 8).ok_or(malformed)? as usize;
        let end = start.checked_add(length).ok_or(malformed)?;
        let text = bytes.get(start..end).ok_or(malformed)?;
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        return Ok(Some(String::from_utf8_lossy(text).into_owned()));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_program_asks_for_a_loader() {
        let own = fs::read("/proc/self/exe").unwrap();
        let loader = interpreter_of_elf(&own).unwrap().unwrap();
        assert!(loader.starts_with("/lib"), "{loader}");
    }

    #[test]
    fn a_script_is_its_interpreter() {
        let of = |text: &str| interpreter_of_script(text.as_bytes());
        assert_eq!(of("#!/bin/sh -e\n"), Some("/bin/sh".into()));
        assert_eq!(of("#! /usr/bin/env python3\n"), Some("python3".into()));
        assert_eq!(of("#!/usr/bin/env -S A=1 perl -w\n"), Some("perl".into()));
        assert_eq!(of("plain text"), None);
        assert_eq!(of("#!\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_at_most_one_of_script_and_program(mut bytes: Vec<u8>, start in 0..3usize) {
            let start: &[u8] = [b"".as_slice(), b"\x7fELF\x02\x01", b"#!"][start];
            bytes.splice(0..0, start.iter().copied());
            let (script, program) = (interpreter_of_script(&bytes), interpreter_of_elf(&bytes));
            prop_assert!(script.is_none() || bytes.starts_with(b"#!"), "{:?}", script);
            prop_assert!(program.is_err() || bytes.starts_with(b"\x7fELF"), "{:?}", program);
        }
    }
}
