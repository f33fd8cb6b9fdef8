//! `pillion config show`: which settings are in force, and which file states each.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use protocol::hello::{ask_settings, socket_paths};
use scheduler::config::gpu::Gpu;
use scheduler::config::show::Shown;
use scheduler::config::source::{self, Source};
use serde_json::{Value, json};

use crate::daemons::{self, PATIENCE};
use crate::failure::Failure;
use crate::{out, run};

/// Shows the settings of daemons, each with its origin: file, line and column, or default.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion config show --gpu 0\n\n\
                  For a running daemon, the command shows the settings in force. If the GPU of --gpu has no daemon, it shows the settings that a \
                  daemon started by `pillion run` or `pilliond --gpu` would have. Without a daemon and without --gpu, it shows the settings in \
                  /etc/pillion for all GPUs.\n\n\
                  Keys that no file sets are shown if they have a default. Changes made to a job by `pillion set` are shown by \
                  `pillion status --explain JOB`.")]
pub(crate) struct Options {
    /// Show only this GPU: index, UUID or UUID prefix, or PCI bus id.
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

struct Found {
    /// A socket, or a description.
    of: String,
    is_running: bool,
    shown: Shown,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let found = find(options)?;
    if options.json {
        let all: Vec<Value> = found.iter().map(to_json).collect();
        let document = json!({ "schema_version": 1, "configurations": all });
        return out::line(format_args!("{document:#}"));
    }
    for (place, one) in found.iter().enumerate() {
        if place > 0 {
            out::line(format_args!(""))?;
        }
        print(one)?;
    }
    Ok(())
}

fn find(options: &Options) -> Result<Vec<Found>, Failure> {
    let gpu = options.gpu.as_deref();
    let gpu = gpu.map(run::select).transpose().map_err(Failure::usage)?;
    let named = std::env::var_os("PILLION_SOCKET").map(PathBuf::from);
    let is_named = named.is_some();
    let sockets = match (named, &gpu) {
        (Some(socket), _) => vec![socket],
        (None, Some(gpu)) => socket_paths(&gpu.uuid),
        (None, None) => daemons::sockets(),
    };
    let mut found = Vec::new();
    let mut refused = Vec::new();
    let mut absent = Vec::new();
    for socket in sockets {
        match ask_settings(&socket, PATIENCE) {
            Ok(json) => found.push(Found {
                of: socket.display().to_string(),
                is_running: true,
                shown: serde_json::from_str(&json)
                    .context("cannot parse the reply of the daemon")?,
            }),
            Err(error) if daemons::is_absence(&error) => {
                absent.push(format!("{}: {error}", socket.display()));
            }
            Err(error) => refused.push(format!("{}: {error}", socket.display())),
        }
    }
    if found.is_empty() && !refused.is_empty() {
        return Err(anyhow!("{}", refused.join("; ")).into());
    }
    for refused in refused {
        out::note(format_args!("pillion: {refused}"));
    }
    if !found.is_empty() {
        return Ok(found);
    }
    if is_named {
        return Err(daemons::none_answers(&absent));
    }
    of_files(gpu)
}

/// The configurations that daemons would read from the files.
fn of_files(gpu: Option<Gpu>) -> Result<Vec<Found>, Failure> {
    let folder = source::usual_folder();
    let source = match &gpu {
        Some(gpu) => {
            let gpus = scheduler::host::device::gpus().map_err(anyhow::Error::from)?;
            let select = run::select_of(&gpu.uuid);
            Source::of_gpu(&folder, &select, &gpus).map_err(Failure::usage)?
        }
        None => Source::File(folder.join(source::DEFAULTS)),
    };
    let source = match source {
        Source::File(path) if source::is_defaults(&path) && !path.exists() => Source::Defaults {
            folder,
            gpu: run::select_of("0"),
        },
        source => source,
    };
    let (config, layers) = source.read().map_err(Failure::usage)?;
    Ok(vec![Found {
        of: gpu.map_or("every GPU".to_owned(), |gpu| gpu.uuid),
        is_running: false,
        shown: Shown::of(&layers, &config),
    }])
}

fn to_json(found: &Found) -> Value {
    json!({
        "of": found.of,
        "running": found.is_running,
        "files": found.shown.files,
        "settings": found.shown.settings,
    })
}

fn print(found: &Found) -> Result<(), Failure> {
    let files = match found.shown.files.is_empty() {
        true => "no file, built-in defaults".to_owned(),
        false => found.shown.files.join(", "),
    };
    let state = match found.is_running {
        true => "in force in the daemon at",
        false => "no daemon is running; settings for a daemon of",
    };
    out::line(format_args!("{state} {}: {files}", found.of))?;
    let value = |value: &Value| value.to_string();
    let settings = &found.shown.settings;
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let keys = width(&mut settings.iter().map(|it| it.key.len()));
    let values = width(&mut settings.iter().map(|it| value(&it.value).len().min(40)));
    for setting in settings {
        out::line(format_args!(
            "  {:keys$}  {:values$}  {}",
            setting.key,
            value(&setting.value),
            setting.origin
        ))?;
    }
    Ok(())
}
