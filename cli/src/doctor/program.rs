//! Checks whether a library can be preloaded into a program. The dynamic loader preloads only into
//! dynamically linked programs of the same C library's loader that do not change their user. A
//! script behaves as its interpreter.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::{Finding, Verdict};
use crate::artifacts;
use crate::program::{Kind, SCRIPTS_MAX, kind, libc, located, why_not_loadable};

const SET_ID: u32 = 0o6000;

pub(super) fn examine(program: &Path) -> Finding {
    let subject = format!("program {}", program.display());
    let Some(path) = located(program) else {
        return Finding::error(
            subject,
            "not found in PATH, or not executable",
            "give the path of the program that `pillion run` should start",
        );
    };
    let finding = judge(subject, &path, SCRIPTS_MAX);
    let library = artifacts::find(artifacts::LIBRARY).ok();
    let library = library.filter(|_| finding.verdict == Verdict::Ok);
    match library.and_then(|library| why_not_loadable(program, &library)) {
        Some(unloadable) => Finding::error(finding.subject, unloadable.why, unloadable.mend),
        None => finding,
    }
}

fn judge(subject: String, path: &Path, scripts_left: u32) -> Finding {
    let shown = path.display();
    let (kind, metadata) = match kind(path).and_then(|kind| Ok((kind, fs::metadata(path)?))) {
        Ok(found) => found,
        Err(error) => {
            let mend = "not checked: doctor cannot read this file; it may still run as a job";
            return Finding::warning(subject, format!("{shown}: {error}"), mend);
        }
    };
    if let Ok(Kind::Script(programs)) = &kind {
        // If the script names `env`, the program that `env` finds.
        let interpreter = programs.last().map_or(Path::new(""), |path| path);
        return match located(interpreter) {
            Some(next) if scripts_left > 0 => judge(subject, &next, scripts_left - 1),
            _ => Finding::error(
                subject,
                format!(
                    "{shown}: cannot find its interpreter, {}",
                    interpreter.display()
                ),
                "install the interpreter, or correct the script's first line",
            ),
        };
    }
    let is_other_user = metadata.permissions().mode() & SET_ID != 0;
    if is_other_user && metadata.uid() != rustix::process::getuid().as_raw() {
        return Finding::error(
            subject,
            format!("{shown} changes its user (set-user-ID or set-group-ID)"),
            "the loader preloads nothing into such a program: run the program that it starts as the job",
        );
    }
    match kind {
        Err(reason) => Finding::error(
            subject,
            format!("{shown}: {reason}"),
            "give a program that this machine can run",
        ),
        Ok(Kind::Dynamic(program)) => judge_loader(subject, path, &program.loader),
        Ok(Kind::Static | Kind::Script(_)) => Finding::error(
            subject,
            format!("{shown} is statically linked"),
            "no library can be preloaded into it, and it cannot load a driver; Pillion can manage \
             only the programs that it starts",
        ),
    }
}

fn judge_loader(subject: String, path: &Path, loader: &Path) -> Finding {
    let (path, shown) = (path.display(), loader.display());
    if libc::is_musls(loader) {
        return Finding::error(
            subject,
            format!("{path} uses musl's C library ({shown})"),
            libc::MUSL,
        );
    }
    Finding::ok(subject, format!("{path}, dynamically linked ({shown})"))
}
