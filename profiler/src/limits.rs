//! Bounds on everything that is read. A value beyond its bound is a mistake in the file (a wrong
//! unit, a shifted column), to be reported before it becomes a launch that the driver refuses or a
//! sum that overflows. Device limits are those of the CUDA C++ Programming Guide, "Compute
//! Capabilities", the greatest over all devices; the driver judges a launch for its device.

/// Longest file, bytes; the largest real one has 0.3 MB. A longer one must not fill a job's memory.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// Most launches in one trace. With [`DURATION_NS_MAX`] it keeps every sum of durations below 2⁶².
pub const LAUNCHES_MAX: usize = 1 << 22;

/// Longest duration of one launch, ns: ten minutes.
pub const DURATION_NS_MAX: u64 = 600_000_000_000;

/// Greatest extents of a grid in x, y, z.
pub const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// Greatest extents of a block in x, y, z.
pub const BLOCK_MAX: [u32; 3] = [1_024, 1_024, 64];

/// Most threads in a block.
pub const BLOCK_THREADS_MAX: u32 = 1_024;

/// Most shared memory of one block, bytes. Devices have 227 KiB at most so far.
pub const SHARED_BYTES_MAX: u32 = 1 << 20;

/// Most registers of a thread.
pub const REGISTERS_MAX: u32 = 255;

/// Greatest SM need, so that a grid with two blocks for each SM still exists.
pub const SM_NEEDED_MAX: u32 = GRID_MAX[0] / 2;

/// Greatest number in a profile (TOML's).
pub const NUMBER_MAX: u64 = i64::MAX as u64;
