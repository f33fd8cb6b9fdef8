//! `pillion demo`: two jobs share a GPU in six ways, with real processes and the same arrivals.
//! Each phase starts a high-priority (HP) and a best-effort (BE) replay; the phases with Pillion
//! also use the real daemon and preload library. [`venue`] chooses where the demo runs:
//! - On the software GPU, a device server is started, too. All processes run on its virtual clock
//!   and on one core: a phase is exact, and the same seed gives the same output on any machine. The
//!   results are those of the device model, not of hardware.
//! - On a GPU of this machine the replays launch synthetic kernels, calibrated to the traces at the
//!   start ([`calibration`]), in real time. The results hold for that machine at that moment.

mod calibration;
mod phase;
mod picture;
mod record;
mod report;
mod results;
mod stage;
mod timeline;
mod venue;

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use policy::Policy;
use profiler::Trace;
use sim::Arrivals;
use softgpu::Device;
use workloads::{Precision, Workload};

use crate::demo::phase::Phase;
use crate::demo::record::Record;
use crate::demo::results::Results;
use crate::demo::stage::Stage;
use crate::demo::timeline::Scene;
use crate::demo::venue::Venue;
use crate::failure::Failure;
use crate::out;

/// Shows the effect of Pillion: a high-priority and a best-effort job share a GPU, or a software
/// GPU, in six ways.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Example: pillion demo --hp bert-base-inference --be mobilenetv2-training\n\n\
                  By default, a ResNet-50 that answers requests of 4 images runs beside a ResNet-50 that \
                  trains on batches of 32.\n\n\
                  On a machine with an NVIDIA GPU, the demo uses that GPU in real time, with synthetic kernels of the \
                  same lengths and needs; no other program should use the GPU meanwhile. --gpu selects a GPU, \
                  --device the software GPU. The phases under MPS need a running MPS control daemon."
)]
pub(crate) struct Options {
    /// Trace of the high-priority job: an Orion kernel file, a Pillion trace, or a built-in
    /// workload (`pillion workload` lists them).
    #[arg(long, value_name = "TRACE", default_value = "resnet50-inference")]
    hp: PathBuf,
    /// Trace of the best-effort job, which runs in a closed loop.
    #[arg(long, value_name = "TRACE", default_value = "resnet50-training")]
    be: PathBuf,
    /// Requests per second of the high-priority job, for poisson and uniform arrivals.
    #[arg(
        long,
        value_name = "R",
        default_value_t = 15.0,
        allow_negative_numbers = true
    )]
    hp_rate: f64,
    /// How high-priority requests arrive: poisson, uniform, closed, or a file of arrivals.
    #[arg(long, value_name = "KIND|FILE", default_value = "poisson")]
    arrivals: String,
    /// Index of the list in a DISB workload file, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    arrivals_stream: usize,
    /// Device seconds per phase [default: 12; on a GPU of this machine 10].
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// Decides the arrivals: equal seeds give equal arrivals and, on the software GPU in virtual
    /// time, equal output.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run on the software GPU, as this model [default without a GPU: V100-SXM2-16GB].
    #[arg(long, value_name = "MODEL", conflicts_with = "gpu")]
    device: Option<String>,
    /// Run on this GPU of the machine: index, UUID or UUID prefix, or PCI bus id.
    #[arg(long, value_name = "G")]
    gpu: Option<String>,
    #[arg(long, value_name = "POLICY", default_value = "pillion", help = policy_help())]
    policy: String,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
    /// Also write results.json, report.html and timeline.json (for Perfetto) into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Exits 2 for unusable input, 1 if a phase failed or lost or miscounted anything.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let stage = prepare(options)?;
    let progress = progress_bar(&stage);
    let mut results = Results::new(options, &stage);
    let mut records = Vec::new();
    for &phase in &stage.phases {
        progress.set_message(phase.title());
        let mut outcome = phase
            .run(options, &stage, &progress)
            .with_context(|| format!("phase {}", phase.key()))?;
        records.extend(outcome.record.take().map(|record| (phase, record)));
        results.add(phase, outcome);
    }
    progress.finish_and_clear();
    if let Some(folder) = &options.out {
        write_out(folder, &results, records, &stage)?;
    }
    if options.json {
        out::line(format_args!("{}", results.json()))?;
    } else {
        results.print()?;
    }
    let faults = results.faults();
    if faults.is_empty() {
        return Ok(());
    }
    Err(anyhow!("the demo's own checks failed:\n  {}", faults.join("\n  ")).into())
}

fn policy_help() -> String {
    let (others, last) = Policy::NAMES.split_at(Policy::NAMES.len() - 1);
    let (others, last) = (others.join(", "), last.concat());
    format!("Policy of the phases with Pillion: {others} or {last}")
}

/// Checks all input before anything is started or written.
fn prepare(options: &Options) -> Result<Stage, Failure> {
    options.policy.parse::<Policy>().map_err(Failure::usage)?;
    if let Some(seconds) = options
        .seconds
        .filter(|seconds| seconds.is_nan() || *seconds <= 0.0)
    {
        let error = anyhow!("--seconds {seconds}: expected more than 0");
        return Err(Failure::usage(error));
    }
    if options.hp_rate.is_nan() || options.hp_rate <= 0.0 {
        let error = anyhow!("--hp-rate {}: expected more than 0", options.hp_rate);
        return Err(Failure::usage(error));
    }
    let is_kind = matches!(options.arrivals.as_str(), "closed" | "poisson" | "uniform");
    if !is_kind && !Path::new(&options.arrivals).is_file() {
        return Err(Failure::usage(anyhow!(
            "--arrivals {}: expected closed, poisson, uniform or a file",
            options.arrivals
        )));
    }
    if !is_kind {
        let path = Path::new(&options.arrivals);
        Arrivals::read(path, options.arrivals_stream).map_err(Failure::usage)?;
    }
    let (venue, note) = Venue::choose(options)?;
    let model = venue.model()?;
    let hp = load(&model, &options.hp)?;
    let be = load(&model, &options.be)?;
    if let Some(note) = note {
        out::note(format_args!("pillion demo: {note}"));
    }
    let seconds = options.seconds.unwrap_or_else(|| venue.seconds());
    if let Some(folder) = &options.out {
        out::folder(folder).map_err(Failure::usage)?;
    }
    Ok(Stage::set(venue, seconds, hp, be)?)
}

fn load(device: &Device, path: &Path) -> Result<(String, Trace), Failure> {
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok((name.display().to_string(), trace_at(path, device)?))
}

/// Reads the file; without one, computes the built-in workload of that name on the demo's device.
fn trace_at(path: &Path, device: &Device) -> Result<Trace, Failure> {
    let workload = path
        .to_str()
        .filter(|_| !path.exists())
        .and_then(|name| Workload::by_name(name).ok());
    match workload {
        Some(workload) => workload
            .trace(None, device, Precision::Fp32)
            .map_err(Failure::usage),
        None => Trace::read(path).map_err(Failure::usage),
    }
}

fn progress_bar(stage: &Stage) -> ProgressBar {
    let milliseconds = (stage.seconds * 1e3) as u64 * stage.phases.len() as u64;
    let bar = ProgressBar::with_draw_target(Some(milliseconds), ProgressDrawTarget::stderr());
    // A template that does not parse fails the tests.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Writes each file whole or not at all.
fn write_out(
    folder: &Path,
    results: &Results,
    records: Vec<(Phase, Record)>,
    stage: &Stage,
) -> anyhow::Result<()> {
    let slow = slowest(&records, results.without());
    let scenes: Vec<Scene> = records
        .into_iter()
        .map(|(phase, record)| Scene::around(phase, record, slow.map(|(_, at_ns)| at_ns)))
        .collect();
    let slow = slow.map(|(number, _)| number);
    let launches = stage.launches();
    let files = [
        ("results.json", results.json()),
        (
            "report.html",
            report::report(results, &scenes, slow, launches),
        ),
        (
            "timeline.json",
            timeline::timeline(results.about(), &scenes, launches),
        ),
    ];
    for (name, text) in files {
        out::file(folder, name, &text)?;
    }
    Ok(())
}

/// The number and arrival time of a phase's slowest request.
fn slowest(records: &[(Phase, Record)], phase: Phase) -> Option<(usize, u64)> {
    let (_, record) = records.iter().find(|(found, _)| *found == phase)?;
    let requests = record.requests.iter().enumerate();
    let slowest = requests.max_by_key(|(_, request)| request.done_ns - request.arrived_ns);
    slowest.map(|(number, request)| (number, request.arrived_ns))
}
