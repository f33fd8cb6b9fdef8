//! The application's pointers that the libraries dereference. As in C, a pointer is null, or valid
//! as the prototype states for the duration of the call. Null is checked here, once.

#![expect(
    unsafe_code,
    reason = "reads and writes what the application's pointers point to"
)]

use crate::status::Status;

/// Destination of a result.
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
    /// Stores an attribute if there is room for it, and its length if requested. Without any room
    /// only the length is requested.
    /// # Errors
    /// [`Status::INVALID_VALUE`] for too little room, and for NULL except to request the length.
    pub fn set(&self, attribute: &[u8], length: usize, written: &Out<usize>) -> Result<(), Status> {
        if length == 0 {
            return written.set(attribute.len());
        }
        if self.0.is_null() || length < attribute.len() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface the caller lends `length` bytes.
        unsafe {
            self.0
                .copy_from_nonoverlapping(attribute.as_ptr(), attribute.len())
        };
        match written.set(attribute.len()) {
            Err(_) | Ok(()) => Ok(()),
        }
    }
}

impl<T> Out<T> {
    /// Stores a result.
    /// # Errors
    /// [`Status::INVALID_VALUE`] for NULL.
    pub fn set(&self, value: T) -> Result<(), Status> {
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface a place for a `T`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
}

impl Bytes {
    /// The attribute, if it is `N` bytes long.
    /// # Errors
    /// [`Status::INVALID_VALUE`] for NULL and for another length.
    pub fn get<const N: usize>(&self, length: usize) -> Result<[u8; N], Status> {
        if self.0.is_null() || length != N {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface `length` = `N` readable bytes.
        Ok(unsafe { self.0.cast::<[u8; N]>().read_unaligned() })
    }
}
