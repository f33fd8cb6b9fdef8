//! Streams, waves, priorities, copies, waits, and dying contexts, all contexts on the GPU at once.

mod common;

use common::{
    client, conv, copy_in, copy_out, drain, end_ns, fill_in, kernel, mps, norm, one_block, put,
    start_ns, v100, whole_gpu,
};
use softgpu::{
    Config, ContextId, ContextUtilisation, CopyDirection, Error, Gpu, KernelShape, Op, OpKind,
    StreamId,
};

const HIGH: i32 = -5;
const LOW: i32 = 0;

fn gpu() -> Gpu {
    Gpu::new(v100(), mps())
}

#[test]
fn a_stream_runs_one_operation_at_a_time_in_order() {
    let mut gpu = gpu();
    let (context, stream) = client(&mut gpu, LOW);
    let ops = [
        kernel(one_block(500)),
        copy_in(12_000),
        kernel(one_block(100)),
        Op::Marker,
    ];
    for (op, seq) in ops.into_iter().zip(1..) {
        assert_eq!(gpu.submit(0, stream, op), Ok(seq));
    }
    assert_eq!(
        (gpu.in_flight_kernels(context), gpu.in_flight_ops(context)),
        (2, 4)
    );
    let done = drain(&mut gpu);
    let times: Vec<_> = done
        .iter()
        .map(|c| (c.seq, c.started_ns, c.at_ns))
        .collect();
    assert_eq!(
        times,
        [
            (1, 0, 500),
            (2, 500, 2500),
            (3, 2500, 2600),
            (4, 2600, 2600)
        ]
    );
    assert_eq!(
        (gpu.in_flight_kernels(context), gpu.in_flight_ops(context)),
        (0, 0)
    );
    assert_eq!(
        (gpu.last_submitted(stream), gpu.last_completed(stream)),
        (Some(4), Some(4))
    );
}

#[test]
fn streams_of_all_contexts_overlap() {
    let mut gpu = gpu();
    let clients: Vec<_> = (0..10).map(|_| client(&mut gpu, LOW)).collect();
    for (_, stream) in &clients {
        put(&mut gpu, 7, *stream, kernel(one_block(1000)));
    }
    assert!(drain(&mut gpu).iter().all(|c| c.at_ns == 1007));
}

#[test]
fn a_kernel_alone_takes_its_solo_time() {
    for grid_blocks in [1, 79, 80, 81, 160, 161, 1000] {
        for (compute_demand, bandwidth_demand) in [(0.5, 0.5), (0.9, 1.4)] {
            let shape = KernelShape {
                grid_blocks,
                compute_demand,
                bandwidth_demand,
                ..norm()
            };
            let mut gpu = gpu();
            let (_, stream) = client(&mut gpu, LOW);
            put(&mut gpu, 0, stream, kernel(shape));
            assert_eq!(
                drain(&mut gpu)[0].at_ns,
                shape.solo_ns(&v100()).unwrap(),
                "{shape:?}"
            );
        }
    }
}

/// A best-effort kernel of 10 waves, and a high-priority kernel that arrives during its third.
fn end_of_late_kernel_ns(config: Config, launch_priority: Option<i32>) -> (u64, u64) {
    let mut gpu = Gpu::new(v100(), config);
    let (_, be) = client(&mut gpu, LOW);
    let (_, hp) = client(&mut gpu, if launch_priority.is_some() { LOW } else { HIGH });
    put(&mut gpu, 0, be, kernel(whole_gpu(10, 1000)));
    let op = Op::Kernel {
        shape: whole_gpu(1, 300),
        priority: launch_priority,
    };
    put(&mut gpu, 2500, hp, op);
    let done = drain(&mut gpu);
    (end_ns(&done, hp, 1), end_ns(&done, be, 1))
}

#[test]
fn a_kernel_of_higher_priority_gets_the_next_free_blocks() {
    assert_eq!(end_of_late_kernel_ns(mps(), None), (3300, 10_300));
    assert_eq!(end_of_late_kernel_ns(fill_in(), None), (3300, 10_300));
}

#[test]
fn the_launch_attribute_overrides_the_streams_priority() {
    assert_eq!(end_of_late_kernel_ns(mps(), Some(HIGH)), (3300, 10_300));
    assert_eq!(end_of_late_kernel_ns(mps(), Some(LOW)), (10_300, 10_000));
}

#[test]
fn without_block_priority_a_kernel_waits_until_earlier_ones_have_started() {
    let config = Config {
        block_priority: false,
        ..mps()
    };
    assert_eq!(end_of_late_kernel_ns(config, None), (10_300, 10_000));
}

#[test]
fn blocks_that_run_are_not_taken_off_for_a_higher_priority() {
    let mut gpu = gpu();
    let (_, be) = client(&mut gpu, LOW);
    let (_, hp) = client(&mut gpu, HIGH);
    put(&mut gpu, 0, be, kernel(whole_gpu(1, 10_000)));
    put(&mut gpu, 1, hp, kernel(one_block(10)));
    let done = drain(&mut gpu);
    assert_eq!(end_ns(&done, be, 1), 10_000);
    assert_eq!(
        start_ns(&done, hp, 1),
        10_000,
        "all registers of all SMs are taken"
    );
}

#[test]
fn equal_priorities_go_in_order_of_arrival_at_the_head() {
    let mut gpu = gpu();
    let (_, first) = client(&mut gpu, LOW);
    let (_, second) = client(&mut gpu, LOW);
    let (_, third) = client(&mut gpu, LOW);
    put(&mut gpu, 0, first, kernel(whole_gpu(1, 1000)));
    put(&mut gpu, 0, first, kernel(whole_gpu(1, 1000)));
    put(&mut gpu, 1, third, kernel(whole_gpu(1, 1000)));
    put(&mut gpu, 2, second, kernel(whole_gpu(1, 1000)));
    let order: Vec<_> = drain(&mut gpu)
        .iter()
        .map(|c| (c.stream, c.at_ns))
        .collect();
    assert_eq!(
        order,
        [(first, 1000), (third, 2000), (second, 3000), (first, 4000)]
    );
}

/// Many waves of one block per SM, and a kernel that would fit beside them.
fn start_of_small_kernel_ns(config: Config) -> u64 {
    let mut gpu = Gpu::new(v100(), config);
    let (_, many) = client(&mut gpu, LOW);
    let (_, small) = client(&mut gpu, LOW);
    let no_demand = KernelShape {
        compute_demand: 0.0,
        bandwidth_demand: 0.0,
        ..conv()
    };
    put(
        &mut gpu,
        0,
        many,
        kernel(KernelShape {
            grid_blocks: 240,
            block_ns: 1000,
            ..no_demand
        }),
    );
    put(&mut gpu, 1, small, kernel(one_block(10)));
    start_ns(&drain(&mut gpu), small, 1)
}

#[test]
fn a_kernel_starts_only_when_all_blocks_of_earlier_ones_have_started() {
    assert_eq!(start_of_small_kernel_ns(mps()), 2000);
}

#[test]
fn filling_in_lets_a_small_kernel_overtake() {
    assert_eq!(start_of_small_kernel_ns(fill_in()), 1);
}

#[test]
fn each_direction_copies_in_order_of_arrival_beside_the_other_and_beside_kernels() {
    let mut gpu = gpu();
    let (_, a) = client(&mut gpu, LOW);
    let (_, b) = client(&mut gpu, HIGH);
    let (_, c) = client(&mut gpu, HIGH);
    let (_, d) = client(&mut gpu, LOW);
    put(&mut gpu, 0, a, copy_in(120_000));
    put(&mut gpu, 0, b, copy_in(12_000));
    put(&mut gpu, 0, c, copy_out(12_000));
    put(&mut gpu, 0, d, kernel(whole_gpu(1, 5_000)));
    let done = drain(&mut gpu);
    assert_eq!(end_ns(&done, a, 1), 11_000);
    assert_eq!(
        (start_ns(&done, b, 1), end_ns(&done, b, 1)),
        (11_000, 13_000)
    );
    assert_eq!(end_ns(&done, c, 1), 2_000);
    assert_eq!(end_ns(&done, d, 1), 5_000);
    let used = gpu.utilisation();
    assert_eq!(
        (used.copy_to_device_ns, used.copy_to_host_ns),
        (13_000, 2_000)
    );
}

#[test]
fn copies_and_fills_inside_the_device_take_bandwidth_but_no_sm() {
    let bytes = 898 * 100_000;
    let end = |first: Op, second: Option<Op>| {
        let mut gpu = gpu();
        let (_, a) = client(&mut gpu, LOW);
        let (_, b) = client(&mut gpu, LOW);
        put(&mut gpu, 0, a, first);
        if let Some(op) = second {
            put(&mut gpu, 0, b, op);
        }
        end_ns(&drain(&mut gpu), a, 1)
    };
    let copy = Op::Copy {
        direction: CopyDirection::DeviceToDevice,
        bytes,
    };
    assert_eq!(end(Op::Memset { bytes }, None), 101_000);
    assert_eq!(end(copy.clone(), None), 201_000);
    assert_eq!(
        end(copy.clone(), Some(kernel(whole_gpu(1, 1_000_000)))),
        201_000
    );
    let beside_norm = end(copy, Some(kernel(norm())));
    assert!(
        beside_norm > 400_000,
        "{beside_norm}: 1.8 times the bandwidth is asked for"
    );
}

#[test]
fn a_copy_inside_the_device_does_not_wait_for_room_on_the_sms() {
    let mut gpu = gpu();
    let (_, a) = client(&mut gpu, LOW);
    let (_, b) = client(&mut gpu, LOW);
    put(&mut gpu, 0, a, kernel(whole_gpu(9, 10_000)));
    put(&mut gpu, 0, b, Op::Memset { bytes: 898 });
    assert_eq!(end_ns(&drain(&mut gpu), b, 1), 1_001);
}

#[test]
fn operations_of_no_bytes_complete_at_once_but_in_order() {
    let mut gpu = gpu();
    let (_, stream) = client(&mut gpu, LOW);
    put(&mut gpu, 0, stream, copy_in(0));
    assert_eq!(gpu.next_event_ns(), Some(0));
    assert_eq!(gpu.advance(0)[0].at_ns, 0);
    put(&mut gpu, 0, stream, kernel(one_block(100)));
    put(&mut gpu, 0, stream, Op::Memset { bytes: 0 });
    put(&mut gpu, 0, stream, copy_out(0));
    let ends: Vec<_> = drain(&mut gpu).iter().map(|c| (c.seq, c.at_ns)).collect();
    assert_eq!(ends, [(2, 100), (3, 100), (4, 100)]);
}

#[test]
fn a_marker_completes_with_what_is_before_it() {
    let mut gpu = gpu();
    let (_, stream) = client(&mut gpu, LOW);
    put(&mut gpu, 3, stream, Op::Marker);
    put(&mut gpu, 3, stream, kernel(one_block(100)));
    put(&mut gpu, 4, stream, Op::Marker);
    put(&mut gpu, 4, stream, kernel(one_block(100)));
    let ends: Vec<_> = drain(&mut gpu).iter().map(|c| (c.seq, c.at_ns)).collect();
    assert_eq!(ends, [(1, 3), (2, 103), (3, 103), (4, 203)]);
}

#[test]
fn a_hold_stops_its_stream_until_it_is_released_and_no_other() {
    let mut gpu = gpu();
    let (_, held) = client(&mut gpu, LOW);
    let (_, other) = client(&mut gpu, LOW);
    put(&mut gpu, 0, held, kernel(one_block(100)));
    let hold = put(&mut gpu, 0, held, Op::Hold);
    put(&mut gpu, 0, held, kernel(one_block(100)));
    put(&mut gpu, 0, other, kernel(one_block(100)));
    assert_eq!(gpu.advance(5000).len(), 2);
    assert_eq!(gpu.next_event_ns(), None);
    assert!(gpu.is_valid());
    gpu.release(6000, held, hold);
    let ends: Vec<_> = drain(&mut gpu).iter().map(|c| (c.seq, c.at_ns)).collect();
    assert_eq!(ends, [(2, 6000), (3, 6100)]);
    // Released before its turn, a hold takes no time.
    put(&mut gpu, 7000, held, kernel(one_block(100)));
    let hold = put(&mut gpu, 7000, held, Op::Hold);
    gpu.release(7000, held, hold);
    let ends: Vec<_> = drain(&mut gpu).iter().map(|c| c.at_ns).collect();
    assert_eq!(ends, [7100, 7100]);
}

#[test]
fn a_wait_holds_its_stream_until_the_other_operation_completes() {
    let mut gpu = gpu();
    let (_, a) = client(&mut gpu, LOW);
    let (_, b) = client(&mut gpu, LOW);
    put(&mut gpu, 0, a, kernel(one_block(1000)));
    let marker = put(&mut gpu, 0, a, Op::Marker);
    put(&mut gpu, 0, a, kernel(one_block(1000)));
    put(
        &mut gpu,
        0,
        b,
        Op::Wait {
            stream: a,
            seq: marker,
        },
    );
    put(&mut gpu, 0, b, kernel(one_block(10)));
    put(
        &mut gpu,
        0,
        b,
        Op::Wait {
            stream: a,
            seq: marker,
        },
    );
    put(&mut gpu, 0, b, Op::Wait { stream: b, seq: 1 });
    let done = drain(&mut gpu);
    assert_eq!(end_ns(&done, b, 1), 1000);
    assert_eq!(start_ns(&done, b, 2), 1000);
    assert_eq!(end_ns(&done, b, 4), 1010);
    assert_eq!(end_ns(&done, a, 3), 2000);
}

#[test]
fn a_wait_for_what_was_never_submitted_is_refused() {
    let mut gpu = gpu();
    let (_, a) = client(&mut gpu, LOW);
    let (_, b) = client(&mut gpu, LOW);
    let wait = |stream, seq| Op::Wait { stream, seq };
    let unknown = Error::UnknownOperation {
        stream: a,
        seq: 1,
        submitted: 0,
    };
    assert_eq!(gpu.submit(0, b, wait(a, 1)), Err(unknown));
    assert_eq!(
        gpu.submit(0, b, wait(StreamId(99), 1)),
        Err(Error::UnknownStream(StreamId(99)))
    );
    assert_eq!(
        gpu.submit(0, b, wait(b, 1)).unwrap_err().to_string(),
        "stream 2 has no operation 1: 0 operations were submitted"
    );
    assert_eq!(
        gpu.submit(0, b, wait(a, 0)),
        Ok(1),
        "what is before the first operation is complete"
    );
}

#[test]
fn a_destroyed_stream_takes_nothing_new_but_finishes() {
    let mut gpu = gpu();
    let (_, a) = client(&mut gpu, LOW);
    let (_, b) = client(&mut gpu, LOW);
    let seq = put(&mut gpu, 0, a, kernel(one_block(1000)));
    put(&mut gpu, 0, b, Op::Wait { stream: a, seq });
    gpu.destroy_stream(a).unwrap();
    assert_eq!(gpu.submit(0, a, Op::Marker), Err(Error::UnknownStream(a)));
    assert_eq!(gpu.destroy_stream(a), Err(Error::UnknownStream(a)));
    let done = drain(&mut gpu);
    assert_eq!((end_ns(&done, a, 1), end_ns(&done, b, 1)), (1000, 1000));
    assert_eq!(gpu.last_submitted(a), None);
    put(&mut gpu, 2000, b, Op::Wait { stream: a, seq });
    assert_eq!(
        end_ns(&drain(&mut gpu), b, 2),
        2000,
        "a stream that is gone holds nobody"
    );
}

#[test]
fn a_dead_contexts_work_vanishes_and_others_go_on() {
    let mut gpu = gpu();
    let (dead, a) = client(&mut gpu, LOW);
    let more = gpu.create_stream(dead, LOW).unwrap();
    let (_, b) = client(&mut gpu, LOW);
    let (_, c) = client(&mut gpu, LOW);
    let (_, d) = client(&mut gpu, LOW);
    put(&mut gpu, 0, a, kernel(whole_gpu(5, 1000)));
    put(&mut gpu, 0, more, copy_in(12_000_000));
    put(&mut gpu, 0, more, kernel(one_block(1)));
    put(&mut gpu, 0, b, kernel(one_block(100)));
    put(&mut gpu, 0, c, copy_in(12_000));
    put(&mut gpu, 0, d, Op::Wait { stream: a, seq: 1 });
    gpu.destroy_context(1500, dead).unwrap();
    assert!(gpu.is_valid());
    let done = drain(&mut gpu);
    assert!(done.iter().all(|completion| completion.context != dead));
    assert_eq!((start_ns(&done, b, 1), end_ns(&done, b, 1)), (1500, 1600));
    assert_eq!((start_ns(&done, c, 1), end_ns(&done, c, 1)), (1500, 3500));
    assert_eq!(end_ns(&done, d, 1), 1500);
    assert_eq!(gpu.in_flight_ops(dead), 0);
    assert_eq!(
        gpu.destroy_context(3500, dead),
        Err(Error::UnknownContext(dead))
    );
    assert_eq!(
        gpu.submit(3500, a, Op::Marker),
        Err(Error::UnknownStream(a))
    );
}

#[test]
fn completions_that_were_not_fetched_die_with_their_context() {
    let mut gpu = gpu();
    let (dead, a) = client(&mut gpu, LOW);
    let (_, b) = client(&mut gpu, LOW);
    put(&mut gpu, 0, a, kernel(one_block(10)));
    put(&mut gpu, 0, b, kernel(one_block(10)));
    gpu.destroy_context(20, dead).unwrap();
    let done = gpu.advance(20);
    assert_eq!(
        done.iter().map(|c| (c.stream, c.at_ns)).collect::<Vec<_>>(),
        [(b, 10)]
    );
}

#[test]
fn a_launch_that_does_not_fit_changes_nothing() {
    let mut gpu = gpu();
    let (context, stream) = client(&mut gpu, LOW);
    let refused = gpu.submit(
        0,
        stream,
        kernel(KernelShape {
            threads_per_block: 2048,
            ..conv()
        }),
    );
    assert!(matches!(
        refused,
        Err(Error::LaunchTooLarge {
            asked: 2048,
            available: 1024,
            ..
        })
    ));
    assert_eq!(gpu.in_flight_ops(context), 0);
    assert_eq!(gpu.submit(0, stream, kernel(conv())), Ok(1));
}

#[test]
fn utilisation_integrates_what_ran() {
    let mut gpu = gpu();
    let (_, stream) = client(&mut gpu, LOW);
    put(&mut gpu, 1000, stream, kernel(norm()));
    gpu.advance(1000 + common::NORM_NS / 2);
    assert_eq!(gpu.utilisation().busy_ns, common::NORM_NS / 2);
    drain(&mut gpu);
    let used = gpu.utilisation();
    assert_eq!(used.busy_ns, common::NORM_NS);
    assert_eq!(
        used.busy_sm_ns,
        64 * common::NORM_NS,
        "64 blocks spread over 64 SMs"
    );
    assert!(used.compute_ns.abs_diff(common::NORM_NS * 14 / 100) <= 1);
    assert!(used.bandwidth_ns.abs_diff(common::NORM_NS * 80 / 100) <= 1);
}

#[test]
fn a_context_is_busy_while_its_own_work_runs() {
    let mut gpu = gpu();
    let (a, first) = client(&mut gpu, LOW);
    let (b, second) = client(&mut gpu, LOW);
    put(&mut gpu, 0, first, kernel(norm()));
    put(
        &mut gpu,
        common::NORM_NS / 2,
        second,
        Op::Memset { bytes: 1 << 30 },
    );
    // The use of a running kernel is visible before its end.
    gpu.advance(common::NORM_NS / 2);
    let half = gpu.utilisation_of(a);
    assert_eq!(half.busy_ns, common::NORM_NS / 2);
    assert!(half.bandwidth_ns.abs_diff(half.busy_ns * 80 / 100) <= 1);
    assert_eq!(gpu.utilisation_of(b), ContextUtilisation::default());
    let done = drain(&mut gpu);
    let time_ns = |stream| end_ns(&done, stream, 1) - start_ns(&done, stream, 1);
    let (used_a, used_b, all) = (
        gpu.utilisation_of(a),
        gpu.utilisation_of(b),
        gpu.utilisation(),
    );
    assert_eq!(
        (used_a.busy_ns, used_b.busy_ns),
        (time_ns(first), time_ns(second))
    );
    assert!(
        all.busy_ns < used_a.busy_ns + used_b.busy_ns,
        "they overlap"
    );
    assert!((used_a.bandwidth_ns + used_b.bandwidth_ns).abs_diff(all.bandwidth_ns) <= 1);
    gpu.destroy_context(gpu.now_ns(), a).unwrap();
    assert_eq!(gpu.utilisation_of(a), ContextUtilisation::default());
}

#[test]
fn kinds_are_reported() {
    let mut gpu = gpu();
    let (_, stream) = client(&mut gpu, LOW);
    put(&mut gpu, 0, stream, copy_in(1));
    put(&mut gpu, 0, stream, Op::Memset { bytes: 1 });
    put(&mut gpu, 0, stream, Op::Wait { stream, seq: 1 });
    let kinds: Vec<_> = drain(&mut gpu).iter().map(|c| c.kind).collect();
    let copy = OpKind::Copy(CopyDirection::HostToDevice);
    assert_eq!(kinds, [copy, OpKind::Memset, OpKind::Wait]);
}

#[test]
#[should_panic(expected = "time goes back")]
fn time_does_not_go_back() {
    let mut gpu = gpu();
    gpu.advance(10);
    gpu.advance(9);
}

#[test]
fn a_context_with_a_limit_uses_so_many_sms_and_holds_back_only_itself() {
    let mut gpu = gpu();
    let (limited, [slow, behind]) = {
        let (context, stream) = client(&mut gpu, HIGH);
        (context, [stream, gpu.create_stream(context, HIGH).unwrap()])
    };
    let (free, stream) = client(&mut gpu, LOW);
    gpu.limit_sms(limited, 20).unwrap();
    // Each would fill the device; both of the limited context precede the other's.
    for stream in [slow, behind, stream] {
        put(&mut gpu, 0, stream, kernel(conv()));
    }
    let done = drain(&mut gpu);
    assert!(end_ns(&done, stream, 1) < end_ns(&done, slow, 1));
    assert!(start_ns(&done, stream, 1) == 0 && start_ns(&done, behind, 1) > 0);
    let used = [limited, free].map(|context| gpu.utilisation_of(context));
    assert_eq!(used[0].busy_sm_ns, 20 * used[0].busy_ns);
    assert!(used[1].busy_sm_ns > 20 * used[1].busy_ns);
    let all = gpu.utilisation().busy_sm_ns;
    assert!(all <= used[0].busy_sm_ns + used[1].busy_sm_ns);
    assert!(gpu.limit_sms(ContextId(99), 1).is_err());
}

#[test]
fn contexts_limited_from_both_ends_share_no_sm_and_wait_for_each_other_never() {
    let mut gpu = gpu();
    let (first, its) = client(&mut gpu, HIGH);
    let (last, others) = client(&mut gpu, LOW);
    let sms = gpu.device().sms;
    gpu.limit_sms_first(first, sms - 30).unwrap();
    gpu.limit_sms(last, 30).unwrap();
    for stream in [its, others] {
        put(&mut gpu, 0, stream, kernel(conv()));
    }
    let done = drain(&mut gpu);
    assert_eq!(
        [its, others].map(|stream| start_ns(&done, stream, 1)),
        [0; 2]
    );
    let used = [first, last].map(|context| gpu.utilisation_of(context));
    assert!(used[0].busy_sm_ns <= u64::from(sms - 30) * used[0].busy_ns);
    assert!(used[1].busy_sm_ns <= 30 * used[1].busy_ns);
    let all = gpu.utilisation().busy_sm_ns;
    assert_eq!(all, used[0].busy_sm_ns + used[1].busy_sm_ns);
    assert!(gpu.limit_sms_first(ContextId(99), 1).is_err());
}
