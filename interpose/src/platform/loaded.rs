//! Files that the dynamic linker has loaded, and what they define.
//!
//! Nothing is loaded here: a file is opened only if it is in the process already. The linker takes its locks meanwhile
//! and may allocate, so none of this is for the launch path.

#![expect(
    unsafe_code,
    reason = "asks the dynamic linker, which answers by pointers"
)]

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::platform::loader;

/// A loaded file, as the dynamic linker knows it.
pub(crate) struct File {
    name: NonNull<c_char>,
    /// Where it lies.
    pub(crate) base: usize,
}

impl File {
    /// The one that an address lies in.
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

    /// Its path, as it was found.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: the dynamic linker's own text of a file whose code is being called, or was just looked up.
        unsafe { CStr::from_ptr(self.name.as_ptr()) }
    }

    /// Whether it is the program itself.
    pub(crate) fn is_program(&self) -> bool {
        // SAFETY: no precondition; the program's headers are mapped for good.
        let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as *mut c_void;
        Self::of(headers).is_some_and(|program| program.base == self.base)
    }

    /// Keeps it loaded for good; whether that could be done. The program itself stays anyway.
    pub(crate) fn keep(&self) -> bool {
        self.is_program() || Opened::of(self.name()).map(Opened::keep).is_some()
    }

    /// Whether its file is called so, with a version after it or none: `libcublas.so`.
    pub(crate) fn is_named(&self, stem: &str) -> bool {
        let path = self.name().to_bytes();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let end = name.strip_prefix(stem.as_bytes());
        end.is_some_and(|end| matches!(end.first(), None | Some(b'.')))
    }
}

/// What a caller would have found past our own exports, which hide it: what comes after us for the whole program; with
/// `RTLD_DEFAULT` else what the library that the caller is part of, or one that it depends on, defines. A library that was opened
/// without making its names known (`RTLD_LOCAL`) finds so what it brings along. `look_up` asks libc with another handle.
pub(crate) fn past_us(
    handle: *mut c_void,
    caller: *mut c_void,
    look_up: impl Fn(*mut c_void) -> *mut c_void,
) -> *mut c_void {
    // The caller that RTLD_NEXT goes by is this library.
    let next = look_up(libc::RTLD_NEXT);
    if !next.is_null() || handle != libc::RTLD_DEFAULT {
        return next;
    }
    // One that cannot be told has no scope of its own; the program's is that of all, ours among them.
    let its = File::of(caller).and_then(|file| Opened::of(file.name()));
    let found = its.map_or(next, |opened| look_up(opened.0.as_ptr()));
    let base_of = |address| File::of(address).map(|file| file.base);
    if found.is_null() || base_of(found) == base_of(File::of as *mut c_void) {
        // Once more, so that `dlerror` tells of it.
        return look_up(libc::RTLD_NEXT);
    }
    found
}

/// A loaded file that is held while this lives.
pub(crate) struct Opened(NonNull<c_void>);

impl Opened {
    /// The file of that name, if it is loaded.
    pub(crate) fn of(name: &CStr) -> Option<Self> {
        let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: a string that ends in NUL; nothing is loaded, so no code of the file's runs.
        NonNull::new(unsafe { loader::dlopen()(name.as_ptr(), mode) }).map(Self)
    }

    /// What it or a library that it depends on defines under that name.
    pub(crate) fn find(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open library and a string that ends in NUL.
        NonNull::new(unsafe { loader::dlsym()(self.0.as_ptr(), symbol.as_ptr()) })
    }

    /// Holds it for good, so that its addresses never become another's.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened by `of`, and given back once.
        unsafe { loader::dlclose()(self.0.as_ptr()) };
    }
}
