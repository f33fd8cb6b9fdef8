//! The preload's cost for `import torch`, which opens half a gigabyte of libraries and looks up
//! thousands of symbols, all before CUDA is touched.

use std::path::PathBuf;
use std::process::Command;

use benches::alternate::Samples;
use benches::report::{Measured, Row, Unit};

use crate::artifacts::Artifacts;
use crate::preload::start_ms;

/// Target: at most so much slower.
const TARGET_PERCENT: f64 = 3.0;
/// Starts of each side; the fastest of each is compared, as disturbances only slow a start down.
const STARTS: usize = 10;
const STARTS_QUICK: usize = 3;
/// Starts of each side before the measurement: files get into the page cache.
const WARM_UP: usize = 2;

/// Measures, if there is a Python with PyTorch at `PILLION_TORCH_PYTHON`.
pub(crate) fn measure(artifacts: &Artifacts, quick: bool) -> anyhow::Result<Vec<Row>> {
    let Some(python) = std::env::var_os("PILLION_TORCH_PYTHON").map(PathBuf::from) else {
        eprintln!(
            "import torch: not measured, PILLION_TORCH_PYTHON does not name a Python with PyTorch"
        );
        return Ok(Vec::new());
    };
    let starts = if quick { STARTS_QUICK } else { STARTS };
    let samples = Samples::of_starts(starts, WARM_UP, 1, |is_preloaded| {
        let mut command = Command::new(&python);
        command.args(["-B", "-c", "import torch"]);
        start_ms(&mut command, is_preloaded.then_some(&artifacts.library))
    })?;
    let fastest = |side: &[f64]| side.iter().copied().fold(f64::INFINITY, f64::min);
    let (bare_ms, with_ms) = (fastest(&samples.bare), fastest(&samples.with));
    let percent = (with_ms / bare_ms - 1.0) * 100.0;
    let name = "import torch, fastest of each side";
    let mut row = Row::new(
        name,
        Unit::Pct,
        Measured::Value(percent),
        Some(TARGET_PERCENT),
    );
    row.evidence = vec![format!(
        "{starts} alternated pairs; best {bare_ms:.0} ms without, {with_ms:.0} ms with"
    )];
    Ok(vec![row])
}
