//! The application's memory objects other than addresses: pools, handles, address space, arrays,
//! registered host memory, opened memory of other processes.

use std::collections::HashMap;

use abi::types::CUDA_ARRAY3D_DESCRIPTOR;
use abi::types::CUmemAllocFlags;

use crate::managed::Advice;
use crate::ranges::Ranges;
use crate::tables::Point;

#[derive(Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) pools: HashMap<u64, Pool>,
    pub(crate) default_pools: HashMap<usize, u64>,
    /// Handle of each device's current pool, if it is not the default.
    pub(crate) current_pools: HashMap<usize, u64>,
    pub(crate) freeing: Vec<Point>,
    pub(crate) handles: HashMap<u64, Physical>,
    /// Address space without memory.
    pub(crate) reserved: Ranges<()>,
    pub(crate) arrays: HashMap<u64, Array>,
    pub(crate) mipmaps: HashMap<u64, Mipmap>,
    pub(crate) registered: Ranges<Registered>,
    /// Opened memory of other processes: its first address and its open count.
    pub(crate) opened: HashMap<u128, (u64, u32)>,
    /// Destroyed shared events that streams may still reach.
    pub(crate) ended_events: Vec<EndedEvent>,
    /// Devices whose addresses below 4 GiB are reserved in this process.
    pub(crate) low: Vec<usize>,
    /// Advice about managed memory, by its first address.
    pub(crate) advice: HashMap<u64, Vec<Advice>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    /// Its number at the server.
    pub(crate) number: u64,
    pub(crate) threshold: u64,
    /// Attributes 1 to 3, see `CUmemPool_attribute`: stored only, as nothing here depends on them.
    pub(crate) reuse: [i32; 3],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Physical {
    pub(crate) device: usize,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) wishes: Wishes,
    /// Number of releases required.
    pub(crate) names: u64,
}

/// Requested properties of physical memory other than size and location.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) handle_types: u32,
    pub(crate) flags: CUmemAllocFlags,
}

/// An array, or a level of a mipmapped one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) context: u64,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    /// Address of its elements on the device, row after row without gaps.
    pub(crate) start: u64,
    /// The mipmapped array of which it is a level; such an array cannot be destroyed alone.
    pub(crate) parent: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Mipmap {
    pub(crate) context: u64,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) start: u64,
    /// Handles of its levels; 0 for a level not requested yet.
    pub(crate) levels: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct EndedEvent {
    pub(crate) context: u64,
    /// Address of its first word.
    pub(crate) address: u64,
    /// Whether another process created it.
    pub(crate) is_opened: bool,
    /// Points that must be complete first.
    pub(crate) behind: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub(crate) context: u64,
    pub(crate) id: u64,
    pub(crate) flags: u32,
}

impl Holdings {
    pub(crate) fn forget_context(&mut self, context: u64) {
        self.arrays.retain(|_, array| array.context != context);
        self.mipmaps.retain(|_, mipmap| mipmap.context != context);
        self.registered.retain(|host| host.context != context);
        self.ended_events.retain(|ended| ended.context != context);
    }
}
