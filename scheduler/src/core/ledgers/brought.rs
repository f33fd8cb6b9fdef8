//! A job's page that outlived the daemon which made it.
//! The job's processes hold the page and continue with it while there is no daemon. The first of
//! them that attaches to the next daemon brings it, with its slot. That daemon then knows all their
//! holdings, to the byte, and the quota holds without a gap. Processes that have not come yet, or
//! have ended meanwhile, are in their slots.
//! - **Trust.** The process that brings a page belongs to the job's user, and may have forged it.
//!   The page must be a sealed memory file, so that nobody can shorten it under the daemon, and its
//!   bringer must be the process of its slot. Every other living process with a slot must belong to
//!   the job's user, as the kernel reports, and all of them together need places as if they came
//!   one by one ([`super::HOLDERS_PER_USER_MAX`]). Otherwise the page is ignored, and its bringer
//!   gets a new one. The page's quota is limited by the rules, as always.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::ledger::LedgerPage;
use protocol::pages::PAGE_MAGIC;
use protocol::segment::{Mapping, identity};
use protocol::sync::Ordering;

use super::{Holder, Image};

#[derive(Debug)]
pub(crate) struct Brought {
    pub(super) page: Mapping<LedgerPage>,
    pub(super) fd: OwnedFd,
    pub(super) slot: usize,
    find: fn(u32, u64) -> io::Result<Found>,
}

impl Brought {
    /// Opens what process `pid` brings; `find` looks up a process by its id and start. `None` if it
    /// is not a page of ours, or the process does not own that slot in it.
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

    pub(super) fn is(&self, fd: &OwnedFd) -> bool {
        let [own, other] = [&self.fd, fd].map(|fd| identity(fd).ok());
        own.is_some() && own == other
    }

    /// All owners of slots, as processes that have left: an attaching process becomes a client
    /// again, an ended one's holdings are released. The page is unusable with a process whose
    /// holdings could never be released, one of another user than `uid`, or too many.
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
            // The bringer's user is known by its connection.
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

#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// The previous daemon could not see a slot's owner, or this one cannot look it up.
    #[error("cannot determine whether a process in it has ended: {0}")]
    Unseen(#[from] io::Error),
    #[error("process {0} in it does not belong to the job's user")]
    Stranger(u32),
    #[error("it has more processes than there are places left: {0}")]
    Places(usize),
}

#[derive(Debug)]
pub(crate) enum Found {
    There {
        image: Image,
        owner: Option<u32>,
        process: OwnedFd,
    },
    Ended,
    /// Ended long ago: its id now belongs to another process, and NVML's list means that one.
    Replaced,
}
