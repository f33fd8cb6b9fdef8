//! Counts of memory and copies, made when the driver has agreed. Device memory and pinned host
//! memory are separate. A copy counts in the direction that its entry point or descriptor names,
//! and as "other" where the driver determines it. Zero bytes are no copy. Work on a capturing
//! stream is recorded, not done, and not counted here.

use abi::types::{CUdevice, CUdeviceptr, CUmemGenericAllocationHandle, CUmemorytype, CUresult};
use protocol::pages::Counter;

use crate::driver;
use crate::process::Client;
use crate::process::clients::{CLIENTS, Managed};
use crate::progress::stream::Stream;
use crate::progress::streams::{Place, STREAMS};

/// The client of work on a stream, if it is done and not only captured into a graph.
#[inline]
pub(crate) fn of_stream(
    current: Option<&'static Client>,
    stream: Stream,
) -> Option<&'static Client> {
    let client = if CLIENTS.are_several() {
        match STREAMS.place(stream) {
            Place::Slot(index) => STREAMS.client_of(index),
            Place::Overflow => current,
            Place::Foreign => None,
        }
    } else {
        current
    };
    client.filter(|_| !STREAMS.is_capturing() || !driver::is_capturing(stream.handle()))
}

/// The client of the device that memory is on, whatever device is current. To be called before the
/// memory is freed; with one known device the driver is not asked.
#[inline]
pub(crate) fn of_address(
    current: Option<&'static Client>,
    address: u64,
) -> Option<&'static Client> {
    if !CLIENTS.are_several() {
        return current;
    }
    of_owner(current, driver::device_of_pointer(CUdeviceptr(address)))
}

pub(crate) fn of_handle(
    current: Option<&'static Client>,
    handle: CUmemGenericAllocationHandle,
) -> Option<&'static Client> {
    if !CLIENTS.are_several() {
        return current;
    }
    of_owner(current, driver::device_of_handle(handle))
}

#[cold]
fn of_owner(
    current: Option<&'static Client>,
    device: Result<CUdevice, CUresult>,
) -> Option<&'static Client> {
    match device.map(|device| CLIENTS.of_device(device)) {
        Ok(Managed::By(client)) => Some(client),
        Ok(_) => None,
        // Memory unknown to the driver: the call will fail.
        Err(_) => current,
    }
}

#[inline]
pub(crate) fn handle_allocated(client: Option<&Client>, result: CUresult, bytes: usize) {
    if let Some(client) = agreed(client, result) {
        client.page.count(Counter::Allocations, 1);
        client.page.count(Counter::AllocatedBytes, bytes as u64);
    }
}

pub(crate) fn handle_host_allocated(client: Option<&Client>, result: CUresult, bytes: usize) {
    if let Some(client) = agreed(client, result) {
        client.page.count(Counter::HostBytes, bytes as u64);
    }
}

/// Counts a free; freeing null is allowed and not counted.
#[inline]
pub(crate) fn handle_freed(client: Option<&Client>, result: CUresult, address: u64) {
    if let Some(client) = agreed(client, result).filter(|_| address != 0) {
        client.page.count(Counter::Frees, 1);
    }
}

#[inline]
pub(crate) fn handle_copied(
    client: Option<&Client>,
    result: CUresult,
    direction: Counter,
    bytes: usize,
) {
    if let Some(client) = agreed(client, result).filter(|_| bytes != 0) {
        client.page.count(Counter::Copies, 1);
        client.page.count(direction, bytes as u64);
    }
}

/// The counter of a copy between memory of these types. `None`: host to host, without the device.
pub(crate) fn direction_of(from: CUmemorytype, to: CUmemorytype) -> Option<Counter> {
    let is_device = |kind: CUmemorytype| matches!(kind, CUmemorytype::DEVICE | CUmemorytype::ARRAY);
    match (from, to) {
        (CUmemorytype::HOST, CUmemorytype::HOST) => None,
        (CUmemorytype::HOST, to) if is_device(to) => Some(Counter::CopiedHtoDBytes),
        (from, CUmemorytype::HOST) if is_device(from) => Some(Counter::CopiedDtoHBytes),
        _ => Some(Counter::CopiedOtherBytes),
    }
}

pub(crate) fn handle_set(client: Option<&Client>, result: CUresult, count: usize, width: u64) {
    if let Some(client) = agreed(client, result) {
        let bytes = (count as u64).saturating_mul(width);
        client.page.count(Counter::SetBytes, bytes);
    }
}

#[inline]
fn agreed(client: Option<&Client>, result: CUresult) -> Option<&Client> {
    client.filter(|_| result == CUresult::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direction_is_what_the_types_of_memory_say() {
        use CUmemorytype as T;
        let cases = [
            (T::HOST, T::DEVICE, Some(Counter::CopiedHtoDBytes)),
            (T::HOST, T::ARRAY, Some(Counter::CopiedHtoDBytes)),
            (T::DEVICE, T::HOST, Some(Counter::CopiedDtoHBytes)),
            (T::ARRAY, T::HOST, Some(Counter::CopiedDtoHBytes)),
            (T::ARRAY, T::DEVICE, Some(Counter::CopiedOtherBytes)),
            (T::UNIFIED, T::HOST, Some(Counter::CopiedOtherBytes)),
            (T::HOST, T::UNIFIED, Some(Counter::CopiedOtherBytes)),
            (T(77), T::HOST, Some(Counter::CopiedOtherBytes)),
            (T::HOST, T::HOST, None),
        ];
        for (from, to, direction) in cases {
            assert_eq!(direction_of(from, to), direction, "{from:?} {to:?}");
        }
    }
}
