//! The shared pages of a GPU, as the daemon's core uses them; `host::pages` creates them.

use policy::Policy;
use protocol::pages::{BellPage, DaemonPage, HpPage, ON_LOSS_HOLD, ON_LOSS_RUN};
use protocol::segment::Mapping;
use protocol::sync::Ordering;

use crate::config::{Config, OnDaemonLoss};

/// Pages shared by all clients of the GPU, mapped.
#[derive(Debug)]
pub struct GpuPages {
    /// From the daemon to all clients.
    pub daemon: Mapping<DaemonPage>,
    /// From high-priority to best-effort clients.
    pub hp: Mapping<HpPage>,
    /// The daemon's bell.
    pub bell: Mapping<BellPage>,
}

impl GpuPages {
    /// Publishes what a new configuration means for clients.
    pub fn configure(&self, config: &Config) {
        configure(&self.daemon, config);
    }
}

/// Publishes the configuration. Clients read each word when needed, so words may change any time.
pub(crate) fn configure(daemon: &DaemonPage, config: &Config) {
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
    daemon.marks.store(1, Ordering::Relaxed);
    let gates_copies = matches!(&config.policy, Policy::Pillion(_));
    daemon
        .gates_copies
        .store(gates_copies.into(), Ordering::Relaxed);
    let learns = matches!(&config.policy, Policy::Pillion(params) if params.learnt_durations);
    daemon
        .learnt_durations
        .store(learns.into(), Ordering::Relaxed);
}
