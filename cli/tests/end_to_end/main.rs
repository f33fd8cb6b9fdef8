//! Real jobs, the real preload library, the real daemon, on the software GPU in real time.
//!
//! What a program prints, what it counts and how it ends is compared with a run without Pillion, with the daemon's status
//! and with the device server's own counters. The C programs are in `tests/programs`; `common` builds all there is to
//! build. Times are nanoseconds (`_ns`) or milliseconds (`_ms`).
#![forbid(unsafe_code)]

mod common;

mod bad_input;
mod daemon_loss;
mod demo;
mod doors;
mod forks;
mod gate;
mod interposers;
mod peers;
mod run;
mod switches;
mod symbols;
mod threads;
