//! The supervisor in virtual time.

use proptest::prelude::*;

use super::*;

struct Watched {
    supervisor: Supervisor,
    now_ns: u64,
    is_ours: bool,
    orders: Vec<(u64, Order)>,
    restarts: Vec<u64>,
    news: Vec<Kind>,
    faults: Vec<String>,
    held: Option<String>,
}

impl Watched {
    fn new(per_hour: u32) -> Self {
        Self {
            supervisor: Supervisor::new(0, per_hour),
            now_ns: 0,
            is_ours: true,
            orders: Vec::new(),
            restarts: Vec::new(),
            news: Vec::new(),
            faults: Vec::new(),
            held: None,
        }
    }

    fn look(&mut self, found: &Found, trouble: Option<Trouble>) -> Option<Order> {
        let is_ours = self.is_ours;
        let decision = (self.supervisor).handle_look(self.now_ns, found, trouble, is_ours);
        self.news.extend(decision.news.iter().map(Draft::kind));
        self.faults.extend(decision.fault);
        self.held = decision.held;
        let order = decision.order;
        self.orders.extend(order.map(|order| (self.now_ns, order)));
        let restarts = self.supervisor.past().restarts_ns;
        let last_ns = restarts.last().filter(|at_ns| **at_ns == self.now_ns);
        self.restarts.extend(last_ns.filter(|_| order.is_some()));
        self.now_ns += decision.wait_ns;
        order
    }

    /// The daemon is killed and another one takes over, where the state allows it.
    fn replace(&mut self) {
        let past = self.supervisor.past();
        let per_hour = self.supervisor.per_hour;
        self.supervisor = Supervisor::new(self.now_ns, u32::try_from(per_hour).unwrap());
        let told = self.supervisor.take_over(self.now_ns, past);
        self.news.extend(told.iter().map(Draft::kind));
    }

    fn well(&mut self, pid: u32) {
        let servers = Vec::new();
        assert_eq!(self.look(&Found::Answers { pid, servers }, None), None);
    }

    fn until(&mut self, found: &Found, state: &str) {
        for _ in 0..100 {
            if self.look(found, None).is_some() || self.state() == state {
                return;
            }
        }
        panic!("it is {} and not {state}", self.state());
    }

    fn state(&self) -> &'static str {
        self.seen().state
    }

    fn seen(&self) -> Seen {
        self.supervisor.seen(self.now_ns, self.is_ours, &[])
    }
}

const SILENT: Found = Found::Silent {
    pid: 7,
    has_servers: false,
};

fn answers(pid: u32) -> Found {
    let servers = Vec::new();
    Found::Answers { pid, servers }
}

fn broken(is_used: bool) -> Option<Trouble> {
    let text = "MPS's server 9 has failed".to_owned();
    Some(Trouble { text, is_used })
}

#[test]
fn one_that_is_not_there_is_started_at_once_and_one_that_is_there_is_adopted() {
    let mut watched = Watched::new(3);
    assert_eq!(watched.look(&Found::Nothing, None), Some(Order::Start));
    assert_eq!(watched.state(), "starting");
    watched.well(7);
    assert_eq!((watched.state(), watched.seen().pid), ("running", Some(7)));
    assert_eq!(watched.news, [Kind::MpsStarted]);
    assert_eq!(watched.seen().restarts, 0, "the first start is none");

    let mut watched = Watched::new(3);
    watched.well(7);
    watched.well(7);
    assert_eq!(
        (watched.news, watched.orders),
        (vec![Kind::MpsAdopted], vec![])
    );
}

#[test]
fn who_does_not_supervise_starts_nothing_and_begins_where_the_other_ends() {
    let mut watched = Watched::new(3);
    watched.is_ours = false;
    for _ in 0..3 {
        assert_eq!(watched.look(&Found::Nothing, None), None);
    }
    watched.well(7);
    for _ in 0..9 {
        assert_eq!(watched.look(&SILENT, None), None);
        assert_eq!(watched.look(&answers(7), broken(false)), None);
        watched.now_ns += MEND_NS;
    }
    assert_eq!(watched.held, broken(false).map(|trouble| trouble.text));
    assert_eq!(watched.look(&Found::Nothing, None), None);
    assert_eq!((watched.state(), &watched.held), ("absent", &None));
    watched.is_ours = true;
    watched.until(&Found::Nothing, "given-up");
    assert_eq!(watched.orders.len(), 1);
}

#[test]
fn one_that_ends_is_started_anew_after_1_2_and_4_s_and_then_given_up_until_resume() {
    let mut watched = Watched::new(3);
    watched.look(&Found::Nothing, None);
    let mut pid = 7;
    for seconds in [1, 2, 4] {
        watched.well(pid);
        pid += 1;
        let ended_ns = watched.now_ns;
        watched.until(&Found::Nothing, "given-up");
        let (at_ns, order) = *watched.orders.last().unwrap();
        assert_eq!(
            (at_ns - ended_ns, order),
            (seconds * SECOND_NS, Order::Start)
        );
    }
    watched.well(pid);
    assert_eq!(watched.seen().restarts, 3);
    watched.until(&Found::Nothing, "given-up");
    assert_eq!((watched.state(), watched.orders.len()), ("given-up", 4));
    let why = watched.seen().why;
    assert_eq!(why.as_deref(), Some("it has exited"));
    assert_eq!(watched.news.last(), Some(&Kind::MpsGivenUp));
    for _ in 0..10_000 {
        assert_eq!(watched.look(&Found::Nothing, None), None);
    }
    assert_eq!(watched.news.last(), Some(&Kind::MpsGivenUp));
    watched.supervisor.resume(watched.now_ns);
    watched.until(&Found::Nothing, "given-up");
    assert_eq!(watched.orders.len(), 5);
    watched.well(pid + 1);
    assert_eq!(watched.state(), "running");
}

#[test]
fn restarts_count_on_whatever_daemons_are_killed_in_between() {
    let mut watched = Watched::new(3);
    watched.look(&Found::Nothing, None);
    for (pid, seconds) in [(7, 1), (8, 2), (9, 4)] {
        watched.well(pid);
        watched.replace();
        let ended_ns = watched.now_ns;
        watched.well(pid);
        watched.until(&Found::Nothing, "given-up");
        watched.replace();
        assert!(watched.now_ns - ended_ns >= seconds * SECOND_NS);
    }
    let first_ns = watched.restarts[0];
    assert_eq!((watched.restarts.len(), watched.orders.len()), (3, 4));
    watched.until(&Found::Nothing, "given-up");
    watched.replace();
    assert_eq!(watched.state(), "given-up");
    watched.supervisor.resume(watched.now_ns);
    watched.now_ns = first_ns + HOUR_NS;
    let mut watched = Watched {
        news: Vec::new(),
        ..watched
    };
    watched.supervisor = Supervisor::new(watched.now_ns, 3);
    let past = Past {
        restarts_ns: vec![first_ns],
        started_ns: Some(first_ns),
        given_up: None,
    };
    watched.supervisor.take_over(watched.now_ns, past);
    assert_eq!(watched.look(&Found::Nothing, None), Some(Order::Start));
    assert_eq!(watched.seen().restarts, 0, "a first start");
}

#[test]
fn a_first_start_after_that_of_another_daemon_is_a_restart() {
    let mut watched = Watched::new(3);
    assert_eq!(watched.look(&Found::Nothing, None), Some(Order::Start));
    for restarts in 1..=3 {
        watched.replace();
        let before = watched.orders.len();
        while watched.orders.len() == before {
            watched.look(&Found::Nothing, None);
        }
        assert_eq!(watched.seen().restarts, restarts);
    }
    watched.replace();
    watched.until(&Found::Nothing, "given-up");
}

#[test]
fn what_was_given_up_stays_so_for_the_next_daemon_until_it_is_well_or_somebody_says_so() {
    for is_resumed in [true, false] {
        let mut watched = Watched::new(0);
        watched.well(7);
        watched.until(&Found::Nothing, "given-up");
        let why = watched.seen().why;
        watched.now_ns += 24 * HOUR_NS;
        watched.news.clear();
        watched.replace();
        for _ in 0..100 {
            assert_eq!(watched.look(&Found::Nothing, None), None);
        }
        assert_eq!((watched.state(), watched.seen().why), ("given-up", why));
        assert_eq!(watched.news, [Kind::MpsGivenUp], "said once more");
        if is_resumed {
            watched.supervisor.resume(watched.now_ns);
            assert_eq!(watched.supervisor.past(), Past::default());
            continue;
        }
        watched.well(8);
        assert_eq!(watched.state(), "running");
        assert_eq!(watched.supervisor.past(), Past::default());
    }
}

#[test]
fn one_that_a_person_starts_after_it_was_given_up_is_watched_again() {
    let mut watched = Watched::new(0);
    watched.look(&Found::Nothing, None);
    watched.well(7);
    watched.until(&Found::Nothing, "given-up");
    assert_eq!((watched.state(), watched.orders.len()), ("given-up", 1));
    watched.well(8);
    assert_eq!(watched.state(), "running");
    let news = [
        Kind::MpsStarted,
        Kind::MpsGivenUp,
        Kind::MpsAdopted,
        Kind::MpsBack,
    ];
    assert_eq!(watched.news, news);
}

#[test]
fn a_command_that_fails_is_a_restart_less_and_its_reason_is_told() {
    let mut watched = Watched::new(2);
    let mut tried = 0;
    while watched.state() != "given-up" {
        if watched.look(&Found::Nothing, None).is_some() {
            tried += 1;
            let why = "/usr/bin/start cannot be run".to_owned();
            watched.supervisor.handle_failure(watched.now_ns, why);
        }
    }
    assert_eq!(tried, 3);
    let why = watched.seen().why;
    assert_eq!(why.as_deref(), Some("/usr/bin/start cannot be run"));
}

#[test]
fn a_command_that_fails_because_another_was_faster_is_none() {
    let mut watched = Watched::new(2);
    watched.look(&Found::Nothing, None);
    let why = "An instance of this daemon is already running".to_owned();
    watched.supervisor.handle_failure(watched.now_ns, why);
    watched.well(7);
    assert_eq!((watched.state(), watched.seen().why), ("running", None));
    assert_eq!(watched.seen().restarts, 0);
    assert_eq!(watched.news, [Kind::MpsAdopted]);
}

#[test]
fn one_that_hangs_is_reported_once_and_restarted_where_it_has_no_server() {
    for has_servers in [false, true] {
        let mut watched = Watched::new(3);
        watched.well(7);
        let silent = Found::Silent {
            pid: 7,
            has_servers,
        };
        for _ in 1..SILENT_LOOKS {
            watched.look(&silent, None);
            assert_eq!(watched.state(), "running", "the machine is busy");
        }
        watched.look(&silent, None);
        assert_eq!((watched.faults.len(), &watched.held), (1, &None));
        if has_servers {
            for _ in 0..1_000 {
                assert_eq!(watched.look(&silent, None), None);
            }
            assert_eq!((watched.state(), watched.faults.len()), ("fault", 1));
            watched.well(7);
            assert_eq!(watched.news.last(), Some(&Kind::MpsBack));
            continue;
        }
        assert_eq!(
            watched.orders.last().map(|(_, order)| *order),
            Some(Order::Restart)
        );
        watched.well(8);
        assert_eq!(watched.news, [Kind::MpsAdopted, Kind::MpsRestarted]);
        assert_eq!((watched.state(), watched.seen().restarts), ("running", 1));
    }
}

#[test]
fn one_that_hangs_and_whose_restart_fails_is_given_up() {
    let mut watched = Watched::new(3);
    watched.well(7);
    for _ in 0..1_000 {
        watched.look(&SILENT, None);
    }
    assert_eq!((watched.state(), watched.orders.len()), ("given-up", 3));
}

#[test]
fn a_broken_server_holds_best_effort_jobs_and_is_restarted_only_where_nobody_is_left_to_lose() {
    for is_used in [true, false] {
        let mut watched = Watched::new(3);
        watched.well(7);
        let began_ns = watched.now_ns;
        while watched.now_ns < began_ns + MEND_NS {
            assert_eq!(watched.look(&answers(7), broken(is_used)), None);
            assert!(watched.held.is_some());
        }
        let order = watched.look(&answers(7), broken(is_used));
        assert_eq!(order, (!is_used).then_some(Order::Restart));
        assert_eq!(watched.faults.len(), 1, "{:?}", watched.faults);
        watched.look(&answers(8), None);
        assert_eq!((watched.state(), &watched.held), ("running", &None));
        assert!(watched.news.contains(&Kind::MpsBack), "{:?}", watched.news);
    }
}

#[test]
fn a_server_that_is_broken_after_a_restart_has_its_own_time_to_mend() {
    let mut watched = Watched::new(3);
    for restarts in 1..4 {
        while watched.orders.len() < restarts {
            watched.look(&answers(7), broken(false));
        }
    }
    let apart = watched.orders.windows(2).map(|two| two[1].0 - two[0].0);
    assert!(apart.min() >= Some(MEND_NS), "{:?}", watched.orders);
    for _ in 0..1_000 {
        assert_eq!(watched.look(&answers(7), broken(false)), None);
    }
    assert_eq!(watched.state(), "given-up");
}

#[test]
fn a_rule_restarts_one_that_is_used() {
    let mut watched = Watched::new(1);
    watched.well(7);
    watched.supervisor.order_restart();
    assert_eq!(
        watched.look(&answers(7), broken(true)),
        Some(Order::Restart)
    );
    watched.well(8);
    watched.supervisor.order_restart();
    assert_eq!(watched.look(&answers(8), broken(true)), None);
    assert_eq!(watched.state(), "given-up");
}

#[test]
fn a_look_of_which_nothing_is_known_changes_nothing() {
    let mut watched = Watched::new(3);
    watched.look(&answers(7), None);
    watched.look(&answers(7), broken(true));
    assert_eq!(watched.state(), "fault");
    for _ in 0..10 {
        assert_eq!(watched.look(&Found::Unknown { pid: 7 }, None), None);
        assert_eq!(watched.state(), "fault");
    }
    watched.look(&answers(7), None);
    assert_eq!(watched.state(), "running");
}

#[test]
fn a_broken_server_has_its_time_to_mend_from_when_nobody_uses_it() {
    let mut watched = Watched::new(3);
    watched.look(&answers(7), None);
    for _ in 0..20 {
        assert_eq!(watched.look(&answers(7), broken(true)), None);
    }
    assert_eq!(watched.look(&answers(7), broken(false)), None);
    let began_ns = watched.now_ns;
    let mut order = None;
    while order.is_none() {
        order = watched.look(&answers(7), broken(false));
    }
    assert_eq!(order, Some(Order::Restart));
    assert!(watched.now_ns - began_ns >= MEND_NS - LOOK_NS);
}

#[test]
fn who_has_lost_a_server_is_known_where_mps_is_managed_and_of_so_many_at_once() {
    let mut desk = Desk::default();
    assert!(!desk.note_orphans(1..9) && desk.orphans.is_empty());
    desk.seen = Some(Watched::new(3).seen());
    assert!(!desk.note_orphans(std::iter::empty()));
    assert!(desk.note_orphans(1..9));
    assert!(desk.note_orphans(9..1_000));
    assert!(!desk.note_orphans(1..9), "there is no room");
    assert_eq!(desk.orphans.len(), ORPHANS_MAX);
}

fn found() -> impl Strategy<Value = (Found, Option<Trouble>)> {
    let pid = 1..4_u32;
    let silent = (pid.clone(), any::<bool>());
    prop_oneof![
        Just((Found::Nothing, None)),
        silent.prop_map(|(pid, has_servers)| (Found::Silent { pid, has_servers }, None)),
        pid.clone().prop_map(|pid| (Found::Unknown { pid }, None)),
        pid.clone().prop_map(|pid| (answers(pid), None)),
        (pid, any::<bool>()).prop_map(|(pid, is_used)| (answers(pid), broken(is_used))),
    ]
}

proptest! {
    /// For any sequence of results and daemons: restarts are bounded in every hour, no used part is
    /// restarted, `given-up` lasts until MPS is well, and jobs are held only for a server.
    #[test]
    fn whatever_happens_restarts_are_bounded_and_spare_what_is_used(
        per_hour in 0..4_u32,
        steps in prop::collection::vec((found(), 1..40_usize, 0..1_200_u64, any::<[bool; 2]>()), 1..60),
    ) {
        let mut watched = Watched::new(per_hour);
        let mut daemons = 1;
        for ((found, trouble), times, idle_s, [does_fail, is_killed]) in steps {
            if is_killed {
                daemons += 1;
                watched.replace();
            }
            for _ in 0..times {
                let before = watched.state();
                let order = watched.look(&found, trouble.clone());
                let is_used = match &found {
                    Found::Nothing => false,
                    Found::Silent { has_servers, .. } => *has_servers,
                    Found::Unknown { .. } => true,
                    Found::Answers { .. } => trouble.as_ref().is_none_or(|trouble| trouble.is_used),
                };
                prop_assert!(!(is_used && order.is_some()), "{found:?} {trouble:?} {order:?}");
                prop_assert!(!(found == Found::Nothing && order == Some(Order::Restart)));
                if before == "given-up" {
                    prop_assert_eq!(order, None);
                    let is_well = matches!(found, Found::Answers { .. }) && trouble.is_none();
                    prop_assert!(is_well || watched.state() == "given-up");
                }
                prop_assert!(trouble.is_none() || watched.held.is_some());
                let is_told = matches!(found, Found::Nothing | Found::Answers { .. });
                let lets_go = trouble.is_none() && is_told;
                prop_assert!(!(lets_go && watched.held.is_some()));
                if does_fail && order.is_some() {
                    watched.supervisor.handle_failure(watched.now_ns, "it failed".to_owned());
                }
            }
            watched.now_ns += idle_s * SECOND_NS;
        }
        let at_ns = &watched.restarts;
        for (index, first_ns) in at_ns.iter().enumerate() {
            let within = at_ns[index..].iter().filter(|ns| **ns - first_ns < HOUR_NS);
            prop_assert!(within.count() <= per_hour as usize, "{at_ns:?}");
        }
        // The first start of each daemon may not count as a restart.
        let starts = watched.orders.len() - at_ns.len();
        prop_assert!(starts <= daemons, "{starts} of {daemons}");
    }
}
