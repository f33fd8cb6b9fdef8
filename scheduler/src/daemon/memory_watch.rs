//! The thread that watches the GPU's memory: releases dead processes' holdings once the device
//! shows them free, and every second compares processes' memory with their accounts
//! ([`crate::core::unaccounted_memory`]).
//!
//! It is a separate thread because NVML may be slow, and in real time, like NVML: on the virtual
//! clock nothing waits for it. The querying thread ([`crate::host::nvml::Asked`]) opens NVML on
//! first use; if it is missing, that is logged once, and the end of a process suffices. An NVML
//! that fails or does not return is asked again, for a while. While the device is released
//! ([`crate::host::device_release`]) there is no NVML.
//!
//! NVML costs the driver time. It is asked often about processes whose end is known, and less often
//! once nothing was released for a second. Once a second it is asked anyway, to compare, and for
//! processes that use the GPU outside Pillion ([`unmanaged`]). A process that cannot attach is
//! named at the second poll that finds it; any process leaves the list at the first poll that does
//! not find it. So both take three seconds at most. A process that may still attach has 15 s
//! ([`crate::core::unmanaged`]). Nothing is compared on the virtual clock, whose seconds are not
//! NVML's.

mod unmanaged;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::clock::Clock;
use protocol::ending::SEEN_TO_NS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::config::OnExcess;
use crate::core::event::{Draft, Kind};
use crate::core::job_key::JobKey;
use crate::core::unaccounted_memory::Process;
use crate::core::unaccounted_memory::{Eviction, Holding};
use crate::daemon::shared::Shared;
use crate::faults::ending::Evicted;
use crate::host::device_release::{DeviceRelease, User};
use crate::host::nvml::uses::Uses;
use crate::host::nvml::{Asked, NvmlError, PATIENCE, Processes, Silence};
use crate::host::peer::has_ended;
use crate::host::unattached::{self, real_uid};
use crate::report::events;

use unmanaged::UnmanagedWatch;

/// Poll interval until a dead process's memory is released: a fifth of the allowed 100 ms.
const LEAVING_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

const SLOW_LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

const COMPARE_NS: u64 = 1_000_000_000;

/// Least interval of comparisons, ns: a poll may end early by rounding.
const COMPARE_NS_MIN: u64 = 900_000_000;

/// A process that computed within this time counts as computing, us: NVML's longest sample period,
/// plus a poll interval.
const USED_US: u64 = 2_000_000;

/// Polls in vain before polling slows down: a second of them.
const QUICK_LOOKS: u32 = 50;

/// Longest eviction, ns: from the request to end, which comes [`crate::core::unaccounted_memory`]'s
/// patience before the kill.
const SEEN_TO_NS_MAX: u64 = SEEN_TO_NS + 15_000_000_000;

/// How long NVML may fail, ns, before the end of a process suffices.
const FAILING_NS_MAX: u64 = 1_000_000_000;

pub(crate) struct Watch {
    shared: Arc<Shared>,
    uuid: String,
    nvml: Nvml,
    /// NVML did not return its last answer, which was reported.
    is_silent: bool,
    answers: Answers,
    looks_in_vain: u32,
    clock: Clock,
    compared_ns: Option<u64>,
    unmanaged: UnmanagedWatch,
    opened: Option<u64>,
}

#[derive(Debug, Default)]
struct Answers {
    failing_since_ns: Option<u64>,
    is_given_up: bool,
}

enum Nvml {
    NotAsked,
    Asked(Asked<Question, Answer>),
    Missing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Question {
    with_uses: bool,
}

#[derive(Debug, Default)]
struct Listed {
    processes: Vec<Process>,
    /// Graphics processes; none if not asked, or unknown.
    graphics: Option<Vec<u32>>,
    computed: Vec<u32>,
}

enum Answer {
    Missing(NvmlError),
    Released,
    Listed(Result<Listed, NvmlError>),
}

impl Watch {
    pub(crate) fn new(shared: Arc<Shared>, uuid: &str) -> Self {
        Self {
            opened: None,
            unmanaged: UnmanagedWatch::new(Arc::clone(&shared)),
            shared,
            uuid: uuid.to_owned(),
            nvml: Nvml::Missing,
            is_silent: false,
            answers: Answers::default(),
            looks_in_vain: 0,
            clock: Clock::monotonic(),
            compared_ns: None,
        }
    }

    pub(crate) fn run(mut self) {
        self.keep_to_grip();
        while self.wait() {
            #[cfg(test)]
            self.shared.panic_if_asked();
            self.keep_to_grip();
            let leaving = self.shared.ledgers().leaving(has_ended);
            if leaving.is_anybody_over {
                self.look();
            }
            self.compare_if_due();
        }
    }

    fn is_watching(&self) -> bool {
        !self.shared.clock().is_virtual() && !matches!(self.nvml, Nvml::Missing)
    }

    fn until_due(&self) -> Option<Timespec> {
        let since_ns = |last_ns| self.clock.now_ns().saturating_sub(last_ns);
        let left_ns = match self.compared_ns {
            Some(last_ns) => COMPARE_NS.saturating_sub(since_ns(last_ns)),
            None => 0,
        };
        self.is_watching().then_some(Timespec {
            tv_sec: (left_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (left_ns % 1_000_000_000).cast_signed(),
        })
    }

    /// NVML is unavailable while the device is released: the querying thread ends, and closes it.
    fn keep_to_grip(&mut self) {
        let opened = self.shared.device_release().opened();
        if std::mem::replace(&mut self.opened, opened) != opened {
            self.nvml = match opened {
                Some(_) => Nvml::NotAsked,
                None => Nvml::Missing,
            };
            self.answers = Answers::default();
        }
    }

    fn is_comparing(&self) -> bool {
        let ledgers = self.shared.ledgers();
        ledgers.on_excess() != OnExcess::Ignore && ledgers.has_holders()
    }

    fn compare_if_due(&mut self) {
        if !self.is_watching() {
            return self.unmanaged.handle_silence();
        }
        let now_ns = self.clock.now_ns();
        let is_early = |last_ns| now_ns.saturating_sub(last_ns) < COMPARE_NS_MIN;
        if self.compared_ns.is_some_and(is_early) {
            return;
        }
        self.compared_ns = Some(now_ns);
        let before = self.shared.ledgers().holdings();
        let with_uses = self.unmanaged.wants_uses();
        let answer = self.listed(Question { with_uses });
        // Only waits for memory report an error; the next comparison is in a second.
        let (Some(Ok(listed)), true) = (answer, self.is_watching()) else {
            return self.unmanaged.handle_silence();
        };
        self.unmanaged.handle_listed(&listed);
        if !self.is_comparing() {
            return;
        }
        let listed = listed.processes;
        let strays = strays_of(&listed, &before);
        let compared = self
            .shared
            .ledgers()
            .handle_listed(&before, &listed, &strays);
        for (job, excess) in compared.news {
            let (id, pid) = (&job.id, excess.pid);
            let mib = excess.bytes as f64 / f64::from(1 << 20);
            let what = if excess.is_client {
                format!(
                    "holds {mib:.1} MiB of the GPU's memory that its allocations do not explain"
                )
            } else {
                format!("not a client, but holds {mib:.1} MiB of the GPU's memory")
            };
            let text = format!("job {id:?}, process {pid}: {what}");
            let draft = Draft::new(Kind::MemoryExcess, text);
            self.shared.tell(draft.of_job(&job).pid(pid));
        }
        for (job, eviction) in compared.evictions {
            self.evict(&job, eviction);
        }
    }

    fn evict(&self, job: &JobKey, eviction: Eviction) {
        let pid = eviction.pid;
        let client = self.shared.ledgers().process_of(job, pid);
        let is_client = client.is_some();
        let process = match client {
            Some(client) => Ok(client),
            None => open(pid).and_then(|process| match real_uid(pid) == Some(job.uid) {
                true => Ok(Arc::new(process)),
                // A job can write the data that names its process; its user is known from the
                // kernel. Checked after opening the descriptor: a later process of that id is never
                // signalled.
                false => Err(Errno::PERM),
            }),
        };
        let done = process.and_then(|process| match eviction.is_kill {
            false => {
                // Before the signal, which may end it: MPS must be asked to end its work first.
                let (state, now_ns) = (self.shared.state(), self.clock.now_ns());
                state.see_to_processes(job, &[pid], now_ns, SEEN_TO_NS_MAX);
                drop(state);
                pidfd_send_signal(&*process, Signal::TERM)
            }
            true => {
                let evicted = Evicted {
                    job: job.clone(),
                    pid,
                    process,
                    is_client,
                    why: "its job exceeds its memory quota",
                };
                let has_room = self.shared.inbox().put_evicted(evicted);
                self.shared.alarm();
                // The thread that ends jobs takes over, as that takes long.
                has_room.then_some(()).ok_or(Errno::AGAIN)
            }
        });
        self.tell_of_eviction(job, eviction, done);
    }

    fn tell_of_eviction(&self, job: &JobKey, eviction: Eviction, done: Result<(), Errno>) {
        let Eviction { pid, is_kill } = eviction;
        let how = if is_kill { "killed" } else { "asked to end" };
        let text = match done {
            // The thread that ends it reports it.
            Ok(()) if is_kill => return,
            Ok(()) => {
                self.shared.ledgers().handle_begun(pid);
                format!("process {pid} is asked to end; its job exceeds its memory quota")
            }
            Err(Errno::SRCH) => return,
            Err(error @ Errno::PERM) => {
                self.shared.ledgers().handle_out_of_reach(pid);
                format!("process {pid} cannot be {how}: {error}")
            }
            // No descriptor, or no room in the ending thread: temporary.
            Err(error) => {
                let is_news = self.shared.ledgers().handle_put_off(pid, is_kill);
                if !is_news {
                    return;
                }
                format!("process {pid} cannot be {how} yet: {error}")
            }
        };
        let draft = Draft::new(Kind::Evicted, text);
        self.shared.tell(draft.of_job(job).pid(pid));
    }

    fn wait(&mut self) -> bool {
        let watched = self.shared.ledgers().leaving(has_ended);
        let until_due = self.until_due();
        let (stop, leaving) = (self.shared.stop_fd(), self.shared.leaving_fd());
        let mut fds = vec![
            PollFd::new(&stop, PollFlags::IN),
            PollFd::new(&leaving, PollFlags::IN),
        ];
        let living = watched.living.iter();
        fds.extend(living.map(|process| PollFd::new(&**process, PollFlags::IN)));
        let look = match self.looks_in_vain {
            0..QUICK_LOOKS => &LEAVING_LOOK,
            _ => &SLOW_LOOK,
        };
        // Interrupted or not, another poll does no harm.
        let wait = watched.is_anybody_over.then_some(*look);
        let in_ns = |wait: &Timespec| (wait.tv_sec, wait.tv_nsec);
        let wait = wait.into_iter().chain(until_due).min_by_key(in_ns);
        let _ = poll(&mut fds, wait.as_ref());
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (is_stopped, has_left) = (is_ready(&fds[0]), is_ready(&fds[1]));
        let has_news = fds[1..].iter().any(is_ready);
        if has_left {
            let _ = rustix::io::read(leaving, &mut [0; 8]);
        }
        if has_news {
            self.looks_in_vain = 0;
        }
        !is_stopped
    }

    fn look(&mut self) {
        // Asked before locking the ledgers: attaching clients must not wait for NVML.
        let Some(answer) = self.listed(Question::default()) else {
            return;
        };
        let listed = match answer {
            Ok(listed) => Some(listed.processes.iter().map(|process| process.pid).collect()),
            Err(error) => self.answers.handle_failure(&error, self.clock.now_ns()),
        };
        let back = listed.map_or(0, |listed: Vec<u32>| {
            let mut ledgers = self.shared.ledgers();
            ledgers.poll_leaving(|pid| listed.contains(&pid))
        });
        self.looks_in_vain = match back {
            0 => self.looks_in_vain.saturating_add(1),
            _ => 0,
        };
    }

    /// Processes with memory of the device; none if the daemon ends or the device was released.
    fn listed(&mut self, question: Question) -> Option<Result<Listed, NvmlError>> {
        if let Nvml::NotAsked = self.nvml {
            self.nvml = match start_asking(&self.uuid, self.shared.device_release()) {
                Ok(asked) => Nvml::Asked(asked),
                Err(error) => no_nvml(&format!("cannot start a thread to ask NVML: {error}")),
            };
        }
        let Nvml::Asked(asked) = &mut self.nvml else {
            return Some(Ok(Listed::default()));
        };
        match asked.ask(question, self.shared.stop_fd(), &PATIENCE) {
            Ok(Answer::Released) => None,
            Ok(Answer::Missing(error)) => {
                self.nvml = no_nvml(&error.to_string());
                Some(Ok(Listed::default()))
            }
            Ok(Answer::Listed(listed)) => {
                if std::mem::take(&mut self.is_silent) {
                    tracing::info!("NVML answers again: unaccounted memory is detected again");
                }
                if listed.is_ok() {
                    self.answers = Answers::default();
                }
                Some(listed)
            }
            Err(Silence::Stopping) => None,
            Err(Silence::Late | Silence::Ended) => {
                if !std::mem::replace(&mut self.is_silent, true) {
                    let what = "until it answers, unaccounted memory is not detected, and memory \
                                of exited processes counts as free";
                    let text = format!("{}; {what}", NvmlError::Silent);
                    self.shared.tell(Draft::new(Kind::NvmlSilent, text));
                }
                Some(Err(NvmlError::Silent))
            }
        }
    }
}

fn start_asking(
    uuid: &str,
    device_release: &Arc<DeviceRelease>,
) -> std::io::Result<Asked<Question, Answer>> {
    let (uuid, device_release) = (uuid.to_owned(), Arc::clone(device_release));
    // Close NVML before reporting it as closed.
    let mut processes: Option<(Processes, User)> = None;
    Asked::start("pillion-memory-ask", move |question: Question| {
        let open = match processes.take_if(|(_, user)| !user.is_over()) {
            Some(open) => open,
            None => {
                processes = None;
                let Some(user) = device_release.user() else {
                    return Answer::Released;
                };
                match Processes::open(&uuid) {
                    Ok(open) => (open, user),
                    Err(error) => return Answer::Missing(error),
                }
            }
        };
        let (open, _) = processes.insert(open);
        Answer::Listed(open.list().map(|processes| match question.with_uses {
            true => Listed {
                processes,
                graphics: open.graphics().ok(),
                computed: computed(&uuid),
            },
            false => Listed {
                processes,
                ..Listed::default()
            },
        }))
    })
}

/// Recently computing processes. NVML is opened for this rare query alone.
fn computed(uuid: &str) -> Vec<u32> {
    let since_us = (events::unix_ms() * 1_000).saturating_sub(USED_US);
    let computed = Uses::open(uuid).and_then(|uses| uses.computed_since(since_us));
    computed.unwrap_or_default()
}

fn no_nvml(why: &str) -> Nvml {
    tracing::warn!(
        "{why}; memory of exited processes counts as free at once, and use of the GPU beyond a \
         quota or without Pillion is not detected"
    );
    Nvml::Missing
}

impl Answers {
    /// Processes to assume while NVML fails: none to retry; empty once it has failed for long.
    fn handle_failure(&mut self, error: &NvmlError, now_ns: u64) -> Option<Vec<u32>> {
        let Some(since_ns) = self.failing_since_ns else {
            self.failing_since_ns = Some(now_ns);
            tracing::warn!("{error}; retrying");
            return None;
        };
        if now_ns.saturating_sub(since_ns) < FAILING_NS_MAX {
            return None;
        }
        if !std::mem::replace(&mut self.is_given_up, true) {
            tracing::warn!(
                "still failing: {error}; until NVML answers, memory of exited processes counts as \
                 free"
            );
        }
        Some(Vec::new())
    }
}

fn open(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

fn strays_of(listed: &[Process], holdings: &[Holding]) -> Vec<(u32, JobKey)> {
    let has_account = |pid| holdings.iter().any(|holding| holding.pid == pid);
    let others = listed.iter().filter(|process| !has_account(process.pid));
    others
        .filter_map(|process| Some((process.pid, unattached::job_of(process.pid, holdings)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvml_that_fails_is_asked_again_for_a_while_and_believed_once_it_answers() {
        let failing = NvmlError::NoSymbol("nvmlInit_v2");
        let mut answers = Answers::default();
        for now_ns in [5, 6, 5 + FAILING_NS_MAX - 1] {
            assert_eq!(answers.handle_failure(&failing, now_ns), None);
        }
        let given_up = answers.handle_failure(&failing, 5 + FAILING_NS_MAX);
        assert_eq!(given_up, Some(vec![]), "the end has to do");
        answers = Answers::default();
        assert_eq!(answers.handle_failure(&failing, 9 * FAILING_NS_MAX), None);
    }
}
