//! The part of a daemon's client that is no hook: it waits at the gate, announces, counts, and
//! moves from one daemon to the next. The preloaded library (`interpose`) adds hooks, driver calls,
//! signals and threads. Nothing here calls a driver, keeps a global or is `unsafe`, so other
//! programs can run the shipped code. The daemon's fault simulation runs all of it except moving
//! the ledger between daemons and the times of [`reconnect`]. The model checker runs
//! [`slot_state`], [`launch_log`] and [`requests`].
//!
//! | module | contents |
//! |---|---|
//! | [`Client`] | memory that a process shares with its daemons, one after the other |
//! | [`gate`] | a best-effort launch goes if its lease allows it, or waits until one does |
//! | [`announce`] | reports high-priority launches and completions to the daemon |
//! | [`completion`] | counts and reports completed work |
//! | [`link`] | the daemon's pages, at the same addresses under one daemon after another |
//! | [`connection`] | our descriptors, and the connection whose end is noticed |
//! | [`reconnect`] | when a client without a daemon asks for one |
//! | [`account`] | moves an account of memory to another daemon's ledger |
//! | [`ending`] | flags of a process that ends, or is broken |
//! | [`marks`] | how far a stream has come |
//! | [`slot_state`] | the owner of a stream's slot, and of the slot's event |
//! | [`launch_log`] | the last launches on a stream, which the helper learns from |
//! | [`requests`] | which of a program's requests are open |
//! | [`waited`] | when work was complete, from the application's own waits |
//! | [`rings`] | records on their way to the daemon, a ring for each thread |
//! | [`backoff`] | waiting for one of our threads |
//!
//! Units: durations are nanoseconds (`_ns`), sizes are bytes (`_bytes`).
#![forbid(unsafe_code)]

pub mod launch_log;
pub mod requests;
pub mod slot_state;
pub mod waited;

// The other modules use mapped pages, which cannot hold the model checker's atomics.
#[cfg(not(loom))]
pub mod account;
#[cfg(not(loom))]
pub mod announce;
#[cfg(not(loom))]
pub mod backoff;
#[cfg(not(loom))]
mod client;
#[cfg(not(loom))]
pub mod completion;
#[cfg(not(loom))]
pub mod connection;
#[cfg(not(loom))]
pub mod ending;
#[cfg(not(loom))]
pub mod gate;
#[cfg(not(loom))]
pub mod link;
#[cfg(not(loom))]
pub mod marks;
#[cfg(not(loom))]
pub mod reconnect;
#[cfg(not(loom))]
pub mod rings;

#[cfg(not(loom))]
pub use client::{Client, LedgerSlot, Welcome};
