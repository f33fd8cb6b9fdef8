//! Placement policies on recorded traces, in virtual time.

pub mod traces;
