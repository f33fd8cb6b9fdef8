//! The table of operators: calls of cuBLAS, cuBLASLt and cuDNN that launch kernels on a stream. An
//! *operator* is one such call, whatever kernels it launches. Several calls may be one operator: a
//! matrix product is `gemm`, whether called as `cublasSgemm_v2`, `cublasGemmEx` or
//! `cublasLtMatmul`. The list is `operators.csv`, with the public headers' prototypes (cuBLAS 13.2,
//! cuDNN 9.26; the calls are older: cuBLAS has these forms since version 10, cuDNN since 8).

use core::ffi::CStr;

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operator {
    /// The ELF symbol, e.g. `cublasSgemm_v2`.
    pub symbol: &'static CStr,
    /// The library that defines it.
    pub library: Library,
    /// Index of its name in [`OPERATOR_NAMES`].
    pub name_index: usize,
    /// The C parameter list. The result is the library's status, 32 bits; 0 is success.
    pub prototype: &'static str,
}

/// A library of operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Library {
    /// cuBLAS.
    Cublas,
    /// cuBLASLt.
    CublasLt,
    /// cuDNN.
    Cudnn,
}

impl Library {
    /// All libraries.
    pub const ALL: [Self; 3] = [Self::Cublas, Self::CublasLt, Self::Cudnn];

    /// Its file name up to the version: `libcublas.so` for `libcublas.so.13`.
    #[must_use]
    pub const fn file_stem(self) -> &'static str {
        match self {
            Self::Cublas => "libcublas.so",
            Self::CublasLt => "libcublasLt.so",
            Self::Cudnn => "libcudnn.so",
        }
    }
}

impl Operator {
    /// The operator's name, e.g. `gemm`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        OPERATOR_NAMES.get(self.name_index).copied().unwrap_or("")
    }
}

/// The index in [`OPERATORS`] of the call exported as `symbol`.
#[must_use]
pub fn lookup_operator(symbol: &CStr) -> Option<usize> {
    OPERATORS
        .binary_search_by(|operator| operator.symbol.cmp(symbol))
        .ok()
}

include!(concat!(env!("OUT_DIR"), "/operators.rs"));
