//! Identifies launches: from a function handle and a shape to what the gate needs. Four static
//! tables, each filled on first sight and read on every launch: names ([`crate::kernels::names`]),
//! function handles ([`functions`]), identities ([`identities`]: name, registers, static shared
//! memory) and shapes ([`shapes`]). Memory is allocated only when a name or a shape is first seen.
//! The driver is queried on first sight. At a handle's first launch: its name (unless the
//! application obtained it by name), registers and static shared memory. At a shape that the
//! profile does not have exactly: how many blocks fit on an SM, for the SM need of unknown kernels
//! too. A handle may be reused after its module was unloaded or its context destroyed. Each of
//! these events starts a new *generation*, and handles of older generations are identified again.
//! Every table is bounded. When it is full:
//! - Handles (65 536): replaces a handle of an older generation, or else one not launched lately,
//!   which is queried again if launched again. A driver before CUDA 12.3 cannot return names of
//!   functions: there a replaced function stays without a name.
//! - Shapes (32 768): replaces a shape that was not launched lately ([`crate::platform::memo`]),
//!   which is judged again when it is launched again.
//! - Names (65 536) and identities (32 768): a kernel with a further name is judged by its blocks
//!   alone, for good. The driver is not queried at each launch.
//!
//! Names and identities are kept for good, as references to them are read without a lock. A name is
//! kept once by its text, however often modules are loaded. Only a program that compiles kernels
//! under ever new names fills these two tables.

mod collective;
mod functions;
mod identities;
mod learnt;
mod shapes;
mod unknown;

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::path::Path;

use abi::types::{CUfunction, CUkernel};
use policy::{Class, Kernel};
use profiler::family::{Launch, estimate};
use profiler::{ClassRule, Estimate, Match, Operator, ProfileIndex, ResourceClass};

use self::collective::is_collective;
use self::functions::{Function, Functions, Origin, Sight};
use self::identities::{Identities, Identity, IdentityIndex};
pub(crate) use self::learnt::{Learnt, Number, Taken};
use self::shapes::{Shapes, What};
use self::unknown::Unknown;
use crate::driver;
use crate::kernels::labels::LabelIndex;
use crate::kernels::names::{NameIndex, Names};
use crate::kernels::record::{Described, Record};
use crate::platform::log::{self, Level};
use crate::platform::sys::SetOnce;
use crate::process::Client;

pub(crate) static KERNELS: Kernels = Kernels::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Dynamic shared memory per block, bytes.
    pub(crate) shared_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Identity of kernel and shape in this process; 0: not kept. Forgotten ones get a new one.
    pub(crate) id: u64,
    /// As `id`, for the learner, also of graphs ([`crate::progress::learner`]).
    pub(crate) number: Number,
    /// The kernel for the gate. For an unknown kernel: the class estimated from its call's sizes or
    /// its name, if any; duration 0; SMs by the driver's occupancy, or else its blocks, the
    /// maximum.
    pub(crate) kernel: Kernel,
    pub(crate) is_profiled: bool,
    pub(crate) is_learnt: bool,
    pub(crate) is_collective: bool,
}

impl Known {
    /// How many of its kernels last as long as the daemon assumes: one or none.
    #[inline]
    pub(crate) fn unknown(&self) -> u64 {
        u64::from(!(self.is_profiled || self.is_learnt))
    }
}

/// A launch by profile, driver and name, on first sight of its shape.
#[derive(Clone, Copy, Debug)]
struct Judged {
    kernel: Kernel,
    is_profiled: bool,
    is_collective: bool,
}

impl Judged {
    fn not_kept(self) -> Known {
        Known {
            id: 0,
            number: Number::default(),
            kernel: self.kernel,
            is_profiled: self.is_profiled,
            is_learnt: false,
            is_collective: self.is_collective,
        }
    }
}

/// The identity within the process, of a number in a generation.
#[inline]
pub(crate) const fn id_of(place: u16, generation: u32) -> u64 {
    // Includes the generation, because places are reused.
    place as u64 | (generation as u64) << u16::BITS
}

pub(crate) const NUMBER_MAX: u16 = shapes::SHAPES_MAX as u16;

pub(crate) struct Kernels {
    names: Names,
    functions: Functions,
    identities: Identities,
    shapes: Shapes,
    generation: AtomicU32,
    unknown: Unknown,
    record: SetOnce<Record>,
}

impl Kernels {
    const fn new() -> Self {
        Self {
            names: Names::new(),
            functions: Functions::new(),
            identities: Identities::new(),
            shapes: Shapes::new(),
            generation: AtomicU32::new(0),
            unknown: Unknown::new(),
            record: SetOnce::new(),
        }
    }

    pub(crate) fn handle_function(&self, function: CUfunction, name: &str) {
        self.handle_named(function.0 as u64, self.names.intern(name), Origin::Function);
    }

    pub(crate) fn handle_kernel(&self, kernel: CUkernel, name: &str) {
        self.handle_named(kernel.0 as u64, self.names.intern(name), Origin::Kernel);
    }

    pub(crate) fn handle_enumerated(&self, kernel: CUkernel) {
        if let Some(name) = driver::kernel_name(kernel, |name| self.names.intern(name)) {
            self.handle_named(kernel.0 as u64, name, Origin::Kernel);
        }
    }

    pub(crate) fn handle_kernel_function(&self, kernel: CUkernel, function: CUfunction) {
        let name = match self.functions.find(kernel.0 as u64) {
            Some(found) => self.name_of(found),
            None => driver::kernel_name(kernel, |name| self.names.intern(name)).flatten(),
        };
        self.handle_named(function.0 as u64, name, Origin::Function);
    }

    /// A module or library was unloaded, or a context destroyed: its handles may be reused.
    pub(crate) fn handle_unloaded(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn identify(
        &self,
        client: &Client,
        function: CUfunction,
        shape: &Shape,
        label: LabelIndex,
    ) -> Known {
        let known = self.known(client, function, shape, label);
        if !known.is_profiled {
            self.handle_unknown(client, 1);
        }
        known
    }

    pub(crate) fn look(&self, client: &Client, function: CUfunction, shape: &Shape) -> Known {
        self.known(client, function, shape, LabelIndex::NONE)
    }

    /// Identifies an operator whose launches are unseen, as one launch. Counts unknown ones.
    #[cfg(not(shim))]
    pub(crate) fn operator(&self, client: &Client, label: LabelIndex) -> Known {
        let what = What {
            identity: IdentityIndex::OPERATOR,
            device: client.index,
            label,
        };
        const NO_SHAPE: Shape = Shape {
            grid: [0; 3],
            block: [0; 3],
            shared_bytes: 0,
        };
        let known = self.shapes.find(what, &NO_SHAPE).unwrap_or_else(|| {
            self.shapes
                .keep(what, &NO_SHAPE, || judge_operator(client, label))
        });
        if !known.is_profiled {
            self.handle_unknown(client, 1);
        }
        known
    }

    pub(crate) fn learnt(&self, place: u16) -> Option<Learnt<'_>> {
        self.shapes.learnt(place)
    }

    /// Everything that a client launched: name, number, SM need, and what was learnt.
    pub(crate) fn of_client(
        &self,
        client: &Client,
    ) -> impl Iterator<Item = (Name, u16, u32, Learnt<'_>)> {
        let all = self.shapes.of_client(client.index);
        all.filter_map(|launched| {
            let label = launched.what.label;
            let name = match self.identities.of(launched.what.identity) {
                Some(identity) => Name::Kernel(identity.name),
                None if label.is_kept() => Name::Operator(label),
                None => return None,
            };
            Some((name, launched.place, launched.sm_needed, launched.learnt))
        })
    }

    pub(crate) fn named(&self, client: &Client) -> impl Iterator<Item = (u64, Name)> {
        self.of_client(client).map(|(name, place, _, learnt)| {
            let (generation, _) = learnt.taken.read();
            (id_of(place, generation), name)
        })
    }

    /// Every kernel and shape that a client launched lately, for a profile; no operators.
    pub(crate) fn profiled(&self, client: &Client) -> impl Iterator<Item = Profiled<'_>> {
        let all = self.shapes.of_client(client.index);
        all.filter_map(|launched| {
            let identity = self.identities.of(launched.what.identity)?;
            Some(Profiled {
                name: self.names.text(identity.name)?,
                shape: launched.shape,
                operator: launched.what.label.operator(),
                registers: identity.registers,
                static_shared_bytes: identity.shared_bytes,
                sm_needed: launched.sm_needed,
                place: launched.place,
                learnt: launched.learnt,
            })
        })
    }

    pub(crate) fn begin_record(&self, folder: &Path) -> io::Result<&Record> {
        if let Some(record) = self.record.get() {
            return Ok(record);
        }
        // Do not report unknown kernels in a job that creates a profile.
        self.unknown.handle_said();
        Ok(self.record.set(Record::open(folder)?))
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.get()
    }

    /// A number's description for the record. `function` is a handle of its kernel, if available.
    pub(crate) fn describe(&self, number: Number, function: CUfunction) -> Option<Described> {
        let (what, shape, sm_needed) = self.shapes.described(number)?;
        let identity = self.identities.of(what.identity)?;
        let blocks_per_sm = match function.0.is_null() {
            true => None,
            false => driver::blocks_per_sm(function, threads(&shape), shape.shared_bytes),
        };
        let operator = what.label.operator();
        Some(Described {
            name: self.names.text(identity.name)?.to_owned(),
            operator: operator.map_or_else(String::new, |operator| operator.line()),
            shape,
            static_shared_bytes: identity.shared_bytes,
            registers: identity.registers,
            sm_needed: blocks_per_sm.map_or(sm_needed, |fit| blocks(&shape.grid).div_ceil(fit)),
            blocks_per_sm: blocks_per_sm.unwrap_or(0),
            client: what.device,
        })
    }

    pub(crate) fn say_name(&self, name: &Name) -> String {
        match name {
            Name::Kernel(name) => Shown(self.names.text(*name).unwrap_or_default()).to_string(),
            Name::Operator(label) => label
                .operator()
                .map_or_else(String::new, |operator| operator.to_string()),
        }
    }

    #[inline]
    fn known(
        &self,
        client: &Client,
        function: CUfunction,
        shape: &Shape,
        label: LabelIndex,
    ) -> Known {
        let generation = self.generation.load(Ordering::Relaxed);
        let identity = match self.functions.find(function.0 as u64) {
            Some(Function {
                sight: Sight::Identified(identity),
                generation: seen,
                ..
            }) if seen == generation => identity,
            found => self.identify_anew(client, function, found, generation),
        };
        match identity {
            Some(identity) => {
                let what = What {
                    identity,
                    device: client.index,
                    // Without operators in the profile, one place serves the kernel in all
                    // operators of the same intensity, unless a record must distinguish them.
                    label: if label != LabelIndex::NONE
                        && (client.is_recording
                            || client.profile().is_some_and(ProfileIndex::has_operators))
                    {
                        label
                    } else {
                        label.without_operator()
                    },
                };
                self.shapes.find(what, shape).unwrap_or_else(|| {
                    self.shapes
                        .keep(what, shape, || self.judge(client, function, &what, shape))
                })
            }
            None => Judged {
                kernel: unknown(shape),
                is_profiled: false,
                is_collective: false,
            }
            .not_kept(),
        }
    }

    #[cold]
    fn identify_anew(
        &self,
        client: &Client,
        function: CUfunction,
        found: Option<Function>,
        generation: u32,
    ) -> Option<IdentityIndex> {
        let current = found.filter(|found| found.generation == generation);
        let told = match current.map(|found| (found.sight, found.origin)) {
            Some((Sight::Named(Some(name)), origin)) => Some((Some(name), origin)),
            _ => self.ask_name(function, found.map(|found| found.origin)),
        };
        // If the driver cannot tell, use what the hooks saw: a reused handle has gone through them.
        let (name, origin) = told.unwrap_or_else(|| {
            let origin = found.map_or(Origin::Function, |found| found.origin);
            (found.and_then(|found| self.name_of(found)), origin)
        });
        let needs = match origin {
            Origin::Function => driver::function_needs(function),
            Origin::Kernel => driver::kernel_needs(CUkernel(function.0), client.device),
        };
        let (registers, shared_bytes) = needs.unwrap_or((0, 0));
        let identity = name.and_then(|name| {
            self.identities.intern(&Identity {
                name,
                registers,
                shared_bytes,
            })
        });
        // Do not keep an unknown handle: its launch will fail, and the next one may not.
        if name.is_some() || needs.is_some() {
            self.functions.keep(
                function.0 as u64,
                Function {
                    sight: Sight::Identified(identity),
                    origin,
                    generation,
                },
            );
        }
        identity
    }

    /// Name and kind of a handle; `None` if the driver cannot tell. A handle that came by no hook
    /// may be a kernel, which older queries do not know.
    fn ask_name(
        &self,
        function: CUfunction,
        origin: Option<Origin>,
    ) -> Option<(Option<NameIndex>, Origin)> {
        let as_kernel = || {
            let told = driver::kernel_name(CUkernel(function.0), |name| self.names.intern(name));
            told.map(|name| (name, Origin::Kernel))
        };
        let as_function = || {
            let told = driver::function_name(function, |name| self.names.intern(name));
            told.map(|name| (name, Origin::Function))
        };
        if function.0.is_null() {
            return None;
        }
        match origin {
            Some(Origin::Kernel) => as_kernel().or_else(as_function),
            _ => as_function().or_else(as_kernel),
        }
    }

    fn name_of(&self, function: Function) -> Option<NameIndex> {
        match function.sight {
            Sight::Named(name) => name,
            Sight::Identified(identity) => Some(self.identities.of(identity?)?.name),
        }
    }

    /// Keeps a handle's name, unless it has it: programs often obtain the same functions again.
    fn handle_named(&self, handle: u64, name: Option<NameIndex>, origin: Origin) {
        let generation = self.generation.load(Ordering::Relaxed);
        let found = self.functions.find(handle);
        let is_known = found.is_some_and(|found| {
            found.generation == generation
                && found.origin == origin
                && name.is_some()
                && self.name_of(found) == name
        });
        if is_known {
            return;
        }
        self.functions.keep(
            handle,
            Function {
                sight: Sight::Named(name),
                origin,
                generation,
            },
        );
    }

    #[cold]
    fn judge(&self, client: &Client, function: CUfunction, what: &What, shape: &Shape) -> Judged {
        let identity = what.identity;
        let operator = what.label.operator();
        let mut is_in_operator = false;
        let found = client
            .profile()
            .zip(self.text_of(identity))
            .and_then(|(profile, text)| {
                let (grid, block) = (shape.grid, shape.block);
                let found =
                    profile.find_launch(operator.as_ref(), text, grid, block, shape.shared_bytes);
                is_in_operator = found.is_in_operator;
                found.kernel.map(|kernel| (kernel, found.quality))
            });
        let is_exact = matches!(found, Some((_, Match::Exact)));
        let blocks_per_sm = if is_exact {
            None
        } else {
            driver::blocks_per_sm(function, threads(shape), shape.shared_bytes)
        };
        let by_driver = blocks_per_sm.map(|fit| blocks(&shape.grid).div_ceil(fit));
        let mut kernel = match found {
            None => Kernel {
                sm_needed: by_driver.unwrap_or_else(|| blocks(&shape.grid)),
                ..unknown(shape)
            },
            Some((found, quality)) => Kernel {
                class: class(found.class),
                sm_needed: match (quality, by_driver) {
                    (Match::Exact, _) | (Match::WithoutShared, None) => found.sm_needed,
                    (_, Some(by_driver)) => by_driver,
                    (_, None) => scaled(found.sm_needed, blocks(&found.grid), blocks(&shape.grid)),
                },
                expected_ns: found.durations.p95_ns,
            },
        };
        // A kernel that was measured and is bound by nothing stays unclassed.
        let mut estimated = None;
        if found.is_none_or(|(found, _)| found.class_rule == ClassRule::Unknown) {
            let launch = Launch {
                name: self.text_of(identity).unwrap_or_default(),
                sm_needed: Some(kernel.sm_needed),
                // A class only excludes pairs. Small high-priority launches get one, for their
                // protection; small best-effort ones, which seldom contend, would be held back.
                device_sms: client.gpu.sms.filter(|_| !client.is_high_priority()),
                duration_ns: None,
                intensity: what.label.intensity(),
            };
            estimated = estimate(&launch);
            kernel.class = class_of(estimated);
        }
        if found.is_none() {
            self.unknown.note(self.identities.of(identity), shape);
        }
        let told = Told {
            quality: found.map_or(Match::Unknown, |(_, quality)| quality),
            operator: operator.filter(|_| is_in_operator),
            estimated,
        };
        let name = Shown(self.text_of(identity).unwrap_or_default());
        let longest = &client.page.told.longest;
        longest.note(kernel.expected_ns, kernel.sm_needed, name);
        self.say_judged(identity, shape, &kernel, &told);
        Judged {
            kernel,
            is_profiled: found.is_some(),
            is_collective: self.text_of(identity).is_some_and(is_collective),
        }
    }

    fn text_of(&self, identity: IdentityIndex) -> Option<&str> {
        self.names.text(self.identities.of(identity)?.name)
    }

    fn say_judged(&self, identity: IdentityIndex, shape: &Shape, kernel: &Kernel, told: &Told) {
        let Some(Identity {
            name,
            registers,
            shared_bytes,
        }) = self
            .identities
            .of(identity)
            .filter(|_| log::is_said(Level::Debug))
        else {
            return;
        };
        let text = self.names.text(name).unwrap_or_default();
        log::say(
            Level::Debug,
            format_args!(
                "kernel {}: grid {:?} block {:?} shared {shared_bytes}+{} registers {registers}: \
                 {:?}{}, {} SMs, {} ns{}",
                Shown(text),
                shape.grid,
                shape.block,
                shape.shared_bytes,
                told.quality,
                told.operator
                    .as_ref()
                    .map_or_else(String::new, |operator| format!(" in {operator}")),
                kernel.sm_needed,
                kernel.expected_ns,
                Estimated(told.estimated),
            ),
        );
    }
}

pub(crate) struct Profiled<'a> {
    pub(crate) name: &'a str,
    pub(crate) shape: Shape,
    pub(crate) operator: Option<Operator>,
    /// Per thread; 0 if the driver did not report it.
    pub(crate) registers: u32,
    /// Static shared memory per block; 0 if the driver did not report it.
    pub(crate) static_shared_bytes: u32,
    /// SMs that hold all its blocks at once.
    pub(crate) sm_needed: u32,
    pub(crate) place: u16,
    pub(crate) learnt: Learnt<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    Kernel(NameIndex),
    /// An operator that stands for its launches.
    Operator(LabelIndex),
}

/// A kernel's name, demangled when displayed.
struct Shown<'t>(&'t str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let demangled = profiler::names::demangled(self.0);
        f.write_str(demangled.as_deref().unwrap_or(self.0))
    }
}

struct Told {
    quality: Match,
    operator: Option<Operator>,
    estimated: Option<Estimate>,
}

/// An estimate for display; empty if there is none.
struct Estimated(Option<Estimate>);

impl fmt::Display for Estimated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Estimate { class, family, .. }) = self.0 else {
            return Ok(());
        };
        match family {
            Some(family) => write!(f, ", {} by name ({})", class.word(), family.word()),
            None => write!(f, ", {} by sizes", class.word()),
        }
    }
}

/// Judges an operator that stands for its launches. Without a profile it needs all SMs.
#[cfg(not(shim))]
#[cold]
fn judge_operator(client: &Client, label: LabelIndex) -> Judged {
    let operator = label.operator();
    let found = client
        .profile()
        .zip(operator.as_ref())
        .and_then(|(profile, operator)| profile.of_operator(operator));
    // A class from the profile stays: the operator's longest kernel may only be a helper.
    let estimated = match found {
        Some(_) => None,
        None => estimate(&Launch {
            intensity: label.intensity(),
            ..Launch::default()
        }),
    };
    let kernel = found.map_or(
        Kernel {
            class: class_of(estimated),
            sm_needed: u32::MAX,
            expected_ns: 0,
        },
        |found| Kernel {
            class: class(found.class),
            sm_needed: found.sm_needed,
            expected_ns: found.expected_ns,
        },
    );
    if let Some(operator) = &operator {
        let longest = &client.page.told.longest;
        longest.note(kernel.expected_ns, kernel.sm_needed, operator);
    }
    if let Some(operator) = operator.filter(|_| log::is_said(Level::Debug)) {
        log::say(
            Level::Debug,
            format_args!(
                "operator {operator}: its launches are not seen; it counts as one launch: {}, {} SMs, {} ns{}",
                found.map_or("unknown", |_| "profiled"),
                kernel.sm_needed,
                kernel.expected_ns,
                Estimated(estimated),
            ),
        );
    }
    Judged {
        kernel,
        is_profiled: found.is_some(),
        is_collective: false,
    }
}

/// An unknown launch: it cannot need more SMs than it has blocks.
fn unknown(shape: &Shape) -> Kernel {
    Kernel {
        class: Class::Unknown,
        sm_needed: blocks(&shape.grid),
        expected_ns: 0,
    }
}

fn class_of(estimated: Option<Estimate>) -> Class {
    estimated.map_or(Class::Unknown, |estimate| class(estimate.class))
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

fn threads(shape: &Shape) -> u32 {
    blocks(&shape.block)
}

/// SM need of a kernel measured with another grid: in proportion to blocks, at least as measured.
fn scaled(sm_needed: u32, blocks_measured: u32, blocks: u32) -> u32 {
    let product = u64::from(sm_needed) * u64::from(blocks);
    let scaled = product.div_ceil(u64::from(blocks_measured.max(1)));
    u32::try_from(scaled).unwrap_or(u32::MAX).max(sm_needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    // census: H12
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
