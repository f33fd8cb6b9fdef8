//! A stage for real processes: a device server in real time, daemons, and jobs under the preload
//! library. Nothing here sleeps for a fixed time and nothing asserts that something was fast:
//! conditions are polled until they hold, and [`PATIENCE_NS`] only ends a test that hangs
//! ([`WHENEVER_NS`] for `_whenever`).

mod control;
mod gpu;
mod parts;
mod process;
mod stacks;
pub(crate) mod terminal;
pub(crate) mod tools;

use protocol::clock::Clock;

pub(crate) use control::Control;
pub(crate) use gpu::{Daemon, Gpu, Job, Machine, Stage, clean_command};
pub(crate) use parts::{
    CommandLine, Cuda, HANG, Program, builtin_profile, cargo_folder, copy_program, driver_folder,
    library, pillion, runtime_libraries, shim_folder, workspace, write_script,
};
pub(crate) use process::{Ended, Process, collect};

/// Timeout of a hanging test, real time. Generous: it measures nothing.
pub(crate) const PATIENCE_NS: u64 = 60_000_000_000;
/// The timeout for processes that may be silent for minutes on a slow machine.
pub(crate) const WHENEVER_NS: u64 = 20 * PATIENCE_NS;
const LOOK_NS: u64 = 2_000_000;

/// Polls until there is an answer; `what` names the condition in the failure.
pub(crate) fn until<A: Answer>(what: &str, ask: impl FnMut() -> A) -> A::Found {
    try_until(ask).unwrap_or_else(|| panic!("waited in vain for: {what}"))
}

pub(crate) fn try_until<A: Answer>(mut ask: impl FnMut() -> A) -> Option<A::Found> {
    let clock = Clock::monotonic();
    let give_up_ns = clock.now_ns() + PATIENCE_NS;
    loop {
        if let Some(answer) = ask().found() {
            return Some(answer);
        }
        if clock.now_ns() > give_up_ns {
            return None;
        }
        clock.sleep_until(clock.now_ns() + LOOK_NS);
    }
}

/// The answer of a poll: not yet, or the result.
pub(crate) trait Answer {
    type Found;

    fn found(self) -> Option<Self::Found>;
}

impl<T> Answer for Option<T> {
    type Found = T;

    fn found(self) -> Self {
        self
    }
}

impl Answer for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}
