//! Shared pages, made and filled in.
//!
//! Which page is for what, and who may write it, is in `protocol::pages`. The daemon makes all of
//! them: a client that dies leaves nothing behind but memory that the daemon unmaps.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::clock::Clock;
use protocol::pages::{BellPage, ClientPage, DaemonPage, HpPage, LeasePage, PAGE_MAGIC};
use protocol::segment::{Mapping, read_only};
use protocol::sync::Ordering;

use crate::config::Config;
use crate::core::pages::{GpuPages, configure};

/// Descriptors of [`GpuPages`], to be sent to clients.
#[derive(Debug)]
pub struct GpuFds {
    /// Daemon page, for reading only.
    pub daemon_read: OwnedFd,
    /// High-priority page, for high-priority clients.
    pub hp: OwnedFd,
    /// The same for reading only, for best-effort clients: they must not revoke or forge epochs.
    pub hp_read: OwnedFd,
    /// Bell page.
    pub bell: OwnedFd,
}

impl GpuPages {
    /// Makes the pages of a GPU. The first epoch is 1: 0 never is one.
    ///
    /// # Errors
    ///
    /// The system gives no memory file.
    pub fn create(config: &Config, clock: &Clock) -> io::Result<(Arc<Self>, GpuFds)> {
        let (daemon_fd, daemon) = Mapping::<DaemonPage>::create("pillion-daemon")?;
        let (hp_fd, hp) = Mapping::<HpPage>::create("pillion-hp")?;
        let (bell_fd, bell) = Mapping::<BellPage>::create("pillion-bell")?;
        bell.bell.key.store(clock.bell_key(), Ordering::Relaxed);
        hp.epoch.store(1, Ordering::Relaxed);
        configure(&daemon, config);
        daemon.heartbeat_ns.store(clock.now_ns(), Ordering::Relaxed);
        // Release: a client that sees the magic sees what was filled in before it. (It also got the
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

/// A page for one client.
///
/// # Errors
///
/// The system gives no memory file.
pub fn client_page(clock: &Clock) -> io::Result<(OwnedFd, Mapping<ClientPage>)> {
    let (fd, page) = Mapping::<ClientPage>::create("pillion-client")?;
    let key = clock.bell_key();
    page.helper_bell.key.store(key, Ordering::Relaxed);
    page.magic.store(PAGE_MAGIC, Ordering::Release);
    Ok((fd, page))
}

/// A page for one best-effort job. It admits nothing until a lease is published.
///
/// # Errors
///
/// The system gives no memory file.
pub fn lease_page(clock: &Clock) -> io::Result<(OwnedFd, Mapping<LeasePage>)> {
    let (fd, page) = Mapping::<LeasePage>::create("pillion-lease")?;
    page.bell.key.store(clock.bell_key(), Ordering::Relaxed);
    page.magic.store(PAGE_MAGIC, Ordering::Release);
    Ok((fd, page))
}
