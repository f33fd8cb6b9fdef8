//! The application's pointers, as parameter types of the exported functions. As in C, a pointer is
//! null, or valid as the prototype states for the duration of the call. Null is checked here, once.
//! All of the library's access to the application's memory is in this file.

#![expect(
    unsafe_code,
    reason = "reads and writes what the application's pointers point to"
)]

use std::ffi::{CStr, c_char, c_void};

use abi::types::CUresult;

#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

#[repr(transparent)]
pub(crate) struct In<T>(*const T);

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Bytes(*mut u8);

#[repr(transparent)]
pub(crate) struct Text(*const c_char);

/// `void **kernelParams`: the address of each parameter.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Params(*const *const c_void);

impl<T> Out<T> {
    /// From an address passed as an option's value.
    pub(crate) fn at(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface a place for a `T`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Stores one of several results; the caller declares that there is room.
    pub(crate) fn set_at(&self, index: usize, value: T) -> Result<(), CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface an array longer than `index`.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }

    pub(crate) fn cast<U>(&self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The address, for reports to the caller.
    pub(crate) fn address(&self) -> *mut T {
        self.0
    }

    pub(crate) fn set_if_wanted(&self, value: T) {
        let _ = self.set(value);
    }

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

    /// One of several values; the caller declares how many there are.
    pub(crate) fn at(&self, index: usize) -> Result<T, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface an array longer than `index`.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

impl<T> In<T> {
    /// The `N` words of a structure.
    pub(crate) fn words<const N: usize>(&self) -> Result<[u64; N], CUresult> {
        assert!(
            size_of::<T>() == 8 * N,
            "as many words as the structure has"
        );
        In(self.0.cast::<[u64; N]>()).get()
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// From a member of a structure that was read.
    pub(crate) fn member(pointer: *const T) -> Self {
        Self(pointer)
    }
}

impl Bytes {
    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// From an address that the application passes as a number.
    pub(crate) fn at(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    pub(crate) fn with<R>(
        self,
        count: usize,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface `count` readable bytes, unchanged
        // during the call. The slice does not outlive the closure.
        Ok(read(unsafe { std::slice::from_raw_parts(self.0, count) }))
    }

    pub(crate) fn with_mut<R>(
        self,
        count: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface `count` writable bytes without
        // other users during the call; any bytes are a value of u8. The slice stays in the closure.
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

    /// The text at this address, if it begins with `prefix` and ends with a NUL within `bytes_max`.
    /// Reads no byte after the first that differs, nor after the NUL.
    pub(crate) fn text_with_prefix(self, prefix: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < bytes_max {
            // SAFETY: by the contract of the C interface an image longer than the part read so far,
            // which had neither its NUL nor a byte of another kind of image.
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
    /// The text, which may be anything; bytes that are not UTF-8 are replaced.
    pub(crate) fn to_string(&self) -> Result<String, CUresult> {
        if self.0.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        // SAFETY: not null, so by the contract of the C interface a NUL-terminated text.
        Ok(unsafe { CStr::from_ptr(self.0) }
            .to_string_lossy()
            .into_owned())
    }
}

impl Params {
    /// From a member of a structure that was read.
    pub(crate) fn at(pointer: *mut *mut c_void) -> Self {
        Self(pointer.cast_const().cast())
    }

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

/// `void **extra`: pairs of kind and value, up to an end mark.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Extra(*const *const c_void);

/// Kinds in [`Extra`]: its end, the address of packed parameters, and the address of their size.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_SIZE: usize = 2;
/// Most pairs that are read; there are two kinds.
const EXTRA_MAX: usize = 8;
/// Most bytes of a launch's parameters (CUDA C++ Programming Guide, from 12.1 on).
const PARAMS_BYTES_MAX: usize = 32_764;

impl Extra {
    /// No parameters in this form.
    pub(crate) const NONE: Self = Self(std::ptr::null());

    /// From a member of a structure that was read.
    pub(crate) fn at(pointer: *mut *mut c_void) -> Self {
        Self(pointer.cast_const().cast())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn packed(self) -> Result<Vec<u8>, CUresult> {
        let (mut buffer, mut size) = (Bytes(std::ptr::null_mut()), 0);
        for pair in 0..EXTRA_MAX {
            let what = In(self.0).at(2 * pair)?.addr();
            if what == EXTRA_END {
                break;
            }
            let value = In(self.0).at(2 * pair + 1)?;
            match what {
                EXTRA_BUFFER => buffer = Bytes(value.cast_mut().cast()),
                EXTRA_SIZE => size = In(value.cast::<usize>()).get()?,
                _ => return Err(CUresult::INVALID_VALUE),
            }
        }
        if size == 0 {
            return Ok(Vec::new());
        }
        if size > PARAMS_BYTES_MAX {
            return Err(CUresult::INVALID_VALUE);
        }
        buffer.with(size, <[u8]>::to_vec)
    }
}

/// Reserves addresses of the process permanently, so that nothing is mapped there.
pub(crate) fn keep_off(start: u64, bytes: u64) -> Result<(), CUresult> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let address = std::ptr::without_provenance_mut(start as usize);
    // SAFETY: a mapping without access that replaces none.
    let mapped = unsafe { mmap_anonymous(address, bytes as usize, ProtFlags::empty(), flags) };
    mapped.map(|_| ()).map_err(|_| CUresult::OUT_OF_MEMORY)
}

pub(crate) fn handle(number: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(number as usize)
}

/// Writes a C string of at most `room` bytes, NUL included, truncated if need be.
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
