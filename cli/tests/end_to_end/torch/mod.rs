//! PyTorch's wheel from PyPI, unmodified, on the software GPU: alone and under `pillion run`, in
//! both classes. NVIDIA's runtime, cuBLAS and cuBLASLt refuse drivers other than NVIDIA's, so
//! stand-ins for these are preloaded: the dynamic linker knows them by the wheel's names, and the
//! wheel stays unmodified. PyTorch's kernels compute nothing there, so these tests do not check
//! results: they compare output, exit status, launches, bytes, graphs and errors.
//! The wheel is large (3 GB to download, 5.4 GB installed), so it is optional: tests that find no
//! Python with `torch` in `.venv-torch` or at `PILLION_TORCH_PYTHON` are ignored, or fail with
//! `PILLION_REQUIRE_TORCH=1`. `PILLION_NO_TORCH=1` leaves them out. That wheel is of CUDA 13. One
//! of CUDA 12 needs the stand-ins of that release; the same scenarios run with it if
//! `PILLION_TORCH12_PYTHON` names a Python that has one (`cuda12`). That is another 2.5 GB to
//! download, so CI does without.

mod cuda12;
mod ranges;
mod repeated;
mod scenarios;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use protocol::hello::JobClass;
use serde_json::Value;

use crate::common::{Cuda, Daemon, Ended, Gpu, Job, runtime_libraries, workspace};

/// The wheel has no code for the V100 of the other tests.
const DEVICE: &str = "A100-SXM4-40GB";

/// Counters of the device that must be the same in every run of a program.
const SAME: [&str; 8] = [
    "launches",
    "graph_launches",
    "graph_kernels",
    "copies",
    "copied_h2d_bytes",
    "copied_d2h_bytes",
    "allocations",
    "allocated_bytes",
];

#[derive(Clone, Copy, Debug)]
struct Scenario {
    program: &'static str,
    cuda: Cuda,
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    allocator: &'static str,
    /// Whether it allocates the same each time: not if threads share PyTorch's cache.
    allocates_the_same: bool,
    /// Whether PyTorch's count of reserved memory is what it asked the driver for.
    says_what_it_asked_for: bool,
}

impl Scenario {
    const fn of(program: &'static str) -> Self {
        Self {
            program,
            cuda: Cuda::V13,
            allocator: "",
            allocates_the_same: true,
            says_what_it_asked_for: true,
        }
    }

    fn expect_unchanged(self) {
        let python = python(self.cuda);
        let stage = Stage::new(python);
        let alone = stage.alone(self).start().finish_whenever();
        let alone = alone.expect_success();
        let counts_alone = stage.gpu.counts("alone");
        assert_ne!(counts_alone["launches"], 0, "{counts_alone:#}");
        for class in [JobClass::HighPriority, JobClass::BestEffort] {
            let ended = stage.under_pillion(self, class).start().finish_whenever();
            let name = class.name();
            assert_eq!(ended.status, alone.status, "{name}: {ended:#?}");
            assert_eq!(self.told(&ended), self.told(&alone), "{name}: {ended:#?}");
            let counts = stage.gpu.counts(name);
            for counter in SAME {
                if self.allocates_the_same || !counter.starts_with("alloc") {
                    assert_eq!(
                        counts[counter], counts_alone[counter],
                        "{counter}: {name} and alone: {counts:#}"
                    );
                }
            }
            self.expect_counted_the_same(&stage.totals(class), &counts, &ended);
        }
    }

    /// Its output, without allocations where they vary from run to run.
    fn told(self, ended: &Ended) -> Vec<&str> {
        let lines = ended.output.lines();
        lines
            .filter(|line| self.allocates_the_same || !line.starts_with("reserved_bytes="))
            .collect()
    }

    fn expect_counted_the_same(self, totals: &Value, counts: &Value, ended: &Ended) {
        for counter in [
            "launches",
            "graph_launches",
            "copied_h2d_bytes",
            "copied_d2h_bytes",
            "allocations",
            "allocated_bytes",
        ] {
            assert_eq!(
                totals[counter], counts[counter],
                "{counter}: Pillion {totals:#}, device {counts:#}"
            );
        }
        assert_eq!(totals["panics_caught"], 0, "{totals:#}");
        assert_eq!(totals["bypasses"], 0, "{totals:#}");
        if self.says_what_it_asked_for {
            assert_eq!(
                counts["allocated_bytes"],
                ended.asked("reserved_bytes"),
                "{ended:#?}"
            );
            // Expandable segments grow by further allocations and are not counted as segments.
            if self.allocator.is_empty() {
                assert_eq!(counts["allocations"], ended.asked("segments"), "{ended:#?}");
            }
        }
    }
}

struct Stage {
    python: PathBuf,
    gpu: Gpu,
    daemon: Daemon,
}

impl Stage {
    fn new(python: PathBuf) -> Self {
        let gpu = Gpu::start_device(DEVICE, "mps");
        let daemon = gpu.daemon("");
        Self {
            python,
            gpu,
            daemon,
        }
    }

    fn alone(&self, scenario: Scenario) -> Job {
        let job = self.gpu.job_of("alone", &self.python);
        self.with_program(job, "alone", scenario)
    }

    fn under_pillion(&self, scenario: Scenario, class: JobClass) -> Job {
        // A best-effort job has a part of the device by default; here it sees what it sees alone.
        self.under_quota(scenario, class, "unlimited")
    }

    fn under_quota(&self, scenario: Scenario, class: JobClass, memory: &str) -> Job {
        let arguments = [
            "--class",
            class.name(),
            "--memory",
            memory,
            "--require-daemon",
            "--",
        ];
        let job = self
            .gpu
            .pillion_run(class.name(), self.daemon.socket(), &arguments)
            .arg(&self.python);
        self.with_program(job, class.name(), scenario)
    }

    fn with_program(&self, job: Job, name: &str, scenario: Scenario) -> Job {
        let job = job
            // A run leaves nothing in the workspace or in a home folder.
            .arg("-B")
            .arg(program(scenario.program))
            .env("HOME", self.gpu.path(""))
            // A warm cache would save the next run the compilation, which makes copies.
            .env(
                "TORCHINDUCTOR_CACHE_DIR",
                self.gpu.path(&format!("inductor-{name}")),
            )
            .env("PYTHONWARNINGS", "ignore")
            .env("LD_PRELOAD", preload(scenario.cuda));
        match scenario.allocator {
            "" => job,
            allocator => job.env("PYTORCH_CUDA_ALLOC_CONF", allocator),
        }
    }

    fn totals(&self, class: JobClass) -> Value {
        let job = self.job(class);
        self.daemon.totals(job["job"].as_str().expect("its id"))
    }

    fn job(&self, class: JobClass) -> Value {
        let status = self.daemon.status();
        let jobs = status["jobs"].as_array().expect("a list of jobs");
        let job = jobs.iter().find(|job| job["class"] == class.name());
        let job = job.unwrap_or_else(|| panic!("no job of class {}: {status:#}", class.name()));
        job.clone()
    }
}

fn program(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/torch");
    folder.join(format!("{name}.py"))
}

fn preload(cuda: Cuda) -> OsString {
    env::join_paths(runtime_libraries(cuda)).expect("no colon in a path of cargo's")
}

pub(crate) fn python(cuda: Cuda) -> PathBuf {
    if env::var_os("PILLION_NO_TORCH").is_some_and(|value| value == "1") {
        testing::ignore("PILLION_NO_TORCH=1");
    }
    let python = match cuda {
        Cuda::V12 => env::var_os("PILLION_TORCH12_PYTHON").unwrap_or_else(|| {
            testing::ignore("no python with PyTorch for CUDA 12: PILLION_TORCH12_PYTHON names one")
        }),
        Cuda::V13 => env::var_os("PILLION_TORCH_PYTHON")
            .unwrap_or_else(|| workspace().join(".venv-torch/bin/python").into()),
    };
    let python = PathBuf::from(python);
    if cuda == Cuda::V13 && !python.exists() {
        let what = format!("PyTorch at {} (docs/pytorch.md)", python.display());
        testing::missing("PILLION_REQUIRE_TORCH", what);
    }
    python
}
