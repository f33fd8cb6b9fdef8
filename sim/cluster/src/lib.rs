//! Placement policies on recorded traces, in virtual time.

pub mod inflation;
pub mod published_random;
pub mod traces;
