//! What the application's handles mean.
//!
//! A handle is a number that was never given out before; one that is not in its table is invalid,
//! and nothing else can come of it.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use abi::types::CUresult;
use softgpu::Builtin;
use softgpu::module_image::ImageKernel;
use softgpu::wire::{EVENTS, STREAMS, StreamKind};

use crate::link::Link;
use crate::ranges::Ranges;

/// First handle, and the distance of handles: they look like addresses of aligned things, and none
/// is a default stream.
const HANDLE_STEP: u64 = 0x100;

/// All that the process has made.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    handle_last: u64,
    pub(crate) primary: Primary,
    pub(crate) contexts: HashMap<u64, Context>,
    pub(crate) streams: HashMap<u64, Stream>,
    pub(crate) slots: StreamSlots,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) event_slots: EventSlots,
    /// Number of the last event record.
    pub(crate) record_last: u64,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Function>,
    /// Device memory by address.
    pub(crate) device: Ranges<DeviceBlock>,
    /// The host arena by offset.
    pub(crate) host: Ranges<HostBlock>,
}

/// The device's primary context.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    pub(crate) retained: u32,
    pub(crate) flags: u32,
    pub(crate) context: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Slot at the server.
    pub(crate) slot: u32,
    pub(crate) flags: u32,
    /// Handle of its legacy default stream.
    pub(crate) legacy: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// Slot at the server.
    pub(crate) slot: u32,
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) kind: StreamKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) slot: u32,
    pub(crate) context: u64,
    pub(crate) flags: u32,
    /// Its last record, if there was one.
    pub(crate) last: Option<Point>,
}

/// A place in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Slot of the stream.
    pub(crate) stream: u32,
    pub(crate) seq: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    pub(crate) kernels: Arc<HashMap<String, ImageKernel>>,
    /// Handles of the functions that were asked for.
    pub(crate) functions: HashMap<String, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) context: u64,
    pub(crate) name: Arc<CString>,
    pub(crate) kernel: Arc<Kernel>,
    /// Dynamic shared memory that a block may have; settable.
    pub(crate) dynamic_shared_bytes_max: u32,
}

/// What a function does.
#[derive(Debug)]
pub(crate) enum Kernel {
    Computes(Builtin),
    TakesTime(ImageKernel),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceBlock {
    pub(crate) context: u64,
    /// Unique in this process.
    pub(crate) id: u64,
}

/// What a part of the host arena is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostBlock {
    /// The application's.
    Pinned { context: u64, id: u64 },
    /// Ours, until a copy is complete.
    Staged { until: Point },
    /// Ours, while a thread fills or reads it.
    Busy,
}

impl Tables {
    /// A handle that nothing has.
    pub(crate) fn new_handle(&mut self) -> u64 {
        self.handle_last += HANDLE_STEP;
        self.handle_last
    }

    /// Forgets what belongs to a context, which the server has forgotten. Its events' and streams'
    /// slots are free again.
    pub(crate) fn forget_context(&mut self, handle: u64) {
        self.contexts.remove(&handle);
        let slots = &mut self.slots;
        self.streams.retain(|_, stream| {
            let keep = stream.context != handle;
            if !keep {
                slots.release(stream.slot);
            }
            keep
        });
        let event_slots = &mut self.event_slots;
        self.events.retain(|_, event| {
            let keep = event.context != handle;
            if !keep {
                event_slots.release(event.slot);
            }
            keep
        });
        self.modules.retain(|_, module| module.context != handle);
        self.functions
            .retain(|_, function| function.context != handle);
        self.device.retain(|block| block.context != handle);
        self.host.retain(
            |block| !matches!(block, HostBlock::Pinned { context, .. } if *context == handle),
        );
    }
}

/// The server's table of streams, from this side.
#[derive(Debug)]
pub(crate) struct StreamSlots {
    /// Last command put on each slot, over all the streams it was.
    submitted: Vec<u64>,
    /// Slots of no stream, or of one that is being destroyed.
    free: Vec<u32>,
}

impl Default for StreamSlots {
    fn default() -> Self {
        Self {
            submitted: vec![0; STREAMS],
            free: (0..STREAMS as u32).rev().collect(),
        }
    }
}

impl StreamSlots {
    /// A slot all of whose commands are complete.
    pub(crate) fn take(&mut self, link: &Link) -> Result<u32, CUresult> {
        let drained = |&slot: &u32| link.is_complete(slot, self.submitted[slot as usize]);
        let index = self
            .free
            .iter()
            .rposition(drained)
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        Ok(self.free.swap_remove(index))
    }

    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Number of the last command.
    pub(crate) fn submitted(&self, slot: u32) -> u64 {
        self.submitted[slot as usize]
    }

    /// A command was put.
    pub(crate) fn advance(&mut self, slot: u32) {
        self.submitted[slot as usize] += 1;
    }
}

/// The server's table of events, from this side.
#[derive(Debug, Default)]
pub(crate) struct EventSlots {
    used: u32,
    free: Vec<u32>,
}

impl EventSlots {
    pub(crate) fn take(&mut self) -> Result<u32, CUresult> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        if self.used as usize >= EVENTS {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        self.used += 1;
        Ok(self.used - 1)
    }

    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }
}
