//! Streams find their slots, keep them, and give them up.

use core::sync::atomic::AtomicBool;

use client::slot_state::Rest;

use super::*;
use crate::progress::stream::Flavour;

const OWNER: Owner = Owner {
    context: Handle(8),
    client: 1,
    is_blocking: true,
};

fn place(streams: &Streams, stream: Stream) -> Option<u32> {
    streams.make(stream, OWNER)
}

fn existing(streams: &Streams, stream: Stream) -> Option<u32> {
    let context = match stream {
        Stream::Created(_) => Handle(0),
        _ => OWNER.context,
    };
    streams.find_key(stream.key(context))
}

fn handle(address: usize) -> CUstream {
    CUstream(core::ptr::without_provenance_mut(address))
}

fn created(address: usize) -> Stream {
    Stream::Created(handle(address))
}

#[test]
fn null_means_what_the_flavour_says_and_special_handles_what_they_say() {
    for flavour in [Flavour::Plain, Flavour::PerThread] {
        assert_eq!(Stream::of(CUstream::LEGACY, flavour), Stream::Legacy);
        assert_eq!(Stream::of(CUstream::PER_THREAD, flavour), Stream::PerThread);
    }
    assert_eq!(Stream::of(CUstream::NULL, Flavour::Plain), Stream::Legacy);
    assert_eq!(
        Stream::of(CUstream::NULL, Flavour::PerThread),
        Stream::PerThread
    );
}

#[test]
fn a_stream_keeps_its_slot_and_another_gets_another() {
    static STREAMS: Streams = Streams::new();
    let a = place(&STREAMS, created(64)).unwrap();
    let b = place(&STREAMS, created(128)).unwrap();
    let legacy = place(&STREAMS, Stream::Legacy).unwrap();
    let mine = place(&STREAMS, Stream::PerThread).unwrap();
    let others = std::thread::spawn(|| place(&STREAMS, Stream::PerThread).unwrap());
    let all = [a, b, legacy, mine, others.join().unwrap()];
    assert_eq!(all, [0, 1, 2, 3, 4]);
    assert_eq!(place(&STREAMS, created(64)).unwrap(), a);
    assert_eq!(existing(&STREAMS, created(128)), Some(b));
    assert_eq!(existing(&STREAMS, created(192)), None);
}

#[test]
fn a_slot_is_used_again_when_it_has_drained_and_its_counts_go_on() {
    static STREAMS: Streams = Streams::new();
    let a = place(&STREAMS, created(64)).unwrap();
    STREAMS.slot(a).unwrap().set_issued(5);
    assert_eq!(STREAMS.take_out(handle(64)), Some(a));
    assert_eq!(existing(&STREAMS, created(64)), None);
    assert_ne!(place(&STREAMS, created(64)).unwrap(), a);
    STREAMS.free(a);
    assert_eq!(place(&STREAMS, created(256)).unwrap(), a);
    assert_eq!(STREAMS.slot(a).unwrap().issued(), 5);
}

/// A helper that queries the driver about the stream uses its handle.
#[test]
fn a_stream_is_taken_out_once_no_helper_uses_it() {
    static STREAMS: Streams = Streams::new();
    static IS_USED: AtomicBool = AtomicBool::new(false);
    for rest in [Rest::Idle, Rest::Pending] {
        let slot = STREAMS.slot(place(&STREAMS, created(64)).unwrap()).unwrap();
        slot.event.turn.release(rest);
        let helper = std::thread::spawn(move || {
            assert!(slot.event.turn.try_take(rest));
            IS_USED.store(true, Ordering::SeqCst);
            while slot.state() == State::Live {
                std::thread::yield_now();
            }
            // Its call takes this long.
            let clock = Clock::monotonic();
            clock.sleep_until(clock.now_ns() + 5_000_000);
            IS_USED.store(false, Ordering::SeqCst);
            slot.event.turn.release(rest);
        });
        while !IS_USED.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let index = STREAMS.take_out(handle(64)).unwrap();
        assert!(!IS_USED.load(Ordering::SeqCst), "{rest:?}");
        helper.join().unwrap();
        assert_eq!(slot.event.is_pending(), rest == Rest::Pending);
        slot.event.turn.release(Rest::Idle);
        STREAMS.free(index);
    }
}

#[test]
fn streams_beyond_the_slots_overflow() {
    static STREAMS: Streams = Streams::new();
    for index in 0..OVERFLOW as usize {
        assert!(place(&STREAMS, created(64 * (index + 1))).is_some());
    }
    assert_eq!(place(&STREAMS, created(8)), None);
}

#[test]
fn slots_of_ended_threads_are_given_up_when_they_are_needed() {
    static STREAMS: Streams = Streams::new();
    let ended = std::thread::spawn(|| place(&STREAMS, Stream::PerThread).unwrap());
    let ended = ended.join().unwrap();
    for index in 1..OVERFLOW as usize {
        place(&STREAMS, created(64 * index)).unwrap();
    }
    // join returns when the thread's function has; the kernel may list the thread longer.
    while sys::is_thread_alive(
        STREAMS
            .slot(ended)
            .unwrap()
            .launched
            .owner
            .load(Ordering::Relaxed),
    ) {
        std::thread::yield_now();
    }
    assert_eq!(place(&STREAMS, created(8)).unwrap(), ended);
}

#[test]
fn a_destroyed_context_takes_its_streams_along() {
    static STREAMS: Streams = Streams::new();
    let a = place(&STREAMS, created(64)).unwrap();
    let legacy = place(&STREAMS, Stream::Legacy).unwrap();
    let context = OWNER.context.context();
    assert_eq!(STREAMS.take_out_context(context), [a, legacy]);
    for stream in [created(64), Stream::Legacy] {
        assert_eq!(existing(&STREAMS, stream), None);
    }
    STREAMS.free(legacy);
    assert_eq!(place(&STREAMS, Stream::Legacy).unwrap(), legacy);
}

#[test]
fn captures_are_counted_per_stream() {
    static STREAMS: Streams = Streams::new();
    let a = place(&STREAMS, created(64)).unwrap();
    STREAMS.set_capturing(a, true);
    STREAMS.set_capturing(a, true);
    assert!(STREAMS.is_capturing());
    STREAMS.take_out(handle(64));
    assert!(!STREAMS.is_capturing());
}

#[test]
fn captures_of_streams_without_a_slot_are_counted_and_end_like_others() {
    static STREAMS: Streams = Streams::new();
    let ends: [fn(usize); 2] = [
        |address| STREAMS.handle_capture_ended(created(address)),
        |address| _ = STREAMS.take_out(handle(address)),
    ];
    for end in ends {
        STREAMS.begin_capture(created(64), Place::Overflow);
        STREAMS.begin_capture(created(128), Place::Overflow);
        end(64);
        end(64);
        assert!(STREAMS.is_capturing());
        end(128);
        assert!(!STREAMS.is_capturing());
    }
    STREAMS.begin_capture(created(64), Place::Overflow);
    // The context of this one is unknown; it is kept without one.
    STREAMS.take_out_context(Handle(0).context());
    assert!(!STREAMS.is_capturing());
}

#[test]
fn launches_that_end_out_of_order_do_not_turn_the_count_back() {
    let slot = Slot::new();
    slot.set_issued(2);
    slot.set_issued(1);
    assert_eq!(slot.issued(), 2);
}

#[test]
fn marks_are_reached_once() {
    let slot = Slot::new();
    slot.set_issued(10);
    assert!(slot.is_in_flight());
    assert_eq!(slot.advance(7), 7);
    assert_eq!(slot.advance(5), 0);
    assert_eq!(slot.advance(10), 3);
    assert!(!slot.is_in_flight());
}
