//! What people and programs are told: the status as JSON, and events.

pub mod events;
pub mod status;
