//! `pillion profile import`: converts profilers' files to one profile.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use import::{Context, Limits, Source};
use profiler::Profile;
use tempfile::NamedTempFile;

use super::output;
use super::progress::Progress;
use crate::failure::Failure;
use crate::out;

/// Makes one profile from the files that profilers wrote about a job.
///
/// The format of a file is detected from its content. A file that cannot be imported is reported
/// with its fix; the others are used.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: nsys profile -o job python train.py && nsys export --type sqlite -o job.sqlite job.nsys-rep\n         \
                  pillion profile import job.sqlite -o job.profile.toml"
)]
pub(crate) struct Options {
    /// Files about one job on one model of GPU; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// File for the profile; `-`, the default, is standard output.
    #[arg(short = 'o', long = "output", value_name = "OUT")]
    output: Option<PathBuf>,
    /// The GPU model, as `pillion simulate --device` names them, if the files name several or
    /// none.
    #[arg(long, value_name = "MODEL")]
    device: Option<String>,
    /// The NVTX range (or PyTorch annotation) that holds one request or iteration; a name that ends
    /// in * matches all names with that prefix. Without it, gaps on the GPU separate requests.
    #[arg(long, value_name = "NVTX")]
    request_range: Option<String>,
    /// Limit on the bytes read from one file, after decompression.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().bytes_max)]
    max_bytes: u64,
}

/// Exits 2, with nothing written, if no file has anything to import.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let limits = Limits {
        bytes_max: options.max_bytes,
    };
    let mut sources: Vec<Source> = Vec::new();
    let mut refused = Vec::new();
    for file in &options.files {
        let spooled = if file == Path::new("-") {
            Some(spool(options.max_bytes)?)
        } else {
            None
        };
        let file = spooled
            .as_ref()
            .map_or(file.as_path(), |spooled| spooled.path());
        let mut progress = Progress::new(file);
        let mut context = Context {
            limits,
            progress: &mut |done, total| progress.handle(done, total),
        };
        match import::read(file, &mut context) {
            Ok(mut source) => {
                if spooled.is_some() {
                    source.label = "standard input".to_owned();
                }
                sources.push(source);
            }
            Err(error) => refused.push(error),
        }
    }
    if sources.is_empty() {
        let reasons: Vec<String> = refused.iter().map(ToString::to_string).collect();
        return Err(Failure::usage(anyhow!(reasons.join("\npillion: "))));
    }
    for error in &refused {
        out::note(format_args!("pillion: not imported: {error}"));
    }
    let wish = import::Options {
        device: options.device.clone(),
        request_range: options.request_range.clone(),
    };
    let profile = import::reduce(&sources, &wish).map_err(Failure::usage)?;
    if profile.kernels.is_empty() {
        let error = anyhow!(
            "the files have no kernel durations; add a file that has them (from nsys, or PyTorch's profiler)"
        );
        return Err(Failure::usage(error));
    }
    let path = options
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"));
    output::write(&profile.write(), path)?;
    say(&profile, path);
    Ok(())
}

/// Copies standard input to a file, because detecting and reading formats requires seeking.
fn spool(bytes_max: u64) -> Result<NamedTempFile, Failure> {
    let mut file = tempfile::Builder::new().prefix("stdin-").tempfile()?;
    // One byte over the limit suffices for the reader to refuse it.
    let mut input = io::stdin().lock().take(bytes_max.saturating_add(1));
    io::copy(&mut input, &mut file).context("cannot read standard input")?;
    Ok(file)
}

fn say(profile: &Profile, path: Option<&Path>) {
    for notice in &profile.notices {
        out::note(format_args!("pillion: {notice}"));
    }
    let launches = profile
        .kernels
        .iter()
        .fold(0, |sum: u64, kernel| sum.saturating_add(kernel.count));
    let duration_ns = profile.kernels.iter().fold(0, |sum: u64, kernel| {
        sum.saturating_add(kernel.durations.sum_ns)
    });
    let where_to = path.map_or_else(String::new, |path| format!("{}: ", path.display()));
    out::note(format_args!(
        "pillion: {where_to}{}, {}, {:.3} ms on {}",
        output::counted(
            profile.kernels.len() as u64,
            "kernel and shape",
            "kernels and shapes"
        ),
        output::counted(launches, "launch", "launches"),
        duration_ns as f64 / 1e6,
        profile.gpu,
    ));
}
