//! The shared pages of a GPU, as the daemon's core uses them. `host::pages` makes them.

use policy::Policy;
use protocol::pages::{BellPage, DaemonPage, HpPage, ON_LOSS_HOLD, ON_LOSS_RUN};
use protocol::segment::Mapping;
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

impl GpuPages {
    /// Tells clients what another configuration says of them.
    pub fn configure(&self, config: &Config) {
        configure(&self.daemon, config);
    }
}

/// Tells clients what the configuration says of them. Each reads each word by itself, whenever it
/// needs it, so that the words may change while clients run.
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
