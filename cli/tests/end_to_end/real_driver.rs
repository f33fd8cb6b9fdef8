//! NVIDIA's own libraries, on a machine without a device: each query gives the same with us as
//! without. `.ci/real-drivers target/drivers` downloads them (a few MB, nothing is installed);
//! `PILLION_DRIVERS` names another folder. Without a device `cuInit` fails, and everything before
//! it can be tried: the doors, the resolver, and each function's refusal of its arguments. The
//! export tables (`cuGetExportTable`) are left alone, here as everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use abi::{ENTRY_POINTS, Route};
use tempfile::TempDir;

use crate::common::{
    Cuda, Ended, Program, cargo_folder, clean_command, collect, driver_folder, library, pillion,
    shim_folder, tools, until, workspace,
};
use crate::symbols::{NVML, exported};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Preload,
    Shim,
    Run,
    RunShim,
}

const WAYS: [Way; 4] = [Way::Preload, Way::Shim, Way::Run, Way::RunShim];

struct Driver {
    /// Of Debian's packages.
    root: PathBuf,
    libraries: PathBuf,
    scratch: TempDir,
}

pub(crate) fn brought(name: &str) -> PathBuf {
    let folder = std::env::var_os("PILLION_DRIVERS")
        .map_or_else(|| workspace().join("target/drivers"), PathBuf::from);
    let folder = folder.join(name);
    if !folder.join("complete").exists() {
        let what = "NVIDIA's own driver libraries (`.ci/real-drivers target/drivers` brings them)";
        testing::missing("PILLION_REQUIRE_TOOLS", what);
    }
    folder
}

fn drivers() -> [Driver; 2] {
    ["R535", "R550"].map(|series| {
        let root = brought(series);
        Driver {
            libraries: root.join("usr/lib/x86_64-linux-gnu/nvidia/current"),
            root,
            scratch: tempfile::tempdir().unwrap(),
        }
    })
}

impl Driver {
    fn library(&self) -> PathBuf {
        self.libraries.join("libcuda.so.1")
    }

    fn list(&self, name: &str, lines: impl IntoIterator<Item = impl AsRef<str>>) -> PathBuf {
        let lines: String = lines
            .into_iter()
            .map(|line| format!("{}\n", line.as_ref()))
            .collect();
        let path = self.scratch.path().join(name);
        fs::write(&path, lines).unwrap();
        path
    }

    /// A command with this driver, and with our library in this way or not at all.
    fn command(&self, way: Option<Way>, words: &[&Path]) -> Command {
        let mut command = match way {
            Some(Way::Run | Way::RunShim) => {
                let mut run = clean_command(pillion());
                run.arg("run");
                run.args((way == Some(Way::RunShim)).then_some("--shim"));
                run.arg("--").arg(words[0]);
                run
            }
            _ => clean_command(words[0]),
        };
        command.args(&words[1..]);
        let mut search_path = vec![self.libraries.clone()];
        match way {
            Some(Way::Preload) => {
                command.env("LD_PRELOAD", library());
            }
            Some(Way::Shim) => search_path.insert(0, shim_folder(&self.library())),
            _ => {}
        }
        command.env(
            "LD_LIBRARY_PATH",
            std::env::join_paths(search_path).unwrap(),
        );
        command.env("XDG_CACHE_HOME", self.scratch.path());
        // Excludes a control daemon of this machine's.
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.scratch.path().join("mps"));
        command
    }

    fn run(&self, way: Option<Way>, words: &[&Path]) -> Ended {
        collect(self.command(way, words))
    }

    fn expect_the_same(&self, words: &[&Path]) -> Ended {
        let alone = self.run(None, words);
        for way in WAYS {
            let ended = self.run(Some(way), words);
            assert_eq!(ended.output, alone.output, "{way:?} {words:?}");
            assert_eq!(ended.errors, alone.errors, "{way:?} {words:?}");
            assert_eq!(ended.code(), alone.code(), "{way:?} {words:?}");
        }
        alone
    }

    fn compile(&self, name: &str, arguments: &[&Path]) -> PathBuf {
        let out = self.scratch.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Wextra", "-pthread", "-o"]);
        cc.arg(&out).arg(source.join(format!("{name}.c")));
        cc.args(arguments).args(["-ldl", "-lrt", "-lm"]);
        let status = cc.status().unwrap();
        assert!(status.success(), "{cc:?}");
        out
    }
}

/// Names of the table or the driver, and some unknown ones.
fn names(driver: &Driver) -> Vec<String> {
    let mut names: Vec<String> = exported(&driver.library()).into_iter().collect();
    for entry in &ENTRY_POINTS {
        names.push(entry.symbol.to_str().unwrap().to_owned());
        names.push(entry.api.to_owned());
    }
    names.extend(["", "cuNoSuchFunction"].map(str::to_owned));
    names.retain(|name| name != "cuGetExportTable");
    names.sort();
    names.dedup();
    names
}

/// Every version that brought an entry point, those around it, and one that no driver has yet.
fn versions() -> Vec<String> {
    let brought = ENTRY_POINTS.iter().map(|entry| entry.version);
    let mut versions: Vec<u32> = brought
        .flat_map(|version| version - 1..=version + 1)
        .collect();
    versions.push(99_000);
    versions.sort_unstable();
    versions.dedup();
    versions.iter().map(u32::to_string).collect()
}

/// The places in a line of `real_driver`, each a symbol and its file; and the line without files.
fn places(line: &str) -> (Vec<(&str, &str)>, String) {
    let mut places = Vec::new();
    let mut rest = String::new();
    for word in line.split_inclusive(' ') {
        match word.trim_end().split_once('@') {
            Some((before, file)) => {
                let symbol = before.rsplit(['/', ' ']).next().unwrap_or(before);
                places.push((symbol.strip_suffix("+0").unwrap_or(symbol), file));
                rest.push_str(before);
                rest.push(' ');
            }
            None => rest.push_str(word),
        }
    }
    (places, rest.trim_end().to_owned())
}

/// Compares `real_driver` with us and alone: the same symbols, each in our library if the table
/// says hook, and else in the driver's. Returns the number of hooks.
fn compare(alone: &str, ours: &str) -> Result<usize, String> {
    let count = (alone.lines().count(), ours.lines().count());
    if count.0 != count.1 {
        return Err(format!("{count:?} lines"));
    }
    let routes: BTreeMap<&str, Route> = ENTRY_POINTS
        .iter()
        .map(|entry| (entry.symbol.to_str().unwrap(), entry.route))
        .collect();
    let mut hooks = 0;
    for (alone, ours) in alone.lines().zip(ours.lines()) {
        let ((_, alone), (found, rest)) = (places(alone), places(ours));
        if alone != rest {
            return Err(format!("alone `{alone}`, with us `{ours}`"));
        }
        for (symbol, file) in found {
            let is_hook = routes.get(symbol) == Some(&Route::Hook);
            if is_hook != file.starts_with("libpillion") {
                return Err(format!("`{symbol}` of {file} in `{ours}`"));
            }
            hooks += usize::from(is_hook);
        }
    }
    Ok(hooks)
}

#[test]
fn the_comparison_sees_what_is_routed_wrong() {
    let alone = "lazy cuInit: cuInit+0@libcuda.so.1\nfirst 0 cuInit: 1=500/-77/untouched 2=0/0/cuInit+0@libcuda.so.1\n";
    let ours = alone.replace("libcuda.so.1", "libpillion.so");
    assert_eq!(compare(alone, &ours), Ok(2));
    for (from, to) in [
        // The driver's own in place of a hook; another hook; another answer; a line less.
        (
            "2=0/0/cuInit+0@libpillion.so",
            "2=0/0/cuInit+0@libcuda.so.1",
        ),
        ("lazy cuInit: cuInit+0", "lazy cuInit: cuMemAlloc_v2+0"),
        ("lazy cuInit: cuInit+0", "lazy cuInit: cuInit+16"),
        ("1=500", "1=0"),
        ("lazy cuInit: cuInit+0@libpillion.so\n", ""),
    ] {
        let wrong = ours.replacen(from, to, 1);
        assert_ne!(wrong, ours);
        compare(alone, &wrong).unwrap_err();
    }
    let passed = "lazy cuDeviceGet: cuDeviceGet+0@libcuda.so.1\n";
    compare(passed, &passed.replace("libcuda.so.1", "libpillion.so")).unwrap_err();
}

#[test]
fn every_door_of_nvidias_driver_leads_where_it_leads_without_us_and_to_hooks_where_the_table_says()
{
    for driver in drivers() {
        let names = driver.list("names", names(&driver));
        let versions = driver.list("versions", versions());
        let program = Program::Unlinked("real_driver").path();
        let words = [&*program, Path::new("doors"), &names, &versions];
        let alone = driver.run(None, &words);
        assert_eq!((alone.code(), &*alone.errors), (4, ""), "{:?}", driver.root);
        for way in WAYS {
            let ended = driver.run(Some(way), &words);
            assert_eq!((ended.code(), &*ended.errors), (4, ""), "{way:?}");
            let hooks = compare(&alone.output, &ended.output);
            let hooks = hooks.unwrap_or_else(|wrong| panic!("{way:?} {:?}: {wrong}", driver.root));
            assert!(hooks > 4_000, "{way:?}: {hooks} hooks");
        }
    }
}

#[test]
fn every_function_answers_as_without_us_before_and_after_an_initialisation_that_failed() {
    for driver in drivers() {
        let of_driver: Vec<String> = exported(&driver.library())
            .into_iter()
            // The debugger's.
            .filter(|name| name != "cuGetExportTable" && !name.starts_with("cudbg"))
            .collect();
        assert!(of_driver.len() > 550, "{}", of_driver.len());
        let of_driver = driver.list("calls", of_driver);
        let of_nvml = driver.list("calls-of-nvml", NVML);
        let program = Program::Unlinked("real_driver").path();
        for (library, initialiser, names, code) in [
            // CUDA_ERROR_NO_DEVICE, NVML_ERROR_DRIVER_NOT_LOADED.
            ("libcuda.so.1", "cuInit", &of_driver, 100),
            ("libnvidia-ml.so.1", "nvmlInit_v2", &of_nvml, 9),
        ] {
            let words = ["calls", library, initialiser].map(Path::new);
            let words = [&[&*program][..], &words, &[&**names]].concat();
            let alone = driver.run(None, &words);
            assert_eq!(alone.code(), 4, "{alone:?}");
            assert!(alone.output.contains(&format!("\n{initialiser} {code}\n")));
            for way in WAYS {
                let ended = driver.run(Some(way), &words);
                let pairs = alone.output.lines().zip(ended.output.lines());
                let different: Vec<_> = pairs.filter(|(alone, ours)| alone != ours).collect();
                assert!(different.is_empty(), "{way:?}: {different:#?}");
                assert_eq!(ended.output.len(), alone.output.len(), "{way:?}");
                assert_eq!(ended.errors, alone.errors, "{way:?}");
            }
        }
    }
}

/// Launches as before CUDA 4 are bypassed on purpose (`abi/pass_reasons.csv`).
const BEFORE_CUDA_4: [&str; 3] = ["cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync"];

#[test]
fn every_function_of_nvidias_driver_that_launches_is_hooked() {
    // The exports of R470 to R555 were recorded.
    let recorded = fs::read_to_string(testing::data("cuda/driver_exports.csv")).unwrap();
    let lines = recorded.lines().skip(1);
    let recorded = lines.map(|line| line.split(',').next().unwrap().to_owned());
    let recorded: BTreeSet<String> = recorded.collect();
    let of_drivers = drivers().map(|driver| exported(&driver.library()));
    for names in of_drivers.into_iter().chain([recorded]) {
        let launches: Vec<String> = names
            .into_iter()
            .filter(|name| name.contains("Launch") && !name.starts_with("cudbg"))
            .filter(|name| !BEFORE_CUDA_4.contains(&&**name))
            .collect();
        assert!(launches.len() >= 11, "{launches:?}");
        for name in launches {
            let symbol = std::ffi::CString::new(&*name).unwrap();
            let index = abi::lookup(&symbol);
            let index = index.unwrap_or_else(|| panic!("{name} is not in our table"));
            assert_eq!(ENTRY_POINTS[index].route, Route::Hook, "{name}");
        }
    }
}

/// The stand-in must not teach us what no driver does.
#[test]
fn the_stand_ins_resolver_answers_as_nvidias_for_what_both_have() {
    let [_, driver] = drivers();
    let theirs = exported(&driver.library());
    let mut all: BTreeMap<&str, bool> = BTreeMap::new();
    for entry in &ENTRY_POINTS {
        // One function refuses everything that the stand-in does not support.
        let has = entry.softgpu && theirs.contains(entry.symbol.to_str().unwrap());
        *all.entry(entry.api).or_insert(true) &= has;
    }
    let known = all.iter().filter(|(_, has)| **has).map(|(api, _)| *api);
    let known: Vec<&str> = known.collect();
    assert!(known.len() > 200, "{}", known.len());
    let names = driver.list(
        "names",
        known
            .into_iter()
            .chain(["", "cuNoSuchFunction", "cuMemAlloc_v2"]),
    );
    let versions = driver.list("versions", versions());
    let program = Program::Unlinked("real_driver").path();
    let words = [&*program, Path::new("doors"), &names, &versions];
    let answers = |folder: &Path| {
        let mut command = driver.command(None, &words);
        command.env("LD_LIBRARY_PATH", folder);
        let ended = collect(command);
        assert_eq!(ended.code(), 4, "{ended:?}");
        let lines = ended
            .output
            .lines()
            .filter(|line| line.starts_with("first") || line.starts_with("second"));
        lines.map(|line| places(line).1).collect::<Vec<_>>()
    };
    let (theirs, ours) = (answers(&driver.libraries), answers(driver_folder()));
    assert_eq!(theirs.len(), ours.len());
    let pairs = theirs.iter().zip(&ours);
    let different: Vec<_> = pairs.filter(|(theirs, ours)| theirs != ours).collect();
    let (count, some) = (different.len(), different.iter().take(8));
    assert_eq!(
        count,
        0,
        "of {}: {:#?}",
        theirs.len(),
        some.collect::<Vec<_>>()
    );
}

#[test]
fn nvidias_runtimes_find_no_device_as_without_us() {
    for driver in drivers() {
        for (folder, library) in [
            ("cudart-12", "nvidia/cuda_runtime/lib/libcudart.so.12"),
            ("cudart-12", "nvidia/cuda_runtime/lib/libcudart_static.a"),
            ("cudart-13", "nvidia/cu13/lib/libcudart.so.13"),
            ("cudart-13", "nvidia/cu13/lib/libcudart_static.a"),
        ] {
            let library = brought(folder).join(library);
            let run_path = format!("-Wl,-rpath,{}", library.parent().unwrap().display());
            let program = driver.compile("real_runtime", &[&library, Path::new(&run_path)]);
            let alone = driver.expect_the_same(&[&program]);
            assert_eq!(alone.code(), 3, "{alone:?}");
            // Either no device, or a driver that is too old for that runtime.
            let is_refused = ["count 100\n", "count 35\n"].map(|word| alone.output.contains(word));
            assert!(is_refused.contains(&true), "{alone:?}");
        }
    }
}

/// Names in no table of ours, of the profiler and graphics, must not end a program with them.
#[test]
fn a_program_that_uses_names_outside_the_table_runs_with_the_shim_too() {
    for driver in drivers() {
        let folder = format!("-L{}", driver.libraries.display());
        let linked = [&*folder, "-lcuda"].map(Path::new);
        let program = driver.compile("real_names", &linked);
        let alone = driver.expect_the_same(&[&program]);
        assert_eq!(alone.code(), 5, "{alone:?}");
        assert!(alone.output.contains("cuProfilerStart 3\n"), "{alone:?}");
    }
}

#[test]
fn nvidia_smi_says_the_same() {
    for driver in drivers() {
        let smi = driver.root.join("usr/lib/nvidia/current/nvidia-smi");
        let alone = driver.expect_the_same(&[&smi]);
        assert_eq!(alone.code(), 9, "{alone:?}");
    }
}

struct Mps<'a> {
    driver: &'a Driver,
    pipes: PathBuf,
}

impl<'a> Mps<'a> {
    fn start(driver: &'a Driver) -> Self {
        let program = driver.root.join("usr/bin/nvidia-cuda-mps-control");
        Self::start_by(driver, &[&program, Path::new("-d")])
    }

    fn start_by(driver: &'a Driver, words: &[&Path]) -> Self {
        let pipes = driver.scratch.path().join("pipes");
        fs::create_dir(&pipes).unwrap();
        fs::set_permissions(&pipes, PermissionsExt::from_mode(0o777)).unwrap();
        let mps = Self { driver, pipes };
        let ended = collect(mps.in_environment(driver.command(None, words)));
        assert_eq!(ended.code(), 0, "{ended:?}");
        mps
    }

    fn program(&self) -> PathBuf {
        self.driver.root.join("usr/bin/nvidia-cuda-mps-control")
    }

    fn in_environment(&self, mut command: Command) -> Command {
        command.env("CUDA_MPS_PIPE_DIRECTORY", &self.pipes);
        command.env("CUDA_MPS_LOG_DIRECTORY", &self.pipes);
        command
    }

    fn doctor(&self) -> (Ended, serde_json::Value) {
        let words = ["doctor", "--json"].map(Path::new);
        let words = [&[pillion()][..], &words].concat();
        let ended = collect(self.in_environment(self.driver.command(None, &words)));
        let document = serde_json::from_str(&ended.output).unwrap();
        (ended, document)
    }
}

impl Drop for Mps<'_> {
    fn drop(&mut self) {
        let text = "echo quit | \"$0\"";
        let mut command = clean_command("sh");
        command.args(["-c", text]).arg(self.program());
        collect(self.in_environment(command));
    }
}

fn found(document: &serde_json::Value, check: &str) -> String {
    let checks = document["checks"].as_array().unwrap();
    let found = checks.iter().find(|found| found["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check} in {document:#}"));
    found["found"].as_str().unwrap().to_owned()
}

#[test]
fn doctor_sees_the_control_daemon_of_every_release_and_says_why_there_is_no_gpu() {
    for driver in drivers() {
        let mps = Mps::start(&driver);
        let runs = || {
            let (ended, document) = mps.doctor();
            assert_eq!(ended.code(), 1, "{ended:?}");
            let state = found(&document, "MPS");
            state.starts_with("runs (pid ").then_some(document)
        };
        let document = until("the control daemon", runs);
        let gpus = found(&document, "GPUs");
        // The child that asks is kept away from MPS, whose client would get 805.
        for part in [
            "cuInit failed: CUDA_ERROR_NO_DEVICE (100)",
            "NVML_ERROR_DRIVER_NOT_LOADED (9)",
            "`modprobe nvidia`",
        ] {
            assert!(gpus.contains(part), "no {part} in {gpus}");
        }
        assert!(found(&document, "NVML").contains("NVML_ERROR_DRIVER_NOT_LOADED (9)"));
        drop(mps);
    }
}

#[test]
fn the_daemon_says_by_name_why_it_finds_no_gpu() {
    for driver in drivers() {
        let config = driver.list("gpu0.toml", ["[gpu]", "index = 0"]);
        let pilliond = cargo_folder().join("pilliond");
        let ended = driver.run(None, &[&pilliond, Path::new("--config"), &config]);
        assert_eq!(ended.code(), 1, "{ended:?}");
        ended.expect_errors(&[
            "cuInit failed: CUDA_ERROR_NO_DEVICE (100)",
            "NVML_ERROR_DRIVER_NOT_LOADED (9), the kernel module is not loaded",
        ]);
    }
}

/// In the field `import torch` hung where LLVM's OpenMP looks up what comes after it, and NCCL
/// where it first asks for memory.
#[test]
fn pytorch_and_nccl_begin_beside_another_interposer_as_without_us() {
    let [_, driver] = drivers();
    let python = crate::torch::python(Cuda::V13);
    let text = "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())";
    let nccl = python.parent().unwrap().parent().unwrap().join("lib");
    let nccl = fs::read_dir(nccl).unwrap().flatten().find_map(|version| {
        let library = "site-packages/nvidia/nccl/lib/libnccl.so.2";
        Some(version.path().join(library)).filter(|path| path.exists())
    });
    let nccl = nccl.expect("PyTorch brings NCCL");
    let program = Program::Unlinked("real_nccl").path();
    for words in [
        [&*python, Path::new("-c"), Path::new(text)].as_slice(),
        &[&*program, &*nccl],
    ] {
        let run = |preloads: &[&Path]| {
            let mut command = driver.command(None, words);
            command.env("LD_PRELOAD", std::env::join_paths(preloads).unwrap());
            collect(command)
        };
        let (ours, other) = (library(), Program::Library("wrap_dlsym").path());
        let alone = run(&[]);
        let is_begun = (alone.code() == 0 && alone.output == "False 0\n")
            || (alone.code() == 6 && alone.output.contains("init 1\n"));
        assert!(is_begun, "{alone:#?}");
        for preloads in [&[&*ours][..], &[&ours, &other], &[&other, &ours]] {
            let ended = run(preloads);
            assert_eq!(ended.output, alone.output, "{preloads:?}");
            assert_eq!(
                (ended.code(), ended.errors),
                (alone.code(), alone.errors.clone())
            );
        }
    }
}

#[test]
fn a_control_daemon_of_another_user_is_said() {
    let words = ["setpriv", "--reuid", "4321", "--clear-groups", "--"];
    let setpriv = tools::that_runs(&words);
    for driver in drivers() {
        // The other user must reach it.
        let scratch = driver.scratch.path();
        fs::set_permissions(scratch, PermissionsExt::from_mode(0o777)).unwrap();
        let program = scratch.join("control");
        fs::copy(
            driver.root.join("usr/bin/nvidia-cuda-mps-control"),
            &program,
        )
        .unwrap();
        let mut words: Vec<&Path> = words.map(Path::new).to_vec();
        words[0] = &setpriv;
        words.extend([&*program, Path::new("-d")]);
        let mps = Mps::start_by(&driver, &words);
        let said = || {
            let (_, document) = mps.doctor();
            let state = found(&document, "MPS");
            state.contains("of user 4321").then_some(state)
        };
        let state = until("the control daemon", said);
        assert!(state.starts_with("runs (pid "), "{state}");
    }
}
