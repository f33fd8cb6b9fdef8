//! Library functions that we call ourselves, to describe an operator.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

use abi::Library;

use crate::hooks::libraries::{LIBRARIES, OPERATOR_HELPERS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    CublasStream,
    CudnnStream,
    LightLayout,
    LightProduct,
    Tensor,
    Filter,
}

pub(super) const HELPERS: [(Helper, Library, &CStr); OPERATOR_HELPERS] = [
    (Helper::CublasStream, Library::Cublas, c"cublasGetStream_v2"),
    (Helper::CudnnStream, Library::Cudnn, c"cudnnGetStream"),
    (
        Helper::LightLayout,
        Library::CublasLt,
        c"cublasLtMatrixLayoutGetAttribute",
    ),
    (
        Helper::LightProduct,
        Library::CublasLt,
        c"cublasLtMatmulDescGetAttribute",
    ),
    (
        Helper::Tensor,
        Library::Cudnn,
        c"cudnnGetTensorNdDescriptor",
    ),
    (
        Helper::Filter,
        Library::Cudnn,
        c"cudnnGetFilterNdDescriptor",
    ),
];

pub(super) fn helper(helper: Helper) -> Option<NonNull<c_void>> {
    LIBRARIES.operators.helper(helper as usize)
}
