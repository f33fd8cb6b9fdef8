//! Which library's function a call of an operator reaches.
//!
//! Our exports stand before every library's, of any version: a process may well hold cuBLAS 12 and cuBLAS 13, and
//! libraries that bring functions of these names themselves (TensorFlow's load the real ones when they are first
//! called). So each *call site* is bound once as the dynamic linker would have bound it without us: what the caller's own
//! library, or one that it depends on, defines; else what comes after us for the whole program; else what is loaded
//! under the library's own name.
//!
//! Operators are labelled of one library of each kind, the first that is called: a function that lies in that very file
//! is reached by way of its hook, any other directly. So no call ever reaches another library than without us.
//!
//! A site is found in a table without a lock; the first call of a site asks the dynamic linker, which takes its locks
//! and may allocate, as the first call of any function in a program that binds lazily does.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use abi::{Library, OPERATOR_COUNT, OPERATORS};

use super::hooks;
use crate::loader::{self, ABSENT, JUMP};
use crate::sys::Errno;
use crate::table::mix;
use crate::{door, resolver};

/// The functions that the hooks call: null until one was taken.
static REAL: [AtomicPtr<c_void>; OPERATOR_COUNT] =
    [const { AtomicPtr::new(ptr::null_mut()) }; OPERATOR_COUNT];

/// Where the library of each kind lies whose operators are labelled; 0 until there is one.
static BASES: [AtomicUsize; Library::ALL.len()] =
    [const { AtomicUsize::new(0) }; Library::ALL.len()];

/// Functions of these libraries that we call for ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    CublasStream,
    CudnnStream,
    LightLayout,
    LightProduct,
    Tensor,
    Filter,
}

const HELPERS: [(Helper, Library, &CStr); 6] = [
    (Helper::CublasStream, Library::Cublas, c"cublasGetStream_v2"),
    (Helper::CudnnStream, Library::Cudnn, c"cudnnGetStream"),
    (
        Helper::LightLayout,
        Library::CublasLt,
        c"cublasLtMatrixLayoutGetAttribute",
    ),
    (
        Helper::LightProduct,
        Library::CublasLt,
        c"cublasLtMatmulDescGetAttribute",
    ),
    (
        Helper::Tensor,
        Library::Cudnn,
        c"cudnnGetTensorNdDescriptor",
    ),
    (
        Helper::Filter,
        Library::Cudnn,
        c"cudnnGetFilterNdDescriptor",
    ),
];

/// Where they are; null where the library has none.
static FOUND: [AtomicPtr<c_void>; HELPERS.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; HELPERS.len()];

/// Most call sites that are remembered; the calls of those beyond are bound each time. A framework has some ten.
const SITES_MAX: usize = 1 << 10;

/// Most places tried for a site.
const PROBES_MAX: usize = 16;

/// A site's key, which is its return address with the operator in the bits that no address of a program has.
static SITES: [AtomicU64; SITES_MAX] = [const { AtomicU64::new(0) }; SITES_MAX];
/// What each is bound to; null while it is filled in.
static BOUND: [AtomicPtr<c_void>; SITES_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SITES_MAX];

/// Bits of an address of a program, on the processors that have GPUs beside them.
const ADDRESS_BITS: u32 = 56;

/// `CUBLAS_STATUS_NOT_INITIALIZED`, and the same number for cuDNN: what is called is not there.
const NOT_INITIALIZED: c_int = 1;

/// The function that the hook of `index` calls. Hooks are reached only after one was taken.
#[inline]
pub(super) fn real(index: usize) -> *mut c_void {
    // Acquire pairs with the Release in `adopt`: the library's helpers are there.
    let taken = REAL.get(index).map(|real| real.load(Ordering::Acquire));
    match taken {
        Some(taken) if !taken.is_null() => taken,
        _ => missing as *mut c_void,
    }
}

/// One of the library's own functions, if it has that.
pub(super) fn helper(helper: Helper) -> Option<NonNull<c_void>> {
    // Acquire as in `real`.
    NonNull::new(FOUND.get(helper as usize)?.load(Ordering::Acquire))
}

/// Stands in for what is nowhere. It takes nothing of what the caller passes. One of it, as its address is compared.
#[inline(never)]
extern "C" fn missing() -> c_int {
    NOT_INITIALIZED
}

/// Where a call of operator `index` that returns to `site` goes.
pub(super) extern "C" fn decide(index: usize, site: usize) -> *mut c_void {
    let key = site as u64 | (index as u64 + 1) << ADDRESS_BITS;
    for place in probes(key) {
        let Some((known, bound)) = SITES.get(place).zip(BOUND.get(place)) else {
            break;
        };
        match known.load(Ordering::Relaxed) {
            0 => break,
            known if known == key => {
                // Acquire pairs with the Release in `remember`: what is reached there is ready.
                let bound = bound.load(Ordering::Acquire);
                if !bound.is_null() {
                    return bound;
                }
            }
            _ => {}
        }
    }
    decide_anew(index, site, key)
}

const _: () = assert!(OPERATOR_COUNT < 1 << (u64::BITS - ADDRESS_BITS));

#[cold]
fn decide_anew(index: usize, site: usize, key: u64) -> *mut c_void {
    let errno = Errno::of_thread();
    let found = errno.read();
    let bound = door::guarded(abi::ENTRY_POINT_COUNT, || {
        let reached = without_us(index, site)?;
        Some(by_way_of_hook(index, reached))
    })
    .flatten();
    errno.write(found);
    match bound {
        Some(bound) => {
            remember(key, bound);
            bound.as_ptr()
        }
        // Not remembered: it may be there the next time.
        None => missing as *mut c_void,
    }
}

fn remember(key: u64, to: NonNull<c_void>) {
    for place in probes(key) {
        let Some((known, bound)) = SITES.get(place).zip(BOUND.get(place)) else {
            return;
        };
        let taken = known.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() || taken == Err(key) {
            // Release pairs with the Acquire in `decide`.
            bound.store(to.as_ptr(), Ordering::Release);
            return;
        }
    }
}

fn probes(key: u64) -> impl Iterator<Item = usize> {
    let first = (mix(key) >> (64 - SITES_MAX.trailing_zeros())) as usize;
    (0..PROBES_MAX).map(move |step| (first + step) % SITES_MAX)
}

/// What a call that returns to `site` would reach without us.
fn without_us(index: usize, site: usize) -> Option<NonNull<c_void>> {
    let operator = OPERATORS.get(index)?;
    let symbol = operator.symbol;
    let caller = File::of(site as *mut c_void);
    let in_callers_scope = caller.and_then(|caller| {
        let opened = Opened::of(caller.name())?;
        opened.find(index, symbol)
    });
    let after_us = || {
        // SAFETY: the handle that any caller may use, and a string that ends in NUL.
        let found = unsafe { loader::dlsym()(libc::RTLD_NEXT, symbol.as_ptr()) };
        ours_excepted(index, found)
    };
    in_callers_scope.or_else(after_us).or_else(|| {
        let mut names = FileNames::of(operator.library);
        while let Some(name) = names.next() {
            if let Some(found) = Opened::of(name).and_then(|opened| opened.find(index, symbol)) {
                return Some(found);
            }
        }
        None
    })
}

/// What a look-up found, unless it is our own.
fn ours_excepted(index: usize, found: *mut c_void) -> Option<NonNull<c_void>> {
    NonNull::new(found).filter(|found| {
        let found = Some(found.as_ptr());
        found != hooks::export_of(index) && found != hooks::hook_of(index)
    })
}

/// The hook, if `reached` lies in the library whose operators are labelled; else itself.
fn by_way_of_hook(index: usize, reached: NonNull<c_void>) -> NonNull<c_void> {
    hooks::hook_of(index)
        .and_then(NonNull::new)
        .filter(|_| adopt(index, reached).is_some())
        .unwrap_or(reached)
}

/// Takes a function for the hook to call, if it is the one already, or lies in the library of its kind.
fn adopt(index: usize, function: NonNull<c_void>) -> Option<()> {
    let real = REAL.get(index)?;
    let taken = real.load(Ordering::Acquire);
    if !taken.is_null() {
        return (taken == function.as_ptr()).then_some(());
    }
    let library = OPERATORS.get(index)?.library;
    let file = File::of(function.as_ptr()).filter(|file| file.is_of(library))?;
    let base = BASES.get(library as usize)?;
    let first = base.load(Ordering::Acquire);
    if first == 0 {
        // For good, so that neither its functions nor its addresses become another's.
        let opened = Opened::of(file.name())?.keep();
        for (place, (_, of, symbol)) in FOUND.iter().zip(HELPERS) {
            if of == library {
                // SAFETY: an open library and a string that ends in NUL.
                let found = unsafe { loader::dlsym()(opened, symbol.as_ptr()) };
                place.store(found, Ordering::Release);
            }
        }
        // Of two threads with two libraries one is first. AcqRel: the helpers are its own, or will not be used.
        let swapped = base.compare_exchange(0, file.base, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err_and(|first| first != file.base) {
            return None;
        }
    } else if first != file.base {
        return None;
    }
    // Release pairs with the Acquire in `real`.
    let set = real.compare_exchange(
        ptr::null_mut(),
        function.as_ptr(),
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    (set.is_ok() || set == Err(function.as_ptr())).then_some(())
}

/// What `dlsym` answers for one of the names: the hook, or [`JUMP`] or [`ABSENT`] as in [`crate::dlsym`]; `None` if the
/// name is no operator's.
pub(crate) fn answer(
    handle: *mut c_void,
    name: &CStr,
    look_up: impl Fn(*mut c_void) -> *mut c_void,
) -> Option<*mut c_void> {
    let index = abi::lookup_operator(name)?;
    let mut found = look_up(handle);
    let mut is_ours = false;
    if Some(found) == hooks::export_of(index) {
        // Our own export hides what the program would have found without us: what comes after us.
        is_ours = true;
        found = look_up(libc::RTLD_NEXT);
        if found.is_null() {
            return Some(ABSENT);
        }
    }
    let Some(reached) = NonNull::new(found) else {
        return Some(JUMP);
    };
    let labelled = (!resolver::is_elsewhere())
        .then(|| by_way_of_hook(index, reached))
        .filter(|way| *way != reached);
    Some(match labelled {
        Some(hook) => hook.as_ptr(),
        None if is_ours => found,
        None => JUMP,
    })
}

/// A loaded file, as the dynamic linker knows it.
struct File {
    name: NonNull<c_char>,
    base: usize,
}

impl File {
    /// The one that an address lies in.
    fn of(address: *mut c_void) -> Option<Self> {
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
    fn name(&self) -> &CStr {
        // SAFETY: the dynamic linker's own text of a file whose code is being called, or was just looked up.
        unsafe { CStr::from_ptr(self.name.as_ptr()) }
    }

    /// Whether it is a library of that kind: `libcublas.so`, of whatever version.
    fn is_of(&self, library: Library) -> bool {
        let path = self.name().to_bytes();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let end = name.strip_prefix(library.file_stem().as_bytes());
        end.is_some_and(|end| matches!(end.first(), None | Some(b'.')))
    }
}

/// A loaded file that is held while this lives.
struct Opened(NonNull<c_void>);

impl Opened {
    /// The file of that name, if it is loaded.
    fn of(name: &CStr) -> Option<Self> {
        let mode = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: a string that ends in NUL; nothing is loaded, so no code of the file's runs.
        NonNull::new(unsafe { loader::dlopen()(name.as_ptr(), mode) }).map(Self)
    }

    /// What it or a library that it depends on defines under that name, unless it is our own.
    fn find(&self, index: usize, symbol: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open library and a string that ends in NUL.
        let found = unsafe { loader::dlsym()(self.0.as_ptr(), symbol.as_ptr()) };
        ours_excepted(index, found)
    }

    /// Its handle, held for good.
    fn keep(self) -> *mut c_void {
        let handle = self.0.as_ptr();
        core::mem::forget(self);
        handle
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened by `of`, and given back once.
        unsafe { loader::dlclose()(self.0.as_ptr()) };
    }
}

/// The names under which a kind of library may be loaded, newest first.
struct FileNames {
    stem: &'static str,
    version: u8,
    text: [u8; NAME_BYTES],
}

/// Room for the longest of these names, with two digits and a NUL.
const NAME_BYTES: usize = 24;

impl FileNames {
    /// Newer than any that there is.
    const NEWEST: u8 = 20;
    /// The oldest that has these calls.
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
            answer(libc::RTLD_DEFAULT, c"cublasSgemm_v2", |_| ptr::null_mut()),
            Some(JUMP)
        );
        assert_eq!(
            answer(libc::RTLD_DEFAULT, c"cublasCreate_v2", |_| ptr::null_mut()),
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
        let key = site as u64 | 4 << ADDRESS_BITS;
        remember(key, to);
        assert_eq!(decide(3, site), to.as_ptr());
    }
}
