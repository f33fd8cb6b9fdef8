//! Processes that die with work in flight, or without.

use protocol::pages::{STOP_ASKED, STOP_GAVE_UP, STOP_OVERDUE};

use super::*;
use crate::core::event::{Kind, Severity};
use crate::core::fault::Fault;
use crate::core::ledgers::Image;
use crate::core::state::{Death, How};

fn end(rig: &mut Rig, player: &Player) -> Vec<Death> {
    rig.state
        .handle_death(rig.now_ns, rig.now_ns, player.client);
    rig.state.handle_detach(rig.now_ns, player.client);
    rig.state.take_deaths()
}

#[test]
fn what_a_best_effort_process_charged_and_did_not_complete_was_in_flight() {
    let mut rig = Rig::new("");
    let [idle, drained, dying] = ["idle", "drained", "dying"].map(|job| rig.be(job));
    rig.poll();
    assert_eq!(end(&mut rig, &idle), []);
    for be in [&drained, &dying] {
        rig.try_launch(be, &COMPUTE).unwrap();
        rig.try_launch(be, &COMPUTE).unwrap();
        be.completed(COMPUTE.expected_ns);
    }
    // The last report before the end counts, with or without a poll in between.
    drained.completed(COMPUTE.expected_ns);
    assert_eq!(end(&mut rig, &drained), []);
    let deaths = end(&mut rig, &dying);
    let [death] = &deaths[..] else {
        panic!("{deaths:?}");
    };
    assert_eq!((death.key.id.as_str(), death.pid), ("dying", 7));
    assert_eq!(
        (death.in_flight_ns, death.launches),
        (COMPUTE.expected_ns, None)
    );
    assert_eq!(rig.state.take_deaths(), [], "once");
}

#[test]
fn what_a_high_priority_process_launched_last_is_counted_though_nobody_has_polled_since() {
    let mut rig = Rig::new("");
    let (mut drained, mut dying) = (rig.hp("drained"), rig.hp("dying"));
    rig.poll();
    for hp in [&mut drained, &mut dying] {
        rig.launch(hp, Class::Compute, 100);
        rig.launch(hp, Class::Compute, 200);
    }
    drained.complete();
    assert_eq!(end(&mut rig, &drained), []);
    let deaths = end(&mut rig, &dying);
    assert_eq!((deaths[0].in_flight_ns, deaths[0].launches), (300, Some(2)));
    let lost = rig.hp("lost");
    lost.page.count(Counter::Dropped, 1);
    rig.poll();
    assert_eq!(end(&mut rig, &lost), []);
}

#[test]
fn a_process_whose_context_was_lost_left_nothing_in_flight() {
    let mut rig = Rig::new("");
    for (sticky, told) in [(719, 0), (1, 1)] {
        let be = rig.be("broken");
        rig.poll();
        rig.try_launch(&be, &COMPUTE).unwrap();
        be.page.sticky.store(sticky, Ordering::Relaxed);
        assert_eq!(end(&mut rig, &be).len(), told, "{sticky}");
    }
}

#[test]
fn why_it_died_so_is_told_and_it_matters_most_where_others_may_have_been_taken_along() {
    use Severity::{Error, Warning};
    let (no, yes) = (false, true);
    for (stop, seen_to_until_s, is_spared, how, under_mps, part) in [
        (0, 0, no, How::Unasked, Error, "it was killed, crashed"),
        (STOP_GAVE_UP, 0, no, How::GaveUp, Error, "deadline: "),
        (STOP_ASKED, 0, no, How::SeenTo, Error, "`pillion stop`"),
        (STOP_OVERDUE, 0, no, How::SeenTo, Error, "`pillion stop`"),
        (0, u32::MAX, no, How::SeenTo, Error, "`pillion stop`"),
        (STOP_ASKED, 0, yes, How::Spared, Warning, "this daemon was"),
        (
            STOP_GAVE_UP,
            0,
            yes,
            How::Spared,
            Warning,
            "this daemon was",
        ),
    ] {
        let mut rig = Rig::new("");
        let be = rig.be("secret");
        rig.poll();
        rig.try_launch(&be, &COMPUTE).unwrap();
        be.page.stop.store(stop, Ordering::Relaxed);
        let until_s = &be.page.seen_to_until_s;
        until_s.store(seen_to_until_s, Ordering::Relaxed);
        if is_spared {
            rig.state.note_spared(7);
        }
        let death = end(&mut rig, &be).remove(0);
        let is_seen_to = matches!(how, How::SeenTo | How::Spared);
        assert_eq!((death.how, death.is_seen_to), (how, is_seen_to));
        for (is_on_mps, severity) in [(true, under_mps), (false, Warning)] {
            let death = Death {
                is_on_mps,
                ..death.clone()
            };
            let fault = Fault::of_death(death);
            assert!(fault.text.contains(part), "{}", fault.text);
            assert!(fault.text.contains("(0.060 ms of expected work,"));
            let is_claimed = fault.text.contains("MPS was asked before, and");
            assert_eq!(is_claimed, is_spared && is_on_mps);
            assert!(!fault.text_for_all().contains("secret"));
            let event = Events::default().push(1, 1, fault.draft());
            assert_eq!(
                (event.kind, event.severity),
                (Kind::DiedInFlight.name(), severity)
            );
            assert_eq!((event.code, event.pid), (Some(60 * US), Some(7)));
        }
    }
}

#[test]
fn whose_end_somebody_sees_to_is_known_whatever_its_page_says_and_for_so_long() {
    const S: u64 = 1_000_000_000;
    for (after_ns, is_seen_to) in [(0, true), (11 * S, false)] {
        let mut rig = Rig::new("");
        let (be, beside) = (rig.be("a"), rig.be("b"));
        rig.poll();
        let key = rig.state.jobs[0].key.clone();
        assert_eq!(key.id, "a");
        rig.state.see_to_processes(&key, &[7], rig.now_ns, 10 * S);
        for (player, is_seen_to) in [(be, is_seen_to), (beside, false)] {
            rig.try_launch(&player, &COMPUTE).unwrap();
            player.page.stop.store(STOP_GAVE_UP, Ordering::Relaxed);
            let real_ns = rig.now_ns + after_ns;
            rig.state.handle_death(rig.now_ns, real_ns, player.client);
            let death = rig.state.take_deaths().remove(0);
            let known = (How::GaveUp, is_seen_to);
            assert_eq!((death.how, death.is_seen_to), known, "{death:?}");
        }
    }
}

#[test]
fn deaths_that_nobody_asks_for_fill_no_memory() {
    let mut rig = Rig::new("");
    for _ in 0..2 * CLIENTS_MAX {
        let be = rig.be("dying");
        rig.poll();
        rig.try_launch(&be, &COMPUTE).unwrap();
        rig.state.handle_death(rig.now_ns, rig.now_ns, be.client);
        rig.state.handle_detach(rig.now_ns, be.client);
    }
    assert_eq!(rig.state.take_deaths().len(), CLIENTS_MAX);
}

#[test]
fn a_process_that_lives_is_not_ending_and_one_that_waits_to_be_reaped_or_is_gone_is() {
    assert!(!Image::is_ending(std::process::id()));
    // Above every process id of Linux (2^22).
    assert!(Image::is_ending(1 << 30));
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    // Wait for its end without reaping it: the pidfd of a zombie is readable.
    let id = rustix::process::Pid::from_child(&child);
    let fd = rustix::process::pidfd_open(id, rustix::process::PidfdFlags::empty()).unwrap();
    let mut fds = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut fds, None).unwrap();
    assert!(Image::is_ending(pid));
    child.wait().unwrap();
}
