//! Where traces come from: a file, or a built-in workload.
//!
//! A trace is named by a path (an Orion kernel file or a Pillion trace, told apart by content) or by
//! `NAME` or `NAME@BATCH` of a built-in workload, which is computed for the device. A file of that
//! name goes first. Nothing depends on which trace it is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler::Trace;
use softgpu::Device;
use workloads::{Precision, Workload};

use crate::synthetic::Synthetic;

/// Traces that were loaded or made up, each once for a device.
#[derive(Debug, Default)]
pub struct Library {
    traces: HashMap<(PathBuf, String), Arc<Trace>>,
    made_up: HashMap<(Synthetic, String), Arc<Trace>>,
}

/// Why a trace could not be had. Its text says what would be right.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or is wrong.
    #[error(transparent)]
    File(#[from] Box<profiler::Error>),
    /// There is no file of that name, and no such built-in workload.
    #[error("no file of that name; {0}")]
    Workload(#[from] workloads::Error),
    /// What stands behind the `@` is no number.
    #[error(
        "no file of that name, and {batch:?} is no batch: expected NAME@BATCH, such as resnet50-training@32"
    )]
    Batch {
        /// What stands there.
        batch: String,
    },
}

impl Library {
    /// The trace that `name` names on `device`; a relative path is one in `folder`.
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

    /// The trace of a made-up job on `device`.
    pub fn synthetic(&mut self, synthetic: Synthetic, device: &Device) -> Arc<Trace> {
        let key = (synthetic, device.name.clone());
        let made = || Arc::new(synthetic.trace(device));
        Arc::clone(self.made_up.entry(key).or_insert_with(made))
    }
}

fn load(name: &str, path: &Path, device: &Device) -> Result<Trace, TraceError> {
    // What looks like a path is meant as one: the message then speaks of the file.
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

/// What results call the trace: the file's name or the workload's.
#[must_use]
pub fn shown_name(name: &str) -> &str {
    let file = Path::new(name).file_name();
    file.and_then(|name| name.to_str()).unwrap_or(name)
}
