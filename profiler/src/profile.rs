//! Profiles: what was measured about kernels. A TOML file states, for each kernel and launch shape,
//! launches, durations (quantiles, not only a mean), SM need and resource class:
//! ```toml
//! format = "pillion-profile"
//! version = 2
//! gpu = "V100-SXM2-16GB"
//! sources = ["resnet50_4_fwd"]
//!
//! [[kernel]]
//! name = "Conv#c98@100000"
//! grid = [98, 1, 1]
//! block = [512, 1, 1]
//! shared_bytes = 65536
//! count = 1
//! duration_ns = { sum = 100480, median = 100480, p95 = 100480 }
//! registers = 64
//! sm_needed = 98
//! class = "compute"
//! class_rule = "given"
//! ```
//! These keys are required. Version 2 may add an import's findings. In the kernel: the mangled
//! name, the evidence for class and SM need ([`Evidence`]), and the library call that launched it
//! ([`Operator`]). In the file: the GPU ([`Measured`]), cautions about the profile (`notices`), and
//! the job's requests ([`Requests`]). A value without a measurement is left out, not written as 0.
//! Version 1, without these, is read too.
//!
//! Version 3 may have classes that were estimated by the kernel's name ([`ClassRule::Name`]), with
//! their family and confidence ([`Evidence`]). The writer uses version 2 unless a kernel has such a
//! class, so that a program that reads up to version 2 reads every profile without one.
//!
//! A kernel's key is (name, mangled, grid, block, shared_bytes, operator), of which there is one
//! `[[kernel]]` each, in order of first launch. A grid of `[0, 0, 0]` means that the source did not
//! state the shape: such a kernel is found by name only. [`Profile::write`] always writes this
//! layout, so that equal profiles are equal files and a version-control system shows changes.
//! Comments are ignored, and lost when the file is written again.

use std::path::Path;

use crate::ResourceClass;
use crate::error::Error;
use crate::orion;
use crate::quantile::{MEDIAN_PER_MILLE, P95_PER_MILLE, nearest_rank};
use crate::text::{self, Format, looks_like};
use crate::trace::Trace;

mod evidence;
mod operator;
mod parse;
mod requests;
mod write;

pub use evidence::{Evidence, Measured, Percent, Roofline};
pub use operator::Operator;
pub use requests::{RequestRule, Requests};

/// The value of `format` in a profile.
pub const FORMAT: &str = "pillion-profile";

/// The newest version of the profile format; it and all earlier ones are read.
pub const VERSION: u32 = 3;

/// The version written where no class was estimated by name.
const VERSION_WITHOUT_NAMES: u32 = 2;

const ACCEPTED: &str = "a Pillion profile (TOML with `format = \"pillion-profile\"`), a Pillion \
                        trace (first line `pillion-trace 1`) or an Orion kernel file (first line \
                        `Name,Profile,Memory_footprint,SM_usage,Duration`)";

/// What was measured about kernels on one kind of GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The measured GPU's name, as in the device table.
    pub gpu: String,
    /// Its origins, for display: names of files or programs.
    pub sources: Vec<String>,
    /// Cautions about its reliability, a sentence each.
    pub notices: Vec<String>,
    /// The GPU as the sources described it; `None` where none did.
    pub measured: Option<Measured>,
    /// The requests of the job; `None` if none were distinguished.
    pub requests: Option<Requests>,
    /// In order of first launch. When read, no two with the same key (see the module's text).
    pub kernels: Vec<KernelProfile>,
}

/// What was measured about one kernel in one launch shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelProfile {
    /// The driver's name, or, where `mangled` is that, the display name.
    pub name: String,
    /// The driver's name, where known and different.
    pub mangled: Option<String>,
    /// Blocks in x, y, z; `[0, 0, 0]` if the source did not state the shape.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z; `[0, 0, 0]` if the source did not state the shape.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block as requested at launch, bytes.
    pub shared_bytes: u32,
    /// Launches measured, at least 1.
    pub count: u64,
    /// Their durations.
    pub durations: Durations,
    /// Registers of a thread; 0 if the source did not state them.
    pub registers: u32,
    /// SMs that run all its blocks at once, at least 1; not capped at the GPU's.
    pub sm_needed: u32,
    /// Its resource class.
    pub class: ResourceClass,
    /// The rule behind the class.
    pub class_rule: ClassRule,
    /// The evidence for SM need and class.
    pub evidence: Evidence,
    /// The operator in which it was launched, where the source states it.
    pub operator: Option<Operator>,
}

/// The durations of a kernel's launches. Quantiles are nearest-rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durations {
    /// The sum of all launches, ns.
    pub sum_ns: u64,
    /// The median, ns.
    pub median_ns: u64,
    /// The 95th percentile, ns: the expected duration at the gate.
    pub p95_ns: u64,
}

impl Durations {
    /// The durations of the launches in `samples_ns`, which are sorted in place; `None` for none.
    #[must_use]
    pub fn of_samples(samples_ns: &mut [u64]) -> Option<Self> {
        samples_ns.sort_unstable();
        Some(Self {
            sum_ns: samples_ns
                .iter()
                .fold(0, |sum, &sample| sum.saturating_add(sample)),
            median_ns: nearest_rank(samples_ns, MEDIAN_PER_MILLE)?,
            p95_ns: nearest_rank(samples_ns, P95_PER_MILLE)?,
        })
    }
}

/// The rule behind a kernel's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRule {
    /// By its place under the roofline.
    Roofline,
    /// By whether compute or memory throughput reached 60 %.
    Throughput,
    /// By the rule of the vendor's own tool, from its two throughputs.
    Vendor,
    /// From the shapes of its tensors; nothing was measured.
    Estimated,
    /// Stated by the source.
    Given,
    /// By measurements on another GPU, scaled to the peaks of this one.
    Scaled,
    /// Undecided.
    Unknown,
    /// By its name's family; nothing was measured.
    Name,
}

impl ClassRule {
    /// All rules, in the order in which messages list them; the last is not in versions 1 and 2.
    pub const ALL: [Self; 8] = [
        Self::Roofline,
        Self::Throughput,
        Self::Vendor,
        Self::Estimated,
        Self::Given,
        Self::Scaled,
        Self::Unknown,
        Self::Name,
    ];

    fn of_version(version: u64) -> &'static [Self] {
        match Self::ALL.as_slice() {
            [until_2 @ .., _] if version < 3 => until_2,
            all => all,
        }
    }

    /// The word for it in files.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Roofline => "roofline",
            Self::Throughput => "throughput",
            Self::Vendor => "vendor",
            Self::Estimated => "estimated",
            Self::Given => "given",
            Self::Scaled => "scaled",
            Self::Unknown => "unknown",
            Self::Name => "name",
        }
    }
}

impl Profile {
    /// Reads the Pillion profile at `path`.
    /// # Errors
    /// Those of [`text::read_text`] and [`Profile::parse`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&text::read_text(path)?, path)
    }

    /// The Pillion profile in `text`. `path` is for messages.
    /// # Errors
    /// The first error, with its place.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        parse::parse(text, path)
    }

    /// Reads knowledge about kernels from the file at `path`, in the format of its content: a
    /// Pillion profile, a Pillion trace or an Orion kernel file, both with durations.
    /// # Errors
    /// Those of [`text::read_text`] and of the readers, and [`Error::UnknownFormat`].
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = text::read_text(path)?;
        let trace = match Format::detect(&text) {
            Some(Format::Profile) => return Self::parse(&text, path),
            Some(Format::Trace) => Trace::parse(&text, path)?,
            Some(Format::Orion) => Trace::from_orion(&orion::parse(&text, path)?),
            None => {
                let (path, found) = (path.to_owned(), looks_like(&text));
                return Err(Error::UnknownFormat {
                    path,
                    found,
                    accepted: ACCEPTED,
                });
            }
        };
        let mut profile = Self::from_trace(&trace);
        profile.sources = path
            .file_name()
            .map(|name| name.to_string_lossy().trim().replace(char::is_control, "?"))
            .filter(|name| text::is_name(name))
            .into_iter()
            .collect();
        Ok(profile)
    }

    /// The knowledge in a trace. Omits kernels that are never launched. Names no sources.
    #[must_use]
    pub fn from_trace(trace: &Trace) -> Self {
        let mut counts = vec![0u64; trace.kernels.len()];
        let mut order = Vec::new();
        for &index in &trace.launches {
            let Some(count) = counts.get_mut(index as usize) else {
                continue;
            };
            if *count == 0 {
                order.push(index as usize);
            }
            *count += 1;
        }
        let known = order
            .into_iter()
            .filter_map(|index| Some((trace.kernels.get(index)?, counts.get(index).copied()?)));
        let kernels = known.map(|(kernel, count)| KernelProfile {
            name: kernel.name.clone(),
            mangled: None,
            grid: kernel.grid,
            block: kernel.block,
            shared_bytes: kernel.shared_bytes,
            count,
            durations: Durations {
                sum_ns: kernel.duration_ns.saturating_mul(count),
                median_ns: kernel.duration_ns,
                p95_ns: kernel.duration_ns,
            },
            registers: kernel.registers,
            sm_needed: kernel.sm_needed,
            class: kernel.class,
            class_rule: ClassRule::Given,
            evidence: Evidence::default(),
            operator: None,
        });
        Self {
            gpu: trace.device.clone(),
            kernels: kernels.collect(),
            ..Self::default()
        }
    }

    /// The profile as text; equal profiles give equal text, and reading it gives an equal profile.
    #[must_use]
    pub fn write(&self) -> String {
        write::write(self)
    }
}

#[cfg(test)]
mod tests;
