//! Green contexts: they share a primary context's memory and code and have their own streams. The
//! device model does not partition SMs: a green context's SMs are stored, reported and added up,
//! but its kernels run on all SMs. Its own default stream waits for no other.

use std::sync::atomic::{AtomicU32, Ordering};

use abi::types::{CUdevResource, CUdevResourceType, CUdevice, CUresult};
use softgpu::wire::StreamKind;

use crate::driver::Driver;
use crate::tables::{Context, Green, Resources};

/// Marks a resource as ours, in its internal bytes.
const OURS: [u8; 8] = *b"softgpu1";
/// Reduces minimum and alignment to single SMs.
const IGNORE_COSCHEDULING: u32 = 1;
/// Clusters of the greatest size: the model has none.
const MAX_CLUSTER: u32 = 2;
/// Creates the default stream, which every green context has here.
const DEFAULT_STREAM: u32 = 1;
/// Most resources of one descriptor.
const RESOURCES_MAX: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Sms {
    device: usize,
    /// Number of the split that made it; 0 if it was not split.
    split: u32,
    count: u32,
}

impl Driver {
    pub(crate) fn device_resource(
        &self,
        device: CUdevice,
        kind: CUdevResourceType,
    ) -> Result<CUdevResource, CUresult> {
        let index = self.check_device(device)?;
        let count = self.gpu(device)?.device.sms;
        self.resource(index, count, kind)
    }

    pub(crate) fn context_resource(
        &self,
        context: u64,
        kind: CUdevResourceType,
    ) -> Result<CUdevResource, CUresult> {
        let Context { device, green, .. } = self.context(context)?;
        match green {
            Some(green) => self.resource(device, green.sms, kind),
            None => self.device_resource(CUdevice(device as i32), kind),
        }
    }

    fn resource(
        &self,
        device: usize,
        count: u32,
        kind: CUdevResourceType,
    ) -> Result<CUdevResource, CUresult> {
        if kind != CUdevResourceType::SM {
            return Err(CUresult::INVALID_RESOURCE_TYPE);
        }
        Ok(self.written(Sms {
            device,
            split: 0,
            count,
        }))
    }

    /// Splits a resource into `groups` of equal size, of at least `least` SMs each. Returns the
    /// groups' size, their number, and the remaining SMs.
    pub(crate) fn split(
        &self,
        input: &CUdevResource,
        groups: Option<u32>,
        flags: u32,
        least: u32,
    ) -> Result<(Vec<CUdevResource>, CUdevResource, u32), CUresult> {
        static SPLITS: AtomicU32 = AtomicU32::new(0);
        let sms = read(input)?;
        if flags & !(IGNORE_COSCHEDULING | MAX_CLUSTER) != 0 || least > sms.count {
            return Err(CUresult::INVALID_VALUE);
        }
        // The result of a split cannot be split again.
        if sms.split != 0 {
            return Err(CUresult::INVALID_RESOURCE_CONFIGURATION);
        }
        let (minimum, alignment) = match flags & IGNORE_COSCHEDULING {
            0 => self.granularity(sms.device),
            _ => (1, 1),
        };
        let size = least.max(minimum).next_multiple_of(alignment);
        let possible = sms.count / size;
        if possible == 0 {
            return Err(CUresult::INVALID_RESOURCE_CONFIGURATION);
        }
        let made = groups.map_or(possible, |wanted| wanted.min(possible));
        // Relaxed: the numbers must only differ, and order nothing.
        let split = SPLITS.fetch_add(1, Ordering::Relaxed) + 1;
        let part = |count| {
            self.written(Sms {
                count,
                split,
                ..sms
            })
        };
        let results = groups.map_or(0, |_| made) as usize;
        let left = sms.count - made * size;
        Ok((vec![part(size); results], part(left), made))
    }

    /// Minimum and alignment of a partition in SMs, by architecture as NVIDIA documents them.
    fn granularity(&self, device: usize) -> (u32, u32) {
        match self.gpus[device].device.compute_capability.major {
            ..=6 => (1, 1),
            7 => (2, 2),
            8 => (4, 2),
            _ => (8, 8),
        }
    }

    /// Creates a descriptor of resources, which lives as long as the process.
    pub(crate) fn describe_resources(
        &self,
        count: u32,
        at: impl Fn(usize) -> Result<CUdevResource, CUresult>,
    ) -> Result<u64, CUresult> {
        if count == 0 || count > RESOURCES_MAX {
            return Err(CUresult::INVALID_VALUE);
        }
        let first = read(&at(0)?)?;
        let mut sms = first.count;
        for index in 1..count as usize {
            let other = read(&at(index)?)?;
            if other.device != first.device || other.split != first.split || other.split == 0 {
                return Err(CUresult::INVALID_RESOURCE_CONFIGURATION);
            }
            sms += other.count;
        }
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        let device = first.device;
        tables.resources.insert(handle, Resources { device, sms });
        Ok(handle)
    }

    /// Creates a green context, which retains its device's primary context; returns its handle.
    pub(crate) fn create_green(
        &self,
        resources: u64,
        device: CUdevice,
        flags: u32,
    ) -> Result<u64, CUresult> {
        let device = self.check_device(device)?;
        let known = self.tables.lock().resources.get(&resources).copied();
        let Resources { device: of, sms } = known.ok_or(CUresult::INVALID_VALUE)?;
        if of != device || flags & !DEFAULT_STREAM != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let primary = self.retain_primary(device)?;
        let made = self.context(primary).and_then(|base| {
            let (handle, context) = {
                let mut tables = self.tables.lock();
                let (handle, context) = (tables.new_handle(), tables.new_handle());
                let green = Some(Green {
                    handle,
                    primary,
                    sms,
                });
                tables.contexts.insert(
                    context,
                    Context {
                        green,
                        is_locked: false,
                        ..base
                    },
                );
                (handle, context)
            };
            let stream = self.create_stream(context, 0, 0, StreamKind::NonBlocking);
            let mut tables = self.tables.lock();
            match stream {
                Ok(stream) => {
                    if let Some(context) = tables.contexts.get_mut(&context) {
                        context.legacy = stream;
                    }
                    Ok(handle)
                }
                Err(error) => {
                    tables.contexts.remove(&context);
                    Err(error)
                }
            }
        });
        if made.is_err() {
            self.release_primary(device)?;
        }
        made
    }

    pub(crate) fn context_of_green(&self, handle: u64) -> Result<u64, CUresult> {
        let tables = self.tables.lock();
        let mut contexts = tables.contexts.iter();
        let found =
            contexts.find(|(_, context)| context.green.is_some_and(|green| green.handle == handle));
        found
            .map(|(&context, _)| context)
            .ok_or(CUresult::INVALID_CONTEXT)
    }

    /// Waits for a green context's work and destroys it. Its streams can then only be destroyed.
    pub(crate) fn destroy_green(&'static self, handle: u64) -> Result<(), CUresult> {
        let context = self.context_of_green(handle)?;
        let Context { device, legacy, .. } = self.context(context)?;
        // Errors do not prevent its destruction.
        let _ = self.synchronise_context(context);
        self.destroy_stream(legacy)?;
        self.tables.lock().contexts.remove(&context);
        self.release_primary(device)
    }

    fn written(&self, sms: Sms) -> CUdevResource {
        let mut internal = [0; 92];
        internal[..8].copy_from_slice(&OURS);
        internal[8..12].copy_from_slice(&(sms.device as u32).to_le_bytes());
        internal[12..16].copy_from_slice(&sms.split.to_le_bytes());
        let (minimum, alignment) = self.granularity(sms.device);
        CUdevResource {
            kind: match sms.count {
                0 => CUdevResourceType::INVALID,
                _ => CUdevResourceType::SM,
            },
            internal,
            sm_count: sms.count,
            min_sm_partition_size: minimum,
            sm_coscheduled_alignment: alignment,
            rest: [0; 28],
            next: 0,
        }
    }
}

fn read(resource: &CUdevResource) -> Result<Sms, CUresult> {
    if resource.kind != CUdevResourceType::SM {
        return Err(CUresult::INVALID_RESOURCE_TYPE);
    }
    let (ours, rest) = resource.internal.split_at(8);
    if ours != OURS {
        return Err(CUresult::INVALID_VALUE);
    }
    let number =
        |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    Ok(Sms {
        device: number(0) as usize,
        split: number(4),
        count: resource.sm_count,
    })
}
