//! `dlopen` and `dlmopen`, watched.
//!
//! Two ways of opening a library make its calls pass by every preloaded library: `RTLD_DEEPBIND`
//! binds its symbols to its own dependencies first, libc's `dlsym` among them, and `dlmopen` puts it
//! into a namespace of its own, where nothing is preloaded. The flags are the program's and stay as
//! they are; what we do is say so ([`crate::bypass`]). The shim reaches both.
//!
//! Where the answer does not depend on who asks, libc's function is called and its result looked at;
//! else it is jumped to, as search paths (`DT_RPATH`, `$ORIGIN`) are the caller's.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

use crate::bypass::{self, Way};
use crate::loader::{self, JUMP, or_jump};

or_jump! {
    /// libc's `dlopen`, watched.
    ///
    /// # Safety
    /// As `dlopen`.
    dlopen(_file: *const c_char, _flags: c_int),
    watch, loader::DLOPEN
}

or_jump! {
    /// libc's `dlmopen`, watched.
    ///
    /// # Safety
    /// As `dlmopen`.
    dlmopen(_namespace: c_long, _file: *const c_char, _flags: c_int),
    watch_namespace, loader::DLMOPEN
}

/// The program's own namespace (`LM_ID_BASE`).
const BASE: c_long = 0;

extern "C-unwind" fn watch(file: *const c_char, flags: c_int) -> *mut c_void {
    let dlopen = loader::dlopen();
    if flags & libc::RTLD_DEEPBIND == 0 {
        return look_again();
    }
    // SAFETY: the arguments of the call we are in.
    open(Way::DeepBind, file, || unsafe { dlopen(file, flags) })
}

extern "C-unwind" fn watch_namespace(
    namespace: c_long,
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    let dlmopen = loader::dlmopen();
    let way = match (namespace, flags & libc::RTLD_DEEPBIND) {
        (BASE, 0) => return look_again(),
        (BASE, _) => Way::DeepBind,
        _ => Way::Namespace,
    };
    // SAFETY: the arguments of the call we are in.
    open(way, file, || unsafe { dlmopen(namespace, file, flags) })
}

/// An opening that is none of our business, and an occasion to look at those before it.
fn look_again() -> *mut c_void {
    bypass::look();
    JUMP
}

fn open(way: Way, file: *const c_char, real: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if file.is_null() {
        // The program itself, which is opened already.
        return JUMP;
    }
    // SAFETY: the file's name ends in NUL and is not null.
    let name = unsafe { CStr::from_ptr(file) };
    bypass::handle_opening(way, name);
    let answer = if is_path(name.to_bytes()) {
        // Null if it failed: then the jump fails once more, and leaves its error where the caller
        // looks for it.
        real()
    } else {
        JUMP
    };
    bypass::look();
    answer
}

/// Whether the name is a path, whose meaning does not depend on the caller.
fn is_path(name: &[u8]) -> bool {
    name.contains(&b'/') && !name.contains(&b'$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_searches_for_is_not_a_path() {
        for (name, path) in [
            ("libm.so.6", false),
            ("./libm.so", true),
            ("/usr/lib/libm.so", true),
            ("$ORIGIN/libm.so", false),
        ] {
            assert_eq!(is_path(name.as_bytes()), path, "{name}");
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
