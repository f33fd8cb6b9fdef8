//! The connection with the device server: messages, commands, waiting.

use std::io;
use std::os::fd::OwnedFd;
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
use softgpu::wire::{Command, DevicePage, HostArena, PAGE_MAGIC, Reply, Request};

use crate::cost;
use crate::shared::Shared;

/// How often a thread that waits in real time looks whether the server is gone.
const SERVER_CHECK_NS: u64 = 100_000_000;
/// Pause of a thread that found the ring full, while the server empties it.
const RING_FULL_NS: u64 = 20_000;

/// The way to the device, or none.
#[derive(Debug)]
pub(crate) enum Link {
    /// Nothing is done, and is done at once.
    Null,
    /// A server.
    Live(Box<Live>),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Live {
    socket: Mutex<OwnedFd>,
    page: Mapping<Shared<DevicePage>>,
    host: Mapping<Shared<HostArena>>,
    host_fd: OwnedFd,
    progress: Mapping<BellPage>,
    doorbell: Mapping<BellPage>,
    clock: Clock,
}

/// What the server said of its device.
#[derive(Debug)]
pub(crate) struct Welcome {
    pub(crate) device: String,
    pub(crate) uuid: [u8; 16],
}

impl Live {
    /// Connects to the server.
    pub(crate) fn connect(path: &Path, label: &str) -> io::Result<(Self, Welcome)> {
        if let Some(error) = Clock::open_error() {
            return Err(io::Error::other(error));
        }
        let clock = Clock::process();
        let socket = connect_to(path)?;
        let hello = Request::Hello {
            label: label.to_owned(),
        };
        send(&socket, &hello.encode(), &[])?;
        let (packet, fds) = receive(&socket)?;
        let reply = Reply::decode(&packet).map_err(io::Error::other)?;
        let Reply::Welcome {
            device,
            uuid,
            is_virtual,
        } = reply
        else {
            return Err(io::Error::other("the server does not welcome us"));
        };
        if is_virtual != clock.is_virtual() {
            return Err(io::Error::other(
                "server and process are on different clocks",
            ));
        }
        let fds: [OwnedFd; 4] = fds
            .try_into()
            .map_err(|_| io::Error::other("descriptors are missing"))?;
        let [page_fd, host_fd, bell_fd, doorbell_fd] = fds;
        let page = Mapping::<Shared<DevicePage>>::open(&page_fd, Access::ReadWrite)?;
        if page.magic.load(Ordering::Acquire) != PAGE_MAGIC {
            return Err(io::Error::other("not a page of the software GPU"));
        }
        let host = Mapping::<Shared<HostArena>>::open(&host_fd, Access::ReadWrite)?;
        let live = Self {
            socket: Mutex::new(socket),
            page,
            host,
            host_fd,
            progress: Mapping::open(&bell_fd, Access::ReadWrite)?,
            doorbell: Mapping::open(&doorbell_fd, Access::ReadWrite)?,
            clock,
        };
        let base = live.host_base();
        match live.call(&Request::MapHost { base }) {
            Ok(Reply::Done) => Ok((live, Welcome { device, uuid })),
            _ => Err(io::Error::other("the server does not take our host arena")),
        }
    }

    /// Address of the host arena in this process.
    pub(crate) fn host_base(&self) -> u64 {
        let arena: *const Shared<HostArena> = &raw const *self.host;
        arena.expose_provenance() as u64
    }

    /// The memory that the device reaches.
    pub(crate) fn host(&self) -> &HostArena {
        &self.host
    }

    /// Gives the memory behind freed pinned pages back to the system.
    pub(crate) fn release_host(&self, offset: u64, bytes: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Without it the pages stay until they are used again.
        let _ = fallocate(&self.host_fd, flags, offset, bytes);
    }

    /// Asks the server and waits for its answer, in real time.
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
    /// Asks the server. Without one everything is done.
    pub(crate) fn call(&self, request: &Request) -> Result<Reply, CUresult> {
        match self {
            Self::Null => Ok(Reply::Done),
            Self::Live(live) => live.call(request),
        }
    }

    /// Puts a command; false if the ring is full. One thread at a time.
    pub(crate) fn try_put(&self, command: &Command) -> bool {
        match self {
            Self::Null => true,
            Self::Live(live) => live.page.try_put(command),
        }
    }

    /// Tells a server that sleeps in real time that there are commands. On the virtual clock it
    /// looks when this thread waits.
    pub(crate) fn announce(&self) {
        if let Self::Live(live) = self
            && !live.clock.is_virtual()
        {
            live.doorbell.bell.ring(&live.clock);
        }
    }

    /// Lets the server empty the ring.
    pub(crate) fn pause(&self) -> Result<(), CUresult> {
        let Self::Live(live) = self else {
            return Ok(());
        };
        self.announce();
        let now_ns = live.clock.now_ns();
        if live.clock.is_virtual() {
            live.clock.sleep_until(now_ns);
            return Ok(());
        }
        live.clock.sleep_until(now_ns + RING_FULL_NS);
        if live.is_gone() {
            Err(CUresult::DEVICE_UNAVAILABLE)
        } else {
            Ok(())
        }
    }

    /// Spends what a call costs on the virtual clock.
    pub(crate) fn spend(&self, host_ns: u64) {
        if let Self::Live(live) = self
            && live.clock.is_virtual()
        {
            live.clock.sleep_until(live.clock.now_ns() + host_ns);
        }
    }

    /// Whether command `seq` of a stream is complete.
    pub(crate) fn is_complete(&self, stream: u32, seq: u64) -> bool {
        match self {
            Self::Null => true,
            Self::Live(live) => live.page.is_complete(stream, seq),
        }
    }

    /// Waits until command `seq` of a stream is complete.
    pub(crate) fn wait(&self, stream: u32, seq: u64) -> Result<(), CUresult> {
        let Self::Live(live) = self else {
            return Ok(());
        };
        loop {
            if live.page.is_complete(stream, seq) {
                return Ok(());
            }
            let bell = &live.progress.bell;
            // The order matters; see `softgpu::wire`.
            let seen = bell.read();
            live.page.want(stream, seq);
            if live.page.is_complete(stream, seq) {
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
            if live.is_gone() {
                return Err(CUresult::DEVICE_UNAVAILABLE);
            }
        }
    }

    /// The first error of a context.
    pub(crate) fn error(&self, context: u32) -> Result<(), CUresult> {
        let Self::Live(live) = self else {
            return Ok(());
        };
        match live.page.errors.0[context as usize].load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(CUresult(code)),
        }
    }

    /// When an event's last complete record happened.
    pub(crate) fn event_ns(&self, event: u32) -> u64 {
        match self {
            Self::Null => 0,
            Self::Live(live) => live.page.events[event as usize]
                .at_ns
                .load(Ordering::Relaxed),
        }
    }

    /// Counts a call that the software GPU cannot serve.
    pub(crate) fn count_not_supported(&self) {
        if let Self::Live(live) = self {
            live.page.not_supported.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// After a query: it took time, and what completed meanwhile counts.
    pub(crate) fn spend_query(&self) {
        self.spend(cost::QUERY_HOST_NS);
    }
}
