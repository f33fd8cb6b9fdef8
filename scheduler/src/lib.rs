//! The daemon of one GPU.
//!
//! `pilliond` watches what high-priority clients launch, and publishes to each best-effort job a
//! lease: what it may launch now without asking. The decisions are `policy`'s; here is what stands
//! around them.
//!
//! | group | what is in it |
//! |---|---|
//! | [`daemon`] | the threads: for decisions, for clients, for memory and for faults |
//! | [`faults`] | how a fault is recognised, and what is done about it |
//! | [`report`] | what people and programs are told: the status, events |
//! | [`host`] | the machine around: NVML, the driver, processes, sockets, files |
//! | [`mod@core`] | everything the daemon knows and decides: no IO, time as an argument |
//! | [`config`] | the file an operator writes, and what its values mean |
//!
//! Each group uses those below it in this table, never one above (`tests/layers.rs`).
//!
//! **Threads.** The *poll thread* runs [`core::state::State::poll`] as often as needed and waits
//! through `protocol::clock::Clock`, so it takes part in virtual time. The *control thread*
//! accepts, serves and buries clients in real time: a client keeps the virtual processor while it
//! waits for a reply, so whoever replies must not need it. They share the state under one lock that
//! neither holds while it waits. Beside them, in real time: one that watches memory
//! (`daemon::memory_watch`), one that looks for faults and sees to what rules do about them, one
//! that waits for what NVML reports (`daemon::fault_watch`), and, where it is told to, one that
//! manages MPS (`daemon::mps_watch`).
//!
//! **Trust.** Pages are written by other processes. Each word is read once, clamped to what it can
//! mean, and used; see [`core::state`]. Packets are decoded by `protocol::hello`.

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
