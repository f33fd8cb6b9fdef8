//! Memory accounting: the quota and the holdings of each job, process by process.
//! The sums are in shared pages ([`protocol::ledger`]), which the jobs' processes change by
//! themselves. This file decides which process has which slot of which page, which quota a job has,
//! and when a dead process's holdings are released. No IO: events arrive through `handle_`
//! functions, NVML's answers as arguments.
//! - **Quota.** A job gets what its first process asks for, else the operator's default for its
//!   class, but never more than the operator's rules allow the process's owner
//!   ([`crate::config::memory_rules`]). A job without processes asks again when it returns. Later
//!   processes of a running job get its quota; one whose owner is allowed less lowers it for all.
//! - **A dead process's holdings** are released when its end is known *and* the device shows the
//!   memory as free, that is, NVML no longer lists the process ([`Ledgers::poll_leaving`]).
//!   Earlier, another process could be granted memory that the device does not have yet. Where NVML
//!   does not answer, the end of the process suffices.
//! - **Daemon restart.** Clients keep their holdings and bring their job's page to the next daemon
//!   ([`Brought`]), which continues with it, including its quota. If another process of the job
//!   came first, the job has a new page, and each client books its holdings there.
//! - **execve(2)** keeps the process id, and the device frees the memory before the new program
//!   starts. When that program attaches, the first one's holdings are released ([`Image`]).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::compute::CapChange;
use protocol::hello::{JobClass, MemoryIs};
use protocol::ledger::{Kind, LEDGER_SLOTS, LedgerPage, UNLIMITED};
use protocol::pages::PAGE_MAGIC;
use protocol::promise::Promise;
use protocol::quota::{self, Quota};
use protocol::segment::Mapping;
use protocol::slo::SloChange;
use protocol::sync::Ordering;
use serde::Serialize;

pub(crate) use brought::{Brought, Found};

use crate::config::limits::CLIENTS_MAX;
use crate::config::memory_rules::{self, Owner};
use crate::config::{Context, MemoryRules, OnExcess};
use crate::core::fairness::place_to_give_up;
use crate::core::job_key::{JobKey, Peer};
use crate::core::state::ENDED_MAX;
use crate::core::unaccounted_memory::Process;
use crate::core::unaccounted_memory::{Balance, Eviction, Excess, Excesses, Holding, Look};

/// Counted processes of one user: twice the client limit, because one that leaves counts until the
/// device shows its memory free, and one that loses its connection until it ends.
pub(crate) const HOLDERS_PER_USER_MAX: usize = 2 * CLIENTS_MAX;
/// Counted processes of all users; high-priority ones are served beyond it. Two descriptors each.
pub(crate) const HOLDERS_MAX: usize = 4 * CLIENTS_MAX;

mod brought;

#[derive(Debug)]
pub(crate) struct Ledgers {
    rules: MemoryRules,
    /// The GPU's memory, bytes; 0 if its driver does not report it.
    device_bytes: u64,
    jobs: Vec<JobLedger>,
    excesses: Excesses,
}

#[derive(Debug)]
struct JobLedger {
    key: JobKey,
    page: Mapping<LedgerPage>,
    fd: Arc<OwnedFd>,
    holders: Vec<Holder>,
    most_bytes: Option<u64>,
    /// The quota set by root, above a rule or not.
    roots_bytes: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) news: Vec<(JobKey, Excess)>,
    pub(crate) evictions: Vec<(JobKey, Eviction)>,
}

#[derive(Debug)]
struct Holder {
    slot: usize,
    pid: u32,
    image: Image,
    /// None if the process is invisible from here, or no descriptor was requested.
    process: Option<Arc<OwnedFd>>,
    /// No longer a client; its slot is freed when its memory is seen to be free.
    is_leaving: bool,
    /// Its end was known before the NVML query whose answer is next.
    is_over: bool,
}

/// Distinguishes a process from a later one with its id, and from the program before execve(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Start time in clock ticks since boot; 0 if invisible. Unchanged by execve(2).
    pub(crate) started_ticks: u64,
    /// Start of the stack, randomised for each program. 0 if invisible; 1 without permission.
    pub(crate) stack: u64,
}

impl Image {
    /// For simulated processes.
    #[cfg(test)]
    pub(crate) fn begun(started_ticks: u64) -> Self {
        Self {
            started_ticks,
            stack: 0,
        }
    }

    /// Whether `next`, of the same id, replaced this image by execve(2). False if unknown.
    fn is_replaced_by(self, next: Self) -> bool {
        let are_seen = self.started_ticks > 0 && self.stack > 1 && next.stack > 1;
        are_seen && self.started_ticks == next.started_ticks && self.stack != next.stack
    }
}

#[cfg(test)]
pub(crate) type Slots = Vec<(usize, u32)>;

#[derive(Debug)]
pub(crate) struct Comer<'a> {
    pub(crate) peer: Peer,
    pub(crate) image: Image,
    pub(crate) process: Option<OwnedFd>,
    pub(crate) owner: &'a Owner,
    pub(crate) asked: &'a str,
    pub(crate) brought: Option<Brought>,
}

#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) is_anybody_over: bool,
    /// Processes that live on without a connection: the caller must notice their end.
    pub(crate) living: Vec<Arc<OwnedFd>>,
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) slot: u16,
    /// The process keeps the slot that it brought, with its holdings.
    pub(crate) is_kept: bool,
}

/// Why a process gets no account. An unenforceable quota is refused, not dropped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    #[error("memory quota {0:?} is invalid; expected {expected}", expected = quota::EXPECTED)]
    Quota(String),
    #[error(
        "cannot enforce a quota of {0}: the driver does not report how much memory the GPU has"
    )]
    NoTotal(Quota),
    #[error("a rule of the configuration allows the job {0} bytes")]
    Rule(u64),
    #[error(
        "{LEDGER_SLOTS} processes of its job, the limit, hold memory of this GPU or held it a \
         moment ago"
    )]
    Slots,
    #[error(
        "{HOLDERS_PER_USER_MAX} processes of its user, the limit, hold memory of this GPU or held \
         it a moment ago"
    )]
    UserSlots,
    #[error(
        "the daemon has no account left: too many processes hold memory of this GPU or held it a \
         moment ago"
    )]
    AllSlots,
    #[error("cannot create shared memory: {0}")]
    Page(#[from] io::Error),
}

/// Memory of a job, for people and programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStatus {
    /// Quota; none: unlimited.
    pub quota_bytes: Option<u64>,
    /// Held, including reservations of calls that the driver has not answered.
    pub held_bytes: u64,
    /// Peak of the held bytes.
    pub peak_bytes: u64,
    /// Requests refused by the quota.
    pub refused: u64,
    /// Held bytes by purpose.
    pub by_kind: BTreeMap<&'static str, u64>,
    /// Processes whose memory is counted.
    pub processes: usize,
    /// Processes that have ended, and whose memory the device does not show as free yet.
    pub leaving: usize,
    /// Upper bound from the operator's rules, or root's quota where that is higher; none: no bound.
    pub most_bytes: Option<u64>,
    /// Memory of its processes outside their accounts, as NVML reports it.
    pub excess: Vec<Excess>,
}

impl Ledgers {
    pub(crate) fn new(rules: MemoryRules, device_bytes: u64) -> Self {
        Self {
            rules,
            device_bytes,
            jobs: Vec::new(),
            excesses: Excesses::default(),
        }
    }

    pub(crate) fn handle_attach(
        &mut self,
        key: &JobKey,
        comer: Comer<'_>,
    ) -> Result<Opened, LedgerError> {
        let (peer, image, asked) = (comer.peer, comer.image, comer.asked);
        let asked_bytes = self.quota_bytes(key.class, read(asked)?)?;
        let most_bytes = self.most_bytes(comer.owner);
        let quota_bytes = asked_bytes.min(most_bytes.unwrap_or(UNLIMITED));
        if quota_bytes < asked_bytes && !asked.is_empty() {
            let (id, pid) = (&key.id, peer.pid);
            tracing::warn!(
                "job {id:?}, process {pid}: requested a quota of {asked}; a rule allows \
                 {quota_bytes} bytes"
            );
        }
        self.take_back(|holder| holder.pid == peer.pid && holder.image.is_replaced_by(image));
        let is_there = |job: &JobLedger| job.key == *key && job.is_there();
        let room = match self.room(key) {
            Err(full) if !self.jobs.iter().any(is_there) => return Err(full),
            room => room,
        };
        let context_bytes = self.context_bytes(key.uid);
        let is_others = |brought: &Brought| {
            let mut others = self.jobs.iter().filter(|job| job.key != *key);
            others.any(|other| other.is_there() && brought.is(&other.fd))
        };
        let brought = comer.brought.filter(|brought| !is_others(brought));
        let job = match self.jobs.iter().position(|job| job.key == *key) {
            Some(index) => &mut self.jobs[index],
            None => self.add(key)?,
        };
        let places = room.as_ref().copied().unwrap_or(0);
        let brought = brought.and_then(|brought| job.accept(brought, places));
        if job.holders.is_empty() {
            job.begin(quota_bytes, context_bytes);
        }
        job.keep_rule(most_bytes);
        let is_kept = |holder: &&mut Holder| {
            Some(holder.slot) == brought
                && holder.pid == peer.pid
                && holder.image.started_ticks == image.started_ticks
        };
        if let Some(holder) = job.holders.iter_mut().find(is_kept) {
            (holder.is_leaving, holder.is_over) = (false, false);
            return Ok(Opened {
                fd: Arc::clone(&job.fd),
                slot: holder.slot as u16,
                is_kept: true,
            });
        }
        // A process that keeps its slot has a place; another process needs a new one.
        room?;
        if !asked.is_empty() && job.page.quota().unwrap_or(UNLIMITED) != quota_bytes {
            let (id, pid) = (&key.id, peer.pid);
            tracing::warn!(
                "job {id:?} keeps its quota; process {pid} requested {asked}, which is ignored"
            );
        }
        job.open_slot(peer, image, comer.process)
    }

    fn room(&self, key: &JobKey) -> Result<usize, LedgerError> {
        let of_user = self.jobs.iter().filter(|job| job.key.uid == key.uid);
        let of_user: usize = of_user.map(|job| job.holders.len()).sum();
        let all: usize = self.jobs.iter().map(|job| job.holders.len()).sum();
        let room = HOLDERS_PER_USER_MAX.saturating_sub(of_user);
        match (key.class, HOLDERS_MAX.saturating_sub(all)) {
            _ if room == 0 => Err(LedgerError::UserSlots),
            (JobClass::BestEffort, 0) => Err(LedgerError::AllSlots),
            (JobClass::BestEffort, of_all) => Ok(room.min(of_all)),
            (JobClass::HighPriority, _) => Ok(room),
        }
    }

    fn quota_bytes(&self, class: JobClass, asked: Option<Quota>) -> Result<u64, LedgerError> {
        let default = match class {
            JobClass::HighPriority => self.rules.high_priority,
            JobClass::BestEffort => self.rules.best_effort,
        };
        let quota = asked.unwrap_or(default);
        match quota {
            // Refuse only explicit requests: without a total there is no default percentage.
            Quota::Percent(_) if self.device_bytes == 0 && asked.is_some() => {
                Err(LedgerError::NoTotal(quota))
            }
            Quota::Percent(_) if self.device_bytes == 0 => Ok(UNLIMITED),
            _ => Ok(quota.bytes_of(self.device_bytes).unwrap_or(UNLIMITED)),
        }
    }

    fn most_bytes(&self, owner: &Owner) -> Option<u64> {
        memory_rules::most_bytes(&self.rules.rules, owner, self.device_bytes)
    }

    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.rules.is_empty()
    }

    fn context_bytes(&self, uid: u32) -> u64 {
        match self.rules.context {
            Context::Bytes(bytes) => bytes,
            Context::Measured => self.excesses.context_bytes(uid),
        }
    }

    fn add(&mut self, key: &JobKey) -> io::Result<&mut JobLedger> {
        let (fd, page) = Mapping::<LedgerPage>::create("pillion-ledger")?;
        page.magic.store(PAGE_MAGIC, Ordering::Release);
        // Keep jobs without processes as ended jobs, for their peak.
        let left = self.jobs.iter().enumerate();
        let left: Vec<usize> = left
            .filter(|(_, job)| job.holders.is_empty())
            .map(|(place, _)| place)
            .collect();
        let uids = left.iter().map(|place| self.jobs[*place].key.uid);
        if self.jobs.len() >= ENDED_MAX
            && let Some(given_up) = place_to_give_up(uids)
        {
            self.jobs.remove(left[given_up]);
        }
        self.jobs.push(JobLedger {
            key: key.clone(),
            page,
            fd: Arc::new(fd),
            holders: Vec::new(),
            most_bytes: None,
            roots_bytes: None,
        });
        let last = self.jobs.len() - 1;
        Ok(&mut self.jobs[last])
    }

    pub(crate) fn handle_detach(&mut self, key: &JobKey, slot: u16) {
        let job = self.jobs.iter_mut().find(|job| job.key == *key);
        let holders = job.into_iter().flat_map(|job| &mut job.holders);
        for holder in holders.filter(|holder| holder.slot == usize::from(slot)) {
            holder.is_leaving = true;
        }
    }

    /// The process of this slot was refused after all. It never had the page, so it holds nothing.
    pub(crate) fn handle_turned_away(&mut self, key: &JobKey, slot: u16) {
        self.handle_detach(key, slot);
        if let Some(job) = self.jobs.iter_mut().find(|job| job.key == *key) {
            job.take_back(|holder| holder.slot == usize::from(slot));
        }
    }

    /// Departed processes whose memory is not known to be free; a later NVML query may show it.
    pub(crate) fn leaving(&mut self, has_ended: impl Fn(&OwnedFd) -> bool) -> Leaving {
        let holders = self.jobs.iter_mut().flat_map(|job| &mut job.holders);
        let mut leaving: Vec<&mut Holder> = holders.filter(|holder| holder.is_leaving).collect();
        for holder in &mut leaving {
            holder.is_over = holder.has_ended(&has_ended);
        }
        let (over, living): (Vec<&mut Holder>, Vec<&mut Holder>) =
            leaving.into_iter().partition(|holder| holder.is_over);
        let living = living.into_iter();
        Leaving {
            is_anybody_over: !over.is_empty(),
            living: living.filter_map(|holder| holder.process.clone()).collect(),
        }
    }

    /// Releases what processes held that had ended at the last [`Self::leaving`] and that NVML,
    /// queried since (an older list lacks newer ones), does not list. Returns their number.
    pub(crate) fn poll_leaving(&mut self, is_listed: impl Fn(u32) -> bool) -> usize {
        self.take_back(|holder| holder.is_over && !is_listed(holder.pid))
    }

    pub(crate) fn process_of(&self, key: &JobKey, pid: u32) -> Option<Arc<OwnedFd>> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        let holder = job.seen().find(|holder| holder.pid == pid)?;
        holder.process.clone()
    }

    fn take_back(&mut self, is_over: impl Fn(&Holder) -> bool) -> usize {
        let jobs = self.jobs.iter_mut();
        jobs.map(|job| job.take_back(&is_over)).sum()
    }

    /// Sets the quota of the jobs of that id, of all users if `uid` is none. Returns their number.
    pub(crate) fn set_quota(
        &mut self,
        id: &str,
        uid: Option<u32>,
        asked: Quota,
    ) -> Result<usize, LedgerError> {
        let meant = self.quota_jobs(id, uid, asked)?;
        let quota_bytes = self.quota_bytes(JobClass::BestEffort, Some(asked))?;
        let jobs = self.jobs.iter_mut();
        for job in jobs.filter(|job| meant.contains(&job.key)) {
            if uid.is_none() {
                job.roots_bytes = Some(quota_bytes);
            }
            job.page.quota_bytes.store(quota_bytes, Ordering::Relaxed);
        }
        Ok(meant.len())
    }

    /// The jobs whose quota [`Self::set_quota`] would change, without changing it.
    pub(crate) fn quota_jobs(
        &self,
        id: &str,
        uid: Option<u32>,
        asked: Quota,
    ) -> Result<Vec<JobKey>, LedgerError> {
        let quota_bytes = self.quota_bytes(JobClass::BestEffort, Some(asked))?;
        let is_meant =
            |job: &&JobLedger| job.key.id == id && uid.is_none_or(|uid| uid == job.key.uid);
        let jobs = self.jobs.iter().filter(|job| job.is_there());
        let jobs: Vec<&JobLedger> = jobs.filter(is_meant).collect();
        // The operator, root, is not bound by the operator's rules.
        let most = jobs.iter().filter_map(|job| job.bound_bytes()).min();
        if let Some(most) = most.filter(|&most| uid.is_some() && quota_bytes > most) {
            return Err(LedgerError::Rule(most));
        }
        Ok(jobs.into_iter().map(|job| job.key.clone()).collect())
    }

    pub(crate) fn best_effort_jobs(&self) -> Vec<(JobKey, bool)> {
        let jobs = self.jobs.iter();
        let jobs = jobs.filter(|job| job.key.class == JobClass::BestEffort);
        jobs.map(|job| (job.key.clone(), job.is_there())).collect()
    }

    /// Stores a changed request target, which the job's processes bring to the next daemon.
    pub(crate) fn keep_slo(&self, key: &JobKey, change: SloChange) {
        if let Some(job) = self.jobs.iter().find(|job| job.key == *key) {
            job.page.slo.store(change.to_word(), Ordering::Relaxed);
        }
    }

    /// The stored change, if any was made while a process of the job existed.
    pub(crate) fn slo_of(&self, key: &JobKey) -> Option<SloChange> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        SloChange::from_word(job.page.slo.load(Ordering::Relaxed))
    }

    /// As [`Self::keep_slo`], for the cap on GPU time.
    pub(crate) fn keep_cap(&self, key: &JobKey, change: CapChange) {
        if let Some(job) = self.jobs.iter().find(|job| job.key == *key) {
            job.page.compute.store(change.to_word(), Ordering::Relaxed);
        }
    }

    pub(crate) fn cap_of(&self, key: &JobKey) -> Option<CapChange> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        CapChange::from_word(job.page.compute.load(Ordering::Relaxed))
    }

    pub(crate) fn keep_promise(&self, key: &JobKey, promise: Promise) {
        if let Some(job) = self.jobs.iter().find(|job| job.key == *key) {
            let word = promise.to_word();
            job.page.promise.store(word, Ordering::Relaxed);
        }
    }

    /// As [`Self::slo_of`]; the job's processes may have forged it.
    pub(crate) fn promise_of(&self, key: &JobKey) -> Option<Promise> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        Promise::from_word(job.page.promise.load(Ordering::Relaxed))
    }

    pub(crate) fn holdings(&self) -> Vec<Holding> {
        let jobs = self.jobs.iter();
        let holders = jobs.flat_map(|job| job.seen().map(move |holder| (job, holder)));
        holders
            .map(|(job, holder)| {
                let slot = &job.page.slots[holder.slot];
                Holding {
                    job: job.key.clone(),
                    pid: holder.pid,
                    held_bytes: slot.held_bytes(),
                    context_bytes: slot.kind_bytes(Kind::Context),
                }
            })
            .collect()
    }

    pub(crate) fn has_holders(&self) -> bool {
        self.jobs.iter().any(JobLedger::is_there)
    }

    pub(crate) fn on_excess(&self) -> OnExcess {
        self.rules.excess
    }

    /// Compares the accounts with NVML's list, queried after `before` was read. `strays` are
    /// processes without an account, and their jobs.
    pub(crate) fn handle_listed(
        &mut self,
        before: &[Holding],
        listed: &[Process],
        strays: &[(u32, JobKey)],
    ) -> Compared {
        let after = self.holdings();
        self.excesses.handle_look(&Look {
            before,
            after: &after,
            listed,
            strays,
            slack_bytes: self.rules.slack_bytes,
            context_bytes: match self.rules.context {
                Context::Bytes(bytes) => Some(bytes),
                Context::Measured => None,
            },
        });
        let jobs = self.jobs.iter().filter(|job| job.is_there());
        let balances = jobs.map(|job| {
            let context_bytes = self.context_bytes(job.key.uid);
            job.page
                .context_bytes
                .store(context_bytes, Ordering::Relaxed);
            Balance {
                job: job.key.clone(),
                quota_bytes: job.page.quota(),
                held_bytes: job.page.held_bytes(),
            }
        });
        let balances: Vec<Balance> = balances.collect();
        Compared {
            news: self.excesses.poll_news(),
            evictions: match self.rules.excess {
                OnExcess::Evict => self.excesses.poll_evictions(&balances),
                OnExcess::Ignore | OnExcess::Report => Vec::new(),
            },
        }
    }

    pub(crate) fn handle_out_of_reach(&mut self, pid: u32) {
        self.excesses.handle_out_of_reach(pid);
    }

    /// Ending a process was postponed for lack of room or descriptors. Returns whether that is new.
    pub(crate) fn handle_put_off(&mut self, pid: u32, is_kill: bool) -> bool {
        self.excesses.handle_put_off(pid, is_kill)
    }

    pub(crate) fn handle_begun(&mut self, pid: u32) {
        self.excesses.handle_begun(pid);
    }

    /// Quota and holdings of a job; of an unknown one, the quota that it would get.
    pub(crate) fn memory_of(
        &self,
        key: &JobKey,
        owner: &Owner,
        asked: &str,
    ) -> Result<MemoryIs, LedgerError> {
        let mut jobs = self.jobs.iter().filter(|job| job.is_there());
        if let Some(job) = jobs.find(|job| job.key == *key) {
            return Ok(MemoryIs {
                quota_bytes: job.page.quota().unwrap_or(UNLIMITED),
                held_bytes: job.page.held_bytes(),
                pids: job.seen().map(|holder| holder.pid).collect(),
            });
        }
        let asked_bytes = self.quota_bytes(key.class, read(asked)?)?;
        Ok(MemoryIs {
            quota_bytes: asked_bytes.min(self.most_bytes(owner).unwrap_or(UNLIMITED)),
            held_bytes: 0,
            pids: Vec::new(),
        })
    }

    /// A job's page, with slots and ids of its processes, including ended ones.
    #[cfg(test)]
    pub(crate) fn page_of(&self, key: &JobKey) -> Option<(Arc<OwnedFd>, Slots)> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        let slots = job.holders.iter().map(|holder| (holder.slot, holder.pid));
        Some((Arc::clone(&job.fd), slots.collect()))
    }

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
            most_bytes: job.bound_bytes(),
            excess: self.excesses.of_job(key),
        })
    }
}

impl JobLedger {
    /// Whether any process of the job is left; an empty job is kept for its peak.
    fn is_there(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Its processes, except those known only by an id that may have been reused.
    fn seen(&self) -> impl Iterator<Item = &Holder> {
        let is_seen = |holder: &&Holder| holder.process.is_some() || !holder.is_leaving;
        self.holders.iter().filter(is_seen)
    }

    /// The first process attaches, for the first time or again: nothing of an earlier job counts.
    fn begin(&mut self, quota_bytes: u64, context_bytes: u64) {
        (self.most_bytes, self.roots_bytes) = (None, None);
        let page = &self.page;
        page.quota_bytes.store(quota_bytes, Ordering::Relaxed);
        page.context_bytes.store(context_bytes, Ordering::Relaxed);
        page.peak_bytes.store(0, Ordering::Relaxed);
        page.refused.store(0, Ordering::Relaxed);
        page.slo.store(0, Ordering::Relaxed);
        page.compute.store(0, Ordering::Relaxed);
        page.promise.store(0, Ordering::Relaxed);
    }

    /// Continues with the page that a process brings, unless the job has another, or `places` are
    /// fewer than its processes. Returns the process's slot, if it belongs to the job.
    fn accept(&mut self, brought: Brought, places: usize) -> Option<usize> {
        if self.is_there() {
            return brought.is(&self.fd).then_some(brought.slot);
        }
        self.holders = match brought.holders(self.key.uid, places) {
            Ok(holders) => holders,
            Err(unusable) => {
                let id = &self.key.id;
                tracing::warn!(
                    "job {id:?}: cannot take over the memory account of a process, starting a new \
                     one: {unusable}"
                );
                return None;
            }
        };
        (self.most_bytes, self.roots_bytes) = (None, None);
        self.page = brought.page;
        self.fd = Arc::new(brought.fd);
        let (id, bytes) = (&self.key.id, self.page.held_bytes());
        let holders = match self.holders.len() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        };
        tracing::info!("job {id:?}: took over an account of {bytes} bytes of {holders}");
        Some(brought.slot)
    }

    /// Upper bound, whatever the job asks for: by rules, or by root's quota, which overrides them.
    fn bound_bytes(&self) -> Option<u64> {
        let most_bytes = self.most_bytes?;
        let bound_bytes = most_bytes.max(self.roots_bytes.unwrap_or(0));
        Some(bound_bytes).filter(|&bytes| bytes != UNLIMITED)
    }

    /// A process attaches whose owner's rules allow this much. Starting a process in another group
    /// or cgroup must not evade a rule. A quota lowered now may be raised later, up to the rule.
    fn keep_rule(&mut self, most_bytes: Option<u64>) {
        self.most_bytes = self.most_bytes.into_iter().chain(most_bytes).min();
        let bound_bytes = self.bound_bytes().unwrap_or(UNLIMITED);
        if self.page.quota().unwrap_or(UNLIMITED) > bound_bytes {
            self.page.quota_bytes.store(bound_bytes, Ordering::Relaxed);
        }
    }

    fn open_slot(
        &mut self,
        peer: Peer,
        image: Image,
        process: Option<OwnedFd>,
    ) -> Result<Opened, LedgerError> {
        let is_used = |slot: &usize| self.holders.iter().any(|holder| holder.slot == *slot);
        let slot = (0..LEDGER_SLOTS)
            .find(|slot| !is_used(slot))
            .ok_or(LedgerError::Slots)?;
        self.page.open_slot(slot, peer.pid, image.started_ticks);
        self.holders.push(Holder {
            slot,
            pid: peer.pid,
            image,
            process: process.map(Arc::new),
            is_leaving: false,
            is_over: false,
        });
        Ok(Opened {
            fd: Arc::clone(&self.fd),
            slot: slot as u16,
            is_kept: false,
        })
    }

    fn take_back(&mut self, is_over: impl Fn(&Holder) -> bool) -> usize {
        let (page, before) = (&self.page, self.holders.len());
        self.holders.retain(|holder| {
            let is_over = holder.is_leaving && is_over(holder);
            if is_over {
                let bytes = page.reclaim(holder.slot);
                tracing::debug!(pid = holder.pid, bytes, "reclaimed memory");
            }
            !is_over
        });
        before - self.holders.len()
    }
}

impl Holder {
    /// Without a descriptor only the end of the connection is known.
    fn has_ended(&self, has_ended: impl Fn(&OwnedFd) -> bool) -> bool {
        self.process.as_deref().is_none_or(has_ended)
    }
}

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
mod tests;
