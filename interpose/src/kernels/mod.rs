//! What is launched: from a function handle and a shape to what the profile knows.
//!
//! Three tables, each filled at first sight and read on every launch: names ([`crate::names`]), function
//! handles ([`functions`]) and shapes ([`shapes`]). The tables are static and never shrink. Memory is
//! allocated only when a name is first seen, which is when a module is loaded; a function that came
//! to us by no hook is asked of the driver (`cuFuncGetName`) at its first launch.
//!
//! A handle may be given out again after its module was unloaded. Each unload starts a new
//! *generation*; a handle that was named in an older one is asked for again.

mod functions;
mod shapes;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use abi::types::{CUfunction, CUkernel};
use policy::{Class, Kernel};
use profiler::{Match, ProfileIndex, ResourceClass};
use protocol::pages::Counter;

use self::functions::{Functions, Origin};

use self::shapes::Shapes;
use crate::client::Client;
use crate::driver;
use crate::log::{self, Level};
use crate::names::{NameIndex, Names};

/// The kernels of this process.
pub(crate) static KERNELS: Kernels = Kernels::new();

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Blocks in x, y, z.
    pub(crate) grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub(crate) shared_bytes: u32,
}

/// What is known about a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Identity of kernel and shape within this process; 0 if it was not kept.
    pub(crate) id: u64,
    /// What the gate asks for. Of an unknown kernel the class is unknown, the duration 0 and the
    /// SMs its blocks: it cannot need more.
    pub(crate) kernel: Kernel,
    /// Whether the profile knows it.
    pub(crate) is_profiled: bool,
}

/// See [`KERNELS`].
pub(crate) struct Kernels {
    names: Names,
    functions: Functions,
    shapes: Shapes,
    generation: AtomicU32,
}

impl Kernels {
    const fn new() -> Self {
        Self {
            names: Names::new(),
            functions: Functions::new(),
            shapes: Shapes::new(),
            generation: AtomicU32::new(0),
        }
    }

    /// The application obtained a function by name.
    pub(crate) fn handle_function(&self, function: CUfunction, name: &str) {
        self.keep(function.0 as u64, self.names.intern(name), Origin::Function);
    }

    /// The application obtained a library's kernel by name.
    pub(crate) fn handle_kernel(&self, kernel: CUkernel, name: &str) {
        self.keep(kernel.0 as u64, self.names.intern(name), Origin::Kernel);
    }

    /// The application obtained a kernel's function in a context.
    pub(crate) fn handle_kernel_function(&self, kernel: CUkernel, function: CUfunction) {
        let name = match self.functions.find(kernel.0 as u64) {
            Some(found) => found.name,
            None => driver::kernel_name(kernel, |name| self.names.intern(name)).flatten(),
        };
        self.keep(function.0 as u64, name, Origin::Function);
    }

    /// A module or library was unloaded: its handles may mean something else from now on.
    pub(crate) fn handle_unloaded(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// What is known about a launch. Counts and says what is not.
    #[inline]
    pub(crate) fn identify(&self, client: &Client, function: CUfunction, shape: &Shape) -> Known {
        let handle = function.0 as u64;
        let generation = self.generation.load(Ordering::Relaxed);
        let name = match self.functions.find(handle) {
            Some(found) if found.generation == generation => found.name,
            found => self.name_anew(function, found),
        };
        let known = match name {
            Some(name) => self.shapes.find(name, shape).unwrap_or_else(|| {
                let (kernel, is_profiled) = self.look_up(client.profile.as_ref(), name, shape);
                self.shapes.keep(name, shape, kernel, is_profiled)
            }),
            None => Known {
                id: 0,
                kernel: unknown(shape),
                is_profiled: false,
            },
        };
        if !known.is_profiled {
            self.handle_unknown(client, name);
        }
        known
    }

    /// The name of a handle that was not seen, or not since the last unload.
    #[cold]
    fn name_anew(
        &self,
        function: CUfunction,
        found: Option<functions::Function>,
    ) -> Option<NameIndex> {
        let origin = found.map_or(Origin::Function, |found| found.origin);
        let told = match origin {
            Origin::Function => driver::function_name(function, |name| self.names.intern(name)),
            Origin::Kernel => {
                driver::kernel_name(CUkernel(function.0), |name| self.names.intern(name))
            }
        };
        // A driver that cannot tell leaves us what the hooks saw: a handle given out again has gone
        // through them.
        let name = told.unwrap_or_else(|| found.and_then(|found| found.name));
        self.keep(function.0 as u64, name, origin);
        name
    }

    fn keep(&self, handle: u64, name: Option<NameIndex>, origin: Origin) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.functions.keep(
            handle,
            functions::Function {
                name,
                origin,
                generation,
            },
        );
    }

    #[cold]
    fn look_up(
        &self,
        profile: Option<&ProfileIndex>,
        name: NameIndex,
        shape: &Shape,
    ) -> (Kernel, bool) {
        let found = profile
            .zip(self.names.text(name))
            .and_then(|(profile, text)| {
                let (found, quality) =
                    profile.find(text, shape.grid, shape.block, shape.shared_bytes);
                found.map(|found| (found, quality))
            });
        let Some((found, quality)) = found else {
            return (unknown(shape), false);
        };
        let sm_needed = match quality {
            Match::NameOnly => scaled(found.sm_needed, blocks(&found.grid), blocks(&shape.grid)),
            _ => found.sm_needed,
        };
        let kernel = Kernel {
            class: class(found.class),
            sm_needed,
            expected_ns: found.durations.p95_ns,
        };
        (kernel, true)
    }

    #[cold]
    fn handle_unknown(&self, client: &Client, name: Option<NameIndex>) {
        client.page.count(Counter::UnknownKernels, 1);
        if SAID_UNKNOWN.load(Ordering::Relaxed) {
            return;
        }
        let name = name
            .and_then(|name| self.names.text(name))
            .unwrap_or("(no name)");
        let why = match client.profile {
            Some(_) => "is not in the profile",
            None => "is unknown, as there is no profile",
        };
        log::say_once(
            &SAID_UNKNOWN,
            Level::Warn,
            format_args!("kernel {name} {why}; it and others like it count as unknown"),
        );
    }
}

/// Whether it was said that there are unknown kernels.
static SAID_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Somebody has said that kernels are unknown, and why; once is enough.
pub(crate) fn handle_said_unknown() {
    SAID_UNKNOWN.store(true, Ordering::Relaxed);
}

/// A launch that nothing is known about: it cannot need more SMs than it has blocks.
fn unknown(shape: &Shape) -> Kernel {
    Kernel {
        class: Class::Unknown,
        sm_needed: blocks(&shape.grid),
        expected_ns: 0,
    }
}

fn class(class: ResourceClass) -> Class {
    match class {
        ResourceClass::Compute => Class::Compute,
        ResourceClass::Memory => Class::Memory,
        ResourceClass::Unknown => Class::Unknown,
    }
}

fn blocks(grid: &[u32; 3]) -> u32 {
    grid.iter()
        .fold(1, |product: u32, &n| product.saturating_mul(n))
}

/// SMs of a launch whose kernel was measured with another grid: in proportion to the blocks, but
/// never less than what was measured.
fn scaled(sm_needed: u32, blocks_measured: u32, blocks: u32) -> u32 {
    let product = u64::from(sm_needed) * u64::from(blocks);
    let scaled = product.div_ceil(u64::from(blocks_measured.max(1)));
    u32::try_from(scaled).unwrap_or(u32::MAX).max(sm_needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_launch_needs_at_most_its_blocks() {
        let shape = Shape {
            grid: [3, 4, 5],
            block: [32, 1, 1],
            shared_bytes: 0,
        };
        assert_eq!(unknown(&shape).sm_needed, 60);
        let huge = Shape {
            grid: [u32::MAX; 3],
            ..shape
        };
        assert_eq!(unknown(&huge).sm_needed, u32::MAX);
    }

    #[test]
    fn a_larger_grid_needs_more_sms_and_a_smaller_one_no_fewer() {
        assert_eq!(scaled(40, 80, 160), 80);
        assert_eq!(scaled(40, 80, 81), 41);
        assert_eq!(scaled(40, 80, 8), 40);
        assert_eq!(scaled(u32::MAX, 1, u32::MAX), u32::MAX);
        assert_eq!(scaled(7, 0, 7), 49);
    }
}
