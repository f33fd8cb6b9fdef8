//! Files that the dynamic linker has loaded, and the symbols they define. Nothing is loaded here: a
//! file is opened only if the process has it already. The linker takes its locks and may allocate,
//! so none of this is for the launch path.

#![expect(
    unsafe_code,
    reason = "asks the dynamic linker, which answers by pointers"
)]

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::platform::loader;

pub(crate) struct File {
    name: NonNull<c_char>,
    pub(crate) base: usize,
}

impl File {
    pub(crate) fn of(address: *mut c_void) -> Option<Self> {
        let mut told = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: a place that outlives the call.
        let found = unsafe { loader::dladdr()(address, told.as_mut_ptr()) };
        if found == 0 {
            return None;
        }
        // SAFETY: zeroes are such a value, and the call succeeded.
        let told = unsafe { told.assume_init() };
        Some(Self {
            name: NonNull::new(told.dli_fname.cast_mut())?,
            base: told.dli_fbase as usize,
        })
    }

    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: the linker's string for a file whose code is called, or was just looked up.
        unsafe { CStr::from_ptr(self.name.as_ptr()) }
    }

    pub(crate) fn is_program(&self) -> bool {
        // SAFETY: no precondition; the program's headers are mapped for good.
        let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as *mut c_void;
        Self::of(headers).is_some_and(|program| program.base == self.base)
    }

    /// Keeps the file loaded for good. Returns whether that succeeded. The program always stays.
    pub(crate) fn keep(&self) -> bool {
        self.is_program() || Opened::of(self.name()).map(Opened::keep).is_some()
    }

    /// Whether the file name is `stem`, with or without a version after it: `libcublas.so`.
    pub(crate) fn is_named(&self, stem: &str) -> bool {
        let path = self.name().to_bytes();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let end = name.strip_prefix(stem.as_bytes());
        end.is_some_and(|end| matches!(end.first(), None | Some(b'.')))
    }
}

/// The symbol that a caller would find without our own exports. First, the next definition after
/// ours in the whole program. With `RTLD_DEFAULT` otherwise, the definition in the caller's library
/// or its dependencies: that is how a library opened with `RTLD_LOCAL` finds what it brings along.
/// `look_up` asks libc with another handle.
pub(crate) fn past_us(
    handle: *mut c_void,
    caller: *mut c_void,
    look_up: impl Fn(*mut c_void) -> *mut c_void,
) -> *mut c_void {
    // For this RTLD_NEXT the caller is this library.
    let next = look_up(libc::RTLD_NEXT);
    if !next.is_null() || handle != libc::RTLD_DEFAULT {
        return next;
    }
    // An unidentified caller has no scope of its own; the program's, which includes ours, applies.
    let its = File::of(caller).and_then(|file| Opened::of(file.name()));
    let found = its.map_or(next, |opened| look_up(opened.0.as_ptr()));
    let base_of = |address| File::of(address).map(|file| file.base);
    if found.is_null() || base_of(found) == base_of(File::of as *mut c_void) {
        // Repeat the look-up to set `dlerror`.
        return look_up(libc::RTLD_NEXT);
    }
    found
}

pub(crate) struct Opened(NonNull<c_void>);

impl Opened {
    pub(crate) fn of(name: &CStr) -> Option<Self> {
        let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: a string that ends in NUL; nothing is loaded, so no code of the file's runs.
        NonNull::new(unsafe { loader::dlopen()(name.as_ptr(), mode) }).map(Self)
    }

    pub(crate) fn find(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open library and a string that ends in NUL.
        NonNull::new(unsafe { loader::dlsym()(self.0.as_ptr(), symbol.as_ptr()) })
    }

    /// Holds the file for good, so that its addresses are never reused.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened by `of`, and closed once.
        unsafe { loader::dlclose()(self.0.as_ptr()) };
    }
}
