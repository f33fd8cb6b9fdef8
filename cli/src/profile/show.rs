//! `pillion profile show`: shows a profile as a table, as JSON, or as a picture.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use devices::Device;
use profiler::family::Family;
use profiler::profile::{Percent, RequestRule, Requests};
use profiler::scale::{self, Fit, Gpu};
use profiler::{KernelProfile, Profile, ResourceClass};
use serde_json::{Value, json};

use super::output;
use crate::failure::Failure;

/// Shows a profile: its kernels by their share of the time, and the resource that bounds them.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion profile show job.profile.toml")]
pub(crate) struct Options {
    /// A profile, a trace, or an Orion kernel file.
    file: PathBuf,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Draw the roofline as an SVG picture into this file instead.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Show the profile as used on this GPU model, as `pillion simulate --device` names them:
    /// scaled, if it was measured on another.
    #[arg(long, value_name = "MODEL")]
    device: Option<String>,
    /// Number of kernels in the table; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
}

/// Exits 2 for a file that is no profile, or has nothing to draw.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut profile = Profile::load(&options.file).map_err(Failure::usage)?;
    if let Some(name) = &options.device {
        let device = Device::by_name(name).map_err(Failure::usage)?;
        let (scaled, fit) = scale::scale(profile, &Gpu::from(&device));
        if let Fit::Unscaled { .. } = fit {
            let error = anyhow!("{}: {fit}", options.file.display());
            return Err(Failure::usage(error));
        }
        profile = scaled;
    }
    if let Some(path) = &options.svg {
        let picture = import::roofline(&profile).ok_or_else(|| {
            Failure::usage(anyhow!(
                "{}: no kernel has counts of operations and bytes; also import a report of \
                 `ncu --set full` (or --set roofline)",
                options.file.display()
            ))
        })?;
        return output::write(&picture, Some(path));
    }
    let text = if options.json {
        format!("{}\n", json_of(&profile))
    } else {
        text_of(&profile, options.top)
    };
    output::write(&text, None)
}

/// The profile as JSON, by the contract of the commands.
pub(super) fn json_of(profile: &Profile) -> Value {
    let kernels: Vec<Value> = profile.kernels.iter().map(kernel_json).collect();
    json!({
        "schema_version": 1,
        "gpu": profile.gpu,
        "sources": profile.sources,
        "notices": profile.notices,
        "requests": profile.requests.as_ref().map(requests_json),
        "totals": {"launches": launches(profile), "duration_ns": duration_ns(profile)},
        "kernels": kernels,
    })
}

fn requests_json(requests: &Requests) -> Value {
    let (range, gap_ns) = match &requests.rule {
        RequestRule::Range(name) => (Some(name), None),
        RequestRule::Gap(gap_ns) => (None, Some(gap_ns)),
    };
    json!({
        "range": range,
        "gap_ns": gap_ns,
        "count": requests.count,
        "latency_ns": {
            "sum": requests.latency.sum_ns,
            "median": requests.latency.median_ns,
            "p95": requests.latency.p95_ns,
        },
        "same_order": requests.same_order,
        "order": requests.order,
    })
}

fn kernel_json(kernel: &KernelProfile) -> Value {
    let evidence = &kernel.evidence;
    let has_shape = kernel.grid != [0; 3];
    let percent = |percent: Option<Percent>| percent.map(Percent::value);
    json!({
        "name": kernel.name,
        "mangled": kernel.mangled,
        "operator": kernel.operator.as_ref().map(ToString::to_string),
        "grid": has_shape.then_some(kernel.grid),
        "block": has_shape.then_some(kernel.block),
        "shared_bytes": kernel.shared_bytes,
        "count": kernel.count,
        "duration_ns": {
            "sum": kernel.durations.sum_ns,
            "median": kernel.durations.median_ns,
            "p95": kernel.durations.p95_ns,
        },
        "outliers": evidence.outliers.unwrap_or(0),
        "registers": (kernel.registers > 0).then_some(kernel.registers),
        "static_shared_bytes": evidence.static_shared_bytes,
        "blocks_per_sm": evidence.blocks_per_sm,
        "sm_needed": has_shape.then_some(kernel.sm_needed),
        "compute_pct": percent(evidence.compute_pct),
        "memory_pct": percent(evidence.memory_pct),
        "dram_pct": percent(evidence.dram_pct),
        "l2_pct": percent(evidence.l2_pct),
        "l1_pct": percent(evidence.l1_pct),
        "class": kernel.class.word(),
        "class_rule": kernel.class_rule.word(),
        "class_family": evidence.class_family.map(Family::word),
        "class_confidence_pct": percent(evidence.class_confidence_pct),
    })
}

fn text_of(profile: &Profile, top: usize) -> String {
    let all_ns = duration_ns(profile).max(1) as f64;
    let mut text = format!(
        "{}  from {}\n{} of {}, {} of GPU time\n",
        profile.gpu,
        if profile.sources.is_empty() {
            "unnamed sources".to_owned()
        } else {
            profile.sources.join(", ")
        },
        output::counted(launches(profile), "launch", "launches"),
        output::counted(
            profile.kernels.len() as u64,
            "kernel and shape",
            "kernels and shapes"
        ),
        output::duration(duration_ns(profile)),
    );
    if let Some(requests) = &profile.requests {
        text += &requests_line(requests);
    }
    for class in ResourceClass::ALL {
        let of_class = profile
            .kernels
            .iter()
            .filter(|kernel| kernel.class == class);
        // An empty sum is -0.
        let sum_ns = of_class.fold(0.0, |sum, kernel| sum + kernel.durations.sum_ns as f64);
        text += &format!("{} {:.1} %   ", class.word(), sum_ns / all_ns * 100.0);
    }
    text = text.trim_end().to_owned() + " of the time\n\n";
    let mut kernels: Vec<&KernelProfile> = profile.kernels.iter().collect();
    kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.durations.sum_ns));
    let shown = if top == 0 {
        kernels.len()
    } else {
        top.min(kernels.len())
    };
    let header = [
        "TIME %",
        "LAUNCHES",
        "MEDIAN",
        "P95",
        "SMS",
        "BLOCKS/SM",
        "SM %",
        "DRAM %",
        "CLASS",
        "RULE",
        "KERNEL",
    ];
    let mut table = output::table(&header, &["CLASS", "RULE", "KERNEL"]);
    for kernel in kernels.iter().take(shown) {
        let share = kernel.durations.sum_ns as f64 / all_ns * 100.0;
        table.add_row(row(kernel, share));
    }
    text += &format!("{}\n", output::plain(&table));
    if shown < kernels.len() {
        text += &format!("and {} more (--top 0 shows all)\n", kernels.len() - shown);
    }
    text += "\nSMS: needed by all blocks at once; may exceed the GPU's number. CLASS: the resource that the kernel contends \
             for;\nRULE: how the class is known. KERNEL: <blocks> x threads per block. '-': not measured.\n";
    if !import::check(profile).is_empty() {
        text += "`pillion profile check` lists what the profile lacks.\n";
    }
    for notice in &profile.notices {
        text += &format!("note: {notice}\n");
    }
    text
}

fn requests_line(requests: &Requests) -> String {
    let rule = match &requests.rule {
        RequestRule::Range(name) => format!("range `{name}`"),
        RequestRule::Gap(gap_ns) => format!("gaps of {} or more", output::duration(*gap_ns)),
    };
    let launches: u64 = requests
        .order
        .iter()
        .map(|&(_, times)| u64::from(times))
        .sum();
    format!(
        "{} (by {rule}), median {}, p95 {} alone; {} of these launched the same {} in order\n",
        output::counted(requests.count, "request", "requests"),
        output::duration(requests.latency.median_ns),
        output::duration(requests.latency.p95_ns),
        requests.same_order,
        output::counted(launches, "kernel", "kernels"),
    )
}

fn row(kernel: &KernelProfile, share: f64) -> Vec<String> {
    let evidence = &kernel.evidence;
    let percent = |percent: Option<Percent>| {
        percent.map_or("-".to_owned(), |percent| format!("{:.1}", percent.value()))
    };
    let number = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
    let has_shape = kernel.grid != [0; 3];
    vec![
        format!("{share:.1}"),
        kernel.count.to_string(),
        output::duration(kernel.durations.median_ns),
        output::duration(kernel.durations.p95_ns),
        number(has_shape.then_some(kernel.sm_needed)),
        number(evidence.blocks_per_sm),
        percent(evidence.compute_pct),
        percent(evidence.dram_pct),
        kernel.class.word().to_owned(),
        kernel.class_rule.word().to_owned(),
        output::kernel(kernel),
    ]
}

fn launches(profile: &Profile) -> u64 {
    profile
        .kernels
        .iter()
        .fold(0, |sum: u64, kernel| sum.saturating_add(kernel.count))
}

fn duration_ns(profile: &Profile) -> u64 {
    profile.kernels.iter().fold(0, |sum: u64, kernel| {
        sum.saturating_add(kernel.durations.sum_ns)
    })
}
