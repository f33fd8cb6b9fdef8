//! One client process in the server: its pages, memory, contexts and streams.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::pages::BellPage;
use protocol::segment::Mapping;
use softgpu::wire::{
    CONTEXTS, DevicePage, Extent, HOST_ARENA_BYTES, HostArena, PARAMS, STREAMS, Spot, StreamKind,
    Work,
};
use softgpu::{Builtin, ContextId, ContextUtilisation, Fault, KernelShape, Memory, StreamId};

use crate::device_memory::DeviceMemory;
use crate::label::Counters;
use crate::shared::Shared;
use crate::store::Account;
use crate::world::Holdings;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) label: String,
    pub(crate) pid: Option<u32>,
    pub(crate) uid: Option<u32>,
    /// The pid of the MPS server of its contexts, if MPS is managed.
    pub(crate) mps_server: Option<u32>,
    pub(crate) memory: Account,
    /// Use by its destroyed contexts.
    pub(crate) used_gone: ContextUtilisation,
    /// The command ring and its results.
    pub(crate) page: Mapping<Shared<DevicePage>>,
    /// Rung when a command completes that a thread waits for.
    pub(crate) bell: Mapping<BellPage>,
    pub(crate) space: AddressSpace,
    /// Its memory objects other than addresses.
    pub(crate) holdings: Holdings,
    pub(crate) contexts: [Option<Context>; CONTEXTS],
    pub(crate) streams: Vec<Option<Stream>>,
    /// Nodes of the launchable graphs, by slot.
    pub(crate) graphs: HashMap<u32, Vec<Work>>,
    /// Number of nodes in all of these.
    pub(crate) graph_nodes: usize,
    /// The model's operation that holds the stream of each host call, by the call's number.
    pub(crate) host_calls: HashMap<u64, (StreamId, u64)>,
    /// Shut down to notify a client that it is no longer served.
    pub(crate) socket: Arc<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct AddressSpace {
    pub(crate) device: DeviceMemory,
    pub(crate) host: Mapping<Shared<HostArena>>,
    /// Address of the client's mapping of its arena; 0 before the client reports it.
    pub(crate) host_base: u64,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) id: ContextId,
    pub(crate) legacy: Option<u32>,
    /// Slots of its blocking streams, including those being destroyed.
    pub(crate) blocking: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) context: u32,
    pub(crate) kind: StreamKind,
    /// Operations submitted to the model and incomplete, in order.
    pub(crate) pending: VecDeque<Pending>,
    /// Number of the client's commands among these.
    pub(crate) commands: u64,
    /// Operation of the legacy stream that this one waits for already.
    pub(crate) legacy_awaited: u64,
    /// Operation of this stream that the legacy stream waits for already.
    pub(crate) awaited_by_legacy: u64,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) gpu_seq: u64,
    /// The client's number, unless it is one of the server's own orderings.
    pub(crate) seq: Option<u64>,
    pub(crate) effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Bytes are copied, memory is filled, or a value is written.
    Memory(Work),
    /// An allocation is freed.
    Free { address: u64 },
    /// A kernel is complete, and computes if it can.
    Kernel {
        builtin: Option<Builtin>,
        params: [u64; PARAMS],
        /// Whether it is a graph's node, counted separately.
        is_node: bool,
        /// For the recorder.
        blocks: u64,
        /// For the recorder.
        threads: u32,
    },
    /// An event is reached.
    Event { event: u32, record: u64 },
    /// A host call is due.
    HostCall { call: u64 },
}

impl Effect {
    pub(crate) fn kernel(
        shape: &KernelShape,
        builtin: Option<Builtin>,
        params: [u64; PARAMS],
        is_node: bool,
    ) -> Self {
        Self::Kernel {
            builtin,
            params,
            is_node,
            blocks: shape.grid_blocks,
            threads: shape.threads_per_block,
        }
    }

    /// Whether the device is busy with it meanwhile, rather than waiting.
    fn is_work(&self) -> bool {
        match self {
            Self::Memory(work) => !matches!(work, Work::WriteValue { .. }),
            Self::Kernel { .. } => true,
            Self::None | Self::Free { .. } | Self::Event { .. } | Self::HostCall { .. } => false,
        }
    }
}

impl Client {
    pub(crate) fn new(
        (label, pid): (String, Option<u32>),
        memory: Account,
        page: Mapping<Shared<DevicePage>>,
        bell: Mapping<BellPage>,
        host: Mapping<Shared<HostArena>>,
        socket: Arc<OwnedFd>,
    ) -> Self {
        let holdings = Holdings::new(&memory);
        Self {
            label,
            pid,
            uid: None,
            mps_server: None,
            memory,
            used_gone: ContextUtilisation::default(),
            page,
            bell,
            space: AddressSpace {
                device: DeviceMemory::default(),
                host,
                host_base: 0,
            },
            holdings,
            contexts: [const { None }; CONTEXTS],
            streams: (0..STREAMS).map(|_| None).collect(),
            graphs: HashMap::new(),
            graph_nodes: 0,
            host_calls: HashMap::new(),
            socket,
        }
    }

    pub(crate) fn add_counts_to(&self, counters: &mut Counters) {
        let add = |to: &mut u64, word: &AtomicU64| {
            *to = to.saturating_add(word.load(Ordering::Relaxed));
        };
        add(&mut counters.not_supported, &self.page.not_supported);
        add(&mut counters.launches_captured, &self.page.captured);
    }

    /// Whether the device has incomplete work of this client. A context with an error has none.
    pub(crate) fn has_work_in_flight(&self) -> bool {
        let is_served = |context: u32| {
            let error = &self.page.errors.0[context as usize];
            error.load(Ordering::Relaxed) == 0
        };
        let streams = self.streams.iter().flatten();
        let mut streams = streams.filter(|stream| is_served(stream.context));
        streams.any(|stream| stream.pending.iter().any(|op| op.effect.is_work()))
    }

    /// Sets a context's error; the first one stays.
    pub(crate) fn fail_context(&self, context: u32, code: u32) {
        let error = &self.page.errors.0[context as usize];
        let _ = error.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn streams_of(&self, context: u32) -> Vec<u32> {
        (0u32..)
            .zip(&self.streams)
            .filter(|(_, stream)| {
                stream
                    .as_ref()
                    .is_some_and(|stream| stream.context == context)
            })
            .map(|(slot, _)| slot)
            .collect()
    }
}

/// Most bytes in the server's buffer at a time.
const STRIP_BYTES: u64 = 1 << 20;

impl AddressSpace {
    /// The effect of completed work on memory.
    pub(crate) fn apply(&mut self, work: &Work) -> Result<(), Fault> {
        match *work {
            Work::Copy {
                to, from, bytes, ..
            } => self.copy(to, from, bytes),
            Work::Set {
                to,
                width_bytes,
                value,
                count,
            } => self.set(to, width_bytes, value, count),
            Work::CopyBox {
                to, from, extent, ..
            } => self.copy_box(to, from, extent),
            Work::SetBox {
                to,
                width_bytes,
                value,
                extent,
            } => self.set_box(to, width_bytes, value, extent),
            Work::WriteValue {
                to,
                width_bytes,
                value,
            } => self.write(to, &value.to_le_bytes()[..width_bytes as usize]),
            _ => Ok(()),
        }
    }

    pub(crate) fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), Fault> {
        let mut strip = vec![0; bytes.min(STRIP_BYTES) as usize];
        let mut done = 0;
        while done < bytes {
            let strip = &mut strip[..(bytes - done).min(STRIP_BYTES) as usize];
            self.read(from.checked_add(done).ok_or(Fault)?, strip)?;
            self.write(to.checked_add(done).ok_or(Fault)?, strip)?;
            done += strip.len() as u64;
        }
        Ok(())
    }

    /// Fills memory with `count` values of 1, 2 or 4 bytes.
    pub(crate) fn set(
        &mut self,
        to: u64,
        width_bytes: u32,
        value: u32,
        count: u64,
    ) -> Result<(), Fault> {
        let pattern = value.to_le_bytes();
        let pattern = &pattern[..width_bytes as usize];
        let bytes = count.checked_mul(width_bytes.into()).ok_or(Fault)?;
        let strip = pattern.repeat(bytes.min(STRIP_BYTES) as usize / pattern.len());
        let mut done = 0;
        while done < bytes {
            let strip = &strip[..(bytes - done).min(STRIP_BYTES) as usize];
            self.write(to.checked_add(done).ok_or(Fault)?, strip)?;
            done += strip.len() as u64;
        }
        Ok(())
    }

    /// Copies rows; see [`softgpu::wire::Extent`].
    pub(crate) fn copy_box(&mut self, to: Spot, from: Spot, extent: Extent) -> Result<(), Fault> {
        for row in 0..extent.rows().ok_or(Fault)? {
            self.copy(to.row(&extent, row), from.row(&extent, row), extent.width)?;
        }
        Ok(())
    }

    /// Fills rows, each a multiple of the value.
    pub(crate) fn set_box(
        &mut self,
        to: Spot,
        width_bytes: u32,
        value: u32,
        extent: Extent,
    ) -> Result<(), Fault> {
        let count = extent.width / u64::from(width_bytes);
        for row in 0..extent.rows().ok_or(Fault)? {
            self.set(to.row(&extent, row), width_bytes, value, count)?;
        }
        Ok(())
    }

    /// Offset in the host arena, if the address lies there.
    fn host_offset(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.host_base)?;
        (self.host_base != 0 && offset < HOST_ARENA_BYTES).then_some(offset)
    }
}

impl Memory for AddressSpace {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        match self.host_offset(address) {
            Some(offset) => self.host.read(offset, to).then_some(()).ok_or(Fault),
            None => self.device.read(address, to),
        }
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        match self.host_offset(address) {
            Some(offset) => self.host.write(offset, from).then_some(()).ok_or(Fault),
            None => self.device.write(address, from),
        }
    }
}
