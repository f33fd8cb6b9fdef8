//! Every reader on randomly broken files: read or refused in one line, without a panic, and with a
//! profile that reads back. `fuzzing`, also of the daemon's readers, has mutations, seeds, times.

mod fuzzing;

use std::fs;
use std::path::Path;

use fuzzing::finds;
use import::{Context, Limits, Options};
use profiler::Profile;
use rusqlite::Connection;
use tempfile::TempDir;

const WORDS: [&[u8]; 20] = [
    b"\"",
    b",",
    b"\n",
    b"\r\n",
    b"{",
    b"}",
    b"[",
    b"]",
    b"NaN",
    b"-",
    b"1e999",
    b"\\u0000",
    b"\xff\xfe",
    b"==ERROR== x\n",
    b"\"ID\",",
    b"(1, 1, 1)",
    b"99999999999999999999",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"Time (%),",
];

fn read(bytes: &[u8], folder: &TempDir) {
    let path = folder.path().join("file");
    fs::write(&path, bytes).expect("room");
    let mut context = Context {
        limits: Limits {
            bytes_max: 64 << 20,
        },
        progress: &mut |_, _| {},
    };
    let copy = folder.path().join("copy");
    if let Err(error) = import::scrub(&path, &copy, &mut context) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let _ = fs::remove_file(copy);
    let source = match import::read(&path, &mut context) {
        Ok(source) => source,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    match import::reduce(&[source], &Options::default()) {
        Ok(profile) => {
            let text = profile.write();
            let again = Profile::parse(&text, Path::new("written"));
            assert_eq!(
                again.as_ref().ok(),
                Some(&profile),
                "{:?}\n{text}",
                again.as_ref().err()
            );
            let _ = (import::check(&profile), import::roofline(&profile));
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

fn try_broken(name: &str, seed_file: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let corpus = [seed_file.to_vec()];
    fuzzing::try_broken(name, &corpus, &WORDS, |bytes, _| read(bytes, &folder));
}

#[test]
fn what_failed_once_never_does_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (_, bytes) in finds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/finds")) {
        read(&bytes, &folder);
    }
}

#[test]
fn exports_of_nsight_systems() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("seed.sqlite");
    let connection = Connection::open(&path).expect("a new database");
    let mut statements = "PRAGMA page_size = 512; BEGIN;
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        INSERT INTO StringIds VALUES (1, 'void f<int>(int *)'), (2, 'f'), (4, 'step');
        CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER);
        INSERT INTO TARGET_INFO_GPU VALUES (0, 'Tesla T4', 40, 7, 5);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, textId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, globalTid INTEGER, correlationId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, correlationId INTEGER,
            globalPid INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER, gridX INTEGER,
            gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,
            dynamicSharedMemory INTEGER, sharedMemoryExecuted INTEGER);"
        .to_owned();
    for n in 0..20 {
        statements += &format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({0}, {0} + 900, 0, {1}, 0, 1, 2, 32, {2}, 1, 1, 256, 1, 1, 0, 0, 32768);
             INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({0} - 50, 7, {1}); INSERT INTO NVTX_EVENTS VALUES ({0} - 60, {0}, 59, 7, 4);",
            n * 100_000,
            n,
            1 + n % 3,
        );
    }
    connection
        .execute_batch(&(statements + "COMMIT;"))
        .expect("right statements");
    drop(connection);
    try_broken("nsys-sqlite", &fs::read(&path).expect("there"));
}

#[test]
fn csv_of_nsight_compute() {
    let header = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",";
    let launch = |id: u32| {
        format!(
            "\"{id}\",\"7\",\"p\",\"h\",\"void f<int>(int *)\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"8.0\","
        )
    };
    let mut long = format!(
        "==PROF== Connected\n{header}\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
    );
    for (metric, unit, value) in [
        ("Duration", "usecond", "1,234.50"),
        ("Compute (SM) Throughput", "%", "88.25"),
        ("DRAM Throughput", "%", "12.50"),
        ("Registers Per Thread", "register/thread", "64"),
        ("Shared Memory Configuration Size", "Kbyte", "32.77"),
    ] {
        long += &format!("{}\"s\",\"{metric}\",\"{unit}\",\"{value}\"\n", launch(0));
    }
    try_broken("ncu-details", long.as_bytes());
    let wide = format!(
        "{header}\"gpu__time_duration.sum\",\"launch__registers_per_thread\",\"device__attribute_display_name\"\n\
         {},\"nsecond\",\"register/thread\",\"\"\n{}\"1234\",\"32\",\"Tesla T4\"\n",
        ["\"\""; 11].join(","),
        launch(0),
    );
    try_broken("ncu-raw", wide.as_bytes());
}

fn field(number: u64, value: &[u8]) -> Vec<u8> {
    [
        varint(number << 3 | 2),
        varint(value.len() as u64),
        value.to_vec(),
    ]
    .concat()
}

fn whole(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

fn message(bytes: &[u8]) -> Vec<u8> {
    [(bytes.len() as u32).to_le_bytes().to_vec(), bytes.to_vec()].concat()
}

fn report(metrics: &[(&str, f64)]) -> Vec<u8> {
    let shape = [whole(1, 640), whole(2, 1), whole(3, 1)].concat();
    let block = [whole(1, 256), whole(2, 1), whole(3, 1)].concat();
    let mut result = [
        field(5, b"_Z1fPi"),
        field(6, b"f"),
        field(7, b"f(int *)"),
        field(10, &shape),
        field(11, &block),
    ]
    .concat();
    let mut strings = Vec::new();
    for (index, (name, value)) in metrics.iter().enumerate() {
        let bits = [varint(3 << 3 | 1), value.to_le_bytes().to_vec()].concat();
        result.extend(field(
            13,
            &[whole(1, index as u64), field(2, &bits)].concat(),
        ));
        strings.extend(field(1, name.as_bytes()));
    }
    let payload = message(&result);
    let results = [whole(2, 1), whole(5, payload.len() as u64)].concat();
    [
        b"NVR\0".to_vec(),
        message(&whole(1, 7)),
        message(&results),
        payload,
        message(&field(4, &strings)),
    ]
    .concat()
}

#[test]
fn reports_of_nsight_compute() {
    let metrics = [
        ("gpu__time_duration.sum", 12_500.0),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 70.5),
        (
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
            20.0,
        ),
        ("launch__registers_per_thread", 32.0),
        ("device__attribute_multiprocessor_count", 108.0),
    ];
    let seed = report(&metrics);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("seed");
    fs::write(&path, &seed).expect("room");
    let mut context = Context {
        limits: Limits::default(),
        progress: &mut |_, _| {},
    };
    let source = import::read(&path, &mut context).expect("a whole report");
    assert_eq!(source.launches[0].duration_ns, Some(12_500));
    assert_eq!(source.kernels[0].names.mangled.as_deref(), Some("_Z1fPi"));
    try_broken("ncu-rep", &seed);
}

#[test]
fn traces_of_pytorch() {
    let kernel = r#"{"ph": "X", "cat": "kernel", "name": "void f<float>(float*)", "pid": 0, "tid": 7, "ts": 100.5, "dur": 2.25, "args": {"External id": 3, "device": 0, "stream": 7, "correlation": 9, "registers per thread": 32, "shared memory": 4096, "grid": [80, 1, 1], "block": [256, 1, 1]}}"#;
    let rest = r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "args": {"External id": 3, "Input Dims": [[16, 64], [64, 32]], "Input type": ["float", "float"]}}, {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 2, "ts": 90, "dur": 100}, {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 95, "args": {"correlation": 9}}"#;
    let text = format!(
        "{{\"deviceProperties\": [{{\"id\": 0, \"name\": \"Tesla T4\", \"computeMajor\": 7, \"computeMinor\": 5, \"numSms\": 40}}], \"traceEvents\": [{kernel}, {rest}, {kernel}]}}"
    );
    try_broken("trace", text.as_bytes());
}

#[test]
fn reports_of_nsys_stats() {
    let text = "Processing [x.sqlite] with [y.py]...\nTime (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name\n\
        95.0,1074732935,432,2487807.7,2484200.0,2404201,2591941,33111.6,1024    1   40, 128    1    1,\"void f<int, (bool)0>(int *)\"\n\n\
        Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Device,Ctx,Strm,Name\n\
        15057495,1312,4706,64,1,1,128,1,1,16,0.000,0.005,Tesla T4 (0),1,7,g\n15227667,2434185,4716,None,None,None,None,None,None,None,None,None,Tesla T4 (0),1,7,[CUDA memcpy HtoD]\n";
    try_broken("nsys-stats", text.as_bytes());
}

#[test]
fn profiles_and_files_of_orion() {
    try_broken("orion", b"Name,Profile,Memory_footprint,SM_usage,Duration\nConv,1,0,98,100480\nBatchNorm,0,0,64,40480\n");
    let profile = "format = \"pillion-profile\"\nversion = 2\ngpu = \"T4\"\nsources = [\"a\"]\n\n[requests]\ngap_ns = 5\ncount = 2\n\
        latency_ns = { sum = 9, median = 3, p95 = 6 }\nsame_order = 1\norder = [[0, 2]]\n\n[[kernel]]\nname = \"f\"\ngrid = [1, 1, 1]\n\
        block = [32, 1, 1]\nshared_bytes = 0\ncount = 4\nduration_ns = { sum = 400, median = 100, p95 = 110 }\nregisters = 16\n\
        sm_needed = 1\nclass = \"memory\"\nclass_rule = \"throughput\"\nblocks_per_sm = 16\ndram_pct = 61.50\nmflop_per_s = 7\nmbyte_per_s = 9\n";
    try_broken("profile", profile.as_bytes());
}
