//! The daemon of one GPU.
//!
//! `pilliond` watches what high-priority clients launch, and publishes to each best-effort job a
//! lease: what it may launch now without asking. The decisions are `policy`'s; here is what stands
//! around them.
//!
//! | module | noun |
//! |---|---|
//! | [`config`] | the file an operator writes |
//! | [`gpu`], [`device`] | which GPU, by name; asking the driver for it |
//! | [`state`] | everything the daemon knows, and what follows from it: no IO, time as an argument |
//! | [`status`] | that, as JSON |
//! | [`ledgers`] | what each job may hold of the memory, and whose it is |
//! | [`rules`] | what memory the operator allows whom |
//! | [`access`] | who may be high-priority, and how much of the daemon one user may take |
//! | [`peer`] | who is at the other end of a connection |
//! | [`disposal`] | descriptors that strangers send |
//! | [`faults`] | what breaks, how it is recognised, and the rules for what is done about it |
//! | [`events`] | what happened, for people: a bounded record and the log |
//! | [`excess`], [`strays`] | memory that is in no account: how much, and whose process it is |
//! | [`mps`] | what MPS is asked for before one of its clients is killed |
//! | [`memory`] | the thread that watches that |
//! | [`pages`] | shared pages, made and filled in |
//! | `sharing` | how jobs share the GPU: by MPS or in time slices, and who says so |
//! | [`measured`] | what was measured on the GPU, and whether priorities between blocks are counted on |
//! | [`socket`] | where clients find the daemon, and who may be it |
//! | `drained` | that the GPU is drained, for the daemon that comes next |
//! | `grip` | NVML, which the daemon gives up so that the GPU can be reset |
//! | [`claim`] | one daemon per GPU, wherever it listens |
//! | [`control`] | the thread that talks with clients |
//! | [`daemon`] | the thread that decides, and both together |
//! | [`realtime`] | that thread's real-time priority |
//!
//! **Threads.** The *poll thread* runs [`state::State::poll`] as often as needed and waits through
//! `protocol::clock::Clock`, so it takes part in virtual time. The *control thread* accepts, serves
//! and buries clients in real time: a client keeps the virtual processor while it waits for a reply,
//! so whoever replies must not need it. They share the state under one lock that neither holds
//! while it waits. Beside them, in real time: one that watches memory ([`memory`]), one that looks for faults and sees to what
//! rules do about them, and one that waits for what NVML reports ([`faults`]).
//!
//! **Trust.** Pages are written by other processes. Each word is read once, clamped to what it can
//! mean, and used; see [`state`]. Packets are decoded by `protocol::hello`.

#[cfg(test)]
#[macro_use]
extern crate testing;

pub mod access;
pub mod claim;
pub mod config;
pub mod control;
pub mod daemon;
pub mod device;
mod disposal;
mod drained;
pub mod events;
mod excess;
pub mod faults;
pub mod gpu;
mod grip;
mod ledgers;
pub mod measured;
mod memory;
pub mod mps;
pub mod nvml;
pub mod pages;
pub mod peer;
mod program;
pub mod realtime;
pub mod rules;
mod sharing;
#[cfg(test)]
mod simulation;
pub mod socket;
pub mod state;
pub mod status;
pub mod strays;
mod unmanaged;

pub use config::{Config, ConfigError};
pub use daemon::{Daemon, DaemonError};
pub use excess::Excess;
pub use gpu::Gpu;
pub use ledgers::MemoryStatus;

#[cfg(test)]
fn main() -> std::process::ExitCode {
    testing::main()
}
