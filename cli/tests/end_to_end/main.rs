//! Real jobs, the real preload library, the real daemon, on the software GPU in real time. Each
//! program's output, counts and end are compared with a run without Pillion, with the daemon's
//! status and with the device server's own counters. The C programs are in `tests/programs`;
//! `common` builds everything. Times are nanoseconds (`_ns`) or milliseconds (`_ms`).
#![expect(
    clippy::unwrap_used,
    reason = "tests, which Clippy does not know as such"
)]

#[macro_use]
extern crate testing;

mod common;

mod access;
mod autostart;
mod bad_input;
mod batches;
mod bundle;
mod caps;
mod chaos;
mod charges;
mod clients;
mod collectives;
mod contagion;
mod daemon_loss;
mod deaths;
mod demo;
mod devices;
mod doctor;
mod documents;
mod doors;
mod drained;
mod events;
mod examples;
mod excess;
mod exit_codes;
mod exporter;
mod faults;
mod first_process;
mod forks;
mod gate;
mod governor;
mod gpu_suite;
mod graphs;
mod handlers;
mod hang_ups;
mod help;
mod identity;
mod interposers;
mod interrupted;
mod kept;
mod learnt;
mod leaving;
mod loadable;
mod machine;
mod manners;
mod matrix;
mod memory;
mod monitors;
mod mps_client;
mod mps_control;
mod mps_managed;
mod newcomers;
mod nvml;
mod nvtx;
mod openers;
mod operators;
mod order;
#[path = "../pages/mod.rs"]
mod pages;
mod peers;
mod picture;
mod pipes;
mod probe;
mod profiles;
mod promises;
mod quota;
mod real_driver;
mod record;
mod recorded;
mod released;
mod reload;
mod requests;
mod resolution;
mod run;
mod runtime;
mod same;
mod settling;
mod share;
mod sharing;
mod shim;
mod signals;
mod slo;
mod status;
mod stopping;
mod stress;
mod switches;
mod symbols;
mod threads;
mod throttle;
mod top;
mod torch;
mod trace;
mod unit;
mod unmanaged;
mod upgrades;
mod visibility;
mod work_ends;
mod workload;
mod world;

fn main() -> std::process::ExitCode {
    testing::main()
}
