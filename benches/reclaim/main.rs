//! `cargo bench -p pillion-benches --bench reclaim`: how long a killed process's memory stays
//! charged to its job.
//!
//! Real processes on the software GPU: a device server, `pilliond`, and processes that hold memory
//! until SIGKILL, one after the other. For each the bench polls, as often as the machine allows,
//! whether it has ended (its descriptor), whether the device still has memory for it (the device
//! server's report to monitors, as NVML's would be), and whether it is still in its job's account
//! (the daemon's answer to the job's own processes). The *control*, killed in turn with it, is the
//! same process without Pillion: the time that the device alone needs.
//!
//! | row | from | to | target |
//! |---|---|---|---|
//! | device alone | the control's end is known | the device shows its memory freed | |
//! | from its end | the process's end is known | in no account | |
//! | Pillion | its end *and* the device's free are known | in no account | 100 ms at most |
//!
//! *Loaded* is the same with two endlessly computing threads per processor. The artefacts are those
//! of the tests (the profile `release`): at milliseconds it makes no difference.

mod holder;
mod stage;

use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use benches::bench::{self, Options};
use benches::machine::Machine;
use benches::report::{Measured, Report, Row, Unit};
use benches::summary::Quantiles;
use clap::Parser;

use crate::stage::{Fate, Stage};

const TARGET_MS: f64 = 100.0;
const KILLS: usize = 100;

/// Measures how long the memory of a killed process stays charged. Uses no GPU.
#[derive(Parser)]
#[command(name = "reclaim", after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Write the table as Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Internal: hold memory until killed.
    #[arg(long, hide = true)]
    hold: bool,
}

const AFTER_HELP: &str = "\
Example:
  cargo bench --profile release -p pillion-benches --bench reclaim -- --quick

Exit codes: 0 success; 1 a measurement failed or, with --check, a target was missed.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.hold {
        return bench::outcome("reclaim", stage::hold().map(|()| true));
    }
    arguments.options.run("reclaim", || run(&arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<Report> {
    let machine = Machine::here();
    let kills = if arguments.options.quick {
        KILLS / 5
    } else {
        KILLS
    };
    let stage = Stage::set()?;
    let mut rows = measure(&stage, "quiet", kills)?;
    let load = Load::start(2 * machine.cpus);
    rows.extend(measure(&stage, "loaded", kills)?);
    drop(load);
    let report = Report::new(machine, arguments.options.quick, rows);
    if let Some(file) = &arguments.markdown {
        bench::write(file, &report.to_markdown())?;
    }
    let notes = bench::evidence(&report);
    arguments.options.publish(report, &notes)
}

fn measure(stage: &Stage, state: &str, kills: usize) -> anyhow::Result<Vec<Row>> {
    let (mut alone, mut ours) = (Vec::new(), Vec::new());
    for kill in 0..kills {
        // In the order ABBA.
        for is_ours in [kill % 2 == 0, kill % 2 == 1] {
            let fates = if is_ours { &mut ours } else { &mut alone };
            fates.push(stage.kill_one(is_ours)?);
        }
    }
    let of = |fates: &[Fate], what: fn(&Fate) -> u64| -> Vec<f64> {
        fates.iter().map(|fate| what(fate) as f64 / 1e6).collect()
    };
    let looks = of(&ours, |fate| fate.look_ns_max);
    let looks = format!(
        "longest time between two polls: median {:.1} ms, max {:.1} ms",
        Quantiles::of(&looks).median,
        most(&looks)
    );
    let row = |name: &str, values: &[f64], is_target: bool| {
        let quantiles = Quantiles::of(values);
        let mut row = Row::new(
            &format!("{state}: {name}"),
            Unit::Ms,
            Measured::Median(quantiles),
            None,
        );
        let (median, p90, most) = (quantiles.median, quantiles.p90, most(values));
        if is_target {
            row.target = Some(TARGET_MS);
            row.pass = Some(most <= TARGET_MS);
        }
        row.evidence = vec![
            format!(
                "{} kills: median {median:.1} ms, p90 {p90:.1} ms, max {most:.1} ms",
                values.len()
            ),
            looks.clone(),
        ];
        row
    };
    Ok(vec![
        row("device alone", &of(&alone, Fate::device_ns), false),
        row("from its end", &of(&ours, Fate::account_ns), false),
        row("Pillion", &of(&ours, Fate::pillion_ns), true),
    ])
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

struct Load {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(count: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let compute = |is_over: Arc<AtomicBool>| {
            move || {
                let mut number = 1_u64;
                while !is_over.load(Ordering::Relaxed) {
                    number = black_box(number.wrapping_mul(6_364_136_223_846_793_005));
                }
            }
        };
        let threads = (0..count)
            .map(|_| thread::spawn(compute(Arc::clone(&is_over))))
            .collect();
        Self { is_over, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
