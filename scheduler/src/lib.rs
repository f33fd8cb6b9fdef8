//! The daemon of one GPU.
//! `pilliond` tracks the launches of high-priority clients, and publishes to each best-effort job a
//! lease: what the job may launch now without asking. `policy` makes the decisions; this crate has
//! everything around them.
//!
//! | group | content |
//! |---|---|
//! | [`daemon`] | the threads: for decisions, for clients, for memory and for faults |
//! | [`faults`] | detection of faults, and reactions |
//! | [`report`] | output for people and programs: the status, events |
//! | [`host`] | the machine around: NVML, the driver, processes, sockets, files |
//! | [`mod@core`] | the daemon's knowledge and decisions: no IO, time as an argument |
//! | [`config`] | the operator's file, and the meaning of its values |
//!
//! Each group uses those below it in this table, never one above (`tests/layers.rs`).
//! - **Threads.** The *poll thread* runs [`core::state::State::poll`] as often as needed and waits
//!   through `protocol::clock::Clock`, so it takes part in virtual time. The *control thread*
//!   accepts, serves and detaches clients in real time: a client keeps the virtual processor while
//!   it waits for a reply, so the replying thread must not need it. They share the state under one
//!   lock, which neither holds while it waits. Further threads run in real time: one watches memory
//!   (`daemon::memory_watch`), one polls for faults and executes rules, one waits for NVML's events
//!   (both `daemon::fault_watch`), two save what was learnt (`daemon::keeper`,
//!   `daemon::requests_keeper`), and, if configured, one manages MPS (`daemon::mps_watch`). The
//!   telemetry thread (`daemon::telemetry`) takes part in virtual time.
//! - **Trust.** Other processes write the pages. Each word is read once, clamped to its valid
//!   range, and used; see [`core::state`]. `protocol::hello` decodes packets.

#[cfg(test)]
#[macro_use]
extern crate testing;

pub mod config;
pub mod core;
pub mod daemon;
pub mod faults;
pub mod host;
pub mod report;
#[cfg(test)]
mod simulation;

pub use crate::core::ledgers::MemoryStatus;
pub use crate::core::unaccounted_memory::Excess;
pub use config::gpu::Gpu;
pub use config::{Config, ConfigError};
pub use daemon::{Daemon, DaemonError};

#[cfg(test)]
fn main() -> std::process::ExitCode {
    testing::main()
}
