//! Requests about memory: allocation, address space, pools, sharing between processes. Decoding
//! checks numbers of a client's contexts; the server checks handles, pools and addresses.

use serde::{Deserialize, Serialize};

use super::{CONTEXTS, WireError, slot};

/// An event in device memory that processes share: a count of its records, then a word for each of
/// the last [`SharedEvent::RECORDS`], the number of the last reached record in that place: records
/// of several streams may be reached in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedEvent {
    /// Address of the first word.
    pub address: u64,
}

impl SharedEvent {
    /// Most pending records.
    pub const RECORDS: u64 = 63;
    /// Size of all words.
    pub const BYTES: u64 = 8 * (1 + Self::RECORDS);

    /// Address of the word for a record's number, from 1, which is written when it is reached.
    pub fn word_of(self, record: u64) -> u64 {
        self.address + 8 * (1 + record.wrapping_sub(1) % Self::RECORDS)
    }
}

/// A client's request about memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryRequest {
    /// Allocate device memory with a 32-bit address, as in CUDA 2.
    AllocateLow {
        /// Slot of the context.
        context: u64,
        /// Size.
        bytes: u64,
    },
    /// Allocate memory shared by host and device, at this offset of the host arena. It counts as
    /// the device's everywhere but takes none of its memory.
    AllocateManaged {
        /// Slot of the context.
        context: u64,
        /// Offset in the arena.
        offset: u64,
        /// Size.
        bytes: u64,
    },
    /// Free managed memory.
    FreeManaged {
        /// Offset in the arena.
        offset: u64,
    },
    /// Reserve address space without memory; answered with its first address.
    Reserve {
        /// Size.
        bytes: u64,
        /// Power of two.
        align: u64,
        /// Preferred first address, used if it is free; 0 is any.
        wish: u64,
    },
    /// Free address space.
    Unreserve {
        /// First address.
        address: u64,
        /// Its whole size.
        bytes: u64,
    },
    /// Allocate memory without an address; answered with a handle.
    Create {
        /// Size.
        bytes: u64,
    },
    /// Drop a reference to the memory, which lives until its last reference and mapping are
    /// removed.
    Release {
        /// The handle.
        handle: u64,
    },
    /// Add a reference to the memory mapped at an address; answered with its handle.
    Retain {
        /// An address inside the mapping.
        address: u64,
    },
    /// Map memory.
    Map {
        /// First address, in reserved address space.
        address: u64,
        /// Size.
        bytes: u64,
        /// The memory.
        handle: u64,
        /// Offset in the memory.
        offset: u64,
    },
    /// Unmap whole mappings.
    Unmap {
        /// First address.
        address: u64,
        /// Size.
        bytes: u64,
    },
    /// Set the access rights of whole mappings.
    SetAccess {
        /// First address.
        address: u64,
        /// Size.
        bytes: u64,
        /// `CUmemAccess_flags`.
        access: u64,
    },
    /// Export a handle's memory to other processes; answered with a token of two words.
    ExportHandle {
        /// The handle.
        handle: u64,
    },
    /// Export the allocation that begins at an address; answered with token and size.
    ExportAddress {
        /// First address.
        address: u64,
    },
    /// Import another process's memory; answered with handle and size.
    ImportHandle {
        /// First word of the token.
        low: u64,
        /// Second word.
        high: u64,
    },
    /// Map another process's memory at an own address; answered with address and size.
    OpenShared {
        /// Slot of the context.
        context: u64,
        /// First word of the token.
        low: u64,
        /// Second word.
        high: u64,
    },
    /// Unmap it again.
    CloseShared {
        /// First address.
        address: u64,
    },
    /// Create a pool; answered with its number. Pool 0 always exists.
    CreatePool {
        /// Most bytes that it reserves; 0 is as many as the device has.
        max_bytes: u64,
    },
    /// Close a pool to further allocations; it is removed with its last allocation.
    DestroyPool {
        /// The pool.
        pool: u64,
    },
    /// Allocate device memory from a pool.
    AllocateFromPool {
        /// Slot of the context.
        context: u64,
        /// The pool.
        pool: u64,
        /// Size.
        bytes: u64,
    },
    /// Query a pool; answered with reserved bytes, their peak, used bytes, their peak.
    PoolState {
        /// The pool.
        pool: u64,
    },
    /// Set how many unused bytes a pool keeps.
    SetPoolThreshold {
        /// The pool.
        pool: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// Reset the peak of the reserved bytes.
    ResetPoolReserved {
        /// The pool.
        pool: u64,
    },
    /// Reset the peak of the used bytes.
    ResetPoolUsed {
        /// The pool.
        pool: u64,
    },
    /// Return a pool's unused memory to the device.
    TrimPool {
        /// The pool.
        pool: u64,
        /// The number of bytes to keep.
        keep_bytes: u64,
    },
    /// Allocate device memory for a module's variable, which is no allocation of the program's.
    AllocateVariable {
        /// Slot of the context.
        context: u64,
        /// Size.
        bytes: u64,
    },
    /// Free a variable's memory.
    FreeVariable {
        /// First address.
        address: u64,
    },
    /// Count a record of the shared event at an address; answered with its number, or refused with
    /// CUDA_ERROR_NOT_READY while too many are pending (see [`SharedEvent`]).
    CountRecord {
        /// Address of the first word.
        address: u64,
    },
    /// Query a record of a shared event; answered with its number, and 1 if reached, else 0.
    RecordState {
        /// Address of the first word.
        address: u64,
        /// The record; 0 is the last one.
        number: u64,
    },
}

impl MemoryRequest {
    pub(super) fn check(&self) -> Result<(), WireError> {
        match *self {
            Self::AllocateLow { context, .. }
            | Self::AllocateManaged { context, .. }
            | Self::OpenShared { context, .. }
            | Self::AllocateVariable { context, .. }
            | Self::AllocateFromPool { context, .. } => {
                let number = u32::try_from(context).map_err(|_| WireError::Unknown("context"))?;
                slot(number, CONTEXTS, "context").map(drop)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn a_context_out_of_range_is_refused() {
        let request = MemoryRequest::AllocateLow {
            context: CONTEXTS as u64,
            bytes: 1,
        };
        assert_eq!(
            Request::decode(&Request::Memory(request).encode()),
            Err(WireError::Unknown("context"))
        );
    }
}
