//! Replays a trace through real driver-API calls: the job of Pillion's demonstrations and tests.
//!
//! A request is: copy the input to the device, launch every kernel of the trace in order on the
//! default stream (where PyTorch computes), copy the output back, synchronise. Its latency runs
//! from its *scheduled* beginning, so that waiting behind the previous request counts. A check
//! kernel that really computes is launched among the others and its result compared, so that a
//! lost, doubled or reordered launch is detected.
//!
//! The software GPU loads the trace's kernels as they are. A real GPU runs *synthetic* ones: PTX
//! that is compute- or memory-bound and lasts a given time. `--calibrate` measures the parameters
//! once for each kernel, `--calibrated` replays with them.
//!
//! It is an ordinary CUDA program, which knows of Pillion only the software GPU's clock, and with
//! `--marks` the calls that mark requests. Times in the output are milliseconds of that clock.

mod arrivals;
mod calibrate;
mod device;
mod marks;
mod ptx;
mod report;
mod synthetic;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;
use profiler::Trace;
use protocol::clock::Clock;
use sim::arrivals::Schedule;

use crate::calibrate::Calibration;
use crate::device::{Device, Replayed};
use crate::marks::Marks;
use crate::report::Report;

/// Replays a kernel trace through the CUDA driver and reports the latency of each request.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Example: pillion-replay --trace model_kernels/resnet50_4_fwd --arrivals poisson \
                  --rate 15 --seconds 10"
)]
struct Options {
    /// Orion kernel file or Pillion trace.
    #[arg(long, value_name = "FILE", required_unless_present = "calibrated")]
    trace: Option<PathBuf>,
    /// Measure how long synthetic kernels run on this GPU, write the calibrated trace into this
    /// folder, and exit.
    #[arg(long, value_name = "FOLDER", conflicts_with = "calibrated")]
    calibrate: Option<PathBuf>,
    /// Replay the trace that --calibrate has written into this folder.
    #[arg(long, value_name = "FOLDER", conflicts_with = "trace")]
    calibrated: Option<PathBuf>,
    /// Print the PTX of the synthetic kernels, and exit.
    #[arg(long, conflicts_with_all = ["calibrate", "calibrated"])]
    print_ptx: bool,
    /// When requests arrive: closed (the next when the last has completed), poisson, uniform, or
    /// a file (JSON list of gaps in seconds, DISB workload JSON, or one time in seconds per line).
    #[arg(long, default_value = "closed", value_name = "KIND|FILE")]
    arrivals: String,
    /// Requests per second for poisson and uniform.
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Which list of a DISB workload file to use, counted from 0.
    #[arg(long, default_value_t = 0, value_name = "N")]
    arrivals_stream: usize,
    /// For how long requests arrive, in seconds of the clock.
    #[arg(
        long,
        default_value_t = 10.0,
        value_name = "S",
        allow_negative_numbers = true
    )]
    seconds: f64,
    /// Seed of the Poisson arrivals; equal seeds give equal arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes copied to the device before each request (default: one 224 x 224 RGB image, fp32).
    #[arg(long, default_value_t = 602_112, value_name = "BYTES")]
    input_bytes: usize,
    /// Bytes copied back after each request.
    #[arg(long, default_value_t = 4_000, value_name = "BYTES")]
    output_bytes: usize,
    /// Launch a check kernel after every N-th launch; 0 for none.
    #[arg(long, default_value_t = 50, value_name = "N")]
    check_every: usize,
    /// Also create the streams that cuDNN and cuBLAS create (16 non-blocking, 1 blocking), and do
    /// not use them.
    #[arg(long)]
    library_streams: bool,
    /// Print `ready` when everything is loaded, and start when stdin has a line or ends, so that
    /// several replays start together.
    #[arg(long)]
    hold: bool,
    /// Mark when each request arrives, begins and ends, by the calls of include/pillion.h.
    #[arg(long)]
    marks: bool,
    /// Where to write the report as JSON; `-` is stdout.
    #[arg(long, default_value = "-", value_name = "FILE")]
    out: String,
}

fn main() -> std::process::ExitCode {
    let options = Options::parse();
    match replay(&options) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pillion-replay: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn replay(options: &Options) -> Result<()> {
    let (trace, calibration) = match (&options.trace, &options.calibrated) {
        (_, Some(folder)) => {
            let (calibration, trace) = Calibration::read(folder)?;
            (trace, Some(calibration))
        }
        (Some(path), None) => (Trace::read(path)?, None),
        (None, None) => bail!("expected --trace or --calibrated"),
    };
    if options.print_ptx {
        print!("{}", ptx::module(&trace));
        return Ok(());
    }
    let clock = Clock::process();
    if let Some(folder) = &options.calibrate {
        clock.enter();
        return device::calibrate(&trace)?.write(folder, &trace);
    }
    let arrivals = arrivals::parse(options)?;
    clock.enter();
    let mut device = Device::open(&trace, calibration.as_ref(), options)?;
    if options.hold {
        println!("ready");
        std::io::stdin()
            .read_line(&mut String::new())
            .context("waiting for a line on stdin")?;
    }
    let marks = match options.marks {
        true => Marks::find(),
        false => Marks::NONE,
    };
    let replayed = run(&trace, arrivals, clock, &mut device, &marks)?;
    let report = Report::new(replayed);
    report.write(&options.out)?;
    device.close();
    // The thread stays on the clock: virtual time then goes on only when the process is gone, so
    // that every observer sees the end at the same time in every run.
    Ok(())
}

fn run(
    trace: &Trace,
    mut arrivals: Schedule,
    clock: Clock,
    device: &mut Device,
    marks: &Marks,
) -> Result<Replayed> {
    let start_ns = clock.now_ns();
    let (mut latencies_ns, mut arrived_ns) = (Vec::new(), Vec::new());
    let mut end_ns = start_ns;
    while let Some(after_ns) = arrivals.next_ns(end_ns - start_ns) {
        let arrival_ns = start_ns + after_ns;
        while clock.now_ns() < arrival_ns {
            clock.sleep_until(arrival_ns);
        }
        let request = marks.begin(arrival_ns);
        device
            .request(trace)
            .with_context(|| format!("request {} failed", latencies_ns.len()))?;
        end_ns = clock.now_ns();
        marks.end(request);
        latencies_ns.push(end_ns - arrival_ns);
        arrived_ns.push(arrival_ns);
    }
    device.replayed(latencies_ns, arrived_ns, [start_ns, end_ns])
}
