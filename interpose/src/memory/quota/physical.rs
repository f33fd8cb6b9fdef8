//! Physical memory without an address (`cuMemCreate`), charged from its creation until its last
//! name and mapping are gone, when the driver frees it. Imported handles are not here: their memory
//! is charged to its creator.

use std::collections::BTreeMap;
use std::sync::Mutex;

use abi::types::{CUdeviceptr, CUmemGenericAllocationHandle, CUresult};
use protocol::ledger::Kind;

use super::Charge;

use crate::platform::sys::locked;
use crate::process::account::{self, DeviceAccount};

/// Memory, with any number of names.
struct Memory {
    account: &'static DeviceAccount,
    bytes: u64,
    /// How often it must be released.
    names: u64,
    mappings: u64,
}

struct Table {
    /// By our own number: a handle may be reused while its memory is still mapped.
    memories: BTreeMap<u64, Memory>,
    handles: BTreeMap<u64, u64>,
    /// Mappings by address: length, and number of the memory.
    mappings: BTreeMap<u64, (u64, u64)>,
    last: u64,
}

/// The name and mappings that an imminent call removes; [`Physical::handle_taken`] must follow.
#[derive(Default)]
pub(crate) struct Taken {
    name: Option<(u64, u64)>,
    mappings: Vec<(u64, u64, u64)>,
}

pub(crate) struct Physical(Mutex<Table>);

impl Physical {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Table {
            memories: BTreeMap::new(),
            handles: BTreeMap::new(),
            mappings: BTreeMap::new(),
            last: 0,
        }))
    }

    pub(crate) fn handle_created(
        &self,
        charge: &Charge,
        result: CUresult,
        handle: Option<CUmemGenericAllocationHandle>,
    ) {
        let Some((account, handle)) = charge
            .account()
            .zip(handle.filter(|_| result == CUresult::SUCCESS))
        else {
            charge.settle(result, None);
            return;
        };
        let table = &mut *locked(&self.0);
        table.last += 1;
        let memory = Memory {
            account,
            bytes: charge.bytes.get(),
            names: 1,
            mappings: 0,
        };
        table.memories.insert(table.last, memory);
        table.handles.insert(handle.0, table.last);
    }

    /// A name is about to be released; removed first: another thread may get the handle.
    pub(crate) fn take_name(&self, handle: CUmemGenericAllocationHandle) -> Taken {
        if !account::is_any() {
            return Taken::default();
        }
        let table = &mut *locked(&self.0);
        let name = table.handles.get(&handle.0).copied();
        if let Some(number) = name
            && let Some(memory) = table.memories.get_mut(&number)
        {
            memory.names = memory.names.saturating_sub(1);
            if memory.names == 0 {
                table.handles.remove(&handle.0);
            }
        }
        Taken {
            name: name.map(|number| (handle.0, number)),
            mappings: Vec::new(),
        }
    }

    pub(crate) fn take_mappings(&self, address: CUdeviceptr, bytes: usize) -> Taken {
        if !account::is_any() {
            return Taken::default();
        }
        let table = &mut *locked(&self.0);
        let range = address.0..address.0.saturating_add(bytes as u64);
        let mappings = table.mappings.extract_if(range, |_, _| true);
        Taken {
            name: None,
            mappings: mappings
                .map(|(start, (bytes, number))| (start, bytes, number))
                .collect(),
        }
    }

    pub(crate) fn handle_taken(&self, taken: &Taken, result: CUresult) {
        if taken.name.is_none() && taken.mappings.is_empty() {
            return;
        }
        let table = &mut *locked(&self.0);
        if result == CUresult::SUCCESS {
            for (_, _, number) in &taken.mappings {
                if let Some(memory) = table.memories.get_mut(number) {
                    memory.mappings = memory.mappings.saturating_sub(1);
                }
            }
            let numbers = taken.mappings.iter().map(|(_, _, number)| *number);
            for number in numbers.chain(taken.name.map(|(_, number)| number)) {
                table.give_back_if_over(number);
            }
            return;
        }
        if let Some((handle, number)) = taken.name
            && let Some(memory) = table.memories.get_mut(&number)
        {
            memory.names += 1;
            table.handles.insert(handle, number);
        }
        for (start, bytes, number) in &taken.mappings {
            table.mappings.insert(*start, (*bytes, *number));
        }
    }

    pub(crate) fn handle_mapped(
        &self,
        address: CUdeviceptr,
        bytes: usize,
        handle: CUmemGenericAllocationHandle,
        result: CUresult,
    ) {
        if result != CUresult::SUCCESS || !account::is_any() {
            return;
        }
        let table = &mut *locked(&self.0);
        if let Some(number) = table.handles.get(&handle.0).copied()
            && let Some(memory) = table.memories.get_mut(&number)
        {
            memory.mappings += 1;
            table.mappings.insert(address.0, (bytes as u64, number));
        }
    }

    /// The memory mapped around an address has one more name.
    pub(crate) fn handle_retained(
        &self,
        address: u64,
        handle: Option<CUmemGenericAllocationHandle>,
    ) {
        let Some(handle) = handle.filter(|_| account::is_any()) else {
            return;
        };
        let table = &mut *locked(&self.0);
        let Some((&start, &(bytes, number))) = table.mappings.range(..=address).next_back() else {
            return;
        };
        if address - start < bytes
            && let Some(memory) = table.memories.get_mut(&number)
        {
            memory.names += 1;
            table.handles.insert(handle.0, number);
        }
    }
}

impl Table {
    fn give_back_if_over(&mut self, number: u64) {
        let is_over = |memory: &Memory| memory.names == 0 && memory.mappings == 0;
        if self.memories.get(&number).is_some_and(is_over)
            && let Some(memory) = self.memories.remove(&number)
        {
            memory.account.release(Kind::Physical, memory.bytes);
        }
    }
}
