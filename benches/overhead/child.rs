//! A child: this program again, under the preload, with a task. It prints "ready" when it has a
//! context (and is attached, if it should be), begins at the first line on its standard input,
//! prints its result as one line of JSON, and ends with its standard input.

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

/// Calls of each side before the measurement: tables fill, predictors learn.
const WARM_UP: usize = 1_000;
/// Bytes of a measured allocation: the software GPU's granularity.
const ALLOCATION_BYTES: usize = 512;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Measures calls through libc's own `dlsym` against calls through a door of Pillion.
    Measure(Measure),
    /// Reports how long the start took.
    Begin { kernel: String },
    /// Only attaches.
    Attend { kernel: String },
    KeepLaunching {
        kernel: String,
        /// Between launches.
        pause_ns: u64,
    },
    /// Keeps the device busy: see [`crate::tasks`].
    Work(Work),
    /// Times launches with a pause between them: see [`crate::tasks`].
    Space(Space),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measure {
    pub(crate) kernel: String,
    /// On the legacy default stream, or on a created one.
    pub(crate) on_default_stream: bool,
    /// Through the export, where `dlsym` returns no hooks; else through `dlsym`.
    pub(crate) by_export: bool,
    pub(crate) call: Call,
    pub(crate) block: usize,
    pub(crate) pairs: usize,
    /// Between the beginnings of two calls.
    pub(crate) pace_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    Launch,
    Allocation,
    GraphLaunch(usize),
    /// `cublasSgemm_v2`: even the one found by libc's own `dlsym` launches through hooks.
    Product,
    /// `cuGraphExecKernelNodeSetParams` for each of so many kernels of a graph in turn.
    GraphChange(usize),
    /// `cuLaunchKernel` in 100 shapes first seen after so many others, against the first 100.
    LateShapes(usize),
    /// The first launch in each of 100 shapes after so many others, against the first 100.
    LateSights(usize),
    /// `cuFuncGetAttribute`: its hook only keeps a signal from stopping the thread inside.
    Attribute,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) comparison: Comparison,
    /// Calls through Pillion, including the warm-up.
    pub(crate) calls_with: u64,
    pub(crate) bare_file: PathBuf,
    pub(crate) with_file: PathBuf,
    pub(crate) dlsym_file: PathBuf,
}

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
    // The library's threads have started by now, and stay on their processors.
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

fn compare_calls(
    call: Call,
    plan: Plan,
    timer: &Timer,
    (door, what): (Door, Prepared),
) -> anyhow::Result<(Comparison, u64)> {
    let real = Door::Real;
    match call {
        Call::Allocation => compare(plan, timer, allocator(real)?, allocator(door)?),
        Call::Launch => compare(plan, timer, launcher(real, what)?, launcher(door, what)?),
        Call::LateShapes(others) => {
            let mut shapes = Shapes::new(door, what)?;
            shapes.pass(others, timer, plan.pace_ns);
            shapes.compare(plan, timer)
        }
        Call::LateSights(others) => Shapes::new(door, what)?.compare_sights(plan, timer, others),
        Call::Attribute => compare(plan, timer, asker(real, what)?, asker(door, what)?),
        Call::Product => compare(plan, timer, multiplier(real)?, multiplier(door)?),
        Call::GraphLaunch(kernels) => compare(
            plan,
            timer,
            graph_launcher(real, &what, kernels)?,
            graph_launcher(door, &what, kernels)?,
        ),
        Call::GraphChange(kernels) => compare(
            plan,
            timer,
            graph_changer(real, &what, kernels)?,
            graph_changer(door, &what, kernels)?,
        ),
    }
}

fn compare<S: Tally>(
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

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    calls: u64,
    failures: u64,
}

impl Count {
    #[inline]
    fn note(&mut self, accepted: bool) {
        self.calls += 1;
        self.failures += u64::from(!accepted);
    }
}

trait Tally: Side {
    fn tally(&self) -> Count;
}

struct Caller<C, E> {
    call: C,
    end_block: E,
    count: Count,
}

/// `call` gets the number of earlier calls. A block is a request: it ends with `end_block`, the
/// wait for its results. Both return whether the driver succeeded.
fn caller(call: impl FnMut(u64) -> bool, end_block: impl FnMut() -> bool) -> impl Tally {
    Caller {
        call,
        end_block,
        count: Count::default(),
    }
}

impl<C: FnMut(u64) -> bool, E: FnMut() -> bool> Side for Caller<C, E> {
    #[inline]
    fn call(&mut self) {
        let accepted = (self.call)(self.count.calls);
        self.count.note(accepted);
    }

    fn handle_block_end(&mut self) {
        self.count.failures += u64::from(!(self.end_block)());
    }
}

impl<C: FnMut(u64) -> bool, E: FnMut() -> bool> Tally for Caller<C, E> {
    fn tally(&self) -> Count {
        self.count
    }
}

/// For calls that leave nothing to wait for.
fn no_wait() -> bool {
    true
}

fn launcher(door: Door, what: Prepared) -> anyhow::Result<impl Tally> {
    let calls = Calls::find(door)?;
    let launch = move |_| calls.launch(&what, GRID, BLOCK);
    Ok(caller(launch, move || calls.synchronize()))
}

fn asker(door: Door, what: Prepared) -> anyhow::Result<impl Tally> {
    let calls = Calls::find(door)?;
    Ok(caller(move |_| calls.get_attribute(&what), no_wait))
}

fn allocator(door: Door) -> anyhow::Result<impl Tally> {
    let calls = Calls::find(door)?;
    let allocate = move |_| calls.allocate_and_free(ALLOCATION_BYTES);
    Ok(caller(allocate, no_wait))
}

fn graph_launcher(door: Door, what: &Prepared, kernels: usize) -> anyhow::Result<impl Tally> {
    let calls = Calls::find(door)?;
    let graph = Graph::make(door, what, kernels, (GRID, BLOCK))?;
    let launch = move |_| calls.launch_graph(&graph);
    Ok(caller(launch, move || calls.synchronize()))
}

fn graph_changer(door: Door, what: &Prepared, kernels: usize) -> anyhow::Result<impl Tally> {
    let calls = Calls::find(door)?;
    let graph = Graph::make(door, what, kernels, (GRID, BLOCK))?;
    let change = move |number| calls.set_node(&graph, number as usize % graph.len());
    Ok(caller(change, no_wait))
}

fn multiplier(door: Door) -> anyhow::Result<impl Tally> {
    let calls = Products::find(door)?;
    Ok(caller(
        move |_| calls.multiply(),
        move || calls.synchronize(),
    ))
}

/// Launches in shapes that differ in their grids.
struct Shapes {
    calls: Calls,
    what: Prepared,
    count: Count,
}

const SHAPES: u32 = 100;
/// First grids of the first shapes, of the others that pass, and of the late ones.
const FIRST: u32 = 1;
const OTHERS: u32 = 1_000;
const LATE: u32 = 1_000_000;

impl Shapes {
    fn new(door: Door, what: Prepared) -> anyhow::Result<Self> {
        Ok(Self {
            calls: Calls::find(door)?,
            what,
            count: Count::default(),
        })
    }

    #[inline]
    fn launch(&mut self, grid: u32) {
        let accepted = self.calls.launch(&self.what, grid, BLOCK);
        self.count.note(accepted);
    }

    fn wait(&mut self) {
        self.count.failures += u64::from(!self.calls.synchronize());
    }

    fn pass(&mut self, others: usize, timer: &Timer, pace_ns: u64) {
        for other in (0..).take(others) {
            if other % SHAPES == 0 {
                self.launch_all(FIRST, timer, pace_ns);
            }
            self.sight(OTHERS + other, timer, pace_ns);
        }
    }

    fn launch_all(&mut self, first: u32, timer: &Timer, pace_ns: u64) -> Vec<f64> {
        let all = (0..SHAPES).map(|number| self.sight(first + number, timer, pace_ns));
        let took = all.collect();
        self.wait();
        took
    }

    /// One launch at the pace of the others; returns its time, ns.
    fn sight(&mut self, grid: u32, timer: &Timer, pace_ns: u64) -> f64 {
        let next = timer::before() + timer.ticks(pace_ns);
        while timer::before() < next {
            std::hint::spin_loop();
        }
        let start = timer::before();
        self.launch(grid);
        timer.ns(timer::after().wrapping_sub(start))
    }

    /// The first hundred against a hundred new ones.
    fn compare(self, plan: Plan, timer: &Timer) -> anyhow::Result<(Comparison, u64)> {
        let shapes = RefCell::new(self);
        let sides = [FIRST, LATE].map(|first| Cycle {
            shapes: &shapes,
            first,
            next: 0,
        });
        let [mut first, mut late] = sides;
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
        let Count { calls, failures } = self.count;
        ensure!(failures == 0, "the driver refused calls");
        Ok((Comparison::of(samples), calls))
    }
}

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
        self.shapes.borrow_mut().wait();
    }
}

fn keep_launching(kernel: &str, pause_ns: u64) -> anyhow::Result<()> {
    let what = prepare(&module_image(), kernel, true)?;
    let mut launcher = launcher(Door::Dlsym, what)?;
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

/// Waits until the parent closes our standard input.
pub(crate) fn wait_for_end() {
    let mut rest = Vec::new();
    // An error is an end, too.
    let _ = io::stdin().lock().read_to_end(&mut rest);
}
