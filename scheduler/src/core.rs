//! The daemon's knowledge of its GPU's clients, and the decisions that follow from it. No IO and no
//! clock: events are function calls, time is an argument, and decisions leave through shared memory
//! (atomics in pages) or as values for the callers. So the fault simulation runs it as shipped.

pub(crate) mod batch_search;
pub mod block_priority;
pub(crate) mod device_watch;
pub mod event;
pub(crate) mod fairness;
pub(crate) mod fault;
pub(crate) mod fault_rules;
pub mod job_key;
pub(crate) mod ledgers;
pub(crate) mod mps_servers;
pub(crate) mod mps_supervisor;
pub mod pages;
pub(crate) mod probe_watch;
pub(crate) mod sharing;
pub mod state;
pub mod unaccounted_memory;
pub(crate) mod unmanaged;
