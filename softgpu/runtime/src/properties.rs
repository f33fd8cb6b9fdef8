//! Properties of devices, kernels and addresses, in the structures of `driver_types.h`, which
//! differ between CUDA 12 and 13 ([`crate::release`]).

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use abi::types::{
    CUdevice, CUdevice_attribute, CUdeviceptr, CUfunction_attribute, CUkernel, CUpointer_attribute,
    CUuuid,
};

use crate::device::{self, device};
use crate::driver::Driver;
use crate::error::Error;
use crate::release::{
    FEATURES, GRID, MEMORY, NEWER, POINTER_RESERVED, PROPERTIES_BYTES, RESERVED, TEXTURES,
};

/// `struct cudaDeviceProp`, with neighbouring fields of one type as arrays.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceProperties {
    name: [u8; 256],
    uuid: CUuuid,
    /// `luid` and `luidDeviceNodeMask`, which only Windows has.
    luid: [u32; 3],
    total_global_mem: usize,
    shared_mem_per_block: usize,
    /// From `regsPerBlock`.
    block: [c_int; BLOCK.len()],
    mem_pitch: usize,
    grid: [c_int; GRID.len()],
    total_const_mem: usize,
    /// `major` and `minor`.
    capability: [c_int; CAPABILITY.len()],
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    textures: [c_int; TEXTURES.len()],
    surface_alignment: usize,
    features: [c_int; FEATURES.len()],
    shared_mem_per_multiprocessor: usize,
    memory: [c_int; MEMORY.len()],
    shared_mem_per_block_optin: usize,
    /// From `pageableMemoryAccessUsesHostPageTables`.
    access: [c_int; ACCESS.len()],
    reserved_shared_mem_per_block: usize,
    newer: [c_int; NEWER.len()],
    reserved: [c_int; RESERVED],
}

const _: () = assert!(size_of::<DeviceProperties>() == PROPERTIES_BYTES);
const _: () = assert!(offset_of!(DeviceProperties, total_global_mem) == 288);

/// Attributes in arrays of [`DeviceProperties`] that all releases share, by the numbers of
/// `cuda.h`, in the structure's order. For the others see [`crate::release`].
const BLOCK: [i32; 2] = [12, 10];
const CAPABILITY: [i32; 2] = [75, 76];
const ACCESS: [i32; 4] = [100, 101, 106, 109];

pub(crate) fn device_properties(
    driver: &Driver,
    ordinal: c_int,
) -> Result<DeviceProperties, Error> {
    let device = device(driver, ordinal)?;
    let number = |attribute| device::attribute(driver, device, CUdevice_attribute(attribute));
    let bytes = |attribute| number(attribute).map(|bytes| usize::try_from(bytes).unwrap_or(0));
    let mut name = [0; 256];
    driver.cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device)?;
    let mut uuid = CUuuid { bytes: [0; 16] };
    driver.cuDeviceGetUuid(&raw mut uuid, device)?;
    let mut total_global_mem = 0;
    driver.cuDeviceTotalMem(&raw mut total_global_mem, device)?;
    Ok(DeviceProperties {
        name,
        uuid,
        luid: [0; 3],
        total_global_mem,
        shared_mem_per_block: bytes(8)?,
        block: numbers(driver, device, BLOCK)?,
        mem_pitch: bytes(11)?,
        grid: numbers(driver, device, GRID)?,
        total_const_mem: bytes(9)?,
        capability: numbers(driver, device, CAPABILITY)?,
        texture_alignment: bytes(14)?,
        texture_pitch_alignment: bytes(51)?,
        textures: numbers(driver, device, TEXTURES)?,
        surface_alignment: bytes(30)?,
        features: numbers(driver, device, FEATURES)?,
        shared_mem_per_multiprocessor: bytes(81)?,
        memory: numbers(driver, device, MEMORY)?,
        shared_mem_per_block_optin: bytes(97)?,
        access: numbers(driver, device, ACCESS)?,
        reserved_shared_mem_per_block: bytes(111)?,
        newer: numbers(driver, device, NEWER)?,
        reserved: [0; RESERVED],
    })
}

fn numbers<const N: usize>(
    driver: &Driver,
    device: CUdevice,
    attributes: [i32; N],
) -> Result<[c_int; N], Error> {
    let mut values = [0; N];
    for (value, attribute) in values.iter_mut().zip(attributes) {
        *value = device::attribute(driver, device, CUdevice_attribute(attribute))?;
    }
    Ok(values)
}

/// `struct cudaFuncAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionAttributes {
    shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    /// From `maxThreadsPerBlock` to `nonPortableClusterSizeAllowed`.
    numbers: [c_int; 13],
    reserved: [c_int; 16],
}

const _: () = assert!(size_of::<FunctionAttributes>() == 144);

/// The attributes in [`FunctionAttributes::numbers`], by the numbers of `cuda.h`.
const FUNCTION_NUMBERS: [i32; 13] = [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14];

/// Result of `cudaFuncGetAttributes` for a kernel on a device.
pub(crate) fn function_attributes(
    driver: &Driver,
    kernel: CUkernel,
    device: CUdevice,
) -> Result<FunctionAttributes, Error> {
    let number = |attribute| {
        let mut value = 0;
        let attribute = CUfunction_attribute(attribute);
        driver
            .cuKernelGetAttribute(&raw mut value, attribute, kernel, device)
            .map(|()| value)
    };
    let bytes = |attribute| number(attribute).map(|bytes| usize::try_from(bytes).unwrap_or(0));
    let mut numbers = [0; 13];
    for (value, attribute) in numbers.iter_mut().zip(FUNCTION_NUMBERS) {
        *value = number(attribute)?;
    }
    Ok(FunctionAttributes {
        shared_bytes: bytes(1)?,
        constant_bytes: bytes(2)?,
        local_bytes: bytes(3)?,
        numbers,
        reserved: [0; 16],
    })
}

/// `struct cudaPointerAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
    reserved: [i64; POINTER_RESERVED],
}

const _: () = assert!(size_of::<PointerAttributes>() == 24 + 8 * POINTER_RESERVED);

/// `enum cudaMemoryType`; host and device have the driver's numbers.
const UNREGISTERED: c_int = 0;
const MANAGED: c_int = 3;
/// `cudaInvalidDeviceId`.
const NO_DEVICE: c_int = -2;

/// Result of `cudaPointerGetAttributes`. Memory unknown to CUDA is no error.
pub(crate) fn pointer_attributes(
    driver: &Driver,
    address: *mut c_void,
) -> Result<PointerAttributes, Error> {
    let unknown = PointerAttributes {
        kind: UNREGISTERED,
        device: NO_DEVICE,
        device_pointer: std::ptr::null_mut(),
        host_pointer: address,
        reserved: [0; POINTER_RESERVED],
    };
    let at = CUdeviceptr(address.expose_provenance() as u64);
    let mut kind: c_int = 0;
    let asked =
        driver.cuPointerGetAttribute((&raw mut kind).cast(), CUpointer_attribute::MEMORY_TYPE, at);
    match asked {
        Err(Error::INVALID_VALUE) => return Ok(unknown),
        answer => answer?,
    }
    let mut is_managed: c_int = 0;
    driver.cuPointerGetAttribute(
        (&raw mut is_managed).cast(),
        CUpointer_attribute::IS_MANAGED,
        at,
    )?;
    let mut device: c_int = 0;
    driver.cuPointerGetAttribute(
        (&raw mut device).cast(),
        CUpointer_attribute::DEVICE_ORDINAL,
        at,
    )?;
    // Either may be missing: device memory has no host address, registered memory perhaps no device
    // address.
    let place = |attribute| {
        let mut place = std::ptr::null_mut::<c_void>();
        let asked = driver.cuPointerGetAttribute((&raw mut place).cast(), attribute, at);
        asked.map_or(std::ptr::null_mut(), |()| place)
    };
    Ok(PointerAttributes {
        kind: if is_managed != 0 { MANAGED } else { kind },
        device,
        device_pointer: place(CUpointer_attribute::DEVICE_POINTER),
        host_pointer: place(CUpointer_attribute::HOST_POINTER),
        reserved: [0; POINTER_RESERVED],
    })
}
