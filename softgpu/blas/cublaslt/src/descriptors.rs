//! Descriptors of matrices and operations. Handles are numbers in a table, never dereferenced.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::LazyLock;

use blas::raw::Bytes;
use blas::{Number, Product, Status};
use parking_lot::Mutex;

/// `cublasLtMatmulDesc_t`, `cublasLtMatrixLayout_t`, `cublasLtMatmulPreference_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(usize);

/// `cublasLtMatrixLayout_t`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// `cudaDataType`.
    pub(crate) data_type: c_uint,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) batch: i32,
}

/// `cublasLtMatmulDesc_t`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// `cublasComputeType_t`.
    pub(crate) compute: c_uint,
    pub(crate) transposed: [bool; 2],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Descriptor {
    Layout(Layout),
    Operation(Operation),
    /// A preference for algorithms; there is only one.
    Preference,
}

/// Attributes of `cublasLtMatrixLayoutAttribute_t` that determine the amount of work.
const LAYOUT_TYPE: c_uint = 0;
const LAYOUT_ROWS: c_uint = 2;
const LAYOUT_COLUMNS: c_uint = 3;
const LAYOUT_BATCH_COUNT: c_uint = 5;
/// The last one of CUDA 13.2.
const LAYOUT_LAST: c_uint = 8;

/// Attributes of `cublasLtMatmulDescAttributes_t`, likewise.
const OPERATION_COMPUTE: c_uint = 0;
const OPERATION_TRANSA: c_uint = 3;
const OPERATION_TRANSB: c_uint = 4;
const OPERATION_LAST: c_uint = 40;

/// Distance of handles, so that they look like the addresses that they are in NVIDIA's library.
const STEP: usize = 256;

#[derive(Debug, Default)]
struct Descriptors {
    known: HashMap<Handle, Descriptor>,
    last: usize,
}

static DESCRIPTORS: LazyLock<Mutex<Descriptors>> = LazyLock::new(Mutex::default);

impl Handle {
    pub(crate) fn create(descriptor: Descriptor) -> Self {
        let mut descriptors = DESCRIPTORS.lock();
        descriptors.last += STEP;
        let handle = Self(descriptors.last);
        descriptors.known.insert(handle, descriptor);
        handle
    }

    pub(crate) fn destroy(self) -> Result<(), Status> {
        let removed = DESCRIPTORS.lock().known.remove(&self);
        removed.map(drop).ok_or(Status::INVALID_VALUE)
    }

    fn get(self) -> Result<Descriptor, Status> {
        let known = DESCRIPTORS.lock().known.get(&self).copied();
        known.ok_or(Status::INVALID_VALUE)
    }

    fn layout(self) -> Result<Layout, Status> {
        match self.get()? {
            Descriptor::Layout(layout) => Ok(layout),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    fn operation(self) -> Result<Operation, Status> {
        match self.get()? {
            Descriptor::Operation(operation) => Ok(operation),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    /// The bytes of a product's attribute; none for an attribute that `set` ignores.
    pub(crate) fn get_operation(self, attribute: c_uint) -> Result<Vec<u8>, Status> {
        let operation = self.operation()?;
        let [a, b] = operation.transposed.map(c_uint::from);
        match attribute {
            OPERATION_COMPUTE => Ok(operation.compute.to_ne_bytes().to_vec()),
            OPERATION_TRANSA => Ok(a.to_ne_bytes().to_vec()),
            OPERATION_TRANSB => Ok(b.to_ne_bytes().to_vec()),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }

    /// As above, for a matrix.
    pub(crate) fn get_layout(self, attribute: c_uint) -> Result<Vec<u8>, Status> {
        let layout = self.layout()?;
        match attribute {
            LAYOUT_TYPE => Ok(layout.data_type.to_ne_bytes().to_vec()),
            LAYOUT_ROWS => Ok(layout.rows.to_ne_bytes().to_vec()),
            LAYOUT_COLUMNS => Ok(layout.columns.to_ne_bytes().to_vec()),
            LAYOUT_BATCH_COUNT => Ok(layout.batch.to_ne_bytes().to_vec()),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }

    /// Sets an attribute. Attributes that do not affect the amount of work are ignored.
    pub(crate) fn set(self, attribute: c_uint, bytes: &Bytes, length: usize) -> Result<(), Status> {
        let mut descriptors = DESCRIPTORS.lock();
        let known = descriptors.known.get_mut(&self);
        match known.ok_or(Status::INVALID_VALUE)? {
            Descriptor::Layout(layout) => layout.set(attribute, bytes, length),
            Descriptor::Operation(operation) => operation.set(attribute, bytes, length),
            Descriptor::Preference => Ok(()),
        }
    }
}

impl Layout {
    fn set(&mut self, attribute: c_uint, bytes: &Bytes, length: usize) -> Result<(), Status> {
        match attribute {
            LAYOUT_TYPE => self.data_type = c_uint::from_ne_bytes(bytes.get(length)?),
            LAYOUT_ROWS => self.rows = u64::from_ne_bytes(bytes.get(length)?),
            LAYOUT_COLUMNS => self.columns = u64::from_ne_bytes(bytes.get(length)?),
            LAYOUT_BATCH_COUNT => self.batch = i32::from_ne_bytes(bytes.get(length)?),
            other if other <= LAYOUT_LAST => {}
            _ => return Err(Status::INVALID_VALUE),
        }
        Ok(())
    }
}

impl Operation {
    fn set(&mut self, attribute: c_uint, bytes: &Bytes, length: usize) -> Result<(), Status> {
        let is_transposed = || Ok(c_uint::from_ne_bytes(bytes.get(length)?) != 0);
        match attribute {
            OPERATION_COMPUTE => self.compute = c_uint::from_ne_bytes(bytes.get(length)?),
            OPERATION_TRANSA => self.transposed[0] = is_transposed()?,
            OPERATION_TRANSB => self.transposed[1] = is_transposed()?,
            other if other <= OPERATION_LAST => {}
            _ => return Err(Status::INVALID_VALUE),
        }
        Ok(())
    }
}

pub(crate) fn product(operation: Handle, a: Handle, d: Handle) -> Result<Product, Status> {
    let (operation, a, d) = (operation.operation()?, a.layout()?, d.layout()?);
    Ok(Product {
        operator: "matmul",
        m: d.rows,
        n: d.columns,
        k: if operation.transposed[0] {
            a.rows
        } else {
            a.columns
        },
        batch: u64::try_from(d.batch).map_err(|_| Status::INVALID_VALUE)?,
        number: Number::of_product(a.data_type, operation.compute)?,
        transposed: operation.transposed,
    })
}
