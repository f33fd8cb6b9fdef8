//! This process as a client of one daemon after another: what it shares with them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::clock::Clock;
use protocol::hello::JobClass;
use protocol::ledger::LedgerPage;
use protocol::pages::{ClientPage, Counter, PAGE_MAGIC};
use protocol::segment::{Access, Mapping, anonymous_client_page, client_page, create_sealed};
use protocol::sync::Ordering;

use crate::connection::{Connection, Descriptor};
use crate::link::{Link, Pages};

/// A client. There is at most one for each device in a process, for the life of the process; its
/// daemons come and go.
pub struct Client {
    /// The time that daemon and client share.
    pub clock: Clock,
    /// What this client and its daemons share: sums, counters and rings, of the whole life of the
    /// process.
    pub page: Mapping<ClientPage>,
    /// Of that page, for the next daemon.
    page_descriptor: Descriptor,
    /// The daemon's pages.
    pub link: Link,
    /// The connection to the daemon, open as long as both live.
    pub connection: Connection,
    /// Our slot in the job's ledger, where the daemon keeps one.
    ledger: Mutex<Option<LedgerSlot>>,
    /// A daemon has taken it, at least once.
    is_taken: core::sync::atomic::AtomicBool,
}

/// A process's slot in its job's ledger.
pub struct LedgerSlot {
    /// Kept for the life of the process, as accounts refer to it.
    pub page: &'static LedgerPage,
    /// Which one.
    pub slot: usize,
    /// Of the page, for the next daemon.
    pub descriptor: Descriptor,
}

/// What a daemon's welcome brings.
pub struct Welcome {
    /// Its pages.
    pub pages: Pages,
    /// The job's ledger and our slot in it, where the daemon keeps one.
    pub ledger: Option<(OwnedFd, u16)>,
    /// The client's page, where the process could not make a file of its own.
    pub own: Option<OwnedFd>,
}

impl Client {
    /// A client of nobody, of a process that asks to be of that class. Where the system allows no
    /// memory file (a container's filter) its page has none until a daemon gives it one.
    ///
    /// # Errors
    ///
    /// The system gives no memory.
    pub fn new(class: JobClass, clock: Clock) -> io::Result<Self> {
        let (page_descriptor, page) = match client_page(&clock) {
            Ok((descriptor, page)) => (Descriptor::new(descriptor), page),
            Err(_) => (Descriptor::default(), anonymous_client_page(&clock)?),
        };
        page.keep_from_children()?;
        Ok(Self {
            clock,
            page,
            page_descriptor,
            link: Link::new(class)?,
            connection: Connection::default(),
            ledger: Mutex::default(),
            is_taken: core::sync::atomic::AtomicBool::new(false),
        })
    }

    /// Whether the daemon has this process for high-priority.
    #[inline]
    pub fn is_high_priority(&self) -> bool {
        self.link.is_high_priority()
    }

    /// Whether high-priority launches on default streams are to carry a priority of ours: unless the daemon says that
    /// they are not to ([`protocol::pages::DaemonPage::plain_priority`]). A dead daemon takes nothing back that it
    /// said, so what it said ends with its connection.
    #[inline]
    pub fn adds_priority(&self) -> bool {
        // The connection's words are read only where the daemon says so.
        self.link.daemon.plain_priority.load(Ordering::Relaxed) == 0 || self.connection.has_ended()
    }

    /// Whether large copies are charged and wait as launches do
    /// ([`protocol::pages::DaemonPage::gates_copies`]).
    #[inline]
    pub fn gates_copies(&self) -> bool {
        self.link.daemon.gates_copies.load(Ordering::Relaxed) != 0 && !self.is_high_priority()
    }

    /// Whether a trace is taken, and which ([`protocol::pages::DaemonPage::trace`]); 0: none. What
    /// a dead daemon said ends with its connection, as in [`Client::adds_priority`].
    #[inline]
    pub fn trace(&self) -> u32 {
        match self.link.daemon.trace.load(Ordering::Relaxed) {
            0 => 0,
            _ if self.connection.has_ended() => 0,
            trace => trace,
        }
    }

    /// Whether a daemon has taken it so far.
    pub fn is_taken(&self) -> bool {
        // Relaxed: it stands for itself.
        self.is_taken.load(Ordering::Relaxed)
    }

    /// Its slot in the job's ledger, if it has one.
    pub fn ledger(&self) -> MutexGuard<'_, Option<LedgerSlot>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of the client's page. If the program has closed it, the page moves to another
    /// file; where the process may not make one, it has none, and the daemon makes the page.
    pub fn page_file(&self) -> Option<OwnedFd> {
        let kept = self.page_descriptor.with(OwnedFd::try_clone);
        if let Some(Ok(kept)) = kept {
            return Some(kept);
        }
        let made = create_sealed("pillion-client", size_of::<ClientPage>() as u64).ok()?;
        self.take_page(made.try_clone().ok()?).ok()?;
        Some(made)
    }

    /// From now on the client's page is in that new file.
    fn take_page(&self, file: OwnedFd) -> io::Result<()> {
        self.page.move_to(&file, ClientPage::WORDS_BEFORE_RINGS)?;
        self.page_descriptor.replace(file);
        Ok(())
    }

    /// The descriptor of the ledger that it has, and its slot, for the next daemon.
    pub fn ledger_file(&self) -> Option<(OwnedFd, u16)> {
        let ledger = self.ledger();
        let ledger = ledger.as_ref()?;
        let slot = u16::try_from(ledger.slot).ok()?;
        let descriptor = ledger.descriptor.with(OwnedFd::try_clone)?.ok()?;
        Some((descriptor, slot))
    }

    /// A daemon has taken it: the daemon's pages take the places of those before, and the end of
    /// `connection` says that one of the two is gone.
    ///
    /// # Errors
    ///
    /// What came is not what this version expects, or the system gives no memory: it is a client of
    /// nobody.
    pub fn accept(&self, connection: OwnedFd, welcome: Welcome) -> io::Result<()> {
        let accepted = self.try_accept(connection, welcome);
        if accepted.is_err() {
            self.connection.close();
        }
        accepted
    }

    fn try_accept(&self, connection: OwnedFd, welcome: Welcome) -> io::Result<()> {
        if let Some(own) = welcome.own {
            self.take_page(own)?;
        }
        let open = |(file, slot)| self.open_ledger(file, slot);
        let ledger = welcome.ledger.map(open).transpose()?;
        let moving = self.link.begin_to_move(&self.clock);
        // First: under the new lease nobody is to take the daemon for gone.
        self.connection.begin(connection);
        moving.replace(&welcome.pages, &self.page)?;
        drop(moving);
        if let Some(ledger) = ledger
            && let Some(before) = self.ledger().replace(ledger)
        {
            before.descriptor.close();
        }
        Ok(())
    }

    /// A daemon has accepted it, and it knows; whether that is the first one.
    pub fn note_taken(&self) -> bool {
        !self.is_taken.swap(true, Ordering::Relaxed)
    }

    /// What went before the first daemon came, went without one.
    pub fn count_unmanaged(&self) {
        if !self.is_high_priority() {
            let launches = self.page.counted(Counter::Launches);
            self.page.count(Counter::Unmanaged, launches);
        }
    }

    /// The daemon's side of its connection has ended.
    pub fn handle_end(&self) {
        self.connection.close();
        // Nobody waits for the answer to its question.
        self.page.probe.store(0, Ordering::SeqCst);
    }

    /// The ledger that a welcome came with: mapped, unless it is the one that this process has.
    fn open_ledger(&self, file: OwnedFd, slot: u16) -> io::Result<LedgerSlot> {
        let before = self.ledger();
        let before = before.as_ref();
        let page = match before.filter(|before| before.descriptor.is_of(&file)) {
            Some(before) => before.page,
            None => {
                let mapped = Mapping::<LedgerPage>::open(&file, Access::ReadWrite)?;
                mapped.keep_from_children()?;
                if mapped.magic.load(Ordering::Acquire) != PAGE_MAGIC {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong magic"));
                }
                mapped.leak()
            }
        };
        Ok(LedgerSlot {
            page,
            slot: usize::from(slot),
            descriptor: Descriptor::new(file),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_go_without_priority_only_while_a_daemon_is_there_that_says_so() {
        let client = Client::new(JobClass::HighPriority, Clock::monotonic()).unwrap();
        assert!(client.adds_priority());
        let connect = || {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            client.connection.begin(ours.into());
            theirs
        };
        let daemon = connect();
        assert!(client.adds_priority());
        client
            .link
            .daemon
            .plain_priority
            .store(1, Ordering::Relaxed);
        assert!(!client.adds_priority());
        // It is killed; the thread that waits for the end of the connection notes it.
        drop(daemon);
        client.connection.note_end(client.connection.number());
        assert!(client.adds_priority());
        client.handle_end();
        assert!(client.adds_priority());
        // The next one says so, too.
        let _next = connect();
        assert!(!client.adds_priority());
    }
}
