//! The initialised driver, and putting commands on streams.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use abi::types::{CUdevice, CUresult};
use parking_lot::Mutex;
use softgpu::Device;
use softgpu::wire::{
    CONNECTIONS_DEFAULT, CONNECTIONS_MAX, Command, DEVICES, STREAM_DEPTH_MAX, STREAMS, Work,
};

use crate::fork_guard::{self, Mode, mode};
use crate::host_calls::HostCalls;
use crate::link::{Link, Live};
use crate::tables::{Point, Stream, Tables};
use crate::trace::Trace;
use crate::{event_lock, thread, visible};

const DEVICE_DEFAULT: &str = "V100-SXM2-16GB";

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Threads that call `cuInit` at the same time.
static INITIALISING: Mutex<()> = Mutex::new(());

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) link: Link,
    /// Never held while a thread waits.
    pub(crate) tables: Mutex<Tables>,
    pub(crate) host_calls: HostCalls,
    /// Connections from host to device of each context.
    pub(crate) connections: u32,
    /// Times of kernels, if requested.
    pub(crate) trace: Trace,
}

#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) uuid: [u8; 16],
    /// Its index among all devices of the machine, visible or not; it determines the PCI bus.
    pub(crate) place: usize,
    /// `None` in null mode, in which no process shares it.
    pub(crate) ways: Option<Ways>,
    /// Share of its SMs that this process requests under MPS, above 0 to 100.
    pub(crate) active_percent: Option<f64>,
}

/// How processes share a device, as its server reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// By MPS; otherwise in time slices.
    pub(crate) is_mps: bool,
    /// Waiting blocks of the kernel with the highest priority start first.
    pub(crate) block_priority: bool,
}

/// The driver, in a process that may use it.
pub(crate) fn live() -> Option<&'static Driver> {
    match mode() {
        Mode::Live | Mode::Null => DRIVER.get(),
        Mode::Uninitialised | Mode::Forked => None,
    }
}

/// `CUDA_DEVICE_MAX_CONNECTIONS` at `cuInit`: nearest valid number (undocumented), or default.
fn connections() -> u32 {
    let asked = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok();
    let asked = asked.and_then(|asked| asked.trim().parse().ok());
    asked.map_or(CONNECTIONS_DEFAULT, |asked: u32| {
        asked.clamp(1, CONNECTIONS_MAX)
    })
}

/// The value of `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` at `cuInit`; an invalid share counts as unset.
fn active_percent() -> Option<f64> {
    let asked = std::env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").ok()?;
    let asked: f64 = asked.trim().parse().ok()?;
    (asked > 0.0 && asked <= 100.0).then_some(asked)
}

pub(crate) fn initialise() -> Result<(), CUresult> {
    let _alone = INITIALISING.lock();
    match mode() {
        Mode::Live | Mode::Null => return Ok(()),
        Mode::Forked => return Err(CUresult::NOT_INITIALIZED),
        Mode::Uninitialised => {}
    }
    connect_to_mps();
    let driver = connect().map_err(|reason| {
        // A program only reports "no device"; this has the reason.
        eprintln!("softgpu libcuda.so.1: {reason}");
        CUresult::NO_DEVICE
    })?;
    let is_null = matches!(driver.link, Link::Null);
    let _ = DRIVER.set(driver);
    event_lock::initialise();
    fork_guard::initialised(is_null).map_err(|_| CUresult::OPERATING_SYSTEM)
}

/// With `SOFTGPU_MPS_CLIENT=1`: connects as a client of MPS would, for a listener on its socket.
fn connect_to_mps() {
    let is_asked = std::env::var_os("SOFTGPU_MPS_CLIENT").is_some_and(|value| value == "1");
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").filter(|_| is_asked);
    if let Some(folder) = folder {
        // Without a control daemon NVIDIA's driver continues without MPS.
        let _ = UnixStream::connect(Path::new(&folder).join("control"));
    }
}

fn connect() -> Result<Driver, String> {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let device = |name: &str| Device::by_name(name).map_err(|error| error.to_string());
    let null = var("SOFTGPU_NULL").and_then(|number| number.parse::<u64>().ok());
    if let Some(number @ 1..) = null {
        let device = device(var("SOFTGPU_DEVICE").as_deref().unwrap_or(DEVICE_DEFAULT))?;
        let gpu = Gpu {
            device,
            uuid: u128::from(number - 1).to_be_bytes(),
            place: 0,
            ways: None,
            active_percent: None,
        };
        return Ok(Driver {
            gpus: vec![gpu],
            link: Link::Null,
            tables: Mutex::new(Tables::new(1)),
            host_calls: HostCalls::default(),
            connections: connections(),
            trace: Trace::default(),
        });
    }
    let sockets = std::env::var_os("SOFTGPU_SOCKET")
        .ok_or("SOFTGPU_SOCKET is not set: expected the socket of a softgpu-server")?;
    let paths: Vec<PathBuf> = std::env::split_paths(&sockets)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if paths.len() > DEVICES {
        return Err(format!("SOFTGPU_SOCKET names more than {DEVICES} devices"));
    }
    let label = var("SOFTGPU_LABEL").unwrap_or_default();
    let asked = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let seen: Vec<usize> = match asked {
        None => (0..paths.len()).collect(),
        Some(asked) => visible::select(&asked, &uuids(&paths, &asked)?),
    };
    let chosen: Vec<&Path> = seen.iter().map(|&place| &*paths[place]).collect();
    if chosen.is_empty() {
        return Err("CUDA_VISIBLE_DEVICES and SOFTGPU_SOCKET leave no device visible".to_owned());
    }
    let (live, welcomes) =
        Live::connect(&chosen, &label).map_err(|error| format!("SOFTGPU_SOCKET={error}"))?;
    let active_percent = active_percent();
    let gpus = seen.iter().zip(welcomes).map(|(&place, welcome)| {
        Ok(Gpu {
            device: device(&welcome.device)?,
            uuid: welcome.uuid,
            place,
            ways: welcome.ways,
            active_percent,
        })
    });
    Ok(Driver {
        gpus: gpus.collect::<Result<_, String>>()?,
        link: Link::Live(Box::new(live)),
        tables: Mutex::new(Tables::new(seen.len())),
        host_calls: HostCalls::default(),
        connections: connections(),
        trace: Trace::default(),
    })
}

/// The UUIDs of all devices, if the selection names any UUID: a process that selects by ordinal
/// never contacts servers of devices that it does not see.
fn uuids(paths: &[PathBuf], asked: &str) -> Result<Vec<[u8; 16]>, String> {
    if !visible::names_identities(asked) {
        return Ok(vec![[0; 16]; paths.len()]);
    }
    paths
        .iter()
        .map(|path| {
            Live::identity(path)
                .map_err(|error| format!("SOFTGPU_SOCKET={}: {error}", path.display()))
        })
        .collect()
}

impl Driver {
    pub(crate) fn gpu(&self, device: CUdevice) -> Result<&Gpu, CUresult> {
        let index = usize::try_from(device.0).map_err(|_| CUresult::INVALID_DEVICE)?;
        self.gpus.get(index).ok_or(CUresult::INVALID_DEVICE)
    }

    /// The device of a context; without one (a library's kernel) the current device, or the first.
    /// Not to be called with the tables locked.
    pub(crate) fn device_of(&self, context: u64) -> &Device {
        let known = {
            let tables = self.tables.lock();
            let current = thread::current().unwrap_or_default();
            let mut asked = [context, current].into_iter();
            asked.find_map(|context| tables.contexts.get(&context).map(|found| found.device))
        };
        &self.gpus[known.unwrap_or(0)].device
    }

    /// Puts work that is not captured on a stream, after waiting for room with the context's lock
    /// held: see the crate's text.
    pub(crate) fn submit(&self, stream: &Stream, work: Work) -> Result<Point, CUresult> {
        if event_lock::is_on() {
            event_lock::need(self.context(stream.context)?.slot);
        }
        let mut holds_lock = false;
        let point = self.submit_locking(stream, work, &mut holds_lock);
        if holds_lock {
            self.tables.lock().lock_context(stream.context, false);
            if let Link::Live(live) = &self.link {
                live.wake_waiters(stream.slot as usize / STREAMS);
            }
        }
        point
    }

    fn submit_locking(
        &self,
        stream: &Stream,
        work: Work,
        holds_lock: &mut bool,
    ) -> Result<Point, CUresult> {
        loop {
            let seq = {
                let mut tables = self.tables.lock();
                if !*holds_lock && tables.locked(stream.context).is_some() {
                    drop(tables);
                    self.await_lock(stream.context);
                    continue;
                }
                tables.captures.check_submit(stream)?;
                let seq = tables.slots.submitted(stream.slot) + 1;
                let oldest = seq.saturating_sub(STREAM_DEPTH_MAX);
                let command = Command::Submit {
                    stream: stream.slot,
                    seq,
                    work,
                };
                if !self.link.is_complete(stream.slot, oldest) {
                    *holds_lock = true;
                    tables.lock_context(stream.context, true);
                    Err(oldest)
                } else if self.link.try_put(&command) {
                    tables.slots.advance(stream.slot);
                    Ok(seq)
                } else {
                    Err(0)
                }
            };
            match seq {
                Ok(seq) => {
                    self.link.announce(stream.slot);
                    return Ok(Point {
                        stream: stream.slot,
                        seq,
                    });
                }
                Err(0) => self.link.pause(stream.slot)?,
                Err(oldest) => self.link.wait(stream.slot, oldest)?,
            }
        }
    }

    /// Spends the configured time of an event call in a context.
    pub(crate) fn spend_event_call(&self, context: u64) -> Result<(), CUresult> {
        if event_lock::is_on() {
            event_lock::hold(self.context(context)?.slot);
        }
        Ok(())
    }

    /// Waits until no thread holds the context's lock. Calls on streams and events do so first.
    pub(crate) fn await_lock(&self, context: u64) {
        let Link::Live(live) = &self.link else {
            return;
        };
        let locked = || self.tables.lock().locked(context);
        while let Some(device) = locked() {
            // The order matters: the thread that releases the lock rings afterwards.
            let seen = live.read_progress(device);
            if locked().is_some() {
                live.wait_for_progress(device, seen);
            }
        }
    }

    /// Puts an unnumbered command about a stream's slot.
    pub(crate) fn put(&self, stream: u32, command: &Command) -> Result<(), CUresult> {
        loop {
            {
                // The lock makes this the only thread that puts.
                let _tables = self.tables.lock();
                if self.link.try_put(command) {
                    break;
                }
            }
            self.link.pause(stream)?;
        }
        self.link.announce(stream);
        Ok(())
    }
}
