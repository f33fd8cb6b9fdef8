//! A copy of an export with only an import's data: its columns, and names of kernels and ranges.

use std::path::Path;

use rusqlite::Connection;

use super::tables::Tables;
use super::{KERNELS, NVTX, READ, cut_short, open, uri};
use crate::error::{EXPORT_AGAIN, Error, reason};

/// Copies an import's data from the database at `from` into a new one at `to`.
/// # Errors
/// [`Error::Unreadable`], [`Error::Damaged`], and [`Error::UnknownFormat`] for other databases.
pub(crate) fn scrub(from: &Path, to: &Path) -> Result<(), Error> {
    let unreadable = |source| Error::unreadable(from, source);
    let length = std::fs::metadata(from).map_err(unreadable)?.len();
    let damaged = |reason: String| Error::damaged(from, reason, EXPORT_AGAIN);
    if let Some(reason) = cut_short(from, length).map_err(unreadable)? {
        return Err(damaged(reason));
    }
    let failed = |error: rusqlite::Error| damaged(reason(&error));
    let tables = Tables::of(&open(from).map_err(failed)?).map_err(failed)?;
    if !tables.is_nsys() {
        return Err(Error::UnknownFormat {
            path: from.to_owned(),
            found: "an SQLite database that Nsight Systems did not write".to_owned(),
            accepted: "an SQLite export of Nsight Systems (`nsys export --type sqlite`)",
        });
    }
    copy(from, to, &tables).map_err(failed)
}

fn copy(from: &Path, to: &Path, tables: &Tables) -> rusqlite::Result<()> {
    let connection = Connection::open(to)?;
    connection.execute("ATTACH DATABASE ?1 AS source", [uri(from)])?;
    connection.execute_batch("BEGIN")?;
    for (table, columns, rows) in READ {
        let mut columns: Vec<&str> = columns.to_vec();
        columns.sort_unstable();
        columns.dedup();
        columns.retain(|column| tables.has(table, &[column]));
        if columns.is_empty()
            || (!rows.is_empty()
                && !tables.has(table, &["eventType"])
                && !tables.has(table, &["name", "value"]))
        {
            continue;
        }
        let columns: Vec<String> = columns
            .iter()
            .map(|column| format!("\"{column}\""))
            .collect();
        let columns = columns.join(", ");
        connection.execute_batch(&format!(
            "CREATE TABLE {table} AS SELECT {columns} FROM source.{table} {rows}"
        ))?;
    }
    let mut named: Vec<String> = super::kernels::NAME_COLUMNS
        .iter()
        .filter(|column| tables.has(KERNELS, &[column]))
        .map(|column| format!("SELECT {column} FROM {KERNELS}"))
        .collect();
    if tables.has(NVTX, &["textId", "eventType"]) {
        named.push(format!("SELECT textId FROM {NVTX}"));
    }
    connection.execute_batch(
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
    )?;
    if !named.is_empty() {
        connection.execute_batch(&format!(
            "INSERT INTO StringIds SELECT id, value FROM source.StringIds WHERE id IN ({})",
            named.join(" UNION ")
        ))?;
    }
    connection.execute_batch("COMMIT; DETACH DATABASE source;")
}
