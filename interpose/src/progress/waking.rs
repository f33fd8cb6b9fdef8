//! Wakes the helper threads, or keeps them out of the driver ([`crate::daemon::helper`]).

use core::sync::atomic::Ordering;

use client::{backoff, ending};

use crate::dispatch::driver_exclusion::HOLDERS;
use crate::process::{self, Client};

/// A launch wakes a helper that sleeps so much longer than the launch's expected duration, ns. Also
/// the shortest interval of stream queries without events, while no thread waits at the gate.
pub(crate) const EARLIER_NS: u64 = 500_000;

/// Wakes a client's helper if it sleeps: something has changed.
#[inline]
pub(crate) fn wake(client: &Client) {
    wake_before(client, 0);
}

/// Wakes a helper that sleeps until after `end_ns`, when a launch should end, plus [`EARLIER_NS`].
#[inline]
pub(crate) fn wake_before(client: &Client, end_ns: u64) {
    let asleep = &client.helper.asleep;
    // SeqCst: see [`crate::daemon::helper`].
    let until_ns = asleep.load(Ordering::SeqCst);
    if until_ns != 0
        && end_ns.saturating_add(EARLIER_NS) < until_ns
        && asleep.swap(0, Ordering::SeqCst) != 0
    {
        client.page.helper_bell.ring(&client.clock);
    }
}

/// Wakes a client's helper if it sleeps until it is rung: a launch was made with nobody to protect.
#[inline]
pub(crate) fn wake_idle(client: &Client) {
    // Relaxed: the next launch sees what is missed here.
    if client.helper.asleep.load(Ordering::Relaxed) == u64::MAX {
        wake(client);
    }
}

/// Wakes a client's helper that does not watch work in flight: there is somebody to protect now.
pub(crate) fn wake_to_watch(client: &Client) {
    if !client.helper.is_watching.load(Ordering::Relaxed) {
        wake_surely(client);
    }
}

/// Wakes a client's helper whatever its sleep flag. Safe in a signal handler.
pub(crate) fn wake_surely(client: &Client) {
    client.page.helper_bell.ring_surely(&client.clock);
}

/// Whether the process is in its exit handlers, where no helper polls any more.
pub(crate) fn are_stopping() -> bool {
    HOLDERS.are_stopping()
}

/// Changes whenever a helper's current context may have been destroyed.
pub(crate) fn entered() -> u32 {
    HOLDERS.entered()
}

/// Wakes every sleeping helper: what kept them from polling has ended.
pub(crate) fn wake_all() {
    process::clients().for_each(wake);
}

/// Reports to the daemon that time to drain is over, with work in flight. Safe in a signal handler.
pub(crate) fn tell_gave_up() {
    process::clients().for_each(|client| ending::tell_gave_up(&client.page));
}

/// Keeps the helpers out of the driver for good; waits until this client's is out.
pub(crate) fn stop(client: &Client) {
    HOLDERS.stop();
    wait_until_out(client);
}

/// Keeps the helpers out of the driver while it lives: a context must not be used while it is being
/// destroyed (CUDA driver API, `cuCtxDestroy`).
pub(crate) struct KeptOut(Option<usize>);

/// Waits until the helpers are out of the driver and keeps them out. Afterwards they do not rely on
/// a context that they made current before.
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

pub(crate) fn wait_until_all_out() {
    process::clients().for_each(wait_until_out);
}

/// The wait is bounded, for a helper that is stuck there.
fn wait_until_out(client: &Client) {
    let in_driver = &client.helper.in_driver;
    backoff::wait_until(&client.clock, || !in_driver.load(Ordering::SeqCst));
}
