//! Queries about the device.

use std::ffi::{c_char, c_int};

use abi::types::{CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUresult, CUuuid};

use super::exports;
use crate::raw::{Out, Text, write_text};

exports! {
    cuDeviceGetCount(count: Out<c_int>) |driver| count.set(driver.gpus.len() as c_int);

    cuDeviceGet(device: Out<CUdevice>, ordinal: c_int) |driver| {
        driver.check_device(CUdevice(ordinal))?;
        device.set(CUdevice(ordinal))
    };

    cuDeviceGetByPCIBusId(device: Out<CUdevice>, id: Text) |driver| {
        let asked = parse_pci(&id.to_string()?).ok_or(CUresult::INVALID_VALUE)?;
        let found = driver.gpus.iter().position(|gpu| gpu.pci_bus() == asked);
        device.set(CUdevice(found.ok_or(CUresult::INVALID_DEVICE)? as c_int))
    };

    cuDeviceGetName(name: Out<c_char>, room: c_int, device: CUdevice)
        |driver| write_text(&name, room, &driver.gpu(device)?.device.name);

    cuDeviceGetUuid(uuid: Out<CUuuid>, device: CUdevice)
        |driver| uuid.set(CUuuid { bytes: driver.gpu(device)?.uuid });

    cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: CUdevice)
        |driver| uuid.set(CUuuid { bytes: driver.gpu(device)?.uuid });

    cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice)
        |driver| bytes.set(driver.gpu(device)?.device.memory_bytes as usize);

    cuDeviceGetAttribute(value: Out<c_int>, attribute: CUdevice_attribute, device: CUdevice)
        |driver| value.set(driver.gpu(device)?.attribute(attribute)?);

    cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: CUdevice) |driver| {
        let capability = driver.gpu(device)?.device.compute_capability;
        major.set(capability.major as c_int)?;
        minor.set(capability.minor as c_int)
    };

    cuDeviceGetPCIBusId(id: Out<c_char>, room: c_int, device: CUdevice) |driver| {
        let text = driver.gpu(device)?.pci_bus_id();
        if room <= text.len() as c_int {
            return Err(CUresult::INVALID_VALUE);
        }
        write_text(&id, room, &text)
    };

    // Each device is a process of its own, and none can access another's memory.
    cuDeviceCanAccessPeer(can: Out<c_int>, device: CUdevice, peer: CUdevice) |driver| {
        driver.gpu(device)?;
        driver.gpu(peer)?;
        can.set(0)
    };

    cuDeviceGetP2PAttribute(
        value: Out<c_int>, attribute: CUdevice_P2PAttribute, from: CUdevice, to: CUdevice,
    ) |driver| {
        driver.gpu(from)?;
        driver.gpu(to)?;
        if from == to {
            return Err(CUresult::INVALID_DEVICE);
        }
        if value.is_null() || attribute.name().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        value.set(0)
    };
}

/// The bus of "domain:bus:device.function", domain and function optional; `None` if malformed or in
/// an unused domain.
fn parse_pci(text: &str) -> Option<usize> {
    let (place, function) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<u32> = place
        .split(':')
        .map(|part| u32::from_str_radix(part, 16).ok())
        .collect::<Option<_>>()?;
    let (domain, bus, device) = match *parts {
        [domain, bus, device] => (domain, bus, device),
        [bus, device] => (0, bus, device),
        _ => return None,
    };
    let is_ours = domain == 0 && device == 0 && u32::from_str_radix(function, 16) == Ok(0);
    // A valid place without a device; not a malformed text.
    Some(if is_ours { bus as usize } else { usize::MAX })
}
