//! Traces: what a job launches, in order. A trace is a table of kernels and a list of launches,
//! each an index into the table. It is made from an Orion file ([`Trace::from_orion`]) or read from
//! our own format, which is line-based for version control. (The `kernel` line is broken here.)
//! ```text
//! pillion-trace 1
//! device V100-SXM2-16GB
//! kernel class=compute grid=98,1,1 block=512,1,1 shared_bytes=65536 registers=64 sm_needed=98
//!     block_ns=50240 duration_ns=100480 compute_demand=0.89 bandwidth_demand=0.2
//!     source="Conv" name="Conv#c98@100000"
//! launch 0
//! launch 0 x3
//! ```
//! The first line is the format and its version, the second the measured device. Every `kernel`
//! line has every key, once; the keys may come in any order. Kernels are numbered from 0 in order
//! of their lines. `launch I` launches kernel I once, `launch I xN` N times in a row; it may name
//! only kernels on lines above it. Blank lines and lines that start with `#` are ignored. The
//! *canonical* form, which [`Trace::write`] writes, is the one above: no comments, keys in this
//! order, all kernels before all launches, runs as long as possible.
//!
//! *Identity*: one name in Orion's rows stands for very different launches. One row is therefore
//! one launch and its kernel is (name, SM need, class, duration bin), where the bin is the duration
//! rounded to two significant digits. All launches of one kernel last the mean of its members, so
//! the trace lasts as long as the file states.

use std::collections::HashMap;
use std::path::Path;

use crate::ResourceClass;
use crate::error::Error;
use crate::orion;
use crate::shape::{ORION_DEVICE, shape_for};
use crate::text::{self, Format, looks_like};

mod parse;
mod write;

/// The word that opens a file of our trace format.
pub const FORMAT: &str = "pillion-trace";

/// The version of the trace format that is read and written.
pub const VERSION: u32 = 1;

const ACCEPTED: &str = "a Pillion trace (first line `pillion-trace 1`) or an Orion kernel file \
                        (first line `Name,Profile,Memory_footprint,SM_usage,Duration`)";

/// What a job launches, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Name of the measured device, as in the device table.
    pub device: String,
    /// The distinct kernels; in a trace from an Orion file in order of first launch.
    pub kernels: Vec<TraceKernel>,
    /// The launches in order, each an index into `kernels`. A trace that was read has 1 to
    /// [`LAUNCHES_MAX`](crate::limits::LAUNCHES_MAX) launches, and every index is in range.
    pub launches: Vec<u32>,
}

/// A kernel of a trace: its launch parameters and its behaviour.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceKernel {
    /// Its name at launch; unique in the trace.
    pub name: String,
    /// Its name where it was measured; not unique.
    pub source_name: String,
    /// Its resource class.
    pub class: ResourceClass,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// SMs that run all its blocks at once; not capped at the device's.
    pub sm_needed: u32,
    /// Time of one block alone on its SM, ns.
    pub block_ns: u64,
    /// Time of one launch alone on the device, ns.
    pub duration_ns: u64,
    /// Share of the device's compute throughput it uses on all SMs it needs, 0 to 1.
    pub compute_demand: f32,
    /// Share of the device's memory bandwidth it uses on all SMs it needs, 0 to 1.
    pub bandwidth_demand: f32,
}

impl Trace {
    /// Reads the trace at `path`: a Pillion trace or an Orion kernel file, recognised by content.
    /// # Errors
    /// Those of [`text::read_text`] and [`Trace::parse`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&text::read_text(path)?, path)
    }

    /// The trace in `text`, of either format. `path` is for messages.
    /// # Errors
    /// [`Error::UnknownFormat`], or the first error, with its place.
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        match Format::detect(text) {
            Some(Format::Trace) => parse::parse(text, path),
            Some(Format::Orion) => Ok(Self::from_orion(&orion::parse(text, path)?)),
            Some(Format::Profile) | None => Err(Error::UnknownFormat {
                path: path.to_owned(),
                found: looks_like(text),
                accepted: ACCEPTED,
            }),
        }
    }

    /// The trace that launches `entries` in order on Orion's device, shaped by [`shape_for`].
    #[must_use]
    pub fn from_orion(entries: &[orion::Entry]) -> Self {
        let mut indices: HashMap<Identity<'_>, u32> = HashMap::new();
        let mut members: Vec<Members<'_>> = Vec::new();
        let mut launches = Vec::with_capacity(entries.len());
        for entry in entries {
            let identity = Identity::of(entry);
            // A file has at most LAUNCHES_MAX rows; slices made by hand saturate, harmlessly.
            let next = u32::try_from(members.len()).unwrap_or(u32::MAX);
            let index = *indices.entry(identity).or_insert(next);
            if index == next {
                members.push(Members {
                    identity,
                    duration_ns_sum: 0,
                    count: 0,
                });
            }
            if let Some(members) = members.get_mut(index as usize) {
                members.duration_ns_sum += u128::from(entry.duration_ns);
                members.count += 1;
            }
            launches.push(index);
        }
        let kernels = members.iter().map(Members::kernel).collect();
        Self {
            device: ORION_DEVICE.to_owned(),
            kernels,
            launches,
        }
    }

    /// The canonical form: equal traces give equal text, and reading it gives an equal trace.
    #[must_use]
    pub fn write(&self) -> String {
        write::write(self)
    }

    /// The kernels in order of launch, one for each launch.
    pub fn launched(&self) -> impl Iterator<Item = &TraceKernel> {
        self.launches
            .iter()
            .filter_map(|&index| self.kernels.get(index as usize))
    }

    /// The sum of the launches' solo durations, ns.
    #[must_use]
    pub fn duration_ns_sum(&self) -> u64 {
        self.launched()
            .fold(0, |sum: u64, kernel| sum.saturating_add(kernel.duration_ns))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity<'a> {
    name: &'a str,
    class: ResourceClass,
    sm_needed: u32,
    bin_ns: u64,
}

impl<'a> Identity<'a> {
    fn of(entry: &'a orion::Entry) -> Self {
        Self {
            name: &entry.name,
            class: entry.class,
            sm_needed: entry.sm_needed,
            bin_ns: two_digits(entry.duration_ns),
        }
    }
}

struct Members<'a> {
    identity: Identity<'a>,
    duration_ns_sum: u128,
    count: u64,
}

impl Members<'_> {
    /// Their kernel. Its name has a fixed form after the last `#`: it differs as identities do.
    fn kernel(&self) -> TraceKernel {
        let Identity {
            name,
            class,
            sm_needed,
            bin_ns,
        } = self.identity;
        let count = u128::from(self.count.max(1));
        let mean_ns = (self.duration_ns_sum + count / 2) / count;
        let duration_ns = u64::try_from(mean_ns).unwrap_or(u64::MAX);
        let shape = shape_for(class, sm_needed, duration_ns);
        TraceKernel {
            name: format!("{name}#{}{sm_needed}@{bin_ns}", class.letter()),
            source_name: name.to_owned(),
            class,
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            registers: shape.registers,
            sm_needed,
            block_ns: shape.block_ns,
            duration_ns,
            compute_demand: shape.compute_demand,
            bandwidth_demand: shape.bandwidth_demand,
        }
    }
}

fn two_digits(value: u64) -> u64 {
    let mut unit: u64 = 1;
    while value / unit >= 100 {
        unit *= 10;
    }
    (value.saturating_add(unit / 2) / unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests;
