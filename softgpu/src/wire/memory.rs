//! Questions about memory: allocation, address space, pools, sharing between processes.
//!
//! Each is a kind and up to five numbers, in a packet of its own kind. Numbers that name a client's
//! context are checked when the packet is read; handles, pools and addresses are the server's to
//! judge.

use super::{CONTEXTS, WireError, slot};

/// Numbers of a question, unused ones 0.
pub const MEMORY_WORDS: usize = 6;

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

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident $({ $($(#[$field_doc:meta])* $field:ident,)* })? = $kind:literal,)*) => {
        /// What a client asks about memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum MemoryRequest {
            $(
                $(#[$doc])*
                $name $({ $($(#[$field_doc])* $field: u64,)* })?,
            )*
        }

        impl MemoryRequest {
            /// As numbers.
            pub fn encode(&self) -> [u64; MEMORY_WORDS] {
                let mut words = [0; MEMORY_WORDS];
                match *self {
                    $(
                        Self::$name $({ $($field,)* })? => {
                            words[0] = $kind;
                            let fields: &[u64] = &[$($($field,)*)?];
                            words[1..=fields.len()].copy_from_slice(fields);
                        }
                    )*
                }
                words
            }

            fn decode_fields(words: [u64; MEMORY_WORDS]) -> Option<Self> {
                let [kind, fields @ ..] = words;
                let mut fields = fields.into_iter();
                Some(match kind {
                    $(
                        $kind => Self::$name $({ $($field: fields.next()?,)* })?,
                    )*
                    _ => return None,
                })
            }
        }
    };
}

requests! {
    /// Device memory whose address fits in 32 bits, as CUDA 2 knew it.
    AllocateLow {
        /// Slot of the context.
        context,
        /// How much.
        bytes,
    } = 1,
    /// Memory that host and device share, at this offset of the host arena. It is the device's in
    /// all accounts but takes none of its memory: it lies where it is used.
    AllocateManaged {
        /// Slot of the context.
        context,
        /// Offset in the arena.
        offset,
        /// How much.
        bytes,
    } = 2,
    /// Give it back.
    FreeManaged {
        /// Offset in the arena.
        offset,
    } = 3,
    /// Address space without memory; answered with its first address.
    Reserve {
        /// How much.
        bytes,
        /// Power of two.
        align,
        /// First address if it is free; 0 is any.
        wish,
    } = 4,
    /// Give address space back.
    Unreserve {
        /// First address.
        address,
        /// All of it.
        bytes,
    } = 5,
    /// Memory without an address; answered with a handle.
    Create {
        /// How much.
        bytes,
    } = 6,
    /// One name of the memory less. It lives until its last name and last mapping are gone.
    Release {
        /// The handle.
        handle,
    } = 7,
    /// One name more for the memory that is mapped at an address; answered with its handle.
    Retain {
        /// Inside a mapping.
        address,
    } = 8,
    /// Memory to addresses.
    Map {
        /// First address, in reserved address space.
        address,
        /// How much.
        bytes,
        /// The memory.
        handle,
        /// From where in it.
        offset,
    } = 9,
    /// Whole mappings away.
    Unmap {
        /// First address.
        address,
        /// How much.
        bytes,
    } = 10,
    /// Who may access whole mappings.
    SetAccess {
        /// First address.
        address,
        /// How much.
        bytes,
        /// `CUmemAccess_flags`.
        access,
    } = 11,
    /// Makes a handle's memory known to other processes; answered with a token of two words.
    ExportHandle {
        /// The handle.
        handle,
    } = 12,
    /// The same of the allocation that begins at an address; answered with token and size.
    ExportAddress {
        /// First address.
        address,
    } = 13,
    /// A handle of another process's memory; answered with handle and size.
    ImportHandle {
        /// First word of the token.
        low,
        /// Second word.
        high,
    } = 14,
    /// Another process's memory at an address of one's own; answered with address and size.
    OpenShared {
        /// Slot of the context.
        context,
        /// First word of the token.
        low,
        /// Second word.
        high,
    } = 15,
    /// No longer.
    CloseShared {
        /// First address.
        address,
    } = 16,
    /// A pool; answered with its number. Pool 0 is there from the beginning.
    CreatePool {
        /// Most bytes that it holds; 0 is as many as the device has.
        max_bytes,
    } = 17,
    /// No more allocations from it; it goes with its last.
    DestroyPool {
        /// The pool.
        pool,
    } = 18,
    /// Device memory from a pool.
    AllocateFromPool {
        /// Slot of the context.
        context,
        /// The pool.
        pool,
        /// How much.
        bytes,
    } = 19,
    /// Answered with bytes reserved, the most reserved, bytes used, the most used.
    PoolState {
        /// The pool.
        pool,
    } = 20,
    /// Sets what a pool keeps when nothing uses it.
    SetPoolThreshold {
        /// The pool.
        pool,
        /// So many bytes.
        bytes,
    } = 21,
    /// Forgets the most that was reserved.
    ResetPoolReserved {
        /// The pool.
        pool,
    } = 22,
    /// Forgets the most that was used.
    ResetPoolUsed {
        /// The pool.
        pool,
    } = 23,
    /// Gives the device back what the pool does not use.
    TrimPool {
        /// The pool.
        pool,
        /// But keeps so many bytes.
        keep_bytes,
    } = 24,
    /// Device memory for a module's variable: taken from the device, but no allocation of the
    /// program's.
    AllocateVariable {
        /// Slot of the context.
        context,
        /// How much.
        bytes,
    } = 25,
    /// Give it back.
    FreeVariable {
        /// First address.
        address,
    } = 26,
    /// One record more of the event that processes share by the words at an address; answered with its number, or refused
    /// with CUDA_ERROR_NOT_READY while too many are on their way (see [`SharedEvent`]).
    CountRecord {
        /// First of the words.
        address,
    } = 27,
    /// Answered with the number of that record of a shared event, and with 1 if it was reached, else 0.
    RecordState {
        /// First of the words.
        address,
        /// The record; 0 is the last one.
        number,
    } = 28,
}

impl MemoryRequest {
    /// Reads numbers from a process that is not believed.
    ///
    /// # Errors
    /// [`WireError::Unknown`].
    pub fn decode(words: [u64; MEMORY_WORDS]) -> Result<Self, WireError> {
        let request = Self::decode_fields(words).ok_or(WireError::Unknown("memory request"))?;
        match request {
            Self::AllocateLow { context, .. }
            | Self::AllocateManaged { context, .. }
            | Self::OpenShared { context, .. }
            | Self::AllocateVariable { context, .. }
            | Self::AllocateFromPool { context, .. } => {
                let number = u32::try_from(context).map_err(|_| WireError::Unknown("context"))?;
                slot(number, CONTEXTS, "context")?;
            }
            _ => {}
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_context_out_of_range_is_refused() {
        let request = MemoryRequest::AllocateLow {
            context: CONTEXTS as u64,
            bytes: 1,
        };
        assert_eq!(
            MemoryRequest::decode(request.encode()),
            Err(WireError::Unknown("context"))
        );
    }

    proptest! {
        #[test]
        fn any_numbers_are_a_request_or_refused(kind in 0u64..30, context in 0u64..20, rest: [u64; 4]) {
            let [a, b, c, d] = rest;
            let words = [kind, context, a, b, c, d];
            if let Ok(request) = MemoryRequest::decode(words) {
                let again = MemoryRequest::decode(request.encode());
                prop_assert_eq!(again, Ok(request));
            }
        }
    }
}
