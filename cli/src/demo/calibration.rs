//! Calibrates a trace on a GPU of this machine, by `pillion-replay --calibrate`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use crate::demo::venue::Machine;
use crate::mps::PIPES_ENV;

/// The reported fields; the others are the replay's own.
const TOLD: [&str; 6] = [
    "request_target_ns",
    "request_measured_ns",
    "error",
    "launches",
    "launches_below_floor",
    "launches_of_same_sms",
];

/// Calibrates into a folder, which it creates; the replay runs without Pillion and MPS. Fails with
/// the output of a replay that cannot be started or fails.
pub(crate) fn run(replay: &Path, machine: &Machine, trace: &Path, folder: &Path) -> Result<Value> {
    std::fs::create_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut command = Command::new(replay);
    command
        .arg("--trace")
        .arg(trace)
        .arg("--calibrate")
        .arg(folder);
    alone(&mut command, machine, folder);
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("pillion-replay")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("pillion-replay failed ({}): {}", output.status, said.trim());
    }
    let text = std::fs::read_to_string(folder.join("calibration.json"))?;
    let document: Value =
        serde_json::from_str(&text).context("cannot parse pillion-replay's calibration.json")?;
    let told = TOLD.map(|key| (key.to_owned(), document[key].clone()));
    Ok(Value::Object(Map::from_iter(told)))
}

/// The environment of a program without Pillion or MPS on this GPU. The MPS pipe directory is
/// empty: a driver that finds no control daemon works without MPS (nvidia-cuda-mps-control's manual
/// page).
pub(crate) fn alone(command: &mut Command, machine: &Machine, folder: &Path) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PILLION_") {
            command.env_remove(&name);
        }
    }
    command
        .env_remove("LD_PRELOAD")
        .env("CUDA_VISIBLE_DEVICES", &machine.gpu.uuid)
        .env(PIPES_ENV, folder.join("no-mps"));
}

pub(crate) fn told(job: &str, calibration: &Value) -> String {
    let number = |key: &str| calibration[key].as_f64().unwrap_or(f64::NAN);
    let mut line = format!(
        "{job}: the kernels of a request take {:.2} ms ({:.2} ms in the trace), with a mean error of {:.1} % per kernel; {} of \
         {} need as many SMs as in the trace",
        number("request_measured_ns") / 1e6,
        number("request_target_ns") / 1e6,
        number("error") * 100.0,
        number("launches_of_same_sms"),
        number("launches"),
    );
    if number("launches_below_floor") > 0.0 {
        line.push_str(&format!(
            "; {} are shorter than the shortest launch on this GPU",
            number("launches_below_floor")
        ));
    }
    line
}
