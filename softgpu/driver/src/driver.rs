//! The initialised driver, and how commands are put on streams.

use std::path::Path;
use std::sync::OnceLock;

use abi::types::CUresult;
use parking_lot::Mutex;
use softgpu::Device;
use softgpu::wire::{Command, STREAM_DEPTH_MAX};

use crate::fork_guard::{self, Mode, mode};
use crate::link::{Link, Live};
use crate::tables::{Point, Stream, Tables};

/// Device of the null mode.
const DEVICE_DEFAULT: &str = "V100-SXM2-16GB";

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Threads that call `cuInit` at the same time.
static INITIALISING: Mutex<()> = Mutex::new(());

/// What `cuInit` makes.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) device: Device,
    pub(crate) uuid: [u8; 16],
    pub(crate) link: Link,
    /// Never held while a thread waits.
    pub(crate) tables: Mutex<Tables>,
}

/// The driver, in a process that may use it.
pub(crate) fn live() -> Option<&'static Driver> {
    match mode() {
        Mode::Live | Mode::Null => DRIVER.get(),
        Mode::Uninitialised | Mode::Forked => None,
    }
}

/// Connects, unless that has been done.
pub(crate) fn initialise() -> Result<(), CUresult> {
    let _alone = INITIALISING.lock();
    match mode() {
        Mode::Live | Mode::Null => return Ok(()),
        Mode::Forked => return Err(CUresult::NOT_INITIALIZED),
        Mode::Uninitialised => {}
    }
    let driver = connect().map_err(|reason| {
        // A program only says "no device"; this says why.
        eprintln!("softgpu libcuda.so.1: {reason}");
        CUresult::NO_DEVICE
    })?;
    let is_null = matches!(driver.link, Link::Null);
    let _ = DRIVER.set(driver);
    fork_guard::initialised(is_null).map_err(|_| CUresult::OPERATING_SYSTEM)
}

fn connect() -> Result<Driver, String> {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let device = |name: &str| Device::by_name(name).map_err(|error| error.to_string());
    let tables = Mutex::default();
    if var("SOFTGPU_NULL").as_deref() == Some("1") {
        let device = device(var("SOFTGPU_DEVICE").as_deref().unwrap_or(DEVICE_DEFAULT))?;
        return Ok(Driver {
            device,
            uuid: [0; 16],
            link: Link::Null,
            tables,
        });
    }
    let path = std::env::var_os("SOFTGPU_SOCKET").ok_or("SOFTGPU_SOCKET is not set")?;
    let label = var("SOFTGPU_LABEL").unwrap_or_default();
    let (live, welcome) = Live::connect(Path::new(&path), &label)
        .map_err(|error| format!("SOFTGPU_SOCKET={}: {error}", path.display()))?;
    let device = device(&welcome.device)?;
    Ok(Driver {
        device,
        uuid: welcome.uuid,
        link: Link::Live(Box::new(live)),
        tables,
    })
}

impl Driver {
    /// Puts a command on a stream, after waiting for room. `make` is given its number.
    pub(crate) fn submit(
        &self,
        stream: &Stream,
        make: impl Fn(u64) -> Command,
    ) -> Result<Point, CUresult> {
        loop {
            let seq = {
                let mut tables = self.tables.lock();
                let seq = tables.slots.submitted(stream.slot) + 1;
                let oldest = seq.saturating_sub(STREAM_DEPTH_MAX);
                if !self.link.is_complete(stream.slot, oldest) {
                    Err(oldest)
                } else if self.link.try_put(&make(seq)) {
                    tables.slots.advance(stream.slot);
                    Ok(seq)
                } else {
                    Err(0)
                }
            };
            match seq {
                Ok(seq) => {
                    self.link.announce();
                    return Ok(Point {
                        stream: stream.slot,
                        seq,
                    });
                }
                Err(0) => self.link.pause()?,
                Err(oldest) => self.link.wait(stream.slot, oldest)?,
            }
        }
    }

    /// Puts a command that is not numbered.
    pub(crate) fn put(&self, command: &Command) -> Result<(), CUresult> {
        loop {
            {
                // The lock makes this the one thread that puts.
                let _tables = self.tables.lock();
                if self.link.try_put(command) {
                    break;
                }
            }
            self.link.pause()?;
        }
        self.link.announce();
        Ok(())
    }
}
