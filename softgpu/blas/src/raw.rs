//! The application's pointers, where the libraries themselves read or write what they point to.
//!
//! What crosses the C interface is trusted as far as C trusts it: a pointer is null, or points to what the prototype
//! says for as long as the call lasts. Null is checked here, once.

#![expect(
    unsafe_code,
    reason = "reads and writes what the application's pointers point to"
)]

use crate::status::Status;

/// Where a result goes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Out<T>(*mut T);

/// Bytes of an attribute.
#[repr(transparent)]
#[derive(Debug)]
pub struct Bytes(*const u8);

/// Room for the bytes of an attribute.
#[repr(transparent)]
#[derive(Debug)]
pub struct Room(*mut u8);

impl Room {
    /// Stores an attribute, if there is room for it, and says how long it is where somebody asks. No room at all is the
    /// question for its length alone.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE`] for too little room, and for NULL unless the length alone is asked for.
    pub fn set(&self, attribute: &[u8], length: usize, written: &Out<usize>) -> Result<(), Status> {
        if length == 0 {
            return written.set(attribute.len());
        }
        if self.0.is_null() || length < attribute.len() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface `length` bytes that the caller lends us.
        unsafe {
            self.0
                .copy_from_nonoverlapping(attribute.as_ptr(), attribute.len())
        };
        match written.set(attribute.len()) {
            // Nobody asks.
            Err(_) | Ok(()) => Ok(()),
        }
    }
}

impl<T> Out<T> {
    /// Stores a result.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE`] for NULL.
    pub fn set(&self, value: T) -> Result<(), Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface a place for a `T` that the caller lends us.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
}

impl Bytes {
    /// The attribute, if it is `N` bytes long.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE`] for NULL and for another length.
    pub fn get<const N: usize>(&self, length: usize) -> Result<[u8; N], Status> {
        if self.0.is_null() || length != N {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface `length` readable bytes, and that is `N`.
        Ok(unsafe { self.0.cast::<[u8; N]>().read_unaligned() })
    }
}
