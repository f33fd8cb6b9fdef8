//! Knowledge about kernels before they run: traces, profiles and their look-up. A *trace*
//! ([`Trace`]) is what a job launches, in order; replay turns it into driver calls. A *profile*
//! ([`Profile`]) is what was measured about kernels. The gate asks it, by name and shape, for a
//! launch's duration, SM need and bound ([`ProfileIndex`]). Both have a text format of our own
//! (`docs/formats.md`), and both can be read from Orion's kernel files ([`orion`]). This crate is
//! linked into a library that is preloaded into other people's programs. It therefore has no unsafe
//! code, no panic on any input, few dependencies, a bound on everything that is read ([`limits`]),
//! and no allocation in the look-up of a launch path ([`ProfileIndex::find`]). Units: durations are
//! nanoseconds (`_ns`), shared memory is bytes (`_bytes`), demands are shares of the whole device's
//! capacity (0 to 1). Lines and columns (characters) in errors count from 1.

pub mod base_name;
pub mod error;
pub mod family;
pub mod learnt;
pub mod limits;
pub mod lookup;
pub mod names;
pub mod nearest;
pub mod occupancy;
pub mod orion;
pub mod profile;
pub mod quantile;
pub mod resource_class;
pub mod scale;
pub mod settings;
pub mod shape;
mod text;
pub mod trace;

pub use error::{Error, Place};
pub use family::{Estimate, Family};
pub use lookup::{Found, Match, NameId, OfOperator, ProfileIndex};
pub use profile::{ClassRule, Durations, KernelProfile, Operator, Profile};
pub use resource_class::ResourceClass;
pub use shape::{Shape, shape_for};
pub use text::{Format, decode, is_name, read_text};
pub use trace::{Trace, TraceKernel};
