//! The library's helper thread, which detects completions on a client's stream, for
//! [`leased`](mod@super::leased). Times are ns.

use policy::{Look, Looks};

/// The poll interval of a high-priority client's helper (the library's constant).
const ASK_NS: u64 = 500_000;

/// A best-effort client's helper: records an event behind its work, polls it when [`Looks`] says.
#[derive(Debug)]
pub(super) struct Helper {
    pub(super) done: u64,
    pub(super) issued: u64,
    pub(super) seen: u64,
    event: Option<(u64, Look)>,
    looks: Looks,
    /// The last poll that found the event not reached; 0: none did.
    not_yet_ns: u64,
    pub(super) look_ns: u64,
}

impl Helper {
    pub(super) fn new() -> Self {
        Self {
            done: 0,
            issued: 0,
            seen: 0,
            event: None,
            looks: Looks::default(),
            not_yet_ns: 0,
            look_ns: u64::MAX,
        }
    }

    pub(super) fn wake(&mut self, now_ns: u64, wake_ns: u64) {
        if self.event.is_none() && self.look_ns == u64::MAX {
            self.look_ns = now_ns + wake_ns;
        }
    }

    pub(super) fn handle_done(&mut self, now_ns: u64, seq: u64, pause_ns: u64) {
        self.done = seq;
        if let Some((event, look)) = &mut self.event
            && *event == seq
        {
            while look.at_ns < now_ns {
                self.not_yet_ns = look.at_ns;
                *look = self.looks.handle_look(look, look.at_ns, false, pause_ns);
            }
            self.look_ns = look.at_ns;
        }
    }

    /// Polls; returns up to which launch all is newly seen complete, and the last poll in vain.
    pub(super) fn look(&mut self, now_ns: u64, pause_ns: u64) -> Option<(u64, u64)> {
        self.look_ns = u64::MAX;
        let (seq, look) = self.event.take_if(|(event, _)| *event <= self.done)?;
        if self.seen < seq {
            _ = self.looks.handle_look(&look, now_ns, true, pause_ns);
            self.seen = seq;
        }
        Some((seq, self.not_yet_ns))
    }

    pub(super) fn record(&mut self, now_ns: u64, expected_ns: u64, pause_ns: u64) {
        if self.event.is_some() || self.issued <= self.seen {
            return;
        }
        let look = self.looks.first(now_ns, now_ns, expected_ns, pause_ns);
        self.event = Some((self.issued, look));
        self.not_yet_ns = 0;
        if self.done >= self.issued {
            self.look_ns = look.at_ns;
        }
    }
}

#[derive(Debug)]
pub(super) struct Asker {
    done: u64,
    pub(super) issued: u64,
    pub(super) seen: u64,
    since_ns: Option<u64>,
    pub(super) look_ns: u64,
}

impl Asker {
    pub(super) fn new() -> Self {
        Self {
            done: 0,
            issued: 0,
            seen: 0,
            since_ns: None,
            look_ns: u64::MAX,
        }
    }

    pub(super) fn ask(&mut self, since_ns: Option<u64>) {
        self.since_ns = since_ns;
        self.look_ns = u64::MAX;
        self.plan(0);
    }

    pub(super) fn handle_done(&mut self, now_ns: u64, seq: u64) {
        self.done = seq;
        self.plan(now_ns);
    }

    fn plan(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.since_ns
            && self.done >= self.issued
            && self.issued > self.seen
        {
            let pauses = now_ns.saturating_sub(since_ns).div_ceil(ASK_NS);
            self.look_ns = since_ns + pauses * ASK_NS;
        }
    }

    /// Queries; returns up to which launch everything is newly seen complete.
    pub(super) fn look(&mut self) -> Option<u64> {
        self.look_ns = u64::MAX;
        if self.done < self.issued || self.issued <= self.seen {
            return None;
        }
        self.seen = self.issued;
        Some(self.seen)
    }
}
