//! Properties of any run: random contexts, streams and operations, in every mode. The seed is
//! fixed, so that a run repeats; a failure prints the smallest script that shows it.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::v100;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use softgpu::{
    Completion, Config, Contention, ContextId, CopyDirection, Device, Dispatch, Governor, Gpu,
    KernelShape, Op, Sharing, StreamId, TraceClass, Utilisation, shape_of_trace_entry,
};

/// One call of a random caller, and its distance from the previous call.
#[derive(Clone, Debug)]
struct Step {
    after_ns: u64,
    /// Instants at which an impatient caller also advances, in parts of 256.
    looks: Vec<u8>,
    call: Call,
}

#[derive(Clone, Debug)]
enum Call {
    Submit(usize, Op),
    /// Stream `.0` waits for the last operation of stream `.1`.
    WaitFor(usize, usize),
    DestroyStream(usize),
    DestroyContext(usize),
}

#[derive(Debug, PartialEq)]
struct Outcome {
    completions: Vec<Completion>,
    utilisation: Utilisation,
    /// Every accepted operation: (context, stream, number), with the operation and its time.
    submitted: BTreeMap<(ContextId, StreamId, u64), (Op, u64)>,
    dead: BTreeSet<ContextId>,
}

#[derive(Clone, Copy, PartialEq)]
enum Caller {
    Attentive,
    /// Also advances at other instants than events.
    Impatient,
    Absent,
    /// Advances from completion to completion, and prepares each kernel.
    Prepared,
}

/// Use at the previous check.
#[derive(Default)]
struct Meter {
    at_ns: u64,
    used: Utilisation,
}

impl Meter {
    /// Rates are constant between two events, so the use since the last one, never more than the
    /// device has, holds at each instant of it.
    fn check(&mut self, gpu: &Gpu) {
        let (at_ns, used) = (gpu.now_ns(), gpu.utilisation());
        let past_ns = at_ns - self.at_ns;
        let last = &self.used;
        let sm_ns = used.busy_sm_ns - last.busy_sm_ns;
        assert!(sm_ns <= past_ns * u64::from(gpu.device().sms), "SMs");
        for (now, before, of) in [
            (used.busy_ns, last.busy_ns, "time"),
            (used.compute_ns, last.compute_ns, "arithmetic"),
            (used.bandwidth_ns, last.bandwidth_ns, "bandwidth"),
            (used.copy_to_device_ns, last.copy_to_device_ns, "one engine"),
            (
                used.copy_to_host_ns,
                last.copy_to_host_ns,
                "the other engine",
            ),
        ] {
            assert!(
                now - before <= past_ns,
                "{of}: {} in {past_ns}",
                now - before
            );
        }
        *self = Self { at_ns, used };
    }
}

fn run(config: Config, script: &[Step], caller: Caller) -> Outcome {
    let mut gpu = Gpu::new(v100(), config);
    let mut streams = Vec::new();
    // Streams with connections of their own, and streams that share one.
    for (priority, connections, sms_max) in [(0, 0, 80), (-1, 1, 80), (-5, 2, 30)] {
        let context = gpu.create_context_with(connections);
        gpu.limit_sms(context, sms_max).expect("the context is new");
        for _ in 0..2 {
            let stream = gpu
                .create_stream(context, priority)
                .expect("the context is new");
            streams.push((context, stream));
        }
    }
    let mut outcome = Outcome {
        completions: Vec::new(),
        utilisation: Utilisation::default(),
        submitted: BTreeMap::new(),
        dead: BTreeSet::new(),
    };
    let (mut now_ns, mut meter) = (0, Meter::default());
    for step in script {
        pass_time(&mut gpu, now_ns, step, caller, &mut meter, &mut outcome);
        now_ns += step.after_ns;
        make_call(&mut gpu, now_ns, &streams, &step.call, caller, &mut outcome);
        assert!(gpu.is_valid(), "after {step:?}");
    }
    while let Some(event_ns) = gpu.next_event_ns() {
        outcome.completions.extend(gpu.advance(event_ns));
        meter.check(&gpu);
        assert!(gpu.is_valid(), "at {event_ns}");
    }
    outcome.utilisation = gpu.utilisation();
    outcome
}

fn pass_time(
    gpu: &mut Gpu,
    from_ns: u64,
    step: &Step,
    caller: Caller,
    meter: &mut Meter,
    outcome: &mut Outcome,
) {
    let to_ns = from_ns + step.after_ns;
    match caller {
        Caller::Absent => {}
        Caller::Prepared => {
            let mut completions = Vec::new();
            while gpu.advance_to_completion(to_ns, &mut completions) < to_ns {
                assert!(gpu.is_valid(), "before {to_ns}");
            }
            outcome.completions.append(&mut completions);
        }
        Caller::Attentive => {
            while let Some(event_ns) = gpu.next_event_ns().filter(|&event_ns| event_ns <= to_ns) {
                outcome.completions.extend(gpu.advance(event_ns));
                meter.check(gpu);
            }
        }
        Caller::Impatient => {
            let mut looks: Vec<u8> = step.looks.clone();
            looks.sort_unstable();
            for part in looks {
                let look_ns = from_ns + step.after_ns * u64::from(part) / 256;
                outcome.completions.extend(gpu.advance(look_ns));
                meter.check(gpu);
                assert!(gpu.is_valid(), "at {look_ns}");
            }
        }
    }
}

fn make_call(
    gpu: &mut Gpu,
    now_ns: u64,
    streams: &[(ContextId, StreamId)],
    call: &Call,
    caller: Caller,
    outcome: &mut Outcome,
) {
    let (index, op) = match *call {
        Call::DestroyStream(index) => {
            // A stream of a dead context, or one destroyed before, is refused.
            let _refused = gpu.destroy_stream(streams[index].1);
            return;
        }
        Call::DestroyContext(index) => {
            let context = streams[index].0;
            if gpu.destroy_context(now_ns, context).is_ok() {
                outcome.dead.insert(context);
            }
            return;
        }
        Call::Submit(index, ref op) => (index, op.clone()),
        Call::WaitFor(index, other) => {
            let stream = streams[other].1;
            (
                index,
                Op::Wait {
                    stream,
                    seq: gpu.last_submitted(stream).unwrap_or(0),
                },
            )
        }
    };
    let (context, stream) = streams[index];
    let given = match &op {
        Op::Kernel { shape, priority } if caller == Caller::Prepared => {
            gpu.prepare(shape).map(|kernel| Op::Prepared {
                kernel,
                priority: *priority,
            })
        }
        _ => Ok(op.clone()),
    };
    if let Ok(seq) = given.and_then(|given| gpu.submit(now_ns, stream, given)) {
        outcome
            .submitted
            .insert((context, stream, seq), (op, now_ns));
    }
}

fn check(device: &Device, config: Config, outcome: &Outcome) {
    let ends: BTreeMap<_, _> = outcome
        .completions
        .iter()
        .map(|c| ((c.context, c.stream, c.seq), *c))
        .collect();
    assert_eq!(
        ends.len(),
        outcome.completions.len(),
        "nothing completes twice"
    );
    assert!(
        outcome.completions.is_sorted_by_key(|c| c.at_ns),
        "in order of time"
    );
    let mut busy_until: BTreeMap<StreamId, u64> = BTreeMap::new();
    for (key, (op, submitted_ns)) in &outcome.submitted {
        let Some(end) = ends.get(key) else {
            assert!(outcome.dead.contains(&key.0), "{key:?} {op:?} was lost");
            continue;
        };
        let free_ns = busy_until.insert(key.1, end.at_ns).unwrap_or(0);
        assert!(
            end.started_ns >= free_ns.max(*submitted_ns),
            "{key:?} overtook"
        );
        assert_eq!(end.kind, op.kind());
        match op {
            Op::Kernel { shape, .. } => {
                let least_ns = shape.waves(device).expect("it was taken") * shape.block_ns;
                assert!(
                    end.at_ns - end.started_ns >= least_ns,
                    "{key:?} was too fast"
                );
            }
            Op::Wait { stream, seq } => {
                let awaited = outcome
                    .completions
                    .iter()
                    .find(|c| (c.stream, c.seq) == (*stream, *seq));
                assert!(awaited.is_none_or(|awaited| awaited.at_ns <= end.at_ns));
            }
            Op::Prepared { .. } => unreachable!("what is kept is what was meant"),
            Op::Copy { .. } | Op::Memset { .. } | Op::Marker | Op::Hold => {}
        }
    }
    for key in ends.keys() {
        assert!(
            outcome.submitted.contains_key(key),
            "{key:?} came from nowhere"
        );
    }
    check_work(device, config, outcome);
}

/// The work done equals the work requested: nothing is lost or done twice.
fn check_work(device: &Device, config: Config, outcome: &Outcome) {
    let used = outcome.utilisation;
    assert!(used.busy_sm_ns <= used.busy_ns * u64::from(device.sms));
    if !outcome.dead.is_empty() {
        return;
    }
    assert!(used.busy_ns <= outcome.completions.last().map_or(0, |c| c.at_ns));
    let (mut asked_ns, mut cohorts) = (0.0, 1.0);
    for (op, _) in outcome.submitted.values() {
        if let Op::Kernel { shape, .. } = op {
            let wave = u64::from(shape.blocks_per_sm(device)) * u64::from(device.sms);
            let resident = shape.grid_blocks.min(wave) as f64;
            let waves = shape.grid_blocks as f64 / resident;
            asked_ns += shape.compute_demand * waves * shape.block_ns as f64;
            // Blocks that start separately end separately, each rounded by up to 1 ns.
            cohorts += shape.grid_blocks as f64;
        }
    }
    let end_ns = outcome.completions.last().map_or(0, |c| c.at_ns);
    assert!(used.compute_ns <= end_ns, "{used:?} in {end_ns}");
    assert!(used.bandwidth_ns <= end_ns, "{used:?} in {end_ns}");
    let error_ns = (used.compute_ns as f64 - asked_ns).abs();
    assert!(
        error_ns <= cohorts,
        "{} done, {asked_ns} asked, {config:?}",
        used.compute_ns
    );
}

fn config() -> impl Strategy<Value = Config> {
    let sharing = prop_oneof![Just(Sharing::Mps), Just(Sharing::TimeSlice)];
    let dispatch = prop_oneof![Just(Dispatch::HeadOfLine), Just(Dispatch::FillIn)];
    let switch_ns = prop_oneof![Just(0), Just(777), Just(64_000)];
    let slice_ns = prop_oneof![Just(10_000), Just(2_000_000)];
    let times = (switch_ns, slice_ns, prop_oneof![Just(0), Just(1_400)]);
    let switches = any::<[bool; 2]>();
    (sharing, dispatch, times, switches).prop_map(|(sharing, dispatch, times, switches)| {
        // A limit that nearly any load exceeds.
        let usual = Governor::of(&v100());
        let governor = Governor {
            limit_w: usual.tdp_w * 0.2,
            ..usual
        };
        Config {
            sharing,
            slice_ns: times.1,
            context_switch_ns: times.0,
            launch_gap_ns: times.2,
            block_priority: switches[0],
            dispatch,
            contention: Contention::CALIBRATED,
            governor: switches[1].then_some(governor),
        }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let priority = prop_oneof![4 => Just(None), 1 => (-5..=0).prop_map(Some)];
    let bytes = prop_oneof![Just(0), 1..5_000_000_u64];
    let direction = prop_oneof![
        Just(CopyDirection::HostToDevice),
        Just(CopyDirection::DeviceToHost),
        Just(CopyDirection::DeviceToDevice),
    ];
    prop_oneof![
        8 => (shape(), priority).prop_map(|(shape, priority)| Op::Kernel { shape, priority }),
        2 => (direction, bytes.clone()).prop_map(|(direction, bytes)| Op::Copy { direction, bytes }),
        1 => bytes.prop_map(|bytes| Op::Memset { bytes }),
        1 => Just(Op::Marker),
    ]
}

fn shape() -> impl Strategy<Value = KernelShape> {
    let class = prop_oneof![
        Just(TraceClass::Compute),
        Just(TraceClass::Memory),
        Just(TraceClass::Unknown)
    ];
    let traced = (class, 1..500_u32, 1_000..300_000_u64)
        .prop_map(|(class, sms, duration_ns)| shape_of_trace_entry(class, sms, duration_ns));
    let free = (
        1..2000_u64,
        1..=1024_u32,
        0..=64_u32,
        0..=90_000_u32,
        1..40_000_u64,
        0.0..1.5,
        0.0..1.5,
    );
    let free = free.prop_map(
        |(grid_blocks, threads, registers, shared, block_ns, compute, bandwidth)| KernelShape {
            grid_blocks,
            threads_per_block: threads,
            registers_per_thread: registers,
            shared_bytes_per_block: shared,
            block_ns,
            compute_demand: compute,
            bandwidth_demand: bandwidth,
        },
    );
    prop_oneof![traced, free]
}

fn step(deaths: u32) -> impl Strategy<Value = Step> {
    let call = prop_oneof![
        40 => (0..6_usize, op()).prop_map(|(stream, op)| Call::Submit(stream, op)),
        8 => (0..6_usize, 0..6_usize).prop_map(|(stream, other)| Call::WaitFor(stream, other)),
        deaths => (0..6_usize).prop_map(Call::DestroyStream),
        deaths => (0..6_usize).prop_map(Call::DestroyContext),
    ];
    let after_ns = prop_oneof![3 => Just(0), 2 => 0..1_000_u64, 2 => 0..200_000_u64];
    let looks = prop::collection::vec(any::<u8>(), 0..4);
    (after_ns, looks, call).prop_map(|(after_ns, looks, call)| Step {
        after_ns,
        looks,
        call,
    })
}

fn test_config() -> ProptestConfig {
    ProptestConfig {
        cases: 100,
        rng_seed: RngSeed::Fixed(0x0070_696c_6c69_6f6e),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(test_config())]

    #[test]
    fn every_operation_completes_once_in_order_and_does_its_work(
        config in config(),
        script in prop::collection::vec(step(0), 1..60),
    ) {
        check(&v100(), config, &run(config, &script, Caller::Attentive));
    }

    #[test]
    fn only_work_of_dead_contexts_is_lost(
        config in config(),
        script in prop::collection::vec(step(1), 1..60),
    ) {
        check(&v100(), config, &run(config, &script, Caller::Attentive));
    }

    #[test]
    fn when_the_caller_looks_changes_nothing(
        config in config(),
        script in prop::collection::vec(step(0), 1..60),
    ) {
        let attentive = run(config, &script, Caller::Attentive);
        prop_assert_eq!(&attentive, &run(config, &script, Caller::Attentive));
        prop_assert_eq!(&attentive, &run(config, &script, Caller::Impatient));
        prop_assert_eq!(&attentive, &run(config, &script, Caller::Absent));
        prop_assert_eq!(&attentive, &run(config, &script, Caller::Prepared));
    }
}
