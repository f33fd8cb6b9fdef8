//! Writes a profile in its one layout.

use std::fmt::{self, Write};

use super::{FORMAT, KernelProfile, Profile, VERSION};

/// `profile` as text.
pub(super) fn write(profile: &Profile) -> String {
    let sources: Vec<String> = profile
        .sources
        .iter()
        .map(|source| quoted(source))
        .collect();
    let mut text = format!(
        "format = \"{FORMAT}\"\nversion = {VERSION}\ngpu = {}\nsources = [{}]\n",
        quoted(&profile.gpu),
        sources.join(", "),
    );
    for kernel in &profile.kernels {
        write_kernel(&mut text, kernel).expect("a String takes all that is written to it");
    }
    text
}

/// One `[[kernel]]`, after a blank line.
fn write_kernel(text: &mut String, kernel: &KernelProfile) -> fmt::Result {
    let durations = kernel.durations;
    writeln!(text, "\n[[kernel]]")?;
    writeln!(text, "name = {}", quoted(&kernel.name))?;
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
    writeln!(text, "class_rule = \"{}\"", kernel.class_rule.word())
}

/// A TOML basic string.
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
