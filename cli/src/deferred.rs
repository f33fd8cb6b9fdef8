//! Defers the signals that would end this command while it still has something to undo: a state
//! that it has announced to others, or a program in another process group, which a terminal's
//! Ctrl-C does not reach.

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Sent by terminals, supervisors and people.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

/// Defers the signals while it lives. On drop, the process dies of the pending one, if any.
pub(crate) struct Deferred {
    /// The signals that this instance blocked; those blocked before stay blocked.
    signals: SigSet,
    /// Readable once a signal is pending. It is never read, so the signal stays pending.
    pub(crate) has_come: OwnedFd,
}

impl Deferred {
    /// Starts deferring for the calling thread, the command's only one. Fails without a descriptor,
    /// or without `/proc` to tell which signals are ignored: once blocked, an ignored signal would
    /// be taken for one that ends the process.
    pub(crate) fn begin() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let of = |name| mask_of(&status, name).ok_or(io::ErrorKind::InvalidData);
        let left_out = of("SigIgn:")? | of("SigBlk:")?;
        let signals: SigSet = ENDING
            .into_iter()
            .filter(|&signal| left_out & (1 << (signal as u64 - 1)) == 0)
            .collect();
        let has_come = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?.into();
        signals.thread_block()?;
        Ok(Self { signals, has_come })
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        // Unblocking fails for no valid set of signals.
        let _ = self.signals.thread_unblock();
    }
}

/// A mask of signals, bit 0 for signal 1 (`proc_pid_status(5)`).
fn mask_of(status: &str, name: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_signals_are_ignored_is_read_from_the_kernels_words() {
        let status = "Name:\tstop\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001006\n";
        assert_eq!(mask_of(status, "SigIgn:"), Some(0x1006));
        assert_eq!(mask_of(status, "SigCgt:"), None);
        assert_eq!(mask_of("SigIgn:\tnone\n", "SigIgn:"), None);
    }
}
