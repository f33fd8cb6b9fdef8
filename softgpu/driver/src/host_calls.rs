//! Host functions in stream order, on a thread of the driver. The server reports when a call is due
//! and holds the stream until the driver has made it. One thread makes all calls of a device in
//! sequence, as CUDA may. The functions must not call CUDA.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::thread::Builder;

use abi::types::{CUhostFn, CUresult, CUstream, CUstreamCallback};
use parking_lot::Mutex;
use softgpu::wire::{Command, Work};

use crate::cost::SUBMIT_HOST_NS;
use crate::driver::{self, Driver};
use crate::graphs::Kind;
use crate::link::{Link, first_call_of, first_stream_of};
use crate::raw::Bytes;
use crate::tables::Stream;
use crate::thread;

const CALLS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    function: CUhostFn,
    data: usize,
}

impl HostFunction {
    pub(crate) fn new(function: CUhostFn, data: *mut std::ffi::c_void) -> Self {
        Self {
            function,
            data: data.expose_provenance(),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.function.is_none()
    }

    pub(crate) fn params(&self) -> abi::types::CUDA_HOST_NODE_PARAMS {
        abi::types::CUDA_HOST_NODE_PARAMS {
            function: self.function,
            user_data: std::ptr::with_exposed_provenance_mut(self.data),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HostWork {
    /// The application's function.
    Function(HostFunction),
    /// As above, with the stream and its error as arguments.
    Callback {
        function: CUstreamCallback,
        stream: u64,
        context: u64,
        data: usize,
    },
    /// Copies bytes of pageable memory to the host arena.
    Fill { offset: u64, from: u64, bytes: u64 },
    /// Copies bytes of the host arena to pageable memory.
    Empty { offset: u64, to: u64, bytes: u64 },
    /// Moves bytes between addresses of the process.
    Move { to: u64, from: u64, bytes: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct HostCalls {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: HashSet<usize>,
    /// Number of calls so far, over all devices.
    numbered: u64,
    expected: HashMap<u64, HostWork>,
    /// Work in no stream's order.
    soon: VecDeque<HostWork>,
}

impl HostCalls {
    /// Registers calls that will be due on a device; returns the number of the first.
    pub(crate) fn expect(
        &self,
        driver: &'static Driver,
        device: usize,
        calls: &[HostWork],
    ) -> Result<u64, CUresult> {
        let mut state = self.state.lock();
        if calls.is_empty() {
            return Ok(0);
        }
        if state.expected.len() + calls.len() > CALLS_MAX {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        state.start(driver, device)?;
        let first = first_call_of(device) + state.numbered;
        state.numbered += calls.len() as u64;
        state.expected.extend((first..).zip(calls.iter().copied()));
        Ok(first)
    }

    /// Queues work for the first device's thread.
    pub(crate) fn run_soon(&self, driver: &'static Driver, work: HostWork) -> Result<(), CUresult> {
        {
            let mut state = self.state.lock();
            state.start(driver, 0)?;
            state.soon.push_back(work);
        }
        if let Link::Live(live) = &driver.link {
            live.wake_waiters(0);
        }
        Ok(())
    }
}

impl State {
    fn start(&mut self, driver: &'static Driver, device: usize) -> Result<(), CUresult> {
        if self.running.contains(&device) {
            return Ok(());
        }
        let Link::Live(live) = &driver.link else {
            return Err(CUresult::NOT_SUPPORTED);
        };
        let builder = Builder::new().name("softgpu-host".into());
        let started: io::Result<_> = live.spawn(builder, move || run(driver, device));
        started.map_err(|_| CUresult::OPERATING_SYSTEM)?;
        self.running.insert(device);
        Ok(())
    }
}

impl Driver {
    /// Calls a function when the stream reaches it.
    pub(crate) fn launch_host_function(
        &'static self,
        stream: &Stream,
        function: HostFunction,
    ) -> Result<(), CUresult> {
        if function.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.try_capture(stream, |_| Ok(Kind::Host(function)))? {
            return Ok(());
        }
        self.call_on(stream, HostWork::Function(function))
    }

    /// As above, for a function that takes the stream; it cannot be captured.
    pub(crate) fn add_callback(
        &'static self,
        stream: &Stream,
        handle: CUstream,
        function: CUstreamCallback,
        data: *mut std::ffi::c_void,
    ) -> Result<(), CUresult> {
        if function.is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        self.check_submit(stream)?;
        let work = HostWork::Callback {
            function,
            stream: handle.0.addr() as u64,
            context: stream.context,
            data: data.expose_provenance(),
        };
        self.call_on(stream, work)
    }

    fn call_on(&'static self, stream: &Stream, work: HostWork) -> Result<(), CUresult> {
        let device = self.context(stream.context)?.device;
        let call = self.host_calls.expect(self, device, &[work])?;
        self.submit(stream, Work::Host { call })?;
        self.link.spend(SUBMIT_HOST_NS);
        Ok(())
    }

    fn make(&self, work: HostWork) {
        let Link::Live(live) = &self.link else { return };
        // The application is responsible for the validity of its pointers.
        let _ = match work {
            HostWork::Function(HostFunction { function, data }) => {
                if let Some(function) = function {
                    function(std::ptr::with_exposed_provenance_mut(data));
                }
                Ok(())
            }
            HostWork::Callback {
                function,
                stream,
                context,
                data,
            } => {
                let status = self.check_context(context).err();
                let stream = CUstream(std::ptr::without_provenance_mut(stream as usize));
                let data = std::ptr::with_exposed_provenance_mut(data);
                if let Some(function) = function {
                    function(stream, status.unwrap_or(CUresult::SUCCESS), data);
                }
                Ok(())
            }
            HostWork::Fill {
                offset,
                from,
                bytes,
            } => Bytes::at(from)
                .with(bytes as usize, |bytes| live.host().write(offset, bytes))
                .map(drop),
            HostWork::Empty { offset, to, bytes } => Bytes::at(to)
                .with_mut(bytes as usize, |bytes| live.host().read(offset, bytes))
                .map(drop),
            HostWork::Move { to, from, bytes } => {
                Bytes::at(to).move_from(Bytes::at(from), bytes as usize)
            }
        };
    }
}

/// The thread: makes calls as they become due, for the life of the process.
fn run(driver: &'static Driver, device: usize) {
    thread::enter_host_calls();
    let Link::Live(live) = &driver.link else {
        return;
    };
    let mut taken = 0;
    while driver::live().is_some() {
        let seen = live.read_progress(device);
        let mut is_idle = true;
        let soon = driver.host_calls.state.lock().soon.pop_front();
        if let Some(work) = soon {
            driver.make(work);
            is_idle = false;
        }
        if let Some(call) = live.host_call(device, taken) {
            taken += 1;
            let work = driver.host_calls.state.lock().expected.remove(&call);
            if let Some(work) = work {
                driver.make(work);
            }
            // If the server has ended no stream waits for it.
            let _ = driver.put(first_stream_of(device), &Command::HostDone { call });
            is_idle = false;
        }
        if is_idle {
            live.wait_for_progress(device, seen);
        }
    }
}
