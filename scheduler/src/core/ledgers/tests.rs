//! Quotas and the release of holdings, without a device.

use std::io::{Read, Write};

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

fn look(
    ledgers: &mut Ledgers,
    has_ended: impl Fn(&OwnedFd) -> bool,
    is_listed: impl Fn(u32) -> bool,
) -> usize {
    ledgers.leaving(has_ended);
    ledgers.poll_leaving(is_listed)
}

fn is_anybody_over(ledgers: &mut Ledgers) -> bool {
    ledgers.leaving(|_| true).is_anybody_over
}

fn key(class: JobClass, id: &str) -> JobKey {
    JobKey {
        id: id.to_owned(),
        uid: 1000,
        class,
    }
}

fn owner(uid: u32) -> Owner {
    Owner {
        uid,
        ..Owner::default()
    }
}

fn ledgers() -> Ledgers {
    Ledgers::new(MemoryRules::default(), 10 * GIB)
}

fn comer<'a>(pid: u32, owner: &'a Owner, asked: &'a str) -> Comer<'a> {
    Comer {
        peer: Peer {
            pid,
            uid: owner.uid,
        },
        image: IMAGE,
        process: None,
        owner,
        asked,
        brought: None,
    }
}

fn attach(ledgers: &mut Ledgers, key: &JobKey, pid: u32, asked: &str) -> Opened {
    let owner = owner(key.uid);
    ledgers
        .handle_attach(key, comer(pid, &owner, asked))
        .unwrap()
}

fn come(
    ledgers: &mut Ledgers,
    key: &JobKey,
    (pid, image): (u32, Image),
    brought: Option<Brought>,
) -> Result<Opened, LedgerError> {
    let owner = owner(key.uid);
    let comer = Comer {
        image,
        brought,
        ..comer(pid, &owner, "")
    };
    ledgers.handle_attach(key, comer)
}

fn a_fifth_for_1000() -> MemoryRules {
    let rule = memory_rules::Rule {
        user: Some(1000),
        group: None,
        cgroup: None,
        quota: Quota::Percent(20.0),
    };
    MemoryRules {
        rules: vec![rule],
        ..MemoryRules::default()
    }
}

fn some_process() -> Option<OwnedFd> {
    Some(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
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
    let key = key(JobClass::BestEffort, "a");
    let owner = owner(1000);
    let error = ledgers().handle_attach(&key, comer(7, &owner, "0m"));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("\"0m\"") && error.contains("10GiB"),
        "{error}"
    );
    let mut unknown = Ledgers::new(MemoryRules::default(), 0);
    let error = unknown.handle_attach(&key, comer(7, &owner, "40%"));
    let error = error.unwrap_err();
    assert!(error.to_string().contains("does not report"), "{error}");
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
    let meant = ledgers.quota_jobs("a", Some(1000), two).unwrap();
    assert_eq!(
        (meant, quota(&ledgers, &key)),
        (vec![key.clone()], Some(GIB))
    );
    assert_eq!(ledgers.set_quota("b", None, two).unwrap(), 0);
    assert_eq!(ledgers.set_quota("a", Some(0), two).unwrap(), 0);
    assert_eq!(ledgers.set_quota("a", Some(1000), two).unwrap(), 1);
    assert_eq!(quota(&ledgers, &key), Some(2 * GIB));
    ledgers.set_quota("a", None, Quota::Percent(10.0)).unwrap();
    assert_eq!(quota(&ledgers, &key), Some(GIB));
}

// census: D21, J5
#[test]
fn no_job_has_more_than_a_rule_allows_its_owner_whatever_it_asks_for() {
    let mut ledgers = Ledgers::new(a_fifth_for_1000(), 10 * GIB);
    for (class, asked, bytes) in [
        (JobClass::BestEffort, "", 2 * GIB),
        (JobClass::BestEffort, "1GiB", GIB),
        (JobClass::BestEffort, "unlimited", 2 * GIB),
        (JobClass::HighPriority, "", 2 * GIB),
        (JobClass::HighPriority, "90%", 2 * GIB),
    ] {
        let key = key(class, asked);
        let told = ledgers.memory_of(&key, &owner(1000), asked).unwrap();
        assert_eq!(told.quota_bytes, bytes, "{class:?} {asked}");
        attach(&mut ledgers, &key, 7, asked);
        assert_eq!(quota(&ledgers, &key), Some(bytes), "{class:?} {asked}");
    }
    let small = key(JobClass::BestEffort, "1GiB");
    let three = Quota::Bytes(3 * GIB);
    let refused = ledgers.set_quota("1GiB", Some(1000), three).unwrap_err();
    assert!(refused.to_string().contains("2147483648"), "{refused}");
    assert_eq!(quota(&ledgers, &small), Some(GIB));
    ledgers.set_quota("1GiB", None, three).unwrap();
    assert_eq!(quota(&ledgers, &small), Some(3 * GIB));
    // Root's quota overrides the rule while the job lives, whatever processes or users do.
    attach(&mut ledgers, &small, 8, "1GiB");
    assert_eq!(quota(&ledgers, &small), Some(3 * GIB));
    let (one, four) = (Quota::Bytes(GIB), Quota::Bytes(4 * GIB));
    ledgers.set_quota("1GiB", Some(1000), one).unwrap();
    ledgers.set_quota("1GiB", Some(1000), three).unwrap();
    assert!(ledgers.set_quota("1GiB", Some(1000), four).is_err());
    assert_eq!(quota(&ledgers, &small), Some(3 * GIB));
    for slot in [0, 1] {
        ledgers.handle_detach(&small, slot);
    }
    look(&mut ledgers, |_| true, |_| false);
    attach(&mut ledgers, &small, 9, "unlimited");
    assert_eq!(quota(&ledgers, &small), Some(2 * GIB), "a job of its own");
    let free = key(JobClass::BestEffort, "free");
    let begin = |ledgers: &mut Ledgers, uid, asked| {
        let owner = owner(uid);
        ledgers
            .handle_attach(&free, comer(9, &owner, asked))
            .unwrap();
    };
    begin(&mut ledgers, 1, "5GiB");
    assert_eq!(quota(&ledgers, &free), Some(5 * GIB));
    begin(&mut ledgers, 1000, "");
    assert_eq!(quota(&ledgers, &free), Some(2 * GIB));
}

#[test]
fn what_contexts_take_is_charged_to_those_that_come_once_it_was_seen() {
    const CONTEXT: u64 = GIB / 2;
    let mut ledgers = ledgers();
    let key = key(JobClass::BestEffort, "a");
    let first = attach(&mut ledgers, &key, 7, "");
    let context = |opened: &Opened| {
        let page = Mapping::<LedgerPage>::open(&*opened.fd, Access::ReadWrite).unwrap();
        page.context_bytes.load(Ordering::Relaxed)
    };
    assert_eq!(context(&first), 0);
    reserve(&first, GIB);
    let listed = [Process {
        pid: 7,
        used_bytes: Some(GIB + CONTEXT),
    }];
    for seen in [0, CONTEXT] {
        let before = ledgers.holdings();
        let compared = ledgers.handle_listed(&before, &listed, &[]);
        assert!(compared.news.is_empty() && compared.evictions.is_empty());
        assert_eq!(context(&first), seen, "two looks alike show a context");
    }
    let another = JobKey {
        id: "b".to_owned(),
        ..key.clone()
    };
    assert_eq!(context(&attach(&mut ledgers, &another, 8, "")), CONTEXT);
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
    look(&mut ledgers, |_| true, |_| false);
    assert_eq!(held(&ledgers), 2 * GIB, "nobody has left");
    ledgers.handle_detach(&key, first.slot);
    look(&mut ledgers, |_| true, |pid| pid == 7);
    assert!(held(&ledgers) == 2 * GIB && is_anybody_over(&mut ledgers));
    assert_ne!(attach(&mut ledgers, &key, 9, "").slot, first.slot);
    look(&mut ledgers, |_| true, |_| false);
    assert!(held(&ledgers) == GIB && !is_anybody_over(&mut ledgers));
    assert_eq!(attach(&mut ledgers, &key, 10, "").slot, first.slot);
    let status = ledgers.status_of(&key).unwrap();
    assert_eq!((status.by_kind["plain"], status.peak_bytes), (GIB, 2 * GIB));
}

#[test]
fn a_list_that_is_older_than_an_end_frees_nothing() {
    let mut ledgers = ledgers();
    let key = key(JobClass::BestEffort, "a");
    let first = attach(&mut ledgers, &key, 7, "");
    ledgers.handle_detach(&key, first.slot);
    assert!(is_anybody_over(&mut ledgers));
    // A process that comes, allocates and ends after the NVML query is not in its answer.
    let second = attach(&mut ledgers, &key, 8, "");
    reserve(&second, GIB);
    ledgers.handle_detach(&key, second.slot);
    assert_eq!(ledgers.poll_leaving(|_| false), 1);
    assert_eq!(ledgers.status_of(&key).unwrap().held_bytes, GIB);
    assert_eq!(look(&mut ledgers, |_| true, |_| false), 1);
    assert_eq!(ledgers.status_of(&key).unwrap().held_bytes, 0);
}

#[test]
fn a_process_that_lives_on_without_its_connection_keeps_what_it_holds() {
    let mut ledgers = ledgers();
    let key = key(JobClass::BestEffort, "a");
    let owner = owner(1000);
    let comer = Comer {
        process: some_process(),
        ..comer(7, &owner, "")
    };
    let opened = ledgers.handle_attach(&key, comer).unwrap();
    ledgers.handle_detach(&key, opened.slot);
    look(&mut ledgers, |_| false, |_| false);
    let leaving = ledgers.leaving(|_| false);
    assert_eq!((leaving.is_anybody_over, leaving.living.len()), (false, 1));
    look(&mut ledgers, |_| true, |_| false);
    assert_eq!(ledgers.status_of(&key).unwrap().processes, 0);
}

#[test]
fn a_program_that_executes_another_leaves_it_the_whole_quota() {
    let mut ledgers = ledgers();
    let key = key(JobClass::BestEffort, "a");
    let owner = owner(1000);
    let attach = |ledgers: &mut Ledgers, image| {
        let comer = Comer {
            image,
            process: some_process(),
            ..comer(7, &owner, "")
        };
        ledgers.handle_attach(&key, comer).unwrap()
    };
    let first = attach(&mut ledgers, IMAGE);
    reserve(&first, 3 * GIB);
    ledgers.handle_detach(&key, first.slot);
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
    assert!(
        !is_anybody_over(&mut ledgers),
        "NVML has nothing to say of it"
    );
}

#[test]
fn a_job_that_comes_again_asks_anew() {
    let mut ledgers = ledgers();
    let key = key(JobClass::BestEffort, "a");
    let opened = attach(&mut ledgers, &key, 7, "4GiB");
    reserve(&opened, GIB);
    ledgers.handle_detach(&key, opened.slot);
    look(&mut ledgers, |_| true, |_| false);
    let ended = ledgers.status_of(&key).unwrap();
    assert_eq!((ended.peak_bytes, ended.processes), (GIB, 0));
    let eight = Quota::Bytes(8 * GIB);
    assert_eq!(ledgers.set_quota("a", None, eight).unwrap(), 0);
    assert_eq!(ledgers.best_effort_jobs(), [(key.clone(), false)]);
    let told = ledgers.memory_of(&key, &owner(1000), "2GiB").unwrap();
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

fn brought(opened: &Opened, pid: u32, image: Image) -> Option<Brought> {
    Brought::open(
        opened.fd.try_clone().unwrap(),
        opened.slot,
        pid,
        image,
        Found::of,
    )
}

fn own() -> (u32, Image) {
    let pid = std::process::id();
    (pid, Image::of(pid))
}

fn ended() -> u32 {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    pid
}

#[test]
fn a_ledger_goes_on_under_the_next_daemon_with_those_who_came_those_who_have_not_and_those_who_ended()
 {
    let rules = |text: &str| MemoryRules {
        best_effort: Quota::parse(text).unwrap(),
        ..MemoryRules::default()
    };
    let mut first = Ledgers::new(rules("4GiB"), 10 * GIB);
    let key = JobKey {
        uid: rustix::process::getuid().as_raw(),
        ..key(JobClass::BestEffort, "a")
    };
    let (pid, image) = own();
    let attach =
        |ledgers: &mut Ledgers, pid, brought| come(ledgers, &key, (pid, image), brought).unwrap();
    let [one, two, gone] = [pid, pid, ended()].map(|pid| attach(&mut first, pid, None));
    reserve(&one, GIB);
    reserve(&two, GIB / 2);
    reserve(&gone, GIB / 4);
    first.set_quota("a", None, Quota::Bytes(3 * GIB)).unwrap();
    drop(first);

    let mut next = Ledgers::new(rules("1GiB"), 10 * GIB);
    let again = attach(&mut next, pid, brought(&two, pid, image));
    assert!(again.is_kept && again.slot == two.slot);
    let status = next.status_of(&key).unwrap();
    assert_eq!(status.quota_bytes, Some(3 * GIB), "what the job has");
    assert_eq!(
        (status.held_bytes, status.peak_bytes),
        (7 * GIB / 4, 7 * GIB / 4)
    );
    assert_eq!((status.processes, status.leaving), (3, 2));
    assert!(is_anybody_over(&mut next));
    let end = |ledgers: &mut Ledgers| look(ledgers, |_| false, |_| false);
    assert_eq!(end(&mut next), 1, "who lives on has what it had");
    assert_eq!(next.status_of(&key).unwrap().held_bytes, 3 * GIB / 2);

    let again = attach(&mut next, pid, brought(&one, pid, image));
    assert!(again.is_kept && again.slot == one.slot);
    let status = next.status_of(&key).unwrap();
    assert_eq!((status.processes, status.leaving), (2, 0));
    assert_ne!(attach(&mut next, pid, None).slot, one.slot);
    next.handle_detach(&key, one.slot);
    assert_eq!(end(&mut next), 0);
    assert_eq!(next.status_of(&key).unwrap().held_bytes, 3 * GIB / 2);
}

#[test]
fn a_change_of_what_requests_may_take_goes_along_to_the_next_daemon_and_ends_with_the_job() {
    let key = key(JobClass::HighPriority, "a");
    let (pid, image) = own();
    let mut first = ledgers();
    let opened = come(&mut first, &key, (pid, image), None).unwrap();
    assert_eq!(first.slo_of(&key), None);
    let change = SloChange::parse("1.5x").unwrap();
    first.keep_slo(&key, change);
    let mut next = ledgers();
    let brought = brought(&opened, pid, image);
    assert!(
        come(&mut next, &key, (pid, image), brought)
            .unwrap()
            .is_kept
    );
    assert_eq!(next.slo_of(&key), Some(change));
    let promise = Promise::from_word(3).unwrap();
    assert_eq!(next.promise_of(&key), None);
    next.keep_promise(&key, promise);
    assert_eq!(next.promise_of(&key), Some(promise));
    let page = Mapping::<LedgerPage>::open(&*opened.fd, Access::ReadWrite).unwrap();
    page.slo.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(next.slo_of(&key), None);
    next.keep_slo(&key, change);
    assert!(next.best_effort_jobs().is_empty());
    next.handle_detach(&key, opened.slot);
    look(&mut next, |_| true, |_| false);
    attach(&mut next, &key, 8, "");
    assert_eq!((next.slo_of(&key), next.promise_of(&key)), (None, None));
}

#[test]
fn a_rule_holds_for_a_ledger_that_goes_on_and_a_job_that_has_another_keeps_that() {
    let key = key(JobClass::BestEffort, "a");
    let owner = owner(1000);
    let (pid, image) = own();
    let mut first = ledgers();
    let attach = |ledgers: &mut Ledgers, key: &JobKey, brought| {
        let comer = Comer {
            image,
            brought,
            ..comer(pid, &owner, "5GiB")
        };
        ledgers.handle_attach(key, comer).unwrap()
    };
    let opened = attach(&mut first, &key, None);
    reserve(&opened, 3 * GIB);

    let mut strict = Ledgers::new(a_fifth_for_1000(), 10 * GIB);
    assert!(attach(&mut strict, &key, brought(&opened, pid, image)).is_kept);
    let status = strict.status_of(&key).unwrap();
    assert_eq!(
        (status.quota_bytes, status.held_bytes),
        (Some(2 * GIB), 3 * GIB)
    );

    let mut late = ledgers();
    let other = attach(&mut late, &key, None);
    let again = attach(&mut late, &key, brought(&opened, pid, image));
    assert!(!again.is_kept && again.slot != other.slot);
    assert_eq!(late.status_of(&key).unwrap().held_bytes, 0);
    let another = JobKey {
        id: "b".to_owned(),
        ..key.clone()
    };
    assert!(!attach(&mut late, &another, brought(&other, pid, image)).is_kept);
}

#[test]
fn what_is_no_page_of_its_process_is_not_gone_on_with() {
    let key = key(JobClass::BestEffort, "a");
    let mut first = ledgers();
    let (pid, image) = own();
    let opened = come(&mut first, &key, (pid, image), None).unwrap();
    assert!(brought(&opened, pid, image).is_some());
    assert!(brought(&opened, pid + 1, image).is_none());
    assert!(brought(&opened, pid, IMAGE).is_none(), "of another time");
    let slot = |slot| Opened {
        slot,
        fd: Arc::clone(&opened.fd),
        is_kept: false,
    };
    assert!(brought(&slot(opened.slot + 1), pid, image).is_none());
    assert!(brought(&slot(u16::MAX), pid, image).is_none());
    let file = std::fs::File::open("/dev/zero").unwrap();
    assert!(Brought::open(file.into(), 0, pid, image, Found::of).is_none());
    // A daemon that does not see its clients cannot know their end, and must not release holdings.
    let unseen = come(&mut first, &key, (0, image), None).unwrap();
    reserve(&unseen, GIB);
    let mut next = ledgers();
    let brought = brought(&opened, pid, image);
    let again = come(&mut next, &key, (pid, image), brought);
    assert!(!again.unwrap().is_kept);
    assert_eq!(next.status_of(&key).unwrap().held_bytes, 0);
}

struct Sleeper(std::process::Child);

impl Sleeper {
    /// Returns once the program runs: the parent may continue before the kernel has set it up.
    fn start() -> Self {
        use std::process::Stdio;
        let mut command = std::process::Command::new("cat");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        let mut answer = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut answer)
            .unwrap();
        Self(child)
    }

    fn who(&self) -> (u32, Image) {
        (self.0.id(), Image::of(self.0.id()))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_account_that_names_a_living_stranger_is_left_aside() {
    let own_uid = rustix::process::getuid().as_raw();
    let sleeper = Sleeper::start();
    let (pid, image) = sleeper.who();
    for (uid, is_kept) in [(own_uid, true), (own_uid + 1, false)] {
        let key = JobKey {
            uid,
            ..key(JobClass::BestEffort, "a")
        };
        let attach =
            |ledgers: &mut Ledgers, who, brought| come(ledgers, &key, who, brought).unwrap();
        let mut first = ledgers();
        let opened = attach(&mut first, (pid, image), None);
        let stranger = attach(&mut first, own(), None);
        reserve(&stranger, GIB);
        let mut next = ledgers();
        let again = attach(&mut next, (pid, image), brought(&opened, pid, image));
        assert_eq!(again.is_kept, is_kept);
        let holdings = next.holdings();
        let is_there = holdings.iter().any(|holding| holding.pid == own().0);
        assert_eq!(is_there, is_kept, "nothing is made of a stranger");
        let status = next.status_of(&key).unwrap();
        let expected = if is_kept { (2, GIB) } else { (1, 0) };
        assert_eq!((status.processes, status.held_bytes), expected);
    }
}

#[test]
fn a_number_that_is_anothers_by_now_says_nothing_of_it_and_keeps_nothing_back() {
    let key = key(JobClass::BestEffort, "a");
    let sleeper = Sleeper::start();
    let (pid, image) = sleeper.who();
    let mut first = ledgers();
    let opened = come(&mut first, &key, (pid, image), None).unwrap();
    let long_ended = come(&mut first, &key, (own().0, IMAGE), None).unwrap();
    reserve(&long_ended, GIB);
    let mut next = ledgers();
    let brought = brought(&opened, pid, image);
    let again = come(&mut next, &key, (pid, image), brought);
    assert!(again.unwrap().is_kept);
    assert_eq!(next.status_of(&key).unwrap().held_bytes, GIB);
    assert!(next.holdings().iter().all(|holding| holding.pid == pid));
    let told = next.memory_of(&key, &owner(1000), "").unwrap();
    assert_eq!(told.pids, [pid]);
    // The device lists that id for a later process.
    let back = look(&mut next, |_| false, |listed| listed == own().0);
    assert_eq!(back, 1);
    assert_eq!(next.status_of(&key).unwrap().held_bytes, 0);
}

#[test]
fn accounts_that_are_brought_take_their_places_like_processes_that_come() {
    const OTHERS: usize = 200;
    let key = |id: &str| key(JobClass::BestEffort, id);
    let dead = (ended(), IMAGE);
    let sleeper = Sleeper::start();
    let who = sleeper.who();
    let (pid, image) = who;
    let mut next = ledgers();
    let mut taken = 0;
    for (id, is_kept) in [("a", true), ("b", true), ("c", false)] {
        let mut first = ledgers();
        let opened = come(&mut first, &key(id), who, None).unwrap();
        for _ in 0..OTHERS {
            come(&mut first, &key(id), dead, None).unwrap();
        }
        let brought = brought(&opened, pid, image);
        let again = come(&mut next, &key(id), who, brought).unwrap();
        assert_eq!(again.is_kept, is_kept, "{id}");
        taken += next.status_of(&key(id)).unwrap().processes;
    }
    assert_eq!(taken, 2 * (1 + OTHERS) + 1);
    for extra in taken..HOLDERS_PER_USER_MAX {
        come(&mut next, &key(&extra.to_string()), who, None).unwrap();
    }
    let refused = come(&mut next, &key("full"), who, None).unwrap_err();
    assert!(matches!(refused, LedgerError::UserSlots), "{refused}");
    // A process with a slot has a place: it returns although no other is free.
    let page = next.jobs.iter().find(|job| job.key == key("a")).unwrap();
    let opened = Opened {
        fd: Arc::clone(&page.fd),
        slot: 0,
        is_kept: true,
    };
    next.handle_detach(&key("a"), 0);
    let brought = brought(&opened, pid, image);
    let again = come(&mut next, &key("a"), who, brought);
    assert!(again.unwrap().is_kept);
}

#[test]
fn one_user_cannot_take_all_places_nor_all_users_those_of_high_priority_jobs() {
    let mut ledgers = ledgers();
    let mut key = key(JobClass::BestEffort, "");
    let attach = |ledgers: &mut Ledgers, key: &JobKey, pid: u32| {
        let owner = owner(key.uid);
        let opened = ledgers.handle_attach(key, comer(pid, &owner, ""));
        opened.map(|opened| ledgers.handle_detach(key, opened.slot))
    };
    let mut pid = 1;
    for uid in 1..=(HOLDERS_MAX / HOLDERS_PER_USER_MAX) as u32 {
        key.uid = uid;
        for _ in 0..HOLDERS_PER_USER_MAX {
            key.id = pid.to_string();
            attach(&mut ledgers, &key, pid).unwrap();
            pid += 1;
        }
        let refused = attach(&mut ledgers, &key, pid).unwrap_err();
        assert!(matches!(refused, LedgerError::UserSlots), "{refused}");
    }
    key.uid = 1000;
    let refused = attach(&mut ledgers, &key, pid).unwrap_err();
    assert!(matches!(refused, LedgerError::AllSlots), "{refused}");
    key.class = JobClass::HighPriority;
    attach(&mut ledgers, &key, pid).unwrap();
    look(&mut ledgers, |_| true, |_| false);
    key.class = JobClass::BestEffort;
    attach(&mut ledgers, &key, pid).unwrap();
}
