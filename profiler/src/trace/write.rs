//! Writes the canonical form of a trace.

use std::fmt::Write;

use super::{FORMAT, Trace, TraceKernel, VERSION};

pub(super) fn write(trace: &Trace) -> String {
    let mut text = format!("{FORMAT} {VERSION}\ndevice {}\n", trace.device);
    for kernel in &trace.kernels {
        text.push_str(&kernel_line(kernel));
    }
    for run in trace.launches.chunk_by(|a, b| a == b) {
        // chunk_by never gives an empty run.
        let Some(index) = run.first() else { continue };
        let written = match run.len() {
            1 => writeln!(text, "launch {index}"),
            count => writeln!(text, "launch {index} x{count}"),
        };
        written.expect("a String takes all that is written to it");
    }
    text
}

fn kernel_line(kernel: &TraceKernel) -> String {
    let triple = |[x, y, z]: [u32; 3]| format!("{x},{y},{z}");
    format!(
        "kernel class={} grid={} block={} shared_bytes={} registers={} sm_needed={} block_ns={} \
         duration_ns={} compute_demand={} bandwidth_demand={} source={} name={}\n",
        kernel.class,
        triple(kernel.grid),
        triple(kernel.block),
        kernel.shared_bytes,
        kernel.registers,
        kernel.sm_needed,
        kernel.block_ns,
        kernel.duration_ns,
        kernel.compute_demand,
        kernel.bandwidth_demand,
        quoted(&kernel.source_name),
        quoted(&kernel.name),
    )
}

fn quoted(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len() + 2);
    quoted.push('"');
    for character in name.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}
