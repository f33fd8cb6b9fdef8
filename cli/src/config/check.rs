//! `pillion config check`: reports whether daemons would accept files.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use protocol::quota::Quota;
use scheduler::config::gpu::{self, Gpu, Select};
use scheduler::config::source::{self, Source};
use scheduler::config::{Config, ConfigError};

use crate::failure::Failure;
use crate::out;

/// Checks configuration files of daemons and reports each error with file, line and column.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion config check\n         \
                  pillion config check --this-machine /etc/pillion/gpu0.toml\n\n\
                  A file is checked together with default.toml in its folder and with its drop-ins (gpu0.d/*.toml for gpu0.toml).\n\n\
                  The command warns of programs that rules run, and of logs of MPS, that this machine lacks.")]
pub(crate) struct Options {
    /// TOML files, each for the daemon of one GPU, or default.toml; `-` is standard input, checked
    /// without other files (default: all files in /etc/pillion).
    files: Vec<PathBuf>,
    /// Also check that this machine has the GPUs that the files name, that no GPU has two files,
    /// and that quotas fit into the memory of the GPUs.
    #[arg(long)]
    this_machine: bool,
}

struct Checked {
    name: String,
    is_for_all: bool,
    config: Config,
}

/// Exits 0 with a warning for each program and log that this machine lacks, 2 with every error.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let folder = source::usual_folder();
    let mut files = options.files.clone();
    if files.is_empty() {
        files = source::files_in(&folder).map_err(Failure::usage)?;
        // The folder may have drop-ins alone.
        let defaults = folder.join(source::DEFAULTS);
        if !files.contains(&defaults) && defaults.with_extension("d").is_dir() {
            files.insert(0, defaults);
        }
    }
    if files.is_empty() {
        let folder = folder.display();
        return out::line(format_args!(
            "{folder}: no files; daemons that `pillion run` or `pilliond --gpu` starts use the built-in defaults"
        ));
    }
    let mut faults = Vec::new();
    let mut checked = Vec::new();
    for file in &files {
        match check(file) {
            Ok(found) => checked.push(found),
            Err(error) => faults.extend(error.to_string().lines().map(str::to_owned)),
        }
    }
    faults.extend(twice(&checked));
    if options.this_machine {
        match scheduler::host::device::gpus() {
            Ok(gpus) => faults.extend(of_machine(&checked, &gpus)),
            Err(error) => faults.push(format!("--this-machine: {error}")),
        }
    }
    // An error in a file for all GPUs is reported for each of them.
    let mut seen = BTreeSet::new();
    faults.retain(|fault| seen.insert(fault.clone()));
    for Checked { name, config, .. } in &checked {
        for doubt in [config.missing_programs(), config.mps.missing_logs()].concat() {
            out::note(format_args!("pillion: {name}: warning: {doubt}"));
        }
    }
    if !faults.is_empty() {
        return Err(Failure::usage(anyhow!("{}", faults.join("\n"))));
    }
    for Checked { name, .. } in &checked {
        out::line(format_args!("{name}: ok"))?;
    }
    Ok(())
}

fn check(file: &Path) -> Result<Checked, ConfigError> {
    let is_input = file == Path::new("-");
    let config = match is_input {
        true => from_input()?,
        false if source::is_defaults(file) => Source::Defaults {
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            gpu: Select::Index(0),
        }
        .load()?,
        false => Source::File(file.to_owned()).load()?,
    };
    Ok(Checked {
        name: match is_input {
            true => INPUT.to_owned(),
            false => file.display().to_string(),
        },
        is_for_all: source::is_defaults(file),
        config,
    })
}

const INPUT: &str = "standard input";

fn from_input() -> Result<Config, ConfigError> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|source| ConfigError::Unreadable {
        path: INPUT.into(),
        source,
    })?;
    Config::check(Path::new(INPUT), &text)
}

/// Files that name the same GPU, in the same way, as an earlier file.
fn twice(checked: &[Checked]) -> Vec<String> {
    let mut seen: Vec<(&Select, &str)> = Vec::new();
    let mut faults = Vec::new();
    for one in checked.iter().filter(|one| !one.is_for_all) {
        let gpu = &one.config.gpu;
        // Files of two folders may be meant for two machines.
        let is_beside = |other: &str| Path::new(other).parent() == Path::new(&one.name).parent();
        let first = seen
            .iter()
            .find(|(other, name)| *other == gpu && is_beside(name));
        match first {
            Some((_, first)) if *first != one.name => faults.push(again(one, gpu, first)),
            Some(_) => {}
            None => seen.push((gpu, &one.name)),
        }
    }
    faults
}

fn again(one: &Checked, gpu: &Select, first: &str) -> String {
    format!(
        "{}: the GPU with {gpu} already has the file {first}; a GPU can have only one file",
        one.name
    )
}

/// Settings that do not fit this machine, and files that name one of its GPUs in two ways.
fn of_machine(checked: &[Checked], gpus: &[Gpu]) -> Vec<String> {
    let mut faults: Vec<String> = checked.iter().flat_map(|one| absent(one, gpus)).collect();
    let mut seen: Vec<(String, &str)> = Vec::new();
    for one in checked.iter().filter(|one| !one.is_for_all) {
        let Ok(gpu) = gpu::choose(gpus.to_vec(), &one.config.gpu) else {
            continue;
        };
        match seen.iter().find(|(uuid, _)| *uuid == gpu.uuid) {
            Some((_, first)) if *first != one.name => {
                faults.push(again(one, &Select::Uuid(gpu.uuid), first));
            }
            Some(_) => {}
            None => seen.push((gpu.uuid, &one.name)),
        }
    }
    faults
}

fn absent(checked: &Checked, gpus: &[Gpu]) -> Vec<String> {
    let Checked { name, config, .. } = checked;
    if checked.is_for_all {
        return Vec::new();
    }
    let gpu = match gpu::choose(gpus.to_vec(), &config.gpu) {
        Ok(gpu) => gpu,
        Err(error) => return vec![format!("{name}: [gpu]: {error}")],
    };
    let quotas = [
        ("best_effort", config.memory.best_effort),
        ("high_priority", config.memory.high_priority),
    ];
    let too_large = quotas.into_iter().filter_map(|(key, quota)| match quota {
        Quota::Bytes(bytes) if gpu.memory_bytes != 0 && bytes > gpu.memory_bytes => Some(format!(
            "{name}: [memory] {key} is {} MiB, but the GPU has {} MiB; use at most \"100%\"",
            bytes >> 20,
            gpu.memory_bytes >> 20
        )),
        _ => None,
    });
    too_large.collect()
}
