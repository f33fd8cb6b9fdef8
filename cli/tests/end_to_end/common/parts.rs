//! The parts under test: the workspace's artefacts, built once per test binary, and C programs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::tools;

/// A C program (or library) of `tests/programs`, and how it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Program {
    /// Linked with `-lcuda`.
    Linked(&'static str),
    /// Linked with `-lcuda`, with the driver's folder in its `DT_RPATH`, which is searched first.
    RunPath(&'static str),
    /// Finds the driver at run time.
    Unlinked(&'static str),
    /// Linked with `-lcuda` and with NVML.
    Nvml(&'static str),
    /// Linked with the stand-in for the CUDA runtime.
    Runtime(&'static str, Cuda),
    /// [`Self::Runtime`], compiled with NVIDIA's headers of that release ([`tools::cuda_headers`]).
    WithHeaders(&'static str, Cuda),
    /// Linked with `-lcuda` and the stand-ins for cuBLAS and cuBLASLt.
    Blas(&'static str),
    /// A shared library, to be preloaded.
    Library(&'static str),
    /// A shared library linked with `-lcuda`, to be opened.
    WithDriver(&'static str),
}

/// A job whose one kernel outlasts every test.
pub(crate) const HANG: &str = "hang 3600000000000 1";

pub(crate) struct CommandLine {
    pub(crate) program: Program,
    pub(crate) arguments: Vec<&'static str>,
}

impl From<Program> for CommandLine {
    fn from(program: Program) -> Self {
        let arguments = Vec::new();
        Self { program, arguments }
    }
}

/// A program linked with the driver, by name, followed by its arguments.
impl From<&'static str> for CommandLine {
    fn from(line: &'static str) -> Self {
        let mut words = line.split(' ');
        Self {
            program: Program::Linked(words.next().unwrap_or_default()),
            arguments: words.collect(),
        }
    }
}

/// A release of CUDA with stand-ins: file names and some structures differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cuda {
    V12,
    V13,
}

impl Cuda {
    pub(crate) const ALL: [Self; 2] = [Self::V12, Self::V13];

    pub(crate) const fn major(self) -> u32 {
        match self {
            Self::V12 => 12,
            Self::V13 => 13,
        }
    }
}

const SCRATCH_PREFIX: &str = "end-to-end-";

pub(crate) fn workspace() -> &'static Path {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    parent.expect("the crate lies in the workspace")
}

pub(crate) fn pillion() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_pillion"))
}

/// The preload library, or the build of `PILLION_TEST_LIBRARY` (in CI the release artefact).
pub(crate) fn library() -> PathBuf {
    std::env::var_os("PILLION_TEST_LIBRARY")
        .map_or_else(|| cargo_folder().join("libpillion.so"), PathBuf::from)
}

pub(crate) fn builtin_profile() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/builtin.profile.toml")
}

/// Cargo's folder for the artefacts of this profile, with all of them built.
pub(crate) fn cargo_folder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

/// The folder where the software GPU's driver and its NVML have the names that programs look for.
pub(crate) fn driver_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = scratch().join("driver");
        fs::create_dir_all(&folder).unwrap();
        for (name, built) in [
            ("libcuda.so", "libcuda.so"),
            ("libcuda.so.1", "libcuda.so"),
            ("libnvidia-ml.so.1", "libnvidia_ml.so"),
        ] {
            let link = folder.join(name);
            let _ = fs::remove_file(&link);
            symlink(cargo_folder().join(built), link).unwrap();
        }
        folder
    })
}

/// A folder where the shim has the driver's name and that driver behind it, as `pillion run --shim`
/// makes one.
pub(crate) fn shim_folder(driver: &Path) -> PathBuf {
    let name = driver.display().to_string().replace('/', "-");
    let folder = scratch().join(format!("shim{name}"));
    fs::create_dir_all(folder.join("driver")).unwrap();
    let shim = cargo_folder().join("libpillion_shim.so");
    for (target, link) in [(&*shim, ""), (driver, "driver")] {
        // Another test may have created it.
        let _ = symlink(target, folder.join(link).join("libcuda.so.1"));
    }
    folder
}

/// The stand-ins for the CUDA runtime, cuBLAS and cuBLASLt, under the names that programs look for.
pub(crate) fn runtime_libraries(cuda: Cuda) -> [PathBuf; 3] {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    // Cargo's names, and NVIDIA's.
    let names = |cuda: Cuda| {
        let (major, suffix) = match cuda {
            Cuda::V12 => (12, "12"),
            Cuda::V13 => (13, ""),
        };
        let names = [
            ("libcudart", "libcudart"),
            ("libcublas", "libcublas"),
            ("libcublas_lt", "libcublasLt"),
        ];
        names.map(|(built, name)| (format!("{built}{suffix}.so"), format!("{name}.so.{major}")))
    };
    let folder = FOLDER.get_or_init(|| {
        let folder = scratch().join("runtime");
        fs::create_dir_all(&folder).unwrap();
        for (built, name) in Cuda::ALL.into_iter().flat_map(names) {
            symlink(cargo_folder().join(built), folder.join(name)).unwrap();
        }
        folder
    });
    names(cuda).map(|(_, name)| folder.join(name))
}

/// Writes a script by another process: a file open for writing here is also open for a moment in
/// other tests' children, and executing it then fails (`ETXTBSY` of execve(2)).
pub(crate) fn write_script(path: &Path, text: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"]);
    let status = writer.arg(path).arg(text).status().unwrap();
    assert!(status.success(), "{}", path.display());
}

/// Copies a program by another process, for the same reason.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let mut copier = Command::new("cp");
    let status = copier.arg("--").args([from, to]).status().unwrap();
    assert!(status.success(), "{}", to.display());
}

/// This test run's own folder, beside cargo's. Those of ended runs are removed.
fn scratch() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        for entry in fs::read_dir(tmp).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = name.strip_prefix(SCRATCH_PREFIX);
            if process.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = tmp.join(format!("{SCRATCH_PREFIX}{}", std::process::id()));
        // An ended run may have had our process id: in a container ids recur at once.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Builds the workspace in the profile of this test, as derived from the folder of `pillion`.
fn build() -> PathBuf {
    let folder = pillion().parent().expect("a file lies in a folder");
    let target = folder.parent().expect("<target>/<profile>");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(workspace())
        .args(["build", "--workspace", "--quiet", "--target-dir"])
        .arg(target);
    // The profile `dev` is the one whose folder has another name.
    let profile = folder.file_name().filter(|name| *name != "debug");
    cargo
        .arg("--profile")
        .arg(profile.unwrap_or("dev".as_ref()));
    let status = cargo.status().expect("cargo ran this test");
    assert!(status.success(), "{cargo:?} failed");
    folder.to_owned()
}

impl Program {
    /// The compiled file; each is compiled once.
    pub(crate) fn path(self) -> PathBuf {
        static COMPILED: Mutex<Option<HashMap<Program, PathBuf>>> = Mutex::new(None);
        // A test that failed to compile has poisoned nothing but itself.
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = compiled.get_or_insert_default();
        compiled
            .entry(self)
            .or_insert_with(|| self.compile())
            .clone()
    }

    fn name(self) -> &'static str {
        let (Self::Linked(name)
        | Self::RunPath(name)
        | Self::Unlinked(name)
        | Self::Nvml(name)
        | Self::Runtime(name, _)
        | Self::WithHeaders(name, _)
        | Self::Blas(name)
        | Self::Library(name)
        | Self::WithDriver(name)) = self;
        name
    }

    fn compile(self) -> PathBuf {
        let name = self.name();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let out = scratch().join(match self {
            Self::Linked(name) => format!("{name}-linked"),
            Self::RunPath(name) => format!("{name}-rpath"),
            Self::Unlinked(name) => name.to_owned(),
            Self::Nvml(name) => format!("{name}-linked-with-nvml"),
            Self::Runtime(name, cuda) | Self::WithHeaders(name, cuda) => {
                format!("{name}-linked-with-runtime-{}", cuda.major())
            }
            Self::Blas(name) => format!("{name}-linked-with-blas"),
            Self::Library(name) => format!("lib{name}.so"),
            Self::WithDriver(name) => format!("lib{name}-with-driver.so"),
        });
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra"]);
        cc.args(["-pthread", "-o"]).arg(&out);
        cc.arg(folder.join(format!("{name}.c")));
        match self {
            Self::Linked(_) | Self::RunPath(_) => {
                cc.args(["-DLINKED", "-L"]).arg(driver_folder());
                cc.arg("-lcuda");
                if matches!(self, Self::RunPath(_)) {
                    let path = driver_folder().display();
                    cc.arg(format!("-Wl,--disable-new-dtags,-rpath,{path}"));
                }
            }
            Self::Unlinked(_) => {}
            Self::Nvml(_) => {
                cc.args(["-DLINKED", "-L"]).arg(driver_folder());
                cc.arg("-lcuda")
                    .arg(driver_folder().join("libnvidia-ml.so.1"));
            }
            Self::Runtime(_, cuda) | Self::WithHeaders(_, cuda) => {
                let [runtime, ..] = runtime_libraries(cuda);
                let folder = runtime.parent().expect("a file lies in a folder");
                cc.arg(&runtime);
                cc.arg(format!("-Wl,-rpath,{}", folder.display()));
                if matches!(self, Self::WithHeaders(..)) {
                    let headers = tools::cuda_headers(cuda);
                    cc.args(
                        headers
                            .iter()
                            .flat_map(|folder| [Path::new("-isystem"), folder]),
                    );
                }
            }
            Self::Blas(_) => {
                let [_, cublas, light] = runtime_libraries(Cuda::V13);
                let folder = cublas.parent().expect("a file lies in a folder");
                cc.args(["-DLINKED", "-L"]).arg(driver_folder());
                cc.args([cublas.as_path(), &light]).arg("-lcuda");
                cc.arg(format!("-Wl,-rpath,{}", folder.display()));
            }
            Self::Library(_) => {
                cc.args(["-shared", "-fPIC"]);
            }
            Self::WithDriver(_) => {
                cc.args(["-shared", "-fPIC", "-L"]).arg(driver_folder());
                // The program looks up the functions by name.
                cc.args(["-Wl,--no-as-needed", "-lcuda"]);
            }
        }
        cc.arg("-ldl");
        let status = cc.status().expect("a C compiler is installed as cc");
        assert!(status.success(), "{cc:?} failed");
        out
    }
}
