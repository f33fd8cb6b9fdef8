//! Calibration: the loops with which a synthetic kernel lasts as long as the trace's kernel, and
//! the shared memory with which it needs as many SMs. For each kernel, the blocks on an SM are
//! limited to the trace's assumption ([`Synthetic::confine`]). A few launches give a rough time of
//! a loop; [`POINTS`] numbers of loops around the estimate are timed, a straight line is fitted,
//! the number is read off the line, and its actual time is measured and reported. Times are those
//! of events around a row of launches, the best of [`REPEATS`], because disturbances only lengthen
//! them: nothing else should be on the GPU. An empty launch takes time, too. A shorter kernel has
//! no loops and counts as *below the floor*.

use std::path::Path;

use anyhow::{Context, Result};
use profiler::{Trace, TraceKernel};
use protocol::clock::Clock;
use serde::{Deserialize, Serialize};

use crate::ptx::LOOPS_MAX;
use crate::synthetic::Synthetic;

/// A calibrated trace, as in `calibration.json`. Times are of one launch, ns.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Calibration {
    schema_version: u32,
    pub(crate) gpu: Gpu,
    buffer_bytes: u64,
    /// One request, as the trace has it and as measured, kernel by kernel.
    request_target_ns: u64,
    request_measured_ns: u64,
    /// Sum of the differences of each launch, over the request's time: 0 is perfect.
    error: f64,
    /// Launches of a request that are shorter than an empty launch.
    launches_below_floor: usize,
    /// Launches of a request that need as many SMs as in the trace.
    launches_of_same_sms: usize,
    launches: usize,
    /// In the trace's order.
    pub(crate) kernels: Vec<Calibrated>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) uuid: String,
    /// Newest CUDA version of the driver, 1000 · major + 10 · minor.
    pub(crate) cuda: u32,
    pub(crate) sms: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Calibrated {
    name: String,
    source: String,
    /// The loops of all its blocks together, for its duration.
    pub(crate) work: u64,
    /// The increment of a thread's sum in each loop.
    per_loop: u32,
    target_ns: u64,
    measured_ns: u64,
    is_below_floor: bool,
    sm_needed_target: u32,
    sm_needed: u32,
    shared_bytes: u32,
}

/// The file with the loops, in the folder of a calibration.
const CALIBRATION: &str = "calibration.json";
/// The file with the trace as launched, beside it.
const TRACE: &str = "trace";
/// Measurements of which the shortest counts.
const REPEATS: usize = 5;
/// The timed parts of the estimated work, for the line.
const POINTS: [f64; 4] = [0.5, 0.75, 1.0, 1.25];
/// The approximate length of a row of launches, long beside the cost of a measurement.
const ROW_NS: f64 = 300_000.0;
const ROW_MAX: f64 = 40.0;
/// How long the GPU works before any measurement: an idle one has lowered its clocks.
const WARM_UP_NS: u64 = 300_000_000;
/// A difference of times is trusted from this multiple of an empty launch on.
const TRUSTED: f64 = 2.0;

impl Calibration {
    /// Measures every kernel. Nothing else should be on the GPU. Errors: a driver call that fails.
    pub(crate) fn measure(trace: &Trace, gpu: Gpu, synthetic: &mut Synthetic) -> Result<Self> {
        warm_up(synthetic)?;
        let mut kernels = Vec::with_capacity(trace.kernels.len());
        for (index, kernel) in trace.kernels.iter().enumerate() {
            kernels.push(
                calibrated(index, kernel, synthetic)
                    .with_context(|| format!("calibrating {}", kernel.name))?,
            );
        }
        let launched = || trace.launches.iter().map(|&index| &kernels[index as usize]);
        let sum = |of: fn(&Calibrated) -> u64| launched().map(of).sum::<u64>();
        let count = |is: fn(&Calibrated) -> bool| launched().filter(|kernel| is(kernel)).count();
        let target_ns = sum(|kernel| kernel.target_ns);
        let off_ns = sum(|kernel| kernel.measured_ns.abs_diff(kernel.target_ns));
        Ok(Self {
            schema_version: 1,
            gpu,
            buffer_bytes: synthetic.buffer_bytes(),
            request_target_ns: target_ns,
            request_measured_ns: sum(|kernel| kernel.measured_ns),
            error: off_ns as f64 / target_ns.max(1) as f64,
            launches_below_floor: count(|kernel| kernel.is_below_floor),
            launches_of_same_sms: count(|kernel| kernel.sm_needed == kernel.sm_needed_target),
            launches: trace.launches.len(),
            kernels,
        })
    }

    /// The trace as launched here: names, shapes and durations of the synthetic kernels.
    pub(crate) fn trace(&self, trace: &Trace) -> Trace {
        let kernels = trace.kernels.iter().zip(&self.kernels);
        let kernels = kernels.map(|(kernel, calibrated)| {
            let blocks: u32 = kernel.grid.iter().product();
            let waves = calibrated.sm_needed.div_ceil(self.gpu.sms.max(1)).max(1);
            TraceKernel {
                name: calibrated.name.clone(),
                source_name: kernel.name.clone(),
                grid: [blocks, 1, 1],
                block: [kernel.block.iter().product(), 1, 1],
                shared_bytes: calibrated.shared_bytes,
                sm_needed: calibrated.sm_needed,
                block_ns: (calibrated.measured_ns / u64::from(waves)).max(1),
                duration_ns: calibrated.measured_ns.max(1),
                ..kernel.clone()
            }
        });
        Trace {
            device: self.gpu.name.replace(' ', "-"),
            kernels: kernels.collect(),
            launches: trace.launches.clone(),
        }
    }

    pub(crate) fn write(&self, folder: &Path, trace: &Trace) -> Result<()> {
        let json = serde_json::to_string(self)?;
        for (name, text) in [(TRACE, self.trace(trace).write()), (CALIBRATION, json)] {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    pub(crate) fn read(folder: &Path) -> Result<(Self, Trace)> {
        let path = folder.join(CALIBRATION);
        let text = profiler::read_text(&path)?;
        let this: Self = serde_json::from_str(&text).with_context(|| {
            format!("{}: expected a calibration of --calibrate", path.display())
        })?;
        let trace = Trace::read(&folder.join(TRACE))?;
        anyhow::ensure!(
            this.kernels.len() == trace.kernels.len(),
            "{}: does not match the trace in the same folder; calibrate again",
            path.display()
        );
        Ok((this, trace))
    }
}

fn warm_up(synthetic: &mut Synthetic) -> Result<()> {
    const WORK: u64 = 100_000;
    let clock = Clock::process();
    let end_ns = clock.now_ns() + WARM_UP_NS;
    while clock.now_ns() < end_ns {
        synthetic.time_ns(0, WORK, ROW_MAX as u32)?;
    }
    Ok(())
}

fn calibrated(index: usize, kernel: &TraceKernel, synthetic: &mut Synthetic) -> Result<Calibrated> {
    let blocks: u32 = kernel.grid.iter().product();
    let resident = synthetic.confine(index, blocks.div_ceil(kernel.sm_needed.max(1)).max(1))?;
    let target_ns = kernel.duration_ns as f64;
    let count = (ROW_NS / target_ns).ceil().clamp(2.0, ROW_MAX) as u32;
    let mut time_ns = |work: u64| -> Result<f64> {
        let mut best_ns = f64::INFINITY;
        for _ in 0..REPEATS {
            best_ns = best_ns.min(synthetic.time_ns(index, work, count)?);
        }
        Ok(best_ns)
    };
    let (work, measured_ns) = work_for(target_ns, u64::from(blocks), &mut time_ns)?;
    let (name, per_loop, blocks, shared_bytes) = synthetic.shape(index);
    Ok(Calibrated {
        name: name.to_owned(),
        source: kernel.name.clone(),
        work,
        per_loop,
        target_ns: kernel.duration_ns,
        measured_ns: measured_ns.round() as u64,
        is_below_floor: work == 0,
        sm_needed_target: kernel.sm_needed,
        sm_needed: blocks.div_ceil(resident.max(1)),
        shared_bytes,
    })
}

/// The work that lasts `target_ns`, from measurements of other work, and its actual time; `None` if
/// an empty launch takes longer. Work is loops of all blocks together.
fn work_for(
    target_ns: f64,
    blocks: u64,
    time_ns: &mut impl FnMut(u64) -> Result<f64>,
) -> Result<(u64, f64)> {
    let work_max = blocks * u64::from(LOOPS_MAX);
    let bounded = |work: f64| (work.round() as u64).clamp(1, work_max);
    let floor_ns = time_ns(0)?;
    if floor_ns >= target_ns {
        return Ok((0, floor_ns));
    }
    let mut work = blocks;
    let mut took_ns = time_ns(work)?;
    while took_ns < TRUSTED * floor_ns && took_ns < target_ns && work < work_max {
        work = (work * 2).min(work_max);
        took_ns = time_ns(work)?;
    }
    let slope = ((took_ns - floor_ns) / work as f64).max(f64::MIN_POSITIVE);
    let near = (target_ns - floor_ns) / slope;
    let mut points = vec![(0.0, floor_ns), (work as f64, took_ns)];
    for part in POINTS {
        let work = bounded(near * part);
        points.push((work as f64, time_ns(work)?));
    }
    // Near the target the line is straighter than from 0 on.
    let line = fit(&points[2..]).or_else(|| fit(&points));
    let (begin_ns, slope) = line.unwrap_or((floor_ns, slope));
    let chosen = bounded((target_ns - begin_ns) / slope);
    points.push((chosen as f64, time_ns(chosen)?));
    // Where times are too short or too rough for a line, a measured one may be nearer.
    let off = |point: &(f64, f64)| (point.1 - target_ns).abs();
    let nearest = points
        .iter()
        .copied()
        .min_by(|a, b| off(a).total_cmp(&off(b)));
    let (work, took_ns) = nearest.unwrap_or((0.0, floor_ns));
    Ok((work as u64, took_ns))
}

/// The least-squares line through the points: height at 0, and slope; `None` if it does not rise.
fn fit(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread = points
        .iter()
        .map(|point| (point.0 - x).powi(2))
        .sum::<f64>();
    let common = points
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum::<f64>();
    let slope = common / spread;
    (slope.is_finite() && slope > 0.0).then_some((y - slope * x, slope))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_through_points_is_found() {
        let (floor, slope) = fit(&[(10.0, 70.0), (20.0, 120.0), (40.0, 220.0)]).unwrap();
        assert!((floor - 20.0).abs() < 1e-9 && (slope - 5.0).abs() < 1e-9);
        assert_eq!(fit(&[(3.0, 1.0), (3.0, 2.0)]), None);
        assert_eq!(fit(&[(1.0, 2.0), (2.0, 1.0)]), None);
    }

    #[test]
    fn a_kernel_shorter_than_an_empty_launch_gets_no_work() {
        let found = work_for(1_500.0, 80, &mut |_| Ok(2_000.0)).unwrap();
        assert_eq!(found, (0, 2_000.0));
    }

    proptest! {
        /// For any cost of a loop (a few ns at least: its instructions depend on each other), as
        /// long as time grows with work, the chosen work takes its target, up to one loop of one
        /// block and 1 %, though the first loops cost more than the others (caches, waves).
        #[test]
        fn the_work_chosen_takes_the_time_asked_for(
            floor_ns in 500.0f64..6_000.0, loop_ns in 5.0f64..2_000.0, blocks in 1u64..7_000, bend in 0.0f64..0.3,
            target_ns in 7_000.0f64..2e7,
        ) {
            let each_ns = loop_ns / blocks as f64;
            let takes_ns = |work: u64| {
                floor_ns + each_ns * (work as f64 - bend * work.saturating_sub(8 * blocks) as f64)
            };
            let (work, took_ns) = work_for(target_ns, blocks, &mut |work| Ok(takes_ns(work))).unwrap();
            prop_assert_eq!(took_ns, takes_ns(work));
            let error_ns = (took_ns - target_ns).abs();
            prop_assert!(error_ns <= each_ns + 0.01 * target_ns, "{work}: {error_ns}");
        }

        /// Disturbed measurements, each up to a tenth too long, move the result by 15 % at most.
        #[test]
        fn a_disturbance_of_a_tenth_costs_little_more_than_that(target_ns in 20_000.0f64..2e6, seed: u64) {
            let mut state = seed | 1;
            let mut disturbed = |work: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let part = (state >> 33) as f64 / (1u64 << 31) as f64;
                Ok((2_000.0 + 3.0 * work as f64) * (1.0 + 0.1 * part))
            };
            let (work, _) = work_for(target_ns, 80, &mut disturbed).unwrap();
            let really_ns = 2_000.0 + 3.0 * work as f64;
            prop_assert!((really_ns / target_ns - 1.0).abs() < 0.15, "{really_ns} for {target_ns}");
        }
    }
}
