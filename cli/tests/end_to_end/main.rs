//! Real jobs, the real preload library, the real daemon, on the software GPU in real time.
//!
//! What a program prints, what it counts and how it ends is compared with a run without Pillion, with the daemon's status
//! and with the device server's own counters. The C programs are in `tests/programs`; `common` builds all there is to
//! build. The modules are `cfg(test)` so that lints know their helpers as tests. Times are nanoseconds (`_ns`) or
//! milliseconds (`_ms`).
#![forbid(unsafe_code)]

#[cfg(test)]
mod common;

#[cfg(test)]
mod access;
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod charges;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod contagion;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod daemon_loss;
#[cfg(test)]
mod deaths;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod devices;
mod doctor;
#[cfg(test)]
mod doors;
#[cfg(test)]
mod drained;
#[cfg(test)]
mod events;
mod examples;
#[cfg(test)]
mod excess;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod first_process;
#[cfg(test)]
mod forks;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod gpu_suite;
#[cfg(test)]
mod graphs;
#[cfg(test)]
mod handlers;
#[cfg(test)]
mod hang_ups;
mod help;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod interposers;
#[cfg(test)]
mod interrupted;
#[cfg(test)]
mod learnt;
#[cfg(test)]
mod leaving;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod manners;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod monitors;
#[cfg(test)]
mod newcomers;
#[cfg(test)]
mod nvml;
#[cfg(test)]
mod openers;
#[cfg(test)]
mod operators;
#[cfg(test)]
mod order;
#[cfg(test)]
#[path = "../pages/mod.rs"]
mod pages;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod picture;
#[cfg(test)]
mod pipes;
#[cfg(test)]
mod profiles;
#[cfg(test)]
mod quota;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod resolution;
#[cfg(test)]
mod run;
#[cfg(test)]
mod runtime;
#[cfg(test)]
mod same;
#[cfg(test)]
mod shim;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod stopping;
#[cfg(test)]
mod stress;
#[cfg(test)]
mod switches;
#[cfg(test)]
mod symbols;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod torch;
#[cfg(test)]
mod unit;
#[cfg(test)]
mod upgrades;
#[cfg(test)]
mod visibility;
#[cfg(test)]
mod work_ends;
#[cfg(test)]
mod workload;
#[cfg(test)]
mod world;
