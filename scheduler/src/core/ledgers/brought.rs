//! A job's page that outlived the daemon which made it.
//!
//! The page is in the hands of the job's processes, which go on with it while there is no daemon. The first of them that
//! attaches to the next daemon brings it along, with its slot: then that daemon has what all of them hold, to the byte, and the
//! quota holds without a gap. Those that have not come yet, or have ended meanwhile, are in their slots.
//!
//! **Trust.** Who brings a page is of the job's user, and could write into the page before. It must be a sealed memory file,
//! so that nobody can shorten it under us, and who brings it must be the process of its slot. Everybody else who has a slot
//! and lives must be of the job's user, as the kernel says, and all of them together need places as if they came one by one
//! ([`super::HOLDERS_PER_USER_MAX`]): else the page is left aside, and who brought it has another, as without one. What the page
//! says of the quota is cut to what rules allow, as ever.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::ledger::LedgerPage;
use protocol::pages::PAGE_MAGIC;
use protocol::segment::{Mapping, identity};
use protocol::sync::Ordering;

use super::{Holder, Image};

/// What a process brings from the daemon before.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(super) page: Mapping<LedgerPage>,
    pub(super) fd: OwnedFd,
    /// The slot of who brings it.
    pub(super) slot: usize,
    /// What is asked of the processes in it.
    find: fn(u32, u64) -> io::Result<Found>,
}

impl Brought {
    /// Looks at what process `pid` brings; `find` says what has become of a process by its number
    /// and the moment of its beginning. `None` if that is no page of ours, or not one in which it
    /// has that slot.
    pub(crate) fn open(
        fd: OwnedFd,
        slot: u16,
        pid: u32,
        image: Image,
        find: fn(u32, u64) -> io::Result<Found>,
    ) -> Option<Self> {
        let page = Mapping::<LedgerPage>::open_from_peer(&fd).ok()?;
        let slot = usize::from(slot);
        let owner = page.slots.get(slot)?;
        let is_ours = page.magic.load(Ordering::Acquire) == PAGE_MAGIC
            && pid != 0
            && owner.pid.load(Ordering::Relaxed) == pid
            && owner.started_ticks.load(Ordering::Relaxed) == image.started_ticks;
        is_ours.then_some(Self {
            page,
            fd,
            slot,
            find,
        })
    }

    /// Whether it is the file of that descriptor.
    pub(super) fn is(&self, fd: &OwnedFd) -> bool {
        let [own, other] = [&self.fd, fd].map(|fd| identity(fd).ok());
        own.is_some() && own == other
    }

    /// Everybody who has a slot of it, as somebody who has left: who comes is a client again, of who has ended it comes back.
    ///
    /// # Errors
    ///
    /// The page is of no use: it says who, of whom nothing may be taken back, or that they are too many or of another user than
    /// `uid`.
    pub(super) fn holders(&self, uid: u32, places: usize) -> Result<Vec<Holder>, Unusable> {
        let mut holders = Vec::new();
        for (place, slot) in self.page.slots.iter().enumerate() {
            let pid = slot.pid.load(Ordering::Relaxed);
            let started_ticks = slot.started_ticks.load(Ordering::Relaxed);
            if pid == 0 && slot.held_bytes() > 0 {
                return Err(Unusable::Unseen(io::ErrorKind::NotFound.into()));
            }
            if pid == 0 {
                continue;
            }
            if holders.len() >= places {
                return Err(Unusable::Places(places));
            }
            let process = (self.find)(pid, started_ticks)?;
            // Whose the process is that brings it is known by its connection.
            let (pid, image, process) = match process {
                Found::There { owner, .. } if place != self.slot && owner != Some(uid) => {
                    return Err(Unusable::Stranger(pid));
                }
                Found::There { image, process, .. } => (pid, image, Some(process)),
                Found::Ended => (pid, Image::default(), None),
                Found::Replaced => (0, Image::default(), None),
            };
            holders.push(Holder {
                slot: place,
                pid,
                image,
                process: process.map(Arc::new),
                is_leaving: true,
                is_over: false,
            });
        }
        Ok(holders)
    }
}

/// Why a job does not go on with a page.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// The daemon before could not see whose a slot is, or this one cannot look.
    #[error("of a process in it, it cannot be told whether it has ended: {0}")]
    Unseen(#[from] io::Error),
    /// It is alive, and not the job's user's.
    #[error("process {0}, which is in it, is not of the job's user")]
    Stranger(u32),
    /// There are so many left.
    #[error("more processes are in it than there are places left for: {0}")]
    Places(usize),
}

/// What has become of the process that had a slot.
#[derive(Debug)]
pub(crate) enum Found {
    /// It is.
    There {
        /// What it runs.
        image: Image,
        /// Its real user, if that can be seen.
        owner: Option<u32>,
        /// A descriptor of it.
        process: OwnedFd,
    },
    /// It has ended.
    Ended,
    /// So long ago that its number is another's. What NVML says of that number is not about it.
    Replaced,
}
