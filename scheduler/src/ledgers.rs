//! What each job may hold of the GPU's memory and what it does, process by process.
//!
//! The sums are in shared pages ([`protocol::ledger`]), which the jobs' processes change by themselves; here is
//! who has which slot of which page, what quota a job has, and when a dead process's holdings come back. No IO:
//! what happens comes in through `handle_` functions, what NVML says as an argument.
//!
//! **The quota** of a job is what its first process asks for, else the operator's rule for its class. A job of which
//! nothing is left asks anew when it comes again; of a job that runs, later processes get the quota that it has.
//!
//! **A dead process's holdings** come back when its end is known *and* the device shows its memory
//! freed: NVML lists it no more ([`Ledgers::poll_leaving`]). Before that another process could be granted what
//! the device does not have yet. Where NVML does not answer, its end has to do.
//!
//! A process that executes another program (execve(2)) keeps its number, and the device frees its memory before the
//! other program begins: when that attaches, what the first one held is back ([`Image`]).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::hello::{JobClass, MemoryIs};
use protocol::ledger::{Kind, LEDGER_SLOTS, LedgerPage, UNLIMITED};
use protocol::pages::PAGE_MAGIC;
use protocol::quota::{self, Quota};
use protocol::segment::Mapping;
use protocol::sync::Ordering;
use serde::Serialize;

use crate::config::MemoryRules;
use crate::state::{ENDED_MAX, JobKey, Peer};

/// What all jobs of a GPU hold.
#[derive(Debug)]
pub(crate) struct Ledgers {
    rules: MemoryRules,
    /// What the GPU has, bytes; 0 if its driver does not say.
    device_bytes: u64,
    jobs: Vec<JobLedger>,
}

#[derive(Debug)]
struct JobLedger {
    key: JobKey,
    page: Mapping<LedgerPage>,
    fd: Arc<OwnedFd>,
    holders: Vec<Holder>,
}

/// A process that has a slot.
#[derive(Debug)]
struct Holder {
    slot: usize,
    pid: u32,
    image: Image,
    /// None where it cannot be seen from here, or was not asked for.
    process: Option<Arc<OwnedFd>>,
    /// It is no client any more; when its memory is seen to be free, so is its slot.
    is_leaving: bool,
}

/// What tells a process from a later one of that number, and from the program that it was before execve(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// When it started, in clock ticks since boot; 0 if it cannot be seen. The same after execve(2).
    pub(crate) started_ticks: u64,
    /// Where its stack begins: another place for each program, by chance. 0 if it cannot be seen; 1 where we may not.
    stack: u64,
}

impl Image {
    /// Of a process that is there now (proc_pid_stat(5), fields 22 and 28).
    pub(crate) fn of(pid: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, in parentheses, may contain anything; the fields after it are numbers and a letter.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |number: usize| {
            let text = after_name.split_ascii_whitespace().nth(number - 3);
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        Self {
            started_ticks: field(22),
            stack: field(28),
        }
    }

    /// Whether `next`, of the same number, has taken this one's place by execve(2). No if that cannot be told.
    fn is_replaced_by(self, next: Self) -> bool {
        let are_seen = self.started_ticks > 0 && self.stack > 1 && next.stack > 1;
        are_seen && self.started_ticks == next.started_ticks && self.stack != next.stack
    }
}

/// What is to be watched of those who have left.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Somebody's end is known, and the memory is to come back.
    pub(crate) is_anybody_over: bool,
    /// Those who live on without their connection: their end is to be noticed.
    pub(crate) living: Vec<Arc<OwnedFd>>,
}

/// What a process needs to keep its account.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) slot: u16,
}

/// Why a process cannot have one. A quota that cannot be enforced is refused, not forgotten.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    #[error("its quota of memory is {0:?}; needed is {expected}", expected = quota::EXPECTED)]
    Quota(String),
    #[error("a quota of {0} cannot be kept: the driver does not say how much memory the GPU has")]
    NoTotal(Quota),
    #[error("{LEDGER_SLOTS} processes of its job have memory of this GPU, or had a moment ago")]
    Slots,
    #[error("no shared memory: {0}")]
    Page(#[from] io::Error),
}

/// What a job holds, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStatus {
    /// What it may hold; none: anything.
    pub quota_bytes: Option<u64>,
    /// What it holds, with what is reserved for calls that the driver has not answered.
    pub held_bytes: u64,
    /// The most that it held.
    pub peak_bytes: u64,
    /// Requests that were refused because of the quota.
    pub refused: u64,
    /// What it holds, by what for.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// Processes whose memory is counted.
    pub processes: usize,
    /// Of these, those that have ended and whose memory the device does not show freed yet.
    pub leaving: usize,
}

impl Ledgers {
    /// Of a GPU with so much memory, nobody having any of it.
    pub(crate) fn new(rules: MemoryRules, device_bytes: u64) -> Self {
        Self {
            rules,
            device_bytes,
            jobs: Vec::new(),
        }
    }

    /// A process of a job attaches; `asked` is the quota that it asks for, empty if none. `process`
    /// is a descriptor of it.
    ///
    /// # Errors
    ///
    /// The quota makes no sense or cannot be kept, or there is no slot or memory for it.
    pub(crate) fn handle_attach(
        &mut self,
        key: &JobKey,
        peer: Peer,
        image: Image,
        process: Option<OwnedFd>,
        asked: &str,
    ) -> Result<Opened, LedgerError> {
        let quota_bytes = self.quota_bytes(key.class, read(asked)?)?;
        self.take_back(|holder| holder.pid == peer.pid && holder.image.is_replaced_by(image));
        let context_bytes = self.rules.context_bytes;
        let job = match self.jobs.iter().position(|job| job.key == *key) {
            Some(index) => &mut self.jobs[index],
            None => self.add(key)?,
        };
        if job.holders.is_empty() {
            job.begin(quota_bytes, context_bytes);
        } else if !asked.is_empty() && job.page.quota().unwrap_or(UNLIMITED) != quota_bytes {
            let (id, pid) = (&key.id, peer.pid);
            tracing::warn!(
                "job {id:?} keeps the quota that it has; its process {pid} asks for {asked}"
            );
        }
        let is_used = |slot: &usize| job.holders.iter().any(|holder| holder.slot == *slot);
        let slot = (0..LEDGER_SLOTS)
            .find(|slot| !is_used(slot))
            .ok_or(LedgerError::Slots)?;
        job.page.open_slot(slot, peer.pid, image.started_ticks);
        job.holders.push(Holder {
            slot,
            pid: peer.pid,
            image,
            process: process.map(Arc::new),
            is_leaving: false,
        });
        Ok(Opened {
            fd: Arc::clone(&job.fd),
            slot: slot as u16,
        })
    }

    /// What a job of this class may hold that asks for this.
    fn quota_bytes(&self, class: JobClass, asked: Option<Quota>) -> Result<u64, LedgerError> {
        let default = match class {
            JobClass::HighPriority => self.rules.high_priority,
            JobClass::BestEffort => self.rules.best_effort,
        };
        let quota = asked.unwrap_or(default);
        match quota {
            // Only who asked is turned away: without a total there is no part of it to default to.
            Quota::Percent(_) if self.device_bytes == 0 && asked.is_some() => {
                Err(LedgerError::NoTotal(quota))
            }
            Quota::Percent(_) if self.device_bytes == 0 => Ok(UNLIMITED),
            _ => Ok(quota.bytes_of(self.device_bytes).unwrap_or(UNLIMITED)),
        }
    }

    fn add(&mut self, key: &JobKey) -> io::Result<&mut JobLedger> {
        let (fd, page) = Mapping::<LedgerPage>::create("pillion-ledger")?;
        page.magic.store(PAGE_MAGIC, Ordering::Release);
        // Jobs of which nothing is left are remembered like ended jobs, for their peak.
        if self.jobs.len() >= ENDED_MAX
            && let Some(oldest) = self.jobs.iter().position(|job| job.holders.is_empty())
        {
            self.jobs.remove(oldest);
        }
        self.jobs.push(JobLedger {
            key: key.clone(),
            page,
            fd: Arc::new(fd),
            holders: Vec::new(),
        });
        let last = self.jobs.len() - 1;
        Ok(&mut self.jobs[last])
    }

    /// The process with this slot is no client any more: it has ended, or lost its connection.
    pub(crate) fn handle_detach(&mut self, key: &JobKey, slot: u16) {
        let job = self.jobs.iter_mut().find(|job| job.key == *key);
        let holders = job.into_iter().flat_map(|job| &mut job.holders);
        for holder in holders.filter(|holder| holder.slot == usize::from(slot)) {
            holder.is_leaving = true;
        }
    }

    /// The process with this slot was turned away after all: it never had the page, so it holds nothing.
    pub(crate) fn handle_turned_away(&mut self, key: &JobKey, slot: u16) {
        self.handle_detach(key, slot);
        if let Some(job) = self.jobs.iter_mut().find(|job| job.key == *key) {
            job.take_back(|holder| holder.slot == usize::from(slot));
        }
    }

    /// Those who have left and whose memory is not seen freed yet. `has_ended` says it of a process.
    pub(crate) fn leaving(&self, has_ended: impl Fn(&OwnedFd) -> bool) -> Leaving {
        let holders = self.jobs.iter().flat_map(|job| &job.holders);
        let (over, living): (Vec<&Holder>, Vec<&Holder>) = holders
            .filter(|holder| holder.is_leaving)
            .partition(|holder| holder.has_ended(&has_ended));
        let living = living.into_iter();
        Leaving {
            is_anybody_over: !over.is_empty(),
            living: living.filter_map(|holder| holder.process.clone()).collect(),
        }
    }

    /// Takes back what those held who have left. `has_ended` says it of a process, `is_listed` whether NVML
    /// still lists it. Of how many it is back.
    pub(crate) fn poll_leaving(
        &mut self,
        has_ended: impl Fn(&OwnedFd) -> bool,
        is_listed: impl Fn(u32) -> bool,
    ) -> usize {
        self.take_back(|holder| holder.has_ended(&has_ended) && !is_listed(holder.pid))
    }

    /// Takes back what those held who have left and of whom `is_over` is true. How many they are.
    fn take_back(&mut self, is_over: impl Fn(&Holder) -> bool) -> usize {
        let jobs = self.jobs.iter_mut();
        jobs.map(|job| job.take_back(&is_over)).sum()
    }

    /// Another quota for the jobs of that id, and of that user unless `uid` is none. How many there are.
    pub(crate) fn set_quota(
        &self,
        id: &str,
        uid: Option<u32>,
        asked: Quota,
    ) -> Result<usize, LedgerError> {
        let quota_bytes = self.quota_bytes(JobClass::BestEffort, Some(asked))?;
        let is_meant =
            |job: &&JobLedger| job.key.id == id && uid.is_none_or(|uid| uid == job.key.uid);
        let jobs = self
            .jobs
            .iter()
            .filter(|job| job.is_there())
            .filter(is_meant);
        Ok(jobs
            .map(|job| job.page.quota_bytes.store(quota_bytes, Ordering::Relaxed))
            .count())
    }

    /// Whether anybody's job has that id.
    pub(crate) fn has_job(&self, id: &str) -> bool {
        let mut jobs = self.jobs.iter().filter(|job| job.is_there());
        jobs.any(|job| job.key.id == id)
    }

    /// What a job may hold and holds; of one that is not known yet, what it would be given if it asked so.
    ///
    /// # Errors
    ///
    /// The quota that it asks for makes no sense, or cannot be kept.
    pub(crate) fn memory_of(&self, key: &JobKey, asked: &str) -> Result<MemoryIs, LedgerError> {
        let mut jobs = self.jobs.iter().filter(|job| job.is_there());
        if let Some(job) = jobs.find(|job| job.key == *key) {
            return Ok(MemoryIs {
                quota_bytes: job.page.quota().unwrap_or(UNLIMITED),
                held_bytes: job.page.held_bytes(),
                pids: job.holders.iter().map(|holder| holder.pid).collect(),
            });
        }
        Ok(MemoryIs {
            quota_bytes: self.quota_bytes(key.class, read(asked)?)?,
            held_bytes: 0,
            pids: Vec::new(),
        })
    }

    /// What a job holds.
    pub(crate) fn status_of(&self, key: &JobKey) -> Option<MemoryStatus> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        let by_kind = Kind::ALL
            .iter()
            .map(|&kind| (kind.name(), job.page.kind_bytes(kind)));
        Some(MemoryStatus {
            quota_bytes: job.page.quota(),
            held_bytes: job.page.held_bytes(),
            peak_bytes: job.page.peak_bytes.load(Ordering::Relaxed),
            refused: job.page.refused.load(Ordering::Relaxed),
            by_kind: by_kind.collect(),
            processes: job.holders.len(),
            leaving: job.holders.iter().filter(|h| h.is_leaving).count(),
        })
    }
}

impl JobLedger {
    /// Whether anything is left of the job; if not, it is remembered for its peak.
    fn is_there(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Its first process comes, for the first time or again: nothing of an earlier job of that id counts.
    fn begin(&self, quota_bytes: u64, context_bytes: u64) {
        let page = &self.page;
        page.quota_bytes.store(quota_bytes, Ordering::Relaxed);
        page.context_bytes.store(context_bytes, Ordering::Relaxed);
        page.peak_bytes.store(0, Ordering::Relaxed);
        page.refused.store(0, Ordering::Relaxed);
    }

    /// See [`Ledgers::take_back`].
    fn take_back(&mut self, is_over: impl Fn(&Holder) -> bool) -> usize {
        let (page, before) = (&self.page, self.holders.len());
        self.holders.retain(|holder| {
            let is_over = holder.is_leaving && is_over(holder);
            if is_over {
                let bytes = page.reclaim(holder.slot);
                tracing::debug!(pid = holder.pid, bytes, "memory is back");
            }
            !is_over
        });
        before - self.holders.len()
    }
}

impl Holder {
    /// Without a descriptor the end of the connection is all that is known.
    fn has_ended(&self, has_ended: impl Fn(&OwnedFd) -> bool) -> bool {
        self.process.as_deref().is_none_or(has_ended)
    }
}

/// The quota that a process asks for, if it does.
fn read(asked: &str) -> Result<Option<Quota>, LedgerError> {
    if asked.is_empty() {
        return Ok(None);
    }
    let quota = Quota::parse(asked);
    quota
        .map(Some)
        .ok_or_else(|| LedgerError::Quota(asked.to_owned()))
}

#[cfg(test)]
mod tests {
    use protocol::ledger::Account;
    use protocol::segment::Access;

    use super::*;

    const GIB: u64 = 1 << 30;
    const IMAGE: Image = Image {
        started_ticks: 1,
        stack: 0x7000,
    };

    fn reserve(opened: &Opened, bytes: u64) {
        let page = Mapping::<LedgerPage>::open(&*opened.fd, Access::ReadWrite).unwrap();
        let mut account = Account::resume(&*page, usize::from(opened.slot)).unwrap();
        account.try_reserve(Kind::Plain, bytes).unwrap();
    }

    fn is_anybody_over(ledgers: &Ledgers) -> bool {
        ledgers.leaving(|_| true).is_anybody_over
    }

    fn key(class: JobClass, id: &str) -> JobKey {
        JobKey {
            id: id.to_owned(),
            uid: 1000,
            class,
        }
    }

    fn ledgers() -> Ledgers {
        Ledgers::new(MemoryRules::default(), 10 * GIB)
    }

    fn attach(ledgers: &mut Ledgers, key: &JobKey, pid: u32, asked: &str) -> Opened {
        let peer = Peer { pid, uid: key.uid };
        ledgers
            .handle_attach(key, peer, IMAGE, None, asked)
            .unwrap()
    }

    fn quota(ledgers: &Ledgers, key: &JobKey) -> Option<u64> {
        ledgers.status_of(key).unwrap().quota_bytes
    }

    #[test]
    fn a_best_effort_job_has_forty_percent_unless_it_asks() {
        let mut ledgers = ledgers();
        for (class, asked, bytes) in [
            (JobClass::BestEffort, "", Some(4 * GIB)),
            (JobClass::BestEffort, "5GiB", Some(5 * GIB)),
            (JobClass::BestEffort, "unlimited", None),
            (JobClass::HighPriority, "", None),
            (JobClass::HighPriority, "50%", Some(5 * GIB)),
        ] {
            let key = key(class, asked);
            attach(&mut ledgers, &key, 7, asked);
            assert_eq!(quota(&ledgers, &key), bytes, "{class:?} {asked}");
        }
    }

    #[test]
    fn a_quota_that_cannot_be_kept_is_refused_with_the_reason() {
        let peer = Peer { pid: 7, uid: 1000 };
        let key = key(JobClass::BestEffort, "a");
        let error = ledgers().handle_attach(&key, peer, IMAGE, None, "0m");
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("\"0m\"") && error.contains("10GiB"),
            "{error}"
        );
        let mut unknown = Ledgers::new(MemoryRules::default(), 0);
        let error = unknown
            .handle_attach(&key, peer, IMAGE, None, "40%")
            .unwrap_err();
        assert!(error.to_string().contains("does not say"), "{error}");
        attach(&mut unknown, &key, 7, "");
        assert_eq!(quota(&unknown, &key), None);
    }

    #[test]
    fn the_first_process_of_a_job_says_and_set_changes_it() {
        let mut ledgers = ledgers();
        let key = key(JobClass::BestEffort, "a");
        attach(&mut ledgers, &key, 7, "1GiB");
        attach(&mut ledgers, &key, 8, "9GiB");
        assert_eq!(quota(&ledgers, &key), Some(GIB));
        let two = Quota::Bytes(2 * GIB);
        assert_eq!(ledgers.set_quota("b", None, two).unwrap(), 0);
        assert_eq!(ledgers.set_quota("a", Some(0), two).unwrap(), 0);
        assert_eq!(ledgers.set_quota("a", Some(1000), two).unwrap(), 1);
        assert_eq!(quota(&ledgers, &key), Some(2 * GIB));
        ledgers.set_quota("a", None, Quota::Percent(10.0)).unwrap();
        assert_eq!(quota(&ledgers, &key), Some(GIB));
    }

    // census: D19, D20
    #[test]
    fn what_a_process_held_comes_back_when_the_device_shows_it_free() {
        let mut ledgers = ledgers();
        let key = key(JobClass::BestEffort, "a");
        let first = attach(&mut ledgers, &key, 7, "");
        let second = attach(&mut ledgers, &key, 8, "");
        reserve(&first, GIB);
        reserve(&second, GIB);
        let held = |ledgers: &Ledgers| ledgers.status_of(&key).unwrap().held_bytes;
        assert_eq!(held(&ledgers), 2 * GIB);
        ledgers.poll_leaving(|_| true, |_| false);
        assert_eq!(held(&ledgers), 2 * GIB, "nobody has left");
        ledgers.handle_detach(&key, first.slot);
        ledgers.poll_leaving(|_| true, |pid| pid == 7);
        assert!(held(&ledgers) == 2 * GIB && is_anybody_over(&ledgers));
        // Meanwhile the slot is nobody else's.
        assert_ne!(attach(&mut ledgers, &key, 9, "").slot, first.slot);
        ledgers.poll_leaving(|_| true, |_| false);
        assert!(held(&ledgers) == GIB && !is_anybody_over(&ledgers));
        assert_eq!(attach(&mut ledgers, &key, 10, "").slot, first.slot);
        let status = ledgers.status_of(&key).unwrap();
        assert_eq!((status.by_kind["plain"], status.peak_bytes), (GIB, 2 * GIB));
    }

    #[test]
    fn a_process_that_lives_on_without_its_connection_keeps_what_it_holds() {
        let mut ledgers = ledgers();
        let key = key(JobClass::BestEffort, "a");
        let process = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let peer = Peer { pid: 7, uid: 1000 };
        let opened = ledgers
            .handle_attach(&key, peer, IMAGE, Some(process), "")
            .unwrap();
        ledgers.handle_detach(&key, opened.slot);
        ledgers.poll_leaving(|_| false, |_| false);
        // NVML need not be asked as long as it lives: its end is waited for.
        let leaving = ledgers.leaving(|_| false);
        assert_eq!((leaving.is_anybody_over, leaving.living.len()), (false, 1));
        ledgers.poll_leaving(|_| true, |_| false);
        assert_eq!(ledgers.status_of(&key).unwrap().processes, 0);
    }

    #[test]
    fn a_program_that_executes_another_leaves_it_the_whole_quota() {
        let mut ledgers = ledgers();
        let key = key(JobClass::BestEffort, "a");
        let process = || Some(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let peer = Peer { pid: 7, uid: 1000 };
        let attach = |ledgers: &mut Ledgers, image| {
            let opened = ledgers.handle_attach(&key, peer, image, process(), "");
            opened.unwrap()
        };
        let first = attach(&mut ledgers, IMAGE);
        reserve(&first, 3 * GIB);
        ledgers.handle_detach(&key, first.slot);
        // The program itself comes again, as after a lost connection: it has its memory still.
        let again = attach(&mut ledgers, IMAGE);
        assert_eq!(ledgers.status_of(&key).unwrap().held_bytes, 3 * GIB);
        ledgers.handle_detach(&key, again.slot);
        let stack = 0x9000;
        let next = attach(&mut ledgers, Image { stack, ..IMAGE });
        let status = ledgers.status_of(&key).unwrap();
        assert_eq!((status.held_bytes, status.processes), (0, 1));
        assert_eq!(next.slot, first.slot);
    }

    #[test]
    fn who_is_turned_away_after_all_leaves_no_slot_behind() {
        let mut ledgers = ledgers();
        let key = key(JobClass::BestEffort, "a");
        for _ in 0..=LEDGER_SLOTS {
            let opened = attach(&mut ledgers, &key, 7, "");
            ledgers.handle_turned_away(&key, opened.slot);
        }
        assert_eq!(ledgers.status_of(&key).unwrap().processes, 0);
        assert!(!is_anybody_over(&ledgers), "NVML has nothing to say of it");
    }

    #[test]
    fn a_job_that_comes_again_asks_anew() {
        let mut ledgers = ledgers();
        let key = key(JobClass::BestEffort, "a");
        let opened = attach(&mut ledgers, &key, 7, "4GiB");
        reserve(&opened, GIB);
        ledgers.handle_detach(&key, opened.slot);
        ledgers.poll_leaving(|_| true, |_| false);
        let ended = ledgers.status_of(&key).unwrap();
        assert_eq!((ended.peak_bytes, ended.processes), (GIB, 0));
        let eight = Quota::Bytes(8 * GIB);
        assert_eq!(ledgers.set_quota("a", None, eight).unwrap(), 0);
        let told = ledgers.memory_of(&key, "2GiB").unwrap();
        assert_eq!(told.quota_bytes, 2 * GIB);
        attach(&mut ledgers, &key, 8, "8GiB");
        let status = ledgers.status_of(&key).unwrap();
        assert_eq!((status.quota_bytes, status.peak_bytes), (Some(8 * GIB), 0));
    }

    #[test]
    fn a_process_is_told_from_a_later_one_and_from_the_program_that_it_was() {
        let own = Image::of(std::process::id());
        assert!(own.started_ticks > 0 && own == Image::of(std::process::id()));
        assert_eq!(Image::of(u32::MAX), Image::default());
        let executed = Image { stack: 2, ..IMAGE };
        assert!(IMAGE.is_replaced_by(executed) && !IMAGE.is_replaced_by(IMAGE));
        for stack in [0, 1] {
            let unseen = Image { stack, ..IMAGE };
            assert!(!IMAGE.is_replaced_by(unseen) && !unseen.is_replaced_by(IMAGE));
        }
    }
}
