//! Shared by the benches: measuring a cost, and reporting it.
//!
//! | module | contents |
//! |---|---|
//! | [`timer`] | reading the time around a few nanoseconds of code |
//! | [`alternate`] | two ways of doing the same thing, in alternated blocks, one call at a time |
//! | [`summary`] | quantiles of the measurements, and of the difference |
//! | [`machine`] | the machine of the measurement |
//! | [`mod@bench`] | the command line, the exit code, where the report goes |
//! | [`report`] | the table and the JSON document |
//!
//! Words: the *bare* side is the thing without Pillion, the *with* side the same thing with it; a
//! *cost* is the difference of their medians. Times are nanoseconds unless the name says otherwise.

pub mod alternate;
pub mod bench;
pub mod machine;
pub mod report;
pub mod summary;
pub mod timer;
