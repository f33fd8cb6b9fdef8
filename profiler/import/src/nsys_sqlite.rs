//! Reader of the SQLite databases of `nsys export --type sqlite`. Schemas changed often (none, 2.x
//! … 3.24 seen, from 2020 to 2026): tables appear only when they have rows, and columns come and go
//! in any order. So columns are requested by name, and a missing one is unstated. Exports hold the
//! program's whole environment, its output, user and host names; only the columns named here are
//! read, and of strings only names of kernels and ranges. The file, which anyone may have made, is
//! opened read-only and as immutable, so nothing is written beside it. Only plain tables are read
//! (a view could compute forever), and no function of the schema is trusted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::Context;
use crate::detect::Format;
use crate::error::{EXPORT_AGAIN, Error, counted, reason};
use crate::source::{Source, SourceBuilder};

mod gpus;
mod kernels;
mod ranges;
pub(crate) mod scrub;
mod tables;

use tables::Tables;

const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
/// The table of graph launches that were captured as a whole.
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
const NVTX: &str = "NVTX_EVENTS";

const READ: [(&str, &[&str], &str); 9] = [
    (KERNELS, &kernels::COLUMNS, ""),
    (GRAPHS, &["start", "end"], ""),
    (CALLS, &["start", "globalTid", "correlationId"], ""),
    (
        NVTX,
        &["start", "end", "eventType", "globalTid", "text", "textId"],
        "WHERE eventType IN (59, 60)",
    ),
    ("TARGET_INFO_GPU", &gpus::COLUMNS, ""),
    ("TARGET_INFO_CUDA_GPU", &gpus::COLUMNS_OF_2020, ""),
    ("TARGET_INFO_CUDA_DEVICE", &["gpuId", "cudaId", "pid"], ""),
    ("META_DATA_EXPORT", &["name", "value"], VERSIONS),
    ("EXPORT_META_DATA", &["name", "value"], VERSIONS),
];

/// The rows about the tool, not the machine.
const VERSIONS: &str = "WHERE name IN ('EXPORT_PRODUCT_VERSION', 'EXPORT_SCHEMA_VERSION')";

const ROW_BYTES_MAX: i32 = 64 << 20;

pub(crate) fn read(path: &Path, context: &mut Context<'_>) -> Result<Source, Error> {
    let metadata = fs::metadata(path).map_err(|source| Error::unreadable(path, source))?;
    if metadata.len() > context.limits.bytes_max {
        return Err(Error::TooLong {
            path: path.to_owned(),
            limit: context.limits.bytes_max,
            is_compressed: false,
        });
    }
    let unreadable = |source| Error::unreadable(path, source);
    if let Some(reason) = cut_short(path, metadata.len()).map_err(unreadable)? {
        return Err(Error::damaged(path, reason, EXPORT_AGAIN));
    }
    let damaged = |error: rusqlite::Error| Error::damaged(path, reason(&error), EXPORT_AGAIN);
    let connection = open(path).map_err(damaged)?;
    let tables = Tables::of(&connection).map_err(damaged)?;
    let reader = Reader {
        path,
        connection: &connection,
        tables: &tables,
    };
    reader.read(context)
}

/// The error of a file shorter than stated: SQLite would read zeros, and find fewer launches.
fn cut_short(path: &Path, length: u64) -> io::Result<Option<String>> {
    /// Bytes of the header (sqlite.org, "Database File Format", §1.3).
    const HEADER_BYTES: usize = 100;
    let mut header = [0; HEADER_BYTES];
    match File::open(path)?.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Ok(Some(format!("{length} bytes")));
        }
        result => result?,
    }
    let word = |at: usize| {
        let bytes = header
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_be_bytes)
    };
    let page_bytes = match word(16) >> 16 {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    // The page count is valid if the last writer of the change counter wrote it.
    let (pages, is_valid) = (u64::from(word(28)), word(24) == word(92));
    let expected = page_bytes * pages;
    let is_short = is_valid && length < expected;
    Ok(is_short.then(|| format!("{length} bytes of {expected}")))
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri(path), flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX)?;
    Ok(connection)
}

fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    // Two leading slashes would denote a host.
    if path.is_relative() {
        uri.push_str("./");
    }
    let mut before = 0;
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' if before == b'/' => {}
            b'/' | b'.' | b'-' | b'_' => uri.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => uri.push(byte.into()),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
        before = byte;
    }
    uri.push_str("?immutable=1");
    uri
}

struct Reader<'a> {
    path: &'a Path,
    connection: &'a Connection,
    tables: &'a Tables,
}

impl Reader<'_> {
    fn read(&self, context: &mut Context<'_>) -> Result<Source, Error> {
        let mut builder = SourceBuilder::new(self.path, Format::NsysSqlite);
        if let Some(version) = self.version()? {
            builder.tool_version(&version);
        }
        if self.rows(KERNELS)? == 0 {
            return Err(self.no_kernels()?);
        }
        let launches = self.read_kernels(&mut builder, context)?;
        if builder.is_empty() {
            return Err(self.no_kernels()?);
        }
        self.read_ranges(&mut builder, &launches)?;
        let graphs = self.rows(GRAPHS)?;
        if graphs > 0 {
            let (launches, are) = match graphs {
                1 => ("launch", "is"),
                _ => ("launches", "are"),
            };
            builder.notice(format!(
                "{graphs} {launches} of CUDA graphs {are} in the file without the graphs' kernels; \
                 capture with `nsys profile --cuda-graph-trace=node` to record them"
            ));
        }
        Ok(builder.finish())
    }

    /// Version of Nsight Systems, in one of two tables, or nowhere before 2021.
    fn version(&self) -> Result<Option<String>, Error> {
        for table in ["META_DATA_EXPORT", "EXPORT_META_DATA"] {
            if !self.tables.has(table, &["name", "value"]) {
                continue;
            }
            let sql = format!("SELECT value FROM {table} WHERE name = 'EXPORT_PRODUCT_VERSION'");
            let mut versions = Vec::new();
            self.each(&sql, |row| {
                versions.extend(row.get_ref(0)?.as_str().ok().map(str::to_owned));
                Ok(Ok(()))
            })?;
            if let Some(version) = versions.pop() {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }

    fn no_kernels(&self) -> Result<Error, Error> {
        let path = self.path.to_owned();
        if !self.tables.is_nsys() {
            return Ok(Error::unknown_format(
                &path,
                "an SQLite database that Nsight Systems did not write",
            ));
        }
        let (calls, graphs, ranges) = (self.rows(CALLS)?, self.rows(GRAPHS)?, self.rows(NVTX)?);
        let (found, remedy) = if graphs > 0 {
            (
                format!(
                    "{} of CUDA graphs without the graphs' kernels",
                    counted(graphs, "launch", "launches")
                ),
                "capture with `nsys profile --cuda-graph-trace=node`",
            )
        } else if calls > 0 {
            (
                format!(
                    "{} of the CUDA API, but no activity of the GPU",
                    counted(calls, "call", "calls")
                ),
                "nsys could not trace the GPU (under WSL 2, in a container without the \
                 permission, beside another profiler); run it where `nsys status -e` finds no \
                 problem",
            )
        } else if ranges > 0 {
            (
                format!(
                    "{}, but no CUDA activity",
                    counted(ranges, "NVTX event", "NVTX events")
                ),
                "capture with `nsys profile --trace=cuda,nvtx`",
            )
        } else {
            (
                "the program made no CUDA call while it was profiled".to_owned(),
                "capture all processes of the job with `nsys profile --trace=cuda,nvtx`",
            )
        };
        Ok(Error::no_kernels(&path, found, remedy.to_owned()))
    }

    fn rows(&self, table: &str) -> Result<u64, Error> {
        if !self.tables.has(table, &[]) {
            return Ok(0);
        }
        let mut rows = 0;
        self.each(&format!("SELECT COUNT(*) FROM {table}"), |row| {
            rows = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
            Ok(Ok(()))
        })?;
        Ok(rows)
    }

    /// SQLite's errors mean a damaged file.
    fn each(
        &self,
        sql: &str,
        mut visit: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<Result<(), Error>>,
    ) -> Result<(), Error> {
        let damaged =
            |error: rusqlite::Error| Error::damaged(self.path, reason(&error), EXPORT_AGAIN);
        let mut statement = self.connection.prepare(sql).map_err(damaged)?;
        let mut rows = statement.query([]).map_err(damaged)?;
        while let Some(row) = rows.next().map_err(damaged)? {
            visit(row).map_err(damaged)??;
        }
        Ok(())
    }
}

fn integer(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<Option<i64>> {
    Ok(row.get_ref(index)?.as_i64().ok())
}

fn number(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<Option<u32>> {
    Ok(integer(row, index)?.and_then(|value| u32::try_from(value).ok()))
}

/// Process of a `globalPid` or `globalTid`: bits 24 to 47.
fn process(global: i64) -> i64 {
    (global >> 24) & 0xff_ffff
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::uri;

    #[test]
    fn a_path_is_quoted_for_sqlite() {
        assert_eq!(
            uri(Path::new("/a/b-c_1.sqlite")),
            "file:/a/b-c_1.sqlite?immutable=1"
        );
        assert_eq!(
            uri(Path::new("//a?mode=rwc#é")),
            "file:/a%3Fmode%3Drwc%23%C3%A9?immutable=1"
        );
        assert_eq!(uri(Path::new("a%b")), "file:./a%25b?immutable=1");
    }
}
