//! Time and memory of imports, on generated files. `cargo bench -p pillion-import` measures a 100
//! 000-launch export of Nsight Systems and a 35 MB trace of PyTorch; `-- --large` adds a trace of 1
//! GB. Each import runs in its own process, so that its peak memory is its own.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::Command;

use import::{Context, Limits, Options};
use protocol::clock::Clock;
use rusqlite::Connection;

const LAUNCHES: u32 = 100_000;
const TRACE_BYTES: u64 = 35 << 20;
const LARGE_TRACE_BYTES: u64 = 1 << 30;
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, path] = &arguments[..]
        && command == "--import"
    {
        import_one(Path::new(path));
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let export = folder.path().join("export.sqlite");
    write_export(&export).expect("room for an export");
    measure("nsys SQLite, 100 000 launches", &export, ROUNDS);
    let trace = folder.path().join("trace.json");
    write_trace(&trace, TRACE_BYTES).expect("room for a trace");
    measure("PyTorch trace, 35 MB", &trace, ROUNDS);
    if arguments.iter().any(|argument| argument == "--large") {
        write_trace(&trace, LARGE_TRACE_BYTES).expect("room for a trace");
        measure("PyTorch trace, 1 GB", &trace, 1);
    }
}

fn measure(name: &str, path: &Path, rounds: usize) {
    let mut results = Vec::new();
    for _ in 0..rounds {
        let program = std::env::current_exe().expect("this program has a path");
        let output = Command::new(program)
            .arg("--import")
            .arg(path)
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers = text
            .split_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        results.push((
            numbers.next().expect("a time"),
            numbers.next().expect("a size"),
            numbers.next().expect("a count"),
        ));
    }
    let least_us = results.iter().map(|&(us, ..)| us).min().unwrap_or(0);
    let most_kib = results.iter().map(|&(_, kib, _)| kib).max().unwrap_or(0);
    let launches = results.first().map_or(0, |&(.., launches)| launches);
    println!(
        "{name}: {:.3} s (least of {rounds}), {} MiB at most, {launches} launches, file {} MB",
        least_us as f64 / 1e6,
        most_kib / 1024,
        fs::metadata(path).map_or(0, |metadata| metadata.len()) / 1_000_000,
    );
}

fn import_one(path: &Path) {
    let clock = Clock::monotonic();
    let begun_ns = clock.now_ns();
    let mut context = Context {
        limits: Limits::default(),
        progress: &mut |_, _| {},
    };
    let source = import::read(path, &mut context).expect("a right file");
    let launches = source.launches.len();
    let profile = import::reduce(&[source], &Options::default()).expect("one GPU");
    let bytes = profile.write().len();
    let us = (clock.now_ns() - begun_ns) / 1000;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak
        .and_then(|peak| peak.split_whitespace().next())
        .unwrap_or("0");
    println!("{us} {kib} {launches} {bytes}");
}

fn write_export(path: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;
         CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
         CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA A100-SXM4-80GB', 108, 8, 0);
         CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, text TEXT);
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER);
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER,
            gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
            staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, sharedMemoryExecuted INTEGER);",
    )?;
    {
        let mut string = connection.prepare("INSERT INTO StringIds VALUES (?1, ?2)")?;
        for n in 0..50_000 {
            string.execute((n, format!("void library::kernel_{n}<float, (int){n}, library::policy<(bool)0>>(const float *, float *, int)")))?;
        }
        let mut kernel = connection.prepare("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, 0, 7, ?3, 0, ?4, ?4, 64, ?5, 1, 1, 256, 1, 1, 0, 8192, 102400)")?;
        let mut call =
            connection.prepare("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, 7, ?3)")?;
        let mut range =
            connection.prepare("INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, 7, 'step')")?;
        for n in 0..LAUNCHES {
            let start = i64::from(n) * 20_000 + i64::from(n / 200) * 500_000;
            kernel.execute((start, start + 15_000, n, n % 100, 1 + n % 500))?;
            call.execute((start - 5_000, start - 2_000, n))?;
            if n.is_multiple_of(200) {
                range.execute((start - 6_000, start + 4_000_000))?;
            }
        }
    }
    connection.execute_batch("COMMIT")
}

/// A trace of at least `bytes`, in which, as in real ones, most events are not kernels.
fn write_trace(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut write = |text: &str| file.write_all(text.as_bytes());
    write(
        "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA A100-SXM4-80GB\", \"computeMajor\": 8, \"computeMinor\": 0, \"numSms\": 108}], \"traceEvents\": [\n",
    )?;
    let mut n = 0u64;
    let mut total = 0u64;
    while total < bytes {
        let at = 1_400_000_000_000.0 + n as f64 * 20.25;
        let event = match n % 4 {
            0 => format!(
                "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void library::kernel_{}<float, 4>(float const*, float*)\", \"pid\": 0, \"tid\": 7, \"ts\": {at}, \"dur\": 12.5, \"args\": {{\"External id\": {n}, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": {n}, \"registers per thread\": 64, \"shared memory\": 8192, \"blocks per SM\": 0.5, \"warps per SM\": 4.0, \"grid\": [{}, 1, 1], \"block\": [256, 1, 1], \"est. achieved occupancy %\": 6}}}},\n",
                n % 97,
                1 + n % 500
            ),
            1 => format!(
                "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 1, \"ts\": {at}, \"dur\": 5.5, \"args\": {{\"External id\": {0}, \"cbid\": 211, \"correlation\": {0}}}}},\n",
                n - 1
            ),
            2 => format!(
                "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, \"ts\": {at}, \"dur\": 15.5, \"args\": {{\"External id\": {}, \"Input Dims\": [[64, 1024], [1024, 1024]], \"Input type\": [\"float\", \"float\"], \"Ev Idx\": {n}}}}},\n",
                n - 2
            ),
            _ => format!(
                "{{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"torch/nn/modules/module.py({n}): _call_impl\", \"pid\": 1, \"tid\": 1, \"ts\": {at}, \"dur\": 100.25, \"args\": {{\"Python parent id\": {n}, \"Python id\": {n}, \"Ev Idx\": {n}, \"Call stack\": \"{}\"}}}},\n",
                "train.py(10): <module>;".repeat(20)
            ),
        };
        write(&event)?;
        total += event.len() as u64;
        n += 1;
    }
    write("{\"ph\": \"i\", \"name\": \"end\"}]}\n")?;
    file.flush()
}
