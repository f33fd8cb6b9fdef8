//! Batches that high-priority clients should take, as found by searches
//! ([`crate::core::batch_search`]).
//! A client publishes in its page which batches it can take for which kinds of requests
//! ([`protocol::batches`]); the daemon writes the wanted batch there. So a range outlives the
//! daemon, and a search does not: the next daemon wants nothing at first and restarts it. One
//! search runs at a time, as each changes what the others measure.
//!
//! A request's target is the lesser of the job's ([`super::goals`]) and the program's own for the
//! kind. Where the policy holds the job to a multiple of solo times, or to a share of its rate,
//! nothing is searched: a larger batch makes requests slower, which that law would blame on
//! best-effort work. While a search finds no safe batch, best-effort jobs are paused
//! ([`policy::Gate::handle_pause`]).

use policy::{Mark, Slo};
use protocol::pages::Counter;

use super::{Job, State, Wake};
use crate::config::TunerRules;
use crate::core::batch_search::{Around, BatchSearch, News, Stand, Work};
use crate::core::event::{Draft, Kind};

const LOOK_NS: u64 = 50_000_000;

#[derive(Debug, Default)]
pub(super) struct Tuning {
    /// None: searches are off.
    rules: Option<TunerRules>,
    looked_ns: u64,
    tuned: Vec<Tuned>,
    /// Searches ran at the last poll, so a batch may be wanted, or jobs paused.
    was_on: bool,
    news: Vec<Draft>,
}

#[derive(Debug)]
struct Tuned {
    client: u64,
    place: usize,
    search: BatchSearch,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TunerView {
    pub(crate) pid: u32,
    pub(crate) kind: u32,
    pub(crate) stand: Stand,
    /// The wanted batch; none: the program's choice.
    pub(crate) batch: Option<u32>,
    pub(crate) evaluations: usize,
    pub(crate) rate_per_s: Option<f64>,
    /// Of the last measured batch, from begin to end.
    pub(crate) p99_ns: Option<u64>,
    pub(crate) target_ns: Option<u64>,
}

impl Tuning {
    /// Sets the rules, or turns searches off. Changed rules restart every search.
    pub(super) fn configure(&mut self, rules: Option<TunerRules>) {
        if self.rules != rules {
            self.rules = rules;
            self.tuned.clear();
            self.looked_ns = 0;
        }
    }

    pub(super) fn handle_mark(&mut self, client: u64, mark: &Mark, batch: u32) {
        for tuned in self.tuned.iter_mut().filter(|of| of.client == client) {
            let search = &mut tuned.search;
            match *mark {
                Mark::Begin {
                    id, kind, at_ns, ..
                } if kind == search.range().kind() => search.handle_begin(id, batch, at_ns),
                Mark::End {
                    id,
                    at_ns,
                    is_cancelled,
                } => search.handle_end(id, at_ns, is_cancelled),
                Mark::Begin { .. } | Mark::Target { .. } => {}
            }
        }
    }

    fn reconcile(&mut self, jobs: &[Job]) {
        let clients = || jobs.iter().flat_map(|job| &job.clients);
        let clients = || clients().filter(|client| client.hp_client.is_some());
        self.tuned.retain(|tuned| {
            let client = clients().find(|client| client.id == tuned.client);
            let ranges = client.map(|client| client.page.told.batches.ranges());
            let range = ranges.and_then(|ranges| *ranges.get(tuned.place)?);
            range == Some(tuned.search.range())
        });
        let Some(rules) = self.rules else { return };
        for client in clients() {
            let ranges = client.page.told.batches.ranges().into_iter().enumerate();
            for (place, range) in ranges {
                let Some(range) = range else { continue };
                let is_it = |of: &Tuned| of.client == client.id && of.place == place;
                if !self.tuned.iter().any(is_it) {
                    self.tuned.push(Tuned {
                        client: client.id,
                        place,
                        search: BatchSearch::new(range, rules.settle),
                    });
                }
            }
        }
    }

    fn is_free_for(&self, index: usize) -> bool {
        let mut others = self.tuned.iter().enumerate();
        // No measurement beside jobs that another search has paused.
        let is_in_the_way = |search: &BatchSearch| {
            search.is_under_way() || matches!(search.stand(), Stand::Infeasible(_))
        };
        !others.any(|(other, tuned)| other != index && is_in_the_way(&tuned.search))
    }

    fn pauses(&self) -> bool {
        let mut stands = self.tuned.iter().map(|tuned| tuned.search.stand());
        stands.any(|stand| matches!(stand, Stand::Infeasible(_)))
    }
}

impl State {
    pub(super) fn tune(&mut self, now_ns: u64) {
        let is_due = now_ns.saturating_sub(self.tuning.looked_ns) >= LOOK_NS;
        if !is_due || (self.tuning.rules.is_none() && !self.tuning.was_on) {
            return;
        }
        let mut tuning = std::mem::take(&mut self.tuning);
        tuning.looked_ns = now_ns;
        tuning.was_on = tuning.rules.is_some();
        tuning.reconcile(&self.jobs);
        let best_effort = match tuning.tuned.is_empty() {
            true => Vec::new(),
            false => self.work_of_best_effort(),
        };
        for index in 0..tuning.tuned.len() {
            let is_free = tuning.is_free_for(index);
            let Some(tuned) = tuning.tuned.get_mut(index) else {
                continue;
            };
            let around = Around {
                slo_ns: self.target_ns_of(tuned),
                best_effort: &best_effort,
                is_free,
            };
            if let Some(news) = tuned.search.look(now_ns, &around) {
                let told = self.told_of(tuned, news, around.slo_ns);
                tuning.news.extend(told);
            }
        }
        self.want(&tuning);
        self.gate.handle_pause(tuning.pauses());
        self.tuning = tuning;
    }

    fn want(&mut self, tuning: &Tuning) {
        for (job, known) in self.jobs.iter().enumerate() {
            for (client, known) in known.clients.iter().enumerate() {
                if known.hp_client.is_none() {
                    continue;
                }
                let batches = &known.page.told.batches;
                let mut is_other = false;
                for place in 0..protocol::batches::KINDS {
                    let is_it = |of: &&Tuned| of.client == known.id && of.place == place;
                    let tuned = tuning.tuned.iter().find(is_it);
                    let wanted = tuned.and_then(|tuned| tuned.search.wanted());
                    is_other |= batches.want(place, wanted.unwrap_or(0));
                }
                if is_other {
                    self.wakes.push(Wake::Helper { job, client });
                }
            }
        }
    }

    fn work_of_best_effort(&self) -> Vec<Work> {
        let jobs = self.jobs.iter().filter(|job| !job.clients.is_empty());
        let jobs = jobs.filter_map(|job| Some((job, job.be_job.as_ref()?)));
        let jobs = jobs.filter(|(_, be_job)| !be_job.is_out());
        let work = jobs.map(|(job, be_job)| {
            let past = job.past.of(Counter::Iterations);
            let clients = job.clients.iter();
            let iterations = clients.fold(past, |sum, client| {
                sum.saturating_add(client.totals().of(Counter::Iterations))
            });
            let has_iterations = iterations > 0;
            Work {
                job: be_job.id(),
                has_iterations,
                done: match has_iterations {
                    true => iterations,
                    false => be_job.view().completed_total_ns,
                },
            }
        });
        work.collect()
    }

    fn target_ns_of(&self, tuned: &Tuned) -> Option<u64> {
        let (job, client) = self.client_of(tuned)?;
        let goal = self.pillion().map(|params| job.goal.in_force(params, true));
        let goal_ns = match goal.map(|(goal, _)| goal.slo) {
            None => None,
            Some(Slo::LatencyNs(ns)) => Some(ns),
            Some(_) => return None,
        };
        let marks = client.hp_client.as_ref()?.marks();
        let own_ns = marks.target_ns(tuned.search.range().kind());
        goal_ns.into_iter().chain(own_ns).min()
    }

    fn client_of(&self, tuned: &Tuned) -> Option<(&Job, &super::Client)> {
        self.jobs.iter().find_map(|job| {
            let mut clients = job.clients.iter();
            let client = clients.find(|client| client.id == tuned.client)?;
            Some((job, client))
        })
    }

    fn told_of(&self, tuned: &Tuned, news: News, slo_ns: Option<u64>) -> Option<Draft> {
        let (job, client) = self.client_of(tuned)?;
        let kind = tuned.search.range().kind();
        let whose = format!("for requests of kind {kind} of job {}", job.key.id);
        let after = match tuned.search.evaluations() {
            1 => "after 1 evaluation".to_owned(),
            count => format!("after {count} evaluations"),
        };
        let (event, text) = match news {
            News::Wanted(batch) => (
                Kind::BatchWanted,
                format!("batch size {batch} is tried {whose}, {after}"),
            ),
            News::Kept(batch) => (
                Kind::BatchKept,
                format!("batch size {batch} is kept {whose}, {after}"),
            ),
            News::Infeasible => {
                let ms = slo_ns.unwrap_or(0) as f64 / 1e6;
                let text = format!(
                    "no batch size is known to meet {ms} ms {whose}: best-effort jobs are paused \
                     until the next search"
                );
                (Kind::BatchInfeasible, text)
            }
            News::Ignored(batch) => {
                let text = format!(
                    "batch size {batch} was requested {whose}, but the program uses others, so \
                     Pillion no longer requests one"
                );
                (Kind::BatchIgnored, text)
            }
        };
        Some(
            Draft::new(event, text)
                .of_job(&job.key)
                .pid(client.peer.pid),
        )
    }

    pub(crate) fn take_tuner_news(&mut self) -> Vec<Draft> {
        std::mem::take(&mut self.tuning.news)
    }

    pub(crate) fn tuner_views(&self, now_ns: u64, job: &Job) -> Vec<TunerView> {
        let tuned = self.tuning.tuned.iter();
        let its = tuned.filter_map(|tuned| {
            let mut clients = job.clients.iter();
            Some((clients.find(|client| client.id == tuned.client)?, tuned))
        });
        let views = its.map(|(client, tuned)| TunerView {
            pid: client.peer.pid,
            kind: tuned.search.range().kind(),
            stand: tuned.search.stand(),
            batch: tuned.search.wanted(),
            evaluations: tuned.search.evaluations(),
            rate_per_s: tuned.search.rate_per_s(now_ns),
            p99_ns: tuned.search.last().map(|seen| seen.p99_ns),
            target_ns: self.target_ns_of(tuned),
        });
        views.collect()
    }
}
