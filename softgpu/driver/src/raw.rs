//! The application's pointers, as parameter types of the exported functions.
//!
//! What crosses the C interface is trusted as far as C trusts it: a pointer is null, or points to
//! what the prototype says for as long as the call lasts. Null is checked here, once. All of the
//! library's access to the application's memory is in this file.

use std::ffi::{CStr, c_char, c_void};

use abi::types::CUresult;

/// Where a result goes.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// Where an argument is.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

/// Some bytes of the application.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Bytes(*mut u8);

/// A text that ends with a NUL.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

/// `void **kernelParams`: an address of each parameter.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Params(*const *const c_void);

impl<T> Out<T> {
    /// For an address that came as an option's value.
    pub(crate) fn at(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Stores a result.
    pub(crate) fn set(&self, value: T) -> Result<(), CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface a place for a `T` that the caller
        // lends us.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Stores a result if it is wanted.
    pub(crate) fn set_if_wanted(&self, value: T) {
        let _ = self.set(value);
    }

    /// What is there, of an argument that goes both ways.
    pub(crate) fn get(&self) -> Result<T, CUresult>
    where
        T: Copy,
    {
        In(self.0.cast_const()).get()
    }
}

impl<T: Copy> In<T> {
    pub(crate) fn get(&self) -> Result<T, CUresult> {
        self.at(0)
    }

    /// One of several, which the caller says there are.
    pub(crate) fn at(&self, index: usize) -> Result<T, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface an array of `T` that is longer
        // than `index`.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

impl<T> In<T> {
    /// For a member of a structure that was read.
    pub(crate) fn member(pointer: *const T) -> Self {
        Self(pointer)
    }
}

impl Bytes {
    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// From the address that the application passes as a number.
    pub(crate) fn at(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    /// The bytes for reading.
    pub(crate) fn with<R>(
        self,
        count: usize,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface `count` readable bytes, which the
        // caller does not change during the call. The slice does not outlive the closure.
        Ok(read(unsafe { std::slice::from_raw_parts(self.0, count) }))
    }

    /// The bytes for writing.
    pub(crate) fn with_mut<R>(
        self,
        count: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface `count` writable bytes that
        // nobody else uses during the call; any bytes are a value of u8. The slice does not outlive
        // the closure.
        Ok(write(unsafe {
            std::slice::from_raw_parts_mut(self.0, count)
        }))
    }

    /// Moves bytes inside the application's memory; the ranges may overlap.
    pub(crate) fn move_from(self, from: Self, count: usize) -> Result<(), CUresult> {
        if self.0.is_null() || from.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: neither is null, so by the contract of the C interface `count` readable and
        // `count` writable bytes; `copy` allows overlap.
        unsafe { std::ptr::copy(from.0, self.0, count) };
        Ok(())
    }

    /// The text there, if it begins with `prefix` and ends with a NUL within `bytes_max`. Reads no
    /// byte after the first that differs, nor after the NUL.
    pub(crate) fn text_with_prefix(self, prefix: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < bytes_max {
            // SAFETY: by the contract of the C interface an image that is longer than what was read
            // of it so far, because neither its NUL nor a byte that makes it another kind of image
            // was seen.
            let byte = unsafe { self.0.add(text.len()).read() };
            if byte == 0 {
                return (text.len() >= prefix.len()).then_some(text);
            }
            if prefix
                .get(text.len())
                .is_some_and(|&expected| expected != byte)
            {
                return None;
            }
            text.push(byte);
        }
        None
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl Text {
    /// The text, of which nothing is known; bytes that are not UTF-8 are replaced.
    pub(crate) fn to_string(&self) -> Result<String, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface a text with a NUL at its end.
        Ok(unsafe { CStr::from_ptr(self.0) }
            .to_string_lossy()
            .into_owned())
    }
}

impl Params {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The first `size_bytes` (at most 8) of parameter `index`, as a number.
    pub(crate) fn number(self, index: usize, size_bytes: usize) -> Result<u64, CUresult> {
        let address = In(self.0).at(index)?;
        let mut word = [0; 8];
        Bytes(address.cast_mut().cast()).with(size_bytes, |bytes| {
            word[..size_bytes].copy_from_slice(bytes)
        })?;
        Ok(u64::from_le_bytes(word))
    }
}

/// Writes a C string of at most `room` bytes, NUL included, cut if need be.
pub(crate) fn write_text(to: &Out<c_char>, room: i32, text: &str) -> Result<(), CUresult> {
    let room = usize::try_from(room)
        .ok()
        .filter(|&room| room > 0)
        .ok_or(CUresult::INVALID_VALUE)?;
    let bytes = &text.as_bytes()[..text.len().min(room - 1)];
    Bytes(to.0.cast()).with_mut(bytes.len() + 1, |to| {
        to[..bytes.len()].copy_from_slice(bytes);
        to[bytes.len()] = 0;
    })
}
