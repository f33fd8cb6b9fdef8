//! Times of kernels for the stand-in CUPTI (`softgpu/cupti`), which calls functions that NVIDIA's
//! drivers do not have (`crate::exports`). The server reports each kernel's stream and times, and
//! kernels of a stream complete in the order in which they were put. The driver therefore remembers
//! what it has put, by stream, and joins the two. If two threads launch into one stream at the same
//! instant, the kernels may be confused.

use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use abi::types::CUresult;
use parking_lot::Mutex;
use softgpu::{KernelRecord, KernelShape};

use crate::driver::Driver;
use crate::link::{Link, stream_of};
use crate::tables::Stream;

#[derive(Debug, Default)]
pub(crate) struct Trace {
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    put: HashMap<u32, VecDeque<Traced>>,
    /// Completed kernels taken of each device.
    taken: Vec<u64>,
    calls: u32,
    names: HashMap<Vec<u8>, &'static CStr>,
}

#[derive(Clone, Debug)]
pub(crate) struct Traced {
    name: Vec<u8>,
    grid: [u32; 3],
    block: [u32; 3],
    registers: u32,
    static_shared_bytes: u32,
    dynamic_shared_bytes: u32,
    is_in_graph: bool,
    call: u32,
}

impl Traced {
    pub(crate) fn new(
        name: &CStr,
        (grid, block): ([u32; 3], [u32; 3]),
        shape: &KernelShape,
        dynamic_shared_bytes: u32,
    ) -> Self {
        Self {
            name: name.to_bytes().to_owned(),
            grid,
            block,
            registers: shape.registers_per_thread,
            static_shared_bytes: shape
                .shared_bytes_per_block
                .saturating_sub(dynamic_shared_bytes),
            dynamic_shared_bytes,
            is_in_graph: false,
            call: 0,
        }
    }

    /// The same launch, as a node of a graph.
    pub(crate) fn in_graph(self) -> Self {
        Self {
            is_in_graph: true,
            ..self
        }
    }
}

impl Driver {
    /// Enables the trace. To be called before the first launch: completions of earlier work in
    /// flight would be attributed to later launches.
    pub(crate) fn begin_trace(&self) -> Result<(), CUresult> {
        let Link::Live(live) = &self.link else {
            return Err(CUresult::NOT_SUPPORTED);
        };
        live.want_kernel_times();
        self.trace.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn is_tracing(&self) -> bool {
        self.trace.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn note_put(&self, stream: &Stream, kernels: impl IntoIterator<Item = Traced>) {
        let mut state = self.trace.state.lock();
        state.calls += 1;
        let call = state.calls;
        let put = state.put.entry(stream.slot).or_default();
        put.extend(kernels.into_iter().map(|traced| Traced { call, ..traced }));
    }

    /// The next completed kernel, of any device; CUDA_ERROR_NOT_READY if there is none.
    pub(crate) fn next_kernel(&self) -> Result<KernelRecord, CUresult> {
        let Link::Live(live) = &self.link else {
            return Err(CUresult::NOT_SUPPORTED);
        };
        let mut state = self.trace.state.lock();
        let state = &mut *state;
        state.taken.resize(self.gpus.len(), 0);
        for (device, taken) in state.taken.iter_mut().enumerate() {
            let Some((slot, started_ns, ended_ns)) = live.kernel_time(device, *taken) else {
                continue;
            };
            let stream = stream_of(device, slot);
            // A kernel complete before its launch returns is reported once the launch is recorded.
            let put = state.put.get_mut(&stream);
            let Some(traced) = put.and_then(VecDeque::pop_front) else {
                continue;
            };
            *taken += 1;
            let kept = state.names.get(&traced.name).copied();
            let name = kept.unwrap_or_else(|| {
                let name = std::ffi::CString::new(traced.name.clone()).unwrap_or_default();
                // Leaks once per kernel name.
                let name: &'static CStr = Box::leak(name.into_boxed_c_str());
                state.names.insert(traced.name.clone(), name);
                name
            });
            return Ok(KernelRecord {
                name: name.as_ptr(),
                started_ns,
                ended_ns,
                device: device as u32,
                stream,
                call: traced.call,
                registers: traced.registers,
                grid: traced.grid,
                block: traced.block,
                static_shared_bytes: traced.static_shared_bytes,
                dynamic_shared_bytes: traced.dynamic_shared_bytes,
                is_in_graph: traced.is_in_graph.into(),
                pad: 0,
            });
        }
        Err(CUresult::NOT_READY)
    }
}
