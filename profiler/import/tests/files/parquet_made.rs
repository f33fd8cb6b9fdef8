//! Parquet exports of Nsight Systems: one made here with the crate's own writer, and one that pyarrow makes of a real
//! SQLite export, read as that one is.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use tempfile::TempDir;

use crate::common::{data, import, python, read};

/// A file of one table: its columns of numbers, then those of text.
fn table(folder: &Path, name: &str, numbers: &[(&str, &[i64])], texts: &[(&str, &[&str])]) {
    let number = |(name, _): &(&str, &[i64])| format!("required int64 {name};");
    let text = |(name, _): &(&str, &[&str])| format!("required binary {name} (UTF8);");
    let columns: String = numbers
        .iter()
        .map(number)
        .chain(texts.iter().map(text))
        .collect();
    let schema = parse_message_type(&format!("message schema {{ {columns} }}")).expect("a schema");
    let file = File::create(folder.join(format!("{name}.parquet"))).expect("room");
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema), Default::default()).expect("a file");
    let mut group: SerializedRowGroupWriter<'_, File> = writer.next_row_group().expect("a group");
    for (_, values) in numbers {
        let mut column = group.next_column().expect("right").expect("one more");
        column
            .typed::<Int64Type>()
            .write_batch(values, None, None)
            .expect("room");
        column.close().expect("room");
    }
    for (_, values) in texts {
        let values: Vec<ByteArray> = values.iter().map(|&value| ByteArray::from(value)).collect();
        let mut column = group.next_column().expect("right").expect("one more");
        column
            .typed::<ByteArrayType>()
            .write_batch(&values, None, None)
            .expect("room");
        column.close().expect("room");
    }
    group.close().expect("room");
    writer.close().expect("room");
}

/// Three launches of one kernel on a T4.
fn export() -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    table(
        folder.path(),
        "CUPTI_ACTIVITY_KIND_KERNEL",
        &[
            ("start", &[100, 2_000, 4_000]),
            ("end", &[600, 2_500, 4_600]),
            ("deviceId", &[0, 0, 0]),
            ("correlationId", &[1, 2, 3]),
            ("globalPid", &[0, 0, 0]),
            ("demangledName", &[7, 7, 7]),
            ("shortName", &[8, 8, 8]),
            ("registersPerThread", &[32, 32, 32]),
            ("gridX", &[640, 640, 640]),
            ("gridY", &[1, 1, 1]),
            ("gridZ", &[1, 1, 1]),
            ("blockX", &[256, 256, 256]),
            ("blockY", &[1, 1, 1]),
            ("blockZ", &[1, 1, 1]),
            ("staticSharedMemory", &[0, 0, 0]),
            ("dynamicSharedMemory", &[0, 0, 0]),
        ],
        &[],
    );
    table(
        folder.path(),
        "StringIds",
        &[("id", &[7, 8])],
        &[("value", &["void f<int>(int *)", "f"])],
    );
    table(
        folder.path(),
        "TARGET_INFO_GPU",
        &[
            ("id", &[0]),
            ("smCount", &[40]),
            ("computeMajor", &[7]),
            ("computeMinor", &[5]),
        ],
        &[("name", &["Tesla T4"])],
    );
    folder
}

#[test]
fn a_folder_of_parquet_files_is_an_export_and_so_is_each_file_of_it() {
    let folder = export();
    let file = folder.path().join("StringIds.parquet");
    for path in [folder.path(), &file] {
        let profile = import(path).expect("an export");
        assert_eq!(profile.gpu, "T4");
        let kernel = &profile.kernels[0];
        assert_eq!((&*kernel.name, kernel.count), ("void f<int>(int *)", 3));
        assert_eq!(
            (kernel.durations.sum_ns, kernel.durations.median_ns),
            (1_600, 500)
        );
        assert_eq!(
            (kernel.grid, kernel.evidence.blocks_per_sm),
            ([640, 1, 1], Some(4))
        );
    }
}

#[test]
fn a_cut_or_changed_file_is_refused_or_read_and_never_more() {
    let folder = export();
    let kernels = folder.path().join("CUPTI_ACTIVITY_KIND_KERNEL.parquet");
    let whole = fs::read(&kernels).expect("there");
    let mut refused = 0;
    for at in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        for bytes in [&whole[..at], &changed] {
            fs::write(&kernels, bytes).expect("room");
            if let Err(error) = read(folder.path()) {
                assert!(!error.to_string().contains('\n'), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > whole.len() / 7, "{refused}");
}

/// Writes each table of an SQLite export as a Parquet file, in several row groups, uncompressed, as nsys does.
const CONVERT: &str = r#"
import sqlite3, sys, os, pyarrow as pa, pyarrow.parquet as pq
connection = sqlite3.connect('file:' + sys.argv[1] + '?immutable=1', uri=True)
for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
    cursor = connection.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in cursor.description]
    rows = cursor.fetchall()
    if not rows:
        continue
    columns = {name: pa.array([row[i] for row in rows]) for i, name in enumerate(names)}
    if table == 'StringIds':
        columns['id'] = columns['id'].cast(pa.int32())
    for name in ('demangledName', 'shortName'):
        if name in columns and table.endswith('KERNEL'):
            columns[name] = columns[name].cast(pa.uint64())
    pq.write_table(pa.table(columns), os.path.join(sys.argv[2], table + '.parquet'), compression='NONE', row_group_size=1000)
"#;

/// A Python that has pyarrow: that of the workspace's own environment, or the system's.
fn python_with_pyarrow() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python3");
    let has_it = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import pyarrow"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    };
    let found = [own, PathBuf::from("python3")].into_iter().find(has_it);
    found.unwrap_or_else(|| testing::missing("PILLION_REQUIRE_TOOLS", "Python with pyarrow"))
}

#[test]
fn what_another_writer_makes_of_real_exports_is_read_as_they_are() {
    let (data, interpreter) = (data(), python_with_pyarrow());
    for file in [
        "nsys_2025.3_t4_cupy_nvtx/nsightful.sqlite",
        "nsys_2024.6_h100_nvfuser/fuser_b.sqlite",
        "nsys_2020_rtx6000_mordred/mordred_b.sqlite",
    ] {
        let folder = TempDir::new().expect("a temporary folder");
        let from = data.join(file);
        let mut command = Command::new(&interpreter);
        python(command.args(["-c", CONVERT]).arg(&from).arg(folder.path()));
        let (mut of_sqlite, mut of_parquet) = (
            import(&from).expect("whole"),
            import(folder.path()).expect("whole"),
        );
        of_sqlite.sources.clear();
        of_parquet.sources.clear();
        // Notices name the file.
        of_sqlite.notices.clear();
        of_parquet.notices.clear();
        assert_eq!(of_parquet, of_sqlite, "{file}");
    }
}
