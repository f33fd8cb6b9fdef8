//! Shared pages, made and filled in.
//!
//! Which page is for what, and who may write it, is in `protocol::pages`. The daemon makes all of
//! them: a client that dies leaves nothing behind but memory that the daemon unmaps.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use policy::Policy;
use protocol::clock::Clock;
use protocol::pages::{
    BellPage, ClientPage, DaemonPage, HpPage, LeasePage, ON_LOSS_HOLD, ON_LOSS_RUN, PAGE_MAGIC,
};
use protocol::segment::{Mapping, read_only};
use protocol::sync::Ordering;

use crate::config::{Config, OnDaemonLoss};

/// The pages that all clients of the GPU share, mapped.
#[derive(Debug)]
pub struct GpuPages {
    /// What the daemon tells all.
    pub daemon: Mapping<DaemonPage>,
    /// What high-priority clients tell best-effort ones.
    pub hp: Mapping<HpPage>,
    /// What wakes the daemon.
    pub bell: Mapping<BellPage>,
}

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

    /// Tells clients what another configuration says of them.
    pub fn configure(&self, config: &Config) {
        configure(&self.daemon, config);
    }
}

/// Tells clients what the configuration says of them. Each reads each word by itself, whenever it needs
/// it, so that the words may change while clients run.
fn configure(daemon: &DaemonPage, config: &Config) {
    let on_loss = match config.on_daemon_loss {
        OnDaemonLoss::Run => ON_LOSS_RUN,
        OnDaemonLoss::Hold => ON_LOSS_HOLD,
    };
    daemon.on_daemon_loss.store(on_loss, Ordering::Relaxed);
    daemon
        .max_hold_ns
        .store(config.max_hold_ns, Ordering::Relaxed);
    daemon
        .unknown_ns
        .store(config.unknown_kernel_ns, Ordering::Relaxed);
    let learns = matches!(&config.policy, Policy::Pillion(params) if params.learnt_durations);
    daemon
        .learnt_durations
        .store(learns.into(), Ordering::Relaxed);
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
