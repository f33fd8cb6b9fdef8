//! Structures of nvml.h in the application's memory: those of `nvml-wrapper-sys`, from the header,
//! and two that the header had formerly.

use std::ffi::{c_char, c_uint};

pub(crate) use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlFieldValue_t, nvmlGpmMetric_t, nvmlGpmSupport_t, nvmlMemory_t,
    nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t,
    nvmlProcessUtilizationSample_t, nvmlSample_t, nvmlUtilization_t, nvmlValue_t,
};

/// Size of the text of a PCI address (NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE).
pub(crate) const PCI_TEXT_BYTES: usize = 32;
/// The same in older structures (NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE).
pub(crate) const PCI_TEXT_BYTES_OLD: usize = 16;
/// NVML_VALUE_NOT_AVAILABLE, the ids of instances, which do not exist here.
pub(crate) const NOT_AVAILABLE: c_uint = c_uint::MAX;

/// `nvmlPciInfo_t` of the first version, which is also the beginning of the third.
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

/// Head of `nvmlGpmMetricsGet_t`; an array of `nvmlGpmMetric_t` follows, of a length by release.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct GpmMetricsGetHead {
    pub(crate) version: c_uint,
    pub(crate) num_metrics: c_uint,
    /// `nvmlGpmSample_t`, an opaque pointer, here a number.
    pub(crate) sample1: usize,
    pub(crate) sample2: usize,
}

/// The `version` of a structure: its size, and above it its number (NVML_STRUCT_VERSION).
pub(crate) const fn struct_version<T>(number: u32) -> c_uint {
    size_of::<T>() as c_uint | number << 24
}

const _: () = {
    use nvml_wrapper_sys::bindings::nvmlGpmMetricsGet_t;
    use std::mem::offset_of;
    assert!(struct_version::<nvmlMemory_v2_t>(2) == 0x0200_0028);
    // The sizes in callers of any release: larger ones would be written past their ends.
    assert!(size_of::<nvmlMemory_t>() == 24 && size_of::<nvmlPciInfo_t>() == 68);
    assert!(size_of::<nvmlUtilization_t>() == 8);
    assert!(size_of::<nvmlProcessInfo_v1_t>() == 16 && size_of::<nvmlProcessInfo_t>() == 24);
    assert!(size_of::<nvmlProcessUtilizationSample_t>() == 32 && size_of::<nvmlSample_t>() == 16);
    assert!(size_of::<nvmlFieldValue_t>() == 40 && size_of::<nvmlEventData_t>() == 32);
    assert!(size_of::<nvmlGpmMetric_t>() == 40 && size_of::<nvmlGpmSupport_t>() == 8);
    assert!(size_of::<GpmMetricsGetHead>() == offset_of!(nvmlGpmMetricsGet_t, metrics));
    assert!(offset_of!(GpmMetricsGetHead, sample2) == offset_of!(nvmlGpmMetricsGet_t, sample2));
    assert!(size_of::<PciInfoV1>() == 32 && size_of::<PciInfoV2>() == 52);
    assert!(offset_of!(PciInfoV1, bus_id) == offset_of!(nvmlPciInfo_t, busIdLegacy));
    assert!(offset_of!(PciInfoV1, domain) == offset_of!(nvmlPciInfo_t, domain));
    assert!(offset_of!(PciInfoV1, bus) == offset_of!(nvmlPciInfo_t, bus));
    assert!(offset_of!(PciInfoV1, device) == offset_of!(nvmlPciInfo_t, device));
    assert!(offset_of!(PciInfoV1, pci_device_id) == offset_of!(nvmlPciInfo_t, pciDeviceId));
};
