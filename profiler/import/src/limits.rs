//! Bounds on input and on what is kept: generous compared with real files (named where there is
//! one) and small compared with a machine's memory, so that a file made to exhaust it is refused.

/// Configurable bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes read of one file, after decompression.
    pub bytes_max: u64,
}

impl Default for Limits {
    /// 4 GiB: a trace of some ten minutes of training. The largest real one so far has 35 MB.
    fn default() -> Self {
        Self { bytes_max: 4 << 30 }
    }
}

/// Most launches kept of one file: 2²², as in a trace. At some 80 bytes each they take 340 MB.
pub const LAUNCHES_MAX: usize = profiler::limits::LAUNCHES_MAX;

/// Most different kernels and shapes kept of one file. Real ones have some hundreds.
pub const KERNELS_MAX: usize = 1 << 18;

/// Most named ranges (NVTX, annotations) kept of one file.
pub const RANGES_MAX: usize = 1 << 21;

/// Most GPUs kept of one file. A large node has 16.
pub const GPUS_MAX: usize = 256;

/// Longest name kept, bytes. The longest real one so far has 2 400; compilers stop at some 10 000s.
pub const NAME_BYTES_MAX: usize = 64 << 10;

/// Most bytes of different names kept of one file.
pub const NAMES_BYTES_MAX: usize = 256 << 20;

/// Longest line of a text file, bytes. Raw pages of Nsight Compute: 2 500 columns in some 60 kB.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// The part of a file from which its format is recognised.
pub const HEAD_BYTES: usize = 64 << 10;
