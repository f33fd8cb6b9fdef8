//! Memory accounts across daemons: the pages that processes bring, the kernel's view of the
//! processes in them, and their required content.
//! Each process knows the page with its booking ([`Booked`]): the one it has used since it
//! attached, or, if killed on its way from one to another, possibly both.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use client::account::go_on;
use protocol::ledger::{Account, LedgerPage};
use protocol::segment::{Mapping, identity};

use super::daemon::{Daemon, key_of, peer_of};
use super::process::{Process, Seat};
use super::world::World;
use crate::config::memory_rules::Owner;
use crate::core::job_key::JobKey;
use crate::core::ledgers::{Brought, Comer, Found, Image, Ledgers, Opened};

pub(super) struct Place {
    pub(super) page: Mapping<LedgerPage>,
    pub(super) fd: std::sync::Arc<OwnedFd>,
    pub(super) slot: usize,
    pub(super) is_kept: bool,
    file: (u64, u64),
}

#[derive(Clone, Copy, Default)]
pub(super) struct Booked {
    at: Option<((u64, u64), usize)>,
    /// Moving there: a part may be elsewhere.
    is_moving: bool,
}

impl Place {
    pub(super) fn of(opened: Opened) -> Self {
        let page = Mapping::open(&*opened.fd, protocol::segment::Access::ReadWrite).unwrap();
        Self {
            page,
            slot: usize::from(opened.slot),
            is_kept: opened.is_kept,
            file: identity(&*opened.fd).unwrap(),
            fd: opened.fd,
        }
    }
}

fn descriptor(world: &World, pid: u32) -> OwnedFd {
    let descriptor = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let mut by_descriptor = world.by_descriptor.borrow_mut();
    by_descriptor.insert(descriptor.as_raw_fd(), pid);
    descriptor
}

fn image(process: &Process) -> Image {
    Image::begun(process.started_ticks())
}

/// The kernel's view of a process with a slot in a page that another brings.
fn found(number: u32, started_ticks: u64) -> io::Result<Found> {
    let process = super::world::with_world(|world| {
        let processes = world.processes.borrow();
        let process = processes.iter().find(|process| process.pid == number);
        process.map(|process| (Rc::clone(process), descriptor(world, number)))
    });
    Ok(match process {
        Some((process, _)) if process.started_ticks() != started_ticks => Found::Replaced,
        Some((process, descriptor)) if process.is_alive.get() => Found::There {
            image: image(&process),
            owner: Some(process.uid),
            process: descriptor,
        },
        _ => Found::Ended,
    })
}

pub(super) fn brought(world: &World, process: &Process) -> Option<(OwnedFd, u16)> {
    let seat = process.seat()?;
    let place = seat.ledger.as_ref()?;
    let (fd, slot) = match world.below(6) {
        0 if process.is_liar => (
            seat.client
                .page_file()
                .ok_or(io::ErrorKind::NotFound.into()),
            place.slot,
        ),
        1 if process.is_liar => (place.fd.try_clone(), world.below(8) as usize),
        2 => return None,
        _ => (place.fd.try_clone(), place.slot),
    };
    Some((fd.unwrap(), slot as u16))
}

pub(super) fn open_account(
    world: &World,
    ledgers: &mut Ledgers,
    key: &JobKey,
    process: &Process,
    asked: &str,
    brought: Option<(OwnedFd, u16)>,
) -> Option<Opened> {
    let image = image(process);
    let brought = brought.and_then(|(fd, slot)| Brought::open(fd, slot, process.pid, image, found));
    let owner = Owner {
        uid: process.uid,
        ..Owner::default()
    };
    let comer = Comer {
        peer: peer_of(process),
        image,
        process: Some(descriptor(world, process.pid)),
        owner: &owner,
        asked,
        brought,
    };
    let own = process.seat().filter(|_| comer.brought.is_some());
    let own = own.and_then(|seat| Some(seat.ledger.as_ref()?.file));
    let there = ledgers.page_of(key).filter(|(_, slots)| !slots.is_empty());
    let there = there.map(|(fd, _)| identity(&*fd).unwrap());
    let opened = ledgers.handle_attach(key, comer).ok()?;
    // The first process's page becomes the job's, with its content.
    let is_to_go_on = own.is_some() && there.is_none_or(|there| Some(there) == own);
    assert!(
        opened.is_kept || !is_to_go_on || process.is_liar || !process.is_alive.get(),
        "process {} does not go on in the account that it brought",
        process.pid
    );
    Some(opened)
}

pub(super) fn cancel_account(ledgers: &mut Ledgers, key: &JobKey, opened: Option<&Opened>) {
    match opened {
        Some(opened) if opened.is_kept => ledgers.handle_detach(key, opened.slot),
        Some(opened) => ledgers.handle_turned_away(key, opened.slot),
        None => {}
    }
}

impl Process {
    pub(super) fn started_ticks(&self) -> u64 {
        10 * u64::from(self.pid)
    }

    pub(super) fn begin_to_move(&self, seat: &Seat) {
        let Some(place) = &seat.ledger else { return };
        let is_moving = !place.is_kept && self.held_bytes.get() > 0;
        self.booked.set(Booked {
            at: Some((place.file, place.slot)),
            is_moving,
        });
    }

    pub(super) fn go_on(&self, world: &World, before: Option<&Seat>, seat: &Seat) {
        let Some(place) = &seat.ledger else { return };
        let held_bytes = self.held_bytes.get();
        if place.is_kept {
            return;
        }
        if held_bytes > 0 {
            world.facts.may_be_over.borrow_mut().push(seat.key.clone());
        }
        let before = before.and_then(|before| before.ledger.as_ref());
        let before = before.and_then(|before| Account::resume(&*before.page, before.slot));
        if let Some(mut account) = before {
            go_on(&mut account, &place.page, place.slot);
        }
        self.booked.set(Booked {
            at: Some((place.file, place.slot)),
            is_moving: false,
        });
    }

    /// Its holdings in that slot of that page, at least and at most, bytes.
    fn has_at(&self, file: (u64, u64), slot: usize, now_ns: u64) -> (u64, u64) {
        let (held, next) = (self.held_bytes.get(), self.next_bytes.get());
        // A previous daemon may have been killed while it released them.
        let is_free = !self.is_alive.get() && now_ns >= self.free_ns.get();
        let Booked { at, is_moving } = self.booked.get();
        match at == Some((file, slot)) {
            true if is_free => (0, held.max(next)),
            _ if is_moving => (0, held.max(next)),
            true => (held.min(next), held.max(next)),
            // An ended process, or one that brought nothing, has one more slot.
            false => (0, 0),
        }
    }
}

/// A job's sum equals its processes' holdings, with unreleased dead ones and interrupted changes.
pub(super) fn check(world: &World, daemon: &Daemon) {
    let ledgers = daemon.ledgers.borrow();
    let processes = world.processes.borrow();
    // Known processes in an account belong to its user, whatever liars have written there.
    for holding in ledgers.holdings() {
        let holder = processes.iter().find(|other| other.pid == holding.pid);
        let uid = holder
            .filter(|holder| holder.is_alive.get())
            .map(|holder| holder.uid);
        assert!(uid.is_none_or(|uid| uid == holding.job.uid), "{holding:?}");
    }
    for process in processes.iter().filter(|process| !process.is_liar) {
        let key = key_of(process);
        let Some((fd, slots)) = ledgers.page_of(&key) else {
            continue;
        };
        let file = identity(&*fd).unwrap();
        let Some(status) = ledgers.status_of(&key) else {
            continue;
        };
        let find = |(slot, pid): &(usize, u32)| {
            let process = processes.iter().find(|other| other.pid == *pid);
            process.map(|process| (process, *slot))
        };
        let holders: Vec<_> = slots.iter().filter_map(find).collect();
        let ranges = holders
            .iter()
            .map(|(holder, slot)| holder.has_at(file, *slot, world.now_ns.get()));
        let (least, most) = ranges.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let held_bytes = status.held_bytes;
        assert!(
            (least..=most).contains(&held_bytes),
            "{key:?} holds {held_bytes} of {least} to {most}"
        );
        let is_within = status.quota_bytes.is_none_or(|quota| held_bytes <= quota);
        let mut may_be_over = world.facts.may_be_over.borrow_mut();
        assert!(
            is_within || may_be_over.contains(&key),
            "{key:?} is over its quota: {status:?}"
        );
        // A process at work may have checked the old quota.
        let is_at_rest = (holders.iter())
            .all(|(it, _)| !it.is_alive.get() || it.held_bytes.get() == it.next_bytes.get());
        // A process that has not attached, or whose reply was lost, may bring a page from before a
        // change of the quota, with its own and dead processes' holdings.
        let is_one_away = processes.iter().any(|other| {
            let is_here = holders.iter().any(|(it, _)| it.pid == other.pid);
            other.is_alive.get() && !is_here && key_of(other) == key
        });
        if is_within && is_at_rest && !is_one_away {
            may_be_over.retain(|other| *other != key);
        }
    }
}
