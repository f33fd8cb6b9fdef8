//! The traces of Orion's measurements, which are not part of the repository (`testing::data`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler::Trace;

/// Orion's inference jobs with their requests per second beside training (Table 3).
pub(crate) const INFERENCE: [(&str, f64); 4] = [
    ("resnet50_4_fwd", 15.0),
    ("mobilenetv2_4_fwd", 40.0),
    ("resnet101_4_fwd", 9.0),
    ("bert_2_fwd", 4.0),
];

pub(crate) const TRAINING: [&str; 4] = [
    "resnet50_32_fb1",
    "mobilenetv2_64_fb1",
    "resnet101_32_fb1",
    "bert_8_fb1",
];

pub(crate) fn folder() -> PathBuf {
    testing::data("orion/model_kernels")
}

pub(crate) fn read(folder: &Path, name: &str) -> Arc<Trace> {
    Arc::new(Trace::read(&folder.join(name)).expect("a file of Orion's"))
}
