//! The numbers of the headers: what matrices consist of and how they are taken.

use std::ffi::{c_int, c_uint};

use blas::{Number, Product, Status};

use crate::handle::State;

/// `cudaDataType`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataType(c_uint);

/// `cublasComputeType_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComputeType(c_uint);

/// `cublasOperation_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation(c_uint);

impl DataType {
    /// What a product of it is made of.
    pub(crate) fn number(self, compute: ComputeType) -> Result<Number, Status> {
        // CUDA_R_32F and so on.
        match (self.0, compute.0) {
            // CUBLAS_COMPUTE_32F_FAST_16F, _FAST_16BF, _FAST_TF32.
            (0, 74 | 75 | 77) => Ok(Number::Tf32),
            (0, _) => Ok(Number::F32),
            (1, _) => Ok(Number::F64),
            (2, _) => Ok(Number::F16),
            (4, _) => Ok(Number::C32),
            (5, _) => Ok(Number::C64),
            (14, _) => Ok(Number::Bf16),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }
}

impl ComputeType {
    /// `CUBLAS_COMPUTE_32F`.
    pub(crate) const F32: Self = Self(68);
}

impl Operation {
    fn is_transposed(self) -> Result<bool, Status> {
        match self.0 {
            0 => Ok(false),
            1 | 2 => Ok(true),
            _ => Err(Status::INVALID_VALUE),
        }
    }
}

/// A product of matrices as the calls describe it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) operator: &'static str,
    pub(crate) operations: [Operation; 2],
    pub(crate) sizes: [c_int; 3],
    pub(crate) batch: c_int,
    pub(crate) number: Number,
}

impl Call {
    /// Not transposed.
    pub(crate) const PLAIN: [Operation; 2] = [Operation(0), Operation(0)];

    /// Launches it on the handle's stream.
    pub(crate) fn launch(&self, state: &State) -> Result<(), Status> {
        let size = |size: c_int| u64::try_from(size).map_err(|_| Status::INVALID_VALUE);
        let [m, n, k] = self.sizes;
        let [a, b] = self.operations;
        let number = match self.number {
            Number::F32 if state.is_tf32() => Number::Tf32,
            number => number,
        };
        let product = Product {
            operator: self.operator,
            m: size(m)?,
            n: size(n)?,
            k: size(k)?,
            batch: size(self.batch)?,
            number,
            transposed: [a.is_transposed()?, b.is_transposed()?],
        };
        blas::launch(&product, state.stream())
    }
}
