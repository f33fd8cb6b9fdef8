//! Allocations by address or handle: each one's charge and account. A block is removed before the
//! driver frees it, because another thread may get the same address from then on, and restored if
//! the driver refuses. Memory allocated unseen is not here; freeing it gives nothing.

use core::hash::{BuildHasherDefault, Hash, Hasher};
use std::collections::HashMap;
use std::sync::Mutex;

use abi::types::{CUarray, CUcontext, CUdeviceptr, CUmipmappedArray, CUresult};
use protocol::ledger::Kind;

use super::HELD;
use crate::platform::sys::locked;
use crate::process::Handle;
use crate::process::account::{self, DeviceAccount};
use crate::progress::contexts::CONTEXTS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Address(u64),
    Array(u64),
    Mipmap(u64),
}

impl From<CUdeviceptr> for Key {
    fn from(address: CUdeviceptr) -> Self {
        Self::Address(address.0)
    }
}

impl From<CUarray> for Key {
    fn from(array: CUarray) -> Self {
        Self::Array(array.0.expose_provenance() as u64)
    }
}

impl From<CUmipmappedArray> for Key {
    fn from(array: CUmipmappedArray) -> Self {
        Self::Mipmap(array.0.expose_provenance() as u64)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Block {
    account: &'static DeviceAccount,
    kind: Kind,
    bytes: u64,
    /// The context that it ends with.
    context: u64,
    /// For memory from a pool: the pool, which is charged in its place.
    pool: Option<u64>,
    /// For a variable: the module or library that it ends with.
    module: Option<u64>,
}

pub(crate) struct Blocks(Mutex<HashMap<Key, Block, BuildHasherDefault<Mixer>>>);

impl Blocks {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())))
    }

    pub(crate) fn keep(&self, key: Key, account: &'static DeviceAccount, kind: Kind, bytes: u64) {
        self.insert(key, account, kind, bytes, None);
    }

    pub(crate) fn keep_of_pool(
        &self,
        address: CUdeviceptr,
        account: &'static DeviceAccount,
        kind: Kind,
        bytes: u64,
        pool: u64,
    ) {
        self.insert(address.into(), account, kind, bytes, Some(pool));
    }

    fn insert(
        &self,
        key: Key,
        account: &'static DeviceAccount,
        kind: Kind,
        bytes: u64,
        pool: Option<u64>,
    ) {
        let context = CONTEXTS.current().map_or(0, |context| context.0);
        let block = Block {
            account,
            kind,
            bytes,
            context,
            pool,
            module: None,
        };
        // An older block here was freed unseen.
        if let Some(old) = locked(&self.0).insert(key, block) {
            give_back(&old);
        }
    }

    /// The application has found a variable of a module, which is in device memory. Charged on
    /// first sight: the driver has allocated it, and nothing reports a module's other variables.
    pub(crate) fn handle_variable(
        &self,
        address: u64,
        account: &'static DeviceAccount,
        bytes: u64,
        module: u64,
    ) {
        let context = CONTEXTS.current().map_or(0, |context| context.0);
        let mut blocks = locked(&self.0);
        let known = blocks.get(&Key::Address(address));
        if known.is_some_and(|block| block.module.is_some()) {
            return;
        }
        account.change(|account| account.take(Kind::Module, bytes));
        let block = Block {
            account,
            kind: Kind::Module,
            bytes,
            context,
            pool: None,
            module: Some(module),
        };
        if let Some(old) = blocks.insert(Key::Address(address), block) {
            drop(blocks);
            give_back(&old);
        }
    }

    /// A module or library is about to be unloaded, with its variables.
    pub(crate) fn take_module(&self, module: u64) -> Vec<(Key, Block)> {
        if !account::is_any() {
            return Vec::new();
        }
        let blocks = &mut *locked(&self.0);
        let its = blocks.extract_if(|_, block| block.module == Some(module));
        its.collect()
    }

    #[inline]
    pub(crate) fn take(&self, key: impl Into<Key>) -> Option<(Key, Block)> {
        if !account::is_any() {
            return None;
        }
        let key = key.into();
        let block = locked(&self.0).remove(&key)?;
        Some((key, block))
    }

    #[inline]
    pub(crate) fn handle_freed(&self, taken: &Option<(Key, Block)>, result: CUresult) {
        match taken {
            Some((_, block)) if result == CUresult::SUCCESS => give_back(block),
            Some((key, block)) => {
                locked(&self.0).insert(*key, *block);
            }
            None => {}
        }
    }

    pub(crate) fn handle_context_destroyed(&self, context: CUcontext) {
        if !account::is_any() {
            return;
        }
        let context = Handle::from(context).0;
        let mut gone = Vec::new();
        locked(&self.0).retain(|_, block| {
            let stays = block.context != context;
            if !stays {
                gone.push((block.account, block.kind, block.bytes, block.pool));
            }
            stays
        });
        for (account, kind, bytes, pool) in gone {
            match pool {
                Some(pool) => HELD.pools.handle_freed(pool, bytes),
                None => account.release(kind, bytes),
            }
        }
    }

    /// A green context is gone. Its allocations belong to the primary context, and end with that.
    pub(crate) fn handle_green_destroyed(&self, green: CUcontext, primary: Option<CUcontext>) {
        if !account::is_any() {
            return;
        }
        let green = Handle::from(green).0;
        let primary = primary.map_or(0, |primary| Handle::from(primary).0);
        let mut blocks = locked(&self.0);
        let its = blocks.values_mut().filter(|block| block.context == green);
        its.for_each(|block| block.context = primary);
    }
}

fn give_back(block: &Block) {
    match block.pool {
        Some(pool) => HELD.pools.handle_freed(pool, block.bytes),
        None => block.account.release(block.kind, block.bytes),
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (Self::Address(word) | Self::Array(word) | Self::Mipmap(word)) = self;
        state.write_u64(*word);
    }
}

/// One multiplication: the keys are addresses chosen by the driver, which nobody can attack.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        // 2^64 / golden ratio; the high bits, which the map uses, then depend on the whole word.
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
