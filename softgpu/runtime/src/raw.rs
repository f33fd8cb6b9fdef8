//! The application's pointers that the runtime dereferences. As in C, a pointer is null, or valid
//! as the prototype states for the duration of the call. Null is checked here, once.

#![expect(
    unsafe_code,
    reason = "reads and writes what the application's pointers point to"
)]

use crate::error::Error;

#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct In<T>(*const T);

impl<T> Out<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), Error> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface a place for a `T`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.0
    }
}

impl<T: Copy> In<T> {
    pub(crate) fn get(&self) -> Result<T, Error> {
        if self.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface a `T`, unchanged meanwhile.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// Writes a C string of at most `room` bytes, NUL included, truncated if need be.
pub(crate) fn write_text(to: &Out<u8>, room: usize, text: &[u8]) -> Result<(), Error> {
    if to.is_null() || room == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let text = &text[..text.len().min(room - 1)];
    for (at, &byte) in text.iter().chain(&[0]).enumerate() {
        // SAFETY: not null, so by the contract of the C interface a place for `room` > `at` bytes.
        unsafe { to.0.add(at).write(byte) };
    }
    Ok(())
}
