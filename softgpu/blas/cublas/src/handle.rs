//! Handles: numbers in a table, never dereferenced as addresses.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::LazyLock;

use abi::types::CUstream;
use blas::Status;
use parking_lot::Mutex;

#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(usize);

#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// The stream as a number, so that threads can share it.
    stream: usize,
    pub(crate) math_mode: c_uint,
    pub(crate) pointer_mode: c_uint,
}

/// `CUBLAS_POINTER_MODE_DEVICE`.
const POINTER_MODE_DEVICE: c_uint = 1;
/// `CUBLAS_TF32_TENSOR_OP_MATH`.
const TF32_MATH: c_uint = 3;
/// Distance of handles, so that they look like the addresses that they are in NVIDIA's library.
const STEP: usize = 256;

#[derive(Debug, Default)]
struct Handles {
    states: HashMap<Handle, State>,
    last: usize,
}

static HANDLES: LazyLock<Mutex<Handles>> = LazyLock::new(Mutex::default);

impl Handle {
    pub(crate) fn create() -> Self {
        let mut handles = HANDLES.lock();
        handles.last += STEP;
        let handle = Self(handles.last);
        let state = State {
            stream: 0,
            math_mode: 0,
            pointer_mode: 0,
        };
        handles.states.insert(handle, state);
        handle
    }

    pub(crate) fn destroy(self) -> Result<(), Status> {
        let removed = HANDLES.lock().states.remove(&self);
        removed.map(drop).ok_or(Status::NOT_INITIALIZED)
    }

    pub(crate) fn state(self) -> Result<State, Status> {
        let known = HANDLES.lock().states.get(&self).copied();
        known.ok_or(Status::NOT_INITIALIZED)
    }

    pub(crate) fn change(self, change: impl FnOnce(&mut State)) -> Result<(), Status> {
        let mut handles = HANDLES.lock();
        change(
            handles
                .states
                .get_mut(&self)
                .ok_or(Status::NOT_INITIALIZED)?,
        );
        Ok(())
    }
}

impl State {
    pub(crate) fn stream(&self) -> CUstream {
        CUstream(std::ptr::with_exposed_provenance_mut(self.stream))
    }

    pub(crate) fn set_stream(&mut self, stream: CUstream) {
        self.stream = stream.0.expose_provenance();
    }

    pub(crate) fn is_tf32(&self) -> bool {
        self.math_mode & 0xf == TF32_MATH
    }

    /// Scalar results must go to the device; the stand-in has none to return to the host.
    pub(crate) fn check_result_stays_on_device(&self) -> Result<(), Status> {
        match self.pointer_mode {
            POINTER_MODE_DEVICE => Ok(()),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }
}
