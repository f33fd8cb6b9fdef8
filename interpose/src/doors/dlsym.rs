//! The second door: `dlsym` and `dlvsym`. A program that asks for one of our entry points *of the
//! driver*, or for a hooked function of NVML, gets the hook. Everything else must behave as if we
//! were not there, which [`crate::platform::loader`] ensures. `dlvsym` asks for a version. The
//! driver's symbols have none, and the loader accepts a symbol without a version for any, so the
//! same look-up is made with the version.

#![expect(
    unsafe_code,
    reason = "exports C functions, and reads names that callers pass"
)]

use core::ffi::{CStr, c_char, c_void};

use crate::dispatch::telemetry::{self, Door};
use crate::driver::real;
use crate::hooks::{cuda, nvml, operators};
use crate::platform::elf;
use crate::platform::loaded::{File, past_us};
use crate::platform::loader::{self, ABSENT, JUMP, or_jump};

or_jump! {
    /// Returns hooks for the driver's entry points and jumps to the real `dlsym` for the rest.
    /// # Safety
    /// As `dlsym`.
    dlsym(_handle: *mut c_void, _symbol: *const c_char),
    decide, dlsym
}

or_jump! {
    /// The same for `dlvsym`.
    /// # Safety
    /// As `dlvsym`.
    dlvsym(_handle: *mut c_void, _symbol: *const c_char, _version: *const c_char),
    decide_version, dlvsym
}

extern "C" fn decide(
    handle: *mut c_void,
    symbol: *const c_char,
    _nothing: *const c_char,
    caller: *mut c_void,
) -> *mut c_void {
    let real_dlsym = loader::dlsym();
    // SAFETY: the handle of the call we are in, or one that any caller may use, and its symbol.
    answer(handle, symbol, caller, |handle| unsafe {
        real_dlsym(handle, symbol)
    })
}

extern "C" fn decide_version(
    handle: *mut c_void,
    symbol: *const c_char,
    version: *const c_char,
    caller: *mut c_void,
) -> *mut c_void {
    let real_dlvsym = loader::dlvsym();
    if version.is_null() {
        return JUMP;
    }
    // SAFETY: as in `decide`.
    answer(handle, symbol, caller, |handle| unsafe {
        real_dlvsym(handle, symbol, version)
    })
}

/// Decides a look-up: returns the hook, or [`JUMP`] or [`ABSENT`]. The call returns to `caller`;
/// `look_up` asks libc with another handle. Runs inside any `dlsym` of any thread of any program,
/// even before `main`: no allocation, lock, formatting or panic. Beyond the look-up itself it takes
/// the dynamic linker's locks, as `dlsym` does, in three cases: operators and NVML, which only
/// programs that use them look up; a library that brings its own driver; and a caller that wants
/// the next definition.
fn answer(
    handle: *mut c_void,
    symbol: *const c_char,
    caller: *mut c_void,
    look_up: impl Fn(*mut c_void) -> *mut c_void,
) -> *mut c_void {
    // Most names cannot be in the tables; skip the look-up for them.
    if !may_be_ours(symbol) {
        return JUMP;
    }
    // SAFETY: `dlsym` is given a string that ends in NUL, and it is not null.
    let name = unsafe { CStr::from_ptr(symbol) };
    if handle == libc::RTLD_NEXT {
        return next(name, caller, &look_up);
    }
    if let Some(answer) = operators::answer(handle, name, caller, &look_up) {
        return answer;
    }
    if let Some(answer) = nvml::answer(handle, name, caller, &look_up) {
        return answer;
    }
    // Names of curl, NVML and cuDNN can begin like the driver's.
    if !name.to_bytes().get(2).is_some_and(u8::is_ascii_uppercase) {
        return JUMP;
    }
    let Some(index) = abi::lookup(name) else {
        if real::has_unknown(name) {
            telemetry::handle_unknown(name);
        }
        return JUMP;
    };
    let Some(hook) = cuda::hook_of(index) else {
        if real::loaded(index).is_some() {
            telemetry::handle_resolved(Door::Dlsym, index, false);
        }
        return JUMP;
    };
    // Before the caller's look-up: where the driver is absent this leaves a `dlerror`, which the
    // caller's successful look-up clears, as the caller expects.
    let driver = real::loaded(index);
    // Only RTLD_NEXT has a meaning that depends on the caller; for RTLD_DEFAULT see below.
    let mut found = look_up(loader::as_asked_by_us(handle));
    if handle == libc::RTLD_DEFAULT && found == hook {
        // Our own export hides what the caller would have found without us.
        found = past_us(handle, caller, &look_up);
        if found.is_null() {
            return ABSENT;
        }
    }
    if found.is_null() {
        return JUMP;
    }
    match driver {
        // Replace only what the driver itself exports under that name.
        Some(driver) if driver.as_ptr() == found && !real::are_hooks_elsewhere() => {
            telemetry::handle_resolved(Door::Dlsym, index, true);
            hook
        }
        _ => {
            let is_driver = || File::of(found).is_some_and(|file| file.is_named("libcuda.so"));
            if found != hook && !real::are_hooks_elsewhere() && is_driver() {
                // Another copy of the driver: in another namespace, or from another path.
                telemetry::handle_passed_by(index);
            }
            if handle == libc::RTLD_DEFAULT {
                found
            } else {
                JUMP
            }
        }
    }
}

/// libc resolves RTLD_NEXT. But for a program, or a library preloaded before us, "next" includes
/// our exports: the caller would take a function for present that its driver lacks.
fn next(
    name: &CStr,
    caller: *mut c_void,
    look_up: &impl Fn(*mut c_void) -> *mut c_void,
) -> *mut c_void {
    let is_hooked = abi::lookup(name).and_then(cuda::hook_of).is_some();
    let is_before_us = || {
        let ours = File::of(dlsym as *mut c_void).map_or(0, |ours| ours.base);
        let its = File::of(caller);
        its.is_some_and(|its| its.is_program() || elf::is_before(its.base, ours))
    };
    // For this RTLD_NEXT the caller is this library.
    if is_hooked && is_before_us() && look_up(libc::RTLD_NEXT).is_null() {
        ABSENT
    } else {
        JUMP
    }
}

/// Whether the name can be in one of our tables: "cu" and a capital letter as in the driver's, or a
/// prefix of NVML, cuBLAS or cuDNN, which cost a search of the list of operators.
fn may_be_ours(symbol: *const c_char) -> bool {
    if symbol.is_null() {
        return false;
    }
    // SAFETY: each byte is read only if the one before it was not the NUL at the end.
    unsafe {
        let byte = |at: usize| *symbol.cast::<u8>().add(at);
        (byte(0) == b'c'
            && byte(1) == b'u'
            && (byte(2).is_ascii_uppercase()
                || (byte(2) == b'b' && byte(3) == b'l' && byte(4) == b'a')
                || (byte(2) == b'd' && byte(3) == b'n' && byte(4) == b'n')))
            || (byte(0) == b'n' && byte(1) == b'v' && byte(2) == b'm' && byte(3) == b'l')
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    #[test]
    fn only_names_that_begin_like_the_tables_can_be_ours() {
        for (name, ours) in [
            (c"cuInit", true),
            (c"cublasCreate_v2", true),
            (c"cudnnCreate", true),
            (c"nvmlInit_v2", true),
            (c"nvm", false),
            (c"cubl", false),
            (c"cudaMalloc", false),
            (c"curl_easy_init", false),
            (c"cu", false),
            (c"c", false),
            (c"", false),
            (c"malloc", false),
        ] {
            assert_eq!(may_be_ours(name.as_ptr()), ours, "{name:?}");
        }
        assert!(!may_be_ours(ptr::null()));
    }

    #[test]
    fn names_that_are_not_ours_are_found_as_without_us() {
        // SAFETY: the arguments of plain look-ups.
        unsafe {
            let name = c"getenv".as_ptr();
            let ours = dlsym(libc::RTLD_DEFAULT, name);
            assert!(!ours.is_null());
            assert_eq!(ours, loader::dlsym()(libc::RTLD_DEFAULT, name));
            for version in [c"GLIBC_2.2.5", c"GLIBC_0.0"] {
                let version = version.as_ptr();
                let ours = dlvsym(libc::RTLD_DEFAULT, name, version);
                assert_eq!(ours, loader::dlvsym()(libc::RTLD_DEFAULT, name, version));
            }
        }
    }
}
