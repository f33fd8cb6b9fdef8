//! Questions about the device.

use std::ffi::{c_char, c_int};

use abi::types::{CUdevice, CUdevice_attribute, CUresult, CUuuid};

use super::exports;
use crate::attributes::PCI_BUS_ID;
use crate::raw::{Out, write_text};

exports! {
    cuDeviceGetCount(count: Out<c_int>) |_| count.set(1);

    cuDeviceGet(device: Out<CUdevice>, ordinal: c_int) |driver| {
        driver.check_device(CUdevice(ordinal))?;
        device.set(CUdevice(ordinal))
    };

    cuDeviceGetName(name: Out<c_char>, room: c_int, device: CUdevice) |driver| {
        driver.check_device(device)?;
        write_text(&name, room, &driver.device.name)
    };

    cuDeviceGetUuid(uuid: Out<CUuuid>, device: CUdevice) |driver| {
        driver.check_device(device)?;
        uuid.set(CUuuid { bytes: driver.uuid })
    };

    cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: CUdevice) |driver| {
        driver.check_device(device)?;
        uuid.set(CUuuid { bytes: driver.uuid })
    };

    cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice) |driver| {
        driver.check_device(device)?;
        bytes.set(driver.device.memory_bytes as usize)
    };

    cuDeviceGetAttribute(value: Out<c_int>, attribute: CUdevice_attribute, device: CUdevice) |driver| {
        driver.check_device(device)?;
        value.set(driver.attribute(attribute)?)
    };

    cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: CUdevice) |driver| {
        driver.check_device(device)?;
        let capability = driver.device.compute_capability;
        major.set(capability.major as c_int)?;
        minor.set(capability.minor as c_int)
    };

    cuDeviceGetPCIBusId(id: Out<c_char>, room: c_int, device: CUdevice) |driver| {
        driver.check_device(device)?;
        if room <= PCI_BUS_ID.len() as c_int {
            return Err(CUresult::INVALID_VALUE);
        }
        write_text(&id, room, PCI_BUS_ID)
    };
}
