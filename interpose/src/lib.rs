//! libpillion.so: the layer between a job and the CUDA driver. Loaded with `LD_PRELOAD` into every
//! process of a job, it provides its own versions (*hooks*) of the driver's entry points that
//! matter to sharing, and the driver's own everywhere else. A hook does Pillion's part before and
//! after the real call, which it makes once, with the application's arguments, and whose result it
//! returns unchanged. Two exceptions: over a quota the driver is not called, and priorities of
//! streams and launches are mapped to the class's part of the device's range.
//!
//! | group | contents |
//! |---|---|
//! | [`doors`] | what a program gets from `dlsym` and `dlopen`: the hooks |
//! | [`hooks`] | hooks of CUDA, cuBLAS, cuDNN and NVML; our own interface |
//! | [`launch`] | a launch, before and after the driver's call |
//! | [`memory`] | charges memory to the job's quota, counts copies and allocations |
//! | [`daemon`] | attaching to a daemon, noticing its loss, finding the next; the helper thread |
//! | [`signals`] | SIGTERM and SIGINT: work in flight completes before the process dies |
//! | [`progress`] | contexts, streams and events; what is complete, and how long it took |
//! | [`kernels`] | which kernel, graph or operator a launch is, and its expected duration |
//! | [`dispatch`] | the way through a hook: recursion, panics, settings, counts of calls |
//! | [`process`] | the process's clients of daemons, its settings, accounts of memory |
//! | [`driver`] | the driver's own functions, and our calls of them |
//! | [`platform`] | C library, dynamic linker, kernel; settings, log, tables of fixed size |
//!
//! Each group uses those below it in this table, never one above (`tests/layers.rs`).
//!
//! **Three doors** lead a program to an entry point: the exported symbol, if it is linked with
//! libcuda ([`hooks::cuda`]); `dlsym` ([`doors::dlsym`]); and `cuGetProcAddress`, which it obtains
//! through either ([`hooks::resolver`]). Every hook then goes through [`dispatch::guard`].
//!
//! **Life of a process.** Nothing happens at load. At the first context on a device the library
//! attaches to that device's daemon ([`daemon::lifecycle`], [`daemon::attach`]) and becomes a
//! *client*, one for each device ([`process::clients`]), or stays out of that device's way for
//! good. From then on a launch is identified ([`kernels::identify`]) and either announced
//! (high-priority, [`client::announce`]) or admitted (best-effort, [`client::gate`]). Completion is
//! learnt from the application's own synchronisation ([`progress::completion`]) and from a helper
//! thread ([`daemon::helper`]), which also learns the durations of best-effort kernels
//! ([`progress::learner`]). A client that a signal ends by default leaves no work behind
//! ([`signals::handler`]).
//!
//! **State.** A module with state keeps it in one struct, made at compile time, and one static of
//! that type; small related states share one (`tests/layers.rs` counts them).
//!
//! **Bounds.** Every table has a fixed size and every search and wait a named bound. If a table is
//! full the launch counts as one of an unknown kernel, and goes. Units: durations are nanoseconds
//! (`_ns`), sizes are bytes (`_bytes`). HP and BE are the classes.

mod platform {
    pub(crate) mod config;
    #[cfg(shim)]
    pub(crate) mod dlmopen_threads;
    pub(crate) mod elf;
    mod imports;
    pub(crate) mod inherited;
    #[cfg(not(shim))]
    pub(crate) mod loaded;
    pub(crate) mod loader;
    pub(crate) mod log;
    pub(crate) mod memo;
    pub(crate) mod phase;
    pub(crate) mod stdio_guard;
    pub(crate) mod sys;
    pub(crate) mod table;
    #[cfg(not(test))]
    mod unwinder;
}

mod driver {
    mod calls;
    pub(crate) mod real;

    pub(crate) use calls::*;
}

mod process {
    pub(crate) mod account;
    #[cfg(not(shim))]
    pub(crate) mod batch_handlers;
    #[cfg(not(shim))]
    pub(crate) mod batches;
    pub(crate) mod clients;
    pub(crate) mod dying;
    pub(crate) mod helper_words;
    #[cfg(not(shim))]
    pub(crate) mod marks;
    pub(crate) mod notes;
    pub(crate) mod priority;
    mod state;
    pub(crate) mod sticky_error;
    pub(crate) mod thread;

    pub(crate) use clients::{client, clients, config, set_config};
    pub(crate) use state::*;
}

mod dispatch {
    #[cfg(not(shim))]
    pub(crate) mod bypass;
    pub(crate) mod driver_exclusion;
    pub(crate) mod environment;
    pub(crate) mod guard;
    pub(crate) mod panics;
    pub(crate) mod reentrancy;
    mod seen;
    pub(crate) mod telemetry;
}

mod kernels {
    pub(crate) mod graphs;
    mod identify;
    #[cfg(not(shim))]
    pub(crate) mod labels;
    #[cfg(shim)]
    #[path = "labels/shim.rs"]
    pub(crate) mod labels;
    mod names;
    pub(crate) mod record;

    pub(crate) use identify::*;
}

mod progress {
    mod captures;
    pub(crate) mod completion;
    pub(crate) mod contexts;
    pub(crate) mod cupti;
    pub(crate) mod events;
    pub(crate) mod learner;
    pub(crate) mod operations;
    pub(crate) mod recorder;
    pub(crate) mod sight;
    pub(crate) mod slot;
    pub(crate) mod stream;
    pub(crate) mod stream_events;
    pub(crate) mod streams;
    pub(crate) mod traced;
    pub(crate) mod waking;
}

mod signals {
    #[cfg(not(shim))]
    pub(crate) mod handler;
    #[cfg(shim)]
    #[path = "handler/shim.rs"]
    pub(crate) mod handler;
    pub(crate) mod supervised_exit;
}

mod daemon {
    pub(crate) mod attach;
    pub(crate) mod disconnect_watcher;
    pub(crate) mod helper;
    pub(crate) mod kept;
    pub(crate) mod lifecycle;
    pub(crate) mod reattach;
}

mod memory {
    pub(crate) mod counts;
    pub(crate) mod quota;
}

mod launch;

mod hooks {
    #[cfg(not(shim))]
    mod api;
    pub(crate) mod cuda;
    #[cfg(not(shim))]
    mod libraries;
    #[cfg(not(shim))]
    pub(crate) mod nvml;
    #[cfg(not(shim))]
    pub(crate) mod nvtx;
    #[cfg(not(shim))]
    pub(crate) mod operators;
    mod resolver;
}

#[cfg(not(shim))]
mod doors {
    mod dlopen;
    pub(crate) mod dlsym;
}
