//! The tables and columns of a database.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;

pub(super) struct Tables {
    columns: HashMap<String, HashSet<String>>,
}

/// More tables than any export has (96 with all tables written).
const TABLES_MAX: usize = 4096;

impl Tables {
    /// The plain tables of the database. No views and virtual tables, which would run foreign code.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 LIMIT ?1",
        )?;
        let names = statement.query_map([TABLES_MAX as i64], |row| row.get::<_, String>(0))?;
        let names: Vec<String> = names.collect::<Result<_, _>>()?;
        let mut columns = HashMap::new();
        let mut of_table = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        for name in names {
            let found = of_table.query_map([&name], |row| row.get::<_, String>(0))?;
            let found: HashSet<String> = found.collect::<Result<_, _>>()?;
            columns.insert(name, found);
        }
        Ok(Self { columns })
    }

    pub(super) fn has(&self, table: &str, columns: &[&str]) -> bool {
        let found = self.columns.get(table);
        found.is_some_and(|found| columns.iter().all(|&column| found.contains(column)))
    }

    /// `columns` of `table` for a SELECT, in this order; NULL for missing ones.
    pub(super) fn select(&self, table: &str, columns: &[&str]) -> String {
        let selected = columns.iter().map(|&column| {
            if self.has(table, &[column]) {
                // `end` is a word of SQL.
                format!("\"{column}\"")
            } else {
                "NULL".to_owned()
            }
        });
        selected.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn is_nsys(&self) -> bool {
        self.has("StringIds", &["id", "value"])
            && self.columns.keys().any(|name| {
                [
                    "CUPTI_",
                    "TARGET_INFO_",
                    "META_DATA_",
                    "EXPORT_META_",
                    "NVTX_",
                ]
                .iter()
                .any(|start| name.starts_with(start))
            })
    }
}
