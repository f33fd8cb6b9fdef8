//! libpillion.so: what stands between a job and the CUDA driver.
//!
//! Loaded with `LD_PRELOAD` into every process of a job, it hands out its own versions (*hooks*) of
//! the driver's entry points where they matter to sharing, and the driver's own everywhere else.
//! A hook makes the real call, once, with the application's arguments, and returns the driver's
//! result unchanged; before and after it, it does Pillion's part. Two exceptions: over a quota the
//! driver is not called, and priorities of streams and launches are mapped to the class's part of
//! the device's range.
//!
//! **Three doors** through which a program may obtain an entry point:
//!
//! | door | module |
//! |---|---|
//! | the exported symbol, for programs linked with libcuda | [`exports`] |
//! | `dlsym` | [`mod@dlsym`] |
//! | `cuGetProcAddress`, itself obtained through either | [`resolver`] |
//!
//! **One door in the other sense**: every hook goes through [`door`], which keeps our own calls from
//! being hooked, catches our panics, keeps `errno`, and steps aside where there is nothing to do.
//!
//! **Operators.** The calls of cuBLAS, cuBLASLt and cuDNN that launch are hooked too, in the preload library, as labels
//! for what they launch ([`mod@operators`], [`labels`]).
//!
//! **NVML.** What the management library says of a device's memory and of who uses it is shown as the job may see it
//! ([`mod@nvml`]).
//!
//! **Life of a process.** Nothing happens at load. When the first context on a device is created the
//! library attaches to the daemon of that device ([`lifecycle`], [`attach`]) and becomes a *client*,
//! one for each device ([`clients`]), or it stays out of that device's way for good. From then on a launch is identified ([`kernels`]) and either
//! announced (high-priority, [`announce`]) or admitted (best-effort, [`gate`]); what completes is
//! learnt from the application's own synchronisation ([`completion`]) and from a helper thread
//! ([`helper`]), which of best-effort work learns how long kernels take ([`learner`]).
//!
//! **End of a process.** A client that is asked to end by a signal whose disposition is the default leaves no work behind
//! ([`signals`]).
//!
//! **Bounds.** Every table has a fixed size and every search and wait a named bound. When a table is
//! full the launch is treated as one that nobody knows, and goes.
//!
//! Units: durations are nanoseconds (`_ns`), sizes are bytes (`_bytes`). HP is high-priority, BE is
//! best-effort.

mod announce;
mod attach;
mod backoff;
#[cfg(not(shim))]
mod bypass;
mod captures;
mod carried;
mod client;
mod clients;
mod completion;
mod config;
mod contexts;
mod counts;
mod disconnect_watcher;
#[cfg(shim)]
mod dlmopen_threads;
#[cfg(not(shim))]
mod dlopen;
#[cfg(not(shim))]
mod dlsym;
mod door;
mod driver;
mod driver_exclusion;
mod elf;
mod events;
mod exports;
mod gate;
mod graphs;
mod helper;
mod imports;
mod kernels;
#[cfg(not(shim))]
mod labels;
#[cfg(shim)]
#[path = "labels/shim.rs"]
mod labels;
mod launch;
mod launch_log;
mod learner;
mod lifecycle;
#[cfg(not(shim))]
mod loaded;
mod loader;
mod log;
mod memo;
mod names;
#[cfg(not(shim))]
mod nvml;
#[cfg(not(shim))]
mod operators;
mod priority;
mod process;
mod provisional;
mod quota;
mod real;
mod reattach;
mod reentrancy;
mod resolver;
mod rings;
mod sight;
#[cfg(not(shim))]
mod signals;
#[cfg(shim)]
#[path = "signals/shim.rs"]
mod signals;
mod slot_state;
mod stdio_guard;
mod sticky_error;
mod stream_events;
mod streams;
mod supervised_exit;
mod sys;
mod table;
mod telemetry;
#[cfg(not(test))]
mod unwinder;
mod waited;
