//! Signals that would end this command, put off while it has something to undo first: what it has told others, or a program of another
//! process group, which a terminal's Ctrl-C does not reach.

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What a terminal, a supervisor and a person send.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

/// While it lives they wait. When it is dropped the process dies of the one that has come, if one has.
pub(crate) struct Deferred {
    /// Blocked by us; what was blocked before stays so.
    signals: SigSet,
    /// Readable when one has come. It is never read: the signal stays pending.
    pub(crate) has_come: OwnedFd,
}

impl Deferred {
    /// From now on, for the calling thread, the only one of the command.
    ///
    /// # Errors
    ///
    /// No descriptor, or `/proc` is not there to say which of them are ignored: one that is, once blocked, would be taken for one
    /// that ends us.
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
        // It fails for no set of signals.
        let _ = self.signals.thread_unblock();
    }
}

/// A bit for each signal, from 1 (`proc_pid_status(5)`).
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
