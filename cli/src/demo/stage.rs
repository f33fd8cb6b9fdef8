//! What all phases share: the parts found once, the traces and profiles written once, one core.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use profiler::profile::{ClassRule, Durations, Evidence, KernelProfile};
use profiler::{Profile, ResourceClass, Trace};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use softgpu::Device;
use tempfile::TempDir;

use crate::artifacts;
use crate::demo::record::{Launch, launches_of};

/// A folder with everything a phase needs; removed when dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    folder: TempDir,
    /// The software GPU's model.
    pub(crate) device: Device,
    /// The two jobs.
    pub(crate) hp: Job,
    /// See `hp`.
    pub(crate) be: Job,
    /// The device server.
    pub(crate) server: PathBuf,
    /// The daemon.
    pub(crate) daemon: PathBuf,
    /// The replaying program.
    pub(crate) replay: PathBuf,
    /// The preload library.
    pub(crate) library: PathBuf,
    /// Folder with the stand-in `libcuda.so.1`.
    pub(crate) driver_folder: PathBuf,
}

/// A job of the demo.
#[derive(Debug)]
pub(crate) struct Job {
    /// Name of its trace.
    pub(crate) name: String,
    /// Its trace, as a file.
    pub(crate) trace: PathBuf,
    /// What one request of it launches.
    pub(crate) launches: Vec<Launch>,
    /// What is known about its kernels, as a file.
    pub(crate) profile: PathBuf,
}

impl Stage {
    /// Finds the parts, writes the files, and confines this process and its children to one core,
    /// where handing the clock over costs 2 us and not 70.
    ///
    /// # Errors
    /// A part is not built, or the temporary folder cannot be written.
    pub(crate) fn set(
        device: Device,
        hp: (String, Trace, Profile),
        be: (String, Trace, Profile),
    ) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("pillion-demo-")
            .tempdir()
            .context("a folder")?;
        let driver_folder = folder.path().join("driver");
        std::fs::create_dir(&driver_folder)?;
        let driver = artifacts::find("libcuda.so")?;
        for name in ["libcuda.so", "libcuda.so.1"] {
            symlink(&driver, driver_folder.join(name))?;
        }
        let stage = Self {
            device,
            hp: Job::write(folder.path(), "hp", &hp)?,
            be: Job::write(folder.path(), "be", &be)?,
            server: artifacts::find("softgpu-server")?,
            daemon: artifacts::find("pilliond")?,
            replay: artifacts::find("pillion-replay")?,
            library: artifacts::find(artifacts::LIBRARY)?,
            driver_folder,
            folder,
        };
        confine_to_one_core()?;
        Ok(stage)
    }

    /// What one request of each job launches; the high-priority job's first.
    pub(crate) fn launches(&self) -> [&[Launch]; 2] {
        [&self.hp.launches, &self.be.launches]
    }

    /// A fresh folder for one phase.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn phase_folder(&self, key: &str) -> Result<PathBuf> {
        let folder = self.folder.path().join(key);
        std::fs::create_dir(&folder).with_context(|| format!("{}", folder.display()))?;
        Ok(folder)
    }
}

impl Job {
    fn write(folder: &Path, key: &str, job: &(String, Trace, Profile)) -> Result<Self> {
        let (name, trace, profile) = job;
        let path = |suffix: &str| folder.join(format!("{key}.{suffix}"));
        std::fs::write(path("trace"), trace.write())?;
        std::fs::write(path("profile.toml"), profile.write())?;
        Ok(Self {
            name: name.clone(),
            trace: path("trace"),
            launches: launches_of(trace),
            profile: path("profile.toml"),
        })
    }
}

/// What the demo knows about a job's kernels: those of its trace, and the replay's check kernel.
pub(crate) fn profile_of(trace: &Trace) -> Profile {
    let mut profile = Profile::from_trace(trace);
    profile.kernels.push(check_kernel(trace));
    profile
}

/// The kernel with which a replay checks that no launch is lost: a saxpy of one block, too short to
/// be bound by anything. It has the class that most of the trace's launches have, so that a trace of
/// kernels of one class makes a job of one class.
fn check_kernel(trace: &Trace) -> KernelProfile {
    /// Even an empty kernel takes a microsecond (softgpu's built-in kernels), this one little more.
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
        name: "saxpy".to_owned(),
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
