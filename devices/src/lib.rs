//! The GPU models that Pillion knows: their limits and peaks, and drivers' names for them. One
//! table serves all users: the software GPU models these devices, an import judges classes by their
//! peaks, a profile of one is scaled to another. The crate is data and look-up: no IO, no unsafe,
//! no large dependency, because it is linked into the preloaded library.

mod model;
mod table;

pub use crate::model::{model_of, relative_of};
pub use crate::table::{ComputeCapability, Device, UnknownDevice, fp32_per_clk_per_sm};
