//! A returning client finds what the previous daemon learnt of its marked requests.

use super::marks::{late_request, request};
use super::*;

const PILLION: &str = "name = \"pillion\"";
/// Enough to learn their duration alone.
const TAUGHT: u64 = 200;

fn taught() -> (Rig, Player, KeptRequests) {
    let (mut rig, _be, mut hp) = Rig::new(PILLION).with_two();
    assert_eq!(rig.state.learnt_after(0), Some((hp.client, None)));
    for id in 1..=TAUGHT {
        request(&mut rig, &mut hp, id, true);
    }
    late_request(&mut rig, &mut hp, TAUGHT + 1, 100 * MS);
    let (client, learnt) = rig.state.learnt_after(0).unwrap();
    assert_eq!(client, hp.client);
    assert!(
        rig.state.learnt_after(client).is_none(),
        "the other is best-effort"
    );
    (rig, hp, learnt.unwrap())
}

fn come_back(rig: &mut Rig, hp: &Player) -> Player {
    let again = hp.page_fd.try_clone().unwrap();
    let hp = rig.try_attach_with(JobClass::HighPriority, "serve", again);
    let hp = hp.unwrap();
    rig.poll();
    hp
}

#[test]
fn the_process_that_comes_back_has_its_level_and_another_one_begins_anew() {
    let (_before, hp, learnt) = taught();
    assert!(learnt.learnt.level < 0.0, "{learnt:?}");
    let mut rig = Rig::new(PILLION);
    let _be = rig.be("train");
    rig.state.expect_requests(rig.now_ns, vec![learnt.clone()]);
    let other = rig.hp("other");
    rig.poll();
    assert!(rig.state.gate.slo_view(other.client).is_none());
    assert_eq!(
        rig.state.expected_requests(rig.now_ns),
        std::slice::from_ref(&learnt)
    );

    let mut hp = come_back(&mut rig, &hp);
    let view = rig.state.gate.slo_view(hp.client).unwrap();
    let off = (view.level - learnt.learnt.level).abs();
    assert!(off < 1e-9 && view.requests == 0, "{view:?}");
    assert!(rig.state.expected_requests(rig.now_ns).is_empty());
    let (_, again) = rig.state.learnt_after(other.client).unwrap();
    assert_eq!(again.unwrap(), learnt);
    for id in 1..=20 {
        request(&mut rig, &mut hp, id, true);
    }
    let view = rig.state.gate.slo_view(hp.client).unwrap();
    assert_eq!(view.requests, 20, "{view:?}");
    let off = (view.level - learnt.learnt.level).abs();
    assert!(off < 0.05, "{view:?}");
}

#[test]
fn who_comes_after_a_minute_begins_anew() {
    let (_before, hp, learnt) = taught();
    let mut rig = Rig::new(PILLION);
    rig.state.expect_requests(rig.now_ns, vec![learnt]);
    rig.now_ns += 60_000 * MS;
    assert!(rig.state.expected_requests(rig.now_ns).is_empty());
    let hp = come_back(&mut rig, &hp);
    assert!(rig.state.gate.slo_view(hp.client).is_none());
}
