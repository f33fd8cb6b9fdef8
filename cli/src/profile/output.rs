//! Atomic file writes, tables, names and times for people, for all profile commands.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Error;
use comfy_table::{CellAlignment, Table, presets};
use profiler::KernelProfile;
use profiler::base_name::base;

use crate::failure::Failure;
use crate::out;

/// Limit on a kernel's name in a table, characters.
const NAME_CHARS_MAX: usize = 44;

/// Writes `text` to `path`, whole or not at all; to the standard output without a path.
pub(crate) fn write(text: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        return out::text(text);
    };
    let folder = folder(path);
    let written = || -> io::Result<()> {
        // Write into a pipe or device; replace a file once the new one is complete.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return fs::write(path, text);
        }
        let mut file = tempfile::Builder::new()
            .permissions(permissions())
            .tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|error| unwritten(path, error))
}

/// Whether [`write()`] can write there: call it before spending time on the content.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let tried = match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => Ok(()),
        _ => tempfile::tempfile_in(folder(path)).map(drop),
    };
    tried.map_err(|error| unwritten(path, error))
}

/// Exits 2 if the path is the reason.
pub(super) fn unwritten(path: &Path, error: io::Error) -> Failure {
    let is_of_place = out::is_of_place(&error);
    let error =
        Error::new(out::bare(error)).context(format!("{}: cannot be written", path.display()));
    match is_of_place {
        true => Failure::usage(error),
        false => error.into(),
    }
}

pub(super) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The umask applies, as for any created file.
fn permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

/// A table without frames; columns that are not in `texts` are right-aligned numbers.
pub(super) fn table(header: &[&str], texts: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for (index, name) in header.iter().enumerate() {
        if let Some(column) = table.column_mut(index).filter(|_| !texts.contains(name)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

pub(super) fn plain(table: &Table) -> String {
    let lines: Vec<String> = table
        .to_string()
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// `1 launch`, `2 launches`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A time and its unit: whole ns, us and ms with one decimal, s with two.
pub(super) fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.2} s", value / 1e9),
    }
}

/// The function's own name, the launch shape, and the operator that launched it.
pub(super) fn kernel(kernel: &KernelProfile) -> String {
    let name = base(&kernel.name);
    let mut short: String = name.chars().take(NAME_CHARS_MAX).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    let extents = |extents: [u32; 3]| match extents {
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("{x},{y}"),
        [x, y, z] => format!("{x},{y},{z}"),
    };
    let operator = kernel.operator.as_ref();
    let operator = operator.map_or_else(String::new, |operator| format!(" in {operator}"));
    match kernel.grid {
        [0, 0, 0] => format!("{short}{operator}"),
        grid => {
            let (grid, block) = (extents(grid), extents(kernel.block));
            format!("{short} <{grid}> x {block}{operator}")
        }
    }
}
