//! `pillion workload`: writes the kernel trace of a built-in network.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use profiler::{ResourceClass, Trace};
use softgpu::Device;
use workloads::{Precision, Workload};

use crate::failure::Failure;
use crate::out;
use crate::profile::output::{counted, write};
use crate::status::table;

/// Writes the kernel trace of a built-in network, for --hp, --be, --profile and `simulate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: pillion workload resnet50-inference --batch 8 --device A30 -o hp.trace\n\n\
                  Without a name the command lists the workloads. docs/workloads.md explains how the \
                  times are computed and how accurate they are."
)]
pub(crate) struct Options {
    /// Name of the workload.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Images, sequences or other inputs in one request.
    #[arg(long, value_name = "N", requires = "name")]
    batch: Option<u32>,
    /// Model of the GPU that the trace is for.
    #[arg(long, value_name = "MODEL", default_value = "V100-SXM2-16GB")]
    device: String,
    /// fp32 on the ordinary units, or fp16 on the matrix units.
    #[arg(long, value_name = "P", default_value = "fp32", value_parser = Precision::NAMES)]
    precision: String,
    /// The file to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE", requires = "name")]
    output: Option<PathBuf>,
}

/// Exits 2 for a name, batch, device or precision that does not exist; nothing is written then.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let Some(name) = &options.name else {
        return list();
    };
    let workload = Workload::by_name(name).map_err(Failure::usage)?;
    let device = Device::by_name(&options.device).map_err(Failure::usage)?;
    let precision = Precision::from_name(&options.precision).unwrap_or(Precision::Fp32);
    let trace = workload
        .trace(options.batch, &device, precision)
        .map_err(Failure::usage)?;
    let Some(output) = &options.output else {
        let error = anyhow!("expected -o FILE, or -o - for standard output");
        return Err(Failure::usage(error));
    };
    if output == Path::new("-") {
        out::text(&trace.write())?;
    } else {
        write(&trace.write(), Some(output))?;
        out::note(format_args!("{}: {}", output.display(), summary(&trace)));
    }
    Ok(())
}

fn summary(trace: &Trace) -> String {
    let ms = |class: Option<ResourceClass>| {
        let of_class = trace
            .launched()
            .filter(|kernel| class.is_none_or(|class| kernel.class == class));
        of_class.map(|kernel| kernel.duration_ns).sum::<u64>() as f64 / 1e6
    };
    format!(
        "{} of {}, {:.2} ms on {} ({:.2} compute, {:.2} memory, {:.2} unknown)",
        counted(trace.launches.len() as u64, "launch", "launches"),
        counted(trace.kernels.len() as u64, "kernel", "kernels"),
        ms(None),
        trace.device,
        ms(Some(ResourceClass::Compute)),
        ms(Some(ResourceClass::Memory)),
        ms(Some(ResourceClass::Unknown)),
    )
}

fn list() -> Result<(), Failure> {
    let mut rows = table(&["WORKLOAD", "BATCH", "ABOUT"]);
    for workload in Workload::all() {
        let batch = workload.batch_default.to_string();
        rows.add_row([workload.name, &batch, workload.about]);
    }
    out::line(format_args!("{rows}"))
}
