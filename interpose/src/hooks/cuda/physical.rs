//! Physical memory and address space apart, memory shared with other processes and other APIs.
//! `cuMemCreate` takes memory, of the device that its properties name; a mapping takes none. It
//! needs no context on the calling thread, and neither do we.

use core::ffi::{c_uint, c_ulonglong, c_void};

use abi::types::{
    CUdevice, CUdeviceptr, CUexternalMemory, CUipcMemHandle, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocationType, CUmipmappedArray,
    CUresult, CUstream,
};
use protocol::ledger::Kind;

use super::memory::{seen, unless_refused};
use super::{hook, stored};
use crate::memory::counts::{handle_allocated, handle_freed, handle_host_allocated, of_handle};
use crate::memory::quota::{Charge, HELD};
use crate::process::Client;
use crate::process::account::{self, DeviceAccount};
use crate::process::clients::{CLIENTS, Managed};

hook! {
    cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle,
        bytes: usize,
        properties: *const CUmemAllocationProp,
        flags: c_ulonglong,
    );
    before |_| {
        // SAFETY: the application's own argument, which the driver is about to read.
        let properties = (!properties.is_null()).then(|| unsafe { *properties });
        let properties = properties.filter(|_| !handle.is_null());
        Charge::reserve(properties.and_then(account_of), Kind::Physical, bytes as u64)
    };
    // SAFETY: the application's own arguments, passed on.
    call |charge, real| unless_refused(charge, || unsafe { real(handle, bytes, properties, flags) });
    after |client, charge, result| {
        // SAFETY: the driver has read the properties, as it succeeded with them.
        if let Some(properties) = unsafe { stored(properties, result) } {
            handle_created(client, bytes, &properties);
        }
        // SAFETY: this call's output parameter.
        HELD.physical.handle_created(charge, result, unsafe { stored(handle, result) });
    };
}

hook! {
    cuMemRelease(handle: CUmemGenericAllocationHandle);
    before |client| (of_handle(client, handle), HELD.physical.take_name(handle));
    after |_, (owner, taken), result| {
        // A handle of 0 is as valid as any other.
        handle_freed(*owner, result, u64::MAX);
        HELD.physical.handle_taken(taken, result);
    };
}

fn account_of(properties: CUmemAllocationProp) -> Option<&'static DeviceAccount> {
    match properties.location.kind {
        CUmemLocationType::DEVICE => account::of_device(CUdevice(properties.location.id)),
        _ => None,
    }
}

/// The memory counts for the device that the properties name, whatever the thread's current device.
fn handle_created(current: Option<&Client>, bytes: usize, properties: &CUmemAllocationProp) {
    let location = properties.location;
    match location.kind {
        CUmemLocationType::DEVICE => {
            if let Managed::By(client) = CLIENTS.of_device(CUdevice(location.id)) {
                handle_allocated(Some(client), CUresult::SUCCESS, bytes);
            }
        }
        CUmemLocationType::HOST
        | CUmemLocationType::HOST_NUMA
        | CUmemLocationType::HOST_NUMA_CURRENT => {
            handle_host_allocated(current, CUresult::SUCCESS, bytes);
        }
        _ => handle_allocated(current, CUresult::SUCCESS, bytes),
    }
}

hook! {
    cuMemMap(
        address: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong,
    );
    after |_, result| HELD.physical.handle_mapped(address, bytes, handle, result);
}

hook! {
    cuMemUnmap(address: CUdeviceptr, bytes: usize);
    before |_| HELD.physical.take_mappings(address, bytes);
    after |_, taken, result| HELD.physical.handle_taken(taken, result);
}

// A retained handle is a second name of memory that was counted.
hook! {
    cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void);
    after |_, result| {
        // SAFETY: this call's output parameter.
        let handle = unsafe { stored(handle, result) };
        HELD.physical.handle_retained(address.expose_provenance() as u64, handle);
    };
}

// Mappings into arrays without memory of their own.
seen! {
    cuMemMapArrayAsync(maps: *mut c_void, count: c_uint, stream: CUstream);
    cuMemMapArrayAsync_ptsz(maps: *mut c_void, count: c_uint, stream: CUstream);
}

// Existing memory: it was counted for its owner when it was created.
seen! {
    cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle,
        exported: *mut c_void,
        kind: CUmemAllocationHandleType,
    );
    cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
    cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
    cuIpcCloseMemHandle(address: CUdeviceptr);
    cuImportExternalMemory(memory: *mut CUexternalMemory, description: *const c_void);
    cuExternalMemoryGetMappedBuffer(
        address: *mut CUdeviceptr,
        memory: CUexternalMemory,
        description: *const c_void,
    );
    cuExternalMemoryGetMappedMipmappedArray(
        array: *mut CUmipmappedArray,
        memory: CUexternalMemory,
        description: *const c_void,
    );
    cuDestroyExternalMemory(memory: CUexternalMemory);
}

// Objects that join memory of several devices; each device's memory is counted for itself.
seen! {
    cuMulticastCreate(handle: *mut CUmemGenericAllocationHandle, properties: *const c_void);
    cuMulticastAddDevice(handle: CUmemGenericAllocationHandle, device: CUdevice);
    cuMulticastBindMem(
        multicast: CUmemGenericAllocationHandle,
        multicast_offset: usize,
        memory: CUmemGenericAllocationHandle,
        memory_offset: usize,
        bytes: usize,
        flags: c_ulonglong,
    );
    cuMulticastBindMem_v2(
        multicast: CUmemGenericAllocationHandle,
        device: CUdevice,
        multicast_offset: usize,
        memory: CUmemGenericAllocationHandle,
        memory_offset: usize,
        bytes: usize,
        flags: c_ulonglong,
    );
    cuMulticastBindAddr(
        multicast: CUmemGenericAllocationHandle,
        multicast_offset: usize,
        address: CUdeviceptr,
        bytes: usize,
        flags: c_ulonglong,
    );
    cuMulticastBindAddr_v2(
        multicast: CUmemGenericAllocationHandle,
        device: CUdevice,
        multicast_offset: usize,
        address: CUdeviceptr,
        bytes: usize,
        flags: c_ulonglong,
    );
    cuMulticastUnbind(
        multicast: CUmemGenericAllocationHandle,
        device: CUdevice,
        multicast_offset: usize,
        bytes: usize,
    );
}
