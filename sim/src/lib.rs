//! Policies on the device model, in virtual time.
//!
//! An [`Experiment`] says which jobs share which device under which policy, and how long;
//! [`Experiment::run`] plays it and says what each job got. The device is [`softgpu::Gpu`], the
//! policies are those of [`policy`], the very source that the daemon runs; between them stands a
//! model of the host ([`HostModel`]) and of what daemon and library do (`schedulers`).
//!
//! | module | noun |
//! |---|---|
//! | [`experiment`] | what is run |
//! | [`job`], [`arrivals`] | who launches what, and when |
//! | [`host`] | times of threads, driver and daemon |
//! | [`profile_errors`] | what policies are told of kernels and is not so |
//! | [`synthetic`] | made-up jobs of one kernel |
//! | [`scheduler`] | the one interface between the world and a policy |
//! | [`schedulers`] | the policies by name, each behind that interface |
//! | `world` | the loop: who acts next |
//! | [`scenario`], [`sweep`], [`library`] | experiments from files, and the traces they name |
//! | [`suite`] | published experiments, as such files |
//! | [`targets`] | whether a target was held |
//! | [`outcome`], [`observer`] | what came out, and who watches |
//!
//! No clock, no thread, no IO but the reading of files that are named; deterministic: equal
//! experiments have equal outcomes, to the byte. Times are ns of virtual time from the start of the
//! run.

pub mod arrivals;
pub mod error;
pub mod experiment;
pub mod host;
pub mod job;
pub mod laws;
pub mod library;
pub mod observer;
pub mod outcome;
pub mod profile_errors;
mod program;
pub mod scenario;
pub mod scheduler;
pub mod schedulers;
pub mod suite;
pub mod sweep;
pub mod synthetic;
pub mod targets;
mod world;

pub use arrivals::Arrivals;
pub use error::Error;
pub use experiment::Experiment;
pub use host::HostModel;
pub use job::{Batch, Copies, Job, JobClass, JobKind, THREADS_MAX, TracePhase};
pub use laws::Laws;
pub use observer::{NoObserver, Observer};
pub use outcome::{JobOutcome, Outcome, Share};
pub use profile_errors::{Classes, ProfileErrors, UNKNOWN_NS};
pub use scheduler::{
    ClientId, ClientState, Issue, Launch, Placement, Restart, Scheduler, SmShare, State,
};
pub use schedulers::PolicySpec;
pub use synthetic::Synthetic;
