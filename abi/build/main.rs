//! Generates the tables and macros of `src/entry_point.rs` from `entry_points.csv`, and those of
//! `src/operator.rs` from `operators.csv` (see `operators`). The CSV is the workspace's only list
//! of driver entry points: hooks, doors and the software GPU's driver derive theirs from it. A
//! mistake in it fails the build with its file and line.

mod operators;
mod table;

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::{env, fs, process};

use table::Row;

/// The list, relative to this package's root, where Cargo runs the script.
const SOURCE: &str = "entry_points.csv";
const OPERATORS: &str = "operators.csv";

fn main() {
    println!("cargo::rerun-if-changed=build");
    let rows = parsed(SOURCE, table::parse);
    write(
        "entry_points.rs",
        &generated(&rows).expect("writing to a String cannot fail"),
    );
    let rows = parsed(OPERATORS, operators::parse);
    write(
        "operators.rs",
        &operators::generated(&rows).expect("writing to a String cannot fail"),
    );
}

/// Parses a list, whose name is for messages, and returns its rows or all its mistakes.
type Parse<T> = fn(&str, &str) -> Result<Vec<T>, Vec<String>>;

fn parsed<T>(source: &str, parse: Parse<T>) -> Vec<T> {
    println!("cargo::rerun-if-changed={source}");
    let text = fs::read_to_string(source)
        .unwrap_or_else(|error| fail(&[format!("abi/{source}: {error}")]));
    parse(&format!("abi/{source}"), &text).unwrap_or_else(|errors| fail(&errors))
}

fn write(name: &str, code: &str) {
    let out_dir = env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR for build scripts");
    let target = PathBuf::from(out_dir).join(name);
    if let Err(error) = fs::write(&target, code) {
        fail(&[format!("{}: {error}", target.display())]);
    }
}

fn fail(errors: &[String]) -> ! {
    for error in errors {
        println!("cargo::error={error}");
    }
    process::exit(1)
}

fn generated(rows: &[Row]) -> Result<String, fmt::Error> {
    let mut code = String::from("// Generated from entry_points.csv by build/main.rs.\n\n");
    write_table(&mut code, rows)?;
    write_by_api(&mut code, rows)?;
    write_ids(&mut code, rows)?;
    write_macro(
        &mut code,
        "for_each_hooked",
        "Calls the macro named with every symbol that `libpillion.so` hooks (`Route::Hook`).",
        rows.iter().filter(|row| row.hooked),
    )?;
    write_macro(
        &mut code,
        "for_each_softgpu",
        "Calls the macro named with every symbol that the software GPU's driver implements.",
        rows.iter().filter(|row| row.softgpu),
    )?;
    write_macro(
        &mut code,
        "for_each_not_softgpu",
        "Calls the macro named with every symbol that the software GPU's driver lacks, so that \
         it can export them all the same and refuse each by name.",
        rows.iter().filter(|row| !row.softgpu),
    )?;
    Ok(code)
}

fn write_table(code: &mut String, rows: &[Row]) -> fmt::Result {
    let count = rows.len();
    writeln!(code, "/// How many entry points the table has.")?;
    writeln!(code, "pub const ENTRY_POINT_COUNT: usize = {count};\n")?;
    writeln!(
        code,
        "/// Every entry point of the driver that we know, sorted by symbol (bytewise)."
    )?;
    writeln!(
        code,
        "pub static ENTRY_POINTS: [EntryPoint; ENTRY_POINT_COUNT] = ["
    )?;
    for row in rows {
        writeln!(
            code,
            "    EntryPoint {{ symbol: c{:?}, api: {:?}, version: {}, per_thread: {}, \
             category: Category::{}, route: Route::{}, softgpu: {}, prototype: {:?} }},",
            row.symbol,
            row.api,
            row.version,
            row.per_thread,
            row.category,
            if row.hooked { "Hook" } else { "Pass" },
            row.softgpu,
            row.prototype,
        )?;
    }
    writeln!(code, "];\n")
}

fn write_by_api(code: &mut String, rows: &[Row]) -> fmt::Result {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&index| {
        let row = &rows[index];
        (&row.api, row.version, row.per_thread)
    });
    writeln!(
        code,
        "/// Indices into `ENTRY_POINTS`, sorted by api, version and per_thread."
    )?;
    writeln!(
        code,
        "static BY_API: [u16; ENTRY_POINT_COUNT] = {order:?};\n"
    )
}

fn write_ids(code: &mut String, rows: &[Row]) -> fmt::Result {
    writeln!(
        code,
        "/// The index of each symbol in `ENTRY_POINTS`, under the symbol's own name."
    )?;
    writeln!(
        code,
        "#[expect(non_upper_case_globals, reason = \"named exactly like the symbols\")]"
    )?;
    writeln!(code, "pub mod id {{")?;
    for (index, row) in rows.iter().enumerate() {
        writeln!(code, "    /// Index of `{}`.", row.symbol)?;
        writeln!(code, "    pub const {}: usize = {index};", row.symbol)?;
    }
    writeln!(code, "}}\n")
}

fn write_macro<'a>(
    code: &mut String,
    name: &str,
    doc: &str,
    rows: impl Iterator<Item = &'a Row>,
) -> fmt::Result {
    writeln!(code, "/// {doc}")?;
    writeln!(code, "///")?;
    writeln!(
        code,
        "/// `abi::{name}! {{ callback }}` becomes `callback! {{ cuA cuB … }}`."
    )?;
    writeln!(code, "#[macro_export]")?;
    writeln!(code, "macro_rules! {name} {{")?;
    writeln!(
        code,
        "    ($($callback:ident)::+) => {{ $($callback)::+! {{"
    )?;
    for row in rows {
        writeln!(code, "        {}", row.symbol)?;
    }
    writeln!(code, "    }} }};")?;
    writeln!(code, "}}\n")
}
