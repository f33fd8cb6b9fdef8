//! What this process was seen to ask for and to call, for people who look for what passes by.
//!
//! Each entry point that the program obtained is noted with the door it came through, once; each call
//! of a hook is counted by family ([`abi::Category`]), but for launches, which are counted as such
//! anyway and must not pay for it. Before the process attaches all of this is kept here; then it goes
//! to the first client's page, and `pillion status` shows it. With `PILLION_LOG=debug` it is said in
//! words when the process attaches and when it ends.

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

/// A way to an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Door {
    /// Our exported symbol was called: the program is linked with libcuda, or has loaded the shim.
    Export = 1,
    /// `dlsym` or `dlvsym`.
    Dlsym = 2,
    /// `cuGetProcAddress`.
    ProcAddress = 4,
}

const DOORS: [(Door, &str); 3] = [
    (Door::Export, "exported symbols"),
    (Door::Dlsym, "dlsym"),
    (Door::ProcAddress, "cuGetProcAddress"),
];

/// Beside these bits: what came was not our hook, though there is one.
const PASSED_BY: u8 = 8;

/// What is counted of operators, which are nobody's before somebody attaches.
#[cfg(not(shim))]
const OF_OPERATORS: [Counter; 3] = [
    Counter::OperatorCalls,
    Counter::Labelled,
    Counter::OperatorsAsLaunches,
];
#[cfg(shim)]
const OF_OPERATORS: [Counter; 0] = [];

/// The counter of a family's calls; launches have none.
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

/// A hook of that family was called.
#[inline]
pub(crate) fn handle_call(client: Option<&'static Client>, family: Option<Counter>) {
    match (client, family) {
        (_, None) => {}
        (Some(client), Some(family)) => _ = client.page.count(family, 1),
        (None, Some(family)) => add(family),
    }
}

/// A hook was called from inside another, by the driver or by us, and stepped aside.
#[cold]
pub(crate) fn handle_nested_call() {
    add(Counter::NestedCalls);
    publish();
}

/// A launch went to a device without a daemon.
#[cold]
pub(crate) fn handle_foreign_launch() {
    if let Some(client) = process::clients().next() {
        client.page.count(Counter::ForeignLaunches, 1);
    }
}

/// The program has obtained an entry point through a door. It has got our hook, or the driver's own.
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

/// The program has got a function of the driver for an entry point that we hook, and not our hook.
pub(crate) fn handle_passed_by(index: usize) {
    let (Some(doors), Some(entry)) = (SEEN.doors_of.get(index), ENTRY_POINTS.get(index)) else {
        return;
    };
    if doors.fetch_or(PASSED_BY, Ordering::Relaxed) & PASSED_BY == 0 {
        say_if_launch(entry.symbol);
    }
}

/// What a function launches that is not our hook is not seen. The program's user shall know, at
/// once: this may be called in any `dlsym` and formats, but no program that is hooked as it should
/// be comes here.
#[cold]
fn say_if_launch(name: &CStr) {
    let text = name.to_string_lossy();
    // Every function that launches is called so. (Those before CUDA 4.0 that set a kernel's
    // arguments are not.)
    if !text.contains("Launch") || real::are_hooks_elsewhere() {
        return;
    }
    let advice = match abi::lookup(name) {
        Some(_) => "`pillion run --shim` may reach it",
        None => "this Pillion does not know it, look for a newer one",
    };
    add(Counter::LaunchesPassedBy);
    publish();
    environment::prepare();
    log::say(
        Level::Warn,
        format_args!(
            "{text} was obtained past Pillion: what is launched by it is neither seen nor held; {advice}"
        ),
    );
}

/// The driver has given the program something that our table does not have.
pub(crate) fn handle_unknown(name: &CStr) {
    if !SEEN.unknown.keep(name) {
        return;
    }
    add(Counter::ResolvedUnknown);
    publish();
    say_if_launch(name);
}

/// A client is there: what was counted so far is its.
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

/// Brings what is not yet there to the first client's page.
fn publish() {
    let Some(client) = process::clients().next() else {
        return;
    };
    for (counter, count) in SEEN.counts.take_unpublished() {
        client.page.count(counter, count);
    }
}

/// Says everything, in as many lines as it takes.
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

/// Says names after a heading.
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
