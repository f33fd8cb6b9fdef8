//! Creation of shared pages.
//! `protocol::pages` describes each page's purpose and writers. A client's own page outlives each
//! daemon; the client brings it. The daemon creates the others.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::clock::Clock;
use protocol::lease::FIRST_TOTAL_NS;
use protocol::pages::{BellPage, ClientPage, DaemonPage, HpPage, LeasePage, PAGE_MAGIC};
use protocol::segment::{Mapping, read_only};
use protocol::sync::Ordering;

use crate::config::Config;
use crate::core::pages::{GpuPages, configure};

/// Descriptors of [`GpuPages`], to be sent to clients.
#[derive(Debug)]
pub struct GpuFds {
    /// Daemon page, read-only.
    pub daemon_read: OwnedFd,
    /// High-priority page, for high-priority clients.
    pub hp: OwnedFd,
    /// The same read-only, for best-effort clients: they must not revoke or forge epochs.
    pub hp_read: OwnedFd,
    /// Bell page.
    pub bell: OwnedFd,
}

impl GpuPages {
    /// Creates the pages of a GPU. The first epoch is 1: 0 is never an epoch.
    /// # Errors
    /// No descriptor or memory is left, or the file size limit is too low.
    pub fn create(config: &Config, clock: &Clock) -> io::Result<(Arc<Self>, GpuFds)> {
        let (daemon_fd, daemon) = Mapping::<DaemonPage>::create("pillion-daemon")?;
        let (hp_fd, hp) = Mapping::<HpPage>::create("pillion-hp")?;
        let (bell_fd, bell) = Mapping::<BellPage>::create("pillion-bell")?;
        bell.bell.key.store(clock.bell_key(), Ordering::Relaxed);
        hp.epoch.store(1, Ordering::Relaxed);
        configure(&daemon, config);
        daemon.heartbeat_ns.store(clock.now_ns(), Ordering::Relaxed);
        // Release: a client that sees the magic sees the content before it. (It also received the
        // descriptor later, which orders as well.)
        daemon.magic.store(PAGE_MAGIC, Ordering::Release);
        let fds = GpuFds {
            daemon_read: read_only(&daemon_fd)?,
            hp_read: read_only(&hp_fd)?,
            hp: hp_fd,
            bell: bell_fd,
        };
        Ok((Arc::new(Self { daemon, hp, bell }), fds))
    }
}

/// Maps the page that a client brings.
/// # Errors
/// It is no client page, or could be shortened under the mapping.
pub fn client_page_of_peer(fd: &OwnedFd) -> io::Result<Mapping<ClientPage>> {
    let page = Mapping::<ClientPage>::open_from_peer(fd)?;
    if page.magic.load(Ordering::Acquire) != PAGE_MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong magic"));
    }
    Ok(page)
}

/// A page for one best-effort job. It admits nothing until a lease is published.
/// # Errors
/// No descriptor or memory is left, or the file size limit is too low.
pub fn lease_page(clock: &Clock) -> io::Result<(OwnedFd, Mapping<LeasePage>)> {
    let (fd, page) = Mapping::<LeasePage>::create("pillion-lease")?;
    page.bell.key.store(clock.bell_key(), Ordering::Relaxed);
    let total_ns = &page.charges.total_ns;
    total_ns.store(FIRST_TOTAL_NS, Ordering::Relaxed);
    page.magic.store(PAGE_MAGIC, Ordering::Release);
    Ok((fd, page))
}
