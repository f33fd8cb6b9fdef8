//! The helper threads as others see them: woken, or kept out of the driver
//! ([`crate::daemon::helper`]).

use core::sync::atomic::Ordering;

use client::{backoff, ending};

use crate::dispatch::driver_exclusion::HOLDERS;
use crate::process::{self, Client};

/// A launch wakes a helper that sleeps so much longer than the launch is expected to take, ns.
/// Where no event is allowed, a stream is asked so often at most while no thread waits at the gate.
pub(crate) const EARLIER_NS: u64 = 500_000;

/// Wakes a client's helper if it sleeps: something has changed.
#[inline]
pub(crate) fn wake(client: &Client) {
    wake_before(client, 0);
}

/// Wakes a client's helper if it sleeps for longer than until then, ns, and [`EARLIER_NS`] more:
/// something was launched that is expected to be complete then.
#[inline]
pub(crate) fn wake_before(client: &Client, end_ns: u64) {
    let asleep = &client.helper.asleep;
    // SeqCst: see the module's text.
    let until_ns = asleep.load(Ordering::SeqCst);
    if until_ns != 0
        && end_ns.saturating_add(EARLIER_NS) < until_ns
        && asleep.swap(0, Ordering::SeqCst) != 0
    {
        client.page.helper_bell.ring(&client.clock);
    }
}

/// Wakes a client's helper if it sleeps until it is rung: something was launched with nobody to
/// protect.
#[inline]
pub(crate) fn wake_idle(client: &Client) {
    // Relaxed: what is missed here the next launch sees.
    if client.helper.asleep.load(Ordering::Relaxed) == u64::MAX {
        wake(client);
    }
}

/// Wakes a client's helper that does not watch what is in flight: somebody is to be protected now.
pub(crate) fn wake_to_watch(client: &Client) {
    if !client.helper.is_watching.load(Ordering::Relaxed) {
        wake_surely(client);
    }
}

/// Wakes a client's helper whatever it has said of its sleep. A signal handler may do it.
pub(crate) fn wake_surely(client: &Client) {
    client.page.helper_bell.ring_surely(&client.clock);
}

/// Whether the process is in its exit handlers, where no helper looks any more.
pub(crate) fn are_stopping() -> bool {
    HOLDERS.are_stopping()
}

/// Changes whenever the context that is current in a helper may have gone.
pub(crate) fn entered() -> u32 {
    HOLDERS.entered()
}

/// Wakes every helper that sleeps: what kept them all from looking has ended.
pub(crate) fn wake_all() {
    process::clients().for_each(wake);
}

/// The time to wait is over, and this process ends with work in flight: the daemon is to know why.
/// A signal handler may do it.
pub(crate) fn tell_gave_up() {
    process::clients().for_each(|client| ending::tell_gave_up(&client.page));
}

/// Keeps the helpers out of the driver from now on; waits until this client's is out.
pub(crate) fn stop(client: &Client) {
    HOLDERS.stop();
    wait_until_out(client);
}

/// Keeps the helpers out of the driver while it lives: a context must not be used while it is being
/// destroyed (CUDA driver API, `cuCtxDestroy`).
pub(crate) struct KeptOut(Option<usize>);

/// Waits until the helpers are out of the driver and keeps them out. Afterwards they take no
/// context for current that they entered before.
pub(crate) fn keep_out() -> KeptOut {
    let kept_out = KeptOut(HOLDERS.enter());
    process::clients().for_each(wait_until_out);
    HOLDERS.note_entered();
    kept_out
}

impl Drop for KeptOut {
    fn drop(&mut self) {
        HOLDERS.leave(self.0);
    }
}

/// Waits until no helper is in the driver any more that entered it before.
pub(crate) fn wait_until_all_out() {
    process::clients().for_each(wait_until_out);
}

/// One that is stuck there keeps nobody for good.
fn wait_until_out(client: &Client) {
    let in_driver = &client.helper.in_driver;
    backoff::wait_until(&client.clock, || !in_driver.load(Ordering::SeqCst));
}
