//! Faults: what breaks on a GPU, how it is recognised, and what is done about it.
//!
//! | fault | how it is seen |
//! |---|---|
//! | `sticky-error` | a client's page has a CUDA result after which its context is lost |
//! | `died-in-flight` | a client's process is gone, and its page has work that is not complete |
//! | `xid` | NVML's events of the device |
//! | `ecc`, `ecc-corrected` | NVML's counters, and rows or pages that wait to be replaced |
//! | `mps-fault` | lines in the logs of MPS ([`mps`]) |
//! | `stuck` | the device is busy and nothing of any client moves ([`stuck`]) |
//! | `job-stuck` | a best-effort job has work in flight and nothing of it moves, while others do ([`stuck`]) |
//!
//! Each is an event ([`crate::report::events`]); rules say what else is done (`core::fault_rules`).
//! `daemon::fault_watch` is the thread that looks and does it; [`act`] what takes time: restarting
//! MPS, and ending a job's processes ([`ending`]). No decision about launches waits for any of
//! this.
//!
//! On the virtual clock only sticky errors are looked for: a second there is none of NVML's.

pub(crate) mod act;
mod asking;
pub(crate) mod ending;
pub(crate) mod meter;
pub mod mps;
pub(crate) mod stuck;
