//! Managed memory: accessible to host and device at one address, and the advice about it. It lies
//! in the host arena, which both access, so nothing ever migrates: prefetches and advice are
//! checked, stored and reported, and have no other effect. It counts as the device's everywhere,
//! but takes none of its memory: as in CUDA, it may exceed the device's memory.

use abi::types::{
    CUdevice, CUmem_advise, CUmem_range_attribute, CUmemAttach_flags, CUmemLocation,
    CUmemLocationType, CUresult,
};
use softgpu::wire::MemoryRequest;

use crate::driver::Driver;
use crate::link::Link;
use crate::tables::HostBlock;

/// Most pieces of advice about one allocation.
const ADVICE_MAX: usize = 4096;

/// One piece of advice about a range of managed memory; stored in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advice {
    start: u64,
    end: u64,
    said: Said,
}

#[derive(Clone, Copy, Debug)]
enum Said {
    ReadMostly(bool),
    Preferred(Option<CUmemLocation>),
    AccessedBy(CUmemLocation, bool),
    Prefetched(CUmemLocation),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holds {
    read_mostly: bool,
    preferred: Option<CUmemLocation>,
    accessed_by: Vec<CUmemLocation>,
    prefetched: Option<CUmemLocation>,
}

/// The value of an attribute of a range.
#[derive(Clone, Debug)]
pub(crate) enum RangeAttribute {
    One(i32),
    /// As many as the application has room for, padded with "none".
    Many(Vec<i32>),
}

impl Driver {
    pub(crate) fn allocate_managed(&self, bytes: u64, flags: u32) -> Result<u64, CUresult> {
        let (context, found) = self.current()?;
        let is_known = matches!(
            CUmemAttach_flags(flags),
            CUmemAttach_flags::GLOBAL | CUmemAttach_flags::HOST
        );
        if bytes == 0 || !is_known {
            return Err(CUresult::INVALID_VALUE);
        }
        let Link::Live(live) = &self.link else {
            return Err(CUresult::NOT_SUPPORTED);
        };
        let offset = {
            let mut tables = self.tables.lock();
            let id = tables.new_handle();
            let block = HostBlock::Managed { context, id };
            self.take_host(&mut tables, bytes, block)?
        };
        let request = MemoryRequest::AllocateManaged {
            context: found.local_slot(),
            offset,
            bytes,
        };
        if let Err(error) = self.ask(found.device, request) {
            self.tables.lock().host.remove(offset);
            return Err(error);
        }
        Ok(live.host_base() + offset)
    }

    /// Frees managed memory; `None` if none begins there.
    pub(crate) fn free_managed(&self, address: u64) -> Option<Result<(), CUresult>> {
        let Link::Live(live) = &self.link else {
            return None;
        };
        let offset = address.checked_sub(live.host_base())?;
        let context = {
            let tables = self.tables.lock();
            match tables.host.holding(offset, 1) {
                Some((start, _, &HostBlock::Managed { context, .. })) if start == offset => context,
                _ => return None,
            }
        };
        let free = || {
            self.synchronise_context(context)?;
            let device = self.context(context)?.device;
            self.ask(device, MemoryRequest::FreeManaged { offset })?;
            let mut tables = self.tables.lock();
            tables.holdings.advice.remove(&address);
            if let Some((bytes, _)) = tables.host.remove(offset) {
                live.release_host(offset, bytes);
            }
            Ok(())
        };
        Some(free())
    }

    /// Start of the managed allocation that contains all of a range.
    fn managed_around(&self, address: u64, bytes: u64) -> Result<u64, CUresult> {
        let Link::Live(live) = &self.link else {
            return Err(CUresult::NOT_SUPPORTED);
        };
        let tables = self.tables.lock();
        let offset = address.checked_sub(live.host_base());
        let block = offset.and_then(|offset| tables.host.holding(offset, bytes));
        match block {
            Some((start, _, HostBlock::Managed { .. })) if bytes > 0 => {
                Ok(live.host_base() + start)
            }
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    fn check_place(&self, location: CUmemLocation) -> Result<(), CUresult> {
        match location.kind {
            CUmemLocationType::DEVICE => self.check_device(CUdevice(location.id)).map(|_| ()),
            CUmemLocationType::HOST
            | CUmemLocationType::HOST_NUMA
            | CUmemLocationType::HOST_NUMA_CURRENT => Ok(()),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    fn say(&self, address: u64, bytes: u64, said: Said) -> Result<(), CUresult> {
        let start = self.managed_around(address, bytes)?;
        let mut tables = self.tables.lock();
        let advice = tables.holdings.advice.entry(start).or_default();
        let end = address + bytes;
        // New advice of the same kind for the same range replaces the old.
        advice.retain(|earlier| {
            !(earlier.start >= address && earlier.end <= end && earlier.said.is_about(&said))
        });
        if advice.len() >= ADVICE_MAX {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        advice.push(Advice {
            start: address,
            end,
            said,
        });
        Ok(())
    }

    pub(crate) fn advise(
        &self,
        address: u64,
        bytes: u64,
        advice: CUmem_advise,
        location: CUmemLocation,
    ) -> Result<(), CUresult> {
        use CUmem_advise as A;
        let said = match advice {
            A::SET_READ_MOSTLY => Said::ReadMostly(true),
            A::UNSET_READ_MOSTLY => Said::ReadMostly(false),
            A::SET_PREFERRED_LOCATION => Said::Preferred(Some(location)),
            A::UNSET_PREFERRED_LOCATION => Said::Preferred(None),
            A::SET_ACCESSED_BY => Said::AccessedBy(location, true),
            A::UNSET_ACCESSED_BY => Said::AccessedBy(location, false),
            _ => return Err(CUresult::INVALID_VALUE),
        };
        if matches!(said, Said::Preferred(Some(_)) | Said::AccessedBy(..)) {
            self.check_place(location)?;
        }
        self.say(address, bytes, said)
    }

    /// `cuMemPrefetchAsync`: nothing has to move.
    pub(crate) fn prefetch(
        &self,
        address: u64,
        bytes: u64,
        to: CUmemLocation,
    ) -> Result<(), CUresult> {
        self.check_place(to)?;
        self.say(address, bytes, Said::Prefetched(to))
    }

    /// `cuMemDiscardBatchAsync`: contents become undefined, so they may stay.
    pub(crate) fn discard(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        self.managed_around(address, bytes).map(|_| ())
    }

    pub(crate) fn range_attribute(
        &self,
        attribute: CUmem_range_attribute,
        address: u64,
        bytes: u64,
    ) -> Result<RangeAttribute, CUresult> {
        use CUmem_range_attribute as A;
        let start = self.managed_around(address, bytes)?;
        let advice = {
            let tables = self.tables.lock();
            tables.holdings.advice.get(&start).cloned()
        };
        let holds = pieces(&advice.unwrap_or_default(), address, address + bytes);
        let preferred = agreed(&holds, |piece| piece.preferred);
        let prefetched = agreed(&holds, |piece| piece.prefetched);
        Ok(RangeAttribute::One(match attribute {
            A::READ_MOSTLY => holds.iter().all(|piece| piece.read_mostly).into(),
            A::PREFERRED_LOCATION => ordinal(preferred),
            A::LAST_PREFETCH_LOCATION => ordinal(prefetched),
            A::PREFERRED_LOCATION_TYPE => kind(preferred),
            A::PREFERRED_LOCATION_ID => preferred.map_or(0, |location| location.id),
            A::LAST_PREFETCH_LOCATION_TYPE => kind(prefetched),
            A::LAST_PREFETCH_LOCATION_ID => prefetched.map_or(0, |location| location.id),
            A::ACCESSED_BY => {
                let first = holds.first().map(|piece| piece.accessed_by.clone());
                let by_all = first.unwrap_or_default().into_iter().filter(|location| {
                    holds
                        .iter()
                        .all(|piece| piece.accessed_by.contains(location))
                });
                let ordinals = by_all.map(|location| ordinal(Some(location)));
                return Ok(RangeAttribute::Many(ordinals.collect()));
            }
            _ => return Err(CUresult::INVALID_VALUE),
        }))
    }
}

impl Said {
    /// Whether this overrides the other for the same range.
    fn is_about(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AccessedBy(a, _), Self::AccessedBy(b, _)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// The advice in force in each piece of a range, split where it changes.
fn pieces(advice: &[Advice], start: u64, end: u64) -> Vec<Holds> {
    let ends = advice.iter().flat_map(|advice| [advice.start, advice.end]);
    let mut starts: Vec<u64> = ends.filter(|at| *at > start && *at < end).collect();
    starts.push(start);
    starts.sort_unstable();
    starts.dedup();
    let holds_at = |at: u64| {
        let mut holds = Holds::default();
        for advice in advice.iter().filter(|a| a.start <= at && at < a.end) {
            match advice.said {
                Said::ReadMostly(is) => holds.read_mostly = is,
                Said::Preferred(location) => holds.preferred = location,
                Said::Prefetched(location) => holds.prefetched = Some(location),
                Said::AccessedBy(location, is) => {
                    holds.accessed_by.retain(|known| *known != location);
                    if is {
                        holds.accessed_by.push(location);
                    }
                }
            }
        }
        holds
    };
    starts.into_iter().map(holds_at).collect()
}

/// The location that all pieces share.
fn agreed(holds: &[Holds], of: impl Fn(&Holds) -> Option<CUmemLocation>) -> Option<CUmemLocation> {
    let first = of(holds.first()?)?;
    holds
        .iter()
        .all(|piece| of(piece) == Some(first))
        .then_some(first)
}

/// A location as a device's ordinal; the host has one too.
fn ordinal(location: Option<CUmemLocation>) -> i32 {
    match location {
        None => CUdevice::INVALID.0,
        Some(location) if location.kind == CUmemLocationType::DEVICE => location.id,
        Some(_) => CUdevice::CPU.0,
    }
}

fn kind(location: Option<CUmemLocation>) -> i32 {
    location.map_or(CUmemLocationType::INVALID.0, |location| location.kind.0) as i32
}

/// The location of an ordinal, where CUDA takes one.
pub(crate) fn location_of(device: CUdevice) -> CUmemLocation {
    if device == CUdevice::CPU {
        return CUmemLocation {
            kind: CUmemLocationType::HOST,
            id: 0,
        };
    }
    CUmemLocation {
        kind: CUmemLocationType::DEVICE,
        id: device.0,
    }
}
