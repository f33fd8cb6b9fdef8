//! A client that no daemon has taken so far.
//!
//! A process whose first attempt to attach met nobody, or was refused, may be one that came in the half second in which a daemon is
//! restarted, or before the daemon of its machine. So it is a client from the beginning, with pages of its own that nobody else sees, and its helper
//! asks for a daemon as one does whose daemon has gone ([`crate::daemon::reattach`]): the first that takes it is that client's successor, counts everything from
//! the beginning of the process, and knows what is in flight and what memory is held. Until then nothing is held back: the lease says
//! that there is nobody to protect. When a signal ends the process, or it exits, what is in flight is waited for as under a daemon.
//!
//! This is for processes that somebody has asked to be managed: by one of the variables that `pillion run` sets, or by a daemon that
//! is there, or was (its lock file outlives it). Where a library is preloaded into all processes of a machine that never had a daemon, they stay
//! as they are, without a thread, and with hooks that forward at once. On virtual time, too, the one attempt is all.

use std::io;
use std::path::Path;

use abi::types::{CUcontext, CUdevice};
use protocol::clock::Clock;
use protocol::hello::JobClass;
use protocol::lease::Terms;
use protocol::pages::{
    BellPage, ClientPage, DaemonPage, HpPage, LEASE_UNGATED, LeasePage, PAGE_MAGIC,
};
use protocol::segment::{Mapping, SharedPage};
use protocol::sync::Ordering;

use crate::client::helper_words::Words;
use crate::client::{Client, Connection, Provisional, Side};
use crate::daemon::attach::{self, Unmanaged};
use crate::driver;
use crate::platform::config::Config;

/// What is charged for a kernel that no profile knows, ns: what a daemon has charged that is not told otherwise
/// (`unknown_kernel_us`).
const UNKNOWN_NS: u64 = 100_000;
/// The first epoch, as a daemon begins it: 0 would be one that leases name.
const FIRST_EPOCH: u64 = 1;

/// The client of `device`, on which `context` is, until a daemon takes it; `why` none has. `None`: this process is to be left alone, or
/// there is no memory for it.
pub(crate) fn client(
    config: &Config,
    context: CUcontext,
    device: CUdevice,
    index: u32,
    why: &Unmanaged,
) -> Option<Client> {
    if Clock::process().is_virtual() {
        return None;
    }
    let (uuid, sought) = attach::places(config, device).ok()?;
    let is_wanted =
        config.expects_daemon || !why.is_absence() || sought.iter().any(|socket| has_lock(socket));
    let socket = sought.first()?.clone();
    if !is_wanted {
        return None;
    }
    let pages = Pages::new(config.class).ok()?;
    let priorities = attach::priorities(context);
    Some(Client {
        index,
        default_priority: attach::default_priority(&pages.side, priorities),
        side: pages.side,
        generation: 0,
        number: 0,
        socket,
        clock: Clock::process(),
        daemon: pages.daemon,
        hp: pages.hp,
        bell: pages.bell,
        page: pages.client,
        device,
        ledger: None,
        uuid,
        connection: Connection::none(),
        helper: Box::leak(Box::new(Words::new())),
        profile: attach::profile_index(config, device),
        priorities,
        is_on_mps: driver::is_on_mps(device),
        provisional: Some(Provisional {
            sought,
            is_refused: why.is_refusal(),
        }),
    })
}

/// Whether a daemon has listened there since the machine was started, or does.
fn has_lock(socket: &Path) -> bool {
    let mut lock = socket.as_os_str().to_owned();
    lock.push(".lock");
    Path::new(&lock).exists()
}

/// Pages as a daemon makes them, for the rest of the process's life.
struct Pages {
    daemon: &'static DaemonPage,
    hp: &'static HpPage,
    bell: &'static BellPage,
    client: &'static ClientPage,
    side: Side,
}

impl Pages {
    fn new(class: JobClass) -> io::Result<Self> {
        let daemon = page::<DaemonPage>()?;
        daemon.unknown_ns.store(UNKNOWN_NS, Ordering::Relaxed);
        let hp = page::<HpPage>()?;
        hp.epoch.store(FIRST_EPOCH, Ordering::Relaxed);
        let bell = page::<BellPage>()?;
        let client = page::<ClientPage>()?;
        let lease = match class {
            JobClass::HighPriority => None,
            JobClass::BestEffort => Some(page::<LeasePage>()?),
        };
        if let Some(lease) = &lease {
            lease.magic.store(PAGE_MAGIC, Ordering::Relaxed);
            lease.publish(&Terms {
                epoch: FIRST_EPOCH,
                expiry_ns: u64::MAX,
                limit_total_ns: u64::MAX,
                sms_max: u32::MAX,
                terms: LEASE_UNGATED,
            });
        }
        for magic in [&daemon.magic, &client.magic] {
            magic.store(PAGE_MAGIC, Ordering::Relaxed);
        }
        Ok(Self {
            daemon: daemon.leak(),
            hp: hp.leak(),
            bell: bell.leak(),
            client: client.leak(),
            side: lease.map_or(Side::HighPriority, |lease| Side::BestEffort(lease.leak())),
        })
    }
}

/// Memory of this process alone: the descriptor is closed, and children do not have it.
fn page<T: SharedPage>() -> io::Result<Mapping<T>> {
    let (_descriptor, mapping) = Mapping::<T>::create("pillion-provisional")?;
    mapping.keep_from_children()?;
    Ok(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_gates_goes_and_is_charged() {
        let pages = Pages::new(JobClass::BestEffort).unwrap();
        let Side::BestEffort(lease) = pages.side else {
            panic!("it is best-effort")
        };
        let charged_ns = &pages.client.charged_ns;
        let terms = lease.try_charge(charged_ns, pages.hp, u64::MAX - 1, 7, |_, _| false);
        assert!(terms.is_ok_and(|terms| terms.ungated()));
        assert_eq!(charged_ns.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_high_priority_launch_revokes_no_lease_where_there_is_none() {
        let pages = Pages::new(JobClass::HighPriority).unwrap();
        assert!(matches!(pages.side, Side::HighPriority));
        protocol::lease::announce(pages.daemon, pages.hp);
        assert_eq!(pages.hp.epoch.load(Ordering::Relaxed), FIRST_EPOCH);
    }

    #[test]
    fn a_daemon_that_was_there_is_known_by_its_lock_file() {
        let folder = std::env::temp_dir().join(format!("pillion-was-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("gpu.sock");
        assert!(!has_lock(&socket));
        std::fs::write(folder.join("gpu.sock.lock"), "").unwrap();
        assert!(has_lock(&socket));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
