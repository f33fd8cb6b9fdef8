//! A job's trace for the engine: kernels resolved for the device once, operations by index.

use policy::{Class, Kernel};
use profiler::{ResourceClass, Trace, TraceKernel};
use softgpu::{CopyDirection, Device, KernelShape, Op};

use crate::error::Error;
use crate::job::Job;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Launch {
        kernel: u32,
        place: u32,
    },
    Copy {
        direction: CopyDirection,
        bytes: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) shape: KernelShape,
    pub(crate) kernel: Kernel,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Requests that begin from here on use it, ns after the start of the run.
    pub(crate) start_ns: u64,
    /// Kernels of the job's earlier programs, which precede its own.
    pub(crate) kernels_before: u32,
    pub(crate) kernels: Vec<Resolved>,
    pub(crate) steps: Vec<Step>,
    pub(crate) launches: u64,
}

impl Program {
    pub(crate) fn tell(&mut self, told_ns: &[(usize, u64)]) {
        for &(kernel, ns) in told_ns {
            let own = kernel.checked_sub(self.kernels_before as usize);
            if let Some(resolved) = own.and_then(|own| self.kernels.get_mut(own)) {
                resolved.kernel.expected_ns = ns;
            }
        }
    }

    /// In ns of `sms` SMs.
    pub(crate) fn sm_ns(&self, sms: u32) -> f64 {
        let launches = self.steps.iter().filter_map(|step| match step {
            Step::Launch { kernel, .. } => self.kernels.get(*kernel as usize),
            Step::Copy { .. } => None,
        });
        let each = launches.map(|of| {
            let share = f64::from(of.kernel.sm_needed.min(sms)) / f64::from(sms.max(1));
            of.kernel.expected_ns as f64 * share
        });
        each.sum()
    }

    /// The job's program on `device`, before its phases. Errors: the trace has no launch, names
    /// missing kernels, is another device's, or has a kernel that the device cannot run.
    pub(crate) fn new(job: &Job, device: &Device) -> Result<Self, Error> {
        Self::of_trace(job, &job.trace, device)
    }

    /// The job's programs on `device`, each with its trace: the first, those of its phases by their
    /// start, those of its batches but the first. Errors as of [`Program::new`].
    pub(crate) fn all<'j>(job: &'j Job, device: &Device) -> Result<Vec<(&'j Trace, Self)>, Error> {
        let mut programs = vec![(&*job.trace, Self::new(job, device)?)];
        let mut kernels_before = job.trace.kernels.len();
        let phases = job.trace_phases.iter();
        let phases =
            phases.map(|phase| (job.start_ns.saturating_add(phase.start_ns), &phase.trace));
        let batches = job.batches.iter().skip(1).map(|batch| (0, &batch.trace));
        for (start_ns, trace) in phases.chain(batches) {
            let program = Self {
                start_ns,
                kernels_before: u32::try_from(kernels_before).unwrap_or(u32::MAX),
                ..Self::of_trace(job, trace, device)?
            };
            kernels_before += trace.kernels.len();
            programs.push((trace, program));
        }
        Ok(programs)
    }

    fn of_trace(job: &Job, trace: &Trace, device: &Device) -> Result<Self, Error> {
        check_trace(job, trace, device)?;
        let mut steps = Vec::with_capacity(trace.launches.len() + 2);
        let copy = |direction, bytes| (bytes > 0).then_some(Step::Copy { direction, bytes });
        steps.extend(copy(
            CopyDirection::HostToDevice,
            job.copies.to_device_bytes,
        ));
        steps.extend(
            (0..)
                .zip(&trace.launches)
                .map(|(place, &kernel)| Step::Launch { kernel, place }),
        );
        steps.extend(copy(CopyDirection::DeviceToHost, job.copies.to_host_bytes));
        let kernels = trace.kernels.iter().map(|kernel| Resolved {
            shape: shape_of(kernel),
            kernel: kernel_of(kernel),
        });
        Ok(Self {
            start_ns: 0,
            kernels_before: 0,
            kernels: kernels.collect(),
            steps,
            launches: trace.launches.len() as u64,
        })
    }

    pub(crate) fn op(&self, index: usize) -> Op {
        match self.steps[index] {
            Step::Launch { kernel, .. } => Op::Kernel {
                shape: self.kernels[kernel as usize].shape,
                priority: None,
            },
            Step::Copy { direction, bytes } => Op::Copy { direction, bytes },
        }
    }
}

fn check_trace(job: &Job, trace: &Trace, device: &Device) -> Result<(), Error> {
    let name = || job.name.clone();
    if trace.launches.is_empty() {
        return Err(Error::EmptyTrace { job: name() });
    }
    let kernels = trace.kernels.len();
    let unknown = trace.launches.iter().position(|&k| k as usize >= kernels);
    if let Some(launch) = unknown {
        return Err(Error::UnknownKernel {
            job: name(),
            launch,
            kernel: trace.launches[launch],
            kernels,
        });
    }
    if !trace.device.eq_ignore_ascii_case(&device.name) {
        return Err(Error::OtherDevice {
            job: name(),
            measured: trace.device.clone(),
            device: device.name.clone(),
        });
    }
    for kernel in &trace.kernels {
        shape_of(kernel)
            .check(device)
            .map_err(|source| Error::Kernel {
                job: name(),
                kernel: kernel.name.clone(),
                device: device.name.clone(),
                source: Box::new(source),
            })?;
    }
    let ns = trace.duration_ns_sum();
    if ns > REQUEST_NS_MAX {
        return Err(Error::RequestTooLong { job: name(), ns });
    }
    Ok(())
}

pub(crate) fn shape_of(kernel: &TraceKernel) -> KernelShape {
    let product = |sides: &[u32; 3]| {
        let sides = sides.iter().map(|&side| u64::from(side));
        sides.fold(1, u64::saturating_mul)
    };
    KernelShape {
        grid_blocks: product(&kernel.grid),
        threads_per_block: u32::try_from(product(&kernel.block)).unwrap_or(u32::MAX),
        registers_per_thread: kernel.registers,
        shared_bytes_per_block: kernel.shared_bytes,
        block_ns: kernel.block_ns,
        compute_demand: f64::from(kernel.compute_demand),
        bandwidth_demand: f64::from(kernel.bandwidth_demand),
    }
}

fn kernel_of(kernel: &TraceKernel) -> Kernel {
    Kernel {
        class: class_of(kernel.class),
        sm_needed: kernel.sm_needed,
        expected_ns: kernel.duration_ns.max(1),
    }
}

pub(crate) fn class_of(class: ResourceClass) -> Class {
    match class {
        ResourceClass::Compute => Class::Compute,
        ResourceClass::Memory => Class::Memory,
        ResourceClass::Unknown => Class::Unknown,
    }
}

const REQUEST_NS_MAX: u64 = 86_400_000_000_000;
