//! Policies on the device model, in virtual time. An [`Experiment`] defines the jobs, the device,
//! the policy and the duration; [`Experiment::run`] simulates it and returns what each job got. The
//! device is [`softgpu::Gpu`], the policies are those of [`policy`], the daemon's own source;
//! between them are models of the host ([`HostModel`]) and of daemon and library (`schedulers`).
//!
//! | module | noun |
//! |---|---|
//! | [`experiment`] | the input of a run |
//! | [`job`], [`arrivals`] | jobs, and when their requests arrive |
//! | [`host`] | times of threads, driver and daemon |
//! | [`profile_errors`] | errors in the policies' knowledge of kernels |
//! | [`synthetic`] | synthetic jobs of one kernel |
//! | [`scheduler`] | the one interface between the world and a policy |
//! | [`schedulers`] | the policies by name, each behind that interface |
//! | `world` | the event loop |
//! | [`scenario`], [`sweep`], [`library`] | experiments from files, and the traces they name |
//! | [`suite`] | published experiments, as such files |
//! | [`targets`] | whether a target was held |
//! | [`outcome`], [`observer`] | the result of a run, and its observers |
//!
//! No clock, no thread, no IO except reading named files; equal experiments have equal outcomes, to
//! the byte. Times are ns of virtual time from the start of the run.

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
