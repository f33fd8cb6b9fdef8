//! The libraries' status codes, and the entry into each call.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// `cublasStatus_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// The call succeeded.
    pub const SUCCESS: Self = Self(0);
    /// There is no driver, no device or no context, or the handle is invalid.
    pub const NOT_INITIALIZED: Self = Self(1);
    /// An argument is outside its domain.
    pub const INVALID_VALUE: Self = Self(7);
    /// The driver refused the launch.
    pub const EXECUTION_FAILED: Self = Self(13);
    /// A bug in the stand-in.
    pub const INTERNAL_ERROR: Self = Self(14);
    /// The stand-in lacks it.
    pub const NOT_SUPPORTED: Self = Self(15);
}

/// Runs a call of one of the libraries.
pub fn enter(call: impl FnOnce() -> Result<(), Status>) -> Status {
    // A panic is a bug in the stand-in and must not unwind into C. The locks do not poison.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Status::SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => Status::INTERNAL_ERROR,
    }
}
