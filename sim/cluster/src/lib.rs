//! Placement policies on recorded traces, in virtual time.

pub mod days;
pub mod fgd;
pub mod inflation;
pub mod meter;
pub mod mixed;
pub mod outcome;
pub mod play;
pub mod published_random;
pub mod service_table;
pub mod services;
pub mod replay;
pub mod sources;
pub mod traces;
pub mod world;

/// Version of the model: of what equal input gives. It changes when results do, so that results of two
/// versions are not compared unawares.
pub const MODEL: u32 = 1;
