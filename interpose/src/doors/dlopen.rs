//! Watches `dlopen` and `dlmopen`. Two ways of opening a library make its calls bypass every
//! preloaded library. `RTLD_DEEPBIND` binds its symbols to its own dependencies first, libc's
//! `dlsym` among them. `dlmopen` loads it into a new namespace, where nothing is preloaded. We keep
//! the program's flags and report it ([`crate::dispatch::bypass`]). The shim reaches both. We never
//! call libc's function but jump to it: where it searches and into which namespace it loads depend
//! on the caller (`DT_RPATH`, `$ORIGIN`), and an error of ours would be left for the program's
//! `dlerror`. The opened library is therefore inspected on the next occasion.

#![expect(
    unsafe_code,
    reason = "exports C functions, and reads names that callers pass"
)]

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

use crate::dispatch::bypass::{self, Way};
use crate::platform::loader::{self, JUMP, or_jump};

or_jump! {
    /// libc's `dlopen`, watched.
    /// # Safety
    /// As `dlopen`.
    dlopen(_file: *const c_char, _flags: c_int),
    watch, dlopen
}

or_jump! {
    /// libc's `dlmopen`, watched.
    /// # Safety
    /// As `dlmopen`.
    dlmopen(_namespace: c_long, _file: *const c_char, _flags: c_int),
    watch_namespace, dlmopen
}

/// The namespace of the program (`LM_ID_BASE`).
const BASE: c_long = 0;

extern "C-unwind" fn watch(file: *const c_char, flags: c_int) -> *mut c_void {
    // Resolves the address that the jump uses.
    loader::dlopen();
    if flags & libc::RTLD_DEEPBIND != 0 {
        note(Way::DeepBind, file);
    }
    bypass::look();
    JUMP
}

extern "C-unwind" fn watch_namespace(
    namespace: c_long,
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    loader::dlmopen();
    match (namespace, flags & libc::RTLD_DEEPBIND) {
        (BASE, 0) => {}
        (BASE, _) => note(Way::DeepBind, file),
        _ => note(Way::Namespace, file),
    }
    bypass::look();
    JUMP
}

/// Notes a library that is about to be opened in a bypassing way. Null is the program itself, open
/// already. The driver calls nothing of its own that we hook, and `dlsym` finds our hooks for it.
fn note(way: Way, file: *const c_char) {
    if file.is_null() {
        return;
    }
    // SAFETY: the file's name ends in NUL and is not null.
    let file = unsafe { CStr::from_ptr(file) };
    if way == Way::Namespace || !is_driver(file) {
        bypass::handle_opening(way, file);
    }
}

fn is_driver(file: &CStr) -> bool {
    let path = file.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.starts_with(b"libcuda.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_told_from_other_libraries() {
        for (file, is_it) in [
            (c"libcuda.so.1", true),
            (c"/usr/lib/libcuda.so.535.309.01", true),
            (c"libcudart.so.12", false),
            (c"libcuda.so.1/libplugin.so", false),
            (c"", false),
        ] {
            assert_eq!(is_driver(file), is_it, "{file:?}");
        }
    }

    #[test]
    fn libraries_open_as_without_us() {
        // SAFETY: names that end in NUL; libm has no constructor that matters here.
        unsafe {
            let ours = dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW);
            assert!(!ours.is_null());
            assert_eq!(
                ours,
                loader::dlopen()(c"libm.so.6".as_ptr(), libc::RTLD_NOW)
            );
            assert_eq!(ours, dlmopen(BASE, c"libm.so.6".as_ptr(), libc::RTLD_NOW));
            assert!(dlopen(c"/no/such/library.so".as_ptr(), libc::RTLD_NOW).is_null());
            let deep = libc::RTLD_NOW | libc::RTLD_DEEPBIND;
            assert!(dlopen(c"/no/such/library.so".as_ptr(), deep).is_null());
            assert!(!libc::dlerror().is_null());
        }
    }
}
