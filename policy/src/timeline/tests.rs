//! The timeline, by its public functions.

use proptest::prelude::*;

use super::*;
use crate::Class;

const COMPUTE: ClassSet = ClassSet::EMPTY.with(Class::Compute);
const MEMORY: ClassSet = ClassSet::EMPTY.with(Class::Memory);
const UNKNOWN: ClassSet = ClassSet::EMPTY.with(Class::Unknown);

fn launch(stream: u32, seq: u64, class: Class, expected_ns: u64) -> Launch {
    Launch {
        stream,
        seq,
        kernel: Kernel {
            class,
            sm_needed: 80,
            expected_ns,
        },
    }
}

/// The module's example: a 100 compute, b 50 memory, c 200 unknown, at 0.
fn three() -> HpTimeline {
    let mut timeline = HpTimeline::new();
    timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
    timeline.handle_launch(&launch(0, 2, Class::Memory, 50), 0);
    timeline.handle_launch(&launch(0, 3, Class::Unknown, 200), 0);
    timeline
}

fn executing(timeline: &mut HpTimeline, now_ns: u64) -> ClassSet {
    timeline.poll_view(now_ns).executing
}

#[test]
fn launches_execute_one_after_the_other_as_expected() {
    let mut timeline = three();
    assert_eq!(executing(&mut timeline, 0), COMPUTE);
    assert_eq!(executing(&mut timeline, 99), COMPUTE);
    assert_eq!(executing(&mut timeline, 100), MEMORY); // a ends: 0 + 100
    assert_eq!(executing(&mut timeline, 149), MEMORY);
    assert_eq!(executing(&mut timeline, 150), UNKNOWN); // b ends: 100 + 50
}

#[test]
fn the_last_launch_executes_until_its_completion_is_seen() {
    let mut timeline = three();
    // c is predicted to end at 150 + 200; an hour later it is still busy.
    assert_eq!(executing(&mut timeline, 3_600_000_000_000), UNKNOWN);
    assert!(timeline.is_busy());
    timeline.handle_complete(0, 3, 3_600_000_000_001);
    assert_eq!(
        timeline.poll_view(3_600_000_000_001).executing,
        ClassSet::EMPTY
    );
    assert!(!timeline.is_busy());
}

#[test]
fn a_launch_starts_no_earlier_than_it_arrives() {
    let mut timeline = HpTimeline::new();
    timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
    // a is predicted to end at 100, b arrives at 500, c with it: b 500..550.
    timeline.handle_launch(&launch(0, 2, Class::Memory, 50), 500);
    timeline.handle_launch(&launch(0, 3, Class::Compute, 10), 500);
    assert_eq!(executing(&mut timeline, 549), MEMORY);
    assert_eq!(executing(&mut timeline, 550), COMPUTE);
}

#[test]
fn an_early_completion_moves_the_prediction_forward() {
    let mut timeline = three();
    timeline.handle_complete(0, 1, 70);
    assert_eq!(executing(&mut timeline, 70), MEMORY); // b starts at 70
    assert_eq!(executing(&mut timeline, 119), MEMORY);
    assert_eq!(executing(&mut timeline, 120), UNKNOWN); // 70 + 50
}

#[test]
fn late_news_of_a_completion_leaves_the_prediction_where_it_was() {
    let mut timeline = three();
    timeline.handle_complete(0, 1, 130);
    assert_eq!(executing(&mut timeline, 149), MEMORY); // still 100..150
    assert_eq!(executing(&mut timeline, 150), UNKNOWN);
}

#[test]
fn every_busy_stream_executes_something() {
    let mut timeline = three();
    timeline.handle_launch(&launch(7, 1, Class::Memory, 120), 0);
    assert_eq!(executing(&mut timeline, 10), COMPUTE.union(MEMORY));
    assert_eq!(executing(&mut timeline, 110), MEMORY);
    assert_eq!(executing(&mut timeline, 200), MEMORY.union(UNKNOWN));
    timeline.handle_complete(7, 1, 210);
    assert_eq!(executing(&mut timeline, 210), UNKNOWN);
}

#[test]
fn a_completion_read_before_its_launch_counts() {
    let mut timeline = HpTimeline::new();
    timeline.handle_complete(0, 2, 5);
    timeline.handle_launch(&launch(0, 1, Class::Compute, 10), 5);
    timeline.handle_launch(&launch(0, 2, Class::Compute, 10), 5);
    assert!(!timeline.is_busy());
    timeline.handle_launch(&launch(0, 3, Class::Memory, 10), 6);
    assert_eq!(executing(&mut timeline, 6), MEMORY);
}

#[test]
fn launches_read_out_of_order_execute_in_order() {
    let mut timeline = HpTimeline::new();
    timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
    timeline.handle_launch(&launch(0, 3, Class::Unknown, 100), 0);
    timeline.handle_launch(&launch(0, 2, Class::Memory, 100), 1);
    assert_eq!(executing(&mut timeline, 150), MEMORY);
    assert_eq!(executing(&mut timeline, 250), UNKNOWN);
    timeline.handle_complete(0, 2, 260);
    assert_eq!(executing(&mut timeline, 260), UNKNOWN);
    timeline.handle_complete(0, 3, 270);
    assert!(!timeline.is_busy());
}

#[test]
fn a_launch_read_after_its_successor_started_is_believed_to_have_run() {
    let mut timeline = HpTimeline::new();
    timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
    timeline.handle_launch(&launch(0, 3, Class::Unknown, 100), 0);
    timeline.handle_launch(&launch(0, 4, Class::Compute, 100), 0);
    assert_eq!(executing(&mut timeline, 150), UNKNOWN);
    timeline.handle_launch(&launch(0, 2, Class::Memory, 100), 160);
    assert_eq!(executing(&mut timeline, 160), UNKNOWN);
    assert_eq!(executing(&mut timeline, 200), COMPUTE); // 100 + 100
}

#[test]
fn after_a_lost_record_nothing_known_executes_until_the_next_completion() {
    let mut timeline = HpTimeline::new();
    timeline.handle_dropped(10);
    let view = timeline.poll_view(1_000_000);
    assert!(view.busy && view.learning);
    assert_eq!(view.executing, HpView::NOTHING_KNOWN);
    timeline.handle_complete(0, 40, 1_000_001);
    assert!(!timeline.poll_view(1_000_001).busy);
    assert_eq!(timeline.requests.count, 0);
}

#[test]
fn what_is_in_flight_is_what_was_launched_and_is_not_complete() {
    let mut timeline = three();
    timeline.handle_launch(&launch(4, 9, Class::Memory, 1_000), 0);
    assert_eq!(timeline.in_flight(), (4, 1_350));
    timeline.handle_complete(0, 2, 20);
    assert_eq!(timeline.in_flight(), (2, 1_200));
    timeline.handle_dropped(30);
    timeline.handle_complete(4, 9, 40);
    timeline.handle_dropped(50);
    timeline.handle_complete(0, 3, 60);
    timeline.handle_dropped(70);
    assert_eq!((timeline.in_flight(), timeline.is_busy()), ((0, 0), true));
}

#[test]
fn what_is_known_stays_in_flight_beside_what_was_lost() {
    let mut timeline = three();
    timeline.handle_dropped(5);
    assert_eq!(executing(&mut timeline, 6), HpView::NOTHING_KNOWN);
    timeline.handle_complete(0, 1, 20);
    assert_eq!(executing(&mut timeline, 20), MEMORY);
    assert!(timeline.is_busy());
}

#[test]
fn a_stream_index_out_of_bounds_counts_as_lost() {
    let mut timeline = HpTimeline::new();
    timeline.handle_launch(&launch(STREAMS_MAX, 1, Class::Memory, 1), 0);
    assert_eq!(executing(&mut timeline, 1), HpView::NOTHING_KNOWN);
    timeline.handle_complete(u32::MAX, 1, 2);
    assert!(!timeline.is_busy());
}

#[test]
fn beyond_the_bound_the_oldest_merge_and_stay_busy_until_complete() {
    let mut timeline = HpTimeline::new();
    let count = LAUNCHES_MAX as u64 + 2;
    timeline.handle_launch(&launch(0, 1, Class::Compute, 10), 0);
    for seq in 2..=count {
        timeline.handle_launch(&launch(0, seq, Class::Memory, 10), 0);
    }
    assert_eq!(timeline.streams[0].entries.len(), LAUNCHES_MAX);
    // Numbers 1, 2, 3 are one entry of 30 ns, compute and memory.
    assert_eq!(executing(&mut timeline, 29), COMPUTE.union(MEMORY));
    assert_eq!(executing(&mut timeline, 30), MEMORY);
    timeline.handle_complete(0, 2, 31);
    assert_eq!(timeline.streams[0].entries.len(), LAUNCHES_MAX);
    timeline.handle_complete(0, 3, 32);
    assert_eq!(timeline.streams[0].entries.len(), LAUNCHES_MAX - 1);
    timeline.handle_complete(0, count, 33);
    assert!(!timeline.is_busy());
}

#[test]
fn a_client_that_keeps_all_streams_full_gets_only_so_much_room() {
    let mut timeline = HpTimeline::new();
    // A doubling past the bound, and four for each stream that had none.
    let most = ROOM_MAX + LAUNCHES_MAX + 4 * STREAMS_MAX as usize;
    let room = |timeline: &HpTimeline| {
        let streams = timeline.streams.iter();
        let room: usize = streams.map(|stream| stream.entries.capacity()).sum();
        assert_eq!(timeline.room, room);
        room
    };
    for round in 0..2 {
        for stream in 0..STREAMS_MAX {
            for n in 1..=200 {
                timeline.handle_launch(&launch(stream, round * 200 + n, Class::Memory, 10), 0);
            }
        }
        assert!(room(&timeline) <= most);
        // A merged entry is busy until its last launch is complete.
        for stream in 0..STREAMS_MAX {
            timeline.handle_complete(stream, round * 200 + 199, 1);
        }
        assert!(timeline.is_busy());
        for stream in 0..STREAMS_MAX {
            timeline.handle_complete(stream, round * 200 + 200, 2);
        }
        assert!(!timeline.is_busy() && room(&timeline) < ROOM_MAX);
    }
}

/// One request of `took_ns` on an idle client; returns its end.
fn request(timeline: &mut HpTimeline, seq: u64, start_ns: u64, took_ns: u64) -> u64 {
    timeline.handle_launch(&launch(0, seq, Class::Compute, 10), start_ns);
    timeline.handle_complete(0, seq, start_ns + took_ns);
    start_ns + took_ns
}

#[test]
fn latency_is_known_after_fifty_requests_and_is_their_lower_quartile() {
    let mut timeline = HpTimeline::new();
    assert!(!timeline.poll_view(0).learning);
    let mut now_ns = 0;
    for seq in 1..=50 {
        assert_eq!(timeline.latency_ns(), None);
        // 1000, 1001, … 1049: the 13th smallest (index 50 / 4 = 12) is 1012.
        now_ns = request(&mut timeline, seq, now_ns + 1, 999 + seq);
        assert_eq!(timeline.poll_view(now_ns).learning, seq < 50);
    }
    assert_eq!(timeline.latency_ns(), Some(1_012));
}

#[test]
fn two_disturbed_requests_of_three_do_not_move_the_latency() {
    let mut timeline = HpTimeline::new();
    let mut now_ns = 0;
    for seq in 1..=300 {
        let took_ns = if seq % 3 == 0 { 1_000 } else { 5_000 };
        now_ns = request(&mut timeline, seq, now_ns + 1, took_ns);
    }
    assert_eq!(timeline.latency_ns(), Some(1_000));
}

#[test]
fn old_requests_are_forgotten() {
    let mut timeline = HpTimeline::new();
    let mut now_ns = 0;
    for seq in 1..=400 {
        let took_ns = if seq <= 200 { 1_000 } else { 8_000 };
        now_ns = request(&mut timeline, seq, now_ns + 1, took_ns);
    }
    assert_eq!(timeline.latency_ns(), Some(8_000));
}

#[test]
fn a_request_lasts_from_the_first_launch_to_the_last_completion() {
    let mut timeline = HpTimeline::new();
    timeline.handle_launch(&launch(0, 1, Class::Compute, 10), 100);
    timeline.handle_launch(&launch(1, 1, Class::Memory, 10), 150);
    timeline.handle_complete(0, 1, 200);
    timeline.handle_launch(&launch(0, 2, Class::Compute, 10), 250);
    timeline.handle_complete(0, 2, 300);
    timeline.handle_complete(1, 1, 400);
    assert_eq!(timeline.requests.count, 1);
    assert_eq!(timeline.requests.took_ns[0], 300);
    // One poll brings both ends: no length was measured.
    request(&mut timeline, 3, 500, 0);
    assert_eq!(timeline.requests.count, 1);
    let ended = timeline.take_request();
    let expected = Request {
        began_ns: 100,
        ended_ns: 400,
        launches: 3,
        work_ns: 0,
        unsure_ns: 0,
    };
    assert_eq!(ended, Some(expected));
    assert_eq!(timeline.take_request(), None);
}

#[test]
fn requests_that_nobody_takes_are_bounded_and_the_youngest_stay() {
    let mut timeline = HpTimeline::new();
    let mut now_ns = 0;
    for seq in 1..=ENDED_MAX as u64 + 3 {
        now_ns = request(&mut timeline, seq, now_ns + 1, seq);
    }
    let first = timeline.take_request().expect("the oldest that is left");
    assert_eq!(first.took_ns(), 4);
    assert_eq!(timeline.ended.len(), ENDED_MAX - 1);
}

#[derive(Clone, Debug)]
enum Event {
    Launch {
        stream: u32,
        seq: u64,
        class: usize,
        expected_ns: u64,
    },
    Complete {
        stream: u32,
        seq: u64,
    },
    Dropped,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..3_u32, 1..40_u64, 0..3_usize, 0..100_u64).prop_map(
            |(stream, seq, class, expected_ns)| Event::Launch { stream, seq, class, expected_ns }
        ),
        3 => (0..3_u32, 1..40_u64).prop_map(|(stream, seq)| Event::Complete { stream, seq }),
        1 => Just(Event::Dropped),
    ]
}

proptest! {
    /// For any order of records the client is busy as long as a launch above its stream's last
    /// completion is known, and idle after everything was completed.
    #[test]
    fn busy_exactly_while_a_launch_is_not_known_to_be_complete(
        events in prop::collection::vec((0..50_u64, event()), 0..80),
    ) {
        let mut timeline = HpTimeline::new();
        let mut now_ns = 0;
        let mut done = [0_u64; 3];
        let mut last = [0_u64; 3];
        let mut lost = false;
        for (step_ns, event) in events {
            now_ns += step_ns;
            match event {
                Event::Launch { stream, seq, class, expected_ns } => {
                    let launch = launch(stream, seq, Class::ALL[class], expected_ns);
                    timeline.handle_launch(&launch, now_ns);
                    last[stream as usize] = last[stream as usize].max(seq);
                }
                Event::Complete { stream, seq } => {
                    timeline.handle_complete(stream, seq, now_ns);
                    done[stream as usize] = done[stream as usize].max(seq);
                    lost = false;
                }
                Event::Dropped => {
                    timeline.handle_dropped(now_ns);
                    lost = true;
                }
            }
            let view = timeline.poll_view(now_ns);
            prop_assert!(view.is_valid());
            let in_flight = (0..3).any(|stream| last[stream] > done[stream]);
            prop_assert_eq!(view.busy, in_flight || lost);
        }
        for stream in 0..3 {
            timeline.handle_complete(stream, 40, now_ns + 1);
        }
        prop_assert!(!timeline.is_busy());
    }
}

/// Completions of a client that never drains: 10 launches of 10 ms per `slower` × 100 ms.
fn training(timeline: &mut HpTimeline, from_ms: u64, to_ms: u64, slower: u64) {
    for at_ms in (from_ms..to_ms).step_by(10) {
        let seq = at_ms / 10;
        let at_ns = at_ms * slower * 1_000_000;
        timeline.handle_launch(&launch(0, seq + 20, Class::Compute, 10_000_000), at_ns);
        timeline.handle_complete(0, seq, at_ns);
    }
}

#[test]
fn a_client_that_never_drains_is_measured_in_pieces_after_a_second() {
    let mut timeline = HpTimeline::new();
    training(&mut timeline, 0, 1_000, 1);
    assert_eq!(timeline.take_request(), None);
    training(&mut timeline, 1_000, 1_310, 1);
    let pieces: Vec<Request> = std::iter::from_fn(|| timeline.take_request()).collect();
    // At 1000, 1100, 1200 and 1300 ms.
    assert_eq!(pieces.len(), 4);
    assert_eq!(pieces[1].took_ns(), 100_000_000);
    assert_eq!(
        (pieces[1].work_ns, pieces[1].launches),
        (100_000_000, u64::MAX)
    );
    assert!(
        pieces[1..]
            .iter()
            .all(|piece| piece.measure_ns().abs_diff(100_000_000) <= 10_000_000)
    );
    assert_eq!(timeline.poll_view(1_310_000_000).requests_least, 4);
    training(&mut timeline, 1_310, 1_700, 2);
    let last = std::iter::from_fn(|| timeline.take_request()).last();
    assert_eq!(last.map(|piece| piece.measure_ns()), Some(200_000_000));
    // A drain ends it, and the period is no request.
    timeline.handle_complete(0, 10_000, 3_500_000_000);
    assert_eq!(timeline.take_request(), None);
}

#[test]
fn a_launch_that_is_read_late_leaves_it_open_by_how_much_its_request_began_earlier() {
    let mut timeline = HpTimeline::new();
    let unsure_ns = |timeline: &mut HpTimeline| timeline.take_request().map(|r| r.unsure_ns);
    timeline.handle_launch_since(&launch(0, 1, Class::Compute, 30), 40, 100);
    timeline.handle_complete(0, 1, 150);
    assert_eq!(unsure_ns(&mut timeline), Some(30));
    timeline.handle_launch(&launch(0, 2, Class::Compute, 30), 200);
    timeline.handle_launch_since(&launch(0, 3, Class::Compute, 30), 200, 260);
    timeline.handle_complete(0, 3, 300);
    assert_eq!(unsure_ns(&mut timeline), Some(0));
}

#[test]
fn the_outlook_is_the_end_of_the_last_stream_and_the_first_change() {
    let mut timeline = HpTimeline::new();
    let idle = timeline.outlook(7, 1_000_000);
    assert_eq!(
        idle,
        Outlook {
            ends_ns: 7,
            changes_ns: u64::MAX
        }
    );
    timeline.handle_launch(&launch(0, 1, Class::Compute, 100), 0);
    timeline.handle_launch(&launch(0, 2, Class::Compute, 50), 0);
    timeline.handle_launch(&launch(1, 1, Class::Compute, 30), 10);
    let _ = timeline.poll_view(20);
    let outlook = timeline.outlook(20, 1_000_000);
    assert_eq!(
        outlook,
        Outlook {
            ends_ns: 150,
            changes_ns: 40
        }
    );
    // Beyond the search limit it is far off.
    assert_eq!(timeline.outlook(20, 120).ends_ns, u64::MAX);
    let _ = timeline.poll_view(110);
    assert_eq!(timeline.outlook(110, 1_000_000).changes_ns, 40);
    timeline.handle_complete(1, 1, 111);
    assert_eq!(timeline.outlook(111, 1_000_000).changes_ns, 150);
    let _ = timeline.poll_view(400);
    assert_eq!(timeline.outlook(400, 1_000_000).ends_ns, 400);
}

#[test]
fn kernels_of_the_same_classes_are_no_change() {
    let mut timeline = three();
    timeline.handle_launch(&launch(0, 4, Class::Unknown, 40), 0);
    timeline.handle_launch(&launch(0, 5, Class::Compute, 10), 0);
    let mut changes_ns = |now_ns| {
        let _ = timeline.poll_view(now_ns);
        timeline.outlook(now_ns, 1_000_000).changes_ns
    };
    assert_eq!(changes_ns(0), 100);
    assert_eq!(changes_ns(160), 390);
    assert_eq!(changes_ns(395), 400);
}
