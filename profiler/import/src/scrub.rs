//! Copies of profilers' files that can be shared. Exports hold the environment, output, user, host
//! and file names of the profiled program. Removal would require knowing all their places; instead
//! a new file gets only the data that an import needs. Names of kernels and ranges stay.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::detect::{Format, detect};
use crate::error::Error;
use crate::input::Input;
use crate::{Context, ncu, nsys_sqlite, read, trace};

/// Copies an import's data from `from` into a new file `to`, compressed if the original is.
/// # Errors
/// Those of [`read`], [`Error::NotSuitable`] for an unsuitable file, and [`Error::NotCopied`].
pub fn scrub(from: &Path, to: &Path, context: &mut Context<'_>) -> Result<(), Error> {
    let not_suitable =
        |found: &str, remedy: &str| Error::not_suitable(from, found.to_owned(), remedy.to_owned());
    match detect(from)? {
        Format::NsysSqlite => {
            read(from, context)?;
            nsys_sqlite::scrub::scrub(from, to)
        }
        Format::Json => copy(from, to, context, trace::scrub::scrub),
        Format::NcuCsv | Format::NcuText => copy(from, to, context, ncu::scrub::scrub),
        Format::NcuReport => Err(not_suitable(
            "a report of Nsight Compute, which holds the program's code, host names and addresses, and \
             which only NVIDIA's tool can rewrite",
            "export it with `ncu --import FILE --csv --page raw` and scrub the CSV, or share the profile, \
             which has none of these",
        )),
        Format::NsysStats => Err(not_suitable(
            "CSV of nsys stats, in which only the names of kernels and the paths in lines that begin with \
             `Processing` are private",
            "delete these lines",
        )),
        Format::Profiler => Err(not_suitable(
            "a profile or trace of kernels, in which only the names of kernels and files are private",
            "share it unchanged",
        )),
        _ => read(from, context).map(drop),
    }
}

type Scrubber = fn(&Path, Box<dyn Write>, &mut Context<'_>) -> Result<(), Error>;

fn copy(
    from: &Path,
    to: &Path,
    context: &mut Context<'_>,
    scrubber: Scrubber,
) -> Result<(), Error> {
    read(from, context)?;
    let is_compressed = Input::open(from, u64::MAX)?.is_compressed();
    let file = File::create_new(to).map_err(|source| Error::not_copied(from, source))?;
    let file = BufWriter::new(file);
    let to: Box<dyn Write> = if is_compressed {
        Box::new(GzEncoder::new(file, Compression::default()))
    } else {
        Box::new(file)
    };
    scrubber(from, to, context)
}
