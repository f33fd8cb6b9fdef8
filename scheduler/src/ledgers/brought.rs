//! A job's page that outlived the daemon which made it.
//!
//! The page is in the hands of the job's processes, which go on with it while there is no daemon. The first of them that
//! attaches to the next daemon brings it along, with its slot: then that daemon has what all of them hold, to the byte, and the
//! quota holds without a gap. Those that have not come yet, or have ended meanwhile, are in their slots.
//!
//! **Trust.** Who brings a page is of the job's user, and could write into the page before. It must be a sealed memory file,
//! so that nobody can shorten it under us, and who brings it must be the process of its slot. What the page says of the quota
//! is cut to what rules allow, as ever.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::ledger::LedgerPage;
use protocol::pages::PAGE_MAGIC;
use protocol::segment::{Mapping, identity};
use protocol::sync::Ordering;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Holder, Image};

/// What a process brings from the daemon before.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(super) page: Mapping<LedgerPage>,
    pub(super) fd: OwnedFd,
    /// The slot of who brings it.
    pub(super) slot: usize,
}

impl Brought {
    /// Looks at what process `pid` brings. `None` if that is no page of ours, or not one in which it has that slot.
    pub(crate) fn open(fd: OwnedFd, slot: u16, pid: u32, image: Image) -> Option<Self> {
        let page = Mapping::<LedgerPage>::open_from_peer(&fd).ok()?;
        let slot = usize::from(slot);
        let owner = page.slots.get(slot)?;
        let is_ours = page.magic.load(Ordering::Acquire) == PAGE_MAGIC
            && pid != 0
            && owner.pid.load(Ordering::Relaxed) == pid
            && owner.started_ticks.load(Ordering::Relaxed) == image.started_ticks;
        is_ours.then_some(Self { page, fd, slot })
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
    /// Of somebody it cannot be told whether he has ended. Then nothing may be taken back, so the page is of no use.
    pub(super) fn holders(&self) -> io::Result<Vec<Holder>> {
        let mut holders = Vec::new();
        for (place, slot) in self.page.slots.iter().enumerate() {
            let pid = slot.pid.load(Ordering::Relaxed);
            let started_ticks = slot.started_ticks.load(Ordering::Relaxed);
            if pid == 0 && slot.held_bytes() > 0 {
                // The daemon before could not see whose it is.
                return Err(io::ErrorKind::NotFound.into());
            }
            if pid == 0 {
                continue;
            }
            let process = process(pid, started_ticks)?;
            holders.push(Holder {
                slot: place,
                pid,
                image: process
                    .as_ref()
                    .map_or(Image::default(), |(image, _)| *image),
                process: process.map(|(_, process)| Arc::new(process)),
                is_leaving: true,
            });
        }
        Ok(holders)
    }
}

/// The process of that number which began then, if it is still there.
fn process(pid: u32, started_ticks: u64) -> io::Result<Option<(Image, OwnedFd)>> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else {
        return Ok(None);
    };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Looked at after it is held: a later process of that number is told by its beginning. One whose beginning cannot be seen
    // may be the one.
    let image = Image::of(pid.as_raw_nonzero().get().unsigned_abs());
    let is_other = image.started_ticks != 0 && image.started_ticks != started_ticks;
    Ok((!is_other).then_some((image, process)))
}
