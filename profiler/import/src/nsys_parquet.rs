//! Reader of the folders that `nsys export --type parquetdir` writes: a Parquet file for each table (feature
//! `parquet`).
//!
//! The tables and columns are those of the SQLite export. So what an import reads of them is put into a temporary
//! database, column by column by its name, and read from there as any export is: there is one reader of what Nsight
//! Systems measured. nsys does not compress these files, and no codec is built in.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::Context;
use crate::detect::parquet_folder;
use crate::error::{EXPORT_AGAIN, Error, reason};
use crate::nsys_sqlite::{self, READ, STRINGS};
use crate::source::Source;

/// Most rows of one table. A run of ten minutes of training has some millions of calls.
const ROWS_MAX: usize = 1 << 24;

/// How many rows lie between two reports of progress.
const ROWS_PER_PROGRESS: u64 = 16_384;

/// Reads the export in the folder `path`, or in the folder of the file `path`.
pub(crate) fn read(path: &Path, context: &mut Context<'_>) -> Result<Source, Error> {
    let damaged = |reason: String| Error::Damaged {
        path: path.to_owned(),
        reason,
        remedy: EXPORT_AGAIN,
    };
    // A path of nothing is a file of SQLite's own, which goes with the connection.
    let failed = |error: rusqlite::Error| damaged(reason(&error));
    let connection = Connection::open("").map_err(failed)?;
    connection.execute_batch("BEGIN").map_err(failed)?;
    let folder = parquet_folder(path);
    let mut bytes = 0;
    for (table, columns) in READ
        .iter()
        .map(|&(table, columns, _)| (table, columns))
        .chain([STRINGS])
    {
        let file = folder.join(format!("{table}.parquet"));
        let Ok(metadata) = file.metadata() else {
            continue;
        };
        bytes += metadata.len();
        if bytes > context.limits.bytes_max {
            return Err(Error::TooLong {
                path: path.to_owned(),
                limit: context.limits.bytes_max,
                is_compressed: false,
            });
        }
        let mut transfer = Transfer {
            connection: &connection,
            table,
            file: &file,
            context,
        };
        // The crate indexes by what a file says; files come from anywhere.
        let done = catch_unwind(AssertUnwindSafe(|| transfer.run(columns)));
        done.unwrap_or_else(|_| {
            Err(damaged(format!(
                "{table}.parquet is not as Parquet is defined"
            )))
        })?;
    }
    if bytes == 0 {
        return Err(Error::UnknownFormat {
            path: path.to_owned(),
            found: "Parquet that Nsight Systems did not write".to_owned(),
            accepted: crate::detect::ACCEPTED,
        });
    }
    connection.execute_batch("COMMIT").map_err(failed)?;
    nsys_sqlite::read_open(path, &connection, context)
}

/// One table on its way.
struct Transfer<'a, 'c, 'p> {
    connection: &'a Connection,
    table: &'a str,
    file: &'a PathBuf,
    context: &'c mut Context<'p>,
}

impl Transfer<'_, '_, '_> {
    fn damaged(&self, reason: String) -> Error {
        Error::Damaged {
            path: self.file.clone(),
            reason,
            remedy: EXPORT_AGAIN,
        }
    }

    fn run(&mut self, columns: &[&str]) -> Result<(), Error> {
        let file = File::open(self.file).map_err(|source| Error::Unreadable {
            path: self.file.clone(),
            source,
        })?;
        let broken = |error: ParquetError| self.damaged(reason(&error));
        let reader = SerializedFileReader::new(file).map_err(broken)?;
        let schema = reader.metadata().file_metadata().schema();
        let is_read = |field: &&Arc<Type>| field.is_primitive() && columns.contains(&field.name());
        let fields: Vec<Arc<Type>> = schema
            .get_fields()
            .iter()
            .filter(is_read)
            .cloned()
            .collect();
        if fields.is_empty() {
            return Ok(());
        }
        let projection = Type::group_type_builder(schema.name())
            .with_fields(fields.clone())
            .build();
        let rows_total = u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0);
        let rows = reader
            .get_row_iter(Some(projection.map_err(broken)?))
            .map_err(broken)?;
        let names: Vec<String> = fields
            .iter()
            .map(|field| format!("\"{}\"", field.name()))
            .collect();
        let (names, places) = (names.join(", "), vec!["?"; fields.len()].join(", "));
        let failed = |error: rusqlite::Error| self.damaged(reason(&error));
        let create = format!("CREATE TABLE {} ({names})", self.table);
        self.connection.execute_batch(&create).map_err(failed)?;
        let insert = format!("INSERT INTO {} VALUES ({places})", self.table);
        let mut insert = self.connection.prepare(&insert).map_err(failed)?;
        for (count, row) in (1u64..).zip(rows) {
            if count > ROWS_MAX as u64 {
                let path = self.file.clone();
                return Err(Error::TooMany {
                    path,
                    what: "rows of a table",
                    limit: ROWS_MAX,
                });
            }
            if count.is_multiple_of(ROWS_PER_PROGRESS) {
                (self.context.progress)(count, rows_total);
            }
            let row = row.map_err(|error| self.damaged(reason(&error)))?;
            let written = insert.execute(params_from_iter(values(&row)));
            written.map_err(|error| self.damaged(reason(&error)))?;
        }
        Ok(())
    }
}

/// The values of a row as SQLite has them; what it has not is no value.
fn values(row: &Row) -> impl Iterator<Item = Value> {
    row.get_column_iter().map(|(_, field)| match field {
        Field::Bool(value) => Value::Integer((*value).into()),
        Field::Byte(value) => Value::Integer((*value).into()),
        Field::Short(value) => Value::Integer((*value).into()),
        Field::Int(value) => Value::Integer((*value).into()),
        Field::Long(value) => Value::Integer(*value),
        Field::UByte(value) => Value::Integer((*value).into()),
        Field::UShort(value) => Value::Integer((*value).into()),
        Field::UInt(value) => Value::Integer((*value).into()),
        // As SQLite exports have numbers of 64 bits.
        Field::ULong(value) => Value::Integer(value.cast_signed()),
        Field::Float(value) => Value::Real((*value).into()),
        Field::Double(value) => Value::Real(*value),
        Field::Str(text) => Value::Text(text.clone()),
        Field::Bytes(bytes) => {
            let text = bytes.as_utf8();
            text.map_or(Value::Null, |text| Value::Text(text.to_owned()))
        }
        _ => Value::Null,
    })
}
