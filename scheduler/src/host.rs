//! The machine around the daemon: the driver and NVML, processes, sockets, descriptors, files.
//! Each module wraps one feature of the operating system or the driver. None decides about jobs.

pub mod device;
pub(crate) mod device_release;
pub(crate) mod drain_marker;
pub(crate) mod fd_reaper;
pub mod gpu_lock;
pub(crate) mod granted;
pub(crate) mod kept_probe;
pub(crate) mod kept_requests;
pub mod learnt;
pub mod measured;
pub mod mps;
pub mod mps_daemon;
pub(crate) mod mps_lock;
pub mod nvml;
pub mod pages;
pub mod peer;
pub(crate) mod private_file;
pub(crate) mod process;
pub(crate) mod program;
pub mod realtime;
pub mod socket;
pub mod unattached;
pub(crate) mod unmanaged;
