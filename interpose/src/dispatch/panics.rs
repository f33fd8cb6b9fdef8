//! Our own panics: caught where they happen, counted, and logged once.

use core::sync::atomic::AtomicBool;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use protocol::pages::Counter;

use crate::platform::log::{self, Level};
use crate::process;

/// Runs one of our own parts; `None` if it panicked.
#[inline]
pub(crate) fn guarded<T>(index: usize, part: impl FnOnce() -> T) -> Option<T> {
    // Unwind safety: parts leave only atomics half done, with no invariant between them.
    catch_unwind(AssertUnwindSafe(part))
        .map_err(|payload| {
            // Dropping a payload could panic again; there are only a few.
            core::mem::forget(payload);
            handle_panic(index);
        })
        .ok()
}

/// Logs the first panic in this library. We have our own copy of the standard library, so panics of
/// an application in Rust do not come here.
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
        format_args!("internal error at {file}:{line}: {text}; CUDA calls are still forwarded"),
    );
}

#[cold]
fn handle_panic(index: usize) {
    // The exact client is not worth another driver call.
    if let Some(client) = process::clients().next() {
        client.page.count(Counter::Panics, 1);
    }
    let symbol = abi::ENTRY_POINTS.get(index).map(|e| e.symbol);
    log::say(Level::Debug, format_args!("panic in hook {symbol:?}"));
}

#[cold]
pub(crate) fn panic_for_test(index: usize) -> ! {
    panic!("test switch at entry point {index}");
}
