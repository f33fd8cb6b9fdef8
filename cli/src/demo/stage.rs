//! State that all phases share: the located parts, traces, calibrations, profiles, and the one
//! core.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use profiler::profile::{ClassRule, Durations, Evidence, KernelProfile};
use profiler::{Profile, ResourceClass, Trace};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use softgpu::Device;
use tempfile::TempDir;

use crate::artifacts;
use crate::demo::calibration;
use crate::demo::phase::Phase;
use crate::demo::record::{Launch, launches_of};
use crate::demo::venue::Venue;

#[derive(Debug)]
pub(crate) struct Stage {
    folder: TempDir,
    pub(crate) venue: Venue,
    pub(crate) phases: Vec<Phase>,
    /// Time in which requests arrive in a phase, on its clock.
    pub(crate) seconds: f64,
    pub(crate) hp: Job,
    pub(crate) be: Job,
    /// Only on the software GPU.
    pub(crate) software: Option<Software>,
    pub(crate) daemon: PathBuf,
    pub(crate) replay: PathBuf,
    pub(crate) library: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Software {
    pub(crate) device: Device,
    pub(crate) server: PathBuf,
    /// Contains the stand-in `libcuda.so.1`.
    pub(crate) driver_folder: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    /// The replay's arguments: a trace file, or the folder of a calibrated trace.
    pub(crate) trace: [std::ffi::OsString; 2],
    pub(crate) calibration: Option<Value>,
    /// The launches of one request.
    pub(crate) launches: Vec<Launch>,
    pub(crate) profile: PathBuf,
}

impl Stage {
    /// Locates the parts and writes the files. For the software GPU, confines this process and its
    /// children to one core, where a hand-over of the clock costs 2 us instead of 70; on a GPU of
    /// this machine, calibrates the traces.
    pub(crate) fn set(
        venue: Venue,
        seconds: f64,
        hp: (String, Trace),
        be: (String, Trace),
    ) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("pillion-demo-")
            .tempdir()
            .context("cannot create a temporary folder")?;
        let replay = artifacts::find("pillion-replay")?;
        let job = |key, job| Job::write(folder.path(), key, job, &venue, &replay);
        let software = match &venue {
            Venue::Software(device) => Some(Software::find(device, folder.path())?),
            Venue::Machine(_) => None,
        };
        let stage = Self {
            phases: venue.phases(),
            seconds,
            hp: job("hp", hp)?,
            be: job("be", be)?,
            software,
            daemon: artifacts::find("pilliond")?,
            library: artifacts::find(artifacts::LIBRARY)?,
            replay,
            venue,
            folder,
        };
        if stage.software.is_some() {
            confine_to_one_core()?;
        }
        Ok(stage)
    }

    /// The phases to compare, without Pillion and with it: under MPS where there is MPS.
    pub(crate) fn pair(&self) -> (Phase, Phase) {
        if self.phases.contains(&Phase::Mps) {
            (Phase::Mps, Phase::MpsPillion)
        } else {
            (Phase::Timeslice, Phase::TimeslicePillion)
        }
    }

    /// The high-priority job's launches first.
    pub(crate) fn launches(&self) -> [&[Launch]; 2] {
        [&self.hp.launches, &self.be.launches]
    }

    pub(crate) fn phase_folder(&self, key: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join(key);
        std::fs::create_dir(&folder).with_context(|| format!("{}", folder.display()))?;
        Ok(folder)
    }
}

impl Software {
    fn find(device: &Device, folder: &Path) -> Result<Self> {
        let driver_folder = folder.join("driver");
        std::fs::create_dir(&driver_folder)?;
        let driver = artifacts::find("libcuda.so")?;
        for name in ["libcuda.so", "libcuda.so.1"] {
            symlink(&driver, driver_folder.join(name))?;
        }
        Ok(Self {
            device: device.clone(),
            server: artifacts::find("softgpu-server")?,
            driver_folder,
        })
    }
}

impl Job {
    fn write(
        folder: &Path,
        key: &str,
        (name, trace): (String, Trace),
        venue: &Venue,
        replay: &Path,
    ) -> Result<Self> {
        let path = |suffix: &str| folder.join(format!("{key}.{suffix}"));
        std::fs::write(path("trace"), trace.write())?;
        let (trace, argument, calibration) = match venue {
            Venue::Software(_) => (trace, ["--trace".into(), path("trace").into()], None),
            Venue::Machine(machine) => {
                let calibrated = path("calibrated");
                let told = calibration::run(replay, machine, &path("trace"), &calibrated)
                    .with_context(|| format!("cannot calibrate {name}"))?;
                let trace = Trace::read(&calibrated.join("trace"))?;
                (
                    trace,
                    ["--calibrated".into(), calibrated.into()],
                    Some(told),
                )
            }
        };
        let check = venue.machine().map_or("saxpy", |_| "pillion_check");
        let gpu = match venue {
            Venue::Software(device) => &device.name,
            Venue::Machine(machine) => &machine.gpu.name,
        };
        let profile = profile_of(&trace, check, gpu);
        std::fs::write(path("profile.toml"), profile.write())?;
        Ok(Self {
            name,
            trace: argument,
            calibration,
            launches: launches_of(&trace),
            profile: path("profile.toml"),
        })
    }
}

/// The kernels of the trace, and the replay's check kernel. The durations hold on the demo's GPU,
/// `gpu`, wherever the trace was measured: a GPU of this machine is calibrated to the trace, and
/// the software GPU takes the trace's block times.
fn profile_of(trace: &Trace, check: &str, gpu: &str) -> Profile {
    let mut profile = Profile::from_trace(trace);
    gpu.clone_into(&mut profile.gpu);
    profile.kernels.push(check_kernel(trace, check));
    profile
}

/// A replay's check for lost launches: a saxpy of one block, too short to be bound by anything. It
/// has the class of most of the trace's launches, so that a trace of one class makes a job of one
/// class.
fn check_kernel(trace: &Trace, name: &str) -> KernelProfile {
    /// An empty kernel takes a microsecond (softgpu's built-in kernels), this one little more.
    const DURATION_NS: u64 = 1_004;
    let launches_of = |class: ResourceClass| {
        let classes = trace.launches.iter();
        let classes = classes.filter_map(|&index| Some(trace.kernels.get(index as usize)?.class));
        classes.filter(|&launched| launched == class).count()
    };
    let class = ResourceClass::ALL
        .into_iter()
        .max_by_key(|&class| launches_of(class));
    KernelProfile {
        name: name.to_owned(),
        mangled: None,
        grid: [1, 1, 1],
        block: [256, 1, 1],
        shared_bytes: 0,
        count: 1,
        durations: Durations {
            sum_ns: DURATION_NS,
            median_ns: DURATION_NS,
            p95_ns: DURATION_NS,
        },
        registers: 32,
        sm_needed: 1,
        class: class.unwrap_or(ResourceClass::Unknown),
        class_rule: ClassRule::Given,
        evidence: Evidence::default(),
        operator: None,
    }
}

fn confine_to_one_core() -> Result<()> {
    let allowed = sched_getaffinity(None).context("sched_getaffinity")?;
    let core = (0..CpuSet::MAX_CPU)
        .find(|&core| allowed.is_set(core))
        .unwrap_or(0);
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).context("sched_setaffinity")
}
