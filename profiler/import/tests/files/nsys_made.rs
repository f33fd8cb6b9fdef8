//! Generated exports of Nsight Systems: other versions and machines, truncated and forged files.

use std::fs;
use std::path::{Path, PathBuf};

use import::{Error, Options};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::common::{import, read};

const KERNELS: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER,
    gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
    staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, sharedMemoryExecuted INTEGER);";

const GPUS: &str =
    "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, computeMajor INTEGER,
    computeMinor INTEGER, cuDevice INTEGER);";

const STRINGS: &str =
    "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    INSERT INTO StringIds VALUES (1, 'void f<int>(int *)'), (2, 'f'), (3, 'SECRET=hunter2');";

const V100: &str = "INSERT INTO TARGET_INFO_GPU VALUES (0, 'Tesla V100-SXM2-16GB', 80, 7, 0, 0);";

const GRAPHS: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1);";

fn launch(device: i64, start_ns: i64, duration_ns: i64) -> String {
    format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start_ns}, {}, {device}, 1, 7, {start_ns}, {}, 1, 2, 32,
         160, 1, 1, 256, 1, 1, 0, 0, 0);",
        start_ns + duration_ns,
        7 << 24,
    )
}

fn database(folder: &TempDir, statements: &[&str]) -> PathBuf {
    let path = folder.path().join("it is 100% é?.sqlite");
    let _ = fs::remove_file(&path);
    let connection = Connection::open(&path).expect("a new database");
    let statements = statements.concat();
    connection
        .execute_batch(&format!("BEGIN;{statements}COMMIT;"))
        .expect("right statements");
    path
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn refused(path: &Path) -> String {
    let error = import(path).expect_err("nothing to import");
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    text
}

#[test]
fn quantiles_leave_outliers_out_and_sums_do_not() {
    let folder = folder();
    let mut launches: Vec<String> = (0..20).map(|n| launch(0, n * 1000, 100 + n)).collect();
    launches.push(launch(0, 100_000, 50_000));
    let path = database(&folder, &[STRINGS, KERNELS, GPUS, V100, &launches.concat()]);
    let profile = import(&path).expect("whole");
    let [kernel] = &profile.kernels[..] else {
        panic!("one kernel")
    };
    assert_eq!((kernel.count, kernel.evidence.outliers), (21, Some(1)));
    assert_eq!(kernel.durations.sum_ns, 2_190 + 50_000);
    assert_eq!(
        (kernel.durations.median_ns, kernel.durations.p95_ns),
        (109, 118)
    );
    assert_eq!(
        (kernel.sm_needed, kernel.evidence.blocks_per_sm),
        (20, Some(8))
    );
    assert_eq!(profile.gpu, "V100-SXM2-16GB");
    assert!(!profile.write().contains("hunter2"));
}

#[test]
fn reading_leaves_no_trace_beside_the_file() {
    let folder = folder();
    let path = database(&folder, &[STRINGS, KERNELS, GPUS, V100, &launch(0, 0, 5)]);
    let before = fs::read(&path).expect("there");
    import(&path).expect("whole");
    assert_eq!(fs::read(&path).expect("there"), before);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
}

#[test]
fn a_share_of_a_gpu_is_said_and_used() {
    let folder = folder();
    let v100 = V100.replace(" 80,", " 16,");
    let path = database(&folder, &[STRINGS, KERNELS, GPUS, &v100, &launch(0, 0, 5)]);
    let profile = import(&path).expect("whole");
    let [notice] = &profile.notices[..] else {
        panic!("{:?}", profile.notices)
    };
    assert!(
        notice.contains("16 SMs") && notice.contains("has 80"),
        "{notice}"
    );
    assert_eq!(profile.measured.and_then(|measured| measured.sms), Some(16));
}

#[test]
fn launches_on_two_models_need_a_choice() {
    let folder = folder();
    let a100 = "INSERT INTO TARGET_INFO_GPU VALUES (1, 'NVIDIA A100-SXM4-40GB', 108, 8, 0, 1);";
    // CUDA's number 0 is the second GPU of the machine in this process.
    let mapping =
        "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
         INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, 7), (0, 1, 7);";
    let launches = [launch(0, 0, 5), launch(1, 10, 7), launch(0, 20, 5)].concat();
    let path = database(
        &folder,
        &[STRINGS, KERNELS, GPUS, V100, a100, mapping, &launches],
    );
    let source = read(&path).expect("whole");
    let of = |device: Option<&str>| {
        let device = device.map(str::to_owned);
        import::reduce(
            std::slice::from_ref(&source),
            &Options {
                device,
                ..Options::default()
            },
        )
    };
    let error = of(None).expect_err("two models");
    assert!(matches!(error, Error::SeveralGpus { .. }), "{error}");
    let expected = "A100-SXM4-40GB, V100-SXM2-16GB; choose one with --device";
    assert!(error.to_string().contains(expected), "{error}");
    for (device, count) in [("A100-SXM4-40GB", 2), ("v100-sxm2-16gb", 1)] {
        let profile = of(Some(device)).expect("a choice");
        assert_eq!(profile.kernels[0].count, count, "{device}");
    }
    let error = of(Some("T4")).expect_err("not there");
    assert!(matches!(error, Error::OtherGpu { .. }), "{error}");
    let error = of(Some("V100-SXM2")).expect_err("no such model");
    assert!(error.to_string().contains("did you mean \"V100"), "{error}");
}

#[test]
fn launches_on_two_gpus_of_one_model_are_counted_together_and_that_is_said() {
    let folder = folder();
    let second = V100.replace("(0,", "(1,").replace(", 0);", ", 1);");
    let launches = [launch(0, 0, 5), launch(1, 10, 7)].concat();
    let path = database(&folder, &[STRINGS, KERNELS, GPUS, V100, &second, &launches]);
    let profile = import(&path).expect("one model");
    assert_eq!(
        (
            profile.kernels[0].count,
            profile.kernels[0].durations.sum_ns
        ),
        (2, 12)
    );
    let [notice] = &profile.notices[..] else {
        panic!("{:?}", profile.notices)
    };
    assert!(notice.contains("2 GPUs of one model"), "{notice}");
}

#[test]
fn the_table_of_gpus_of_2020_is_read() {
    let folder = folder();
    let gpus = "CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId INTEGER, name TEXT, numMultiprocessors INTEGER,
        globalMemoryBandwidth INTEGER, coreClockRate INTEGER, computeCapabilityMajor INTEGER,
        computeCapabilityMinor INTEGER);
        INSERT INTO TARGET_INFO_CUDA_GPU VALUES (0, 'Tesla T4', 40, 320064000, 1590000, 7, 5);";
    let path = database(&folder, &[STRINGS, KERNELS, gpus, &launch(0, 0, 5)]);
    let profile = import(&path).expect("whole");
    let measured = profile.measured.expect("stated");
    assert_eq!(
        (measured.bandwidth_gb_s, measured.clock_mhz),
        (Some(320), Some(1590))
    );
    assert_eq!(profile.gpu, "T4");
    assert_eq!(profile.kernels[0].evidence.blocks_per_sm, Some(4));
}

#[test]
fn reports_without_kernels_say_what_to_do() {
    let calls = "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1);";
    let ranges = "CREATE TABLE NVTX_EVENTS (start INTEGER); INSERT INTO NVTX_EVENTS VALUES (1);";
    let old = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1);";
    let folder = folder();
    for (statements, expected) in [
        (
            vec![STRINGS, GPUS, KERNELS, calls],
            "no kernels: 1 call of the CUDA API, but no activity of the GPU",
        ),
        (
            vec![STRINGS, GPUS, calls, GRAPHS],
            "--cuda-graph-trace=node",
        ),
        (
            vec![STRINGS, GPUS, ranges],
            "capture with `nsys profile --trace=cuda,nvtx`",
        ),
        (
            vec![STRINGS, GPUS],
            "no kernels: the program made no CUDA call",
        ),
        (
            vec!["CREATE TABLE t (a);"],
            "an SQLite database that Nsight Systems did not write",
        ),
        (
            vec![STRINGS, GPUS, old],
            "has no column `end`; the file is damaged",
        ),
    ] {
        let error = refused(&database(&folder, &statements));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn graphs_beside_kernels_are_said() {
    let folder = folder();
    let path = database(
        &folder,
        &[STRINGS, GPUS, V100, KERNELS, GRAPHS, &launch(0, 0, 5)],
    );
    let notices = import(&path).expect("whole").notices;
    assert!(
        notices[0].contains("1 launch of CUDA graphs is in the file"),
        "{notices:?}"
    );
}

#[test]
fn a_view_is_not_read() {
    let folder = folder();
    // It would count forever.
    let view = "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(start) AS
        (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start, start AS end FROM n;";
    let error = refused(&database(&folder, &[STRINGS, GPUS, view]));
    assert!(error.contains("no kernels"), "{error}");
}

#[test]
fn values_of_any_type_are_read_or_left_out() {
    let folder = folder();
    let odd = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
        ('x', 5, 0, 1, 7, 1, 1, 1, 2, 32, 1, 1, 1, 1, 1, 1, 0, 0, 0),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL, NULL),
        (5, 1, 0, 1, 7, 1, 1, 1, 2, 32, 1, 1, 1, 1, 1, 1, 0, 0, 0),
        (1, 5, -9, 'a', x'00', 1.5, 1, 99, 98, -1, 0, 99999999999, 1, 1, 1, 1, 9223372036854775807, 0, 0);";
    let path = database(&folder, &[STRINGS, GPUS, V100, KERNELS, odd]);
    let profile = import(&path).expect("one launch is whole");
    let [kernel] = &profile.kernels[..] else {
        panic!("one kernel")
    };
    assert_eq!(
        (kernel.name.as_str(), kernel.grid, kernel.registers),
        ("(no name)", [0; 3], 0)
    );
    let is_said = |notice: &String| notice.contains("3 of 4 launches");
    assert!(profile.notices.iter().any(is_said), "{:?}", profile.notices);
    assert!(profiler::Profile::parse(&profile.write(), &path).is_ok());
}

#[test]
fn a_cut_file_is_refused() {
    let folder = folder();
    let launches: String = (0..2000).map(|n| launch(0, n * 10, 5)).collect();
    let path = database(&folder, &[STRINGS, GPUS, V100, KERNELS, &launches]);
    let whole = fs::read(&path).expect("there");
    let cut = folder.path().join("cut.sqlite");
    let mut damaged = 0;
    for length in (0..whole.len()).step_by(whole.len() / 40) {
        fs::write(&cut, &whole[..length]).expect("room");
        match import(&cut) {
            Ok(profile) => panic!("{length} of {} bytes gave {profile:?}", whole.len()),
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    assert!(damaged > 20, "{damaged}");
}

#[test]
fn a_file_beyond_the_limit_is_refused_with_the_flag_that_raises_it() {
    let folder = folder();
    let path = database(&folder, &[STRINGS, GPUS, V100, KERNELS, &launch(0, 0, 5)]);
    let mut context = import::Context {
        limits: import::Limits { bytes_max: 100 },
        progress: &mut |_, _| {},
    };
    let error = import::read(&path, &mut context).expect_err("longer than 100 bytes");
    assert!(error.to_string().contains("--max-bytes"), "{error}");
}

fn scrub(from: &Path, to: &Path) -> Result<(), Error> {
    let mut context = import::Context {
        limits: import::Limits::default(),
        progress: &mut |_, _| {},
    };
    import::scrub(from, to, &mut context)
}

#[test]
fn a_scrubbed_copy_imports_the_same_and_holds_nothing_else() {
    let folder = folder();
    let private = "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
        INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', 'TOKEN=hunter3');
        CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
        INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2024.1'), ('EXPORT_USER', 'hunter4');";
    let statements = [STRINGS, KERNELS, GPUS, V100, private, &launch(0, 0, 5)];
    let path = database(&folder, &statements);
    let copy = folder.path().join("copy.sqlite");
    scrub(&path, &copy).expect("whole");
    let (mut from, mut to) = (import(&path).expect("whole"), import(&copy).expect("whole"));
    from.sources.clear();
    to.sources.clear();
    assert_eq!(to, from);
    assert_eq!(
        read(&copy).expect("whole").tool_version.as_deref(),
        Some("2024.1")
    );
    let bytes = fs::read(&copy).expect("there");
    let has = |word: &str| {
        bytes
            .windows(word.len())
            .any(|window| window == word.as_bytes())
    };
    assert!(has("void f<int>(int *)"));
    assert!(!has("hunter"), "something private is in the copy");
    let other = folder.path().join("other.sqlite");
    let connection = Connection::open(&other).expect("a new database");
    connection
        .execute_batch("CREATE TABLE t (a)")
        .expect("right");
    let error = scrub(&other, &folder.path().join("none.sqlite")).expect_err("no export");
    assert!(matches!(error, Error::UnknownFormat { .. }), "{error}");
}

#[test]
fn a_parquet_export_is_refused_with_the_way_out() {
    let folder = folder();
    let file = folder.path().join("CUPTI_ACTIVITY_KIND_KERNEL.parquet");
    fs::write(&file, "PAR1").expect("room");
    for path in [folder.path(), &file] {
        let error = read(path).expect_err("not read").to_string();
        assert!(
            error.contains("Parquet") && error.contains("`nsys export --type sqlite`"),
            "{error}"
        );
    }
}
