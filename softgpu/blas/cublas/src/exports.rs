//! The stand-in's C functions of `cublas_api.h`.

use std::ffi::{c_int, c_longlong, c_uint, c_void};

use abi::types::CUstream;
use blas::raw::Out;
use blas::{Number, Status, exports, has_context, refuse_each};

use crate::handle::Handle;
use crate::numbers::{ComputeType, DataType, Operation};

exports! {
    cublasCreate_v2(handle: Out<Handle>) {
        has_context()?;
        handle.set(Handle::create())
    };

    cublasDestroy_v2(handle: Handle) handle.destroy();

    // A change of the stream resets the workspace; there is none here.
    cublasSetStream_v2(handle: Handle, stream: CUstream) handle.change(|state| state.set_stream(stream));
    cublasGetStream_v2(handle: Handle, stream: Out<CUstream>) stream.set(handle.state()?.stream());
    cublasSetWorkspace_v2(handle: Handle, _workspace: *mut c_void, _bytes: usize) handle.state().map(drop);

    cublasGetMathMode(handle: Handle, mode: Out<c_uint>) mode.set(handle.state()?.math_mode);
    cublasSetMathMode(handle: Handle, mode: c_uint) handle.change(|state| state.math_mode = mode);
    cublasGetPointerMode_v2(handle: Handle, mode: Out<c_uint>) mode.set(handle.state()?.pointer_mode);
    cublasSetPointerMode_v2(handle: Handle, mode: c_uint) match mode {
        0 | 1 => handle.change(|state| state.pointer_mode = mode),
        _ => Err(Status::INVALID_VALUE),
    };

    // 0: all of them, which is what a kernel here uses.
    cublasSetSmCountTarget(handle: Handle, count: c_int) match count {
        0 => handle.state().map(drop),
        _ => Err(Status::NOT_SUPPORTED),
    };

    cublasSgemmEx(
        handle: Handle, transa: Operation, transb: Operation, m: c_int, n: c_int, k: c_int, _alpha: *const f32,
        _a: *const c_void, a_type: DataType, _lda: c_int, _b: *const c_void, _b_type: DataType, _ldb: c_int,
        _beta: *const f32, _c: *mut c_void, _c_type: DataType, _ldc: c_int
    ) handle.multiply("gemm", [transa, transb], [m, n, k], 1, a_type.number(ComputeType::F32)?);

    cublasGemmEx(
        handle: Handle, transa: Operation, transb: Operation, m: c_int, n: c_int, k: c_int, _alpha: *const c_void,
        _a: *const c_void, a_type: DataType, _lda: c_int, _b: *const c_void, _b_type: DataType, _ldb: c_int,
        _beta: *const c_void, _c: *mut c_void, _c_type: DataType, _ldc: c_int, compute: ComputeType,
        _algorithm: c_int
    ) handle.multiply("gemm", [transa, transb], [m, n, k], 1, a_type.number(compute)?);

    cublasGemmStridedBatchedEx(
        handle: Handle, transa: Operation, transb: Operation, m: c_int, n: c_int, k: c_int, _alpha: *const c_void,
        _a: *const c_void, a_type: DataType, _lda: c_int, _stride_a: c_longlong, _b: *const c_void,
        _b_type: DataType, _ldb: c_int, _stride_b: c_longlong, _beta: *const c_void, _c: *mut c_void,
        _c_type: DataType, _ldc: c_int, _stride_c: c_longlong, batch: c_int, compute: ComputeType,
        _algorithm: c_int
    ) handle.multiply("gemm_batched", [transa, transb], [m, n, k], batch, a_type.number(compute)?);

    cublasDotEx(
        handle: Handle, n: c_int, _x: *const c_void, x_type: DataType, _incx: c_int, _y: *const c_void,
        _y_type: DataType, _incy: c_int, _result: *mut c_void, _result_type: DataType, _execution_type: DataType
    ) dot(handle, n, x_type.number(ComputeType::F32)?);
}

/// The product of two vectors; the result stays on the device.
fn dot(handle: Handle, n: c_int, number: Number) -> Result<(), Status> {
    handle.state()?.check_result_stays_on_device()?;
    handle.multiply("dot", [Operation::PLAIN; 2], [1, 1, n], 1, number)
}

/// The functions that exist for each kind of number.
macro_rules! of_number {
    ($number:ident $gemm:ident $gemm_strided:ident $gemm_batched:ident $gemv:ident $($dot:ident)*) => {
        exports! {
            $gemm(
                handle: Handle, transa: Operation, transb: Operation, m: c_int, n: c_int, k: c_int,
                _alpha: *const c_void, _a: *const c_void, _lda: c_int, _b: *const c_void, _ldb: c_int,
                _beta: *const c_void, _c: *mut c_void, _ldc: c_int
            ) handle.multiply("gemm", [transa, transb], [m, n, k], 1, Number::$number);

            $gemm_strided(
                handle: Handle, transa: Operation, transb: Operation, m: c_int, n: c_int, k: c_int,
                _alpha: *const c_void, _a: *const c_void, _lda: c_int, _stride_a: c_longlong, _b: *const c_void,
                _ldb: c_int, _stride_b: c_longlong, _beta: *const c_void, _c: *mut c_void, _ldc: c_int,
                _stride_c: c_longlong, batch: c_int
            ) handle.multiply("gemm_batched", [transa, transb], [m, n, k], batch, Number::$number);

            $gemm_batched(
                handle: Handle, transa: Operation, transb: Operation, m: c_int, n: c_int, k: c_int,
                _alpha: *const c_void, _a: *const c_void, _lda: c_int, _b: *const c_void, _ldb: c_int,
                _beta: *const c_void, _c: *mut c_void, _ldc: c_int, batch: c_int
            ) handle.multiply("gemm_batched", [transa, transb], [m, n, k], batch, Number::$number);

            $gemv(
                handle: Handle, trans: Operation, m: c_int, n: c_int, _alpha: *const c_void, _a: *const c_void,
                _lda: c_int, _x: *const c_void, _incx: c_int, _beta: *const c_void, _y: *mut c_void, _incy: c_int
            ) handle.multiply("gemv", [trans, Operation::PLAIN], [m, 1, n], 1, Number::$number);

            $($dot(
                handle: Handle, n: c_int, _x: *const c_void, _incx: c_int, _y: *const c_void, _incy: c_int,
                _result: *mut c_void
            ) dot(handle, n, Number::$number);)*
        }
    };
}

of_number! { F32 cublasSgemm_v2 cublasSgemmStridedBatched cublasSgemmBatched cublasSgemv_v2 cublasSdot_v2 }
of_number! { F64 cublasDgemm_v2 cublasDgemmStridedBatched cublasDgemmBatched cublasDgemv_v2 cublasDdot_v2 }
of_number! {
    C32 cublasCgemm_v2 cublasCgemmStridedBatched cublasCgemmBatched cublasCgemv_v2 cublasCdotu_v2 cublasCdotc_v2
}
of_number! {
    C64 cublasZgemm_v2 cublasZgemmStridedBatched cublasZgemmBatched cublasZgemv_v2 cublasZdotu_v2 cublasZdotc_v2
}

refuse_each! {
    cublasCaxpy_v2 cublasCcopy_v2 cublasCgelsBatched cublasCgeqrfBatched cublasCgerc_v2 cublasCgeru_v2
    cublasCgetrfBatched cublasCgetrsBatched cublasChemm_v2 cublasChemv_v2 cublasCher2_v2 cublasCher2k_v2
    cublasCher_v2 cublasCherk_v2 cublasCrot_v2 cublasCrotg_v2 cublasCscal_v2 cublasCsrot_v2 cublasCsscal_v2
    cublasCswap_v2 cublasCsymm_v2 cublasCsymv_v2 cublasCsyr2_v2 cublasCsyr2k_v2 cublasCsyr_v2 cublasCsyrk_v2
    cublasCtrmm_v2 cublasCtrmv_v2 cublasCtrsmBatched cublasCtrsm_v2 cublasCtrsv_v2 cublasDasum_v2 cublasDaxpy_v2
    cublasDcopy_v2 cublasDgelsBatched cublasDgeqrfBatched cublasDger_v2 cublasDgetrfBatched cublasDgetrsBatched
    cublasDnrm2_v2 cublasDrot_v2 cublasDrotg_v2 cublasDrotm_v2 cublasDrotmg_v2 cublasDscal_v2 cublasDswap_v2
    cublasDsymm_v2 cublasDsymv_v2 cublasDsyr2_v2 cublasDsyr2k_v2 cublasDsyr_v2 cublasDsyrk_v2 cublasDtrmm_v2
    cublasDtrmv_v2 cublasDtrsmBatched cublasDtrsm_v2 cublasDtrsv_v2 cublasDzasum_v2 cublasDznrm2_v2
    cublasGetMatrixAsync cublasGetVectorAsync cublasIcamax_v2 cublasIcamin_v2 cublasIdamax_v2 cublasIdamin_v2
    cublasIsamax_v2 cublasIsamin_v2 cublasIzamax_v2 cublasIzamin_v2 cublasSasum_v2 cublasSaxpy_v2 cublasScasum_v2
    cublasScnrm2_v2 cublasScopy_v2 cublasSetMatrixAsync cublasSetVectorAsync cublasSgelsBatched cublasSgeqrfBatched
    cublasSger_v2 cublasSgetrfBatched cublasSgetrsBatched cublasSnrm2_v2 cublasSrot_v2 cublasSrotg_v2 cublasSrotm_v2
    cublasSrotmg_v2 cublasSscal_v2 cublasSswap_v2 cublasSsymm_v2 cublasSsymv_v2 cublasSsyr2_v2 cublasSsyr2k_v2
    cublasSsyr_v2 cublasSsyrk_v2 cublasStrmm_v2 cublasStrmv_v2 cublasStrsmBatched cublasStrsm_v2 cublasStrsv_v2
    cublasZaxpy_v2 cublasZcopy_v2 cublasZdrot_v2 cublasZdscal_v2 cublasZgelsBatched cublasZgeqrfBatched
    cublasZgerc_v2 cublasZgeru_v2 cublasZgetrfBatched cublasZgetrsBatched cublasZhemm_v2 cublasZhemv_v2
    cublasZher2_v2 cublasZher2k_v2 cublasZher_v2 cublasZherk_v2 cublasZrot_v2 cublasZrotg_v2 cublasZscal_v2
    cublasZswap_v2 cublasZsymm_v2 cublasZsymv_v2 cublasZsyr2_v2 cublasZsyr2k_v2 cublasZsyr_v2 cublasZsyrk_v2
    cublasZtrmm_v2 cublasZtrmv_v2 cublasZtrsmBatched cublasZtrsm_v2 cublasZtrsv_v2
}
