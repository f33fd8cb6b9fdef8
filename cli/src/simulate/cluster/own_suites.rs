//! Common parts of the suites that have lines and tables of their own: their options, the folder of
//! recorded traces, and the file of results.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, anyhow, ensure};
use serde_json::Value;

use crate::failure::Failure;
use crate::out;
use crate::simulate::cluster::Options;
use crate::simulate::plan::DATA;

/// Refuses `--neighbours` and `--speed-max`, which change the table that such a suite has itself.
pub(crate) fn refuse_table_options(name: &str, options: &Options) -> Result<()> {
    ensure!(
        options.neighbours.is_none() && options.speed_max.is_none(),
        "--neighbours, --speed-max: suite {name} has its own table"
    );
    Ok(())
}

/// Those of the command line, or the suite's own: with `--quick` the first `quick` of them.
pub(crate) fn seeds(options: &Options, own: &[u64], quick: usize) -> Result<Vec<u64>> {
    super::plan::each_once("--seeds", &options.seeds)?;
    Ok(match (&options.seeds[..], options.quick) {
        ([], true) => own[..quick].to_vec(),
        ([], false) => own.to_vec(),
        (seeds, _) => seeds.to_vec(),
    })
}

/// The folder of recorded traces.
pub(crate) fn data(name: &str) -> Result<PathBuf> {
    let folder = env::var_os(DATA).map(PathBuf::from);
    folder.ok_or_else(|| anyhow!("--suite {name}: {DATA} must name the folder of recorded traces"))
}

/// Makes the folder of `--out`, before the suite runs.
pub(crate) fn make_folder(options: &Options) -> Result<(), Failure> {
    let folder = options.out.as_ref();
    folder.map_or(Ok(()), |folder| out::folder(folder).map_err(Failure::usage))
}

/// Writes `results.jsonl` into the folder of `--out`.
pub(crate) fn write(options: &Options, lines: &[Value]) -> Result<(), Failure> {
    if let Some(folder) = &options.out {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        out::file(folder, "results.jsonl", &text)?;
    }
    Ok(())
}
