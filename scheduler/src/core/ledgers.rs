//! What each job may hold of the GPU's memory and what it does, process by process.
//!
//! The sums are in shared pages ([`protocol::ledger`]), which the jobs' processes change by themselves; here is
//! who has which slot of which page, what quota a job has, and when a dead process's holdings come back. No IO:
//! what happens comes in through `handle_` functions, what NVML says as an argument.
//!
//! **The quota** of a job is what its first process asks for, else what the operator gives its class; but never more than
//! the operator's rules allow the process's owner ([`crate::config::memory_rules`]). A job of which
//! nothing is left asks anew when it comes again; of a job that runs, later processes get the quota that it has, and one
//! whose owner is allowed less takes it down for all.
//!
//! **A dead process's holdings** come back when its end is known *and* the device shows its memory
//! freed: NVML lists it no more ([`Ledgers::poll_leaving`]). Before that another process could be granted what
//! the device does not have yet. Where NVML does not answer, its end has to do.
//!
//! **A daemon's end** is not the end of what its clients hold: they bring their job's page along to the next one
//! ([`Brought`]), which goes on with it, its quota among the rest. A job of which another process came first has another page by
//! then: there each books what it holds.
//!
//! A process that executes another program (execve(2)) keeps its number, and the device frees its memory before the
//! other program begins: when that attaches, what the first one held is back ([`Image`]).

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

/// Processes of one user whose memory is counted: twice the clients that it may have, as who leaves is counted until the
/// device shows its memory free, and who has left its connection until it ends.
pub(crate) const HOLDERS_PER_USER_MAX: usize = 2 * CLIENTS_MAX;
/// Of all users; high-priority jobs are served beyond it. Each costs a descriptor, and one for its job.
pub(crate) const HOLDERS_MAX: usize = 4 * CLIENTS_MAX;

mod brought;

/// What all jobs of a GPU hold.
#[derive(Debug)]
pub(crate) struct Ledgers {
    rules: MemoryRules,
    /// What the GPU has, bytes; 0 if its driver does not say.
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
    /// The most that rules allow it.
    most_bytes: Option<u64>,
    /// What root has said that it may hold, above a rule or not.
    roots_bytes: Option<u64>,
}

/// What came of a comparison with NVML.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Excess that is to be said.
    pub(crate) news: Vec<(JobKey, Excess)>,
    /// Processes that are to end.
    pub(crate) evictions: Vec<(JobKey, Eviction)>,
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
    /// Its end was known before the question was asked whose answer comes next.
    is_over: bool,
}

/// What tells a process from a later one of that number, and from the program that it was before execve(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// When it started, in clock ticks since boot; 0 if it cannot be seen. The same after execve(2).
    pub(crate) started_ticks: u64,
    /// Where its stack begins: another place for each program, by chance. 0 if it cannot be seen; 1 where we may not.
    pub(crate) stack: u64,
}

impl Image {
    /// Of a process that is played.
    #[cfg(test)]
    pub(crate) fn begun(started_ticks: u64) -> Self {
        Self {
            started_ticks,
            stack: 0,
        }
    }

    /// Whether `next`, of the same number, has taken this one's place by execve(2). No if that cannot be told.
    fn is_replaced_by(self, next: Self) -> bool {
        let are_seen = self.started_ticks > 0 && self.stack > 1 && next.stack > 1;
        are_seen && self.started_ticks == next.started_ticks && self.stack != next.stack
    }
}

/// Slots of a page, and the numbers of the processes that have them.
#[cfg(test)]
pub(crate) type Slots = Vec<(usize, u32)>;

/// A process that wants an account.
#[derive(Debug)]
pub(crate) struct Comer<'a> {
    pub(crate) peer: Peer,
    pub(crate) image: Image,
    /// A descriptor of it, where it can be seen from here.
    pub(crate) process: Option<OwnedFd>,
    /// Whose it is.
    pub(crate) owner: &'a Owner,
    /// The quota that it asks for, empty if none.
    pub(crate) asked: &'a str,
    /// What it has from the daemon before.
    pub(crate) brought: Option<Brought>,
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
    /// It is the slot that it brought, with what it holds.
    pub(crate) is_kept: bool,
}

/// Why a process cannot have one. A quota that cannot be enforced is refused, not forgotten.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    #[error("its quota of memory is {0:?}; needed is {expected}", expected = quota::EXPECTED)]
    Quota(String),
    #[error("a quota of {0} cannot be kept: the driver does not say how much memory the GPU has")]
    NoTotal(Quota),
    #[error("a rule of the operator's allows the job {0} bytes")]
    Rule(u64),
    #[error("{LEDGER_SLOTS} processes of its job have memory of this GPU, or had a moment ago")]
    Slots,
    #[error(
        "{HOLDERS_PER_USER_MAX} processes of its user have memory of this GPU, or had a moment ago"
    )]
    UserSlots,
    #[error("as many processes as can be served have memory of this GPU, or had a moment ago")]
    AllSlots,
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
    /// The most that a rule of the operator's allows it, whatever it asks for.
    pub most_bytes: Option<u64>,
    /// What its processes have past their accounts, as NVML shows it.
    pub excess: Vec<Excess>,
}

impl Ledgers {
    /// Of a GPU with so much memory, nobody having any of it.
    pub(crate) fn new(rules: MemoryRules, device_bytes: u64) -> Self {
        Self {
            rules,
            device_bytes,
            jobs: Vec::new(),
            excesses: Excesses::default(),
        }
    }

    /// A process of a job attaches.
    ///
    /// # Errors
    ///
    /// The quota makes no sense or cannot be kept, or there is no slot or memory for it.
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
                "job {id:?}, process {pid}: it asks for {asked}, a rule allows {quota_bytes} bytes"
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
        // Who keeps its slot has its place; a further one needs another.
        room?;
        if !asked.is_empty() && job.page.quota().unwrap_or(UNLIMITED) != quota_bytes {
            let (id, pid) = (&key.id, peer.pid);
            tracing::warn!(
                "job {id:?} keeps the quota that it has; its process {pid} asks for {asked}"
            );
        }
        job.open_slot(peer, image, comer.process)
    }

    /// For how many more processes of such a job there are places, one at least.
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

    /// The most that rules allow a job of this owner.
    fn most_bytes(&self, owner: &Owner) -> Option<u64> {
        memory_rules::most_bytes(&self.rules.rules, owner, self.device_bytes)
    }

    /// Whether it matters whose a process is.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.rules.is_empty()
    }

    /// What a process of that user is charged for its context.
    fn context_bytes(&self, uid: u32) -> u64 {
        match self.rules.context {
            Context::Bytes(bytes) => bytes,
            Context::Measured => self.excesses.context_bytes(uid),
        }
    }

    fn add(&mut self, key: &JobKey) -> io::Result<&mut JobLedger> {
        let (fd, page) = Mapping::<LedgerPage>::create("pillion-ledger")?;
        page.magic.store(PAGE_MAGIC, Ordering::Release);
        // Jobs of which nothing is left are remembered like ended jobs, for their peak.
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

    /// Those who have left and whose memory is not seen freed yet. `has_ended` says it of a process. What NVML is asked after this
    /// may tell that the memory of those is free whose end is known here.
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

    /// Takes back what those held who had ended at the last [`Self::leaving`] and whom NVML, asked since, does not list: an older
    /// list has nobody who has come since. Of how many it is back.
    pub(crate) fn poll_leaving(&mut self, is_listed: impl Fn(u32) -> bool) -> usize {
        self.take_back(|holder| holder.is_over && !is_listed(holder.pid))
    }

    /// The descriptor of a job's process, where it can be seen from here.
    pub(crate) fn process_of(&self, key: &JobKey, pid: u32) -> Option<Arc<OwnedFd>> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        let holder = job.seen().find(|holder| holder.pid == pid)?;
        holder.process.clone()
    }

    /// Takes back what those held who have left and of whom `is_over` is true. How many they are.
    fn take_back(&mut self, is_over: impl Fn(&Holder) -> bool) -> usize {
        let jobs = self.jobs.iter_mut();
        jobs.map(|job| job.take_back(&is_over)).sum()
    }

    /// Another quota for the jobs of that id, and of that user unless `uid` is none. How many there are.
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

    /// The jobs whose quota [`Self::set_quota`] would change; nothing is changed yet.
    ///
    /// # Errors
    ///
    /// It would be refused.
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
        // Rules are the operator's, who is root.
        let most = jobs.iter().filter_map(|job| job.bound_bytes()).min();
        if let Some(most) = most.filter(|&most| uid.is_some() && quota_bytes > most) {
            return Err(LedgerError::Rule(most));
        }
        Ok(jobs.into_iter().map(|job| job.key.clone()).collect())
    }

    /// The best-effort jobs that have a ledger, and whether anything is left of each.
    pub(crate) fn best_effort_jobs(&self) -> Vec<(JobKey, bool)> {
        let jobs = self.jobs.iter();
        let jobs = jobs.filter(|job| job.key.class == JobClass::BestEffort);
        jobs.map(|job| (job.key.clone(), job.is_there())).collect()
    }

    /// What requests of a job may take was changed: its processes bring that to the next daemon.
    pub(crate) fn keep_slo(&self, key: &JobKey, change: SloChange) {
        if let Some(job) = self.jobs.iter().find(|job| job.key == *key) {
            job.page.slo.store(change.to_word(), Ordering::Relaxed);
        }
    }

    /// That change, if there was one while a process of the job was there.
    pub(crate) fn slo_of(&self, key: &JobKey) -> Option<SloChange> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        SloChange::from_word(job.page.slo.load(Ordering::Relaxed))
    }

    /// As [`Self::keep_slo`], of what a job may use of the GPU's time.
    pub(crate) fn keep_cap(&self, key: &JobKey, change: CapChange) {
        if let Some(job) = self.jobs.iter().find(|job| job.key == *key) {
            job.page.compute.store(change.to_word(), Ordering::Relaxed);
        }
    }

    /// As [`Self::slo_of`].
    pub(crate) fn cap_of(&self, key: &JobKey) -> Option<CapChange> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        CapChange::from_word(job.page.compute.load(Ordering::Relaxed))
    }

    /// As [`Self::keep_slo`], of what a job is promised.
    pub(crate) fn keep_promise(&self, key: &JobKey, promise: Promise) {
        if let Some(job) = self.jobs.iter().find(|job| job.key == *key) {
            let word = promise.to_word();
            job.page.promise.store(word, Ordering::Relaxed);
        }
    }

    /// As [`Self::slo_of`]; the job's processes may have written it.
    pub(crate) fn promise_of(&self, key: &JobKey) -> Option<Promise> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        Promise::from_word(job.page.promise.load(Ordering::Relaxed))
    }

    /// What every process that keeps an account has in it.
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

    /// Whether any process keeps an account.
    pub(crate) fn has_holders(&self) -> bool {
        self.jobs.iter().any(JobLedger::is_there)
    }

    /// What is done about memory that is in no account.
    pub(crate) fn on_excess(&self) -> OnExcess {
        self.rules.excess
    }

    /// Compares the accounts with what NVML listed after `before` was seen; `strays` are processes without an account, and
    /// whose they are.
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
            // For its processes to come.
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

    /// A process that was to end could not be signalled.
    pub(crate) fn handle_out_of_reach(&mut self, pid: u32) {
        self.excesses.handle_out_of_reach(pid);
    }

    /// A process that was to be asked to end or killed is not yet, for want of room or descriptors. Whether that is new.
    pub(crate) fn handle_put_off(&mut self, pid: u32, is_kill: bool) -> bool {
        self.excesses.handle_put_off(pid, is_kill)
    }

    /// A process was asked to end, or is being ended.
    pub(crate) fn handle_begun(&mut self, pid: u32) {
        self.excesses.handle_begun(pid);
    }

    /// What a job may hold and holds; of one that is not known yet, what it would be given if it asked so.
    ///
    /// # Errors
    ///
    /// The quota that it asks for makes no sense, or cannot be kept.
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

    /// A job's page, and slot and number of the processes in it, those too that have ended.
    #[cfg(test)]
    pub(crate) fn page_of(&self, key: &JobKey) -> Option<(Arc<OwnedFd>, Slots)> {
        let job = self.jobs.iter().find(|job| job.key == *key)?;
        let slots = job.holders.iter().map(|holder| (holder.slot, holder.pid));
        Some((Arc::clone(&job.fd), slots.collect()))
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
            most_bytes: job.bound_bytes(),
            excess: self.excesses.of_job(key),
        })
    }
}

impl JobLedger {
    /// Whether anything is left of the job; if not, it is remembered for its peak.
    fn is_there(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Its processes, but for those of whom only a number is known that may be another's by now.
    fn seen(&self) -> impl Iterator<Item = &Holder> {
        let is_seen = |holder: &&Holder| holder.process.is_some() || !holder.is_leaving;
        self.holders.iter().filter(is_seen)
    }

    /// Its first process comes, for the first time or again: nothing of an earlier job of that id counts.
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

    /// Goes on with the page that a process brings, unless the job has another, or there are fewer `places` than processes in it; the
    /// slot of that process in the page, if it is the job's.
    fn accept(&mut self, brought: Brought, places: usize) -> Option<usize> {
        if self.is_there() {
            return brought.is(&self.fd).then_some(brought.slot);
        }
        self.holders = match brought.holders(self.key.uid, places) {
            Ok(holders) => holders,
            Err(unusable) => {
                let id = &self.key.id;
                tracing::warn!(
                    "job {id:?} does not go on with the account that a process brings: {unusable}"
                );
                return None;
            }
        };
        (self.most_bytes, self.roots_bytes) = (None, None);
        self.page = brought.page;
        self.fd = Arc::new(brought.fd);
        let (id, processes) = (&self.key.id, self.holders.len());
        let bytes = self.page.held_bytes();
        tracing::info!("job {id:?} goes on with {bytes} bytes of {processes} processes");
        Some(brought.slot)
    }

    /// The most that it may hold, whatever it asks for: by rules, or by root's word, which goes before them.
    fn bound_bytes(&self) -> Option<u64> {
        let most_bytes = self.most_bytes?;
        let bound_bytes = most_bytes.max(self.roots_bytes.unwrap_or(0));
        Some(bound_bytes).filter(|&bytes| bytes != UNLIMITED)
    }

    /// A process comes whose owner rules allow so much. Nobody gets by a rule by letting another begin; a quota that is lower now may be
    /// raised later, up to the rule.
    fn keep_rule(&mut self, most_bytes: Option<u64>) {
        self.most_bytes = self.most_bytes.into_iter().chain(most_bytes).min();
        let bound_bytes = self.bound_bytes().unwrap_or(UNLIMITED);
        if self.page.quota().unwrap_or(UNLIMITED) > bound_bytes {
            self.page.quota_bytes.store(bound_bytes, Ordering::Relaxed);
        }
    }

    /// A free slot for a process.
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
mod tests;
