//! The stand-in's C functions of `cublasLt.h`.

#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint, c_void};

use abi::types::CUstream;
use blas::raw::{Bytes, Out, Room};
use blas::{Status, exports, launch, refuse_each};

use crate::descriptors::{Descriptor, Handle, Layout, Operation, product};

/// `cublasLtGetVersion`'s result: cuBLAS of the CUDA headers used, 13.2 or 12.8.
const VERSION: usize = if cfg!(cuda12) { 120_804 } else { 130_300 };

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeuristicResult {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<HeuristicResult>() == 96);

/// `cublasLtGetVersion`.
// SAFETY: as of the others.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cublasLtGetVersion() -> usize {
    VERSION
}

exports! {
    cublasLtMatmulDescCreate(descriptor: Out<Handle>, compute: c_uint, _scale_type: c_uint) {
        let operation = Operation { compute, transposed: [false; 2] };
        descriptor.set(Handle::create(Descriptor::Operation(operation)))
    };
    cublasLtMatmulDescDestroy(descriptor: Handle) descriptor.destroy();
    cublasLtMatmulDescSetAttribute(descriptor: Handle, attribute: c_uint, bytes: Bytes, length: usize)
        descriptor.set(attribute, &bytes, length);

    cublasLtMatmulDescGetAttribute(
        descriptor: Handle, attribute: c_uint, room: Room, length: usize, written: Out<usize>
    ) room.set(&descriptor.get_operation(attribute)?, length, &written);

    cublasLtMatrixLayoutCreate(layout: Out<Handle>, data_type: c_uint, rows: u64, columns: u64, _ld: i64) {
        let new = Layout { data_type, rows, columns, batch: 1 };
        layout.set(Handle::create(Descriptor::Layout(new)))
    };
    cublasLtMatrixLayoutDestroy(layout: Handle) layout.destroy();
    cublasLtMatrixLayoutSetAttribute(layout: Handle, attribute: c_uint, bytes: Bytes, length: usize)
        layout.set(attribute, &bytes, length);

    cublasLtMatrixLayoutGetAttribute(
        layout: Handle, attribute: c_uint, room: Room, length: usize, written: Out<usize>
    ) room.set(&layout.get_layout(attribute)?, length, &written);

    cublasLtMatmulPreferenceCreate(preference: Out<Handle>)
        preference.set(Handle::create(Descriptor::Preference));
    cublasLtMatmulPreferenceDestroy(preference: Handle) preference.destroy();
    cublasLtMatmulPreferenceSetAttribute(preference: Handle, attribute: c_uint, bytes: Bytes, length: usize)
        preference.set(attribute, &bytes, length);

    cublasLtMatmulAlgoGetHeuristic(
        _light: *mut c_void, operation: Handle, a: Handle, _b: Handle, _c: Handle, d: Handle, _preference: Handle,
        requested: c_int, results: Out<HeuristicResult>, count: Out<c_int>
    ) {
        // Refuses what the launch would refuse.
        product(operation, a, d)?;
        if requested < 1 {
            return Err(Status::INVALID_VALUE);
        }
        results.set(HeuristicResult {
            algorithm: [0; 8],
            workspace_bytes: 0,
            state: Status::SUCCESS,
            waves: 1.0,
            reserved: [0; 4],
        })?;
        count.set(1)
    };

    cublasLtMatmul(
        _light: *mut c_void, operation: Handle, _alpha: *const c_void, _a: *const c_void, a_layout: Handle,
        _b: *const c_void, _b_layout: Handle, _beta: *const c_void, _c: *const c_void, _c_layout: Handle,
        _d: *mut c_void, d_layout: Handle, _algorithm: *const c_void, _workspace: *mut c_void,
        _workspace_bytes: usize, stream: CUstream
    ) launch(&product(operation, a_layout, d_layout)?, stream);
}

refuse_each! {
    cublasLtMatmulAlgoCheck cublasLtMatmulAlgoConfigGetAttribute cublasLtMatmulAlgoConfigSetAttribute
    cublasLtMatmulAlgoInit
}
