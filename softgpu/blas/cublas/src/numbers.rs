//! Values of the headers: element types of matrices and operations on them.

use std::ffi::{c_int, c_uint};

use blas::{Number, Product, Status};

use crate::handle::Handle;

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
    pub(crate) fn number(self, compute: ComputeType) -> Result<Number, Status> {
        Number::of_product(self.0, compute.0)
    }
}

impl ComputeType {
    /// `CUBLAS_COMPUTE_32F`.
    pub(crate) const F32: Self = Self(68);
}

impl Operation {
    /// Not transposed.
    pub(crate) const PLAIN: Self = Self(0);

    fn is_transposed(self) -> Result<bool, Status> {
        match self.0 {
            0 => Ok(false),
            1 | 2 => Ok(true),
            _ => Err(Status::INVALID_VALUE),
        }
    }
}

impl Handle {
    pub(crate) fn multiply(
        self,
        operator: &'static str,
        [a, b]: [Operation; 2],
        [m, n, k]: [c_int; 3],
        batch: c_int,
        number: Number,
    ) -> Result<(), Status> {
        let state = self.state()?;
        let size = |size: c_int| u64::try_from(size).map_err(|_| Status::INVALID_VALUE);
        let product = Product {
            operator,
            m: size(m)?,
            n: size(n)?,
            k: size(k)?,
            batch: size(batch)?,
            number: match number {
                Number::F32 if state.is_tf32() => Number::Tf32,
                number => number,
            },
            transposed: [a.is_transposed()?, b.is_transposed()?],
        };
        blas::launch(&product, state.stream())
    }
}
