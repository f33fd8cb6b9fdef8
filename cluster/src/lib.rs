//! Which job runs on which GPU: placement as pure code. A cluster is an [`Inventory`] of nodes and
//! their GPUs, and a [`View`] of what is free on them. A policy ([`Placement`]) gets the view, a
//! job and the time, and answers with a [`Decision`]: these GPUs, wait, or never. The caller
//! carries it out ([`View::place`]) and reports the job's end ([`View::release`]).
//!
//! | module | noun |
//! |---|---|
//! | [`inventory`] | nodes, models of GPU, what each has |
//! | [`job`] | what a job asks for |
//! | [`view`] | what is free, and which jobs are where |
//! | [`placement`] | the policies |
//! | [`queue`] | the jobs that wait |
//! | [`interference`] | how fast jobs run beside each other |
//! | [`energy`] | power of a GPU by how much of it is in use |
//! | [`affinity`], [`objective`] | which inference tasks suit each other, and which GPU suits one |
//! | [`batch`], [`window`] | batches of inference tasks, and for how long they are collected |
//! | [`mig`] | what a GPU is divided into, and where a further instance hinders least |
//!
//! The simulator of clusters (`sim/cluster`) and the plug-in of an engine run the same policies: no
//! IO, no clock, no randomness without a seed, nothing of any engine. GPUs are divided into
//! thousandths (`milli`), host CPUs into thousandths of a core; memory is in bytes, times are ns.

pub mod affinity;
pub mod batch;
pub mod energy;
pub mod interference;
pub mod inventory;
pub mod job;
pub mod mig;
pub mod objective;
pub mod placement;
pub mod queue;
pub mod view;
pub mod window;

pub use energy::Power;
pub use inventory::{Inventory, InventoryError, Model, ModelId, NodeId, NodeSpec};
pub use job::{Class, JobError, JobId, JobSpec, Models, WorkloadId};
pub use placement::{Candidate, Decision, Part, Placement, Reason};
pub use view::{GpuState, NodeView, Resident, View};
