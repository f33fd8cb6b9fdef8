//! Models that predict how fast a job will be: on a GPU, with a batch, beside neighbours that it
//! has never met. Pure code: no I/O, no clock, no threads. Randomness has a seed, so the same
//! samples in the same order give the same model.
//! - [`forest`]: a random forest, fitted to all samples at once.
//! - [`interference`]: the latency of a service beside trainings, from their layers (Mudi).
//! - [`fm_ftrl`]: a factorization machine, learnt sample by sample.
//! - [`features`]: from named fields to rows.
//! - [`predictor`]: machine and forest side by side; the better one is served.
//! - [`mod@file`]: model files.
//!
//! A *row* is the features of one sample, the same number and order in all samples of a model. A
//! *target* is what is predicted. Both are finite.

#![forbid(unsafe_code)]

pub mod features;
pub mod file;
pub mod fm_ftrl;
pub mod forest;
pub mod interference;
pub mod predictor;
