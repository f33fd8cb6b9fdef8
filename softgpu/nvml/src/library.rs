//! The initialised library, and the entry into each call: finds the device, catches panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use softgpu::Device;
use softgpu::wire::Monitor;

use crate::code::{Code, Outcome};
use crate::link;

static LIBRARY: Mutex<Library> = Mutex::new(Library {
    users: 0,
    gpus: None,
});

struct Library {
    /// Calls of `nvmlInit` without a matching `nvmlShutdown`.
    users: u64,
    /// All devices of the machine, while there are users.
    gpus: Option<Arc<Vec<Gpu>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) uuid: [u8; 16],
    /// Its index, which determines its PCI address and its minor number.
    pub(crate) place: u32,
    socket: PathBuf,
}

/// `nvmlDevice_t`: a number in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(usize);

impl Handle {
    pub(crate) fn pointer(self) -> *mut std::ffi::c_void {
        std::ptr::without_provenance_mut(self.0)
    }
}

/// The first handle; neither null nor a likely accidental number.
const HANDLE_FIRST: usize = 0x6770_7500;

impl Gpu {
    pub(crate) fn handle(&self) -> Handle {
        Handle(HANDLE_FIRST + self.place as usize)
    }

    /// The present state, as its server reports it.
    pub(crate) fn ask(&self) -> Outcome<Monitor> {
        let monitor = self.ask_server()?;
        if monitor.health.is_lost {
            return Err(Code::GPU_IS_LOST);
        }
        Ok(monitor)
    }

    /// As above, also for a lost device.
    pub(crate) fn ask_server(&self) -> Outcome<Monitor> {
        let monitor = link::ask(&self.socket).map_err(|_| Code::GPU_IS_LOST)?;
        // Another server at the same socket is another device.
        if monitor.uuid == self.uuid {
            Ok(monitor)
        } else {
            Err(Code::GPU_IS_LOST)
        }
    }
}

pub(crate) fn initialise() -> Outcome {
    let mut library = LIBRARY.lock();
    if library.gpus.is_none() {
        let gpus = connect().map_err(|reason| {
            // A tool only reports "driver not loaded"; this has the reason.
            eprintln!("softgpu libnvidia-ml.so.1: {reason}");
            Code::DRIVER_NOT_LOADED
        })?;
        library.gpus = Some(Arc::new(gpus));
    }
    library.users += 1;
    Ok(())
}

pub(crate) fn shut_down() -> Outcome {
    let mut library = LIBRARY.lock();
    library.users = library.users.checked_sub(1).ok_or(Code::UNINITIALIZED)?;
    if library.users == 0 {
        library.gpus = None;
    }
    Ok(())
}

fn connect() -> Result<Vec<Gpu>, String> {
    (0..)
        .zip(link::sockets()?)
        .map(|(place, socket)| {
            let monitor = link::ask(&socket)?;
            Ok(Gpu {
                device: Device::by_name(&monitor.device).map_err(|error| error.to_string())?,
                uuid: monitor.uuid,
                place,
                socket,
            })
        })
        .collect()
}

/// Runs a call that needs no initialised library.
pub(crate) fn enter_early(call: impl FnOnce() -> Outcome) -> Code {
    // A panic is a bug of ours and must not unwind into C.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::UNKNOWN,
    }
}

/// Runs a call that needs an initialised library.
pub(crate) fn enter(call: impl FnOnce(&[Gpu]) -> Outcome) -> Code {
    enter_early(|| {
        // Not held during the call, which may wait for a server.
        let gpus = LIBRARY.lock().gpus.clone();
        call(&gpus.ok_or(Code::UNINITIALIZED)?)
    })
}

pub(crate) fn enter_device(handle: Handle, call: impl FnOnce(&Gpu) -> Outcome) -> Code {
    enter(|gpus| {
        let mut all = gpus.iter();
        let gpu = all.find(|gpu| gpu.handle() == handle);
        call(gpu.ok_or(Code::INVALID_ARGUMENT)?)
    })
}
