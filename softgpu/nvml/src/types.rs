//! Structures of nvml.h, of which an application lends us memory.
//!
//! Sizes and offsets are asserted here and compared with `nvml-wrapper-sys`, whose declarations
//! come from the header, in the tests. Fields are read by C: hence none is "dead".

use std::ffi::{c_char, c_uint, c_void};

/// Text of a PCI address (NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE).
pub(crate) const PCI_TEXT_BYTES: usize = 32;
/// The same in old structures (NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE).
pub(crate) const PCI_TEXT_BYTES_OLD: usize = 16;
/// NVML_VALUE_NOT_AVAILABLE, as ids of instances that there are not.
pub(crate) const NOT_AVAILABLE: c_uint = c_uint::MAX;

/// `nvmlMemory_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct MemoryV2 {
    pub(crate) version: c_uint,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlPciInfo_t` of the first version.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PciInfoV1 {
    pub(crate) bus_id: [c_char; PCI_TEXT_BYTES_OLD],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) pci_device_id: c_uint,
}

/// `nvmlPciInfo_v2_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PciInfoV2 {
    pub(crate) v1: PciInfoV1,
    pub(crate) pci_subsystem_id: c_uint,
    pub(crate) reserved: [c_uint; 4],
}

/// `nvmlPciInfo_t` as of its third version.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PciInfo {
    pub(crate) v1: PciInfoV1,
    pub(crate) pci_subsystem_id: c_uint,
    pub(crate) bus_id: [c_char; PCI_TEXT_BYTES],
}

/// `nvmlUtilization_t`, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

/// `nvmlProcessInfo_v1_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ProcessInfoV1 {
    pub(crate) pid: c_uint,
    pub(crate) used_gpu_memory: u64,
}

/// `nvmlProcessInfo_v2_t`, and `nvmlProcessInfo_t` of the third version.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: c_uint,
    pub(crate) used_gpu_memory: u64,
    pub(crate) gpu_instance_id: c_uint,
    pub(crate) compute_instance_id: c_uint,
}

/// `nvmlProcessUtilizationSample_t`, in percent and microseconds of the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct ProcessUtilizationSample {
    pub(crate) pid: c_uint,
    pub(crate) time_stamp: u64,
    pub(crate) sm_util: c_uint,
    pub(crate) mem_util: c_uint,
    pub(crate) enc_util: c_uint,
    pub(crate) dec_util: c_uint,
}

/// `nvmlSample_t`, whose union holds an `unsigned int` here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Sample {
    pub(crate) time_stamp: u64,
    pub(crate) value: u64,
}

/// `nvmlFieldValue_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FieldValue {
    pub(crate) field_id: c_uint,
    pub(crate) scope_id: c_uint,
    pub(crate) timestamp: i64,
    pub(crate) latency_usec: i64,
    pub(crate) value_type: c_uint,
    pub(crate) nvml_return: c_uint,
    pub(crate) value: u64,
}

/// `nvmlEventData_t`; its device is a handle.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EventData {
    pub(crate) device: *mut c_void,
    pub(crate) event_type: u64,
    pub(crate) event_data: u64,
    pub(crate) gpu_instance_id: c_uint,
    pub(crate) compute_instance_id: c_uint,
}

/// What `version` of a structure says: its size, and above it its number (NVML_STRUCT_VERSION).
pub(crate) const fn struct_version<T>(number: u32) -> c_uint {
    size_of::<T>() as c_uint | number << 24
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Memory>() == 24 && size_of::<MemoryV2>() == 40);
    assert!(offset_of!(MemoryV2, total) == 8 && offset_of!(MemoryV2, used) == 32);
    assert!(struct_version::<MemoryV2>(2) == 0x0200_0028);
    assert!(size_of::<PciInfoV1>() == 32 && size_of::<PciInfoV2>() == 52);
    assert!(size_of::<PciInfo>() == 68 && offset_of!(PciInfo, bus_id) == 36);
    assert!(size_of::<Utilization>() == 8);
    assert!(size_of::<ProcessInfoV1>() == 16 && size_of::<ProcessInfo>() == 24);
    assert!(offset_of!(ProcessInfo, used_gpu_memory) == 8);
    assert!(size_of::<ProcessUtilizationSample>() == 32);
    assert!(offset_of!(ProcessUtilizationSample, sm_util) == 16);
    assert!(size_of::<Sample>() == 16 && size_of::<FieldValue>() == 40);
    assert!(size_of::<EventData>() == 32);
};

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of};

    use nvml_wrapper_sys::bindings as header;

    use super::*;

    /// Sizes, alignments and offsets of fields, ours beside the header's.
    macro_rules! agree {
        ($ours:ident = $theirs:ident { $($field:ident = $their_field:ident),* }) => {
            assert_eq!(size_of::<$ours>(), size_of::<header::$theirs>(), stringify!($theirs));
            assert_eq!(align_of::<$ours>(), align_of::<header::$theirs>(), stringify!($theirs));
            $(assert_eq!(
                offset_of!($ours, $field),
                offset_of!(header::$theirs, $their_field),
                stringify!($theirs.$their_field)
            );)*
        };
    }

    #[test]
    fn structures_are_those_of_the_header() {
        agree!(Memory = nvmlMemory_t { total = total, free = free, used = used });
        agree!(MemoryV2 = nvmlMemory_v2_t {
            version = version, total = total, reserved = reserved, free = free, used = used
        });
        agree!(PciInfo = nvmlPciInfo_t {
            pci_subsystem_id = pciSubSystemId, bus_id = busId
        });
        for (field, ours, theirs) in [
            (
                "busIdLegacy",
                offset_of!(PciInfoV1, bus_id),
                offset_of!(header::nvmlPciInfo_t, busIdLegacy),
            ),
            (
                "domain",
                offset_of!(PciInfoV1, domain),
                offset_of!(header::nvmlPciInfo_t, domain),
            ),
            (
                "bus",
                offset_of!(PciInfoV1, bus),
                offset_of!(header::nvmlPciInfo_t, bus),
            ),
            (
                "device",
                offset_of!(PciInfoV1, device),
                offset_of!(header::nvmlPciInfo_t, device),
            ),
            (
                "pciDeviceId",
                offset_of!(PciInfoV1, pci_device_id),
                offset_of!(header::nvmlPciInfo_t, pciDeviceId),
            ),
        ] {
            assert_eq!(ours, theirs, "{field}");
        }
        agree!(Utilization = nvmlUtilization_t { gpu = gpu, memory = memory });
        agree!(ProcessInfoV1 = nvmlProcessInfo_v1_t { pid = pid, used_gpu_memory = usedGpuMemory });
        agree!(ProcessInfo = nvmlProcessInfo_v2_t {
            pid = pid, used_gpu_memory = usedGpuMemory, gpu_instance_id = gpuInstanceId,
            compute_instance_id = computeInstanceId
        });
        agree!(ProcessInfo = nvmlProcessInfo_t { used_gpu_memory = usedGpuMemory });
        agree!(ProcessUtilizationSample = nvmlProcessUtilizationSample_t {
            pid = pid, time_stamp = timeStamp, sm_util = smUtil, mem_util = memUtil,
            enc_util = encUtil, dec_util = decUtil
        });
        agree!(Sample = nvmlSample_t { time_stamp = timeStamp, value = sampleValue });
        agree!(FieldValue = nvmlFieldValue_t {
            field_id = fieldId, scope_id = scopeId, timestamp = timestamp,
            latency_usec = latencyUsec, value_type = valueType, nvml_return = nvmlReturn,
            value = value
        });
        agree!(EventData = nvmlEventData_t {
            device = device, event_type = eventType, event_data = eventData,
            gpu_instance_id = gpuInstanceId, compute_instance_id = computeInstanceId
        });
    }
}
