//! The objects behind the application's handles. A handle is a number that was never used before;
//! one that is not in its table is invalid, with no other consequence. (For tests, handles of
//! functions and kernels can be reused.)

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

use abi::types::{CUmemAccess_flags, CUresult};
use softgpu::Builtin;
use softgpu::module_image::ImageKernel;
use softgpu::wire::{CONTEXTS, EVENTS, STREAMS, StreamKind};

use crate::captures::Captures;
use crate::graphs::Graphs;
use crate::holdings::{Holdings, Physical};
use crate::images::{Image, Traits};
use crate::libraries::Libraries;
use crate::link::Link;
use crate::linking::Linkings;
use crate::ranges::Ranges;
use crate::shared_events::Words;

/// First handle, and the distance of handles: like aligned addresses, and never a default stream.
pub(crate) const HANDLE_STEP: u64 = 0x100;

#[derive(Debug)]
pub(crate) struct Tables {
    handle_last: u64,
    /// Handles of removed functions and kernels, if they are reused.
    ended: Vec<u64>,
    pub(crate) primaries: Vec<Primary>,
    pub(crate) contexts: HashMap<u64, Context>,
    /// Descriptors of resources, which live as long as the process.
    pub(crate) resources: HashMap<u64, Resources>,
    pub(crate) streams: HashMap<u64, Stream>,
    pub(crate) slots: StreamSlots,
    /// Streams destroyed with work in flight, and their last commands.
    draining: Vec<(Stream, Point)>,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) event_slots: EventSlots,
    /// Number of the last event record.
    pub(crate) record_last: u64,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Function>,
    pub(crate) libraries: Libraries,
    pub(crate) linkings: Linkings,
    pub(crate) holdings: Holdings,
    pub(crate) graphs: Graphs,
    pub(crate) captures: Captures,
    pub(crate) device: Ranges<DeviceBlock>,
    pub(crate) host: Ranges<HostBlock>,
}

#[derive(Debug, Default)]
pub(crate) struct Primary {
    pub(crate) retained: u32,
    pub(crate) flags: u32,
    pub(crate) context: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) slot: u32,
    pub(crate) flags: u32,
    pub(crate) legacy: u64,
    /// Number of attaches minus detaches; 1 at creation.
    pub(crate) attached: u32,
    /// Set for a green context.
    pub(crate) green: Option<Green>,
    /// Whether a thread waits for room in one of its streams.
    pub(crate) is_locked: bool,
}

/// A green context's own parts, besides its default stream: the rest is its primary context's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Green {
    pub(crate) handle: u64,
    pub(crate) primary: u64,
    pub(crate) sms: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Resources {
    pub(crate) device: usize,
    pub(crate) sms: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) slot: u32,
    /// The context whose memory and code it uses; never a green context.
    pub(crate) context: u64,
    pub(crate) green: Option<u64>,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) kind: StreamKind,
    /// Unique in this process; not a handle.
    pub(crate) id: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) slot: u32,
    pub(crate) context: u64,
    pub(crate) flags: u32,
    /// Its last record by this process, if there was one.
    pub(crate) last: Option<Point>,
    pub(crate) shared: Option<Words>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) stream: u32,
    pub(crate) seq: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    pub(crate) image: Arc<Image>,
    pub(crate) library: Option<u64>,
    pub(crate) functions: HashMap<String, u64>,
    pub(crate) globals: HashMap<String, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) context: u64,
    pub(crate) module: u64,
    pub(crate) name: Arc<CString>,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) traits: Arc<Traits>,
    /// Most dynamic shared memory of a block; settable.
    pub(crate) dynamic_shared_bytes_max: u32,
    /// Whether that was set for this function itself, not for its kernel.
    pub(crate) is_maximum_set: bool,
}

#[derive(Debug)]
pub(crate) enum Kernel {
    Computes(Builtin),
    TakesTime(ImageKernel),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceBlock {
    /// 0 for a mapping, which has no context.
    pub(crate) context: u64,
    /// Unique in this process.
    pub(crate) id: u64,
    pub(crate) kind: BlockKind,
    /// An attribute that the application may set. It does not affect whether copies wait.
    pub(crate) has_sync_memops: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BlockKind {
    /// Allocated.
    Plain,
    /// Allocated from the pool of this handle.
    Pool(u64),
    /// Of an array, whose address the application does not know.
    Array,
    /// A module's variable.
    Variable,
    /// Of another process, by its token.
    Shared { token: u128 },
    /// Physical memory of this handle, mapped.
    Mapping {
        handle: u64,
        physical: Physical,
        access: CUmemAccess_flags,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HostBlock {
    /// The application's.
    Pinned { context: u64, id: u64, flags: u32 },
    /// The application's; it counts as the device's everywhere.
    Managed { context: u64, id: u64 },
    /// The driver's, until a copy is complete.
    Staged { until: Point },
    /// The driver's, while a thread fills or reads it.
    Busy,
}

impl Stream {
    /// Whether a query or a wait of stream `asked` covers this one: the legacy stream covers the
    /// blocking streams of its context (CUDA driver API, "Stream synchronization behavior").
    pub(crate) fn is_answered_by(&self, asked: &Self) -> bool {
        let is_blocking = self.kind == StreamKind::Blocking && self.context == asked.context;
        self.slot == asked.slot || asked.kind == StreamKind::Legacy && is_blocking
    }

    /// Whether it belongs to that context; a primary one also has its green ones' streams.
    pub(crate) fn is_of(&self, context: u64) -> bool {
        self.context == context || self.green == Some(context)
    }
}

impl Context {
    pub(crate) fn local_slot(&self) -> u64 {
        u64::from(self.slot) % CONTEXTS as u64
    }
}

/// Whether handles of removed code are reused.
fn reuses_handles() -> bool {
    static REUSES: OnceLock<bool> = OnceLock::new();
    *REUSES
        .get_or_init(|| std::env::var_os("SOFTGPU_REUSE_HANDLES").is_some_and(|value| value == "1"))
}

impl Tables {
    /// The device of the context, if a thread waits for room in one of its streams.
    pub(crate) fn locked(&self, context: u64) -> Option<usize> {
        let context = self.contexts.get(&context)?;
        context.is_locked.then_some(context.device)
    }

    /// Sets whether a thread waits for room in a stream of the context.
    pub(crate) fn lock_context(&mut self, context: u64, is_locked: bool) {
        if let Some(context) = self.contexts.get_mut(&context) {
            context.is_locked = is_locked;
        }
    }

    pub(crate) fn new(devices: usize) -> Self {
        Self {
            handle_last: 0,
            ended: Vec::new(),
            primaries: std::iter::repeat_with(Primary::default)
                .take(devices)
                .collect(),
            contexts: HashMap::new(),
            resources: HashMap::new(),
            streams: HashMap::new(),
            slots: StreamSlots::new(devices),
            draining: Vec::new(),
            events: HashMap::new(),
            event_slots: EventSlots::new(devices),
            record_last: 0,
            modules: HashMap::new(),
            functions: HashMap::new(),
            libraries: Libraries::default(),
            linkings: Linkings::default(),
            holdings: Holdings::default(),
            graphs: Graphs::default(),
            captures: Captures::default(),
            device: Ranges::default(),
            host: Ranges::default(),
        }
    }

    pub(crate) fn new_handle(&mut self) -> u64 {
        self.handle_last += HANDLE_STEP;
        self.handle_last
    }

    /// A handle for a function or a kernel: with `SOFTGPU_REUSE_HANDLES=1` that of the last removed
    /// one, as an allocator returns the same address again.
    pub(crate) fn new_code_handle(&mut self) -> u64 {
        self.ended.pop().unwrap_or_else(|| self.new_handle())
    }

    pub(crate) fn end_code_handle(&mut self, handle: u64) {
        if reuses_handles() {
            self.ended.push(handle);
        }
    }

    /// Removes a stream's handle. Its work still executes; then its slot is free.
    pub(crate) fn remove_stream(&mut self, handle: u64, link: &Link) {
        self.draining
            .retain(|(_, last)| !link.is_complete(last.stream, last.seq));
        if let Some(stream) = self.streams.remove(&handle) {
            self.draining.push((stream, self.last_of(&stream)));
        }
    }

    /// The last command of each selected stream, destroyed ones included.
    pub(crate) fn last_commands(
        &self,
        is_asked: impl Fn(&Stream) -> bool,
    ) -> impl Iterator<Item = Point> {
        let open = self.streams.values();
        let open = open.map(|stream| (stream, self.last_of(stream)));
        let draining = self.draining.iter().map(|(stream, last)| (stream, *last));
        open.chain(draining)
            .filter_map(move |(stream, last)| is_asked(stream).then_some(last))
    }

    fn last_of(&self, stream: &Stream) -> Point {
        Point {
            stream: stream.slot,
            seq: self.slots.submitted(stream.slot),
        }
    }

    /// Removes the objects of a context that the server has removed, and frees their slots.
    pub(crate) fn forget_context(&mut self, handle: u64) {
        self.contexts.remove(&handle);
        self.contexts
            .retain(|_, context| context.green.is_none_or(|green| green.primary != handle));
        let (slots, captures) = (&mut self.slots, &mut self.captures);
        self.streams.retain(|_, stream| {
            let keep = stream.context != handle;
            if !keep {
                captures.handle_stream_destroyed(stream.slot);
                slots.release(stream.slot);
            }
            keep
        });
        self.draining.retain(|(stream, _)| stream.context != handle);
        let event_slots = &mut self.event_slots;
        self.events.retain(|_, event| {
            let keep = event.context != handle;
            if !keep {
                event_slots.release(event.slot);
            }
            keep
        });
        self.modules.retain(|_, module| module.context != handle);
        self.libraries.forget_context(handle);
        let in_context = |function: &Function| function.context == handle;
        let functions = self.functions.iter();
        let ended: Vec<u64> = functions
            .filter(|(_, function)| in_context(function))
            .map(|(&function, _)| function)
            .collect();
        for function in ended {
            self.functions.remove(&function);
            self.end_code_handle(function);
        }
        self.device.retain(|block| block.context != handle);
        self.holdings.forget_context(handle);
        let device = &self.device;
        let is_open = |(address, _): &(u64, u32)| device.holding(*address, 1).is_some();
        self.holdings.opened.retain(|_, opened| is_open(opened));
        self.host.retain(
            |block| !matches!(block, HostBlock::Pinned { context, .. } | HostBlock::Managed { context, .. } if *context == handle),
        );
    }
}

/// The driver's view of the servers' tables of streams; slots are counted over all devices.
#[derive(Debug)]
pub(crate) struct StreamSlots {
    /// Last command put on each slot, over all of its streams.
    submitted: Vec<u64>,
    /// By device: slots without a stream, or with one that is being destroyed.
    free: Vec<Vec<u32>>,
}

impl StreamSlots {
    fn new(devices: usize) -> Self {
        let slots = |device: usize| (device * STREAMS) as u32..((device + 1) * STREAMS) as u32;
        Self {
            submitted: vec![0; devices * STREAMS],
            free: (0..devices)
                .map(|device| slots(device).rev().collect())
                .collect(),
        }
    }

    /// Takes a slot on a device, all of whose commands are complete.
    pub(crate) fn take(&mut self, device: usize, link: &Link) -> Result<u32, CUresult> {
        let drained = |&slot: &u32| link.is_complete(slot, self.submitted[slot as usize]);
        let free = &mut self.free[device];
        let index = free
            .iter()
            .rposition(drained)
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        Ok(free.swap_remove(index))
    }

    pub(crate) fn release(&mut self, slot: u32) {
        self.free[slot as usize / STREAMS].push(slot);
    }

    pub(crate) fn submitted(&self, slot: u32) -> u64 {
        self.submitted[slot as usize]
    }

    /// The last command of each slot with incomplete commands.
    pub(crate) fn incomplete(&self, link: &Link) -> Vec<Point> {
        let slots = (0u32..).zip(&self.submitted);
        let last = slots.map(|(stream, &seq)| Point { stream, seq });
        last.filter(|point| !link.is_complete(point.stream, point.seq))
            .collect()
    }

    pub(crate) fn advance(&mut self, slot: u32) {
        self.submitted[slot as usize] += 1;
    }
}

/// The driver's view of the servers' tables of events; slots are counted over all devices.
#[derive(Debug)]
pub(crate) struct EventSlots {
    devices: Vec<DeviceEvents>,
}

#[derive(Clone, Debug, Default)]
struct DeviceEvents {
    used: u32,
    free: Vec<u32>,
}

impl EventSlots {
    fn new(devices: usize) -> Self {
        Self {
            devices: vec![DeviceEvents::default(); devices],
        }
    }

    pub(crate) fn take(&mut self, device: usize) -> Result<u32, CUresult> {
        let events = &mut self.devices[device];
        if let Some(slot) = events.free.pop() {
            return Ok(slot);
        }
        if events.used as usize >= EVENTS {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        events.used += 1;
        Ok((device * EVENTS) as u32 + events.used - 1)
    }

    pub(crate) fn release(&mut self, slot: u32) {
        self.devices[slot as usize / EVENTS].free.push(slot);
    }
}
