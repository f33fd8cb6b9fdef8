//! Our own panics: caught where they happen, counted, and reported once.

use core::sync::atomic::AtomicBool;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use protocol::pages::Counter;

use crate::platform::log::{self, Level};
use crate::process;

/// Runs one of our own parts; `None` if it panicked.
#[inline]
pub(crate) fn guarded<T>(index: usize, part: impl FnOnce() -> T) -> Option<T> {
    // Unwind safety: what a part can leave half done is atomics, which have no invariant between
    // them that a reader relies on.
    catch_unwind(AssertUnwindSafe(part))
        .map_err(|payload| {
            // Dropping a payload could panic again; there is at most a handful of them.
            core::mem::forget(payload);
            handle_panic(index);
        })
        .ok()
}

/// What runs when any code of this library panics: one line, once. Our copy of the standard library
/// is our own, so the application's panics, if it is a Rust program, do not come here.
pub(crate) fn install_panic_hook() {
    let said = AtomicBool::new(false);
    std::panic::set_hook(Box::new(move |info| say_panic(info, &said)));
}

fn say_panic(info: &PanicHookInfo<'_>, said: &AtomicBool) {
    let text = info
        .payload()
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| info.payload().downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let (file, line) = info
        .location()
        .map_or(("", 0), |place| (place.file(), place.line()));
    log::say_once(
        said,
        Level::Error,
        format_args!("internal error at {file}:{line}: {text}; CUDA calls are made all the same"),
    );
}

#[cold]
fn handle_panic(index: usize) {
    // Which client it was is not worth another question.
    if let Some(client) = process::clients().next() {
        client.page.count(Counter::Panics, 1);
    }
    let symbol = abi::ENTRY_POINTS.get(index).map(|e| e.symbol);
    log::say(Level::Debug, format_args!("panic in hook {symbol:?}"));
}

/// Makes the hook under test panic.
#[cold]
pub(crate) fn panic_for_test(index: usize) -> ! {
    panic!("test switch at entry point {index}");
}
