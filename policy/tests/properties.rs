//! Invariants of the gate: lease equals law, valid budgets, bounded work, no starvation. A gate
//! lives through *moments*: polls of a daemon, and arbitrary events since the previous poll: jobs
//! come, go, take charges back; HP clients of any age, any requests.

mod world;

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use policy::{
    Ceiling, Class, ClassSet, Gate, HpView, JobId, JobTerms, JobView, Kernel, LaunchGateParams,
    Lease, OrionParams, PillionParams, Policy, Request, Sharing, SmSearchParams, SmThreshold,
    Snapshot, TURN_PATIENCE_NS, TemporalParams, admits,
};

use world::{POLL_NS, World, wanting};

const US: u64 = 1_000;
/// Requests after which the solo latency is known.
const REQUESTS_MIN: u64 = 16;

const IDLE: HpView = HpView {
    latency_ns: Some(6_000 * US),
    ..HpView::IDLE
};

fn temporal() -> Policy {
    Policy::Temporal(TemporalParams::default())
}

fn launch_gate() -> Policy {
    Policy::LaunchGate(LaunchGateParams::default())
}

fn any_pillion() -> impl Strategy<Value = Policy> {
    let solo = prop::option::of(prop_oneof![Just(0), Just(u64::MAX), 1..20_000_000_u64]);
    (any::<[bool; 5]>(), solo).prop_map(|(switches, solo_ns)| {
        Policy::Pillion(PillionParams {
            solo_ns,
            block_priority: switches[0],
            kernel_pairs: switches[1],
            beside: switches[2],
            feedback: switches[3],
            gap_prediction: switches[4],
            ..PillionParams::default()
        })
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let sms = prop_oneof![Just(0), Just(1), 1..200_u32];
    let sm_threshold = prop_oneof![
        1 => Just(SmThreshold::DeviceSms),
        2 => sms.clone().prop_map(SmThreshold::Sms),
        1 => sms.prop_map(|sm_needed_max| {
            let (solo_ns, loss_pct_max) = (1_000_000, 16.0);
            SmThreshold::Searched(SmSearchParams { sm_needed_max, solo_ns, loss_pct_max })
        }),
    ];
    prop_oneof![
        1 => Just(Policy::None),
        3 => Just(temporal()),
        3 => Just(launch_gate()),
        6 => any_pillion(),
        6 => sm_threshold.prop_map(|sm_threshold| {
            Policy::Orion(OrionParams { sm_threshold, ..OrionParams::default() })
        }),
    ]
}

fn any_hp() -> impl Strategy<Value = HpView> {
    let latency = prop::option::of(prop_oneof![Just(0), Just(u64::MAX), 1..20_000_000_u64]);
    let requests = prop_oneof![2 => Just(u64::MAX), 2 => 0..40_u64, 1 => any::<u64>()];
    let present = prop::bool::weighted(0.98);
    (0..8_u32, present, latency, any::<bool>(), requests).prop_map(
        |(bits, present, latency_ns, learning, requests_least)| {
            let executing = ClassSet::from_bits_truncate(bits);
            if !present {
                return HpView::ABSENT;
            }
            HpView {
                busy: bits != 0,
                executing,
                latency_ns,
                learning,
                requests_least,
                ..HpView::IDLE
            }
        },
    )
}

/// A job's progress between two polls.
#[derive(Clone, Debug)]
struct Progress {
    charged_ns: u64,
    completed_ns: u64,
    /// Part of it is a charge taken back.
    refunds: bool,
    waiting: bool,
    terms: JobTerms,
    cap: f64,
}

fn any_progress() -> impl Strategy<Value = Progress> {
    let sums = (0..200_000_u64, 0..300_000_u64);
    let cap = prop_oneof![3 => Just(1.0), 2 => 0.01..1.0, 1 => any::<f64>()];
    (sums, any::<[bool; 3]>(), any::<u32>(), cap).prop_map(|(sums, flags, weight, cap)| Progress {
        charged_ns: sums.0,
        completed_ns: sums.1,
        refunds: flags[0],
        waiting: flags[1],
        terms: JobTerms {
            weight,
            is_behind: flags[2],
        },
        cap,
    })
}

#[derive(Clone, Debug)]
struct Moment {
    step_ns: u64,
    hp: HpView,
    /// An ended request of a high-priority client: duration, launches, whether it is a piece.
    request: Option<(u64, u64, u64, bool)>,
    gone: Option<u64>,
    /// By id; only the first `jobs` are attached.
    progress: Vec<Progress>,
    jobs: usize,
}

fn any_moment() -> impl Strategy<Value = Moment> {
    let step = prop_oneof![4 => 0..100_000_u64, 1 => 0..2 * TURN_PATIENCE_NS];
    let took = prop_oneof![2 => 1..10_000_000_u64, 1 => Just(3_000_000), 1 => 1..300_000_u64];
    let launches = prop_oneof![3 => Just(100), 1 => any::<u64>()];
    let request = (0..3_u64, took, launches, prop::bool::weighted(0.1));
    (
        step,
        any_hp(),
        prop::option::weighted(0.8, request),
        prop::option::weighted(0.02, 0..3_u64),
        prop::collection::vec(any_progress(), 4),
        1..=4_usize,
    )
        .prop_map(|(step_ns, hp, request, gone, progress, jobs)| Moment {
            step_ns,
            hp,
            request,
            gone,
            progress,
            jobs,
        })
}

fn job(id: u64) -> JobView {
    JobView {
        id: JobId(id),
        charged_total_ns: 0,
        completed_total_ns: 0,
        drained: true,
        waiting: false,
    }
}

fn busy_hp() -> HpView {
    HpView {
        busy: true,
        executing: ClassSet::EMPTY.with(Class::Compute),
        ..IDLE
    }
}

struct Life {
    gate: Gate,
    sharing: Sharing,
    now_ns: u64,
    hp: HpView,
    /// By id; only the first `jobs` are attached.
    be: Vec<JobView>,
    jobs: usize,
}

impl Life {
    fn new(policy: Policy, sharing: Sharing) -> Self {
        Self {
            gate: Gate::new(policy),
            sharing,
            now_ns: 0,
            hp: HpView::ABSENT,
            be: (1..=4).map(job).collect(),
            jobs: 0,
        }
    }

    fn through(policy: Policy, sharing: Sharing, moments: &[Moment]) -> Self {
        let mut life = Self::new(policy, sharing);
        for moment in moments {
            life.handle(moment);
        }
        life
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            now_ns: self.now_ns,
            sharing: self.sharing,
            sms: 80,
            epoch: 7,
            hp: self.hp,
            be: &self.be[..self.jobs],
        }
    }

    fn handle(&mut self, moment: &Moment) {
        self.now_ns += moment.step_ns;
        (self.hp, self.jobs) = (moment.hp, moment.jobs);
        for (job, progress) in self.be.iter_mut().zip(&moment.progress) {
            let taken_back_ns = if progress.refunds {
                progress.charged_ns / 3
            } else {
                0
            };
            job.charged_total_ns = (job.charged_total_ns + progress.charged_ns - taken_back_ns)
                .max(job.completed_total_ns);
            let completed_ns = progress.completed_ns.min(job.in_flight_ns());
            job.completed_total_ns += completed_ns;
            job.drained = job.in_flight_ns() == 0;
            job.waiting = progress.waiting;
            self.gate.handle_terms(job.id, progress.terms);
            self.gate.handle_cap(job.id, progress.cap);
        }
        if let Some((client, took_ns, launches, is_piece)) = moment.request {
            self.gate.handle_hp_request(took_ns);
            let request = Request {
                began_ns: self.now_ns.saturating_sub(took_ns),
                ended_ns: self.now_ns,
                launches,
                work_ns: if is_piece { took_ns / 2 + 1 } else { 0 },
                unsure_ns: 0,
            };
            self.gate.handle_request(client, &request);
        }
        if let Some(client) = moment.gone {
            self.gate.handle_detach(client);
        }
        let be = self.be.clone();
        let snapshot = Snapshot {
            be: &be[..self.jobs],
            ..self.snapshot()
        };
        self.gate.handle_snapshot(&snapshot);
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let snapshot = self.snapshot();
        let leases = (0..self.jobs).map(|job| self.gate.gate(&snapshot, job));
        let leases: Vec<Lease> = leases.collect();
        let is_ungated = !self.hp.present || *self.gate.policy() == Policy::None;
        if is_ungated {
            for (lease, job) in leases.iter().zip(snapshot.be) {
                let is_capped = self.gate.cap(job.id) < 1.0;
                prop_assert!(is_capped || *lease == Lease::ungated(7));
                prop_assert!(!is_capped || (!lease.ungated && lease.standing));
            }
            return Ok(());
        }
        let expiry_ns = self.now_ns + self.gate.policy().lease_ns().unwrap_or(0);
        let in_flight_ns: u64 = snapshot.be.iter().map(JobView::in_flight_ns).sum();
        let most_ns = self.most_ns(&snapshot)?;
        for lease in &leases {
            prop_assert!(
                !lease.ungated
                    && !lease.standing
                    && lease.epoch == 7
                    && lease.expiry_ns == expiry_ns
            );
            prop_assert_eq!(
                lease.beside_hp && lease.budget_ns > 0,
                self.hp.busy && lease.budget_ns > 0
            );
            prop_assert!(
                lease.budget_ns <= most_ns.saturating_sub(in_flight_ns),
                "{:?}, {} of {}",
                lease,
                in_flight_ns,
                most_ns
            );
        }
        let open = leases.iter().filter(|lease| lease.budget_ns > 0).count();
        prop_assert!(open <= 1, "{:?}", leases);
        Ok(())
    }

    /// The budget's bound on work in flight: the last kernel may pass its end.
    fn most_ns(&self, snapshot: &Snapshot<'_>) -> Result<u64, TestCaseError> {
        let is_drained = snapshot.be.iter().all(|job| job.drained);
        Ok(match self.gate.policy() {
            Policy::None | Policy::Listed(_) => u64::MAX,
            Policy::LaunchGate(_) => u64::from(is_drained && !self.hp.busy),
            Policy::Temporal(_) if self.hp.busy => 0,
            Policy::Orion(_) if self.hp.busy && self.sharing == Sharing::TimeSlice => 0,
            Policy::Orion(params) => params.throttle().dur_threshold_ns(&self.hp) + 1,
            Policy::Temporal(params) => params.dur_threshold_ns(&self.hp) + 1,
            Policy::Pillion(params) => self.most_ns_of_pillion(params)?,
        })
    }

    /// The same under `pillion`, with a check of its bounds.
    fn most_ns_of_pillion(&self, params: &PillionParams) -> Result<u64, TestCaseError> {
        let bounds = self.gate.ceiling().expect("it is pillion");
        let gain = self.gate.gain().expect("it is pillion");
        prop_assert!((0.0625..=16.0).contains(&gain) && (params.feedback || gain == 1.0));
        prop_assert!(bounds.beside_ns <= bounds.idle_ns);
        let goes_beside = params.beside && self.sharing == Sharing::Mps;
        prop_assert!(goes_beside || bounds.beside_ns == 0);
        prop_assert!(!bounds.whole || !params.block_priority);
        let slack_ns = self.gate.slack_ns().expect("it is pillion") as f64;
        prop_assert!(bounds.idle_ns as f64 <= 16.0 * slack_ns, "{:?}", bounds);
        let is_new = params.solo_ns.is_none() && self.hp.requests_least < REQUESTS_MIN;
        if is_new {
            // Whatever is known of others: what they can afford must not harm an unknown client.
            prop_assert!(bounds.idle_ns <= params.residual_ns_unknown, "{:?}", bounds);
            prop_assert!(
                bounds.beside_ns <= params.residual_ns_unknown / 8,
                "{:?}",
                bounds
            );
            prop_assert_eq!(bounds.pairs, params.kernel_pairs);
        }
        Ok(match self.hp.busy {
            true => bounds.beside_ns,
            false => bounds.idle_ns.saturating_mul(2).saturating_add(1),
        })
    }
}

fn any_sharing() -> impl Strategy<Value = Sharing> {
    prop_oneof![3 => Just(Sharing::Mps), 1 => Just(Sharing::TimeSlice)]
}

fn any_sms() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(79), Just(80), Just(u32::MAX), 0..300_u32]
}

fn is_within(narrow: &Lease, wide: &Lease) -> bool {
    let admits_nothing = !narrow.ungated && narrow.budget_ns == 0;
    wide.ungated
        || admits_nothing
        || (!narrow.ungated
            && narrow.classes.is_subset(wide.classes)
            && narrow.sms_max <= wide.sms_max
            && narrow.budget_ns <= wide.budget_ns
            && (narrow.whole || !wide.whole))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_a_lease_admits_is_what_the_law_makes_eligible(
        policy in any_policy(),
        sharing in any_sharing(),
        moments in prop::collection::vec(any_moment(), 1..12),
        sm_needed in any_sms(),
        spent in prop_oneof![Just(0), Just(u64::MAX), 0..400_000_u64],
        expected_ns in prop_oneof![any::<u64>(), 0..1_000_000_u64],
    ) {
        let life = Life::through(policy, sharing, &moments);
        let (gate, snapshot) = (&life.gate, life.snapshot());
        for index in 0..snapshot.be.len() {
            let lease = gate.gate(&snapshot, index);
            let at_the_edge = [-1, 0, 1].map(|d| lease.budget_ns.saturating_add_signed(d));
            for spent_ns in at_the_edge.into_iter().chain([0, spent]) {
                for class in Class::ALL {
                    for sm_needed in [sm_needed, lease.sms_max, lease.sms_max.saturating_add(1)] {
                        let kernel = Kernel { class, sm_needed, expected_ns };
                        prop_assert_eq!(
                            admits(&lease, spent_ns, &kernel),
                            gate.eligible(&snapshot, index, spent_ns, &kernel),
                            "{:?} job {} spent {} {:?}", lease, index, spent_ns, kernel
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_busier_or_quicker_hp_never_widens_a_lease(
        policy in any_policy(),
        sharing in any_sharing(),
        moments in prop::collection::vec(any_moment(), 1..12),
        executing in 1..8_u32,
        more in 0..8_u32,
        latency_ns in 1..20_000_000_u64,
        quicker_by_ns in 0..20_000_000_u64,
    ) {
        let life = Life::through(policy, sharing, &moments);
        let idle = HpView { latency_ns: Some(latency_ns), ..HpView::IDLE };
        let executing = ClassSet::from_bits_truncate(executing);
        let busy = HpView { busy: true, executing, ..idle };
        let busier = HpView { executing: executing.union(ClassSet::from_bits_truncate(more)), ..busy };
        let quicker = HpView { latency_ns: Some(latency_ns.saturating_sub(quicker_by_ns)), ..busier };
        let learning = HpView { learning: true, ..quicker };
        for index in 0..life.jobs {
            let mut wider = Lease::ungated(7);
            for hp in [HpView::ABSENT, idle, busy, busier, quicker, learning] {
                let snapshot = Snapshot { hp, ..life.snapshot() };
                let lease = life.gate.gate(&snapshot, index);
                prop_assert!(is_within(&lease, &wider), "{:?} is wider than {:?}", lease, wider);
                prop_assert_eq!(lease.epoch, 7);
                wider = lease;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// After any events: which jobs are protected, one job at a time, no more than the bound less
    /// what is in flight, and no more beside a new client than is right for it.
    #[test]
    fn budgets_and_bounds_are_valid_after_any_sequence_of_events(
        policy in any_policy(),
        sharing in any_sharing(),
        moments in prop::collection::vec(any_moment(), 1..120),
    ) {
        let mut life = Life::new(policy, sharing);
        for moment in &moments {
            life.handle(moment);
            life.check()?;
        }
    }
}

#[derive(Default)]
struct Met {
    whole: Cell<u64>,
    beside: Cell<u64>,
    passed_the_end: Cell<u64>,
}

fn count(met: &Cell<u64>) {
    met.set(met.get() + 1);
}

/// A step's duration, its completions, whether HP is busy, and the ended request's duration.
type Step = (u64, u64, bool, u64);

/// Jobs that always want to launch, of kernels of these lengths.
fn life(
    gate: &mut Gate,
    sharing: Sharing,
    terms: [JobTerms; 3],
    lengths_ns: &[u64],
    steps: &[Step],
    met: &Met,
) -> Result<(), TestCaseError> {
    let mut be: Vec<JobView> = (1..).zip(lengths_ns).map(|(id, _)| wanting(id)).collect();
    let mut now_ns = 0;
    for &(step_ns, completions, busy, took_ns) in steps {
        now_ns += step_ns;
        for (id, terms) in (1..).zip(terms) {
            gate.handle_terms(JobId(id), terms);
        }
        for (job, length_ns) in be.iter_mut().zip(lengths_ns) {
            let done_ns = completions * length_ns;
            job.completed_total_ns = (job.completed_total_ns + done_ns).min(job.charged_total_ns);
            job.drained = job.in_flight_ns() == 0;
        }
        let request = Request {
            began_ns: now_ns.saturating_sub(took_ns),
            ended_ns: now_ns,
            launches: 1,
            work_ns: 0,
            unsure_ns: 0,
        };
        gate.handle_request(1, &request);
        let before = be.clone();
        let hp = if busy { busy_hp() } else { IDLE };
        let snapshot = Snapshot {
            now_ns,
            sharing,
            sms: 80,
            epoch: 7,
            hp,
            be: &before,
        };
        gate.handle_snapshot(&snapshot);
        let bounds = gate.ceiling().expect("it is pillion");
        prop_assert!(bounds.beside_ns <= bounds.idle_ns);
        for (index, &expected_ns) in lengths_ns.iter().enumerate() {
            let lease = gate.gate(&snapshot, index);
            let kernel = Kernel {
                class: Class::Unknown,
                sm_needed: 1,
                expected_ns,
            };
            let mut spent_ns = 0;
            while admits(&lease, spent_ns, &kernel) {
                spent_ns += expected_ns;
                be[index].charged_total_ns += expected_ns;
                let in_flight_ns = be.iter().map(JobView::in_flight_ns).sum::<u64>();
                let most_ns = match (busy, bounds.whole) {
                    (true, _) => bounds.beside_ns,
                    (false, true) => 2 * bounds.idle_ns,
                    (false, false) => 2 * bounds.idle_ns + expected_ns,
                };
                prop_assert!(in_flight_ns <= most_ns, "{} of {}", in_flight_ns, most_ns);
                count(match (busy, bounds.whole) {
                    (true, _) => &met.beside,
                    (false, true) => &met.whole,
                    (false, false) => &met.passed_the_end,
                });
            }
        }
    }
    Ok(())
}

/// In a third of the runs requests take about their solo time, in a third longer, else any.
fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let took = prop::sample::select(vec![
        6_000_000..7_200_000_u64,
        7_200_000..9_000_000,
        0..20_000_000,
    ]);
    took.prop_flat_map(|took| {
        let step = (0..300_000_u64, 0..4_u64, any::<bool>(), took);
        prop::collection::vec(step, 1..200)
    })
}

/// For any terms of jobs, requests of HP and reports of completions.
#[test]
fn in_flight_is_never_more_than_twice_the_bound_and_what_passes_its_end() {
    let met = Met::default();
    let cases = (
        prop::sample::select(vec![Sharing::Mps, Sharing::TimeSlice]),
        any::<[bool; 4]>(),
        any::<([u32; 3], [bool; 3])>(),
        prop::collection::vec(prop_oneof![1_000..30_000_u64, 1_000..2_000_000_u64], 1..4),
        any_steps(),
    );
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&cases, |(sharing, switches, terms, lengths_ns, steps)| {
        let [block_priority, feedback, beside, gap_prediction] = switches;
        let mut gate = Gate::new(Policy::Pillion(PillionParams {
            solo_ns: Some(6_800 * US),
            block_priority,
            feedback,
            beside,
            gap_prediction,
            ..PillionParams::default()
        }));
        let terms = [0, 1, 2].map(|index| JobTerms {
            weight: terms.0[index],
            is_behind: terms.1[index],
        });
        life(&mut gate, sharing, terms, &lengths_ns, &steps, &met)
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let met = [&met.whole, &met.beside, &met.passed_the_end].map(Cell::get);
    assert!(met.iter().all(|&launches| launches > 0), "{met:?}");
}

/// A known high-priority client, and a later one, whose requests alternate with the first one's.
struct Pair {
    gate: Gate,
    params: PillionParams,
    now_ns: u64,
    /// Requests of each; `None` for the second until it attaches.
    requests: [Option<u64>; 2],
    took_ns: [u64; 2],
    be: JobView,
}

impl Pair {
    fn new(params: PillionParams, took_ns: [u64; 2]) -> Self {
        Self {
            gate: Gate::new(Policy::Pillion(params)),
            params,
            now_ns: 0,
            requests: [Some(0), None],
            took_ns,
            be: job(1),
        }
    }

    /// A poll; best-effort work uses its whole lease, and completes until the next poll.
    fn look(&mut self, after_ns: u64, busy: bool) {
        self.now_ns += after_ns;
        self.be.completed_total_ns = self.be.charged_total_ns;
        self.be.drained = true;
        let requests_least = self.requests.iter().flatten().copied().min();
        let be = [self.be];
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            sharing: Sharing::Mps,
            sms: 80,
            epoch: 7,
            hp: HpView {
                requests_least: requests_least.unwrap_or(0),
                ..if busy { busy_hp() } else { IDLE }
            },
            be: &be,
        };
        self.gate.handle_snapshot(&snapshot);
        if self.be.waiting {
            self.be.charged_total_ns += self.gate.gate(&snapshot, 0).budget_ns;
            self.be.drained = self.be.in_flight_ns() == 0;
        }
    }

    fn request(&mut self, client: usize) {
        let took_ns = self.took_ns[client];
        self.look(1_000 * US, false);
        self.look(50 * US, true);
        let began_ns = self.now_ns;
        self.look(took_ns - 50 * US, true);
        let request = Request {
            began_ns,
            ended_ns: self.now_ns + 50 * US,
            launches: 100,
            work_ns: 0,
            unsure_ns: 0,
        };
        self.gate.handle_request(client as u64, &request);
        self.requests[client] = self.requests[client].map(|count| count + 1);
        self.look(50 * US, false);
    }

    fn bounds(&self) -> Ceiling {
        self.gate.ceiling().expect("it is pillion")
    }

    /// The new client is unknown: no work beside it that its requests, however short, would feel.
    fn check_new(&self) -> Result<(), TestCaseError> {
        let bounds = self.bounds();
        let is_seen = self.requests[1] > Some(0);
        let share_ns = if is_seen {
            self.took_ns[1] / 50
        } else {
            u64::MAX
        };
        let most_ns = self.params.residual_ns_unknown.min(share_ns);
        prop_assert!(bounds.idle_ns <= most_ns, "{:?} of {}", bounds, most_ns);
        prop_assert!(bounds.beside_ns <= most_ns / 8, "{:?}", bounds);
        prop_assert_eq!(bounds.pairs, self.params.kernel_pairs);
        prop_assert_eq!(self.gate.solo_ns(), Some(self.took_ns[0]));
        Ok(())
    }
}

/// An unknown client attaches beside one whose requests can afford several times what its own may.
#[test]
fn a_new_client_is_protected_from_what_a_known_one_can_afford_until_it_is_known_itself() {
    // How often the known client could afford more, and how often the new one was seen beside it.
    let met: [Cell<u64>; 2] = Default::default();
    let took = || 2_100 * US..30_000 * US;
    let cases = (any::<[bool; 3]>(), took(), took(), 0..60_u64, 1..4_u64);
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&cases, |(switches, first_ns, second_ns, beside, each)| {
        let params = PillionParams {
            block_priority: switches[0],
            kernel_pairs: switches[1],
            beside: switches[2],
            ..PillionParams::default()
        };
        let mut pair = Pair::new(params, [first_ns, second_ns]);
        (0..REQUESTS_MIN + 4).for_each(|_| pair.request(0));
        prop_assert_eq!(pair.gate.solo_ns(), Some(first_ns));
        // Best-effort work comes, and requests stay within their target: the bounds widen.
        pair.be.waiting = true;
        (0..beside).for_each(|_| pair.request(0));
        let known = pair.bounds();
        if known.idle_ns > params.residual_ns_unknown {
            count(&met[0]);
        }
        pair.requests[1] = Some(0);
        pair.look(50 * US, false);
        while pair.requests[1] < Some(REQUESTS_MIN) {
            pair.check_new()?;
            count(&met[1]);
            (0..each).for_each(|_| pair.request(0));
            pair.check_new()?;
            pair.request(1);
        }
        let least_ns = first_ns.min(second_ns);
        prop_assert_eq!(pair.gate.solo_ns(), Some(least_ns));
        let slack_ns = params.goal(false).slo.target_ns(least_ns) - least_ns;
        prop_assert!(
            pair.bounds().idle_ns <= 16 * slack_ns,
            "{:?}",
            pair.bounds()
        );
        // It detaches, and the first one has what it had.
        pair.gate.handle_detach(1);
        pair.requests[1] = None;
        pair.look(50 * US, false);
        prop_assert_eq!(pair.gate.solo_ns(), Some(first_ns));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    assert!(met.iter().all(|met| met.get() > 100), "{met:?}");
}

/// The charges of one turn, and the work in flight before the last kernel, ns.
fn bounds_ns(policy: &Policy, hp: &HpView, is_behind: bool) -> (u64, u64) {
    match policy {
        Policy::Orion(params) => {
            let bound_ns = params.throttle().dur_threshold_ns(hp);
            (bound_ns, bound_ns)
        }
        Policy::Temporal(params) => (params.dur_threshold_ns(hp), params.dur_threshold_ns(hp)),
        // At 6.8 ms; four slacks for a job that is behind; twice that with predictions.
        Policy::Pillion(_) => {
            let bound_ns = if is_behind { 4 * 340 * US } else { 340 * US };
            (bound_ns, 2 * bound_ns)
        }
        Policy::None | Policy::LaunchGate(_) | Policy::Listed(_) => (0, 0),
    }
}

fn any_gated() -> impl Strategy<Value = Policy> {
    let known = PillionParams {
        solo_ns: Some(6_800 * US),
        gap_prediction: false,
        ..PillionParams::default()
    };
    let policies = [
        Policy::Pillion(known),
        Policy::Orion(OrionParams::default()),
        temporal(),
        launch_gate(),
    ];
    prop::sample::select(policies.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// HP is busy for some of every ten polls. Between two turns of a job each other has at most
    /// two (one if behind), of a quantum by its weight and one kernel each.
    #[test]
    fn work_in_flight_is_bounded_and_no_job_that_wants_to_launch_starves(
        policy in any_gated(),
        kernels in prop::collection::vec((10_000..2_000_000_u64, 1..5_u32, any::<bool>()), 1..6),
        busy in 0..8_u64,
    ) {
        let kernels_ns: Vec<u64> = kernels.iter().map(|kernel| kernel.0).collect();
        let mut world = World::new(policy, &kernels_ns);
        let is_behind = kernels.iter().any(|kernel| kernel.2);
        let (turn_ns, most_ns) = bounds_ns(&policy, &IDLE, is_behind);
        let turn_ns = 5 * turn_ns + 2 * world.longest_ns() + TURN_PATIENCE_NS + 4 * POLL_NS;
        let window_ns = 2 * kernels_ns.len() as u64 * turn_ns * 10 / (10 - busy) * 2;
        let polls = window_ns / POLL_NS;
        for poll in 0..3 * polls {
            for (id, &(_, weight, is_behind)) in (1..).zip(&kernels) {
                world.gate.handle_terms(JobId(id), JobTerms { weight, is_behind });
            }
            let is_busy = poll % 10 < busy;
            world.poll(if is_busy { busy_hp() } else { IDLE });
            let in_flight_ns = world.in_flight_ns();
            prop_assert!(in_flight_ns <= most_ns + world.longest_ns(), "{} in flight", in_flight_ns);
            if poll % polls == polls - 1 {
                prop_assert!(world.launches.iter().all(|&count| count > 0), "{:?} in {} polls", world.launches, polls);
                world.launches.fill(0);
            }
        }
    }
}
