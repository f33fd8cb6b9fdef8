//! What a client of the daemon does that is no hook: it waits at the gate, announces, counts,
//! and goes from one daemon to the next.
//!
//! The preloaded library (`interpose`) is this crate with hooks, driver calls, signals and threads
//! around it. Nothing here calls a driver, keeps a global or is `unsafe`, so others can run the
//! code that ships: the daemon's fault simulation everything but the ledger's way from one daemon
//! to the next and the times of [`reconnect`], the model checker [`slot_state`],
//! [`launch_log`] and [`requests`].
//!
//! | module | what is in it |
//! |---|---|
//! | [`Client`] | what a process shares with its daemons, one after the other |
//! | [`gate`] | a best-effort launch goes if its lease allows it, or waits until one does |
//! | [`announce`] | a high-priority launch and its completion, told to the daemon |
//! | [`completion`] | work that is complete, counted and told |
//! | [`link`] | the daemon's pages, at the same addresses under one daemon after another |
//! | [`connection`] | descriptors that are kept, and the connection whose end is noticed |
//! | [`reconnect`] | when a client without a daemon asks for one |
//! | [`account`] | an account of memory goes on in the ledger of another daemon |
//! | [`ending`] | what a process that ends, or is broken, says in its page |
//! | [`marks`] | how far a stream has come |
//! | [`slot_state`] | whose a stream's slot is, and whose turn it is with its event |
//! | [`launch_log`] | the last launches on a stream, which the helper learns from |
//! | [`requests`] | which of a program's requests are open |
//! | [`waited`] | when work was complete, as the application's waiting tells |
//! | [`rings`] | records on their way to the daemon, a ring for each thread |
//! | [`backoff`] | waiting for a thread of our own |
//!
//! Units: durations are nanoseconds (`_ns`), sizes are bytes (`_bytes`).
#![forbid(unsafe_code)]

pub mod launch_log;
pub mod requests;
pub mod slot_state;
pub mod waited;

// The rest lives in pages that are mapped, which the model checker's atomics cannot be.
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
