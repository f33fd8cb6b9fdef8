//! A child: this program again, under the preload, with a task.
//!
//! It says "ready" when it has a context (and is attached, if it is to be), begins at the first line
//! on its standard input, prints its result as one line of JSON, and ends with its standard input.

use std::cell::RefCell;
use std::io::{self, BufRead, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use benches::alternate::{Plan, Samples, Side, alternate};
use benches::summary::Comparison;
use benches::timer::{self, Timer};
use protocol::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::driver::{
    Calls, Door, Graph, Prepared, Products, file_of_launch, file_of_product, prepare,
};
use crate::processes::Processors;
use crate::profile::{BLOCK, GRID, module_image};
use crate::tasks::{self, Space, Work};

/// Calls of each side before anything is measured: tables fill, predictors learn.
const WARM_UP: usize = 1_000;
/// Bytes of a measured allocation: what the software GPU gives out at least.
const ALLOCATION_BYTES: usize = 512;

/// What a child does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Measures calls through libc's own `dlsym` against calls through a door of Pillion.
    Measure(Measure),
    /// Tells how long it took to begin.
    Begin {
        /// Its kernel.
        kernel: String,
    },
    /// Is there.
    Attend {
        /// Its kernel.
        kernel: String,
    },
    /// Launches again and again.
    KeepLaunching {
        /// Its kernel.
        kernel: String,
        /// Between launches.
        pause_ns: u64,
    },
    /// Has the device busy: see [`crate::tasks`].
    Work(Work),
    /// Times launches with a pause between them: see [`crate::tasks`].
    Space(Space),
}

/// What is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    /// The kernel that is launched.
    pub(crate) kernel: String,
    /// On the legacy default stream, or one that was made.
    pub(crate) on_default_stream: bool,
    /// Through the export, where `dlsym` does not hand out hooks; else through `dlsym`.
    pub(crate) by_export: bool,
    /// What is called.
    pub(crate) call: Call,
    /// Calls in a block.
    pub(crate) block: usize,
    /// Pairs of blocks.
    pub(crate) pairs: usize,
    /// Between the beginnings of two calls.
    pub(crate) pace_ns: u64,
}

/// What is called again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// `cuLaunchKernel`.
    Launch,
    /// `cuMemAlloc` and `cuMemFree`.
    Allocation,
    /// `cuGraphLaunch` of a graph of so many kernels.
    GraphLaunch(usize),
    /// `cublasSgemm_v2`: what is behind libc's own `dlsym` launches by hooks, too.
    Product,
    /// `cuGraphExecKernelNodeSetParams` of one after the other of so many kernels of a graph.
    GraphChange(usize),
    /// `cuLaunchKernel` in a hundred shapes that were first seen after so many others, beside the
    /// first hundred of all.
    LateShapes(usize),
    /// The first launch in each of a hundred shapes after so many others, beside those of the first
    /// hundred of all.
    LateSights(usize),
    /// `cuFuncGetAttribute`, whose hook does nothing but keep a signal from stopping the thread inside of the driver.
    Attribute,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The numbers, ns.
    pub(crate) comparison: Comparison,
    /// Calls that went through Pillion, the warm-up among them.
    pub(crate) calls_with: u64,
    /// The file that the bare launch function lies in.
    pub(crate) bare_file: PathBuf,
    /// The file that the launch function with Pillion lies in.
    pub(crate) with_file: PathBuf,
    /// The file of the launch function that this program's `dlsym` finds.
    pub(crate) dlsym_file: PathBuf,
}

/// Does what the parent wants.
pub(crate) fn run(task: &str) -> anyhow::Result<()> {
    match serde_json::from_str(task)? {
        Task::Measure(measure) => run_measure(&measure),
        Task::Begin { kernel } => {
            let clock = Clock::monotonic();
            let begun_ns = clock.now_ns();
            prepare(&module_image(), &kernel, true)?;
            let took_ns = clock.now_ns() - begun_ns;
            println!("ready");
            io::stdin().lock().read_line(&mut String::new())?;
            println!("{took_ns}");
            wait_for_end();
            Ok(())
        }
        Task::Attend { kernel } => {
            prepare(&module_image(), &kernel, true)?;
            println!("ready");
            wait_for_end();
            Ok(())
        }
        Task::KeepLaunching { kernel, pause_ns } => keep_launching(&kernel, pause_ns),
        Task::Work(work) => tasks::work(&work),
        Task::Space(space) => tasks::space(&space),
    }
}

fn run_measure(measure: &Measure) -> anyhow::Result<()> {
    let processors = Processors::allowed()?;
    processors.stand_aside()?;
    let what = prepare(&module_image(), &measure.kernel, measure.on_default_stream)?;
    let door = if measure.by_export {
        Door::Export
    } else {
        Door::Dlsym
    };
    // The library's threads have been started by now, and stay where they are.
    processors.move_to_measured()?;
    let timer = Timer::calibrated();
    println!("ready");
    io::stdin().lock().read_line(&mut String::new())?;
    let plan = Plan {
        block: measure.block,
        pairs: measure.pairs,
        pace_ns: measure.pace_ns,
    };
    let (comparison, calls_with) = compare_calls(measure.call, plan, &timer, (door, what))?;
    let file = if measure.call == Call::Product {
        file_of_product
    } else {
        file_of_launch
    };
    let outcome = Outcome {
        comparison,
        calls_with,
        bare_file: file(Door::Real)?,
        with_file: file(door)?,
        dlsym_file: file(Door::Dlsym)?,
    };
    println!("{}", serde_json::to_string(&outcome)?);
    wait_for_end();
    Ok(())
}

/// Compares both sides of a call; and how many calls went through Pillion.
fn compare_calls(
    call: Call,
    plan: Plan,
    timer: &Timer,
    (door, what): (Door, Prepared),
) -> anyhow::Result<(Comparison, u64)> {
    match call {
        Call::Allocation => compare(
            plan,
            timer,
            Allocator::new(Door::Real)?,
            Allocator::new(door)?,
        ),
        Call::Launch => compare(
            plan,
            timer,
            Launcher::new(Door::Real, what)?,
            Launcher::new(door, what)?,
        ),
        Call::LateShapes(others) => {
            let mut shapes = Shapes::new(door, what)?;
            shapes.pass(others, timer, plan.pace_ns);
            shapes.compare(plan, timer)
        }
        Call::LateSights(others) => Shapes::new(door, what)?.compare_sights(plan, timer, others),
        Call::Attribute => compare(
            plan,
            timer,
            Asker(Launcher::new(Door::Real, what)?),
            Asker(Launcher::new(door, what)?),
        ),
        Call::Product => compare(
            plan,
            timer,
            Multiplier::new(Door::Real)?,
            Multiplier::new(door)?,
        ),
        Call::GraphLaunch(kernels) => compare(
            plan,
            timer,
            GraphLauncher(Grapher::new(Door::Real, &what, kernels)?),
            GraphLauncher(Grapher::new(door, &what, kernels)?),
        ),
        Call::GraphChange(kernels) => compare(
            plan,
            timer,
            GraphChanger(Grapher::new(Door::Real, &what, kernels)?),
            GraphChanger(Grapher::new(door, &what, kernels)?),
        ),
    }
}

fn compare<S: Side + Tally>(
    plan: Plan,
    timer: &Timer,
    mut bare: S,
    mut with: S,
) -> anyhow::Result<(Comparison, u64)> {
    for _ in 0..WARM_UP {
        bare.call();
        with.call();
    }
    let samples = alternate(plan, timer, &mut bare, &mut with);
    let (bare, with) = (bare.tally(), with.tally());
    ensure!(
        bare.failures + with.failures == 0,
        "the driver refused calls"
    );
    Ok((Comparison::of(&samples), with.calls))
}

/// What a side counts.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    calls: u64,
    failures: u64,
}

trait Tally {
    fn tally(&self) -> Count;
}

struct Launcher {
    calls: Calls,
    what: Prepared,
    count: Count,
}

impl Launcher {
    fn new(door: Door, what: Prepared) -> anyhow::Result<Self> {
        Ok(Self {
            calls: Calls::find(door)?,
            what,
            count: Count::default(),
        })
    }
}

impl Side for Launcher {
    #[inline]
    fn call(&mut self) {
        let accepted = self.calls.launch(&self.what, GRID, BLOCK);
        self.count.calls += 1;
        self.count.failures += u64::from(!accepted);
    }

    /// A block is a request: it ends with a wait for its results.
    fn handle_block_end(&mut self) {
        self.count.failures += u64::from(!self.calls.synchronize());
    }
}

impl Tally for Launcher {
    fn tally(&self) -> Count {
        self.count
    }
}

/// Launches in shapes that differ in their grids.
struct Shapes(Launcher);

/// Shapes that are launched again and again.
const SHAPES: u32 = 100;
/// The grid of the first of them, of the others that pass, and of the late ones.
const FIRST: u32 = 1;
const OTHERS: u32 = 1_000;
const LATE: u32 = 1_000_000;

impl Shapes {
    fn new(door: Door, what: Prepared) -> anyhow::Result<Self> {
        Launcher::new(door, what).map(Self)
    }

    #[inline]
    fn launch(&mut self, grid: u32) {
        let Launcher { calls, what, count } = &mut self.0;
        let accepted = calls.launch(what, grid, BLOCK);
        count.calls += 1;
        count.failures += u64::from(!accepted);
    }

    /// The first hundred, then so many others, once each. The first hundred are launched among
    /// them, as the steady part of a program is.
    fn pass(&mut self, others: usize, timer: &Timer, pace_ns: u64) {
        for other in (0..).take(others) {
            if other % SHAPES == 0 {
                self.launch_all(FIRST, timer, pace_ns);
            }
            self.sight(OTHERS + other, timer, pace_ns);
        }
    }

    /// Launches a hundred shapes, and waits for them; what each took, ns.
    fn launch_all(&mut self, first: u32, timer: &Timer, pace_ns: u64) -> Vec<f64> {
        let all = (0..SHAPES).map(|number| self.sight(first + number, timer, pace_ns));
        let took = all.collect();
        self.0.handle_block_end();
        took
    }

    /// One launch at the pace of the others; what it took, ns.
    fn sight(&mut self, grid: u32, timer: &Timer, pace_ns: u64) -> f64 {
        let next = timer::before() + timer.ticks(pace_ns);
        while timer::before() < next {
            std::hint::spin_loop();
        }
        let start = timer::before();
        self.launch(grid);
        timer.ns(timer::after().wrapping_sub(start))
    }

    /// The first hundred against a hundred that nobody has launched before.
    fn compare(self, plan: Plan, timer: &Timer) -> anyhow::Result<(Comparison, u64)> {
        let shapes = RefCell::new(self);
        let sides = [FIRST, LATE].map(|first| Cycle {
            shapes: &shapes,
            first,
            next: 0,
        });
        let [mut first, mut late] = sides;
        // Each is launched once before anything is measured.
        (0..SHAPES).for_each(|_| {
            first.call();
            late.call();
        });
        let samples = alternate(plan, timer, &mut first, &mut late);
        shapes.into_inner().finish(&samples)
    }

    fn compare_sights(
        mut self,
        plan: Plan,
        timer: &Timer,
        others: usize,
    ) -> anyhow::Result<(Comparison, u64)> {
        let bare = self.launch_all(FIRST, timer, plan.pace_ns);
        self.pass(others, timer, plan.pace_ns);
        let with = self.launch_all(LATE, timer, plan.pace_ns);
        let block = bare.len();
        self.finish(&Samples { block, bare, with })
    }

    fn finish(self, samples: &Samples) -> anyhow::Result<(Comparison, u64)> {
        let Count { calls, failures } = self.0.count;
        ensure!(failures == 0, "the driver refused calls");
        Ok((Comparison::of(samples), calls))
    }
}

/// A hundred shapes, one after the other.
struct Cycle<'s> {
    shapes: &'s RefCell<Shapes>,
    first: u32,
    next: u32,
}

impl Side for Cycle<'_> {
    #[inline]
    fn call(&mut self) {
        self.next = (self.next + 1) % SHAPES;
        self.shapes.borrow_mut().launch(self.first + self.next);
    }

    fn handle_block_end(&mut self) {
        self.shapes.borrow_mut().0.handle_block_end();
    }
}

/// Asks about what a launcher launches.
struct Asker(Launcher);

impl Side for Asker {
    #[inline]
    fn call(&mut self) {
        let answered = self.0.calls.get_attribute(&self.0.what);
        self.0.count.calls += 1;
        self.0.count.failures += u64::from(!answered);
    }
}

impl Tally for Asker {
    fn tally(&self) -> Count {
        self.0.count
    }
}

struct Allocator {
    calls: Calls,
    count: Count,
}

impl Allocator {
    fn new(door: Door) -> anyhow::Result<Self> {
        Ok(Self {
            calls: Calls::find(door)?,
            count: Count::default(),
        })
    }
}

impl Side for Allocator {
    #[inline]
    fn call(&mut self) {
        let agreed = self.calls.allocate_and_free(ALLOCATION_BYTES);
        self.count.calls += 1;
        self.count.failures += u64::from(!agreed);
    }
}

impl Tally for Allocator {
    fn tally(&self) -> Count {
        self.count
    }
}

/// A graph of its own, and the calls about it.
struct Grapher {
    calls: Calls,
    graph: Graph,
    count: Count,
}

impl Grapher {
    fn new(door: Door, what: &Prepared, kernels: usize) -> anyhow::Result<Self> {
        Ok(Self {
            calls: Calls::find(door)?,
            graph: Graph::make(door, what, kernels, (GRID, BLOCK))?,
            count: Count::default(),
        })
    }

    #[inline]
    fn note(&mut self, accepted: bool) {
        self.count.calls += 1;
        self.count.failures += u64::from(!accepted);
    }
}

struct GraphLauncher(Grapher);

impl Side for GraphLauncher {
    #[inline]
    fn call(&mut self) {
        let accepted = self.0.calls.launch_graph(&self.0.graph);
        self.0.note(accepted);
    }

    fn handle_block_end(&mut self) {
        self.0.count.failures += u64::from(!self.0.calls.synchronize());
    }
}

impl Tally for GraphLauncher {
    fn tally(&self) -> Count {
        self.0.count
    }
}

struct GraphChanger(Grapher);

impl Side for GraphChanger {
    #[inline]
    fn call(&mut self) {
        let index = self.0.count.calls as usize % self.0.graph.len();
        let accepted = self.0.calls.set_node(&self.0.graph, index);
        self.0.note(accepted);
    }
}

impl Tally for GraphChanger {
    fn tally(&self) -> Count {
        self.0.count
    }
}

struct Multiplier {
    calls: Products,
    count: Count,
}

impl Multiplier {
    fn new(door: Door) -> anyhow::Result<Self> {
        Ok(Self {
            calls: Products::find(door)?,
            count: Count::default(),
        })
    }
}

impl Side for Multiplier {
    #[inline]
    fn call(&mut self) {
        let agreed = self.calls.multiply();
        self.count.calls += 1;
        self.count.failures += u64::from(!agreed);
    }

    /// As of launches.
    fn handle_block_end(&mut self) {
        self.count.failures += u64::from(!self.calls.synchronize());
    }
}

impl Tally for Multiplier {
    fn tally(&self) -> Count {
        self.count
    }
}

fn keep_launching(kernel: &str, pause_ns: u64) -> anyhow::Result<()> {
    let what = prepare(&module_image(), kernel, true)?;
    let mut launcher = Launcher::new(Door::Dlsym, what)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_over);
    let listener = std::thread::spawn(move || {
        wait_for_end();
        told.store(true, Ordering::Relaxed);
    });
    println!("ready");
    let clock = Clock::monotonic();
    while !is_over.load(Ordering::Relaxed) {
        launcher.call();
        clock.sleep_until(clock.now_ns() + pause_ns);
    }
    ensure!(listener.join().is_ok(), "the listening thread panicked");
    Ok(())
}

/// Until the parent closes our standard input.
pub(crate) fn wait_for_end() {
    let mut rest = Vec::new();
    // An error is an end too.
    let _ = io::stdin().lock().read_to_end(&mut rest);
}
