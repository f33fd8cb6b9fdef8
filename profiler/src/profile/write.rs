//! Writes a profile in its one layout.

use std::fmt::{self, Write};

use super::{
    ClassRule, Evidence, FORMAT, KernelProfile, Measured, Operator, Profile, RequestRule, Requests,
    VERSION, VERSION_WITHOUT_NAMES,
};

pub(super) fn write(profile: &Profile) -> String {
    let mut text = String::new();
    write_all(&mut text, profile).expect("a String takes all that is written to it");
    text
}

fn write_all(text: &mut String, profile: &Profile) -> fmt::Result {
    let version = version_of(profile);
    writeln!(text, "format = \"{FORMAT}\"\nversion = {version}")?;
    writeln!(text, "gpu = {}", quoted(&profile.gpu))?;
    writeln!(text, "sources = [{}]", list(&profile.sources, ", "))?;
    if !profile.notices.is_empty() {
        writeln!(
            text,
            "notices = [\n    {},\n]",
            list(&profile.notices, ",\n    ")
        )?;
    }
    if let Some(measured) = &profile.measured {
        write_measured(text, measured)?;
    }
    if let Some(requests) = &profile.requests {
        write_requests(text, requests)?;
    }
    for kernel in &profile.kernels {
        write_kernel(text, kernel)?;
    }
    Ok(())
}

fn version_of(profile: &Profile) -> u32 {
    let is_estimated = |kernel: &KernelProfile| {
        let evidence = &kernel.evidence;
        kernel.class_rule == ClassRule::Name
            || evidence.class_family.is_some()
            || evidence.class_confidence_pct.is_some()
    };
    if profile.kernels.iter().any(is_estimated) {
        VERSION
    } else {
        VERSION_WITHOUT_NAMES
    }
}

fn list(values: &[String], between: &str) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
    values.join(between)
}

fn write_measured(text: &mut String, measured: &Measured) -> fmt::Result {
    writeln!(text, "\n[measured]")?;
    write_optional(text, "sms", measured.sms)?;
    if let Some((major, minor)) = measured.compute_capability {
        writeln!(text, "compute_capability = \"{major}.{minor}\"")?;
    }
    write_optional(text, "clock_mhz", measured.clock_mhz)?;
    write_optional(text, "bandwidth_gb_s", measured.bandwidth_gb_s)
}

fn write_requests(text: &mut String, requests: &Requests) -> fmt::Result {
    writeln!(text, "\n[requests]")?;
    match &requests.rule {
        RequestRule::Range(name) => writeln!(text, "range = {}", quoted(name))?,
        RequestRule::Gap(gap_ns) => writeln!(text, "gap_ns = {gap_ns}")?,
    }
    let latency = requests.latency;
    writeln!(text, "count = {}", requests.count)?;
    writeln!(
        text,
        "latency_ns = {{ sum = {}, median = {}, p95 = {} }}",
        latency.sum_ns, latency.median_ns, latency.p95_ns,
    )?;
    writeln!(text, "same_order = {}", requests.same_order)?;
    let runs = requests.order.iter();
    let runs: Vec<String> = runs
        .map(|(kernel, times)| format!("[{kernel}, {times}]"))
        .collect();
    writeln!(text, "order = [{}]", runs.join(", "))
}

fn write_kernel(text: &mut String, kernel: &KernelProfile) -> fmt::Result {
    let durations = kernel.durations;
    writeln!(text, "\n[[kernel]]")?;
    writeln!(text, "name = {}", quoted(&kernel.name))?;
    if let Some(mangled) = &kernel.mangled {
        writeln!(text, "mangled = {}", quoted(mangled))?;
    }
    if let Some(operator) = &kernel.operator {
        write_operator(text, operator)?;
    }
    writeln!(text, "grid = {:?}", kernel.grid)?;
    writeln!(text, "block = {:?}", kernel.block)?;
    writeln!(text, "shared_bytes = {}", kernel.shared_bytes)?;
    writeln!(text, "count = {}", kernel.count)?;
    writeln!(
        text,
        "duration_ns = {{ sum = {}, median = {}, p95 = {} }}",
        durations.sum_ns, durations.median_ns, durations.p95_ns,
    )?;
    writeln!(text, "registers = {}", kernel.registers)?;
    writeln!(text, "sm_needed = {}", kernel.sm_needed)?;
    writeln!(text, "class = \"{}\"", kernel.class)?;
    writeln!(text, "class_rule = \"{}\"", kernel.class_rule.word())?;
    write_evidence(text, &kernel.evidence)
}

fn write_operator(text: &mut String, operator: &Operator) -> fmt::Result {
    write!(text, "operator = {{ name = {}", quoted(&operator.name))?;
    if !operator.sizes.is_empty() {
        write!(text, ", sizes = {:?}", operator.sizes)?;
    }
    if let Some(batch) = operator.batch {
        write!(text, ", batch = {batch}")?;
    }
    let words = [("number", &operator.number), ("layout", &operator.layout)];
    for (key, word) in words {
        if let Some(word) = word {
            write!(text, ", {key} = {}", quoted(word))?;
        }
    }
    writeln!(text, " }}")
}

fn write_evidence(text: &mut String, evidence: &Evidence) -> fmt::Result {
    write_optional(text, "static_shared_bytes", evidence.static_shared_bytes)?;
    write_optional(text, "blocks_per_sm", evidence.blocks_per_sm)?;
    write_optional(text, "outliers", evidence.outliers)?;
    write_optional(text, "compute_pct", evidence.compute_pct)?;
    write_optional(text, "memory_pct", evidence.memory_pct)?;
    write_optional(text, "dram_pct", evidence.dram_pct)?;
    write_optional(text, "l2_pct", evidence.l2_pct)?;
    write_optional(text, "l1_pct", evidence.l1_pct)?;
    let roofline = evidence.roofline;
    write_optional(text, "mflop_per_s", roofline.map(|place| place.mflop_per_s))?;
    write_optional(text, "mbyte_per_s", roofline.map(|place| place.mbyte_per_s))?;
    let family = evidence.class_family.map(|family| quoted(family.word()));
    write_optional(text, "class_family", family)?;
    write_optional(text, "class_confidence_pct", evidence.class_confidence_pct)
}

fn write_optional(text: &mut String, key: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    match value {
        Some(value) => writeln!(text, "{key} = {value}"),
        None => Ok(()),
    }
}

fn quoted(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(character)));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
