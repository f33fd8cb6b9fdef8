//! What the preload costs `import torch`, which opens half a gigabyte of libraries and looks up thousands of symbols: all
//! before CUDA is touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use benches::report::{Measured, Row, Unit};
use protocol::clock::Clock;

use crate::artifacts::Artifacts;

/// Promised: at most so much slower.
const TARGET_PERCENT: f64 = 3.0;
/// Starts of each side; what is compared is the fastest of each, as what disturbs a start makes it slower only.
const STARTS: usize = 10;
const STARTS_QUICK: usize = 3;
/// Starts before anything is measured: files get into the page cache.
const WARM_UP: usize = 2;

/// Measures, if there is a python with PyTorch at `PILLION_TORCH_PYTHON`.
pub(crate) fn measure(artifacts: &Artifacts, quick: bool) -> anyhow::Result<Vec<Row>> {
    let Some(python) = std::env::var_os("PILLION_TORCH_PYTHON").map(PathBuf::from) else {
        eprintln!("import torch: not measured, PILLION_TORCH_PYTHON names no python with PyTorch");
        return Ok(Vec::new());
    };
    let starts = if quick { STARTS_QUICK } else { STARTS };
    for _ in 0..WARM_UP {
        import_ms(&python, None)?;
    }
    let (mut bare_ms, mut with_ms) = (f64::INFINITY, f64::INFINITY);
    for pair in 0..starts {
        // Each pair in the other order than the one before it.
        let mut sides = [None, Some(artifacts.library.as_path())];
        if pair % 2 == 1 {
            sides.reverse();
        }
        for preload in sides {
            let fastest = match preload {
                None => &mut bare_ms,
                Some(_) => &mut with_ms,
            };
            *fastest = fastest.min(import_ms(&python, preload)?);
        }
    }
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

/// From the decision to start it to its end, ms.
fn import_ms(python: &Path, preload: Option<&Path>) -> anyhow::Result<f64> {
    let mut command = Command::new(python);
    // An empty environment makes both sides the same but for the preload.
    command
        .env_clear()
        .args(["-B", "-c", "import torch"])
        .stdin(Stdio::null());
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let clock = Clock::monotonic();
    let begun_ns = clock.now_ns();
    let status = command
        .status()
        .with_context(|| python.display().to_string())?;
    let ended_ns = clock.now_ns();
    ensure!(status.success(), "{}: {status}", python.display());
    Ok((ended_ns - begun_ns) as f64 / 1e6)
}
