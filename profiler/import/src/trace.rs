//! Chrome traces of PyTorch's profiler (Kineto). A trace is one JSON object with a list of events,
//! or the list alone; of 35 MB or 1 GB, most of it stacks of Python. It is read as a stream, and
//! unneeded events are dropped at once. Kept are kernels (`cat` `kernel`, in 2021 `Kernel`), the
//! calls that launched them (`correlation`), annotations of the program, and, where shapes were
//! recorded, the work of a kernel's operator (`External id`; [`work`]): matrix products are calls
//! of cuBLAS, which distinguish their kernels. Times are microseconds, whole until 2.2 and with
//! decimals since. [`lenient`] repairs writers' broken JSON.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;

use profiler::Operator;

use crate::Context;
use crate::detect::Format;
use crate::error::{Error, counted, reason};
use crate::gpu::Gpu;
use crate::input::Input;
use crate::limits::RANGES_MAX;
use crate::name::Names;
use crate::source::{Call, Kernel, Launch, SharedMemory, Source, SourceBuilder, Work};

mod event;
mod lenient;
pub(crate) mod scrub;
mod walk;
mod work;

use event::{Device, Event};
use lenient::Lenient;
use walk::{Visit, Walked, walk};

pub(crate) fn read(path: &Path, context: &mut Context<'_>) -> Result<Source, Error> {
    let input = Input::open(path, context.limits.bytes_max)?;
    let mut reading = Reading {
        path,
        builder: SourceBuilder::new(path, Format::Json),
        gpus: HashMap::new(),
        ids: Vec::new(),
        calls: HashMap::new(),
        operators: HashMap::new(),
        works: Vec::new(),
        places: HashMap::new(),
        devices: Vec::new(),
        counter_ranges: 0,
        api_calls: 0,
        foreign: None,
    };
    let mut lenient = Lenient::new(input);
    let mut walked = walk(&mut lenient, &mut reading, context);
    if let Some(failure) = walked.failure.take() {
        return Err(failure);
    }
    if let Some(error) = walked.broken.take() {
        reading.handle_broken(error, &walked, &lenient)?;
    }
    reading.finish(&walked)
}

/// The id for a missing one; numbers in JSON are smaller.
const NO_ID: u64 = u64::MAX;

type WorkKey = (&'static str, u64, u64, bool, Option<Arc<Operator>>);

struct Reading<'a> {
    path: &'a Path,
    builder: SourceBuilder<'a>,
    gpus: HashMap<i64, u16>,
    /// Correlation and external id of each launch; [`NO_ID`] where missing.
    ids: Vec<(u64, u64)>,
    calls: HashMap<u64, Call>,
    /// Operators' work, by external id: places in `works`, which has no duplicates.
    operators: HashMap<u64, u32>,
    works: Vec<Arc<Work>>,
    places: HashMap<WorkKey, u32>,
    devices: Vec<Device>,
    counter_ranges: u64,
    api_calls: u64,
    foreign: Option<String>,
}

impl Visit for Reading<'_> {
    fn event(&mut self, event: Event) -> Result<(), Error> {
        if *event.ph != "X" {
            return Ok(());
        }
        match event.cat.as_str() {
            "kernel" | "Kernel" => self.kernel(event),
            "cuda_runtime" | "cuda_driver" | "Runtime" | "runtime" => {
                self.api_calls += 1;
                let call = event.call();
                if let (Some(correlation), Some(call)) = (event.args.correlation.whole(), call)
                    && event.name.contains("aunch")
                {
                    self.bounded(self.calls.len())?;
                    self.calls.insert(correlation, call);
                }
                Ok(())
            }
            "user_annotation" => self.annotation(&event),
            "cpu_op" | "Operator" if event.name.starts_with("ProfilerStep#") => {
                self.annotation(&event)
            }
            "cpu_op" | "Operator" => {
                if let Some(id) = event.args.external_id.whole()
                    && let Some(work) = work::of(&event.name, &event.args)
                {
                    self.bounded(self.operators.len())?;
                    self.operate(id, work);
                }
                Ok(())
            }
            "cuda_profiler_range" => {
                self.counter_ranges += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn devices(&mut self, devices: Vec<Device>) {
        self.devices = devices;
    }
}

impl Reading<'_> {
    fn kernel(&mut self, event: Event) -> Result<(), Error> {
        let args = &event.args;
        if args.kind.contains("Dispatch") && self.foreign.is_none() {
            self.foreign = Some("an AMD GPU (its kernels are dispatched by ROCm)".to_owned());
        }
        let Some(names) = Names::new(&event.name) else {
            return Ok(());
        };
        let small = |number: event::Number| number.whole().and_then(|n| u32::try_from(n).ok());
        let kernel = self.builder.kernel(Kernel {
            names,
            grid: args.grid.triple(),
            block: args.block.triple(),
            registers: small(args.registers),
            shared: SharedMemory {
                both_bytes: small(args.shared_memory),
                ..SharedMemory::default()
            },
            cluster_blocks: None,
            operator: None,
        })?;
        let device = args.device.nanoseconds(1).unwrap_or(0);
        let gpu = match self.gpus.get(&device) {
            Some(&gpu) => gpu,
            None => {
                let gpu = self.builder.gpu(Gpu::default())?;
                self.gpus.insert(device, gpu);
                gpu
            }
        };
        let duration = event.dur.nanoseconds(1000);
        self.builder.launch(Launch {
            kernel,
            gpu,
            stream: small(args.stream),
            start_ns: event.ts.nanoseconds(1000),
            duration_ns: duration.and_then(|duration| u64::try_from(duration).ok()),
            call: None,
            counters: None,
            work: None,
        })?;
        let id = |number: event::Number| number.whole().unwrap_or(NO_ID);
        self.ids.push((id(args.correlation), id(args.external_id)));
        Ok(())
    }

    fn operate(&mut self, id: u64, work: Work) {
        let key = (
            work.operator,
            work.flop.to_bits(),
            work.bytes.to_bits(),
            work.is_tensor,
            work.call.clone(),
        );
        // No more works than operators, of which there are less than 2³².
        let next = self.works.len() as u32;
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.works.push(Arc::new(work));
        }
        self.operators.insert(id, place);
    }

    fn annotation(&mut self, event: &Event) -> Result<(), Error> {
        let (Some(call), Some(duration)) = (event.call(), event.dur.nanoseconds(1000)) else {
            return Ok(());
        };
        match crate::name::clean(&event.name) {
            Some(name) => {
                let end_ns = call.at_ns.saturating_add(duration);
                self.builder.range(&name, call.thread, call.at_ns, end_ns)
            }
            None => Ok(()),
        }
    }

    fn bounded(&self, count: usize) -> Result<(), Error> {
        if count < RANGES_MAX {
            return Ok(());
        }
        Err(Error::too_many(self.path, "calls or operators", RANGES_MAX))
    }

    /// An open list, or no JSON. A bare list may be open ("Trace Event Format": after a crash).
    fn handle_broken(
        &mut self,
        error: serde_json::Error,
        walked: &Walked,
        lenient: &Lenient,
    ) -> Result<(), Error> {
        if error.is_io() {
            return Err(lenient.error(error.into()));
        }
        if error.is_eof() && walked.is_bare_list && !self.builder.is_empty() {
            self.builder.notice(
                "the list of events is not closed, so the last events may be missing: the \
                 program ended while writing the trace",
            );
            return Ok(());
        }
        Err(Error::damaged(
            self.path,
            format!("after {} events: {}", walked.events, reason(&error)),
            "stop the profiler (leave its `with` block) before the program exits, and copy the \
             whole file",
        ))
    }

    fn finish(mut self, walked: &Walked) -> Result<Source, Error> {
        let path = self.path;
        let is_foreign = |name: &&str| {
            ["AMD", "Radeon", "Intel"]
                .iter()
                .any(|word| name.contains(word))
        };
        let named = self
            .devices
            .iter()
            .map(|device| device.name.as_str())
            .find(is_foreign);
        if let Some(gpu) = named.map(str::to_owned).or(self.foreign.take()) {
            let path = path.to_owned();
            return Err(Error::ForeignGpu { path, gpu });
        }
        if self.builder.is_empty() {
            return Err(self.nothing(walked));
        }
        for device in &self.devices {
            if let Some(&gpu) = device.id.nanoseconds(1).and_then(|id| self.gpus.get(&id)) {
                self.builder.complete_gpu(gpu, device.gpu());
            }
        }
        for (launch, (correlation, external)) in
            self.builder.launches_mut().iter_mut().zip(&self.ids)
        {
            launch.call = self.calls.get(correlation).copied();
            let place = self.operators.get(external);
            launch.work = place.and_then(|&place| self.works.get(place as usize).cloned());
        }
        self.tell_operators()?;
        Ok(self.builder.finish())
    }

    fn tell_operators(&mut self) -> Result<(), Error> {
        let of = |launch: &Launch| launch.work.as_ref()?.call.clone();
        let launches = self.builder.launches_mut().iter().enumerate();
        let told: Vec<(usize, u32, Arc<Operator>)> = launches
            .filter_map(|(at, launch)| Some((at, launch.kernel, of(launch)?)))
            .collect();
        let mut known = HashMap::new();
        for (at, kernel, operator) in told {
            let place = match known.entry((kernel, operator)) {
                Entry::Occupied(place) => *place.get(),
                Entry::Vacant(place) => {
                    let index = self.builder.kernel_in(kernel, &place.key().1)?;
                    *place.insert(index)
                }
            };
            if let Some(launch) = self.builder.launches_mut().get_mut(at) {
                launch.kernel = place;
            }
        }
        Ok(())
    }

    fn nothing(&self, walked: &Walked) -> Error {
        let path = self.path.to_owned();
        if !walked.has_list {
            return Error::unknown_format(&path, "JSON without `traceEvents`");
        }
        let (found, remedy) = if self.counter_ranges > 0 {
            (
                format!(
                    "{} of CUPTI's counters instead of kernels",
                    counted(self.counter_ranges, "range", "ranges")
                ),
                "profile without `experimental_config=_ExperimentalConfig(profiler_metrics=…)`",
            )
        } else if self.api_calls > 0 {
            (
                format!(
                    "{} of the CUDA API, but no activity of the GPU",
                    counted(self.api_calls, "call", "calls")
                ),
                "another profiler may have held CUPTI; profile again without it",
            )
        } else {
            (
                format!(
                    "{}, none of CUDA",
                    counted(walked.events, "event", "events")
                ),
                "profile with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`",
            )
        };
        let remedy = remedy.to_owned();
        Error::no_kernels(&path, found, remedy)
    }
}
