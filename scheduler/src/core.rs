//! Everything the daemon knows of its GPU's clients, and what follows from it.
//!
//! No IO and no clock: what happens comes in by function calls, time is an argument, and decisions go
//! out through shared memory (atomics in pages) or as values that the callers carry out. So the fault
//! simulation runs all of it as shipped.

pub(crate) mod ledgers;
pub(crate) mod sharing;
pub mod state;
pub(crate) mod unaccounted_memory;
