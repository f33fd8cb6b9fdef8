//! This process as a client of one daemon after another: the memory it shares with them.

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

/// A client. A process has at most one per device, for its whole life; daemons come and go.
pub struct Client {
    /// The clock that daemon and client share.
    pub clock: Clock,
    /// Sums, counters and rings shared with each daemon, for the life of the process.
    pub page: Mapping<ClientPage>,
    page_descriptor: Descriptor,
    /// The daemon's pages.
    pub link: Link,
    /// The connection to the daemon, open as long as both live.
    pub connection: Connection,
    ledger: Mutex<Option<LedgerSlot>>,
    is_taken: core::sync::atomic::AtomicBool,
}

/// A process's slot in its job's ledger.
pub struct LedgerSlot {
    /// Mapped for the life of the process, as accounts refer to it.
    pub page: &'static LedgerPage,
    /// The slot's index.
    pub slot: usize,
    /// The page's descriptor, for the next daemon.
    pub descriptor: Descriptor,
}

/// The contents of a daemon's welcome.
pub struct Welcome {
    /// The daemon's pages.
    pub pages: Pages,
    /// The job's ledger and our slot in it, where the daemon keeps one.
    pub ledger: Option<(OwnedFd, u16)>,
    /// The client's page, where the process could not create a file of its own.
    pub own: Option<OwnedFd>,
}

impl Client {
    /// A client without a daemon, in a process that asks for `class`. Where the system allows no
    /// memory file (a container's filter), the page has no file until a daemon supplies one.
    /// # Errors
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

    /// Whether the daemon treats this process as high-priority.
    #[inline]
    pub fn is_high_priority(&self) -> bool {
        self.link.is_high_priority()
    }

    /// Whether high-priority launches on default streams carry our priority: yes, unless the daemon
    /// disables it ([`protocol::pages::DaemonPage::plain_priority`]). A dead daemon cannot revoke
    /// its setting, so the setting ends with its connection.
    #[inline]
    pub fn adds_priority(&self) -> bool {
        // The connection's atomics are read only if the daemon has disabled the priority.
        self.link.daemon.plain_priority.load(Ordering::Relaxed) == 0 || self.connection.has_ended()
    }

    /// Whether large copies are charged and wait like launches
    /// ([`protocol::pages::DaemonPage::gates_copies`]).
    #[inline]
    pub fn gates_copies(&self) -> bool {
        self.link.daemon.gates_copies.load(Ordering::Relaxed) != 0 && !self.is_high_priority()
    }

    /// The number of the trace being taken ([`protocol::pages::DaemonPage::trace`]); 0: none. A
    /// dead daemon's setting ends with its connection, as in [`Client::adds_priority`].
    #[inline]
    pub fn trace(&self) -> u32 {
        match self.link.daemon.trace.load(Ordering::Relaxed) {
            0 => 0,
            _ if self.connection.has_ended() => 0,
            trace => trace,
        }
    }

    /// Whether any daemon has accepted this client so far.
    pub fn is_taken(&self) -> bool {
        // Relaxed: the flag guards no other data.
        self.is_taken.load(Ordering::Relaxed)
    }

    /// The slot in the job's ledger, if there is one.
    pub fn ledger(&self) -> MutexGuard<'_, Option<LedgerSlot>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of the client's page. If the program has closed it, the page moves to a new
    /// file. `None` where the process may not create one: the daemon then creates the page.
    pub fn page_file(&self) -> Option<OwnedFd> {
        let kept = self.page_descriptor.with(OwnedFd::try_clone);
        if let Some(Ok(kept)) = kept {
            return Some(kept);
        }
        let made = create_sealed("pillion-client", size_of::<ClientPage>() as u64).ok()?;
        self.take_page(made.try_clone().ok()?).ok()?;
        Some(made)
    }

    fn take_page(&self, file: OwnedFd) -> io::Result<()> {
        self.page.move_to(&file, ClientPage::WORDS_BEFORE_RINGS)?;
        self.page_descriptor.replace(file);
        Ok(())
    }

    /// The ledger's descriptor and the slot, for the next daemon.
    pub fn ledger_file(&self) -> Option<(OwnedFd, u16)> {
        let ledger = self.ledger();
        let ledger = ledger.as_ref()?;
        let slot = u16::try_from(ledger.slot).ok()?;
        let descriptor = ledger.descriptor.with(OwnedFd::try_clone)?.ok()?;
        Some((descriptor, slot))
    }

    /// Accepts a daemon's welcome: its pages replace those of the previous daemon, and the end of
    /// `connection` reports that either side is gone.
    /// # Errors
    /// The welcome is not what this version expects, or the system gives no memory: no daemon then.
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
        // First, so that no thread under the new lease takes the daemon for gone.
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

    /// Notes that a daemon has accepted this client. Returns whether it is the first.
    pub fn note_taken(&self) -> bool {
        !self.is_taken.swap(true, Ordering::Relaxed)
    }

    /// Counts the launches made before the first daemon as unmanaged.
    pub fn count_unmanaged(&self) {
        if !self.is_high_priority() {
            let launches = self.page.counted(Counter::Launches);
            self.page.count(Counter::Unmanaged, launches);
        }
    }

    /// Handles the end of the daemon's side of the connection.
    pub fn handle_end(&self) {
        self.connection.close();
        // No daemon waits for the answer to its probe any more.
        self.page.probe.store(0, Ordering::SeqCst);
    }

    /// Opens the ledger of a welcome, unless this process has already mapped it.
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
        drop(daemon);
        client.connection.note_end(client.connection.number());
        assert!(client.adds_priority());
        client.handle_end();
        assert!(client.adds_priority());
        let _next = connect();
        assert!(!client.adds_priority());
    }
}
