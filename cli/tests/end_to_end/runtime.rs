//! Programs of the CUDA runtime on its stand-in: they compute the right results, their errors are
//! the runtime's, and under Pillion nothing of that changes and everything is counted.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::common::{Cuda, Gpu, Program, collect, runtime_libraries, tools};

/// Fields of `struct cudaDeviceProp` that `runtime_fields.c` checks in both releases.
const FIELDS: u32 = 91;

/// The output of `runtime.c` before its counts.
const OUTPUT: &str = "\
device 0 of 1
4096 results are right, time passed: 1
device memory: type 2 of device 0
pinned memory: type 1
other memory: type 0
saxpy: blocks of 1024 threads, 8 on an SM
cudaMalloc(&memory, (size_t)1 << 50): cudaErrorMemoryAllocation
cudaPeekAtLastError(): cudaErrorMemoryAllocation
in another thread: cudaSuccess
cudaGetLastError(): cudaErrorMemoryAllocation
cudaGetLastError(): cudaSuccess
cudaLaunchKernel((const void *)unregistered, one, one, NULL, 0, NULL): cudaErrorInvalidDeviceFunction
cudaLaunchKernel((const void *)saxpy, none, one, arguments, 0, NULL): cudaErrorInvalidConfiguration
cudaLaunchKernel((const void *)saxpy, one, large, arguments, 0, NULL): cudaErrorInvalidConfiguration
cudaMemcpy(arguments, arguments, 1, 9): cudaErrorInvalidMemcpyDirection
cudaSetDevice(7): cudaErrorInvalidDevice
cudaMalloc(NULL, 16): cudaErrorInvalidValue
cudaGraphAddNode(): cudaErrorNotSupported
cudaFree((void *)0x123): cudaErrorInvalidValue
cudaFree(NULL): cudaSuccess
12345: unrecognized error code
CUDA driver version is insufficient for CUDA runtime version
cudaGetDriverEntryPointByVersion(\"cuMemCreate\", &entry, 12000, 0, &found): cudaSuccess
cuMemCreate: 1, answer 0
cudaGetDriverEntryPointByVersion(\"cuNoSuch\", &entry, 12000, 0, &found): cudaSuccess
";

#[test]
fn a_program_of_the_runtime_computes_and_is_counted_the_same_alone_and_under_pillion() {
    expect_computes_and_is_counted(Cuda::V13);
}

#[test]
fn so_does_a_program_of_the_runtime_of_cuda_12() {
    expect_computes_and_is_counted(Cuda::V12);
}

fn expect_computes_and_is_counted(cuda: Cuda) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let program = Program::Runtime("runtime", cuda);
    let alone = gpu.job("alone", program).run().expect_success();
    let (said, _) = alone.output.split_once("launches=").expect("its counts");
    assert_eq!(said, OUTPUT);
    for label in ["high-priority", "best-effort"] {
        let job = gpu.job(label, program);
        let ended = match label {
            "high-priority" => job.high_priority(&daemon),
            _ => job.best_effort(&daemon),
        }
        .run()
        .expect_success();
        assert_eq!(ended.output, alone.output, "{label}");
        gpu.expect_equal_counts(label, &ended, &daemon);
        let (totals, device) = (daemon.totals(label), gpu.counts(label));
        assert_eq!(device["graph_launches"], 3, "{device:#}");
        assert_eq!(
            totals["graph_launches"], device["graph_launches"],
            "{totals:#}"
        );
        assert_eq!(
            totals["allocated_bytes"], device["allocated_bytes"],
            "{totals:#}"
        );
    }
}

/// The output of `runtime_forms.c` before its last line.
const FORMS: &str = "\
the header's release: 1
type 2, device 0, the same address: 1, 0 bytes written past the end
after 1, then after 0
3 nodes: 2 first, 1 after one
a node by hand: cudaErrorNotSupported
";

fn expect_forms(cuda: Cuda, own: &str) {
    tools::cuda_headers(cuda);
    let gpu = Gpu::start("mps");
    let program = Program::WithHeaders("runtime_forms", cuda);
    let ended = gpu.job("forms", program).run().expect_success();
    assert_eq!(ended.output, format!("{FORMS}{own}"));
}

#[test]
fn what_cuda_12_has_in_a_form_of_its_own_is_called_as_its_headers_declare_it() {
    expect_forms(
        Cuda::V12,
        "cudaGraphDebugDotPrint(graph, \"graph.dot\", 0): cudaErrorNotSupported\ndrawn: 0\n\
         initialised: 1, a broken one: 0, cuMemCreate: 1, answer 0\n",
    );
}

#[test]
fn what_cuda_13_has_in_a_form_of_its_own_is_called_as_its_headers_declare_it() {
    expect_forms(Cuda::V13, "nothing of its own\n");
}

fn expect_fields(cuda: Cuda, fields: u32) {
    tools::cuda_headers(cuda);
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("libcuda.so.1");
    symlink(Program::Library("numbering_driver").path(), driver).unwrap();
    let mut command = Command::new(Program::WithHeaders("runtime_fields", cuda).path());
    command.env("LD_LIBRARY_PATH", folder.path());
    let ended = collect(command).expect_success();
    let wanted = format!(
        "numbers, abcd, 20 GiB\n{fields} fields are right, 0 bytes written past the end, 0 reserved\n"
    );
    assert_eq!(ended.output, wanted);
}

#[test]
fn every_field_of_a_devices_properties_is_the_one_that_the_header_of_cuda_12_names() {
    expect_fields(Cuda::V12, FIELDS + 8);
}

#[test]
fn every_field_of_a_devices_properties_is_the_one_that_the_header_of_cuda_13_names() {
    expect_fields(Cuda::V13, FIELDS + 7);
}

/// Each function that the runtime exports is declared, except those that the header renames.
fn expect_declared(cuda: Cuda, renamed: &[&str]) {
    /// Of a header that comes in another package.
    const PROFILER: [&str; 2] = ["cudaProfilerStart", "cudaProfilerStop"];
    let [folder, _] = tools::cuda_headers(cuda);
    let header = std::fs::read_to_string(folder.join("cuda_runtime_api.h")).unwrap();
    let [runtime, ..] = runtime_libraries(cuda);
    let symbols = Command::new("readelf")
        .args(["-W", "--dyn-syms"])
        .arg(runtime)
        .output()
        .expect("binutils are installed");
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let exported: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains(" FUNC ") && !line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().nth(7)?.split('@').next())
        .filter(|name| name.starts_with("cuda") && !PROFILER.contains(name))
        .collect();
    assert!(exported.len() > 80, "{exported:?}");
    let unknown: Vec<_> = exported
        .into_iter()
        .filter(|name| !header.contains(&format!(" {name}(")))
        .collect();
    assert!(
        unknown.iter().all(|name| renamed.contains(name)),
        "{unknown:?}"
    );
}

#[test]
fn what_the_runtime_exports_is_declared_by_the_header_of_cuda_12() {
    // The header renames to this one, whose structure is that of CUDA 12.
    expect_declared(Cuda::V12, &["cudaGetDeviceProperties_v2"]);
}

#[test]
fn what_the_runtime_exports_is_declared_by_the_header_of_cuda_13() {
    expect_declared(Cuda::V13, &[]);
}

#[test]
fn without_a_driver_the_runtime_says_that_the_driver_is_insufficient() {
    let gpu = Gpu::start("mps");
    let mut command = gpu.command(Program::Runtime("runtime", Cuda::V13).path());
    // Found first, and not a library: so the test also works on a machine with a driver.
    std::fs::write(gpu.path("libcuda.so.1"), "").unwrap();
    command.env("LD_LIBRARY_PATH", gpu.path(""));
    let ended = collect(command);
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let first = ended.output.lines().next();
    assert_eq!(
        first,
        Some(
            "cudaGetDeviceCount(&count): cudaErrorInsufficientDriver (CUDA driver version is insufficient for CUDA \
             runtime version)"
        )
    );
}

/// A program linked with NVIDIA's library asks the dynamic linker for its version nodes.
#[test]
fn the_stand_ins_have_the_version_nodes_of_nvidias_libraries() {
    for library in Cuda::ALL.into_iter().flat_map(runtime_libraries) {
        let name = library.file_name().expect("a file").to_string_lossy();
        let shown = Command::new("readelf")
            .args(["-W", "--version-info", "--dynamic"])
            .arg(&library)
            .output()
            .expect("binutils are installed");
        let shown = String::from_utf8_lossy(&shown.stdout);
        assert!(
            shown.contains(&format!("Library soname: [{name}]")),
            "{shown}"
        );
        assert!(shown.contains(&format!("Name: {name}")), "{shown}");
        // Nothing uses NVIDIA's private table.
        let text = std::fs::read(&library).unwrap();
        assert!(!text.windows(16).any(|bytes| bytes == b"cuGetExportTable"));
    }
}
