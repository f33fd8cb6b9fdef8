//! Converts the records to a profile, with the caveats for its user.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;

use import::reduce::{OUTLIER_FACTOR, OUTLIER_LAUNCHES_MIN};
use profiler::base_name::base;
use profiler::limits::{DURATION_NS_MAX, REGISTERS_MAX, SM_NEEDED_MAX};
use profiler::profile::{ClassRule, Durations, Evidence};
use profiler::quantile::{MEDIAN_PER_MILLE, P95_PER_MILLE};
use profiler::{KernelProfile, Profile, ResourceClass, is_name, names};
use protocol::recording::{Kind, Why};

use super::cupti;
use super::merge::{Kernel, Merged};
use crate::profile::output::counted;

pub(super) struct Recorded {
    pub(super) profile: Profile,
    /// Launches that were timed individually.
    pub(super) timed: u64,
    /// Of these, by CUPTI.
    pub(super) timed_by_cupti: u64,
    pub(super) left_out: LeftOut,
}

/// Kernels without a duration.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pub(super) kernels: u64,
    pub(super) launches: u64,
    /// Each with its launches.
    names: Vec<(u64, String)>,
}

/// The profile's source: the program and an interpreter's script, without folders and other
/// arguments, which may be private.
pub(super) fn source_of(command: &[OsString]) -> String {
    let name = |path: &OsString| {
        let name = Path::new(path).file_name().unwrap_or(path);
        name.to_string_lossy().replace(char::is_control, "?")
    };
    let program = command.first().map(name).unwrap_or_default();
    let script = command
        .get(1)
        .filter(|path| Path::new(path).is_file())
        .map(name);
    match script {
        Some(script) => format!("recorded: {program} {script}"),
        None => format!("recorded: {program}"),
    }
}

/// The profile of the GPU with most launches.
pub(super) fn profile(merged: &Merged, source: &str) -> Recorded {
    let gpu = most_used(merged);
    let is_its = |kernel: &&Kernel| kernel.key.gpu == gpu;
    let mut profile = Profile {
        gpu: gpu.clone(),
        sources: vec![source.to_owned()],
        measured: merged.gpus.get(&gpu).cloned(),
        ..Profile::default()
    };
    let (mut timed, mut timed_by_cupti) = (0_u64, 0_u64);
    let mut left_out = LeftOut::default();
    let mut names = HashSet::new();
    for kernel in merged.kernels.iter().filter(is_its) {
        let count = kernel.launches.saturating_add(kernel.graph_launches);
        if count == 0 {
            continue;
        }
        match kernel_profile(kernel, count) {
            Some(mut entry) => {
                if kernel.kind > Kind::Share {
                    timed = timed.saturating_add(kernel.measured);
                }
                if kernel.kind == Kind::Cupti {
                    timed_by_cupti = timed_by_cupti.saturating_add(kernel.measured);
                }
                make_unique(&mut entry, &mut names);
                profile.kernels.push(entry);
            }
            None => {
                left_out.kernels += 1;
                left_out.launches = left_out.launches.saturating_add(count);
                left_out.names.push((count, shown_name(&kernel.key.name)));
            }
        }
    }
    profile.notices = notices(merged, &gpu, [timed, timed_by_cupti], &left_out);
    Recorded {
        profile,
        timed,
        timed_by_cupti,
        left_out,
    }
}

fn most_used(merged: &Merged) -> String {
    let launches = |gpu: &str| -> u64 {
        let its = merged.kernels.iter().filter(|kernel| kernel.key.gpu == gpu);
        its.map(|kernel| kernel.launches + kernel.graph_launches)
            .sum()
    };
    let mut gpus: Vec<&str> = merged
        .kernels
        .iter()
        .map(|kernel| &*kernel.key.gpu)
        .collect();
    gpus.sort_unstable();
    gpus.dedup();
    let most = gpus.into_iter().max_by_key(|gpu| launches(gpu));
    most.unwrap_or_default().to_owned()
}

impl LeftOut {
    /// Names the kernels with most launches.
    fn named(&self) -> String {
        let mut names = self.names.clone();
        names.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let mut seen = HashSet::new();
        names.retain(|(_, name)| seen.insert(name.clone()));
        let more = names.len().saturating_sub(NAMED_MAX);
        let named = names.iter().take(NAMED_MAX).map(|(_, name)| &**name);
        let named = named.collect::<Vec<_>>().join(", ");
        match more {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    }
}

/// The demangled name without arguments.
fn shown_name(driver_name: &str) -> String {
    let shown = names::demangled(driver_name);
    let shown = shown.as_deref().unwrap_or(driver_name);
    base(shown).replace(char::is_control, "?")
}

/// None without a duration, or with a name that a profile does not allow.
fn kernel_profile(kernel: &Kernel, count: u64) -> Option<KernelProfile> {
    let (durations, outliers) = durations(kernel, count)?;
    let driver_name = &kernel.key.name;
    let shown = names::demangled(driver_name).filter(|name| is_name(name));
    let mangled = shown.is_some().then(|| driver_name.clone());
    let name = shown.unwrap_or_else(|| driver_name.clone());
    if !is_name(&name) || !is_name(driver_name) {
        return None;
    }
    let known = |value: u32| Some(value).filter(|&value| value > 0);
    Some(KernelProfile {
        name,
        mangled,
        grid: kernel.key.grid,
        block: kernel.key.block,
        shared_bytes: kernel.key.shared_bytes,
        count,
        durations,
        registers: kernel.registers.min(REGISTERS_MAX),
        sm_needed: kernel.sm_needed.clamp(1, SM_NEEDED_MAX),
        class: ResourceClass::Unknown,
        class_rule: ClassRule::Unknown,
        evidence: Evidence {
            static_shared_bytes: Some(kernel.static_shared_bytes),
            blocks_per_sm: known(kernel.blocks_per_sm),
            outliers: Some(outliers).filter(|&outliers| outliers > 0),
            ..Evidence::default()
        },
        operator: kernel.key.operator.clone(),
    })
}

/// Durations of all launches, extrapolated from the measured ones, and the number of outliers among
/// these. The sum assumes the mean for all launches.
fn durations(kernel: &Kernel, count: u64) -> Option<(Durations, u64)> {
    let ns = |value: f32| (value.round() as u64).clamp(1, DURATION_NS_MAX);
    let middle = kernel.quantile_ns(MEDIAN_PER_MILLE, f32::MAX)?;
    let most = if kernel.samples.len() >= OUTLIER_LAUNCHES_MIN {
        middle.max(1.0) * OUTLIER_FACTOR as f32
    } else {
        f32::MAX
    };
    let median_ns = ns(kernel.quantile_ns(MEDIAN_PER_MILLE, most)?);
    let p95_ns = ns(kernel.quantile_ns(P95_PER_MILLE, most)?).max(median_ns);
    let outliers: f64 = kernel
        .samples
        .iter()
        .filter(|(ns, _)| *ns > most)
        .map(|(_, weight)| weight)
        .sum();
    let mean_ns = kernel.measured_ns as f64 / kernel.measured.max(1) as f64;
    let sum_ns = (mean_ns * count as f64).round().min(i64::MAX as f64) as u64;
    let durations = Durations {
        sum_ns: sum_ns.max(p95_ns),
        median_ns,
        p95_ns,
    };
    Some((durations, (outliers.round() as u64).min(count - 1)))
}

type Names = HashSet<(String, [u32; 3], [u32; 3], u32, Option<String>)>;

/// Of kernels with the same demangled name, shape and operator all but the first keep the driver's
/// name.
fn make_unique(entry: &mut KernelProfile, names: &mut Names) {
    let key = |entry: &KernelProfile| {
        let operator = entry.operator.as_ref().map(|operator| operator.line());
        let shape = (entry.grid, entry.block, entry.shared_bytes);
        (entry.name.clone(), shape.0, shape.1, shape.2, operator)
    };
    if !names.insert(key(entry))
        && let Some(mangled) = entry.mangled.take()
    {
        entry.name = mangled;
        names.insert(key(entry));
    }
}

/// The caveats, a sentence each.
fn notices(merged: &Merged, gpu: &str, timed: [u64; 2], left_out: &LeftOut) -> Vec<String> {
    let of_gpu = || merged.kernels.iter().filter(|kernel| kernel.key.gpu == gpu);
    let launches: u64 = of_gpu().map(|kernel| kernel.launches).sum();
    let in_graphs: u64 = of_gpu().map(|kernel| kernel.graph_launches).sum();
    let mut notices = vec![recorded_by(timed, launches, in_graphs)];
    notices.extend(cupti::sentences(merged));
    for (kind, text) in KINDS {
        let count = of_gpu().filter(|kernel| kernel.kind == kind).count();
        if count > 0 {
            notices.push(format!("{} {text}", kernels(count as u64)));
        }
    }
    if left_out.kernels > 0 {
        notices.push(format!(
            "{} with {} were never timed and are left out: {}",
            kernels(left_out.kernels),
            counted(left_out.launches, "launch", "launches"),
            left_out.named(),
        ));
    }
    for (why, text) in WHYS {
        let count = merged.count_of(why);
        if count > 0 {
            let launches = counted(count, "launch", "launches");
            notices.push(format!("not timed: {launches} {text}"));
        }
    }
    for (why, one, many, text) in LACKING {
        let count = merged.count_of(why);
        if count > 0 {
            notices.push(format!(
                "not in the profile: {} {text}",
                counted(count, one, many)
            ));
        }
    }
    notices.extend(circumstances(merged, gpu));
    notices
}

/// CUPTI also times launches in graphs.
fn recorded_by([timed, timed_by_cupti]: [u64; 2], launches: u64, in_graphs: u64) -> String {
    let by_events = timed - timed_by_cupti;
    let all = counted(launches + in_graphs, "launch", "launches");
    match (timed_by_cupti, by_events) {
        (0, _) => {
            let launches = counted(launches, "launch", "launches");
            format!(
                "recorded by events around {timed} of {launches}; the others are assumed to take as long"
            )
        }
        (_, 0) => {
            format!(
                "recorded by CUPTI, which timed {timed} of {all}; the others are assumed to take as long"
            )
        }
        _ => format!(
            "recorded by CUPTI, which timed {timed_by_cupti} of {all}, and by events around {by_events}; the others are assumed to take as long"
        ),
    }
}

fn circumstances(merged: &Merged, gpu: &str) -> Vec<String> {
    let mut notices = Vec::new();
    let at_once = "kernels that ran at the same time took longer than alone";
    if merged.count_of(Why::Streams) > 0 {
        notices.push(format!(
            "launches were on several streams of a device: {at_once}"
        ));
    }
    if merged.processes > 1 {
        let processes = merged.processes;
        notices.push(format!("{processes} processes launched kernels: {at_once}"));
    }
    if merged.is_beside_others || merged.count_of(Why::Gated) > 0 {
        let text = "another job used the GPU, and beside it kernels take longer than alone";
        notices.push(text.to_owned());
    }
    let all = merged.kernels.iter().map(|kernel| &*kernel.key.gpu);
    let mut others: Vec<&str> = all.filter(|other| *other != gpu).collect();
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        notices.push(format!(
            "launches on another model of GPU are left out: {}",
            others.join(", ")
        ));
    }
    notices
}

const NAMED_MAX: usize = 8;

fn kernels(count: u64) -> String {
    counted(count, "kernel and shape", "kernels and shapes")
}

/// Notes about unusual measurements.
const KINDS: [(Kind, &str); 2] = [
    (
        Kind::Share,
        "were measured only in CUDA graphs, or by CUPTI in several operators at once, and have a share of the time of these",
    ),
    (
        Kind::Idle,
        "were launched only on idle streams, where durations are a few us too long or too short",
    ),
];

/// Why launches were not timed.
const WHYS: [(Why, &str); 11] = [
    (Why::Capture, "beside a stream in capture"),
    (
        Why::Crowded,
        "in contexts with more streams than hardware queues",
    ),
    (
        Why::Deep,
        "behind so much work that the queue may have been full",
    ),
    (
        Why::Full,
        "while the events of as many launches as possible were pending",
    ),
    (
        Why::Programmatic,
        "that may overlap the work before them, or are on several devices",
    ),
    (
        Why::HighPriority,
        "of a high-priority client, in whose streams Pillion puts no events",
    ),
    (
        Why::NoEvent,
        "for which no event was available, or whose context ended",
    ),
    (Why::NoSlot, "on more streams than Pillion distinguishes"),
    (
        Why::Brief,
        "that took less time than their launch, on an idle stream",
    ),
    (Why::CuptiDropped, "for which CUPTI had no room"),
    (Why::CuptiUntimed, "whose CUPTI record has no times"),
];

/// Launches without an entry.
const LACKING: [(Why, &str, &str, &str); 4] = [
    (
        Why::NoRoom,
        "launch",
        "launches",
        "of kernels that found no room in the record",
    ),
    (
        Why::UnknownGraphs,
        "launch",
        "launches",
        "of CUDA graphs with unknown kernels",
    ),
    (
        Why::Operators,
        "call",
        "calls",
        "of libraries whose launches Pillion does not see",
    ),
    (
        Why::CuptiUnknown,
        "record",
        "records",
        "of CUPTI about kernels whose launches were not seen, or that had another name",
    ),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::merge::tests::kernel;
    use super::*;

    #[test]
    fn what_is_made_is_a_profile_that_reads_back_equal() {
        let mut merged = Merged::default();
        let mangled = "_Z4gemmPKfS0_Pfiii";
        merged.add(kernel(
            mangled,
            Kind::Busy,
            &[100.0, 110.0, 90.0, 95.0, 105.0, 900.0],
        ));
        merged.add(kernel("plain", Kind::Share, &[7.0]));
        merged.add(kernel("never timed", Kind::None, &[]));
        let Recorded {
            profile,
            timed,
            left_out,
            ..
        } = profile(&merged, "recorded: job");
        assert_eq!((timed, left_out.kernels, left_out.launches), (6, 1, 10));
        let first = &profile.kernels[0];
        assert_eq!(
            first.name,
            "gemm(float const*, float const*, float*, int, int, int)"
        );
        assert_eq!(first.mangled.as_deref(), Some(mangled));
        let durations = first.durations;
        assert_eq!((durations.median_ns, durations.p95_ns), (100, 110));
        assert_eq!(durations.sum_ns, 2333, "the mean of all, ten times");
        assert_eq!(first.evidence.outliers, Some(1));
        let read = Profile::parse(&profile.write(), Path::new("x")).unwrap();
        assert_eq!(read, profile);
    }

    #[test]
    fn what_cupti_timed_is_said_apart_from_what_events_did() {
        let mut merged = Merged::default();
        merged.add(kernel("by cupti", Kind::Cupti, &[7.0, 8.0, 9.0]));
        merged.add(kernel("by events", Kind::Busy, &[7.0]));
        let recorded = profile(&merged, "recorded: job");
        assert_eq!((recorded.timed, recorded.timed_by_cupti), (4, 3));
        let notice = "recorded by CUPTI, which timed 3 of 20 launches, and by events around 1; the others are assumed to take as long";
        assert_eq!(recorded.profile.notices[0], notice);
    }

    #[test]
    fn kernels_that_people_know_by_one_name_keep_the_drivers() {
        let mut merged = Merged::default();
        // Two constructors of one class have one demangled name.
        for name in ["_ZN1AC1Ev", "_ZN1AC2Ev"] {
            merged.add(kernel(name, Kind::Busy, &[7.0]));
        }
        let profile = profile(&merged, "recorded: job").profile;
        assert_eq!(
            Profile::parse(&profile.write(), Path::new("x")).unwrap(),
            profile
        );
        assert_eq!(profile.kernels.len(), 2);
    }

    #[test]
    fn of_two_models_the_one_with_more_launches_is_taken_and_the_other_named() {
        let mut merged = Merged::default();
        merged.add(kernel("k", Kind::Busy, &[7.0]));
        let mut other = kernel("k", Kind::Busy, &[9.0]);
        (other.key.gpu, other.launches) = ("T4".to_owned(), 11);
        merged.add(other);
        for gpu in ["T4", "V100-SXM2-16GB"] {
            merged.gpus.insert(gpu.to_owned(), Default::default());
        }
        let profile = profile(&merged, "recorded: job").profile;
        assert_eq!((&*profile.gpu, profile.kernels.len()), ("T4", 1));
        let notice = "launches on another model of GPU are left out: V100-SXM2-16GB";
        assert!(
            profile.notices.iter().any(|text| text == notice),
            "{:?}",
            profile.notices
        );
    }

    #[test]
    fn a_source_is_a_program_and_its_script_without_what_may_be_private() {
        let command = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let words = command(&["/opt/tools/job", "--token", "secret"]);
        assert_eq!(source_of(&words), "recorded: job");
        let file = Path::new(file!())
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let script = format!("{}/src/profile/record/{file}", env!("CARGO_MANIFEST_DIR"));
        let words = command(&["python", &script, "secret"]);
        assert_eq!(source_of(&words), format!("recorded: python {file}"));
    }
}
