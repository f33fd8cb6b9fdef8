//! The preload's cost for every process that never touches CUDA: starting `/bin/true`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use benches::alternate::Samples;
use benches::report::Row;
use protocol::clock::Clock;

use crate::artifacts::Artifacts;

/// Target: at most so much more than without.
const TARGET_MS: f64 = 0.3;
const STARTS: usize = 2_000;
const STARTS_QUICK: usize = 500;
/// Starts in a block, for the variance of the difference.
const BLOCK: usize = 50;
/// Starts of each side before the measurement: files get into the page cache.
const WARM_UP: usize = 20;

const PROGRAM: &str = "/bin/true";

pub(crate) fn measure(artifacts: &Artifacts, quick: bool) -> anyhow::Result<Vec<Row>> {
    let starts = if quick { STARTS_QUICK } else { STARTS };
    let mut rows = vec![row("preload of /bin/true", &artifacts.library, starts)?];
    if let Some(library) = &artifacts.release_library {
        rows.push(row(
            "preload of /bin/true, glibc 2.17 build",
            library,
            starts,
        )?);
    }
    Ok(rows)
}

fn row(name: &str, library: &Path, starts: usize) -> anyhow::Result<Row> {
    let start =
        |is_preloaded: bool| start_ms(&mut Command::new(PROGRAM), is_preloaded.then_some(library));
    let samples = Samples::of_starts(starts, WARM_UP, BLOCK, start)?;
    let (mut row, best) = Row::of_starts(name, &samples, TARGET_MS);
    row.evidence = vec![format!("{starts} starts of each side"), best];
    Ok(row)
}

pub(crate) fn start_ms(command: &mut Command, preload: Option<&Path>) -> anyhow::Result<f64> {
    // With an empty environment (posix_spawn) both sides differ only in the preload.
    command.env_clear().stdin(Stdio::null());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let clock = Clock::monotonic();
    let begun_ns = clock.now_ns();
    let status = command.status().with_context(|| program.clone())?;
    let ended_ns = clock.now_ns();
    ensure!(status.success(), "{program}: {status}");
    Ok((ended_ns - begun_ns) as f64 / 1e6)
}
