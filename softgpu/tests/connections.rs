//! Streams that share the connections of their context.

mod common;

use common::{copy_in, drain, end_ns, kernel, mps, one_block, put, start_ns, v100};
use softgpu::{Completion, ContextId, Gpu, Op, StreamId};

fn gpu_with(connections: usize, streams: usize) -> (Gpu, ContextId, Vec<StreamId>) {
    let mut gpu = Gpu::new(v100(), mps());
    let context = gpu.create_context_with(connections);
    let new_stream = |_| gpu.create_stream(context, 0).expect("the context is new");
    let streams = (0..streams).map(new_stream).collect();
    (gpu, context, streams)
}

/// Two kernels of 1 µs on each stream, stream by stream.
fn two_kernels_each(connections: usize, streams: usize) -> (Vec<StreamId>, Vec<Completion>) {
    let (mut gpu, _, streams) = gpu_with(connections, streams);
    for &stream in &streams {
        put(&mut gpu, 0, stream, kernel(one_block(1000)));
        put(&mut gpu, 0, stream, kernel(one_block(1000)));
    }
    (streams, drain(&mut gpu))
}

#[test]
fn a_kernel_that_waits_for_its_turn_holds_back_what_is_behind_it_on_the_connection() {
    // Only starts are ordered: a kernel lets the next one start when it starts, not when it ends.
    let (streams, done) = two_kernels_each(1, 3);
    let starts = streams.iter().map(|&stream| start_ns(&done, stream, 1));
    assert_eq!(starts.collect::<Vec<_>>(), [0, 1000, 2000]);
    assert_eq!(end_ns(&done, streams[2], 2), 4000);
}

#[test]
fn streams_with_connections_of_their_own_do_not_wait_for_each_other() {
    for (connections, streams) in [(8, 1), (8, 8), (32, 32), (0, 40)] {
        let (_, done) = two_kernels_each(connections, streams);
        assert!(done.iter().all(|c| c.at_ns == 1000 * c.seq), "{streams}");
    }
}

#[test]
fn the_ninth_of_nine_streams_shares_the_connection_of_the_first() {
    let (streams, done) = two_kernels_each(8, 9);
    let starts = streams.iter().map(|&stream| start_ns(&done, stream, 1));
    assert_eq!(starts.collect::<Vec<_>>(), [0, 0, 0, 0, 0, 0, 0, 0, 1000]);
}

/// Whether a kernel of the last of `streams` streams ends while the first stream is held, and again
/// after all but these two streams were destroyed and one was created.
fn ends_beside_a_hold(streams: usize) -> [bool; 2] {
    let (mut gpu, context, streams) = gpu_with(8, streams);
    let (first, last) = (streams[0], streams[streams.len() - 1]);
    let hold = put(&mut gpu, 0, first, Op::Hold);
    assert!(gpu.is_held(first, hold));
    let seq = put(&mut gpu, 0, last, kernel(one_block(1000)));
    drain(&mut gpu);
    let is_early = gpu.last_completed(last) == Some(seq);
    for &stream in &streams[1..streams.len() - 1] {
        gpu.destroy_stream(stream).expect("the stream exists");
    }
    let new = gpu.create_stream(context, 0).expect("the context is there");
    let seq = put(&mut gpu, 5000, new, kernel(one_block(1000)));
    drain(&mut gpu);
    let is_new_early = gpu.last_completed(new) == Some(seq);
    gpu.release(9000, first, hold);
    drain(&mut gpu);
    assert_eq!(gpu.in_flight_ops(context), 0);
    [is_early, is_new_early]
}

#[test]
fn a_hold_stops_all_streams_of_its_connection_and_destroyed_streams_make_room() {
    assert_eq!(ends_beside_a_hold(8), [true, true]);
    assert_eq!(ends_beside_a_hold(9), [false, true]);
}

#[test]
fn a_hold_behind_others_on_its_connection_is_not_held_yet() {
    let (mut gpu, _, streams) = gpu_with(1, 2);
    let first = put(&mut gpu, 0, streams[0], Op::Hold);
    let second = put(&mut gpu, 0, streams[1], Op::Hold);
    assert!(!gpu.is_held(streams[1], second));
    gpu.release(10, streams[0], first);
    assert!(gpu.is_held(streams[1], second) && !gpu.is_held(streams[0], first));
}

#[test]
fn markers_waits_and_copies_take_their_turn_on_the_connection_too() {
    let behind = |op: fn(StreamId) -> Op| {
        let (mut gpu, _, streams) = gpu_with(1, 2);
        put(&mut gpu, 0, streams[0], kernel(one_block(1000)));
        put(&mut gpu, 0, streams[0], op(streams[0]));
        put(&mut gpu, 0, streams[1], kernel(one_block(10)));
        start_ns(&drain(&mut gpu), streams[1], 1)
    };
    assert_eq!(behind(|_| Op::Marker), 1000);
    assert_eq!(behind(|stream| Op::Wait { stream, seq: 1 }), 1000);
    assert_eq!(behind(|_| copy_in(12_000)), 1000);
}

#[test]
fn work_behind_that_of_a_destroyed_stream_goes_on_and_a_dead_context_holds_back_nobody() {
    let (mut gpu, context, streams) = gpu_with(1, 2);
    put(&mut gpu, 0, streams[0], kernel(one_block(1000)));
    put(&mut gpu, 0, streams[0], kernel(one_block(1000)));
    put(&mut gpu, 0, streams[1], kernel(one_block(1000)));
    gpu.destroy_stream(streams[0]).expect("the stream exists");
    let other = gpu.create_context_with(1);
    let waits = gpu.create_stream(other, 0).expect("the context is new");
    let (stream, seq) = (streams[1], 1);
    put(&mut gpu, 0, waits, Op::Wait { stream, seq });
    let done = drain(&mut gpu);
    assert_eq!(start_ns(&done, streams[1], 1), 1000);
    assert_eq!(end_ns(&done, waits, 1), 2000);
    put(&mut gpu, 3000, streams[1], Op::Hold);
    let (stream, seq) = (streams[1], 2);
    put(&mut gpu, 3000, waits, Op::Wait { stream, seq });
    gpu.destroy_context(4000, context).expect("it is there");
    assert_eq!(end_ns(&drain(&mut gpu), waits, 2), 4000);
}
