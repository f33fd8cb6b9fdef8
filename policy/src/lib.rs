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
//! | [`timeline`] | which high-priority kernel executes now, and how long its requests take |
//! | [`snapshot`] | everything a gate may look at |
//! | [`policy`] | the policies by name, and their numbers |
//! | [`gate`] | what each policy does: its law, and the lease that follows from it |
//!
//! **How a daemon uses it.** Each poll: feed what the rings brought to one
//! [`HpTimeline`] per high-priority client; [`HpView::merge`] their views; fill
//! a [`Snapshot`]; call [`Gate::handle_snapshot`] once; call [`Gate::gate`] for
//! each best-effort job; publish each lease whose terms or limit changed or
//! whose expiry nears.
//!
//! **Units.** All times are nanoseconds (`_ns`) of one monotonic clock, passed
//! in. *HP* is high-priority, *BE* best-effort. *Expected* durations come from
//! profiles. *In flight* is launched and not seen complete. *Beside* means
//! while an HP kernel executes.

#![forbid(unsafe_code)]

pub mod gate;
pub mod kernel;
pub mod lease;
pub mod limit;
pub mod policy;
pub mod snapshot;
mod throttle;
pub mod timeline;
mod turn;

pub use gate::{Gate, JOBS_MAX};
pub use kernel::{Class, ClassSet, Kernel};
pub use lease::{Lease, admits};
pub use limit::Limit;
pub use policy::{OrionParams, Policy, PolicyError, TemporalParams};
pub use snapshot::{HpView, JobId, JobView, Sharing, Snapshot};
pub use timeline::{HpTimeline, Launch};
pub use turn::TURN_PATIENCE_NS;
