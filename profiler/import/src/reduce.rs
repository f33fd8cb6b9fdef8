//! From files to a profile: one entry for each kernel and shape. *Durations* come from the source
//! with the least disturbance: Nsight Systems before a trace of PyTorch before Nsight Compute,
//! which runs kernels one by one, at base clocks and with cold caches. Several files of that best
//! kind add up; the other files give durations only for kernels that the best kind lacks. *Ratios*
//! come from Nsight Compute, for any of its launches.
//!
//! Files are joined by kernel: the same mangled name, or the same name, or the same base name, and
//! the same grid and block. A base name that fits two kernels of that shape is not joined. Kernels
//! that did not join are reported. Median and p95 leave out *outliers*: launches longer than
//! [`OUTLIER_FACTOR`] times the median of a kernel with at least [`OUTLIER_LAUNCHES_MIN`] launches.
//! Usual is a kernel's first launch, which loads its code. Count and sum have them.

use profiler::Profile;
use profiler::limits::SM_NEEDED_MAX;
use profiler::profile::{Measured, Requests};

use crate::detect::Format;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::source::Source;

mod choose;
mod group;
mod kernels;
mod requests;

/// The duration of an outlier, in medians.
pub const OUTLIER_FACTOR: u64 = 5;

/// The least number of a kernel's launches for outliers.
pub const OUTLIER_LAUNCHES_MIN: usize = 5;

const DURATIONS_OF_NCU: &str = "durations are those of Nsight Compute, which runs kernels one by one, at base clocks and \
     with cold caches; for production durations, import an export of Nsight Systems too";

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The measured model of the device table, where files have several GPUs or do not name it.
    pub device: Option<String>,
    /// The range that holds a request's launches; a final `*` makes a prefix. `None`: gaps.
    pub request_range: Option<String>,
}

/// The profile of the measurements in `sources`.
/// # Errors
/// [`Error::SeveralGpus`], [`Error::OtherGpu`], [`Error::UnknownDevice`].
pub fn reduce(sources: &[Source], options: &Options) -> Result<Profile, Error> {
    let choice = choose::choose(sources, options.device.as_deref())?;
    let mut notices = choice.notices.clone();
    for source in sources {
        for notice in &source.notices {
            notices.push(format!("{}: {notice}", source.label));
        }
    }
    let grouped = group::group(sources, &choice, &mut notices);
    let is_of_ncu = |source: &Source| matches!(source.format, Format::NcuCsv | Format::NcuReport);
    if sources.iter().all(is_of_ncu) {
        notices.push(DURATIONS_OF_NCU.to_owned());
    }
    let mut kernels = Vec::new();
    let mut entries: Vec<Option<u32>> = Vec::new();
    for group in &grouped.groups {
        let entry = kernels::profile_of(group, &choice);
        entries.push(entry.is_some().then_some(kernels.len() as u32));
        kernels.extend(entry);
    }
    let requests = find_requests(sources, &choice, &grouped, &entries, options)?;
    Ok(Profile {
        gpu: choice.name.clone(),
        sources: sources.iter().map(|source| source.label.clone()).collect(),
        notices,
        measured: measured(&choice.gpu),
        requests,
        kernels,
    })
}

fn find_requests(
    sources: &[Source],
    choice: &choose::Choice,
    grouped: &group::Grouped<'_>,
    entries: &[Option<u32>],
    options: &Options,
) -> Result<Option<Requests>, Error> {
    let mut missing = None;
    for &(index, ref places) in &grouped.places {
        let Some(source) = sources.get(index) else {
            continue;
        };
        let launches = source.launches.iter().enumerate();
        let launches: Vec<_> = launches
            .filter(|(_, launch)| choice.takes(index, launch))
            .filter_map(|(at, launch)| {
                let place = places.get(launch.kernel as usize).copied().flatten()?;
                let kernel = entries.get(place).copied().flatten()?;
                Some((at, requests::Timed::of(launch, kernel)?))
            })
            .collect();
        if launches.is_empty() {
            continue;
        }
        match requests::requests(source, launches, options.request_range.as_deref()) {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(error) => missing = missing.or(Some(error)),
        }
    }
    match (missing, &options.request_range) {
        (Some(error), _) => Err(error),
        (None, Some(asked)) => Err(Error::NoSuchRange {
            asked: asked.clone(),
            label: "the files".to_owned(),
            names: Vec::new(),
        }),
        (None, None) => Ok(None),
    }
}

fn measured(gpu: &Gpu) -> Option<Measured> {
    let in_units = |value: Option<u64>, unit: u64| {
        let rounded = value?.saturating_add(unit / 2) / unit;
        u32::try_from(rounded).ok().filter(|&value| value > 0)
    };
    let measured = Measured {
        sms: gpu.sms.filter(|sms| (1..=SM_NEEDED_MAX).contains(sms)),
        compute_capability: gpu.compute_capability,
        clock_mhz: in_units(gpu.clock_hz, 1_000_000),
        bandwidth_gb_s: in_units(gpu.bandwidth_bytes_per_s, 1_000_000_000),
    };
    (measured != Measured::default()).then_some(measured)
}
