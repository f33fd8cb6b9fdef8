//! Checks configuration files, profiles, and the environment.

use std::path::{Path, PathBuf};

use profiler::Profile;
use protocol::hello::JobClass;
use protocol::ranges::{self, RangePattern};
use scheduler::config::source::{self, Source};

use super::Finding;
use crate::artifacts;
use crate::profile::output::counted;
use crate::run::NVTX_TOOL;

pub(super) fn examine(findings: &mut Vec<Finding>, configs: &[PathBuf]) {
    for path in files(configs) {
        findings.push(config(&path));
    }
    if let Some(path) = set("PILLION_PROFILE") {
        findings.push(profile(Path::new(&path)));
    }
    if let Some(class) = set("PILLION_CLASS") {
        findings.push(class_named(&class));
    }
    for name in ["PILLION_REQUEST_RANGE", "PILLION_ITERATION_RANGE"] {
        findings.extend(set(name).map(|text| range(name, &text)));
    }
    findings.extend(set(NVTX_TOOL).map(|path| nvtx_tool(&path)));
    if set("PILLION_DISABLE").is_some_and(|value| value != "0") {
        findings.push(Finding::warning(
            "PILLION_DISABLE",
            "set",
            "jobs started from here bypass Pillion: unset it",
        ));
    }
}

fn set(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?.to_string_lossy().into_owned();
    (!value.is_empty()).then_some(value)
}

pub(super) fn files(configs: &[PathBuf]) -> Vec<PathBuf> {
    if !configs.is_empty() {
        return configs.to_vec();
    }
    source::files_in(&source::usual_folder()).unwrap_or_default()
}

pub(super) fn files_and_drop_ins(configs: &[PathBuf]) -> Vec<PathBuf> {
    let below = |path: PathBuf| {
        let drop_ins = source::files_in(&path.with_extension("d")).unwrap_or_default();
        std::iter::once(path).chain(drop_ins)
    };
    files(configs).into_iter().flat_map(below).collect()
}

fn config(path: &Path) -> Finding {
    let subject = format!("configuration {}", path.display());
    match Source::File(path.to_owned()).load() {
        Ok(_) if source::is_defaults(path) => Finding::ok(subject, "valid; for all GPUs"),
        Ok(config) => Finding::ok(subject, format!("valid; for the GPU with {}", config.gpu)),
        Err(error) => Finding::error(
            subject,
            without(path, &error.to_string()),
            "fix it as the message describes; pilliond refuses it",
        ),
    }
}

fn profile(path: &Path) -> Finding {
    let subject = format!("profile {}", path.display());
    match Profile::load(path) {
        Ok(profile) => Finding::ok(
            subject,
            format!(
                "{}, measured on {}",
                counted(profile.kernels.len() as u64, "kernel", "kernels"),
                profile.gpu
            ),
        ),
        Err(error) => Finding::error(
            subject,
            without(path, &error.to_string()),
            "fix it; until then jobs run with all their kernels unknown",
        ),
    }
}

/// Removes the file's name, which is the subject, from an error; the position stays.
fn without(path: &Path, text: &str) -> String {
    let name = path.display().to_string();
    let lines = text.lines().map(|line| {
        let rest = line.strip_prefix(&name);
        let rest = rest.and_then(|rest| rest.strip_prefix(':'));
        rest.map_or(line, str::trim_start)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn range(name: &str, text: &str) -> Finding {
    match RangePattern::parse(text) {
        Some(pattern) => Finding::ok(name, pattern.to_string()),
        None => Finding::error(
            name,
            format!("{text:?}"),
            format!(
                "set it to {}; `pillion run` refuses this value",
                ranges::EXPECTED
            ),
        ),
    }
}

/// Only one tool receives a process's NVTX ranges: the one that this variable names.
fn nvtx_tool(path: &str) -> Finding {
    let ours = artifacts::find(artifacts::LIBRARY);
    if ours.is_ok_and(|ours| ours.as_os_str() == path) {
        return Finding::ok(NVTX_TOOL, path);
    }
    Finding::warning(
        NVTX_TOOL,
        path,
        "that tool receives the NVTX ranges instead of Pillion, so --request-range has no effect: unset it after profiling",
    )
}

fn class_named(class: &str) -> Finding {
    const SUBJECT: &str = "PILLION_CLASS";
    if JobClass::from_name(class).is_some() {
        return Finding::ok(SUBJECT, class);
    }
    let names = JobClass::NAMES.join(" or ");
    Finding::error(
        SUBJECT,
        format!("{class:?}"),
        format!("set it to {names}; `pillion run` refuses this value"),
    )
}
