//! The connections with the device servers: messages, commands, waiting. A process has a server per
//! device. Here slots (of contexts: `device * CONTEXTS + slot`) count over all devices, so that a
//! slot names its device, and become the server's own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use abi::types::CUresult;
use parking_lot::Mutex;
use protocol::clock::Clock;
use protocol::hello::{connect_to, receive, send};
use protocol::pages::BellPage;
use protocol::segment::{Access, Mapping};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, fallocate};
use softgpu::wire::{
    CONTEXTS, Command, DEVICE_BASE, DEVICE_LOW_BASE, DEVICE_LOW_SPAN_BYTES, DEVICE_SPAN_BYTES,
    DevicePage, EVENTS, GRAPHS, HostArena, MemoryRequest, PAGE_MAGIC, Reply, Request, STREAMS,
    TEXT_BYTES_MAX, Work, device_base,
};

use crate::cost;
use crate::driver::Ways;
use crate::shared::Shared;

/// Interval at which a thread that waits in real time checks whether the server has ended.
const SERVER_CHECK_NS: u64 = 100_000_000;
/// A device's host calls are numbered below this power of two; the device is above.
const CALL_BITS: u32 = 56;
/// Pause of a thread that found the ring full, while the server empties it.
const RING_FULL_NS: u64 = 20_000;

#[derive(Debug)]
pub(crate) enum Link {
    /// No link: every call succeeds at once without effect.
    Null,
    Live(Box<Live>),
}

#[derive(Debug)]
pub(crate) struct Live {
    servers: Vec<Connection>,
    host: Mapping<Shared<HostArena>>,
    host_fd: OwnedFd,
    clock: Clock,
}

#[derive(Debug)]
struct Connection {
    socket: Mutex<OwnedFd>,
    page: Mapping<Shared<DevicePage>>,
    progress: Mapping<BellPage>,
    doorbell: Mapping<BellPage>,
}

#[derive(Debug)]
pub(crate) struct Welcome {
    pub(crate) device: String,
    pub(crate) uuid: [u8; 16],
    pub(crate) ways: Option<Ways>,
}

impl Live {
    pub(crate) fn connect(paths: &[&Path], label: &str) -> io::Result<(Self, Vec<Welcome>)> {
        if let Some(error) = Clock::open_error() {
            return Err(io::Error::other(error));
        }
        let clock = Clock::process();
        // The first reading resolves the kernel's clock function, under the dynamic linker's lock.
        // Later a thread might be stopped holding it.
        let _ = clock.now_ns();
        if clock.is_virtual() && paths.len() > 1 {
            // Each server would be the one that advances time.
            return Err(io::Error::other(
                "PILLION_CLOCK is set, but a virtual clock supports one device only",
            ));
        }
        let [first, others @ ..] = paths else {
            return Err(io::Error::other("no path of a server is given"));
        };
        let at = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let (server, welcome, host_fd) =
            Connection::open(first, label, clock, None).map_err(|error| at(first, error))?;
        let host = Mapping::<Shared<HostArena>>::open(&host_fd, Access::ReadWrite)?;
        let mut live = Self {
            servers: vec![server],
            host,
            host_fd,
            clock,
        };
        let mut welcomes = vec![welcome];
        for path in others {
            let (server, welcome, _) = Connection::open(path, label, clock, Some(&live.host_fd))
                .map_err(|error| at(path, error))?;
            live.servers.push(server);
            welcomes.push(welcome);
        }
        let base = live.host_base();
        for (index, server) in live.servers.iter().enumerate() {
            let device_base = device_base(index);
            match server.call(&Request::MapHost { base, device_base }) {
                Ok(Reply::Done) => {}
                _ => return Err(io::Error::other("a server refused the host arena")),
            }
        }
        Ok((live, welcomes))
    }

    /// The UUID of a server's device. The server sees a process that came and went.
    pub(crate) fn identity(path: &Path) -> io::Result<[u8; 16]> {
        let (_, welcome, _) = Connection::open(path, "", Clock::process(), None)?;
        Ok(welcome.uuid)
    }

    fn server(&self, device: usize) -> &Connection {
        &self.servers[device]
    }

    fn of_stream(&self, slot: u32) -> (&Connection, u32) {
        (self.server(slot as usize / STREAMS), slot % STREAMS as u32)
    }

    /// Address of the host arena in this process.
    pub(crate) fn host_base(&self) -> u64 {
        let arena: *const Shared<HostArena> = &raw const *self.host;
        arena.expose_provenance() as u64
    }

    /// The memory that the device can access.
    pub(crate) fn host(&self) -> &HostArena {
        &self.host
    }

    pub(crate) fn release_host(&self, offset: u64, bytes: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If it fails, the pages stay until their next use.
        let _ = fallocate(&self.host_fd, flags, offset, bytes);
    }

    pub(crate) fn spawn(
        &self,
        builder: std::thread::Builder,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.clock.spawn(builder, body).map(drop)
    }

    /// Enables the reporting of kernels' times by the servers.
    pub(crate) fn want_kernel_times(&self) {
        for server in &self.servers {
            server.page.wants_kernel_times.store(1, Ordering::Relaxed);
        }
    }

    /// The slot of the stream at its server, the start and the end of kernel number `taken` of a
    /// device, once it is complete.
    pub(crate) fn kernel_time(&self, device: usize, taken: u64) -> Option<(u32, u64, u64)> {
        self.server(device).page.kernel_time(taken)
    }

    /// Host call number `taken` of a device, if it is due.
    pub(crate) fn host_call(&self, device: usize, taken: u64) -> Option<u64> {
        self.server(device).page.host_call(taken)
    }

    /// The value for [`Self::wait_for_progress`], to be read before checking.
    pub(crate) fn read_progress(&self, device: usize) -> u32 {
        self.server(device).progress.bell.read()
    }

    /// Sleeps until the device's server, or another thread of this process, rings.
    pub(crate) fn wait_for_progress(&self, device: usize, seen: u32) {
        let bell = &self.server(device).progress.bell;
        bell.wait(&self.clock, seen, None);
    }

    /// Wakes the threads that wait for a device's server.
    pub(crate) fn wake_waiters(&self, device: usize) {
        self.server(device).progress.bell.ring(&self.clock);
    }
}

impl Connection {
    /// Connects to a server; the last result is the descriptor of the host arena.
    fn open(
        path: &Path,
        label: &str,
        clock: Clock,
        host: Option<&OwnedFd>,
    ) -> io::Result<(Self, Welcome, OwnedFd)> {
        let socket = connect_to(path)?;
        let hello = Request::Hello {
            label: label[..label.floor_char_boundary(TEXT_BYTES_MAX)].to_owned(),
        };
        let fds: Vec<BorrowedFd<'_>> = host.iter().map(|fd| fd.as_fd()).collect();
        send(&socket, &hello.encode(), &fds)?;
        let (packet, fds) = receive(&socket)?;
        let reply = Reply::decode(&packet).map_err(io::Error::other)?;
        let Reply::Welcome {
            device,
            uuid,
            is_virtual,
            is_mps,
            block_priority,
        } = reply
        else {
            return Err(io::Error::other("the server refused the connection"));
        };
        if is_virtual != clock.is_virtual() {
            return Err(io::Error::other(
                "PILLION_CLOCK of this process does not match --clock-page of the server",
            ));
        }
        let fds: [OwnedFd; 4] = fds
            .try_into()
            .map_err(|_| io::Error::other("the server sent a wrong number of descriptors"))?;
        let [page_fd, host_fd, bell_fd, doorbell_fd] = fds;
        let page = Mapping::<Shared<DevicePage>>::open(&page_fd, Access::ReadWrite)?;
        if page.magic.load(Ordering::Acquire) != PAGE_MAGIC {
            return Err(io::Error::other(
                "the server sent a page that is not of the software GPU",
            ));
        }
        let connection = Self {
            socket: Mutex::new(socket),
            page,
            progress: Mapping::open(&bell_fd, Access::ReadWrite)?,
            doorbell: Mapping::open(&doorbell_fd, Access::ReadWrite)?,
        };
        let ways = Some(Ways {
            is_mps,
            block_priority,
        });
        let welcome = Welcome { device, uuid, ways };
        Ok((connection, welcome, host_fd))
    }

    /// Sends a request and waits for the reply, in real time.
    fn call(&self, request: &Request) -> Result<Reply, CUresult> {
        let socket = self.socket.lock();
        let gone = |_: io::Error| CUresult::DEVICE_UNAVAILABLE;
        send(&*socket, &request.encode(), &[]).map_err(gone)?;
        let (packet, _) = receive(&*socket).map_err(gone)?;
        match Reply::decode(&packet) {
            Ok(Reply::Refused { code }) => Err(CUresult(code)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(CUresult::DEVICE_UNAVAILABLE),
        }
    }

    fn is_gone(&self) -> bool {
        let socket = self.socket.lock();
        let mut fds = [PollFd::new(&*socket, PollFlags::empty())];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&at_once)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

impl Link {
    /// Sends a request to the server of the device of its slot or address. Succeeds without a link.
    pub(crate) fn call(&self, request: &Request) -> Result<Reply, CUresult> {
        let mut request = request.clone();
        let device = match &mut request {
            Request::DestroyContext { context } | Request::Allocate { context, .. } => {
                take_device(context, CONTEXTS)
            }
            Request::Free { address } => device_of_address(*address),
            Request::Hello { .. }
            | Request::MapHost { .. }
            | Request::CreateContext { .. }
            | Request::MemoryInfo
            | Request::Memory(_)
            | Request::Monitor
            | Request::Inject(_)
            | Request::Mps(_)
            | Request::Stats => return Err(CUresult::INVALID_VALUE),
        };
        self.call_on(device, &request)
    }

    /// Sends a request to a device's server. Without a link every request succeeds. Slots in the
    /// reply are those of this side.
    pub(crate) fn call_on(&self, device: usize, request: &Request) -> Result<Reply, CUresult> {
        let Self::Live(live) = self else {
            return Ok(Reply::Done);
        };
        let server = live.servers.get(device).ok_or(CUresult::INVALID_VALUE)?;
        Ok(match server.call(request)? {
            Reply::Context { context } => Reply::Context {
                context: (device * CONTEXTS) as u32 + context,
            },
            reply => reply,
        })
    }

    /// Sends a memory request to a device's server. Without a link there is no memory.
    pub(crate) fn ask(&self, device: usize, request: MemoryRequest) -> Result<[u64; 4], CUresult> {
        if self.is_null() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        match self.call_on(device, &Request::Memory(request))? {
            Reply::Allocated { address } => Ok([address, 0, 0, 0]),
            Reply::Words { words } => Ok(words),
            Reply::Done => Ok([0; 4]),
            _ => Err(CUresult::DEVICE_UNAVAILABLE),
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Puts a command; false if the ring is full. Only for one thread at a time.
    pub(crate) fn try_put(&self, command: &Command) -> bool {
        match self {
            Self::Null => true,
            Self::Live(live) => {
                let (device, command) = localised(*command);
                live.server(device).page.try_put(&command)
            }
        }
    }

    /// Wakes servers that sleep in real time for a stream's commands. On the virtual clock they
    /// poll when this thread waits.
    pub(crate) fn announce(&self, stream: u32) {
        if let Self::Live(live) = self
            && !live.clock.is_virtual()
        {
            let (server, _) = live.of_stream(stream);
            server.doorbell.bell.ring(&live.clock);
        }
    }

    pub(crate) fn pause(&self, stream: u32) -> Result<(), CUresult> {
        let Self::Live(live) = self else {
            return Ok(());
        };
        self.announce(stream);
        let now_ns = live.clock.now_ns();
        if live.clock.is_virtual() {
            live.clock.sleep_until(now_ns);
            return Ok(());
        }
        live.clock.sleep_until(now_ns + RING_FULL_NS);
        if live.of_stream(stream).0.is_gone() {
            Err(CUresult::DEVICE_UNAVAILABLE)
        } else {
            Ok(())
        }
    }

    /// Spends a call's host time on the virtual clock.
    pub(crate) fn spend(&self, host_ns: u64) {
        if let Self::Live(live) = self
            && live.clock.is_virtual()
        {
            live.clock.sleep_until(live.clock.now_ns() + host_ns);
        }
    }

    /// Lets this much time pass between two polls.
    pub(crate) fn sleep(&self, ns: u64) {
        if let Self::Live(live) = self {
            live.clock.sleep_until(live.clock.now_ns() + ns);
        }
    }

    pub(crate) fn is_complete(&self, stream: u32, seq: u64) -> bool {
        match self {
            Self::Null => true,
            Self::Live(live) => {
                let (server, slot) = live.of_stream(stream);
                server.page.is_complete(slot, seq)
            }
        }
    }

    pub(crate) fn wait(&self, stream: u32, seq: u64) -> Result<(), CUresult> {
        let Self::Live(live) = self else {
            return Ok(());
        };
        let (server, stream) = live.of_stream(stream);
        loop {
            if server.page.is_complete(stream, seq) {
                return Ok(());
            }
            let bell = &server.progress.bell;
            // The order matters; see `softgpu::wire`.
            let seen = bell.read();
            server.page.want(stream, seq);
            if server.page.is_complete(stream, seq) {
                return Ok(());
            }
            if live.clock.is_virtual() {
                bell.wait(&live.clock, seen, None);
                continue;
            }
            bell.wait(
                &live.clock,
                seen,
                Some(live.clock.now_ns() + SERVER_CHECK_NS),
            );
            if server.is_gone() {
                return Err(CUresult::DEVICE_UNAVAILABLE);
            }
        }
    }

    pub(crate) fn error(&self, context: u32) -> Result<(), CUresult> {
        let Self::Live(live) = self else {
            return Ok(());
        };
        let mut slot = context;
        let server = live.server(take_device(&mut slot, CONTEXTS));
        match server.page.errors.0[slot as usize].load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(CUresult(code)),
        }
    }

    /// Time of an event's last completed record.
    pub(crate) fn event_ns(&self, event: u32) -> u64 {
        match self {
            Self::Null => 0,
            Self::Live(live) => {
                let mut slot = event;
                let server = live.server(take_device(&mut slot, EVENTS));
                server.page.events[slot as usize]
                    .at_ns
                    .load(Ordering::Relaxed)
            }
        }
    }

    /// Counts an unsupported call, at the first device.
    pub(crate) fn count_not_supported(&self) {
        if let Self::Live(live) = self {
            let page = &live.server(0).page;
            page.not_supported.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a captured launch, at the stream's device.
    pub(crate) fn count_captured(&self, stream: u32) {
        if let Self::Live(live) = self {
            let (server, _) = live.of_stream(stream);
            server.page.captured.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spends a query's time, so that work which completes meanwhile counts.
    pub(crate) fn spend_query(&self) {
        self.spend(cost::QUERY_HOST_NS);
    }
}

/// The device of a slot; the slot becomes its server's own.
fn take_device(slot: &mut u32, per_device: usize) -> usize {
    let device = *slot as usize / per_device;
    *slot %= per_device as u32;
    device
}

/// The number of the first host call of a device.
pub(crate) fn first_call_of(device: usize) -> u64 {
    (device as u64) << CALL_BITS
}

/// The slot here of a stream at a device's server.
pub(crate) fn stream_of(device: usize, slot: u32) -> u32 {
    first_stream_of(device) + slot
}

/// The first stream of a device, for commands of no stream.
pub(crate) fn first_stream_of(device: usize) -> u32 {
    (device * STREAMS) as u32
}

/// The device of a host call.
fn device_of_call(call: u64) -> usize {
    (call >> CALL_BITS) as usize
}

pub(crate) fn device_of_address(address: u64) -> usize {
    if address < DEVICE_BASE {
        return (address.saturating_sub(DEVICE_LOW_BASE) / DEVICE_LOW_SPAN_BYTES) as usize;
    }
    ((address - DEVICE_BASE) / DEVICE_SPAN_BYTES) as usize
}

/// A command with the slots of its device's server.
fn localised(mut command: Command) -> (usize, Command) {
    let device = match &mut command {
        Command::CreateStream {
            stream, context, ..
        } => {
            take_device(context, CONTEXTS);
            take_device(stream, STREAMS)
        }
        Command::DestroyStream { stream } => take_device(stream, STREAMS),
        Command::Submit { stream, work, .. } => {
            localise(work);
            take_device(stream, STREAMS)
        }
        Command::HostDone { call } => device_of_call(*call),
        Command::GraphClear { graph } => take_device(graph, GRAPHS),
        Command::GraphNode { graph, work } => {
            localise(work);
            take_device(graph, GRAPHS)
        }
    };
    (device, command)
}

/// As above, for work in a stream.
fn localise(work: &mut Work) {
    match work {
        Work::Record { event, .. } => take_device(event, EVENTS),
        Work::Wait { other, .. } => take_device(other, STREAMS),
        Work::GraphLaunch { graph, .. } => take_device(graph, GRAPHS),
        _ => 0,
    };
}
