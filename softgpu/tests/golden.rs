//! The frozen model: a few runs must end exactly as they did at the freeze.

mod common;

use common::{client, copy_in, copy_out, kernel, put, v100};
use softgpu::{
    Config, Dispatch, Gpu, MODEL_VERSION, Op, Sharing, TraceClass, shape_of_trace_entry,
};

const OPS: u64 = 400;

/// Name of the run, completion time of the last operation, and a hash of all completions.
const GOLDEN: [(&str, u64, u64); 4] = [
    ("mps", 82_132_767, 7_189_122_599_746_067_405),
    ("mps, no priorities", 81_758_394, 800_485_868_569_351_888),
    ("mps, filling in", 76_822_564, 8_487_856_768_562_791_203),
    ("time slices", 111_986_018, 14_499_404_079_238_232_592),
];

#[test]
fn frozen_runs_end_as_they_did() {
    let of = |sharing| Config::new(sharing, &v100());
    let configs = [
        of(Sharing::Mps),
        Config {
            block_priority: false,
            ..of(Sharing::Mps)
        },
        Config {
            dispatch: Dispatch::FillIn,
            ..of(Sharing::Mps)
        },
        of(Sharing::TimeSlice),
    ];
    let runs: Vec<_> = configs.into_iter().map(run).collect();
    let found: Vec<_> = GOLDEN
        .iter()
        .zip(runs)
        .map(|(&(name, ..), (end_ns, hash))| (name, end_ns, hash))
        .collect();
    assert_eq!(
        found, GOLDEN,
        "the model's results have changed, and model {MODEL_VERSION} is frozen: policies were compared \
         and tuned on it.\nIf only speed was meant, the change is wrong. If the model is to change, that \
         is a commit of its own: raise MODEL_VERSION, put these numbers here, let \
         `cargo test -p pillion-sim --test calibration` say what docs/model.md must hold, and give the \
         table of `pillion simulate --suite orion` before and after in the commit's message."
    );
}

/// Three clients with kernels of all classes and sizes, copies, fills and pauses.
fn run(config: Config) -> (u64, u64) {
    let mut gpu = Gpu::new(v100(), config);
    let streams = [-5, 0, 0].map(|priority| client(&mut gpu, priority).1);
    let mut random = 1_u64;
    let mut next = move |below: u64| {
        // Knuth's MMIX generator; its high bits are the good ones.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (mut now_ns, mut end_ns, mut hash) = (0, 0, 0xcbf2_9ce4_8422_2325_u64);
    for _ in 0..OPS {
        for stream in streams {
            let op = match next(20) {
                0 => copy_in(1 + next(2_000_000)),
                1 => copy_out(1 + next(2_000_000)),
                2 => Op::Memset {
                    bytes: 1 + next(50_000_000),
                },
                class => {
                    let classes = [TraceClass::Compute, TraceClass::Memory, TraceClass::Unknown];
                    let class = classes[(class % 3) as usize];
                    let sms = u32::try_from(1 + next(300)).expect("at most 300");
                    kernel(shape_of_trace_entry(class, sms, 2_000 + next(200_000)))
                }
            };
            put(&mut gpu, now_ns, stream, op);
        }
        now_ns += next(300_000);
    }
    while let Some(event_ns) = gpu.next_event_ns() {
        for done in gpu.advance(event_ns) {
            end_ns = done.at_ns;
            for word in [done.stream.0, done.seq, done.started_ns, done.at_ns] {
                hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    (end_ns, hash)
}
