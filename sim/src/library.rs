//! Loads traces from files or built-in workloads. A trace is named by a path (an Orion file or a
//! Pillion trace, by content) or by `NAME` or `NAME@BATCH` of a built-in workload, which is
//! computed for the device. Files have precedence.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler::Trace;
use softgpu::Device;
use workloads::{Precision, Workload};

use crate::synthetic::Synthetic;

/// Loaded and computed traces, each once for a device.
#[derive(Debug, Default)]
pub struct Library {
    traces: HashMap<(PathBuf, String), Arc<Trace>>,
    made_up: HashMap<(Synthetic, String), Arc<Trace>>,
}

/// Why a trace is unavailable. Its text states the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or is invalid.
    #[error(transparent)]
    File(#[from] Box<profiler::Error>),
    /// There is no file of that name, and no such built-in workload.
    #[error("no file has that name; {0}")]
    Workload(#[from] workloads::Error),
    /// The text after the `@` is not a number.
    #[error(
        "no file has that name, and {batch:?} is not a batch size: expected NAME@BATCH, such as resnet50-training@32"
    )]
    Batch {
        /// That text.
        batch: String,
    },
}

impl Library {
    /// The trace named `name` on `device`; a relative path is one in `folder`.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn trace(
        &mut self,
        name: &str,
        folder: &Path,
        device: &Device,
    ) -> Result<Arc<Trace>, TraceError> {
        let path = folder.join(name);
        let key = (path, device.name.clone());
        if let Some(trace) = self.traces.get(&key) {
            return Ok(Arc::clone(trace));
        }
        let trace = Arc::new(load(name, &key.0, device)?);
        self.traces.insert(key, Arc::clone(&trace));
        Ok(trace)
    }

    /// The trace of a synthetic job on `device`.
    pub fn synthetic(&mut self, synthetic: Synthetic, device: &Device) -> Arc<Trace> {
        let key = (synthetic, device.name.clone());
        let made = || Arc::new(synthetic.trace(device));
        Arc::clone(self.made_up.entry(key).or_insert_with(made))
    }
}

fn load(name: &str, path: &Path, device: &Device) -> Result<Trace, TraceError> {
    // A name that looks like a path is treated as one: the message is then about the file.
    if path.exists() || name.contains('/') {
        return Ok(Trace::read(path).map_err(Box::new)?);
    }
    let (name, batch) = match name.split_once('@') {
        None => (name, None),
        Some((name, batch)) => {
            let number = batch.parse::<u32>().map_err(|_| TraceError::Batch {
                batch: batch.to_owned(),
            })?;
            (name, Some(number))
        }
    };
    let workload = Workload::by_name(name)?;
    Ok(workload.trace(batch, device, Precision::Fp32)?)
}

/// The trace's name in results: the file's name or the workload's.
#[must_use]
pub fn shown_name(name: &str) -> &str {
    let file = Path::new(name).file_name();
    file.and_then(|name| name.to_str()).unwrap_or(name)
}
