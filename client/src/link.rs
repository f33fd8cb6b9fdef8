//! The memory that a client shares with its daemon, at the same addresses for the process's life.
//! Daemons come and go while the process goes on. Each daemon page therefore has a fixed place,
//! where the next daemon's page replaces it ([`Mapping::replace`]). Without a daemon these places
//! hold private pages that hold nothing back: there is nobody to protect. The client's own page
//! ([`Client::page`](crate::Client::page)) is never replaced.
//!
//! **A thread in the middle of a call** uses first one daemon's pages, then the other's. The
//! possible errors are bounded by one launch per thread and daemon:
//! - A launch goes under the previous lease, like one between check and call when that daemon dies.
//! - A charge is subtracted from the new lease's sum, which never contained it: that lease allows
//!   one launch too many (`protocol::lease::FIRST_TOTAL_NS`: the sum does not wrap).
//! - A high-priority launch is announced to the previous daemon. The helper announces again when
//!   all pages are in place ([`crate::announce::again`]).
//!
//! **A thread asleep on a lease's bell** is counted in that page's `sleepers`, and leaves the bell
//! before the page is replaced ([`Link::begin_to_move`]). Otherwise it would subtract itself from
//! the next page's count, and a bell with a wrong count can skip a wake-up. A thread whose signal
//! handler jumped out of the wait (siglongjmp(3)) never leaves. The move waits for it once, for a
//! second; the next page's count is right, as that thread does not subtract itself.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::io;
use std::os::fd::OwnedFd;

use crossbeam_utils::CachePadded;
use protocol::clock::{Clock, Wake};
use protocol::hello::JobClass;
use protocol::lease::{FIRST_TOTAL_NS, Terms};
use protocol::pages::{
    BellPage, ClientPage, DaemonPage, HpPage, LEASE_UNGATED, LeasePage, PAGE_MAGIC,
};
use protocol::segment::{Access, Mapping, SharedPage};

use crate::backoff;

/// Charge for a kernel that no profile knows, ns: the default of `unknown_kernel_us`.
const UNKNOWN_NS: u64 = 100_000;
/// A daemon's first epoch. It is not 0, because leases name 0.
const FIRST_EPOCH: u64 = 1;

/// Sleep of a thread at the gate while pages are replaced, ns.
const MOVING_SLEEP_NS: u64 = 1_000_000;

/// A client's link to its daemon (see the module's head).
pub struct Link {
    /// Written by the daemon for all clients; read only.
    pub daemon: Mapping<DaemonPage>,
    /// Written by high-priority clients for best-effort ones; read only.
    pub hp: Mapping<HpPage>,
    /// The same page, writable, in a high-priority client. In a best-effort client, private memory
    /// that is never read: threads that began when it was high-priority may still write here.
    pub hp_written: Mapping<HpPage>,
    /// The bell that wakes the daemon.
    pub bell: Mapping<BellPage>,
    /// The job's lease. In a high-priority client, a lease that holds nothing back.
    pub lease: Mapping<LeasePage>,
    is_high_priority: AtomicBool,
    waits: CachePadded<Waits>,
}

/// Shared by the helper and the threads that sleep on the lease's bell. On its own cache lines,
/// because launches read the neighbouring fields.
#[derive(Default)]
struct Waits {
    /// Threads that sleep on the bell, or are about to.
    asleep: AtomicU32,
    /// Number of threads that did not leave when asked.
    left_behind: AtomicU32,
    is_moving: AtomicBool,
}

/// A daemon's pages, as in its welcome.
pub struct Pages {
    /// Daemon page.
    pub daemon: OwnedFd,
    /// High-priority page; writable for a high-priority client.
    pub hp: OwnedFd,
    /// Bell page.
    pub bell: OwnedFd,
    /// Only for a best-effort client.
    pub lease: Option<OwnedFd>,
}

impl Link {
    /// A link without a daemon.
    /// # Errors
    /// The system gives no memory.
    pub fn new(class: JobClass) -> io::Result<Self> {
        let daemon = private::<DaemonPage>()?;
        daemon.unknown_ns.store(UNKNOWN_NS, Ordering::Relaxed);
        daemon.magic.store(PAGE_MAGIC, Ordering::Relaxed);
        let [hp, hp_written] = [private::<HpPage>()?, private::<HpPage>()?];
        let lease = private::<LeasePage>()?;
        hold_nothing_back(&lease);
        for page in [&hp, &hp_written] {
            page.epoch.store(FIRST_EPOCH, Ordering::Relaxed);
        }
        Ok(Self {
            daemon,
            hp,
            hp_written,
            bell: private()?,
            lease,
            is_high_priority: AtomicBool::new(class == JobClass::HighPriority),
            waits: CachePadded::default(),
        })
    }

    /// Whether the daemon treats this process as high-priority.
    #[inline]
    pub fn is_high_priority(&self) -> bool {
        // Relaxed: only another daemon gives another class; see the module's head.
        self.is_high_priority.load(Ordering::Relaxed)
    }

    /// Sleeps until the lease's bell rings after `seen` was read, or until the deadline; may return
    /// earlier.
    pub fn wait(&self, clock: &Clock, seen: u32, deadline_ns: u64) -> Wake {
        self.waits.asleep.fetch_add(1, Ordering::SeqCst);
        // SeqCst, as the add above and both accesses in `begin_to_move`: either the mover waits for
        // this thread, or this thread sees the mover.
        if self.waits.is_moving.load(Ordering::SeqCst) {
            self.waits.asleep.fetch_sub(1, Ordering::SeqCst);
            return clock.sleep_until(deadline_ns.min(clock.now_ns() + MOVING_SLEEP_NS));
        }
        let wake = self.lease.bell.wait(clock, seen, Some(deadline_ns));
        self.waits.asleep.fetch_sub(1, Ordering::SeqCst);
        wake
    }

    /// Makes threads leave the lease's bell until the result is dropped. They are woken, so this
    /// takes some microseconds, and at most a second.
    pub fn begin_to_move(&self, clock: &Clock) -> Moving<'_> {
        self.empty_bell(clock);
        Moving(self)
    }

    fn empty_bell(&self, clock: &Clock) -> bool {
        self.waits.is_moving.store(true, Ordering::SeqCst);
        self.lease.bell.ring_surely(clock);
        let asleep = || self.waits.asleep.load(Ordering::SeqCst);
        let left_behind = &self.waits.left_behind;
        let are_out = || asleep() <= left_behind.load(Ordering::Relaxed);
        let are_out = backoff::wait_until(clock, are_out);
        left_behind.store(asleep(), Ordering::Relaxed);
        are_out
    }
}

/// While this lives, no thread sleeps on the lease's bell.
pub struct Moving<'a>(&'a Link);

impl Moving<'_> {
    /// Replaces the previous daemon's pages with `pages`.
    /// # Errors
    /// A descriptor is not of such a page; nothing has changed. Or the system gives no memory:
    /// pages replaced until then stay, and the next daemon's pages replace all.
    pub fn replace(&self, pages: &Pages, own: &ClientPage) -> io::Result<()> {
        // Check everything first: a client of half a daemon would be worse off than one without.
        open::<DaemonPage>(&pages.daemon, Access::Read, |page| Some(&page.magic))?;
        open::<HpPage>(&pages.hp, Access::Read, |_| None)?;
        open::<BellPage>(&pages.bell, Access::ReadWrite, |_| None)?;
        let lease = pages.lease.as_ref();
        let lease =
            lease.map(|fd| open(fd, Access::ReadWrite, |page: &LeasePage| Some(&page.magic)));
        let lease = lease.transpose()?;
        let link = self.0;
        let is_high_priority = lease.is_none();
        if let Some(lease) = lease {
            lease.bring(own);
        }
        link.hp.replace(&pages.hp, Access::Read)?;
        link.bell.replace(&pages.bell, Access::ReadWrite)?;
        // After the page with the epoch that the lease's terms name.
        match &pages.lease {
            Some(lease) => {
                link.lease.replace(lease, Access::ReadWrite)?;
                link.hp_written.replace_with_zeros()?;
            }
            None => {
                link.lease.replace_with_zeros()?;
                hold_nothing_back(&link.lease);
                link.hp_written.replace(&pages.hp, Access::ReadWrite)?;
            }
        }
        link.daemon.replace(&pages.daemon, Access::Read)?;
        link.is_high_priority
            .store(is_high_priority, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // SeqCst: see `Link::wait`.
        self.0.waits.is_moving.store(false, Ordering::SeqCst);
    }
}

/// Memory of this process alone, which children do not inherit.
fn private<T: SharedPage>() -> io::Result<Mapping<T>> {
    let mapping = Mapping::<T>::anonymous()?;
    mapping.keep_from_children()?;
    Ok(mapping)
}

fn hold_nothing_back(lease: &LeasePage) {
    lease.magic.store(PAGE_MAGIC, Ordering::Relaxed);
    let total_ns = &lease.charges.total_ns;
    total_ns.store(FIRST_TOTAL_NS, Ordering::Relaxed);
    lease.publish(&Terms {
        epoch: FIRST_EPOCH,
        expiry_ns: u64::MAX,
        limit_total_ns: u64::MAX,
        sms_max: u32::MAX,
        terms: LEASE_UNGATED,
    });
}

fn open<T: SharedPage>(
    descriptor: &OwnedFd,
    access: Access,
    magic: impl FnOnce(&T) -> Option<&AtomicU64>,
) -> io::Result<Mapping<T>> {
    let page = Mapping::<T>::open(descriptor, access)?;
    match magic(&page).is_none_or(|magic| magic.load(Ordering::Acquire) == PAGE_MAGIC) {
        true => Ok(page),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "wrong magic")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use protocol::segment::identity;

    use super::*;

    #[test]
    fn what_nobody_gates_goes_and_is_charged() {
        let link = Link::new(JobClass::BestEffort).unwrap();
        let charged_ns = AtomicU64::new(0);
        let terms = link
            .lease
            .try_charge(&charged_ns, &link.hp, u64::MAX - 1, 7, |_, _| false);
        assert!(terms.is_ok_and(|terms| terms.ungated()));
        assert_eq!(charged_ns.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_high_priority_launch_revokes_no_lease_where_there_is_none() {
        let link = Link::new(JobClass::HighPriority).unwrap();
        assert!(link.is_high_priority());
        protocol::lease::announce(&link.daemon, &link.hp_written);
        assert_eq!(link.hp_written.epoch.load(Ordering::Relaxed), FIRST_EPOCH);
    }

    fn pages(class: JobClass) -> Pages {
        let (daemon, page) = made::<DaemonPage>();
        page.magic.store(PAGE_MAGIC, Ordering::Relaxed);
        let lease = || {
            let (lease, page) = made::<LeasePage>();
            page.magic.store(PAGE_MAGIC, Ordering::Relaxed);
            lease
        };
        Pages {
            daemon,
            hp: made::<HpPage>().0,
            bell: made::<BellPage>().0,
            lease: (class == JobClass::BestEffort).then(lease),
        }
    }

    fn own() -> Mapping<ClientPage> {
        private::<ClientPage>().unwrap()
    }

    fn made<T: SharedPage>() -> (OwnedFd, Mapping<T>) {
        Mapping::create("pillion-test").unwrap()
    }

    fn move_to(link: &Link, pages: &Pages) {
        let moving = link.begin_to_move(&Clock::monotonic());
        moving.replace(pages, &own()).unwrap();
    }

    fn mappings_of(fd: impl AsFd) -> usize {
        let (_, inode) = identity(fd).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_of = |line: &&str| line.split_whitespace().nth(4) == Some(&inode.to_string());
        maps.lines().filter(is_of).count()
    }

    #[test]
    fn one_daemon_after_another_leaves_no_mapping_behind() {
        let link = Link::new(JobClass::BestEffort).unwrap();
        let mut before = pages(JobClass::BestEffort);
        move_to(&link, &before);
        for _ in 0..100 {
            let next = pages(JobClass::BestEffort);
            move_to(&link, &next);
            for fd in [&before.daemon, &before.hp, &before.bell] {
                assert_eq!(mappings_of(fd), 0);
            }
            assert_eq!(mappings_of(next.lease.as_ref().unwrap()), 1);
            before = next;
        }
    }

    #[test]
    fn a_daemon_may_give_another_class_while_threads_of_the_one_before_are_at_work() {
        let link = Link::new(JobClass::HighPriority).unwrap();
        for class in [
            JobClass::HighPriority,
            JobClass::BestEffort,
            JobClass::HighPriority,
        ] {
            let pages = pages(class);
            move_to(&link, &pages);
            assert_eq!(link.is_high_priority(), class == JobClass::HighPriority);
            link.hp_written.epoch.fetch_add(1, Ordering::Relaxed);
            let is_told = link.hp.epoch.load(Ordering::Relaxed) == 1;
            assert_eq!(is_told, link.is_high_priority());
            assert_eq!(link.lease.is_ungated(), link.is_high_priority());
        }
    }

    #[test]
    fn who_sleeps_at_the_gate_leaves_the_bell_before_its_page_goes() {
        let link = Arc::new(Link::new(JobClass::BestEffort).unwrap());
        let clock = Clock::monotonic();
        let sleeper = std::thread::spawn({
            let link = Arc::clone(&link);
            move || {
                let seen = link.lease.bell.read();
                link.wait(&clock, seen, u64::MAX)
            }
        });
        while link.lease.bell.sleepers.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        move_to(&link, &pages(JobClass::BestEffort));
        sleeper.join().unwrap();
        assert_eq!(link.lease.bell.sleepers.load(Ordering::SeqCst), 0);
        // While pages move, a thread sleeps by the clock, and the move does not wait for it.
        let moving = link.begin_to_move(&clock);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let wake = link.wait(&clock, link.lease.bell.read(), u64::MAX);
                    assert_ne!(wake, Wake::Rung);
                }
            });
            assert!(link.empty_bell(&clock));
            is_over.store(true, Ordering::Relaxed);
        });
        drop(moving);
    }

    #[test]
    fn what_is_no_page_of_a_daemon_is_refused() {
        let link = Link::new(JobClass::BestEffort).unwrap();
        let mut pages = pages(JobClass::BestEffort);
        pages.daemon = made::<DaemonPage>().0;
        let moving = link.begin_to_move(&Clock::monotonic());
        let error = moving.replace(&pages, &own()).unwrap_err();
        assert!(error.to_string().contains("wrong magic"), "{error}");
    }
}
