//! The entry points that this process obtains and calls, for users in search of bypassed calls.
//! Each entry point that the program obtains is noted once, with its door. Each call of a hook is
//! counted by family ([`abi::Category`]), except launches, which are counted anyway and must not
//! pay for it. Counts stay here until the process attaches; then they go to the first client's
//! page, and `pillion status` shows them. `PILLION_LOG=debug` logs them on attach and at the end.

use core::ffi::CStr;
use core::fmt::Write as _;
use core::sync::atomic::{AtomicU8, Ordering};

use abi::{Category, ENTRY_POINTS};
use protocol::pages::Counter;

use crate::dispatch::environment;
use crate::dispatch::seen::SEEN;
use crate::driver::real;
use crate::platform::log::{self, Level};
use crate::platform::phase;
use crate::process::{self, Client};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Door {
    /// Our exported symbol: the program is linked with libcuda, or has loaded the shim.
    Export = 1,
    Dlsym = 2,
    ProcAddress = 4,
}

const DOORS: [(Door, &str); 3] = [
    (Door::Export, "exported symbols"),
    (Door::Dlsym, "dlsym"),
    (Door::ProcAddress, "cuGetProcAddress"),
];

/// Beside these bits: the program got another function than our hook, though there is one.
const PASSED_BY: u8 = 8;

/// Counters of operators, which belong to no client before the process attaches.
#[cfg(not(shim))]
const OF_OPERATORS: [Counter; 3] = [
    Counter::OperatorCalls,
    Counter::Labelled,
    Counter::OperatorsAsLaunches,
];
#[cfg(shim)]
const OF_OPERATORS: [Counter; 0] = [];

pub(crate) const fn family(category: Category) -> Option<Counter> {
    match category {
        Category::Launch => None,
        Category::Context => Some(Counter::ContextCalls),
        Category::Copy => Some(Counter::CopyCalls),
        Category::Entry => Some(Counter::EntryCalls),
        Category::Graph => Some(Counter::GraphCalls),
        Category::Memory => Some(Counter::MemoryCalls),
        Category::Module => Some(Counter::ModuleCalls),
        Category::Stream => Some(Counter::StreamCalls),
        Category::Sync => Some(Counter::SyncCalls),
        Category::Other | Category::Query | Category::Texture => Some(Counter::OtherCalls),
    }
}

#[inline]
pub(crate) fn handle_call(client: Option<&'static Client>, family: Option<Counter>) {
    match (client, family) {
        (_, None) => {}
        (Some(client), Some(family)) => _ = client.page.count(family, 1),
        (None, Some(family)) => add(family),
    }
}

/// The driver or this library called a hook from inside another, and the inner hook stepped aside.
#[cold]
pub(crate) fn handle_nested_call() {
    add(Counter::NestedCalls);
    publish();
}

#[cold]
pub(crate) fn handle_foreign_launch() {
    if let Some(client) = process::clients().next() {
        client.page.count(Counter::ForeignLaunches, 1);
    }
}

pub(crate) fn handle_resolved(door: Door, index: usize, is_hook: bool) {
    let Some(doors) = SEEN.doors_of.get(index) else {
        return;
    };
    if doors.load(Ordering::Relaxed) & door as u8 != 0 {
        return;
    }
    if doors.fetch_or(door as u8, Ordering::Relaxed) == 0 {
        add(if is_hook {
            Counter::ResolvedHooked
        } else {
            Counter::ResolvedPassed
        });
        publish();
    }
}

/// The program has obtained the driver's function for an entry point that we hook.
pub(crate) fn handle_passed_by(index: usize) {
    let (Some(doors), Some(entry)) = (SEEN.doors_of.get(index), ENTRY_POINTS.get(index)) else {
        return;
    };
    if doors.fetch_or(PASSED_BY, Ordering::Relaxed) & PASSED_BY == 0 {
        say_if_launch(entry.symbol);
    }
}

/// Warns at once about a launching function that is not our hook: its launches are not seen. Any
/// `dlsym` may call this, and it formats, but no correctly hooked program comes here.
#[cold]
fn say_if_launch(name: &CStr) {
    let text = name.to_string_lossy();
    // Every launching function has such a name, except those before CUDA 4.0 that set arguments.
    if !text.contains("Launch") || real::are_hooks_elsewhere() {
        return;
    }
    let advice = match abi::lookup(name) {
        Some(_) => "`pillion run --shim` may intercept it",
        None => "this version of Pillion does not know it; install a newer one",
    };
    add(Counter::LaunchesPassedBy);
    publish();
    environment::prepare();
    log::say(
        Level::Warn,
        format_args!("{text} bypasses Pillion: its launches are neither seen nor held; {advice}"),
    );
}

pub(crate) fn handle_unknown(name: &CStr) {
    if !SEEN.unknown.keep(name) {
        return;
    }
    add(Counter::ResolvedUnknown);
    publish();
    say_if_launch(name);
}

pub(crate) fn handle_attached() {
    publish();
    say("so far");
}

/// The process ends; for `PILLION_LOG=debug`.
pub(crate) extern "C" fn handle_exit() {
    if !phase::is_inert() {
        say("in all");
    }
}

fn add(counter: Counter) {
    SEEN.counts.add(counter);
}

fn publish() {
    let Some(client) = process::clients().next() else {
        return;
    };
    for (counter, count) in SEEN.counts.take_unpublished() {
        client.page.count(counter, count);
    }
}

fn say(when: &str) {
    if !log::is_said(Level::Debug) {
        return;
    }
    for (door, text) in DOORS {
        for (route, is_hook) in [("hooked", true), ("the driver's own", false)] {
            let through = |(index, doors): (usize, &AtomicU8)| {
                let is_through = doors.load(Ordering::Relaxed) & door as u8 != 0;
                let entry = ENTRY_POINTS.get(index)?;
                let is_of_route = (entry.route == abi::Route::Hook) == is_hook;
                (is_through && is_of_route).then(|| entry.symbol.to_str().unwrap_or_default())
            };
            let names = SEEN.doors_of.iter().enumerate().filter_map(through);
            say_names(&format!("{when}, {route}, by {text}"), names);
        }
    }
    let unknown = SEEN.unknown.texts();
    let heading = format!("{when}, the driver's own, not in our table");
    say_names(&heading, unknown.iter().map(String::as_str));
    let client = process::clients().next();
    let counted = SEEN.counts.totals();
    for (counter, total) in counted.chain(OF_OPERATORS.map(|counter| (counter, 0))) {
        let count = client.map_or(total, |client| client.page.counted(counter));
        if count > 0 {
            log::say(
                Level::Debug,
                format_args!("{when}, {} {count}", counter.name()),
            );
        }
    }
}

fn say_names<'a>(heading: &str, names: impl Iterator<Item = &'a str>) {
    /// Shorter than a line of the log.
    const BYTES_MAX: usize = 900;
    let mut line = String::new();
    let end = |line: &mut String| {
        if !line.is_empty() {
            log::say(Level::Debug, format_args!("{heading}:{line}"));
            line.clear();
        }
    };
    for name in names {
        if heading.len() + line.len() + name.len() > BYTES_MAX {
            end(&mut line);
        }
        let _ = write!(line, " {name}");
    }
    end(&mut line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::seen::COUNTED;

    #[test]
    fn every_family_but_launches_has_a_counter_that_is_kept() {
        for entry in &ENTRY_POINTS {
            let counter = family(entry.category);
            assert_eq!(counter.is_none(), entry.category == Category::Launch);
            assert!(counter.is_none_or(|counter| COUNTED.contains(&counter)));
        }
    }
}
