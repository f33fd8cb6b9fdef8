//! Faults of a GPU: their detection, and the reactions to them.
//!
//! | fault | detected by |
//! |---|---|
//! | `sticky-error` | a CUDA result in a client's page after which its context is lost |
//! | `died-in-flight` | a client's process is gone, with incomplete work in its page |
//! | `xid` | NVML's events of the device |
//! | `ecc`, `ecc-corrected` | NVML's counters, and rows or pages that wait to be remapped |
//! | `mps-fault` | lines in the logs of MPS ([`mps`]) |
//! | `stuck` | a busy device without progress of any client ([`stuck`]) |
//! | `job-stuck` | a best-effort job's work without progress, while others progress ([`stuck`]) |
//!
//! Each is an event ([`crate::report::events`]); rules add actions (`core::fault_rules`).
//! `daemon::fault_watch` is the thread for both; [`act`] does what takes long: restarting MPS, and
//! ending a job's processes ([`ending`]). No decision about launches waits for any of this. On the
//! virtual clock only `sticky-error` and `died-in-flight` are detected, as its seconds are not
//! NVML's.

pub(crate) mod act;
mod asking;
pub(crate) mod ending;
pub(crate) mod meter;
pub mod mps;
pub(crate) mod stuck;
