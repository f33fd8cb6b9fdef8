//! The thread of the library that finds out what a client's stream has completed, as [`leased`](mod@super::leased) has it: it records an event
//! behind what is in flight, asks for it again and again, and records the next one. Times are ns.

/// A client's helper thread on its one stream.
#[derive(Debug)]
pub(super) struct Helper {
    /// Launches that the device has completed.
    pub(super) done: u64,
    /// Launches that went.
    pub(super) issued: u64,
    /// Launches that were seen complete.
    pub(super) seen: u64,
    /// The number behind which its event stands.
    pub(super) event: Option<u64>,
    pub(super) looked_ns: u64,
    /// When it next looks and may find something.
    pub(super) look_ns: u64,
}

impl Helper {
    pub(super) fn new() -> Self {
        Self {
            done: 0,
            issued: 0,
            seen: 0,
            event: None,
            looked_ns: 0,
            look_ns: u64::MAX,
        }
    }

    /// Something is in flight; wakes it if it sleeps.
    pub(super) fn wake(&mut self, now_ns: u64, wake_ns: u64) {
        if self.event.is_none() && self.look_ns == u64::MAX {
            self.look_ns = now_ns + wake_ns;
        }
    }

    /// The device has completed launch `seq`.
    pub(super) fn handle_done(&mut self, now_ns: u64, seq: u64, pause_ns: u64) {
        self.done = seq;
        if self.event == Some(seq) {
            let pauses = (now_ns - self.looked_ns).div_ceil(pause_ns).max(1);
            self.look_ns = self.looked_ns + pauses * pause_ns;
        }
    }

    /// Looks; returns up to which launch everything is newly seen complete. `is_wanted`: somebody
    /// wants to know about what comes next.
    pub(super) fn look(&mut self, now_ns: u64, pause_ns: u64, is_wanted: bool) -> Option<u64> {
        let reached = self.event.take_if(|event| *event <= self.done);
        if let Some(seq) = reached {
            self.seen = self.seen.max(seq);
        }
        self.looked_ns = now_ns;
        self.look_ns = u64::MAX;
        if is_wanted && self.event.is_none() && self.issued > self.seen {
            self.event = Some(self.issued);
            if self.done >= self.issued {
                self.look_ns = now_ns + pause_ns;
            }
        }
        reached
    }
}
