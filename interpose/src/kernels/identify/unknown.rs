//! The log line about kernels of unknown duration. It should name the kernel that takes the most
//! time, but the durations are unknown. So it names the kernel with the most threads among those
//! seen so far, and waits for [`SAID_AFTER`] launches of unknown kernels, or for the exit of the
//! process. The helper logs it at its next poll, so that no launch makes a system call for it. On
//! virtual time it is logged at the exit.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use profiler::base_name;
use protocol::pages::Counter;

use super::{Identity, Kernels, Shape, blocks, threads};
use crate::kernels::names::NameIndex;
use crate::platform::log::{self, Level};
use crate::platform::phase;
use crate::process::{self, Client};

/// Unknown launches before the line: some hundred are a pass of a network, with nearly all kernels.
const SAID_AFTER: u64 = 512;

/// Longest name in the line, bytes.
const NAME_BYTES_MAX: usize = 60;

pub(super) struct Unknown {
    is_said: AtomicBool,
    /// The largest kernel: threads of a launch in the high bits, the name in the low ones. 0: none.
    largest: AtomicU64,
}

/// A name is below 2^16.
const NAME_BITS: u32 = u16::BITS;

impl Unknown {
    pub(super) const fn new() -> Self {
        Self {
            is_said: AtomicBool::new(false),
            largest: AtomicU64::new(0),
        }
    }

    pub(super) fn note(&self, identity: Option<Identity>, shape: &Shape) {
        let Some(Identity { name, .. }) = identity else {
            return;
        };
        let all = u64::from(blocks(&shape.grid)).saturating_mul(threads(shape).into());
        let all = all.min(u64::MAX >> NAME_BITS);
        let word = all << NAME_BITS | u64::from(name.0 as u16);
        self.largest.fetch_max(word, Ordering::Relaxed);
    }

    /// The line was logged, or is not needed.
    pub(super) fn handle_said(&self) {
        self.is_said.store(true, Ordering::Relaxed);
    }

    fn largest(&self) -> Option<NameIndex> {
        let word = self.largest.load(Ordering::Relaxed);
        (word != 0).then_some(NameIndex(u32::from(word as u16)))
    }
}

impl Kernels {
    #[cold]
    pub(crate) fn handle_unknown(&self, client: &Client, kernels: u64) {
        client.page.count(Counter::UnknownKernels, kernels);
    }

    /// Logs the line after enough launches. Returns whether it need not be called again.
    pub(crate) fn poll_unknown(&self, client: &Client) -> bool {
        if client.page.counted(Counter::UnknownKernels) >= SAID_AFTER {
            self.say_unknown(client);
        }
        self.unknown.is_said.load(Ordering::Relaxed)
    }

    /// Another line has explained the unknown kernels, which is enough.
    pub(crate) fn handle_said_unknown(&self) {
        self.unknown.handle_said();
    }

    /// The process exits. A forked child has launched nothing.
    pub(crate) fn handle_exit(&self) {
        if phase::is_inert() {
            return;
        }
        let has_unknown = |client: &&Client| client.page.counted(Counter::UnknownKernels) > 0;
        if let Some(client) = process::clients().find(has_unknown) {
            self.say_unknown(client);
        }
    }

    #[cold]
    fn say_unknown(&self, client: &Client) {
        let name = self.unknown.largest();
        let name = name.and_then(|name| self.names.text(name));
        let daemon = &client.link.daemon;
        let is_learnt = daemon.learnt_durations.load(Ordering::Relaxed) != 0;
        let line = Line {
            name,
            each_ns: daemon.unknown_ns.load(Ordering::Relaxed),
            is_learnt: is_learnt && !client.is_high_priority(),
        };
        log::say_once(&self.unknown.is_said, Level::Warn, format_args!("{line}"));
    }
}

struct Line<'t> {
    name: Option<&'t str>,
    each_ns: u64,
    is_learnt: bool,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("kernels of unknown duration")?;
        if let Some(name) = self.name {
            write!(f, ", the largest {},", short(base_name::base(name)))?;
        }
        let each_us = self.each_ns / 1_000;
        write!(f, " count as {each_us} us each")?;
        f.write_str(match self.is_learnt {
            true => " until learnt",
            false => {
                "; run the job once as best-effort, or use `pillion profile record -o FILE -- CMD`"
            }
        })
    }
}

fn short(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_BYTES_MAX))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: Option<&str>, is_learnt: bool) -> String {
        let each_ns = 100_000;
        Line {
            name,
            each_ns,
            is_learnt,
        }
        .to_string()
    }

    #[test]
    fn the_line_has_the_function_alone_and_what_to_do() {
        let mangled = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5ArrayIPcLi1EEEEEviT0_T1_";
        assert_eq!(
            said(Some(mangled), false),
            "kernels of unknown duration, the largest vectorized_elementwise_kernel, count as 100 \
             us each; run the job once as best-effort, or use `pillion profile record -o FILE -- \
             CMD`"
        );
        assert_eq!(
            said(None, true),
            "kernels of unknown duration count as 100 us each until learnt"
        );
    }

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        let name = "ä".repeat(40);
        assert_eq!(short(&name), "ä".repeat(30));
        assert_eq!(short(&format!("a{name}")), format!("a{}", "ä".repeat(29)));
        assert_eq!(short("gemm"), "gemm");
    }

    #[test]
    fn the_kernel_with_the_most_threads_is_named() {
        let unknown = Unknown::new();
        assert_eq!(unknown.largest(), None);
        let shape = |blocks, threads| Shape {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            shared_bytes: 0,
        };
        for (name, shape) in [(3, shape(10, 32)), (1, shape(2, 256)), (7, shape(3, 64))] {
            let identity = Identity {
                name: NameIndex(name),
                registers: 0,
                shared_bytes: 0,
            };
            unknown.note(Some(identity), &shape);
        }
        unknown.note(None, &shape(1_000, 1_024));
        assert_eq!(unknown.largest(), Some(NameIndex(1)));
    }
}
