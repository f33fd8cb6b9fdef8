//! A stand-in for NVIDIA's `libcuda.so.1`: the CUDA driver API on the software GPU.
//!
//! It exports every symbol of `abi`'s table, and three of its own (`softgpu_…`). What
//! the software GPU has goes to the device server (`softgpu-server`) that `SOFTGPU_SOCKET` names;
//! the rest answers CUDA_ERROR_NOT_SUPPORTED and is counted. `cuGetExportTable` is denied: the
//! private tables behind it are NVIDIA's, and real cudart from 11.2 on, which insists on them, does
//! not run here.
//!
//! | environment | meaning |
//! |---|---|
//! | `SOFTGPU_SOCKET` | the device server's socket, or several, separated by `:`, a device each in that order; without it, or if nobody listens, there is no device |
//! | `CUDA_VISIBLE_DEVICES` | which of them this process sees, and in which order; see [`visible`] |
//! | `CUDA_DEVICE_MAX_CONNECTIONS` | connections from host to device that the streams of a context share, 1 to 32, 8 if unset; see `softgpu/src/connection.rs` |
//! | `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` | where processes share the device by MPS: kernels of this process use at most so much of its SMs, in pairs, and `cuDeviceGetAttribute` counts only these |
//! | `SOFTGPU_LABEL` | label of this process in the server's counters |
//! | `SOFTGPU_NULL=1` | no server: launches, copies and events succeed at once and do nothing (for benchmarks). Any other number but 0 does the same on another device, told apart by its UUID |
//! | `SOFTGPU_DEVICE` | with `SOFTGPU_NULL`: name of the device, V100-SXM2-16GB if unset |
//! | `SOFTGPU_EVENT_NS` | so many ns of busy time, 0 if unset, for each `cuEventRecord`, `cuEventQuery` and `cuStreamQuery`, with a lock of the context that launches need; see [`event_lock`] |
//! | `SOFTGPU_MPS_CLIENT=1` | `cuInit` connects to `control` in the folder that `CUDA_MPS_PIPE_DIRECTORY` names, if something listens there, as NVIDIA's connects to the control daemon of MPS; nothing is said |
//! | `SOFTGPU_REUSE_HANDLES=1` | handles of functions and kernels that have ended are given out again |
//! | `PILLION_CLOCK` | the virtual clock's page; the server must have made it |
//!
//! # How a call goes
//!
//! [`exports`] has the C functions. Each enters by the [`door`], which says no before `cuInit` and
//! in children of `fork`, and turns a panic into CUDA_ERROR_UNKNOWN. Handles are numbers that are
//! looked up in [`tables`], never addresses that are followed. Work goes to the server through
//! [`link`].
//!
//! # A stream that is full
//!
//! A submit to a stream with `STREAM_DEPTH_MAX` incomplete commands blocks the calling thread until
//! there is room. Meanwhile the thread holds its context's *lock*: other calls of any thread on
//! streams and events of that context (submits, queries, synchronisations, creation and destruction
//! of streams) wait before they begin. A synchronisation waits for the device without the lock.
//! Other contexts are not concerned.
//!
//! NVIDIA documents none of this. That launches of other threads into other streams wait as well
//! was observed (NVIDIA developer forum, topic 220629, 2022). That queries and synchronisations
//! wait like launches, that calls on memory do not, and that the lock is a context's, is assumed.
//!
//! # The legacy stream
//!
//! Work in the legacy stream comes after earlier work in the blocking streams of its context, and
//! later work there after it (the server sees to that). A query or a wait of the legacy stream
//! answers for these streams too: CUDA documents that the legacy stream synchronises with all
//! streams of its context but non-blocking ones (CUDA driver API, "Stream synchronization
//! behavior"). A thread's default stream is a blocking one. A stream that was destroyed counts
//! until its work is complete.
//!
//! # Rules inside
//!
//! No mutex is held while a thread waits, as on the virtual clock only one thread runs at a time.
//! Pointers of the application are touched in [`raw`] only.
//!
//! On the virtual clock a call costs the calling thread time, as it does on hardware: see [`cost`].
//!
//! Times are device nanoseconds, sizes bytes.

mod arrays;
mod attributes;
mod boxes;
mod captures;
mod contexts;
mod copies;
mod cost;
mod door;
mod driver;
mod event_lock;
mod events;
mod exports;
mod fork_guard;
mod functions;
mod graphs;
mod green;
mod holdings;
mod host_calls;
mod images;
mod launches;
mod libraries;
mod link;
mod linking;
mod managed;
mod memory;
mod modules;
mod physical;
mod pointers;
mod pools;
mod ranges;
mod raw;
mod several;
mod shared;
mod shared_events;
mod streams;
mod tables;
mod thread;
mod trace;
mod values;
mod visible;
