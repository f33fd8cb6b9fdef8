//! The memory thread's part for processes that use the GPU outside Pillion: passes NVML's list to
//! [`crate::core::unmanaged`], and its results to status, events and log. If so configured, such a
//! process is ended: asked by SIGTERM, then killed by the thread that ends jobs.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::hello::JobClass;
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use super::{Listed, open};
use crate::config::unmanaged_rules::OnUnmanaged;
use crate::core::event::{Draft, Kind};
use crate::core::job_key::JobKey;
use crate::core::ledgers::Image;
use crate::core::unmanaged::{Change, Eviction, Eyes as _, Known, Named, Sight, Strangers};
use crate::daemon::shared::Shared;
use crate::faults::ending::Evicted;
use crate::host::peer::has_ended;
use crate::host::unattached::real_uid;
use crate::host::unmanaged::{Proc, is_first_namespace};

const WHY: &str = "it uses the GPU without Pillion ([unmanaged] action = \"evict\")";

pub(super) struct UnmanagedWatch {
    shared: Arc<Shared>,
    strangers: Strangers,
    /// That NVML's process ids are not ours was logged.
    is_blind: bool,
}

impl UnmanagedWatch {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            strangers: Strangers::new(is_first_namespace()),
            is_blind: false,
        }
    }

    /// Whether the next poll must ask NVML which processes do graphics and which compute.
    pub(super) fn wants_uses(&self) -> bool {
        let evicts = || self.shared.unmanaged.lock().rules.action == OnUnmanaged::Evict;
        self.strangers.has_unnamed() || (self.strangers.named().next().is_some() && evicts())
    }

    pub(super) fn handle_listed(&mut self, listed: &Listed) {
        let clients = self.shared.state().pids();
        let now_ns = self.shared.clock().now_ns();
        let eyes = Proc {
            graphics: listed.graphics.as_deref(),
            computed: &listed.computed,
        };
        let strangers = &mut self.strangers;
        let change = strangers.handle_listed(now_ns, &listed.processes, &clients, &eyes);
        let is_blind = change.is_none();
        if is_blind && !std::mem::replace(&mut self.is_blind, is_blind) {
            tracing::warn!(
                "NVML lists no client by its process id in this PID namespace; until it does, \
                 processes that use the GPU without Pillion cannot be distinguished from clients \
                 (run the daemon in the host's PID namespace)"
            );
        }
        let Some(change) = change else {
            return self.handle_silence();
        };
        self.tell(change);
        self.publish();
        let rules = self.shared.unmanaged.lock().rules;
        for eviction in self.strangers.poll_evictions(now_ns, &rules) {
            self.evict(&eviction, &eyes);
        }
    }

    pub(super) fn handle_silence(&mut self) {
        self.strangers.handle_silence();
        self.shared.unmanaged.lock().named = None;
    }

    fn publish(&self) {
        let named = self.strangers.named().map(|named| self.with_refusal(named));
        // Looking up a refusal locks the state, which must not happen under the desk's lock.
        let named: Vec<Named> = named.collect();
        self.shared.unmanaged.lock().named = Some(named);
    }

    /// Prefers the daemon's refusal of the process, if any, as the reason.
    fn with_refusal(&self, named: &Named) -> Named {
        let mut named = named.clone();
        let state = self.shared.state();
        if let Some(refusal) = state.refusal_of(named.pid, named.started_ticks) {
            named.known.reason =
                format!("it uses the GPU, asked to attach and was refused: {refusal}");
        }
        named
    }

    fn tell(&self, change: Change) {
        for named in &change.named {
            let Named { pid, known, .. } = self.with_refusal(named);
            let Known {
                name, job, reason, ..
            } = known;
            let text = match (&*name, &*job) {
                ("", _) => format!("process {pid}: {reason}"),
                (name, "") => format!("{name}: {reason}"),
                (name, job) => format!("{name}, job {job:?}: {reason}"),
            };
            let draft = Draft::new(Kind::Unmanaged, text).pid(pid);
            self.shared.tell(match known.uid {
                Some(uid) => draft.of(&job, uid),
                None => draft,
            });
        }
        for Named { pid, known, .. } in change.gone {
            let name = known.name;
            tracing::info!(
                pid,
                name,
                "no longer uses the GPU without Pillion: it has ended, or is a client"
            );
        }
    }

    fn evict(&mut self, eviction: &Eviction, eyes: &Proc<'_>) {
        let Named { pid, known, .. } = &eviction.process;
        let (pid, key) = (*pid, key_of(eviction));
        let done = self
            .hold(eviction, eyes)
            .and_then(|process| match eviction.is_kill {
                false => pidfd_send_signal(&process, Signal::TERM),
                true => {
                    let evicted = Evicted {
                        job: key.clone(),
                        pid,
                        process: Arc::new(process),
                        is_client: false,
                        why: WHY,
                    };
                    let has_room = self.shared.inbox().put_evicted(evicted);
                    self.shared.alarm();
                    has_room.then_some(()).ok_or(Errno::AGAIN)
                }
            });
        let name = &known.name;
        let text = match done {
            // The thread that ends it reports it.
            Ok(()) if eviction.is_kill => return,
            Ok(()) => format!("process {pid} ({name}) is asked to end; {WHY}"),
            // It has ended, or no longer looks like the named process: the next poll decides. No
            // process is killed that was not asked.
            Err(Errno::SRCH) => {
                let now_ns = self.shared.clock().now_ns();
                return self.strangers.handle_put_off(eviction, now_ns);
            }
            Err(error @ (Errno::PERM | Errno::ACCESS)) => {
                self.strangers.handle_out_of_reach(pid);
                format!("process {pid} ({name}) cannot be ended: {error}")
            }
            Err(error) => {
                let now_ns = self.shared.clock().now_ns();
                self.strangers.handle_put_off(eviction, now_ns);
                tracing::warn!(pid, name, "cannot be ended yet: {error}");
                return;
            }
        };
        let draft = Draft::new(Kind::Evicted, text);
        self.shared.tell(draft.of_job(&key).pid(pid));
    }

    /// Opens it if still the named one; checked after, so no later process of that id is signalled.
    fn hold(&self, eviction: &Eviction, eyes: &Proc<'_>) -> Result<OwnedFd, Errno> {
        let Named {
            pid, started_ticks, ..
        } = eviction.process;
        let process = open(pid)?;
        let is_same = Image::of(pid).started_ticks == started_ticks
            && real_uid(pid) == Some(eviction.uid)
            && !has_ended(&process);
        let clients: BTreeSet<u32> = self.shared.state().pids();
        let is_named = match eyes.look_into(pid) {
            Sight::Past(known) | Sight::MayAttach(known) | Sight::Unclear(known) => known.is_sure,
            Sight::Exempt => false,
        };
        match is_same && is_named && !clients.contains(&pid) {
            true => Ok(process),
            false => Err(Errno::SRCH),
        }
    }
}

/// The job that the process names, and its user: they see the events, and evictions count for them.
fn key_of(eviction: &Eviction) -> JobKey {
    JobKey {
        id: eviction.process.known.job.clone(),
        uid: eviction.uid,
        class: JobClass::BestEffort,
    }
}
