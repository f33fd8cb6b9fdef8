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
//! | the exported symbol, for programs linked with libcuda | [`hooks::cuda`] |
//! | `dlsym` | [`doors::dlsym`] |
//! | `cuGetProcAddress`, itself obtained through either | [`hooks::resolver`] |
//!
//! **One door in the other sense**: every hook goes through [`dispatch::guard`], which keeps our own calls from
//! being hooked, catches our panics, keeps `errno`, and steps aside where there is nothing to do.
//!
//! **Operators.** The calls of cuBLAS, cuBLASLt and cuDNN that launch are hooked too, in the preload library, as labels
//! for what they launch ([`hooks::operators`], [`kernels::labels`]).
//!
//! **NVML.** What the management library says of a device's memory and of who uses it is shown as the job may see it
//! ([`hooks::nvml`]).
//!
//! **Life of a process.** Nothing happens at load. When the first context on a device is created the
//! library attaches to the daemon of that device ([`daemon::lifecycle`], [`daemon::attach`]) and becomes a *client*,
//! one for each device ([`client::clients`]), or it stays out of that device's way for good. From then on a launch is identified ([`kernels`]) and either
//! announced (high-priority, [`progress::announce`]) or admitted (best-effort, [`client::gate`]); what completes is
//! learnt from the application's own synchronisation ([`progress::completion`]) and from a helper thread
//! ([`daemon::helper`]), which of best-effort work learns how long kernels take ([`progress::learner`]).
//!
//! **End of a process.** A client that is asked to end by a signal whose disposition is the default leaves no work behind
//! ([`signals::handler`]).
//!
//! **Bounds.** Every table has a fixed size and every search and wait a named bound. When a table is
//! full the launch is treated as one that nobody knows, and goes.
//!
//! Units: durations are nanoseconds (`_ns`), sizes are bytes (`_bytes`). HP is high-priority, BE is
//! best-effort.

mod platform {
    pub(crate) mod backoff;
    pub(crate) mod config;
    #[cfg(shim)]
    pub(crate) mod dlmopen_threads;
    pub(crate) mod elf;
    pub(crate) mod imports;
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
    pub(crate) mod unwinder;
}

mod driver {
    pub(crate) mod calls;
    pub(crate) mod real;

    pub(crate) use calls::*;
}

mod client {
    pub(crate) mod account;
    pub(crate) mod clients;
    pub(crate) mod dying;
    pub(crate) mod gate;
    pub(crate) mod helper_words;
    pub(crate) mod launch_log;
    pub(crate) mod priority;
    pub(crate) mod process;
    pub(crate) mod rings;
    pub(crate) mod slot_state;
    pub(crate) mod state;
    pub(crate) mod sticky_error;
    pub(crate) mod waited;

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
    pub(crate) mod telemetry;
}

mod kernels {
    pub(crate) mod graphs;
    pub(crate) mod identify;
    #[cfg(not(shim))]
    pub(crate) mod labels;
    #[cfg(shim)]
    #[path = "labels/shim.rs"]
    pub(crate) mod labels;
    pub(crate) mod names;

    pub(crate) use identify::*;
}

mod progress {
    pub(crate) mod announce;
    pub(crate) mod captures;
    pub(crate) mod completion;
    pub(crate) mod contexts;
    pub(crate) mod events;
    pub(crate) mod learner;
    pub(crate) mod operations;
    pub(crate) mod sight;
    pub(crate) mod slot;
    pub(crate) mod stream;
    pub(crate) mod stream_events;
    pub(crate) mod streams;
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
    pub(crate) mod carried;
    pub(crate) mod disconnect_watcher;
    pub(crate) mod helper;
    pub(crate) mod lifecycle;
    pub(crate) mod provisional;
    pub(crate) mod reattach;
}

mod memory {
    pub(crate) mod counts;
    pub(crate) mod quota;
}

mod launch;

mod hooks {
    pub(crate) mod cuda;
    #[cfg(not(shim))]
    pub(crate) mod nvml;
    #[cfg(not(shim))]
    pub(crate) mod operators;
    pub(crate) mod resolver;
}

#[cfg(not(shim))]
mod doors {
    pub(crate) mod dlopen;
    pub(crate) mod dlsym;
}
