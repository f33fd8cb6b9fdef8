//! Functions of the libraries that we call for ourselves, to describe an operator.

use core::ffi::{CStr, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use abi::Library;

/// Functions of these libraries that we call for ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    CublasStream,
    CudnnStream,
    LightLayout,
    LightProduct,
    Tensor,
    Filter,
}

pub(super) const HELPERS: [(Helper, Library, &CStr); 6] = [
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

/// Where they are; null where the library has none.
pub(super) static FOUND: [AtomicPtr<c_void>; HELPERS.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; HELPERS.len()];

/// One of the library's own functions, if it has that.
pub(super) fn helper(helper: Helper) -> Option<NonNull<c_void>> {
    // Acquire pairs with the Release in `sites::adopt`.
    NonNull::new(FOUND.get(helper as usize)?.load(Ordering::Acquire))
}
