//! The stand-in for NVML: third-party tools' view of the software GPU against the server's
//! statistics and the programs' activity.

use std::process::Command;

use serde_json::{Value, json};

use crate::common::{Gpu, Process, Program, collect, tools, until};

const BUSY_MIB: u64 = 64;
const RESTING_MIB: u64 = 3;
const MIB: u64 = 1 << 20;

fn busy(gpu: &Gpu) -> Process {
    let job = gpu.job("busy", "load").args(&[&BUSY_MIB.to_string()]);
    job.start_until("round")
}

fn resting(gpu: &Gpu) -> Process {
    let job = gpu.job("resting", "load");
    let mut process = job.args(&[&RESTING_MIB.to_string(), "rest"]).start();
    process.wait_for("ready", 1);
    process
}

fn python(gpu: &Gpu, module: &str) -> Command {
    let interpreter = tools::python(&[module]);
    let mut command = gpu.command(interpreter);
    // A run leaves nothing in a home folder.
    command.arg("-B").env("HOME", gpu.path(""));
    command
}

fn monitor(mut command: Command) -> Value {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    command.arg(folder.join("monitor.py"));
    let ended = collect(command).expect_success();
    serde_json::from_str(&ended.output).expect("one JSON document")
}

#[test]
fn wrong_arguments_and_a_wrong_order_are_answered_as_the_reference_says() {
    let gpu = Gpu::start("timeslice");
    let resting = resting(&gpu);
    let bytes = RESTING_MIB * MIB;
    assert_eq!(gpu.stats()["memory"]["used_bytes"], bytes);
    let program = gpu.job("monitor", Program::Unlinked("nvml"));
    let program = program.args(&[&resting.pid().to_string(), &bytes.to_string()]);
    let ended = program.run();
    assert_eq!((ended.code(), &*ended.output), (0, "right\n"), "{ended:#?}");
    // A monitor is no client of the device.
    assert_eq!(gpu.counts("monitor"), Value::Null);
}

/// The constant values of a V100, and those that it never has.
fn expect_a_v100(said: &Value, stats: &Value) {
    let v100 = softgpu::Device::by_name("V100-SXM2-16GB").unwrap();
    let absent = json!("Not Supported");
    for (key, expected) in [
        ("name", &stats["device"]),
        ("uuid", &stats["uuid"]),
        ("pci", &json!(["00000000:01:00.0", "0000:01:00.0", 0, 1, 0])),
        ("minor", &json!(0)),
        ("capability", &json!([7, 0])),
        ("architecture", &json!(5)),
        ("cores", &json!(5120)),
        ("sm_mhz", &json!(v100.max_clock_mhz)),
        ("memory_mhz", &json!(v100.memory_clock_khz() / 1000)),
        ("limit_mw", &json!(300_000)),
        ("temperature", &absent),
        ("power", &absent),
        ("ecc", &json!([1, 1])),
        ("mig", &absent),
        ("field", &json!(3)),
        ("graphics", &json!([])),
    ] {
        assert_eq!(&said[key], expected, "{key} in {said:#}");
    }
}

fn expect_memory(said: &Value, stats: &Value, holders: &mut [(u32, u64)]) {
    let total = stats["memory"]["total_bytes"].as_u64().unwrap();
    let used: u64 = holders.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(stats["memory"]["used_bytes"], used);
    for memory in ["memory", "memory_v2"] {
        let said = &said[memory];
        let parts = (&said["total"], &said["used"], &said["free"]);
        assert_eq!(parts, (&json!(total), &json!(used), &json!(total - used)));
    }
    holders.sort_unstable();
    assert_eq!(
        (&said["compute"], &said["mps"]),
        (&json!(holders), &json!(holders))
    );
}

#[test]
fn nvidia_ml_py_says_what_the_device_server_says() {
    let gpu = Gpu::start("mps");
    let ask = || monitor(python(&gpu, "pynvml"));
    let is_percent = |value: &Value| {
        value
            .as_u64()
            .is_some_and(|value| (1..=100).contains(&value))
    };
    let idle = &ask()["devices"][0];
    assert_eq!(idle["utilisation"], json!([0, 0]));
    assert_eq!(
        (&idle["compute"], &idle["samples"]),
        (&json!([]), &json!("Not Found"))
    );

    let (resting, busy) = (resting(&gpu), busy(&gpu));
    let rests = (resting.pid(), RESTING_MIB * MIB);
    // On a busy machine the program may get no processor during the device's whole averaging time.
    let document = until("the load in the utilisation", || {
        let document = ask();
        let said = &document["devices"][0];
        let samples = said["samples"].as_object()?;
        let is_seen = is_percent(&said["utilisation"][0]) && samples.values().all(is_percent);
        is_seen.then_some(document)
    });
    let stats = gpu.stats();
    assert_eq!(document["before"], "Uninitialized");
    assert_eq!(document["after"], "Uninitialized");
    assert_eq!(document["cuda"], softgpu::CUDA_VERSION);
    let said = &document["devices"][0];
    expect_a_v100(said, &stats);
    expect_memory(said, &stats, &mut [rests, (busy.pid(), BUSY_MIB * MIB)]);
    let samples = said["samples"].as_object().expect("samples");
    assert_eq!(
        samples.keys().collect::<Vec<_>>(),
        [&busy.pid().to_string()]
    );
    until("a period under load in the history", || {
        let document = ask();
        let history = document["devices"][0]["history"].as_array()?;
        history.iter().any(is_percent).then_some(())
    });

    busy.finish().expect_success();
    until("the end of the load in the utilisation", || {
        ask()["devices"][0]["utilisation"] == json!([0, 0])
    });
    expect_memory(&ask()["devices"][0], &gpu.stats(), &mut [rests]);
}

#[test]
fn all_devices_are_seen_whatever_cuda_is_told_to_see() {
    let gpus = [
        Gpu::start("mps"),
        Gpu::start_device("A100-SXM4-40GB", "timeslice"),
    ];
    let mut command = python(&gpus[0], "pynvml");
    let sockets = std::env::join_paths(gpus.iter().map(Gpu::socket)).unwrap();
    command
        .env("SOFTGPU_SOCKET", sockets)
        .env("CUDA_VISIBLE_DEVICES", "1");
    let document = monitor(command);
    let said: Vec<_> = document["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|said| (&said["uuid"], &said["pci"][0], &said["mig"]))
        .collect();
    let uuids = gpus.each_ref().map(|gpu| gpu.stats()["uuid"].clone());
    let pci = ["00000000:01:00.0", "00000000:02:00.0"].map(Value::from);
    // A V100 cannot be divided, an A100 could be and is not.
    let mig = [json!("Not Supported"), json!([0, 0])];
    assert_eq!(
        said,
        [(&uuids[0], &pci[0], &mig[0]), (&uuids[1], &pci[1], &mig[1])]
    );
}

#[test]
fn without_a_device_server_the_driver_is_not_loaded() {
    let gpu = Gpu::start("mps");
    let mut command = python(&gpu, "pynvml");
    command.env("SOFTGPU_SOCKET", "/nonexistent");
    command.args(["-c", "import pynvml\npynvml.nvmlInit()"]);
    let ended = collect(command).expect_errors(&["/nonexistent", "Driver Not Loaded"]);
    assert_ne!(ended.code(), 0);
}

#[test]
fn gpustat_shows_the_software_gpu() {
    let gpu = Gpu::start("timeslice");
    let busy = busy(&gpu);
    let document = until("the load in the utilisation", || {
        let mut command = python(&gpu, "gpustat");
        command.args(["-m", "gpustat", "--json"]);
        let ended = collect(command).expect_success();
        let document: Value = serde_json::from_str(&ended.output).expect("one JSON document");
        let percent = document["gpus"][0]["utilization.gpu"].as_u64();
        (percent > Some(0)).then_some(document)
    });
    let said = &document["gpus"][0];
    assert_eq!(said["name"], "V100-SXM2-16GB");
    assert_eq!(said["uuid"], gpu.stats()["uuid"]);
    assert_eq!(
        (&said["memory.used"], &said["memory.total"]),
        (&json!(BUSY_MIB), &json!(16384))
    );
    assert_eq!(said["temperature.gpu"], Value::Null);
    let process = &said["processes"][0];
    assert_eq!(process["pid"], busy.pid());
    assert_eq!(process["gpu_memory_usage"], BUSY_MIB);
}

#[test]
fn nvitop_shows_the_software_gpu() {
    let gpu = Gpu::start("mps");
    let mut command = python(&gpu, "nvitop");
    let busy = busy(&gpu);
    command.args(["-m", "nvitop", "--once", "--ascii", "--colorful"]);
    command.env("COLUMNS", "120").env("TERM", "dumb");
    let ended = collect(command).expect_success();
    let line = |part: &str| {
        let mut lines = ended.output.lines();
        lines.find(|line| line.contains(part)).map(str::to_owned)
    };
    let device = line("V100-SXM2-16GB").unwrap_or_else(|| panic!("{ended:#?}"));
    assert!(device.contains("00000000:01:00.0"), "{device}");
    assert!(line("64.00MiB / 16384MiB").is_some(), "{}", ended.output);
    let process = line(&format!(" {} ", busy.pid())).unwrap_or_else(|| panic!("{ended:#?}"));
    assert!(process.contains("64.00MiB"), "{process}");
}

/// The process to find, for the part of a test that runs as a monitor.
const FIND: &str = "PILLION_TEST_FIND";

/// The crate loads the library into its own process, so the test starts itself again.
#[test]
fn nvml_wrapper_shows_the_software_gpu() {
    if let Some(pid) = std::env::var_os(FIND) {
        let pid = pid.to_string_lossy().parse().expect("a process id");
        return find_by_nvml_wrapper(pid);
    }
    let gpu = Gpu::start("timeslice");
    let resting = resting(&gpu);
    // Not by its path, where another build may be by now.
    let mut command = gpu.command("/proc/self/exe");
    command
        .args(["--exact", "nvml::nvml_wrapper_shows_the_software_gpu"])
        .arg("--nocapture")
        .env(FIND, resting.pid().to_string());
    let ended = collect(command).expect_success();
    let stats = gpu.stats();
    let uuid = stats["uuid"].as_str().unwrap();
    assert!(
        ended.output.contains(&format!("found {uuid}")),
        "{ended:#?}"
    );
}

/// A monitor's queries in Rust: identity, memory, clocks, utilisation, memory by process.
fn find_by_nvml_wrapper(pid: u32) {
    use nvml_wrapper::Nvml;
    use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
    use nvml_wrapper::enums::device::UsedGpuMemory;
    use nvml_wrapper::error::NvmlError;

    let nvml = Nvml::init().expect("the library is found as any program finds it");
    assert_eq!(
        nvml.sys_cuda_driver_version().unwrap(),
        softgpu::CUDA_VERSION
    );
    assert_eq!(nvml.device_count().unwrap(), 1);
    let device = nvml.device_by_index(0).unwrap();
    let v100 = softgpu::Device::by_name("V100-SXM2-16GB").unwrap();
    assert_eq!(device.name().unwrap(), v100.name);
    assert_eq!(device.clock_info(Clock::SM).unwrap(), v100.max_clock_mhz);
    let memory = device.memory_info().unwrap();
    assert_eq!(memory.used, RESTING_MIB * MIB);
    assert_eq!(memory.total, memory.used + memory.free);
    assert_eq!(device.utilization_rates().unwrap().gpu, 0);
    let processes = device.running_compute_processes().unwrap();
    let [process] = &processes[..] else {
        panic!("{processes:?}")
    };
    assert_eq!(process.pid, pid);
    let UsedGpuMemory::Used(bytes) = process.used_gpu_memory else {
        panic!("{process:?}")
    };
    assert_eq!(bytes, RESTING_MIB * MIB);
    let temperature = device.temperature(TemperatureSensor::Gpu);
    assert!(
        matches!(temperature, Err(NvmlError::NotSupported)),
        "{temperature:?}"
    );
    println!("found {}", device.uuid().unwrap());
}
