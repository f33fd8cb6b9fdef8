//! Durations of requests, in the status.

use proptest::prelude::*;
use protocol::record::{Begin, End};

use super::marks::{begin, end, job, request};
use super::*;

fn told(rig: &Rig) -> Value {
    job(rig)["requests"].clone()
}

fn with_hp(keys: &str) -> (Rig, Player) {
    let (rig, _be, hp) = Rig::new(keys).with_two();
    (rig, hp)
}

/// A marked request of a kind, from begin to end, alone on the GPU.
fn run_kind(rig: &mut Rig, hp: &Player, id: u64, kind: u32, took_ns: u64, is_cancelled: bool) {
    let at_ns = rig.now_ns;
    hp.push(&Record::Begin(Begin {
        id,
        kind,
        batch: 1,
        arrived_ns: at_ns,
        at_ns,
        is_nvtx: false,
    }));
    rig.poll();
    rig.now_ns += took_ns;
    hp.push(&Record::End(End {
        id,
        at_ns: rig.now_ns,
        is_cancelled,
        with_launches: false,
    }));
    rig.poll();
}

#[test]
fn marked_requests_count_from_the_first_on_and_inferred_ones_not_beside_them() {
    for policy in ["name = \"pillion\"", "name = \"orion\"", "name = \"none\""] {
        let (mut rig, mut hp) = with_hp(policy);
        assert_eq!(told(&rig), Value::Null);
        for id in 1..=40 {
            request(&mut rig, &mut hp, id, true);
            let told = told(&rig);
            assert_eq!(told["count"], id, "{policy}");
            assert_eq!(told["sum_ns"], id * 10 * MS, "{policy}");
        }
        let told = told(&rig);
        assert_eq!(told["kinds"].as_array().unwrap().len(), 1);
        assert_eq!(told["kinds"][0]["count"], 40);
        let below = |le_ns: u64| {
            let buckets = told["buckets"].as_array().unwrap();
            let bucket = buckets.iter().find(|bucket| bucket["le_ns"] == le_ns);
            bucket.unwrap()["count"].as_u64().unwrap()
        };
        assert_eq!(
            (below(5 * MS), below(10 * MS), below(5_000 * MS)),
            (0, 40, 40)
        );
    }
}

#[test]
fn inferred_requests_count_until_the_program_marks_one_and_when_it_has_stopped_to() {
    let (mut rig, mut hp) = with_hp("name = \"pillion\"");
    for id in 1..=20 {
        request(&mut rig, &mut hp, id, false);
    }
    assert_eq!(told(&rig)["count"], 20);
    assert_eq!(told(&rig)["kinds"], Value::Array(Vec::new()));
    request(&mut rig, &mut hp, 21, true);
    request(&mut rig, &mut hp, 22, false);
    assert_eq!(told(&rig)["count"], 21);
    rig.poll_after(10_000 * MS);
    request(&mut rig, &mut hp, 23, false);
    assert_eq!(told(&rig)["count"], 22);
    assert_eq!(told(&rig)["target_ns"], Value::Null);
}

#[test]
fn the_first_four_kinds_have_a_record_each_and_others_share_one() {
    let (mut rig, hp) = with_hp("name = \"orion\"");
    for (id, kind) in [7, 3, 3, 9, 0, 4, 11].into_iter().enumerate() {
        run_kind(&mut rig, &hp, id as u64 + 1, kind, 2 * MS, false);
    }
    let told = told(&rig);
    let kinds = told["kinds"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds
        .map(|of| (of["kind"].as_u64(), of["count"].as_u64().unwrap()))
        .collect();
    let others = [
        (Some(7), 1),
        (Some(3), 2),
        (Some(9), 1),
        (Some(0), 1),
        (None, 2),
    ];
    assert_eq!(kinds, others);
    assert_eq!(told["count"], 7);
}

#[test]
fn a_cancelled_request_is_no_duration_and_one_that_was_late_by_then_is_over_its_target() {
    let (mut rig, mut hp) = with_hp("name = \"pillion\"\nslo_p99 = \"20ms\"");
    for id in 1..=600 {
        request(&mut rig, &mut hp, id, true);
    }
    let before = told(&rig);
    assert_eq!(before["target_ns"], 20 * MS, "{before}");
    assert_eq!(
        (&before["over_target"], &before["within_target"]),
        (&0.into(), &1.0.into())
    );
    run_kind(&mut rig, &hp, 601, 0, 15 * MS, true);
    let counts = |told: &Value| {
        ["count", "sum_ns", "judged", "over_target"].map(|name| told[name].as_u64().unwrap())
    };
    assert_eq!(counts(&told(&rig)), counts(&before));
    run_kind(&mut rig, &hp, 602, 0, 25 * MS, true);
    let after = told(&rig);
    assert_eq!(after["count"], before["count"]);
    assert_eq!(after["over_target"], 1);
    let judged = |told: &Value| told["judged"].as_u64().unwrap();
    assert_eq!(judged(&after), judged(&before) + 1);
    // Requests that ended before their target was known are not judged.
    assert!(judged(&before) > 400 && judged(&before) < 600, "{before}");
}

#[test]
fn quantiles_are_of_the_last_minute_and_sums_of_the_whole_life() {
    let (mut rig, hp) = with_hp("name = \"none\"");
    for id in 1..=10 {
        run_kind(&mut rig, &hp, id, 0, 100 * MS, false);
    }
    for id in 11..=1510 {
        run_kind(&mut rig, &hp, id, 0, 50 * MS, false);
    }
    let later = told(&rig);
    assert_eq!(later["count"], 1510);
    assert_eq!(later["sum_ns"], (10 * 100 + 1500 * 50) * MS);
    let near = |value: &Value, ns: u64| value.as_u64().unwrap().abs_diff(ns) <= ns / 100;
    assert!(near(&later["recent"]["p99_ns"], 50 * MS), "{later}");
    let over_ns = later["recent"]["over_ns"].as_u64().unwrap();
    assert!((60_000 * MS..=65_000 * MS).contains(&over_ns), "{later}");
    let recent = later["recent"]["count"].as_u64().unwrap();
    assert!(recent.abs_diff(over_ns / (50 * MS)) <= 1, "{later}");
    rig.poll_after(66_000 * MS);
    let rest = told(&rig);
    assert_eq!(rest["count"], 1510);
    assert_eq!(
        (&rest["recent"]["count"], &rest["recent"]["p99_ns"]),
        (&0.into(), &Value::Null)
    );
}

#[test]
fn a_job_that_has_ended_keeps_its_last_minute_and_goes_on_if_it_comes_again() {
    let (mut rig, hp) = with_hp("name = \"pillion\"");
    run_kind(&mut rig, &hp, 1, 0, 30 * MS, false);
    hp.push(&begin(2, rig.now_ns));
    rig.poll();
    rig.state.handle_detach(rig.now_ns, hp.client);
    rig.now_ns += 600_000 * MS;
    let ended = told(&rig);
    assert_eq!(
        (&ended["count"], &ended["recent"]["count"]),
        (&1.into(), &1.into())
    );
    let hp = rig.hp("serve");
    run_kind(&mut rig, &hp, 1, 0, 40 * MS, false);
    hp.push(&end(2, rig.now_ns));
    rig.poll();
    let again = told(&rig);
    assert_eq!(
        (&again["count"], &again["sum_ns"]),
        (&2.into(), &(70 * MS).into())
    );
    let be = rig.status(Viewer::Operator)["jobs"][0].clone();
    assert_eq!(be["requests"], Value::Null);
}

#[test]
fn what_a_client_says_last_is_counted_though_it_has_gone() {
    let (mut rig, hp) = with_hp("name = \"pillion\"");
    let began_ns = rig.now_ns;
    hp.push(&begin(1, began_ns));
    rig.poll_after(MS);
    rig.now_ns += 4 * MS;
    hp.push(&end(1, rig.now_ns));
    rig.state.handle_detach(rig.now_ns, hp.client);
    let told = told(&rig);
    assert_eq!(
        (&told["count"], &told["sum_ns"]),
        (&1.into(), &(5 * MS).into())
    );
}

#[test]
fn a_request_that_begins_in_the_ns_in_which_one_ends_has_waited_for_it() {
    let (mut rig, hp) = with_hp("name = \"pillion\"\nslo_p99 = \"1.5x\"");
    for pair in 0..200 {
        let arrived_ns = rig.now_ns;
        for nth in 0..2 {
            let mut record = begin(2 * pair + nth + 1, rig.now_ns);
            if let Record::Begin(begin) = &mut record {
                begin.arrived_ns = arrived_ns;
            }
            hp.push(&record);
            rig.poll();
            rig.now_ns += 10 * MS;
            hp.push(&end(2 * pair + nth + 1, rig.now_ns));
        }
        rig.poll_after(20 * MS);
    }
    // Every second one takes 20 ms alone, as here.
    assert_eq!(told(&rig)["target_ns"], 30 * MS);
    hp.push(&begin(1000, rig.now_ns));
    hp.push(&end(1000, rig.now_ns));
    rig.poll_after(MS);
    assert_eq!(told(&rig)["count"], 401);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sums_are_exact_and_quantiles_within_a_hundredth(
        took_us in prop::collection::vec(1u64..3_000_000, 1..400)
    ) {
        let mut requests = Requests::default();
        for (id, took_us) in took_us.iter().enumerate() {
            let (id, at_ns) = (id as u64, 5_000_000 * MS + id as u64 * MS);
            requests.handle_begin(1, id, 0, at_ns - took_us * US);
            requests.handle_end(1, id, at_ns, false, None);
        }
        let all = requests.all();
        prop_assert_eq!(all.count, took_us.len() as u64);
        prop_assert_eq!(all.sum_ns, took_us.iter().sum::<u64>() * US);
        for (le_ns, count) in all.cumulative() {
            let below = took_us.iter().filter(|us| **us * US <= le_ns).count();
            prop_assert_eq!(count, below as u64);
        }
        let mut sorted = took_us.clone();
        sorted.sort_unstable();
        let recent = all.recent(5_000_400 * MS);
        for (of, told_ns) in [(0.5, recent.p50_ns), (0.99, recent.p99_ns)] {
            let rank = ((sorted.len() as f64 * of).ceil() as usize).max(1);
            let exact_ns = (sorted[rank - 1] * US) as f64;
            let off = told_ns.unwrap() as f64 / exact_ns - 1.0;
            prop_assert!((0.0..=0.01).contains(&off), "{off}: {told_ns:?} of {exact_ns}");
        }
    }
}
