//! What threads count for a client that has a successor, carried over to the client as of now.
//!
//! A thread that is in a call has the client of the call's beginning in hand and counts for it when the call is over, however many
//! daemons have come and gone meanwhile. So for each device the pages of all clients before are kept, with what of each was carried
//! over ([`Line`]). Sums and counters only grow by additions, which wrap: what was added to a page since the last look is added to
//! the page of the client as of now. What was carried to one that has a successor itself is part of its sums, and goes on with
//! these; so each addition arrives once, whichever page it was made in and whenever.
//!
//! **The bound.** [`PAGES_MAX`] pages of a device are looked at, the youngest. What a call that has lasted for more successions
//! than that counts at its end is not counted, and a charge that it takes back stays in flight until the process ends: a look must
//! not last ever longer, and nobody can tell whether a thread still has a page in hand without asking each launch for it.
//!
//! **Order.** Threads write their pages with atomic additions and never look here; who carries over holds the lock of the device's
//! line: a client's helper, and whoever ends the process. So `from` is read and `to` added to by one thread at a time, and an
//! addition that comes in between is found at the next look. In flight is not told as less than it is: what completes may be counted
//! in another page than it was charged in, so the completions of all pages are read before the charges of any: Acquire, for the
//! Release with which they are added after the charge that they complete.

use std::collections::VecDeque;

use protocol::pages::{ClientPage, Counter, LeasePage};
use protocol::sync::Ordering;

/// Pages of a device that are looked at. At one restart in half a second, which is what a service manager gives a daemon that fails,
/// calls of half a minute are counted; a look at all of them is some tens of microseconds.
const PAGES_MAX: usize = 64;

/// A client as far as sums go.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    pub(crate) page: &'static ClientPage,
    /// Of a best-effort client.
    pub(crate) lease: Option<&'static LeasePage>,
}

/// The client of a device as of now, and those before it.
pub(crate) struct Line {
    now: Option<Account>,
    /// The oldest first.
    before: VecDeque<Before>,
}

/// A page that may still be written to.
struct Before {
    page: &'static ClientPage,
    carried: Carried,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self {
            now: None,
            before: VecDeque::new(),
        }
    }

    /// `client` is followed by `successor`.
    pub(crate) fn succeed(&mut self, client: &'static ClientPage, successor: Account) {
        if self.before.len() >= PAGES_MAX {
            self.before.pop_front();
        }
        self.before.push_back(Before {
            page: client,
            carried: Carried::default(),
        });
        self.now = Some(successor);
    }

    /// Carries over what threads have counted for the clients before since the last time.
    pub(crate) fn carry_over(&mut self) {
        let Some(now) = self.now else {
            return;
        };
        for Before { page, carried } in &mut self.before {
            carried.seen_completed_ns = page.completed_ns.load(Ordering::Acquire);
        }
        for Before { page, carried } in &mut self.before {
            carried.carry(page, now);
        }
    }
}

/// What of a page was carried over.
struct Carried {
    counters: [u64; Counter::ALL.len()],
    charged_ns: u64,
    completed_ns: u64,
    /// As of this look.
    seen_completed_ns: u64,
}

impl Default for Carried {
    fn default() -> Self {
        Self {
            counters: [0; Counter::ALL.len()],
            charged_ns: 0,
            completed_ns: 0,
            seen_completed_ns: 0,
        }
    }
}

impl Carried {
    /// Carries over what was added since the last time: to what is complete up to `seen_completed_ns`. All sums wrap: a refund
    /// takes from them.
    fn carry(&mut self, from: &ClientPage, to: Account) {
        self.carry_counters(from, to.page);
        to.page.told.longest.note_all(&from.told.longest);
        // Relaxed: the word stands for itself, and the first one stays.
        let sticky = from.sticky.load(Ordering::Relaxed);
        if sticky != 0 {
            let (word, relaxed) = (&to.page.sticky, Ordering::Relaxed);
            let _ = word.compare_exchange(0, sticky, relaxed, relaxed);
        }
        let Some(lease) = to.lease else {
            return;
        };
        let completed_ns = self.seen_completed_ns;
        let charged_ns = from.charged_ns.load(Ordering::Acquire);
        let by_completed_ns = completed_ns.wrapping_sub(self.completed_ns);
        let by_charged_ns = charged_ns.wrapping_sub(self.charged_ns);
        // What is complete is no part of what the new daemon grants; it is in the client's own sums alone.
        let in_flight_ns = by_charged_ns.wrapping_sub(by_completed_ns);
        to.page
            .charged_ns
            .fetch_add(by_completed_ns, Ordering::AcqRel);
        // Less in flight is told as what is taken back is, so that no lease is made longer by it.
        match in_flight_ns.cast_signed() {
            0 => {}
            1.. => _ = lease.charge(&to.page.charged_ns, in_flight_ns),
            _ => lease.refund(&to.page.charged_ns, in_flight_ns.wrapping_neg()),
        }
        to.page
            .completed_ns
            .fetch_add(by_completed_ns, Ordering::AcqRel);
        (self.completed_ns, self.charged_ns) = (completed_ns, charged_ns);
    }

    fn carry_counters(&mut self, from: &ClientPage, to: &ClientPage) {
        for (counter, carried) in Counter::ALL.iter().zip(&mut self.counters) {
            let counted = from.counted(*counter);
            let by = counted.wrapping_sub(*carried);
            if by != 0 {
                to.count(*counter, by);
                *carried = counted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::segment::Mapping;

    use super::*;

    /// A client's pages, for the rest of the tests.
    fn account() -> Account {
        let (_fd, page) = Mapping::<ClientPage>::create("pillion-test").unwrap();
        let (_fd, lease) = Mapping::<LeasePage>::create("pillion-test").unwrap();
        Account {
            page: page.leak(),
            lease: Some(lease.leak()),
        }
    }

    fn lease_of(account: Account) -> &'static LeasePage {
        account.lease.unwrap()
    }

    fn sums(account: Account) -> [u64; 3] {
        let page = account.page;
        [
            &page.charged_ns,
            &page.completed_ns,
            &lease_of(account).charges.total_ns,
        ]
        .map(|sum| sum.load(Ordering::Acquire))
    }

    #[test]
    fn each_count_is_carried_over_once_whenever_it_was_made() {
        let (from, to) = (account().page, account());
        let mut line = Line::new();
        from.count(Counter::Held, 3);
        from.count_launch_of_ring(1);
        line.succeed(from, to);
        line.carry_over();
        to.page.count(Counter::Held, 10);
        line.carry_over();
        from.count(Counter::Held, 4);
        from.count(Counter::Launches, 1);
        line.carry_over();
        assert_eq!(to.page.counted(Counter::Held), 17);
        assert_eq!(to.page.counted(Counter::Launches), 2);
    }

    /// A launch that the driver refuses after two successions, one that it takes, and a wait that ends.
    #[test]
    fn what_a_call_counts_charges_and_takes_back_after_several_successions_arrives() {
        for restarts in 1..=3 {
            let first = account();
            let mut line = Line::new();
            lease_of(first).charge(&first.page.charged_ns, 700);
            lease_of(first).charge(&first.page.charged_ns, 50);
            let mut now = first;
            for _ in 0..restarts {
                let next = account();
                line.succeed(now.page, next);
                line.carry_over();
                now = next;
            }
            assert_eq!(sums(now), [750, 0, 750], "{restarts} restarts");
            lease_of(first).refund(&first.page.charged_ns, 700);
            lease_of(first).charge(&first.page.charged_ns, 9);
            first.page.completed_ns.fetch_add(50, Ordering::Release);
            first.page.count(Counter::CopiedDtoHBytes, 4096);
            line.carry_over();
            line.carry_over();
            let [charged_ns, completed_ns, _] = sums(now);
            assert_eq!((charged_ns, completed_ns), (59, 50), "{restarts} restarts");
            assert_eq!(now.page.counted(Counter::CopiedDtoHBytes), 4096);
            assert!(lease_of(now).charges.refunds.load(Ordering::Acquire) > 0);
        }
    }

    #[test]
    fn pages_that_are_looked_at_are_bounded_and_the_youngest_ones_are() {
        let pages: Vec<Account> = (0..=PAGES_MAX + 1).map(|_| account()).collect();
        let mut line = Line::new();
        for pair in pages.windows(2) {
            line.succeed(pair[0].page, pair[1]);
        }
        line.carry_over();
        assert_eq!(line.before.len(), PAGES_MAX);
        let now = pages.last().unwrap().page;
        pages[1].page.count(Counter::Held, 1);
        pages[PAGES_MAX].page.count(Counter::Held, 10);
        line.carry_over();
        assert_eq!(now.counted(Counter::Held), 11);
        // Out of sight.
        pages[0].page.count(Counter::Held, 100);
        line.carry_over();
        assert_eq!(now.counted(Counter::Held), 11);
    }

    /// A step of a process whose threads have any of its clients in hand.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// For that client, counted from the youngest: a launch.
        Charge(usize, u64),
        /// What was charged there last is refused.
        Refund(usize),
        /// What was charged there last is complete, counted for this client.
        Complete(usize, usize),
        Count(usize),
        Succeed,
        CarryOver,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..5_usize, 1..1000_u64).prop_map(|(who, ns)| Step::Charge(who, ns)),
            2 => (0..5_usize).prop_map(Step::Refund),
            2 => (0..5_usize, 0..5_usize).prop_map(|(who, by)| Step::Complete(who, by)),
            2 => (0..5_usize).prop_map(Step::Count),
            1 => Just(Step::Succeed),
            1 => Just(Step::CarryOver),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn whatever_threads_count_for_clients_before_the_last_one_has_all_of_it(steps in steps()) {
            let mut line = Line::new();
            let mut clients = vec![account()];
            let mut open = vec![Vec::new()];
            let (mut charged_ns, mut completed_ns, mut counted) = (0, 0, 0);
            let of = |len: usize, who: usize| len - 1 - who % len;
            for step in steps {
                let len = clients.len();
                match step {
                    Step::Charge(who, ns) => {
                        let who = of(len, who);
                        lease_of(clients[who]).charge(&clients[who].page.charged_ns, ns);
                        open[who].push(ns);
                        charged_ns += ns;
                    }
                    Step::Refund(who) => {
                        let who = of(len, who);
                        if let Some(ns) = open[who].pop() {
                            lease_of(clients[who]).refund(&clients[who].page.charged_ns, ns);
                            charged_ns -= ns;
                        }
                    }
                    Step::Complete(who, by) => {
                        if let Some(ns) = open[of(len, who)].pop() {
                            let by = clients[of(len, by)].page;
                            by.completed_ns.fetch_add(ns, Ordering::Release);
                            completed_ns += ns;
                        }
                    }
                    Step::Count(who) => {
                        clients[of(len, who)].page.count(Counter::Copies, 1);
                        counted += 1;
                    }
                    Step::Succeed => {
                        let next = account();
                        line.succeed(clients[len - 1].page, next);
                        clients.push(next);
                        open.push(Vec::new());
                    }
                    Step::CarryOver => line.carry_over(),
                }
            }
            line.carry_over();
            let now = clients[clients.len() - 1];
            let [found_charged_ns, found_completed_ns, _] = sums(now);
            prop_assert_eq!(found_charged_ns, charged_ns);
            prop_assert_eq!(found_completed_ns, completed_ns);
            prop_assert_eq!(now.page.counted(Counter::Copies), counted);
        }
    }
}
