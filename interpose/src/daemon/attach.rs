//! Finding the daemon of a device, and the one conversation with it.
//!
//! One packet each way over a Unix socket (`protocol::hello`); the shared pages come with the answer
//! as descriptors. The connection then stays open without another word: its end tells the daemon
//! that this process is gone. This is the only place where the library waits for the daemon, at
//! most [`REPLY_TIMEOUT`] for each answer.
//!
//! A daemon hears only so many processes of a user at once, and hangs up on who has been silent for the longest. So the hello goes out
//! as soon as there is a connection, and who is hung up on without an answer asks again for a while ([`ask_again`]).
//!
//! The hello names the device, and a daemon of another one refuses. A driver that does not tell the
//! device's UUID leads to a daemon only where somebody has named its socket; that daemon is then
//! taken to be the right one, and says so in its log: a process that cannot show that it is at the
//! right place is better served than left unprotected because of its driver.

use core::fmt;
use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use abi::types::{CUcontext, CUdevice, CUdevice_attribute, CUresult};
use profiler::scale::{self, Fit};
use profiler::{Profile, ProfileIndex};
use protocol::clock::{Clock, Wake};
use protocol::hello::{self, Attach, HelloError, JobClass, MemoryIs, MemoryOf, Reply, Request};
use protocol::ledger::LedgerPage;
use protocol::pages::{BellPage, ClientPage, DaemonPage, HpPage, LeasePage, PAGE_MAGIC};
use protocol::quota::Quota;
use protocol::segment::{Access, Mapping, SharedPage};
use protocol::sync::{AtomicU64, Ordering};

use crate::client::helper_words::Words;
use crate::client::priority::{self, Priorities};
use crate::client::{Client, Connection, Descriptor, LedgerSlot, Side};
use crate::daemon::reattach;
use crate::platform::config::Config;
use crate::platform::log::{self, Level};
use crate::platform::stdio_guard::Occupied;
use crate::platform::sys;
use crate::{driver, kernels};

/// Longest wait for the daemon's answer. It answers from a thread that does nothing else, within
/// 100 us; a second is a daemon that is stopped.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether a thread that has attached gets a signal from the kernel when what started it ends. The next time it is the helper that attaches.
static FALLS_WITH_PARENT: AtomicBool = AtomicBool::new(false);

/// So long a daemon that hangs up without an answer is asked again, ns.
const ASK_AGAIN_NS: u64 = 2_000_000_000;
/// Between the first two times, ns; twice as long each time after that.
const BACKOFF_NS_MIN: u64 = 5_000_000;
/// Never longer than this, ns.
const BACKOFF_NS_MAX: u64 = 200_000_000;

/// Pages every client gets: daemon, high-priority, bell, client.
const PAGES: usize = 4;

/// Why a process runs unmanaged.
#[derive(Debug)]
pub(crate) enum Unmanaged {
    /// The driver does not tell the device's UUID, so no daemon can be looked for.
    NoUuid(CUresult),
    /// Nobody listens where a daemon of the device would.
    NoDaemon {
        /// Where was looked.
        tried: Vec<PathBuf>,
        /// What the last attempt met.
        last: io::Error,
    },
    /// The conversation failed; another version of the protocol among others.
    Hello {
        /// With whom.
        socket: PathBuf,
        /// How.
        error: HelloError,
    },
    /// The daemon does not want this client.
    Refused {
        /// Which.
        socket: PathBuf,
        /// Its reason.
        reason: String,
    },
    /// The pages that came are not what this version expects.
    Pages {
        /// From whom.
        socket: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
}

impl Unmanaged {
    /// Whether there just is no daemon, which is nobody's mistake unless one was asked for.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::NoDaemon { .. })
    }

    /// Whether a daemon is there and does not serve this process, which is so until it, or its configuration, is another.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Pages { .. } => true,
            Self::Hello { error, .. } => !is_hang_up(error) && !matches!(error, HelloError::Io(_)),
            Self::NoUuid(_) | Self::NoDaemon { .. } => false,
        }
    }

    /// Whether the daemon has hung up without an answer.
    fn is_hang_up(&self) -> bool {
        matches!(self, Self::Hello { error, .. } if is_hang_up(error))
    }
}

impl fmt::Display for Unmanaged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUuid(result) => write!(
                formatter,
                "the driver does not tell the device's UUID ({})",
                result.0
            ),
            Self::NoDaemon { tried, last } => {
                formatter.write_str("no daemon at ")?;
                for (index, path) in tried.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(formatter, "{comma}{}", path.display())?;
                }
                write!(formatter, " ({last})")
            }
            Self::Hello { socket, error } => {
                write!(formatter, "daemon at {}: {error}", socket.display())
            }
            Self::Refused { socket, reason } => write!(
                formatter,
                "the daemon at {} refuses: {reason}",
                socket.display()
            ),
            Self::Pages { socket, error } => write!(
                formatter,
                "the daemon at {} sent pages that cannot be used: {error}",
                socket.display()
            ),
        }
    }
}

/// Attaches to the daemon of `device`, on which `context` is; `index` is what the client will have.
pub(crate) fn attach(
    config: &Config,
    context: CUcontext,
    device: CUdevice,
    index: u32,
) -> Result<Client, Unmanaged> {
    let _occupied = Occupied::new();
    if sys::has_parent_death_signal() {
        FALLS_WITH_PARENT.store(true, Ordering::Relaxed);
    }
    let (uuid, tried) = places(config, device)?;
    look_for(&tried)?;
    let known = profile(config, device);
    let is_on_mps = driver::is_on_mps(device);
    let who = Who {
        device,
        uuid: &uuid,
        before: None,
        is_on_mps,
    };
    let (connection, socket, number, pages) = ask_again(Unmanaged::is_hang_up, || {
        let (connection, socket) = connect(&tried)?;
        let (number, pages) = introduce(&connection, &socket, config, known, &who)?;
        Ok((connection, socket, number, pages))
    })?;
    say_class(config, &pages.side, &socket);
    if let Some(error) = Clock::open_error() {
        log::say(Level::Error, format_args!("{error}; using real time"));
    }
    let priorities = priorities(context);
    Ok(Client {
        index,
        default_priority: default_priority(&pages.side, priorities),
        side: pages.side,
        generation: 0,
        number,
        socket,
        clock: Clock::process(),
        daemon: pages.daemon,
        hp: pages.hp,
        bell: pages.bell,
        page: pages.client,
        device,
        ledger: pages.ledger,
        uuid,
        connection: Connection::new(connection),
        helper: Box::leak(Box::new(Words::new())),
        profile: known.map(|known| &known.index),
        priorities,
        is_on_mps,
        provisional: None,
    })
}

/// The device's identity, empty if the driver does not tell, and where its daemon may listen, the likeliest first.
pub(crate) fn places(
    config: &Config,
    device: CUdevice,
) -> Result<(String, Vec<PathBuf>), Unmanaged> {
    let uuid = driver::device_uuid(device).map(|uuid| hello::format_uuid(uuid.bytes));
    let places = candidates(config, uuid.as_deref().map_err(|result| *result))?;
    Ok((uuid.unwrap_or_default(), places))
}

/// The stream priorities of a context's device, if there is a choice.
pub(crate) fn priorities(context: CUcontext) -> Option<Priorities> {
    let range = driver::with_context(context, driver::priority_range);
    let (least, greatest) = range.and_then(|range| range).ok()?;
    Priorities::new(least, greatest)
}

/// What launches on default streams are to carry.
pub(crate) fn default_priority(side: &Side, priorities: Option<Priorities>) -> Option<i32> {
    priorities
        .filter(|_| matches!(side, Side::HighPriority) && takes_priorities())
        .map(|range| range.for_high_priority(priority::DEFAULT))
}

/// Says that this process is not what it was started to be, where the operator does not allow it.
fn say_class(config: &Config, side: &Side, socket: &Path) {
    if config.class == JobClass::HighPriority && !matches!(side, Side::HighPriority) {
        let socket = socket.display();
        log::say(
            Level::Error,
            format_args!(
                "PILLION_CLASS is high-priority, which the daemon at {socket} does not allow this process ([high_priority] in \
                 its configuration): it is best-effort"
            ),
        );
    }
}

/// What the daemon of a device lets this job hold of it, bytes, before the process is a client there; `None` if no daemon
/// says so.
pub(crate) fn ask_quota(config: &Config, device: CUdevice) -> Option<u64> {
    let (uuid, tried) = places(config, device).ok()?;
    let quota = config.quotas.of_device(device.0);
    ask_memory_at(&tried, config, &uuid, quota).map(|is| is.quota_bytes)
}

/// What the daemon of the device with that identity says of this job's memory, `asked` being what the job asks for;
/// `None` if no daemon says anything.
#[cfg(not(shim))]
pub(crate) fn ask_memory(config: &Config, uuid: &str, asked: Option<Quota>) -> Option<MemoryIs> {
    ask_memory_at(&candidates(config, Ok(uuid)).ok()?, config, uuid, asked)
}

fn ask_memory_at(
    tried: &[PathBuf],
    config: &Config,
    uuid: &str,
    asked: Option<Quota>,
) -> Option<MemoryIs> {
    let _occupied = Occupied::new();
    let request = Request::Memory(MemoryOf {
        class: config.class,
        job: job_id(config),
        memory: asked.map(|quota| quota.to_string()).unwrap_or_default(),
        device: uuid.to_owned(),
    });
    tried.iter().find_map(|socket| {
        let ask = || hello::ask_once(socket, &request, REPLY_TIMEOUT);
        match ask_again(is_hang_up, ask) {
            Ok(Reply::Memory(is)) => Some(is),
            // Another version's daemon among others: it keeps no quota.
            _ => None,
        }
    })
}

/// What the job is called: by `pillion run`, or the process by itself.
fn job_id(config: &Config) -> String {
    let job = config.job.clone();
    job.unwrap_or_else(|| format!("pid-{}", std::process::id()))
}

/// The client that follows `client`: the same to a daemon that listens where the one that has gone did. Asks nothing of the driver.
pub(crate) fn attach_again(config: &Config, client: &Client) -> Result<Client, Unmanaged> {
    let _occupied = Occupied::new();
    let known = profile(config, client.device);
    let who = Who {
        device: client.device,
        uuid: &client.uuid,
        before: client.ledger.as_ref(),
        is_on_mps: client.is_on_mps,
    };
    // Who is hung up on asks again as who meets nobody does.
    let (connection, socket) = connect(client.sought())?;
    let (number, pages) = introduce(&connection, &socket, config, known, &who)?;
    say_class(config, &pages.side, &socket);
    Ok(Client {
        index: client.index,
        default_priority: default_priority(&pages.side, client.priorities),
        side: pages.side,
        generation: client.generation.wrapping_add(1),
        number,
        socket,
        clock: client.clock,
        daemon: pages.daemon,
        hp: pages.hp,
        bell: pages.bell,
        page: pages.client,
        device: client.device,
        ledger: pages.ledger,
        uuid: client.uuid.clone(),
        connection: Connection::new(connection),
        helper: client.helper,
        profile: client.profile,
        priorities: client.priorities,
        is_on_mps: client.is_on_mps,
        provisional: None,
    })
}

/// What a process says of itself besides its configuration.
struct Who<'a> {
    device: CUdevice,
    /// The device's identity; empty if the driver does not tell.
    uuid: &'a str,
    /// Its slot in the ledger that the daemon before kept.
    before: Option<&'a LedgerSlot>,
    /// As [`driver::is_on_mps`] says.
    is_on_mps: Option<bool>,
}

/// The conversation: this client's number, and its pages.
fn introduce(
    connection: &OwnedFd,
    socket: &Path,
    config: &Config,
    known: Option<&Known>,
    who: &Who<'_>,
) -> Result<(u64, Pages), Unmanaged> {
    let socket = || socket.to_owned();
    let answer = ask(connection, config, known, who);
    let ((number, slot, class), descriptors) = answer.map_err(|error| match error {
        Answer::Hello(error) => Unmanaged::Hello {
            socket: socket(),
            error,
        },
        Answer::Refused(reason) => Unmanaged::Refused {
            socket: socket(),
            reason,
        },
    })?;
    let class = class.unwrap_or(config.class);
    let pages = Pages::open(descriptors, class, slot, who.before);
    let pages = pages.map_err(|error| Unmanaged::Pages {
        socket: socket(),
        error,
    })?;
    Ok((number, pages))
}

/// Where the daemon may listen, the likeliest first.
fn candidates(config: &Config, uuid: Result<&str, CUresult>) -> Result<Vec<PathBuf>, Unmanaged> {
    match &config.socket {
        Some(socket) => Ok(vec![socket.clone()]),
        None => Ok(hello::socket_paths(uuid.map_err(Unmanaged::NoUuid)?)),
    }
}

/// Whether there is anything to connect to, without doing so.
fn look_for(tried: &[PathBuf]) -> Result<(), Unmanaged> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in tried {
        match path.symlink_metadata() {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    let tried = tried.to_vec();
    Err(Unmanaged::NoDaemon { tried, last })
}

/// Asks, and again for [`ASK_AGAIN_NS`] of the clock at most while the error is such that this may help; at moments that differ from
/// process to process.
fn ask_again<T, E>(
    may_help: impl Fn(&E) -> bool,
    mut ask: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let clock = Clock::process();
    let give_up_ns = clock.now_ns() + ASK_AGAIN_NS;
    let mut wait_ns = BACKOFF_NS_MIN;
    loop {
        let answer = ask();
        let now_ns = clock.now_ns();
        if now_ns >= give_up_ns || !answer.as_ref().is_err_and(&may_help) {
            return answer;
        }
        let next_ns = now_ns + reattach::jittered(wait_ns, now_ns);
        // A program's timer may send signals all the time, and the daemon is not to be asked as often.
        while clock.sleep_until(next_ns) == Wake::Interrupted {}
        wait_ns = (wait_ns * 2).min(BACKOFF_NS_MAX);
    }
}

/// Whether the daemon has ended the connection without an answer, before the request or after it.
fn is_hang_up(error: &HelloError) -> bool {
    match error {
        HelloError::Closed => true,
        HelloError::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        ),
        _ => false,
    }
}

fn connect(tried: &[PathBuf]) -> Result<(OwnedFd, PathBuf), Unmanaged> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in tried {
        match hello::connect_within(path, REPLY_TIMEOUT) {
            Ok(connection) => return Ok((connection, path.clone())),
            Err(error) => last = error,
        }
    }
    let tried = tried.to_vec();
    Err(Unmanaged::NoDaemon { tried, last })
}

/// The client's number, its slot in the job's ledger if the daemon keeps one, and its class if the daemon says it.
type Welcome = (u64, Option<u16>, Option<JobClass>);

/// A conversation that did not end with a welcome.
enum Answer {
    Hello(HelloError),
    Refused(String),
}

impl From<HelloError> for Answer {
    fn from(error: HelloError) -> Self {
        Self::Hello(error)
    }
}

impl From<io::Error> for Answer {
    fn from(error: io::Error) -> Self {
        Self::Hello(error.into())
    }
}

fn ask(
    connection: &OwnedFd,
    config: &Config,
    known: Option<&Known>,
    who: &Who<'_>,
) -> Result<(Welcome, Vec<OwnedFd>), Answer> {
    let quota = config.quotas.of_device(who.device.0);
    let slot = who
        .before
        .and_then(|before| u16::try_from(before.slot).ok());
    let request = Request::Attach(Attach {
        class: config.class,
        job: job_id(config),
        name: program_name(),
        profile: config
            .profile
            .as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        profile_fit: known
            .filter(|known| known.fit != Fit::Measured)
            .map(|known| known.fit.to_string())
            .unwrap_or_default(),
        device: who.uuid.to_owned(),
        memory: Some(quota.map(|quota| quota.to_string()).unwrap_or_default()),
        slot,
        falls_with_parent: FALLS_WITH_PARENT.load(Ordering::Relaxed),
        is_on_mps: who.is_on_mps,
    });
    let packet = request.encode();
    let sent = who.before.and_then(|before| {
        let send = |page: &OwnedFd| hello::send(connection, &packet, &[page.as_fd()]);
        before.descriptor.with(send)
    });
    // Without a ledger, or where the program has closed its descriptor, nothing comes along.
    sent.unwrap_or_else(|| hello::send(connection, &packet, &[]))?;
    let (packet, descriptors) = hello::receive(connection)?;
    if packet.is_empty() {
        return Err(HelloError::Closed.into());
    }
    match Reply::decode(&packet)? {
        Reply::Welcome {
            client,
            slot,
            class,
        } => Ok(((client, slot, class), descriptors)),
        Reply::Refused { reason } => Err(Answer::Refused(reason)),
        Reply::Done | Reply::Memory(_) => {
            Err(HelloError::Malformed("a reply to another request").into())
        }
    }
}

/// Whether launches may carry a priority. The attribute exists since CUDA 11.6 but is documented
/// for launches only since 12.0, which brought this form of `cuGetProcAddress`.
fn takes_priorities() -> bool {
    driver::has(abi::id::cuLaunchKernelEx) && driver::has(abi::id::cuGetProcAddress_v2)
}

/// What `ps` calls this process.
fn program_name() -> String {
    std::fs::read_to_string("/proc/self/comm")
        .map(|name| name.trim_end().to_owned())
        .unwrap_or_default()
}

/// The shared pages, mapped for the rest of the process's life.
struct Pages {
    daemon: &'static DaemonPage,
    hp: &'static HpPage,
    bell: &'static BellPage,
    client: &'static ClientPage,
    ledger: Option<LedgerSlot>,
    side: Side,
}

impl Pages {
    /// Of the descriptors that came with a welcome; `before` is the slot in the ledger of the daemon before.
    fn open(
        descriptors: Vec<OwnedFd>,
        class: JobClass,
        slot: Option<u16>,
        before: Option<&LedgerSlot>,
    ) -> io::Result<Self> {
        let of_class = match class {
            JobClass::HighPriority => PAGES,
            JobClass::BestEffort => PAGES + 1,
        };
        let expected = of_class + usize::from(slot.is_some());
        if descriptors.len() != expected {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} descriptors, expected {expected}", descriptors.len()),
            ));
        }
        let hp_access = match class {
            JobClass::HighPriority => Access::ReadWrite,
            JobClass::BestEffort => Access::Read,
        };
        let mut next = descriptors.into_iter();
        let daemon = map::<DaemonPage>(next.next(), Access::Read)?;
        let hp = map::<HpPage>(next.next(), hp_access)?;
        let bell = map::<BellPage>(next.next(), Access::ReadWrite)?;
        let client = map::<ClientPage>(next.next(), Access::ReadWrite)?;
        let lease = match class {
            JobClass::HighPriority => None,
            JobClass::BestEffort => Some(map::<LeasePage>(next.next(), Access::ReadWrite)?),
        };
        for magic in [
            Some(&daemon.magic),
            Some(&client.magic),
            lease.as_ref().map(|lease| &lease.magic),
        ] {
            check(magic)?;
        }
        let ledger = slot.map(|slot| open_ledger(next.next(), slot, before));
        let ledger = ledger.transpose()?;
        Ok(Self {
            daemon: daemon.leak(),
            hp: hp.leak(),
            bell: bell.leak(),
            client: client.leak(),
            ledger,
            side: lease.map_or(Side::HighPriority, |lease| Side::BestEffort(lease.leak())),
        })
    }
}

/// The ledger that a welcome came with: mapped, unless it is the one that this process has.
fn open_ledger(
    descriptor: Option<OwnedFd>,
    slot: u16,
    before: Option<&LedgerSlot>,
) -> io::Result<LedgerSlot> {
    let descriptor = descriptor.ok_or(io::ErrorKind::InvalidData)?;
    let page = match before.filter(|before| before.descriptor.is_of(&descriptor)) {
        Some(before) => before.page,
        None => {
            let mapped = map::<LedgerPage>(Some(descriptor.try_clone()?), Access::ReadWrite)?;
            check(Some(&mapped.magic))?;
            mapped.leak()
        }
    };
    Ok(LedgerSlot {
        page,
        slot: usize::from(slot),
        descriptor: Descriptor::new(descriptor),
    })
}

/// Whether a page begins as ours do.
fn check(magic: Option<&AtomicU64>) -> io::Result<()> {
    if magic.is_some_and(|magic| magic.load(Ordering::Acquire) != PAGE_MAGIC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong magic"));
    }
    Ok(())
}

fn map<T: SharedPage>(descriptor: Option<OwnedFd>, access: Access) -> io::Result<Mapping<T>> {
    let descriptor = descriptor.ok_or(io::ErrorKind::InvalidData)?;
    let mapping = Mapping::<T>::open(&descriptor, access)?;
    mapping.keep_from_children()?;
    Ok(mapping)
}

/// What this process knows about kernels.
struct Known {
    index: ProfileIndex,
    /// How what was measured fits the device.
    fit: Fit,
}

/// What this process knows about kernels, if anything.
pub(crate) fn profile_index(config: &Config, device: CUdevice) -> Option<&'static ProfileIndex> {
    profile(config, device).map(|known| &known.index)
}

/// The profile of this process, loaded when it first attaches, for the device it attaches to then.
fn profile(config: &Config, device: CUdevice) -> Option<&'static Known> {
    static KNOWN: OnceLock<Option<Known>> = OnceLock::new();
    let load = |path: &PathBuf| load_profile(path, device);
    KNOWN
        .get_or_init(|| config.profile.as_ref().and_then(load))
        .as_ref()
}

/// The profile as it holds on `device`, or none and a line that says why: the job then runs with unknown
/// kernels.
fn load_profile(path: &Path, device: CUdevice) -> Option<Known> {
    match Profile::load(path) {
        Ok(profile) => {
            let (profile, fit) = scale::scale(profile, &gpu(device));
            // `pillion run` says once for all processes of the job what each of them finds here.
            if fit != Fit::Measured {
                log::say(Level::Info, format_args!("{}: {fit}", path.display()));
            }
            let index = ProfileIndex::new(profile);
            Some(Known { index, fit })
        }
        Err(error) => {
            log::say(
                Level::Error,
                format_args!("{error}; the job runs with unknown kernels"),
            );
            kernels::handle_said_unknown();
            None
        }
    }
}

/// The device as its driver describes it. Bandwidth is clock × 2 × width, of DDR memory as all GPUs have.
fn gpu(device: CUdevice) -> scale::Gpu {
    let ask = |attribute| driver::device_attribute(device, attribute);
    let bits_per_us = ask(CUdevice_attribute::MEMORY_CLOCK_RATE)
        .zip(ask(CUdevice_attribute::GLOBAL_MEMORY_BUS_WIDTH))
        .map(|(khz, bits)| u64::from(khz) * 2 * u64::from(bits) / 1_000);
    let bandwidth_gb_s = bits_per_us.map(|bits| (bits + 4_000) / 8_000);
    scale::Gpu {
        name: driver::device_name(device),
        sms: ask(CUdevice_attribute::MULTIPROCESSOR_COUNT),
        clock_mhz: ask(CUdevice_attribute::CLOCK_RATE).map(|khz| khz / 1_000),
        bandwidth_gb_s: bandwidth_gb_s.and_then(|gb| u32::try_from(gb).ok()),
        // The minor number is 0 on many.
        compute_capability: ask(CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR).map(|major| {
            let minor = ask(CUdevice_attribute::COMPUTE_CAPABILITY_MINOR);
            (major, minor.unwrap_or(0))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_daemon_is_said_with_every_place_looked_at() {
        let tried = vec![
            PathBuf::from("/nowhere/a.sock"),
            PathBuf::from("/nowhere/b.sock"),
        ];
        for error in [connect(&tried).unwrap_err(), look_for(&tried).unwrap_err()] {
            assert!(error.is_absence());
            let text = error.to_string();
            assert!(
                text.starts_with("no daemon at /nowhere/a.sock, /nowhere/b.sock ("),
                "{text}"
            );
        }
    }

    #[test]
    fn who_is_hung_up_on_asks_again_for_a_while_and_who_is_answered_does_not() {
        let clock = Clock::process();
        let begun_ns = clock.now_ns();
        let mut asked = 0;
        let error = ask_again(is_hang_up, || {
            asked += 1;
            Err::<(), _>(HelloError::Closed)
        });
        assert!(matches!(error, Err(HelloError::Closed)));
        assert!(clock.now_ns() - begun_ns >= ASK_AGAIN_NS);
        let mut left = 3;
        let answer = ask_again(is_hang_up, || match left {
            0 => Ok(()),
            _ => {
                left -= 1;
                let kind = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset][left % 2];
                Err(io::Error::from(kind).into())
            }
        });
        assert!(asked > 1 && answer.is_ok());
        // A daemon that does not answer in time is not asked again: it has been waited for.
        let mut asked = 0;
        let late = ask_again(is_hang_up, || {
            asked += 1;
            Err::<(), HelloError>(io::Error::from(io::ErrorKind::WouldBlock).into())
        });
        assert!(asked == 1 && late.is_err());
    }

    #[test]
    fn a_daemon_that_hangs_up_or_says_nothing_has_not_refused() {
        let of = |error| Unmanaged::Hello {
            socket: "/s".into(),
            error,
        };
        let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::ConnectionReset];
        for error in kinds.map(|kind| HelloError::Io(kind.into())) {
            assert!(!of(error).is_refusal());
        }
        assert!(!of(HelloError::Closed).is_refusal());
        assert!(of(HelloError::Malformed("a packet")).is_refusal());
        let reason = "no room".to_owned();
        let socket = "/s".into();
        assert!(Unmanaged::Refused { socket, reason }.is_refusal());
    }

    #[test]
    fn another_version_is_said_with_ours() {
        let peer = protocol::Version { major: 9, minor: 1 };
        let error = Unmanaged::Hello {
            socket: "/s".into(),
            error: HelloError::Version { peer },
        };
        assert!(error.is_refusal());
        let ours = protocol::VERSION.to_string();
        let text = error.to_string();
        assert!(text.contains("9.1") && text.contains(&ours), "{text}");
    }

    #[test]
    fn too_few_descriptors_are_refused() {
        let error = Pages::open(Vec::new(), JobClass::BestEffort, None, None)
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("0 descriptors, expected 5"),
            "{error}"
        );
    }
}
