//! A device's description, and the lookup of devices.

use std::ffi::c_char;

use protocol::hello::format_uuid;
use softgpu::Device;
use softgpu::wire::GovernedState;

use crate::code::{Code, Outcome};
use crate::library::Gpu;
use crate::types::{PCI_TEXT_BYTES, PCI_TEXT_BYTES_OLD, PciInfoV1, PciInfoV2, nvmlPciInfo_t};

/// A driver of CUDA 12.8, like the stand-in `libcuda.so.1`. There was no 570.00: it is ours.
pub(crate) const DRIVER_VERSION: &str = "570.00";
/// In NVIDIA's form: the CUDA generation, then the driver's version.
pub(crate) const NVML_VERSION: &str = "12.570.00";

/// PCI bus of the first device, as `cuDeviceGetPCIBusId` reports it; the others follow.
const PCI_BUS_FIRST: u32 = 1;

/// `nvmlDeviceArchitecture_t` of nvml.h by compute capability.
pub(crate) fn architecture(device: &Device) -> u32 {
    const UNKNOWN: u32 = u32::MAX;
    let capability = device.compute_capability;
    match (capability.major, capability.minor) {
        (6, _) => 4,
        (7, 0 | 2) => 5,
        (7, 5) => 6,
        (8, 9) => 8,
        (8, _) => 7,
        (9, _) => 9,
        (10 | 12, _) => 10,
        _ => UNKNOWN,
    }
}

/// Whether NVIDIA's product supports MIG (MIG User Guide, "Supported GPUs"). Never enabled here.
pub(crate) fn can_be_divided(device: &Device) -> bool {
    let capability = device.compute_capability;
    matches!((capability.major, capability.minor), (8, 0) | (9 | 10, 0))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Sm,
    Memory,
    Video,
}

impl Clock {
    /// From `nvmlClockType_t`.
    pub(crate) fn from_number(number: u32) -> Outcome<Self> {
        match number {
            // The graphics clock is that of the SMs on all devices of the table.
            0 | 1 => Ok(Self::Sm),
            2 => Ok(Self::Memory),
            3 => Ok(Self::Video),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    pub(crate) fn mhz(self, gpu: &Gpu) -> Outcome<u32> {
        let governed = match self {
            Self::Sm => gpu.ask()?.governed,
            Self::Memory | Self::Video => None,
        };
        governed.map_or_else(|| self.max_mhz(&gpu.device), |state| Ok(state.clock_mhz))
    }

    /// The highest frequency, which a device without a governor always has.
    pub(crate) fn max_mhz(self, device: &Device) -> Outcome<u32> {
        match self {
            Self::Sm => Ok(device.max_clock_mhz),
            Self::Memory => Ok(device.memory_clock_khz() / 1000),
            Self::Video => Err(Code::NOT_SUPPORTED),
        }
    }
}

impl Gpu {
    pub(crate) fn uuid(&self) -> String {
        format_uuid(self.uuid)
    }

    pub(crate) fn bus(&self) -> u32 {
        PCI_BUS_FIRST + self.place
    }

    pub(crate) fn governed(&self) -> Outcome<GovernedState> {
        self.ask()?.governed.ok_or(Code::NOT_SUPPORTED)
    }

    /// Its PCI address. It has no vendor and device ids, as these are NVIDIA's.
    pub(crate) fn pci(&self) -> nvmlPciInfo_t {
        let PciInfoV1 { bus_id, bus, .. } = self.pci_v1();
        nvmlPciInfo_t {
            busIdLegacy: bus_id,
            domain: 0,
            bus,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: text::<PCI_TEXT_BYTES>(&format!("00000000:{bus:02X}:00.0")),
        }
    }

    pub(crate) fn pci_v1(&self) -> PciInfoV1 {
        let bus = self.bus();
        PciInfoV1 {
            bus_id: text::<PCI_TEXT_BYTES_OLD>(&format!("0000:{bus:02X}:00.0")),
            domain: 0,
            bus,
            device: 0,
            pci_device_id: 0,
        }
    }

    pub(crate) fn pci_v2(&self) -> PciInfoV2 {
        PciInfoV2 {
            v1: self.pci_v1(),
            pci_subsystem_id: 0,
            reserved: [0; 4],
        }
    }
}

pub(crate) fn by_uuid<'a>(gpus: &'a [Gpu], uuid: &str) -> Outcome<&'a Gpu> {
    let mut all = gpus.iter();
    all.find(|gpu| gpu.uuid() == uuid).ok_or(Code::NOT_FOUND)
}

/// The device at hexadecimal `domain:bus:device.function`; domain and function optional.
pub(crate) fn by_pci<'a>(gpus: &'a [Gpu], address: &str) -> Outcome<&'a Gpu> {
    let (domain, bus, device) = parse_pci(address).ok_or(Code::INVALID_ARGUMENT)?;
    let mut all = gpus.iter();
    all.find(|gpu| (domain, bus, device) == (0, gpu.bus(), 0))
        .ok_or(Code::NOT_FOUND)
}

fn parse_pci(address: &str) -> Option<(u32, u32, u32)> {
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let (front, last) = address.trim().rsplit_once(':')?;
    let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
    let (device, function) = last.split_once('.').unwrap_or((last, "0"));
    // GPUs have one function.
    (hex(function)? == 0).then_some(())?;
    Some((hex(domain)?, hex(bus)?, hex(device)?))
}

/// A C string in an array, which must be longer.
fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, byte) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = byte.cast_signed();
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_read_in_every_form() {
        for form in [
            "00000000:01:00.0",
            "0000:01:00.0",
            "0:1:0.0",
            "1:0",
            "01:00.0",
        ] {
            assert_eq!(parse_pci(form), Some((0, 1, 0)), "{form}");
        }
        assert_eq!(parse_pci("0001:AF:1F.0"), Some((1, 0xaf, 0x1f)));
        for form in ["", "1", "x:1:0", "0:0:0.1", "0:0:0.", "::", "1:2:3:4"] {
            assert_eq!(parse_pci(form), None, "{form}");
        }
    }

    #[test]
    fn every_device_of_the_table_has_an_architecture() {
        for device in Device::all() {
            assert!((4..=10).contains(&architecture(device)), "{}", device.name);
        }
        let named = |name| Device::by_name(name).unwrap();
        assert_eq!(architecture(&named("P100-PCIE-16GB")), 4);
        assert_eq!(architecture(&named("V100-SXM2-16GB")), 5);
        assert_eq!(architecture(&named("L4")), 8);
        assert!(can_be_divided(&named("A100-SXM4-40GB")) && !can_be_divided(&named("A10")));
        // The value of `nvidia-smi` for a V100.
        assert_eq!(Clock::Memory.max_mhz(&named("V100-SXM2-16GB")), Ok(876));
    }
}
