//! # Pillion's decisions
//!
//! Who may launch what, and when: pure code. State and a description of the
//! moment go in, a lease comes out; no IO, no clock, no thread, no `unsafe`.
//! The daemon runs it 20 000 times a second, the launch path of every
//! best-effort process asks [`admits`] once per launch, and a simulator can run
//! both on the same source. So the properties that the tests of this crate
//! establish hold in all three places.
//!
//! | module | noun |
//! |---|---|
//! | [`kernel`] | a kernel as far as a policy cares: resource class, SMs, expected duration |
//! | [`lease`] | what a best-effort job may launch without asking, and the check on the launch path |
//! | [`snapshot`] | everything a gate may look at |
//!
//!
//! **Units.** All times are nanoseconds (`_ns`) of one monotonic clock, passed
//! in. *HP* is high-priority, *BE* best-effort. *Expected* durations come from
//! profiles. *In flight* is launched and not seen complete. *Beside* means
//! while an HP kernel executes.

#![forbid(unsafe_code)]

pub mod kernel;
pub mod lease;
pub mod snapshot;

pub use kernel::{Class, ClassSet, Kernel};
pub use lease::{Lease, admits};
pub use snapshot::{HpView, JobId, JobView, Sharing, Snapshot};
