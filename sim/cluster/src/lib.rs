//! Placement policies on recorded traces, in virtual time. `docs/cluster.md` has each experiment's
//! assumptions and results.
//!
//! | module | noun |
//! |---|---|
//! | [`traces`] | recorded clusters and jobs, as they were published |
//! | [`sources`], [`replay`] | what they mean to the simulator |
//! | [`world`] | jobs that arrive, run beside each other and end |
//! | [`outcome`], [`meter`] | the results |
//! | [`play`] | a cluster, its jobs, and what policies know of both |
//! | [`fgd`], [`inflation`], [`published_random`] | FGD's published experiment |
//! | [`days`], [`mixed`] | fifty-seven days, the comparison with GPUColo |
//! | [`services`], [`service_table`] | trainings beside services, the comparison with Mudi |
//! | [`interference`] | how well services are predicted beside trainings never met |
//! | [`muxflow`], [`muxflow_table`] | the comparison with MuxFlow |
//! | [`oltunes_table`] | what is true on the GPUs of the comparison with OLTunes |
//! | [`table`] | what the readers of tables share |
//! | [`prediction`] | how fast jobs are, predicted online from Gavel's measurements |
//!
//! No clock, no thread but that of a refit in [`prediction`], no IO but the reading of named files.

pub mod days;
pub mod fgd;
pub mod inflation;
pub mod interference;
pub mod meter;
pub mod mixed;
pub mod muxflow;
pub mod muxflow_table;
pub mod oltunes;
pub mod oltunes_table;
pub mod outcome;
pub mod play;
pub mod prediction;
pub mod published_random;
pub mod replay;
pub mod service_table;
pub mod services;
pub mod sources;
pub mod table;
pub mod traces;
pub mod world;

/// Version of results for equal input, so that those of two versions are not compared unawares.
pub const MODEL: u32 = 1;
