//! The models of GPU that Pillion knows: their limits and peaks, and how drivers name them.
//!
//! One table for all who need one: the software GPU models these devices, an import judges classes by
//! their peaks, a profile of one is scaled to another. It is data and look-up, nothing else: no IO, no
//! unsafe, no dependency of weight, because it is linked into the preloaded library.

mod model;
mod table;

pub use crate::model::{model_of, relative_of};
pub use crate::table::{ComputeCapability, Device, UnknownDevice, fp32_per_clk_per_sm};
