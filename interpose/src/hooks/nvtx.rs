//! NVTX ranges as requests and iterations. With NVTX, NVIDIA's interface for profilers, programs
//! name stretches of their work (*ranges*); PyTorch, Triton and many services do. NVTX consists of
//! headers: each module of a process that includes them looks for a tool at its first call. It
//! opens the library that `NVTX_INJECTION64_PATH` names and calls `InitializeInjectionNvtx2` there
//! ([`initialize`]), with a function that gives the tool the module's tables of function pointers
//! ([`tables`]). Functions that the tool does not set do nothing. Each module calls us once; all
//! get the same.
//!
//! **What counts.** Ranges whose domain and name match the job's pattern (`pillion run
//! --request-range`). Of nested pushed ranges, a thread's outermost counts; each started range
//! counts, whichever thread ends it. A range is over when its launches are complete, which the
//! daemon determines ([`Ending::with_launches`]). An iteration is counted when its range begins.
//! All ranges are requests of one kind: a program with several kinds uses [`crate::hooks::api`].
//!
//! **What the program gets** is the same as without a tool: no nesting level, and 0 for a range
//! that is no request. Domains and registered strings are handles without an object: the handle
//! itself contains the patterns that match, so nothing is kept and nothing looked up.
//!
//! **Cost.** A range that does not match costs the comparison up to the first different character.
//! A matching one costs two marks ([`crate::process::marks`]). No lock, no allocation. Source:
//! NVTX's public headers (version 3: `nvtxDetail/nvtxTypes.h`, `nvtxInit.h`, `nvToolsExt.h`).

#![expect(
    unsafe_code,
    reason = "exports a C function, whose callers pass tables and names by pointers"
)]

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use protocol::ranges::RangePattern;

use crate::dispatch::{environment, panics};
use crate::platform::config::{self, Config};
use crate::platform::loader;
use crate::platform::log::{self, Level};
use crate::platform::sys::Errno;
use crate::process;
use crate::process::marks::{self, Beginning, Ending};

mod names;
mod tables;

use names::{Name, Narrow, Wide};
use tables::{Event, GetExportTable};

/// A set of the two patterns: bits of a handle.
type Patterns = usize;

const REQUEST: Patterns = 1;
const ITERATION: Patterns = 2;
const BOTH: Patterns = REQUEST | ITERATION;
/// Set in every handle, so that none is null, which is the default domain.
const HANDLE: usize = 4;

/// Result of `nvtxRangePush` and `nvtxRangePop` without a tool that counts levels
/// (`NVTX_NO_PUSH_POP_TRACKING`).
const NOT_TRACKED: c_int = -2;
const NO_RANGE: u64 = 0;

thread_local! {
    static INSIDE: Cell<Inside> = const { Cell::new(Inside::NOTHING) };
}

/// A thread's position in the ranges that it has pushed in the requests' domain.
#[derive(Clone, Copy, Debug)]
struct Inside {
    depth: u32,
    /// The depth of the request's range; 0: none.
    request_at: u32,
    request: u64,
}

impl Inside {
    const NOTHING: Self = Self {
        depth: 0,
        request_at: 0,
        request: 0,
    };
}

/// Called by a module that includes NVTX, with its tables. Returns 1 if it is to use our functions.
/// Safety: `get_export_table` is the module's function, or null.
#[cfg_attr(not(test), unsafe(export_name = "InitializeInjectionNvtx2"))]
pub(super) unsafe extern "C" fn initialize(get_export_table: Option<GetExportTable>) -> c_int {
    let is_used = panics::guarded(usize::MAX, || {
        // SAFETY: passed on.
        get_export_table.is_some_and(|get| wants_ranges() && unsafe { tables::fill(get) })
    });
    c_int::from(is_used == Some(true))
}

/// Whether this process's ranges matter, and this library is the one that it launches through.
fn wants_ranges() -> bool {
    if config::is_disabled() {
        return false;
    }
    // Before anything else: a refused copy is unloaded again.
    if !is_preloaded() {
        log::set_level(Config::read(|name| std::env::var_os(name)).log);
        log::say(
            Level::Warn,
            format_args!(
                "NVTX_INJECTION64_PATH names another libpillion.so than the preloaded one: \
                 NVTX ranges do not count as requests"
            ),
        );
        return false;
    }
    environment::prepare();
    process::config()
        .is_some_and(|config| config.request_range.is_some() || config.iteration_range.is_some())
}

fn is_preloaded() -> bool {
    const OURS: &CStr = c"pillion_api";
    let program = loader::as_asked_by_us(libc::RTLD_DEFAULT);
    // SAFETY: a handle of the program, which is never unloaded, and a name that ends in NUL.
    let found = unsafe { loader::dlsym()(program, OURS.as_ptr()) };
    found == crate::hooks::api::pillion_api as *mut c_void
}

/// The patterns of `among` for which `goes` returns true.
#[inline]
fn which(among: Patterns, goes: impl Fn(&RangePattern) -> bool) -> Patterns {
    let Some(config) = process::config().filter(|_| among != 0) else {
        return 0;
    };
    let goes = |pattern: &Option<RangePattern>, bit: Patterns| match pattern {
        Some(pattern) if among & bit != 0 && goes(pattern) => bit,
        _ => 0,
    };
    goes(&config.request_range, REQUEST) | goes(&config.iteration_range, ITERATION)
}

#[inline]
fn of_domain(domain: *mut c_void) -> Patterns {
    match domain.is_null() {
        true => which(BOTH, RangePattern::is_of_default_domain),
        false => domain as usize & BOTH,
    }
}

#[inline]
fn of_name(name: impl Name, among: Patterns) -> Patterns {
    which(among, |pattern| pattern.has_range(name.bytes()))
}

fn create(name: impl Name) -> *mut c_void {
    let patterns = which(BOTH, |pattern| pattern.has_domain(name.bytes()));
    ptr::without_provenance_mut(HANDLE | patterns)
}

fn register(name: impl Name) -> *mut c_void {
    ptr::without_provenance_mut(HANDLE | of_name(name, BOTH))
}

/// A range begins in a domain with the patterns `of`; `found` selects those that match its name.
#[inline]
fn push(of: Patterns, found: impl Fn(Patterns) -> Patterns) -> c_int {
    if of & REQUEST == 0 {
        iterate_if(found(of));
        return NOT_TRACKED;
    }
    let mut inside = INSIDE.get();
    inside.depth = inside.depth.saturating_add(1);
    let wanted = if inside.request_at == 0 {
        of
    } else {
        of & ITERATION
    };
    let found = found(wanted);
    iterate_if(found);
    if found & REQUEST != 0 {
        inside.request_at = inside.depth;
        inside.request = begin();
    }
    INSIDE.set(inside);
    NOT_TRACKED
}

#[inline]
fn pop(of: Patterns) -> c_int {
    if of & REQUEST == 0 {
        return NOT_TRACKED;
    }
    let mut inside = INSIDE.get();
    if inside.request_at != 0 && inside.request_at == inside.depth {
        end(inside.request);
        inside.request_at = 0;
    }
    inside.depth = inside.depth.saturating_sub(1);
    INSIDE.set(inside);
    NOT_TRACKED
}

/// A range begins that any thread may end, with the patterns `found`. Returns its number.
#[inline]
fn start(found: Patterns) -> u64 {
    iterate_if(found);
    match found & REQUEST {
        0 => NO_RANGE,
        _ => begin(),
    }
}

#[inline]
fn end(range: u64) {
    let with_launches = Ending {
        with_launches: true,
        ..Ending::default()
    };
    if range != NO_RANGE {
        unseen(|| marks::end(range, with_launches));
    }
}

#[cold]
fn begin() -> u64 {
    let now = Beginning {
        arrived_ns: 0,
        kind: 0,
        batch: 0,
        is_nvtx: true,
    };
    unseen(|| marks::begin(&now)).unwrap_or(NO_RANGE)
}

#[inline]
fn iterate_if(found: Patterns) {
    if found & ITERATION != 0 {
        unseen(marks::iteration);
    }
}

/// Runs a part of ours in a function that must show no effect.
#[cold]
fn unseen<T>(part: impl FnOnce() -> T) -> Option<T> {
    let errno = Errno::of_thread();
    let before = errno.read();
    let result = panics::guarded(usize::MAX, part);
    errno.write(before);
    result
}

#[inline]
unsafe fn of_event(event: *const Event, among: Patterns) -> Patterns {
    // SAFETY: the program's event, or null.
    match unsafe { tables::message(event) } {
        tables::Message::Narrow(name) => of_name(name, among),
        tables::Message::Wide(name) => of_name(name, among),
        tables::Message::Registered(handle) => handle as usize & among,
        tables::Message::None => 0,
    }
}

/// The functions for modules. Names and events are the program's: zero-terminated strings, or null.
mod functions {
    use super::*;

    pub(super) unsafe extern "C" fn push_a(name: *const c_char) -> c_int {
        // SAFETY: as NVTX requires of the program.
        let name = unsafe { Narrow::at(name) };
        push(of_domain(ptr::null_mut()), |among| of_name(name, among))
    }

    pub(super) unsafe extern "C" fn push_w(name: *const u32) -> c_int {
        // SAFETY: as NVTX requires of the program.
        let name = unsafe { Wide::at(name) };
        push(of_domain(ptr::null_mut()), |among| of_name(name, among))
    }

    pub(super) unsafe extern "C" fn push_event(event: *const Event) -> c_int {
        // SAFETY: as NVTX requires of the program.
        unsafe { push_in(ptr::null_mut(), event) }
    }

    pub(super) unsafe extern "C" fn push_in(domain: *mut c_void, event: *const Event) -> c_int {
        // SAFETY: as NVTX requires of the program.
        push(of_domain(domain), |among| unsafe { of_event(event, among) })
    }

    pub(super) extern "C" fn pop_default() -> c_int {
        pop(of_domain(ptr::null_mut()))
    }

    pub(super) extern "C" fn pop_in(domain: *mut c_void) -> c_int {
        pop(of_domain(domain))
    }

    pub(super) unsafe extern "C" fn start_a(name: *const c_char) -> u64 {
        let of = of_domain(ptr::null_mut());
        // SAFETY: as NVTX requires of the program.
        start(of_name(unsafe { Narrow::at(name) }, of))
    }

    pub(super) unsafe extern "C" fn start_w(name: *const u32) -> u64 {
        let of = of_domain(ptr::null_mut());
        // SAFETY: as NVTX requires of the program.
        start(of_name(unsafe { Wide::at(name) }, of))
    }

    pub(super) unsafe extern "C" fn start_event(event: *const Event) -> u64 {
        // SAFETY: as NVTX requires of the program.
        unsafe { start_in(ptr::null_mut(), event) }
    }

    pub(super) unsafe extern "C" fn start_in(domain: *mut c_void, event: *const Event) -> u64 {
        // SAFETY: as NVTX requires of the program.
        start(unsafe { of_event(event, of_domain(domain)) })
    }

    pub(super) extern "C" fn end_range(range: u64) {
        end(range);
    }

    pub(super) extern "C" fn end_in(_domain: *mut c_void, range: u64) {
        end(range);
    }

    pub(super) unsafe extern "C" fn create_a(name: *const c_char) -> *mut c_void {
        // SAFETY: as NVTX requires of the program.
        create(unsafe { Narrow::at(name) })
    }

    pub(super) unsafe extern "C" fn create_w(name: *const u32) -> *mut c_void {
        // SAFETY: as NVTX requires of the program.
        create(unsafe { Wide::at(name) })
    }

    pub(super) unsafe extern "C" fn register_a(
        _domain: *mut c_void,
        name: *const c_char,
    ) -> *mut c_void {
        // SAFETY: as NVTX requires of the program.
        register(unsafe { Narrow::at(name) })
    }

    pub(super) unsafe extern "C" fn register_w(
        _domain: *mut c_void,
        name: *const u32,
    ) -> *mut c_void {
        // SAFETY: as NVTX requires of the program.
        register(unsafe { Wide::at(name) })
    }
}

#[cfg(test)]
mod tests;
