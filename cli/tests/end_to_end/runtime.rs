//! Programs of the CUDA runtime on the stand-in for it: they compute what they are to compute, their errors are the
//! runtime's, and through Pillion nothing of that changes and everything is counted.

use std::process::Command;

use crate::common::{Gpu, Program, runtime_libraries};

/// What `runtime.c` prints before its counts.
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
cudaGetDriverEntryPointByVersion(\"cuNoSuch\", &entry, 12000, 0, &found): cudaErrorSymbolNotFound
";

#[test]
fn a_program_of_the_runtime_computes_and_is_counted_the_same_alone_and_under_pillion() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
    let program = Program::Runtime("runtime");
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

#[test]
fn without_a_driver_the_runtime_says_that_the_driver_is_insufficient() {
    let gpu = Gpu::start("mps");
    let mut command = gpu.command(Program::Runtime("runtime").path());
    // Found first, and no library: so it is on a machine that has a driver, too.
    std::fs::write(gpu.path("libcuda.so.1"), "").unwrap();
    command.env("LD_LIBRARY_PATH", gpu.path(""));
    let ended = crate::common::collect(command);
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

/// A program that was linked with NVIDIA's library asks the dynamic linker for its version nodes.
#[test]
fn the_stand_ins_have_the_version_nodes_of_nvidias_libraries() {
    for library in runtime_libraries() {
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
        // NVIDIA's private table is asked of nobody.
        let text = std::fs::read(&library).unwrap();
        assert!(!text.windows(16).any(|bytes| bytes == b"cuGetExportTable"));
    }
}
