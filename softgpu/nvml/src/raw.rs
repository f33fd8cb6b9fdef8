//! The application's pointers, as parameter types of the exported functions. As in C, a pointer is
//! null, or valid as the prototype states for the duration of the call. Null is checked here, once.
//! All of the library's access to the application's memory is in this file.

#![expect(
    unsafe_code,
    reason = "reads and writes what the application's pointers point to"
)]

use std::ffi::{CStr, c_char, c_uint};

use crate::code::{Code, Outcome};

#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl<T: Copy> Out<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn set(&self, value: T) -> Outcome {
        self.set_all(&[value])
    }

    /// Stores several results; the caller declares that there is room.
    pub(crate) fn set_all(&self, values: &[T]) -> Outcome {
        if values.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        for (index, &value) in values.iter().enumerate() {
            // SAFETY: not null, so by the contract of the C interface an array as long as the
            // prototype or the caller's count states.
            unsafe { self.0.add(index).write_unaligned(value) };
        }
        Ok(())
    }

    /// The value of an argument that is both input and output.
    pub(crate) fn get(&self) -> Outcome<T> {
        self.at(0)
    }

    pub(crate) fn at(&self, index: usize) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so by the contract of the C interface a filled array longer than
        // `index`.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }

    pub(crate) fn set_at(&self, index: usize, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: as in `at`.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }
}

impl<H> Out<H> {
    /// The array at the end of a structure, after its fixed part `H`.
    pub(crate) fn after<T>(&self) -> Out<T> {
        const { assert!(size_of::<H>().is_multiple_of(align_of::<T>())) };
        Out(self.0.wrapping_add(1).cast())
    }
}

impl Out<c_uint> {
    /// The version at the head of a structure, read before the rest is accessed.
    pub(crate) fn version_of<T>(structure: &Out<T>) -> Outcome<c_uint> {
        Self(structure.0.cast()).at(0)
    }
}

impl Out<c_char> {
    /// Writes a C string into `room` bytes, NUL included.
    pub(crate) fn set_text(&self, room: c_uint, text: &str) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        if text.len() >= room as usize {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        let bytes: Vec<c_char> = text.bytes().chain([0]).map(u8::cast_signed).collect();
        self.set_all(&bytes)
    }
}

impl Text {
    /// The text, which may be anything; bytes that are not UTF-8 are replaced.
    pub(crate) fn to_string(&self) -> Outcome<String> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, so by the contract of the C interface a NUL-terminated text.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}
