//! Determines which library's function a call of an operator reaches. Our exports come before every
//! library's, of any version. A process may hold cuBLAS 12 and cuBLAS 13, and libraries that define
//! functions of these names themselves (TensorFlow's load the real ones when first called). So each
//! *call site* is bound once, as the linker would have without us, to the first of:
//! 1. the next definition after us in the program, if another interposer's or its own;
//! 2. the definition in the caller's own library or its dependencies (the real libraries'
//!    symbols have versions, so that a caller of cuBLAS 12 is not bound to an earlier cuBLAS 13);
//! 3. the next definition after us;
//! 4. the definition in a library loaded under the library's own name.
//!
//! If another interposer stands before us, only its own calls for the next definition come here,
//! and they get that. Operators are labelled for one library of each kind, the first that is
//! called: a function in that very file is called through its hook, any other directly. So no call
//! ever reaches another library than without us. A site is found in a table without a lock. The
//! first call of a site asks the dynamic linker, which takes its locks and may allocate, like the
//! first call of any lazily bound function.

#![expect(
    unsafe_code,
    reason = "asks the dynamic linker, which answers by pointers"
)]

use core::ffi::{CStr, c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;

use abi::{Library, OPERATOR_COUNT, OPERATORS};

use super::helpers::HELPERS;
use super::hooks;
use crate::dispatch::panics;
use crate::driver::real;
use crate::hooks::libraries::LIBRARIES;
use crate::platform::loaded::{File, Opened, past_us};
use crate::platform::loader::{self, ABSENT, JUMP};
use crate::platform::sys::Errno;

/// Address bits of programs, on the processors that are used with GPUs.
const ADDRESS_BITS: u32 = 56;

/// `CUBLAS_STATUS_NOT_INITIALIZED`, and `CUDNN_STATUS_NOT_INITIALIZED` up to cuDNN 8 (9: 1001): the
/// library is not there.
const NOT_INITIALIZED: c_int = 1;

/// The real function behind the hook of `index`. A hook is reached only once that was adopted.
#[inline]
pub(super) fn real(index: usize) -> *mut c_void {
    // Released in `adopt`.
    match LIBRARIES.operators.real(index) {
        Some(taken) => taken.as_ptr(),
        None => missing as *mut c_void,
    }
}

/// Stands in for a missing function; ignores arguments. Not inlined, as its address is compared.
#[inline(never)]
extern "C" fn missing() -> c_int {
    NOT_INITIALIZED
}

pub(super) extern "C" fn decide(index: usize, site: usize) -> *mut c_void {
    let key = key_of(index, site);
    match LIBRARIES.call_sites.find(key) {
        Some(bound) => bound.as_ptr(),
        None => decide_anew(index, site, key),
    }
}

/// A site's key: its return address, with the operator in the bits that no program address has.
fn key_of(index: usize, site: usize) -> u64 {
    site as u64 | (index as u64 + 1) << ADDRESS_BITS
}

const _: () = assert!(OPERATOR_COUNT < 1 << (u64::BITS - ADDRESS_BITS));

#[cold]
fn decide_anew(index: usize, site: usize, key: u64) -> *mut c_void {
    let errno = Errno::of_thread();
    let found = errno.read();
    let bound = panics::guarded(abi::ENTRY_POINT_COUNT, || {
        let reached = without_us(index, site)?;
        let way = by_way_of_hook(index, reached);
        // A kept target must stay loaded; a hook's real function does already.
        let stays = way != reached || File::of(reached.as_ptr()).is_some_and(|file| file.keep());
        Some((way, stays))
    })
    .flatten();
    errno.write(found);
    match bound {
        Some((bound, stays)) => {
            if stays {
                LIBRARIES.call_sites.keep(key, bound);
            }
            bound.as_ptr()
        }
        // Not kept: it may be there the next time.
        None => missing as *mut c_void,
    }
}

fn without_us(index: usize, site: usize) -> Option<NonNull<c_void>> {
    let operator = OPERATORS.get(index)?;
    let look_up = |handle| {
        // SAFETY: a handle that any caller may use, and a string that ends in NUL.
        let found = unsafe { loader::dlsym()(handle, operator.symbol.as_ptr()) };
        NonNull::new(found)
    };
    let after_us = look_up(libc::RTLD_NEXT).and_then(|found| ours_excepted(index, found));
    let by_name = || {
        let mut names = FileNames::of(operator.library);
        while let Some(name) = names.next() {
            let opened = Opened::of(name);
            if let Some(found) = opened.and_then(|opened| find_in(&opened, index, operator.symbol))
            {
                return Some(found);
            }
        }
        None
    };
    let first = look_up(loader::as_asked_by_us(libc::RTLD_DEFAULT)).map(NonNull::as_ptr);
    if first != hooks::export_of(index) {
        // Names are bound to a library before us, so that library asked for the next definition.
        // The return address shows nothing, as a forwarding library may jump.
        return after_us.or_else(by_name);
    }
    let stands_for_all = after_us.filter(|found| {
        // Another interposer, or a program's own definition.
        File::of(found.as_ptr()).is_some_and(|file| !is_of(&file, operator.library))
    });
    let in_callers_scope = || {
        let caller = File::of(site as *mut c_void)?;
        find_in(&Opened::of(caller.name())?, index, operator.symbol)
    };
    stands_for_all
        .or_else(in_callers_scope)
        .or(after_us)
        .or_else(by_name)
}

fn ours_excepted(index: usize, found: NonNull<c_void>) -> Option<NonNull<c_void>> {
    let ours = [hooks::export_of(index), hooks::hook_of(index)];
    (!ours.contains(&Some(found.as_ptr()))).then_some(found)
}

fn by_way_of_hook(index: usize, reached: NonNull<c_void>) -> NonNull<c_void> {
    hooks::hook_of(index)
        .and_then(NonNull::new)
        .filter(|_| adopt(index, reached).is_some())
        .unwrap_or(reached)
}

/// Adopts a function as the hook's real one, if it is that already, or lies in its kind's library.
fn adopt(index: usize, function: NonNull<c_void>) -> Option<()> {
    let real = LIBRARIES.operators.real.get(index)?;
    let taken = real.load(Ordering::Acquire);
    if !taken.is_null() {
        return (taken == function.as_ptr()).then_some(());
    }
    let library = OPERATORS.get(index)?.library;
    let file = File::of(function.as_ptr()).filter(|file| is_of(file, library))?;
    let base = LIBRARIES.operators.bases.get(library as usize)?;
    let opened = Opened::of(file.name())?;
    // AcqRel: of two threads with two libraries one is first, for good.
    let swapped = base.compare_exchange(0, file.base, Ordering::AcqRel, Ordering::Acquire);
    if swapped.is_err_and(|first| first != file.base) {
        return None;
    }
    // For good, so that neither its functions nor its addresses are reused.
    for (place, (_, of, symbol)) in LIBRARIES.operators.helpers.iter().zip(HELPERS) {
        if of == library {
            // Every thread that comes here with this library stores the same.
            let found = opened.find(symbol).map_or(ptr::null_mut(), NonNull::as_ptr);
            place.store(found, Ordering::Release);
        }
    }
    opened.keep();
    // Release pairs with the Acquire in `real`.
    let set = real.compare_exchange(
        ptr::null_mut(),
        function.as_ptr(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    (set.is_ok() || set == Err(function.as_ptr())).then_some(())
}

/// The answer of `dlsym` for one of the names: the hook, or [`JUMP`] or [`ABSENT`] as in
/// [`crate::doors::dlsym`]; `None` if the name is no operator's.
pub(crate) fn answer(
    handle: *mut c_void,
    name: &CStr,
    caller: *mut c_void,
    look_up: impl Fn(*mut c_void) -> *mut c_void,
) -> Option<*mut c_void> {
    let index = abi::lookup_operator(name)?;
    // Our own export hides what the caller would have found without us.
    let past_us = || past_us(handle, caller, &look_up);
    let handle = loader::as_asked_by_us(handle);
    let mut found = look_up(handle);
    let mut is_ours = false;
    if Some(found) == hooks::export_of(index) {
        is_ours = true;
        found = past_us();
        if found.is_null() {
            return Some(ABSENT);
        }
    }
    let Some(reached) = NonNull::new(found) else {
        return Some(JUMP);
    };
    let way = || panics::guarded(abi::ENTRY_POINT_COUNT, || by_way_of_hook(index, reached));
    let labelled = (!real::are_hooks_elsewhere())
        .then(way)
        .flatten()
        .filter(|way| *way != reached);
    if labelled.is_none() && !is_ours {
        return Some(JUMP);
    }
    // Repeat the look-up, so that `dlerror` is about this one and none of ours.
    let again = if is_ours { past_us() } else { look_up(handle) };
    Some(labelled.map_or(again, NonNull::as_ptr))
}

/// Whether a file is a library of that kind: `libcublas.so`, of any version.
fn is_of(file: &File, library: Library) -> bool {
    file.is_named(library.file_stem())
}

fn find_in(opened: &Opened, index: usize, symbol: &CStr) -> Option<NonNull<c_void>> {
    ours_excepted(index, opened.find(symbol)?)
}

struct FileNames {
    stem: &'static str,
    version: u8,
    text: [u8; NAME_BYTES],
}

/// Room for the longest of these names, with two digits and a NUL.
const NAME_BYTES: usize = 24;

impl FileNames {
    /// Newer than any existing one.
    const NEWEST: u8 = 20;
    /// The oldest with these calls.
    const OLDEST: u8 = 8;

    fn of(library: Library) -> Self {
        Self {
            stem: library.file_stem(),
            version: Self::NEWEST + 1,
            text: [0; NAME_BYTES],
        }
    }

    fn next(&mut self) -> Option<&CStr> {
        if self.version <= Self::OLDEST {
            return None;
        }
        self.version -= 1;
        let digits = [b'0' + self.version / 10, b'0' + self.version % 10];
        let digits = digits.get(usize::from(self.version < 10)..)?;
        let name = self
            .stem
            .bytes()
            .chain([b'.'])
            .chain(digits.iter().copied());
        self.text = [0; NAME_BYTES];
        for (to, from) in self.text.iter_mut().zip(name) {
            *to = from;
        }
        CStr::from_bytes_until_nul(&self.text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_libraries_are_those_of_their_versions() {
        let mut names = FileNames::of(Library::CublasLt);
        let mut all = Vec::new();
        while let Some(name) = names.next() {
            all.push(name.to_str().unwrap().to_owned());
        }
        assert_eq!(all.first().map(String::as_str), Some("libcublasLt.so.20"));
        assert!(all.contains(&"libcublasLt.so.13".to_owned()), "{all:?}");
        assert_eq!(all.last().map(String::as_str), Some("libcublasLt.so.8"));
    }

    #[test]
    fn a_call_that_nobody_can_take_is_told_so() {
        // No cuBLAS is in this process.
        let index = abi::lookup_operator(c"cublasSgemm_v2").unwrap();
        let way = decide(index, missing as *const () as usize);
        assert_eq!(way, missing as *mut c_void);
        assert_eq!(
            answer(
                libc::RTLD_DEFAULT,
                c"cublasSgemm_v2",
                ptr::null_mut(),
                |_| ptr::null_mut()
            ),
            Some(JUMP)
        );
        assert_eq!(
            answer(
                libc::RTLD_DEFAULT,
                c"cublasCreate_v2",
                ptr::null_mut(),
                |_| ptr::null_mut()
            ),
            None
        );
    }

    #[test]
    fn a_function_of_another_file_is_reached_directly() {
        let index = abi::lookup_operator(c"cudnnSoftmaxForward").unwrap();
        let other = NonNull::new(missing as *mut c_void).unwrap();
        assert_eq!(by_way_of_hook(index, other), other);
        assert_eq!(real(index), missing as *mut c_void);
    }

    #[test]
    fn a_site_is_remembered_with_its_operator() {
        let to = NonNull::new(missing as *mut c_void).unwrap();
        let site = 0x7f12_3456_7890;
        LIBRARIES.call_sites.keep(key_of(3, site), to);
        assert_eq!(decide(3, site), to.as_ptr());
    }
}
