//! A stand-in for NVIDIA's `libcuda.so.1`: the CUDA driver API on the software GPU. It exports
//! every symbol of `abi`'s table, and three of its own (`softgpu_…`). Supported calls go to the
//! device server (`softgpu-server`) that `SOFTGPU_SOCKET` names; others return
//! CUDA_ERROR_NOT_SUPPORTED and are counted. `cuGetExportTable` is denied: the private tables
//! behind it are NVIDIA's, and real cudart from 11.2 on, which requires them, does not run here.
//! Environment variables:
//! - `SOFTGPU_SOCKET`: the device server's socket, or several, separated by `:`, one per device in
//!   that order. Without it, or without a listener, there is no device.
//! - `CUDA_VISIBLE_DEVICES`: which of them this process sees, and in which order; see [`visible`].
//! - `CUDA_DEVICE_MAX_CONNECTIONS`: connections from host to device that the streams of a context
//!   share, 1 to 32, 8 if unset; see `softgpu/src/connection.rs`.
//! - `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`: if MPS shares the device, the most of its SMs that this
//!   process's kernels use, in pairs; `cuDeviceGetAttribute` counts only these.
//! - `SOFTGPU_LABEL`: label of this process in the server's counters.
//! - `SOFTGPU_NULL=1`: no server: launches, copies and events succeed at once and have no effect
//!   (for benchmarks). Any other number but 0 does the same on another device, with its own UUID.
//! - `SOFTGPU_DEVICE`: with `SOFTGPU_NULL`, name of the device, V100-SXM2-16GB if unset.
//! - `SOFTGPU_EVENT_NS`: ns of busy time, 0 if unset, for each `cuEventRecord`, `cuEventQuery` and
//!   `cuStreamQuery`, with a lock of the context that launches need; see [`event_lock`].
//! - `SOFTGPU_MPS_CLIENT=1`: `cuInit` connects to `control` in the folder that
//!   `CUDA_MPS_PIPE_DIRECTORY` names, if there is a listener, as NVIDIA's connects to the control
//!   daemon of MPS; it sends nothing.
//! - `SOFTGPU_REUSE_HANDLES=1`: handles of unloaded functions and kernels are reused.
//! - `PILLION_CLOCK`: the virtual clock's page, which the server must have created.
//! # The path of a call
//! [`exports`] has the C functions. Each enters through the [`door`], which refuses calls before
//! `cuInit` and in children of `fork`, and turns a panic into CUDA_ERROR_UNKNOWN. Handles are
//! numbers in [`tables`], never dereferenced. Work goes to the server through [`link`].
//! # A full stream
//! A submit to a stream with `STREAM_DEPTH_MAX` incomplete commands blocks the calling thread until
//! there is room. Meanwhile the thread holds its context's *lock*: other calls of any thread on
//! streams and events of that context (submits, queries, synchronisations, creation and destruction
//! of streams) wait before they begin. A synchronisation waits for the device without the lock.
//! Other contexts are not affected. NVIDIA documents none of this. That launches of other threads
//! into other streams wait as well was observed (NVIDIA developer forum, topic 220629, 2022). That
//! queries and synchronisations wait like launches, that calls on memory do not, and that the lock
//! is a context's, is assumed.
//! # The legacy stream
//! The server orders work in the legacy stream after earlier work in the blocking streams of its
//! context, and later work there after it. A query or a wait of the legacy stream covers these
//! streams too: CUDA documents that the legacy stream synchronises with all streams of its context
//! but non-blocking ones (CUDA driver API, "Stream synchronization behavior"). A thread's default
//! stream is a blocking one. A destroyed stream counts until its work is complete.
//! # Internal rules
//! No mutex is held while a thread waits, as on the virtual clock only one thread runs at a time.
//! Only [`raw`] accesses the application's pointers. On the virtual clock a call costs the calling
//! thread time, as it does on hardware: see [`cost`]. Times are device nanoseconds, sizes bytes.

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
