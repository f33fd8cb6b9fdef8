//! Finds the daemon of a device, and makes the one exchange with it: one packet each way over a
//! Unix socket (`protocol::hello`). The client's page goes with the hello as a descriptor, the
//! daemon's pages come with the answer. The connection then stays open in silence: its end shows
//! the daemon that this process is gone. Only here does the library wait for the daemon, at most
//! [`REPLY_TIMEOUT`] for each answer. A daemon serves only so many processes of a user at once, and
//! hangs up on the one that was silent for the longest. So the hello is sent as soon as there is a
//! connection, and a process that is hung up on without an answer asks again for a while
//! ([`ask_again`]). The hello names the device, and a daemon of another device refuses. A driver
//! that does not report the device's UUID leads to a daemon only if the socket is set explicitly;
//! that daemon is assumed to be the right one, and logs so.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use abi::types::{CUcontext, CUdevice, CUdevice_attribute, CUresult};
use client::Welcome;
use client::link::Pages;
use client::reconnect::jittered;
#[cfg(not(shim))]
use client::requests::OpenRequests;
use profiler::scale::{self, Fit};
use profiler::{Profile, ProfileIndex};
use protocol::clock::{Clock, Wake};
use protocol::hello::{self, Attach, HelloError, JobClass, MemoryIs, MemoryOf, Reply, Request};
use protocol::quota::Quota;
use protocol::recording::GpuWords;

use crate::daemon::kept;
use crate::driver;
use crate::kernels::KERNELS;
use crate::platform::config::Config;
use crate::platform::log::{self, Level};
use crate::platform::stdio_guard::Occupied;
use crate::platform::sys::{self, Current};
use crate::process::Client;
use crate::process::helper_words::Words;
use crate::process::notes::Notes;
use crate::process::priority::{self, Priorities, PriorityUse};
use crate::progress::cupti;

mod met;
mod said;

pub(crate) use met::Met;

/// Longest wait for an answer. A daemon answers in 100 us, from its own thread; one that takes 1 s
/// is stopped.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

static FOUND: Found = Found::new();

struct Found {
    /// Whether an attaching thread gets a signal when its parent ends. Later, the helper attaches.
    falls_with_parent: AtomicBool,
    kernels: OnceLock<Option<Known>>,
}

impl Found {
    const fn new() -> Self {
        Self {
            falls_with_parent: AtomicBool::new(false),
            kernels: OnceLock::new(),
        }
    }
}

/// How long a daemon that hangs up without an answer is asked again, ns.
const ASK_AGAIN_NS: u64 = 2_000_000_000;
/// First backoff, ns; doubles each time.
const BACKOFF_NS_MIN: u64 = 5_000_000;
/// Longest backoff, ns.
const BACKOFF_NS_MAX: u64 = 200_000_000;

/// Pages of every client: daemon, high-priority, bell.
const PAGES: usize = 3;

#[derive(Debug)]
pub(crate) enum Unmanaged {
    /// The driver does not report the device's UUID, so no daemon can be found.
    NoUuid(CUresult),
    NoDaemon {
        tried: Vec<PathBuf>,
        last: io::Error,
    },
    /// The exchange failed, for example because of another protocol version.
    Hello {
        socket: PathBuf,
        error: HelloError,
    },
    Refused {
        socket: PathBuf,
        reason: String,
    },
    NoMemory(io::Error),
    /// The pages are not what this version expects.
    Pages {
        socket: PathBuf,
        error: io::Error,
    },
}

impl Unmanaged {
    /// Whether there is no daemon, which is an error only if one was asked for.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::NoDaemon { .. })
    }

    /// Whether a daemon exists and does not serve this process, until it or its settings change.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::Pages { .. } => true,
            Self::Hello { error, .. } => !is_hang_up(error) && !matches!(error, HelloError::Io(_)),
            Self::NoUuid(_) | Self::NoDaemon { .. } | Self::NoMemory(_) => false,
        }
    }

    fn is_hang_up(&self) -> bool {
        matches!(self, Self::Hello { error, .. } if is_hang_up(error))
    }
}

impl fmt::Display for Unmanaged {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUuid(result) => write!(
                formatter,
                "cannot read the device's UUID from the driver: CUresult {}",
                result.0
            ),
            Self::NoDaemon { tried, last } => {
                formatter.write_str("no daemon answers at ")?;
                for (index, path) in tried.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(formatter, "{comma}{}", path.display())?;
                }
                write!(formatter, " ({last})")
            }
            Self::NoMemory(error) => write!(formatter, "cannot create shared memory: {error}"),
            Self::Hello { socket, error } => {
                write!(formatter, "daemon at {}: {error}", socket.display())
            }
            Self::Refused { socket, reason } => write!(
                formatter,
                "the daemon at {} refused this process: {reason}",
                socket.display()
            ),
            Self::Pages { socket, error } => write!(
                formatter,
                "the daemon at {} sent unusable shared memory: {error}",
                socket.display()
            ),
        }
    }
}

/// The client of `device`, on which `context` is, with that index; and the daemon that has accepted
/// it, or why none has. A first attempt may fail in the half second in which a daemon restarts, or
/// before the machine's daemon started. The process then has a client without a daemon, whose
/// helper asks for one as after a daemon's end ([`reattach`]). The first daemon to accept it counts
/// everything from the beginning of the process. Until then nothing is held back. Errors: why no
/// daemon has accepted it, where this process stays unmanaged on the device.
pub(crate) fn attach(
    config: &Config,
    context: CUcontext,
    device: CUdevice,
    index: u32,
) -> Result<(Client, Result<Met, Unmanaged>), Unmanaged> {
    let _occupied = Occupied::new();
    if sys::has_parent_death_signal() {
        FOUND.falls_with_parent.store(true, Ordering::Relaxed);
    }
    let (uuid, sought) = places(config, device)?;
    let found = look_for(&sought);
    let found = match found {
        Err(reason) if !is_wanted(config, &reason, &sought) => return Err(reason),
        found => found,
    };
    let made = new_client(config, context, (device, index), uuid, sought);
    let client = made.map_err(Unmanaged::NoMemory)?;
    let met = found.and_then(|()| ask_again(Unmanaged::is_hang_up, || meet(config, &client)));
    match met {
        Ok(mut met) => {
            met.ask_kept(config, &client);
            if let Some(error) = Clock::open_error() {
                log::say(Level::Error, format_args!("{error}; using real time"));
            }
            Ok((client, Ok(met)))
        }
        Err(reason) if !is_wanted(config, &reason, &client.sought) => Err(reason),
        Err(reason) => Ok((client, Err(reason))),
    }
}

/// Whether a process without a daemon asks again: a variable of `pillion run` shows that it is
/// meant to be managed, or a daemon exists, or did (its lock file outlives it). A library preloaded
/// into all processes of a machine without a daemon stays unmanaged, without a thread. On virtual
/// time: one attempt.
fn is_wanted(config: &Config, reason: &Unmanaged, sought: &[PathBuf]) -> bool {
    let is_asked_for = || config.expects_daemon || !reason.is_absence();
    !Clock::process().is_virtual()
        && (is_asked_for() || sought.iter().any(|socket| has_lock(socket)))
}

/// Whether a daemon listens there, or has since the machine was started.
fn has_lock(socket: &Path) -> bool {
    let mut lock = socket.as_os_str().to_owned();
    lock.push(".lock");
    Path::new(&lock).exists()
}

fn new_client(
    config: &Config,
    context: CUcontext,
    (device, index): (CUdevice, u32),
    uuid: String,
    sought: Vec<PathBuf>,
) -> io::Result<Client> {
    let range = driver::with_context(context, driver::priority_range).and_then(|range| range);
    let priorities = range
        .ok()
        .and_then(|(least, greatest)| Priorities::new(least, greatest));
    let known = Current::new();
    if let Some(given) = profile(config, device) {
        known.set(&given.index);
    }
    let is_recording = begin_record(config, (device, index), &uuid);
    Ok(Client {
        shared: client::Client::new(config.class, Clock::process())?,
        index,
        device,
        uuid,
        sought,
        socket: Mutex::default(),
        helper: Words::new(),
        known,
        gpu: gpu(device),
        notes: Notes::default(),
        is_recording,
        priorities,
        default_priority: priorities
            .filter(|_| takes_priorities())
            .map(|range| range.for_high_priority(priority::DEFAULT)),
        priority_use: PriorityUse::default(),
        #[cfg(not(shim))]
        requests: OpenRequests::new(std::process::id(), index),
        #[cfg(not(shim))]
        on_batch: Default::default(),
        is_on_mps: driver::is_on_mps(device),
    })
}

/// The device's UUID, empty if unknown, and where its daemon may listen, the likeliest first.
pub(crate) fn places(
    config: &Config,
    device: CUdevice,
) -> Result<(String, Vec<PathBuf>), Unmanaged> {
    let uuid = driver::device_uuid(device).map(|uuid| hello::format_uuid(uuid.bytes));
    let places = candidates(config, uuid.as_deref().map_err(|result| *result))?;
    Ok((uuid.unwrap_or_default(), places))
}

/// The daemon's quota for this job on a device, bytes, before the process is a client.
pub(crate) fn ask_quota(config: &Config, device: CUdevice) -> Option<u64> {
    let (uuid, tried) = places(config, device).ok()?;
    let quota = config.quotas.of_device(device.0);
    ask_memory_at(&tried, config, &uuid, quota).map(|is| is.quota_bytes)
}

/// The daemon's answer about this job's memory on a device, where the job asks for `asked`; `None`
/// if no daemon answers.
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
            // For example a daemon of another version: it keeps no quota.
            _ => None,
        }
    })
}

/// The job's id: from `pillion run`, or made from the process's.
fn job_id(config: &Config) -> String {
    let job = config.job.clone();
    job.unwrap_or_else(|| format!("pid-{}", std::process::id()))
}

impl Met {
    /// Asks the daemon what it keeps of the program. May take 250 ms: announce first.
    pub(crate) fn ask_kept(&mut self, config: &Config, client: &Client) {
        if self.keeps {
            let _occupied = Occupied::new();
            let given = profile(config, client.device).map(|known| &known.index);
            kept::begin(client, &self.socket, given);
        }
        let known = client.profile().map(ProfileIndex::profile);
        self.kernels = known.map_or(0, |profile| profile.kernels.len());
    }
}

/// Tries once to be accepted by a daemon, whose pages replace the last one's. No driver call.
pub(crate) fn meet(config: &Config, client: &Client) -> Result<Met, Unmanaged> {
    let _occupied = Occupied::new();
    let (connection, socket) = connect(&client.sought)?;
    let (answer, descriptors, has_own) = match ask(&connection, config, client) {
        Ok(answer) => answer,
        Err(Answer::Hello(error)) => return Err(Unmanaged::Hello { socket, error }),
        Err(Answer::Refused(reason)) => return Err(Unmanaged::Refused { socket, reason }),
    };
    let Answered {
        number,
        slot,
        class,
        keeps,
        takes_slo,
        takes_cap,
    } = answer;
    let class = class.unwrap_or(config.class);
    let welcome = split(descriptors, class, slot, has_own);
    let accepted = welcome.and_then(|welcome| client.accept(connection, welcome));
    if let Err(error) = accepted {
        return Err(Unmanaged::Pages { socket, error });
    }
    client.note_socket(&socket);
    let is_first = client.note_taken();
    said::class(config, class, &socket);
    said::slo(config, takes_slo, &socket);
    said::cap(config, takes_cap, &socket);
    Ok(Met {
        socket,
        number,
        class,
        keeps,
        kernels: 0,
        is_first,
    })
}

fn candidates(config: &Config, uuid: Result<&str, CUresult>) -> Result<Vec<PathBuf>, Unmanaged> {
    match &config.socket {
        Some(socket) => Ok(vec![socket.clone()]),
        None => Ok(hello::socket_paths(uuid.map_err(Unmanaged::NoUuid)?)),
    }
}

/// Whether there is anything to connect to; does not connect.
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

/// Asks, and repeats for at most [`ASK_AGAIN_NS`] of clock time while the error is one that
/// repeating may cure; at times that differ between processes.
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
        let next_ns = now_ns + jittered(wait_ns, now_ns, std::process::id());
        // A program's timer may send signals all the time: keep the interval all the same.
        while clock.sleep_until(next_ns) == Wake::Interrupted {}
        wait_ns = (wait_ns * 2).min(BACKOFF_NS_MAX);
    }
}

/// Whether the daemon has ended the connection without an answer, before or after the request.
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

struct Answered {
    number: u64,
    /// Its slot in the job's ledger, if the daemon keeps one.
    slot: Option<u16>,
    class: Option<JobClass>,
    /// Whether the daemon can keep what is learnt (protocol 3.1).
    keeps: bool,
    /// Whether it knows latency targets of jobs (protocol 3.4).
    takes_slo: bool,
    /// Whether it knows caps of the GPU's time (protocol 3.6).
    takes_cap: bool,
}

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
    client: &Client,
) -> Result<(Answered, Vec<OwnedFd>, bool), Answer> {
    let quota = config.quotas.of_device(client.device.0);
    let known = profile(config, client.device);
    let own = client.page_file();
    let brought = client.ledger_file();
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
        device: client.uuid.clone(),
        memory: Some(quota.map(|quota| quota.to_string()).unwrap_or_default()),
        slot: brought.as_ref().map(|(_, slot)| *slot),
        falls_with_parent: FOUND.falls_with_parent.load(Ordering::Relaxed),
        is_on_mps: client.is_on_mps,
        slo: config.slo.map(|slo| slo.to_string()).unwrap_or_default(),
        compute: config.cap.map(|cap| cap.to_string()).unwrap_or_default(),
        restartable: config
            .restartable
            .map(|pct| pct.to_string())
            .unwrap_or_default(),
    });
    let packet = request.encode();
    let ledger = brought.as_ref().map(|(ledger, _)| ledger);
    let pages: Vec<_> = own.iter().chain(ledger).map(AsFd::as_fd).collect();
    hello::send(connection, &packet, &pages)?;
    let (packet, descriptors) = hello::receive(connection)?;
    if packet.is_empty() {
        return Err(HelloError::Closed.into());
    }
    match Reply::decode(&packet)? {
        Reply::Welcome {
            client,
            slot,
            class,
        } => {
            let minor = hello::peer_version(&packet).map_or(0, |version| version.minor);
            let answered = Answered {
                number: client,
                slot,
                class,
                keeps: minor >= 1,
                takes_slo: minor >= 4,
                takes_cap: minor >= 6,
            };
            Ok((answered, descriptors, own.is_some()))
        }
        Reply::Refused { reason } => Err(Answer::Refused(reason)),
        Reply::Done | Reply::Memory(_) | Reply::Learnt { .. } => {
            Err(HelloError::Malformed("a reply to another request").into())
        }
    }
}

/// Whether launches may carry a priority. The attribute exists since CUDA 11.6, but is documented
/// for launches only since 12.0, which brought this form of `cuGetProcAddress`.
fn takes_priorities() -> bool {
    driver::has(abi::id::cuLaunchKernelEx) && driver::has(abi::id::cuGetProcAddress_v2)
}

fn program_name() -> String {
    std::fs::read_to_string("/proc/self/comm")
        .map(|name| name.trim_end().to_owned())
        .unwrap_or_default()
}

/// Sorts a welcome's descriptors; the last is the client's page, if the client sent none.
fn split(
    descriptors: Vec<OwnedFd>,
    class: JobClass,
    slot: Option<u16>,
    has_own: bool,
) -> io::Result<Welcome> {
    let is_best_effort = class == JobClass::BestEffort;
    let more = [is_best_effort, slot.is_some(), !has_own];
    let expected = PAGES + more.into_iter().map(usize::from).sum::<usize>();
    let error = format!("{} descriptors, expected {expected}", descriptors.len());
    let is_expected = descriptors.len() == expected;
    let mut next = descriptors.into_iter();
    let mut next = || {
        let next = next.next().filter(|_| is_expected);
        next.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, error.as_str()))
    };
    let pages = Pages {
        daemon: next()?,
        hp: next()?,
        bell: next()?,
        lease: is_best_effort.then(&mut next).transpose()?,
    };
    let ledger = slot.map(|slot| next().map(|page| (page, slot)));
    let ledger = ledger.transpose()?;
    let own = (!has_own).then(next).transpose()?;
    Ok(Welcome { pages, ledger, own })
}

struct Known {
    index: ProfileIndex,
    /// How the measurements fit the device.
    fit: Fit,
}

/// The process's profile, loaded when it first attaches, and scaled to the device of that attach.
fn profile(config: &Config, device: CUdevice) -> Option<&'static Known> {
    let load = |path: &PathBuf| load_profile(path, device);
    FOUND
        .kernels
        .get_or_init(|| config.profile.as_ref().and_then(load))
        .as_ref()
}

fn begin_record(config: &Config, (device, index): (CUdevice, u32), uuid: &str) -> bool {
    let Some(folder) = &config.record else {
        return false;
    };
    match KERNELS.begin_record(folder) {
        Ok(record) => {
            if let Some(words) = record.page().gpus.get(index as usize) {
                set_gpu(words, &gpu(device));
            }
            cupti::begin(record, config, uuid);
            true
        }
        Err(error) => {
            let folder = folder.display();
            log::say(
                Level::Error,
                format_args!("{folder}: {error}; this process is not recorded"),
            );
            false
        }
    }
}

fn set_gpu(words: &GpuWords, gpu: &scale::Gpu) {
    let (major, minor) = gpu.compute_capability.unwrap_or_default();
    for (word, value) in [
        (&words.sms, gpu.sms.unwrap_or(0)),
        (&words.major, major),
        (&words.minor, minor),
        (&words.clock_mhz, gpu.clock_mhz.unwrap_or(0)),
        (&words.bandwidth_gb_s, gpu.bandwidth_gb_s.unwrap_or(0)),
    ] {
        word.store(value, Ordering::Relaxed);
    }
    words.set_name(&gpu.name);
}

/// The profile scaled to `device`; else a log line has the reason, and all kernels are unknown.
fn load_profile(path: &Path, device: CUdevice) -> Option<Known> {
    match Profile::load(path) {
        Ok(profile) => {
            let (profile, fit) = scale::scale(profile, &gpu(device));
            // `pillion run` logs this once for all processes of the job.
            if fit != Fit::Measured {
                log::say(Level::Info, format_args!("{}: {fit}", path.display()));
            }
            let index = ProfileIndex::new(profile);
            Some(Known { index, fit })
        }
        Err(error) => {
            log::say(
                Level::Error,
                format_args!("{error}; the job runs without a profile"),
            );
            KERNELS.handle_said_unknown();
            None
        }
    }
}

/// The device as its driver describes it. Bandwidth is clock × 2 × width: all GPUs have DDR memory.
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
                text.starts_with("no daemon answers at /nowhere/a.sock, /nowhere/b.sock ("),
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
        // A daemon that does not answer in time is not asked again: the wait is over.
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
        let error = split(Vec::new(), JobClass::BestEffort, None, true)
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("0 descriptors, expected 4"),
            "{error}"
        );
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
