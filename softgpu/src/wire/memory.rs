//! Questions about memory: allocation, address space, pools, sharing between processes.
//!
//! Numbers that name a client's context are checked when the packet is read; handles, pools and
//! addresses are the server's to judge.

use serde::{Deserialize, Serialize};

use super::{CONTEXTS, WireError, slot};

/// How an event lies in device memory that processes share: a count of its records, then for each of the last
/// [`SharedEvent::RECORDS`] the number of the record that was reached last in that place. Each record has a word of its own,
/// as records of several streams may be reached in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedEvent {
    /// Address of the first word.
    pub address: u64,
}

impl SharedEvent {
    /// Records that may be on their way.
    pub const RECORDS: u64 = 63;
    /// Bytes of all words.
    pub const BYTES: u64 = 8 * (1 + Self::RECORDS);

    /// Where the number of a record is written when it is reached; numbers begin at 1.
    pub fn word_of(self, record: u64) -> u64 {
        self.address + 8 * (1 + record.wrapping_sub(1) % Self::RECORDS)
    }
}

/// What a client asks about memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryRequest {
    /// Device memory whose address fits in 32 bits, as CUDA 2 knew it.
    AllocateLow {
        /// Slot of the context.
        context: u64,
        /// How much.
        bytes: u64,
    },
    /// Memory that host and device share, at this offset of the host arena. It is the device's in
    /// all accounts but takes none of its memory: it lies where it is used.
    AllocateManaged {
        /// Slot of the context.
        context: u64,
        /// Offset in the arena.
        offset: u64,
        /// How much.
        bytes: u64,
    },
    /// Give it back.
    FreeManaged {
        /// Offset in the arena.
        offset: u64,
    },
    /// Address space without memory; answered with its first address.
    Reserve {
        /// How much.
        bytes: u64,
        /// Power of two.
        align: u64,
        /// First address if it is free; 0 is any.
        wish: u64,
    },
    /// Give address space back.
    Unreserve {
        /// First address.
        address: u64,
        /// All of it.
        bytes: u64,
    },
    /// Memory without an address; answered with a handle.
    Create {
        /// How much.
        bytes: u64,
    },
    /// One name of the memory less. It lives until its last name and last mapping are gone.
    Release {
        /// The handle.
        handle: u64,
    },
    /// One name more for the memory that is mapped at an address; answered with its handle.
    Retain {
        /// Inside a mapping.
        address: u64,
    },
    /// Memory to addresses.
    Map {
        /// First address, in reserved address space.
        address: u64,
        /// How much.
        bytes: u64,
        /// The memory.
        handle: u64,
        /// From where in it.
        offset: u64,
    },
    /// Whole mappings away.
    Unmap {
        /// First address.
        address: u64,
        /// How much.
        bytes: u64,
    },
    /// Who may access whole mappings.
    SetAccess {
        /// First address.
        address: u64,
        /// How much.
        bytes: u64,
        /// `CUmemAccess_flags`.
        access: u64,
    },
    /// Makes a handle's memory known to other processes; answered with a token of two words.
    ExportHandle {
        /// The handle.
        handle: u64,
    },
    /// The same of the allocation that begins at an address; answered with token and size.
    ExportAddress {
        /// First address.
        address: u64,
    },
    /// A handle of another process's memory; answered with handle and size.
    ImportHandle {
        /// First word of the token.
        low: u64,
        /// Second word.
        high: u64,
    },
    /// Another process's memory at an address of one's own; answered with address and size.
    OpenShared {
        /// Slot of the context.
        context: u64,
        /// First word of the token.
        low: u64,
        /// Second word.
        high: u64,
    },
    /// No longer.
    CloseShared {
        /// First address.
        address: u64,
    },
    /// A pool; answered with its number. Pool 0 is there from the beginning.
    CreatePool {
        /// Most bytes that it holds; 0 is as many as the device has.
        max_bytes: u64,
    },
    /// No more allocations from it; it goes with its last.
    DestroyPool {
        /// The pool.
        pool: u64,
    },
    /// Device memory from a pool.
    AllocateFromPool {
        /// Slot of the context.
        context: u64,
        /// The pool.
        pool: u64,
        /// How much.
        bytes: u64,
    },
    /// Answered with bytes reserved, the most reserved, bytes used, the most used.
    PoolState {
        /// The pool.
        pool: u64,
    },
    /// Sets what a pool keeps when nothing uses it.
    SetPoolThreshold {
        /// The pool.
        pool: u64,
        /// So many bytes.
        bytes: u64,
    },
    /// Forgets the most that was reserved.
    ResetPoolReserved {
        /// The pool.
        pool: u64,
    },
    /// Forgets the most that was used.
    ResetPoolUsed {
        /// The pool.
        pool: u64,
    },
    /// Gives the device back what the pool does not use.
    TrimPool {
        /// The pool.
        pool: u64,
        /// But keeps so many bytes.
        keep_bytes: u64,
    },
    /// Device memory for a module's variable: taken from the device, but no allocation of the
    /// program's.
    AllocateVariable {
        /// Slot of the context.
        context: u64,
        /// How much.
        bytes: u64,
    },
    /// Give it back.
    FreeVariable {
        /// First address.
        address: u64,
    },
    /// One record more of the event that processes share by the words at an address; answered with its number, or refused
    /// with CUDA_ERROR_NOT_READY while too many are on their way (see [`SharedEvent`]).
    CountRecord {
        /// First of the words.
        address: u64,
    },
    /// Answered with the number of that record of a shared event, and with 1 if it was reached, else 0.
    RecordState {
        /// First of the words.
        address: u64,
        /// The record; 0 is the last one.
        number: u64,
    },
}

impl MemoryRequest {
    /// Whether it names contexts that there can be.
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
