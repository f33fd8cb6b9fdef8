//! Departing clients, and returning pages.

use protocol::pages::ClientPage;
use protocol::segment::Mapping;
use protocol::sync::Ordering;

use super::marks::count_rest;
use super::promises::JobCap;
use super::{ENDED_MAX, LEFT_MAX, Refused, Requests, State, Totals};
use crate::core::fairness::place_to_give_up;
use crate::core::job_key::JobKey;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) key: JobKey,
    pub(crate) pid: u32,
}

#[derive(Debug)]
pub(crate) struct EndedJob {
    pub(crate) key: JobKey,
    pub(crate) totals: Totals,
    pub(crate) ended_ns: u64,
    pub(crate) requests: Requests,
    pub(super) cap: JobCap,
}

impl State {
    /// A client's process or connection has ended: its work in flight no longer counts, its totals
    /// stay with its job. The caller rings the daemon's bell.
    pub(crate) fn handle_detach(&mut self, now_ns: u64, client: u64) -> Option<Gone> {
        let (gone, page) = self.remove(now_ns, client)?;
        // The process may live on without its connection: it must learn that no daemon serves it.
        // Release pairs with the Acquire at its gate, whose waits check this every few milliseconds
        // (every 100 ms in a hold for a fault).
        page.detached.store(1, Ordering::Release);
        Some(gone)
    }

    fn remove(&mut self, now_ns: u64, client: u64) -> Option<(Gone, Mapping<ClientPage>)> {
        self.wakes.clear(); // They name jobs and clients by place.
        for index in 0..self.jobs.len() {
            let job = &mut self.jobs[index];
            let Some(place) = job.clients.iter().position(|c| c.id == client) else {
                continue;
            };
            let mut client = job.clients.remove(place);
            if let Some(hp_client) = &mut client.hp_client {
                hp_client.drain(&client.page, now_ns, self.unknown_ns);
            }
            count_rest(&mut job.requests, &self.gate, &mut client, now_ns);
            if let Some(trace) = &mut self.trace {
                trace.handle_detach(job, &mut client, now_ns);
            }
            job.cap.forget_rules();
            self.gate.handle_detach(client.id);
            job.requests.handle_detach(client.id);
            let totals = client.totals().of_ended();
            job.past.add(&totals);
            let gpu_time_ns = totals.gpu_time_ns(job.key.class);
            self.users.handle_gone(job.key.uid, gpu_time_ns);
            self.left
                .push_back((client.file, client.page_totals().of_ended()));
            if self.left.len() > LEFT_MAX {
                self.left.pop_front();
            }
            let gone = Gone {
                key: job.key.clone(),
                pid: client.peer.pid,
            };
            let sticky = client.take_sticky(&job.key);
            if job.clients.is_empty() {
                let mut job = self.jobs.remove(index);
                job.requests.settle(now_ns);
                let id = job.be_job.as_ref().map(super::BeJob::id);
                let debt = id.and_then(|id| self.gate.handle_job_gone(id));
                self.ended.push_back(EndedJob {
                    cap: job.cap.of_ended(debt),
                    key: job.key,
                    totals: job.past,
                    ended_ns: now_ns,
                    requests: job.requests,
                });
                if self.ended.len() > ENDED_MAX {
                    let place = place_to_give_up(self.ended.iter().map(|job| job.key.uid));
                    self.ended.remove(place.unwrap_or(0));
                }
            }
            self.keep_sticky(sticky);
            self.note_words(&gone);
            return Some((gone, client.page));
        }
        None
    }

    /// A process of job `key` wants to attach with the page of that file. Returns the job's place
    /// if present, and the already counted part of the page's totals. If the page returns from a
    /// process that lost its connection or gave up an attempt, the earlier client ends and the page
    /// continues. Without room the counted part is kept for another attempt.
    pub(super) fn take_comer(
        &mut self,
        now_ns: u64,
        key: &JobKey,
        file: (u64, u64),
    ) -> Result<(Option<usize>, Totals), Refused> {
        let mut clients = self.jobs.iter().flat_map(|job| &job.clients);
        let before = clients.find(|client| client.file == file);
        if let Some(before) = before.map(|client| client.id) {
            self.remove(now_ns, before);
        }
        let job = self.check_comer(key)?;
        let place = self.left.iter().position(|(known, _)| *known == file);
        let left = place.and_then(|place| self.left.remove(place));
        let counted = left.map_or_else(Totals::default, |(_, counted)| counted);
        Ok((job, counted))
    }
}
