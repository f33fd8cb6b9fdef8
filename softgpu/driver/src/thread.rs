//! State of each thread: its stack of contexts, its default streams, its capture mode.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use abi::types::{CUresult, CUstreamCaptureMode};

use crate::driver;

/// Most contexts on a thread's stack.
const STACK_MAX: usize = 1024;

thread_local! {
    static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static STREAMS: RefCell<ThreadStreams> = RefCell::new(ThreadStreams::default());
    static CAPTURE_MODE: Cell<u32> = const { Cell::new(0) };
    static IN_HOST_CALL: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, Default)]
struct ThreadStreams(HashMap<u64, u64>);

impl Drop for ThreadStreams {
    fn drop(&mut self) {
        if let Some(driver) = driver::live() {
            for stream in self.0.values() {
                // The stream was destroyed if its context was.
                let _ = driver.destroy_stream(*stream);
            }
        }
    }
}

pub(crate) fn current() -> Option<u64> {
    CONTEXTS
        .try_with(|stack| stack.borrow().last().copied())
        .ok()
        .flatten()
}

pub(crate) fn push(context: u64) -> Result<(), CUresult> {
    with_stack(|stack| {
        if stack.len() >= STACK_MAX {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        stack.push(context);
        Ok(())
    })
}

pub(crate) fn pop() -> Result<u64, CUresult> {
    with_stack(|stack| stack.pop().ok_or(CUresult::INVALID_CONTEXT))
}

pub(crate) fn replace(context: Option<u64>) -> Result<(), CUresult> {
    with_stack(|stack| {
        stack.pop();
        stack.extend(context);
        Ok(())
    })
}

/// The thread's default stream of a context; `create` makes it at first use.
pub(crate) fn default_stream(
    context: u64,
    create: impl FnOnce() -> Result<u64, CUresult>,
) -> Result<u64, CUresult> {
    let known = STREAMS.try_with(|streams| streams.borrow().0.get(&context).copied());
    if let Some(stream) = known.map_err(|_| CUresult::DEINITIALIZED)? {
        return Ok(stream);
    }
    let stream = create()?;
    STREAMS
        .try_with(|streams| streams.borrow_mut().0.insert(context, stream))
        .map_err(|_| CUresult::DEINITIALIZED)?;
    Ok(stream)
}

/// Sets what captures may forbid this thread; returns the former mode.
pub(crate) fn exchange_capture_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    CUstreamCaptureMode(CAPTURE_MODE.replace(mode.0))
}

pub(crate) fn capture_mode() -> CUstreamCaptureMode {
    CUstreamCaptureMode(CAPTURE_MODE.get())
}

/// Marks this thread as one that makes host calls, which must not use CUDA.
pub(crate) fn enter_host_calls() {
    IN_HOST_CALL.set(true);
}

pub(crate) fn is_in_host_call() -> bool {
    IN_HOST_CALL.get()
}

fn with_stack<R>(change: impl FnOnce(&mut Vec<u64>) -> Result<R, CUresult>) -> Result<R, CUresult> {
    CONTEXTS
        .try_with(|stack| change(&mut stack.borrow_mut()))
        .map_err(|_| CUresult::DEINITIALIZED)?
}
