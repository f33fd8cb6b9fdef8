//! The synthetic traces of `examples/traces`, and their generator. With them tests replay something
//! short without measured data. They are invented: shaped like an inference request and a training
//! iteration, measured on nothing, and labelled so in the files. `PILLION_REGENERATE=1 cargo test
//! -p pillion-profiler --test synthetic` rewrites them.

use std::path::{Path, PathBuf};

use profiler::orion::Entry;
use profiler::{ResourceClass, Trace};

use ResourceClass::{Compute, Memory, Unknown};

type Step = (&'static str, ResourceClass, u32, u64);

const LABEL: &str = "\
# SYNTHETIC: invented for tests, measured on no device. Made by profiler/tests/synthetic.rs.
";

/// Five stages, each six pairs of compute- and memory-bound kernels, none fills the GPU; 3 ms.
fn inference() -> Trace {
    const STAGES: [(Step, Step); 5] = [
        (
            ("conv_stage1", Compute, 64, 92),
            ("norm_relu_stage1", Memory, 32, 38),
        ),
        (
            ("conv_stage2", Compute, 48, 85),
            ("norm_relu_stage2", Memory, 28, 34),
        ),
        (
            ("conv_stage3", Compute, 36, 70),
            ("norm_relu_stage3", Memory, 20, 30),
        ),
        (
            ("conv_stage4", Compute, 28, 60),
            ("norm_relu_stage4", Memory, 16, 26),
        ),
        (
            ("gemm_stage5", Compute, 20, 45),
            ("softmax_stage5", Memory, 10, 20),
        ),
    ];
    let steps = STAGES
        .iter()
        .flat_map(|&(compute, memory)| [compute, memory].repeat(6));
    trace("infer", steps)
}

const FORWARD: [[Step; 4]; 4] = [
    [
        ("conv_fwd", Compute, 392, 340),
        ("norm_fwd", Memory, 392, 190),
        ("relu_fwd", Memory, 320, 120),
        ("add_fwd", Unknown, 40, 30),
    ],
    [
        ("conv_fwd", Compute, 196, 300),
        ("norm_fwd", Memory, 196, 130),
        ("relu_fwd", Memory, 160, 80),
        ("add_fwd", Unknown, 20, 20),
    ],
    [
        ("conv_fwd", Compute, 98, 260),
        ("norm_fwd", Memory, 98, 80),
        ("relu_fwd", Memory, 80, 50),
        ("add_fwd", Unknown, 10, 12),
    ],
    [
        ("conv_fwd", Compute, 72, 180),
        ("norm_fwd", Memory, 49, 45),
        ("relu_fwd", Memory, 40, 30),
        ("add_fwd", Unknown, 5, 8),
    ],
];

const BACKWARD: [[Step; 5]; 4] = [
    [
        ("relu_bwd", Memory, 320, 150),
        ("norm_bwd", Memory, 392, 260),
        ("conv_dgrad", Compute, 392, 380),
        ("conv_wgrad", Compute, 256, 520),
        ("bias_grad", Memory, 64, 60),
    ],
    [
        ("relu_bwd", Memory, 160, 100),
        ("norm_bwd", Memory, 196, 180),
        ("conv_dgrad", Compute, 196, 330),
        ("conv_wgrad", Compute, 160, 430),
        ("bias_grad", Memory, 48, 45),
    ],
    [
        ("relu_bwd", Memory, 80, 60),
        ("norm_bwd", Memory, 98, 110),
        ("conv_dgrad", Compute, 98, 290),
        ("conv_wgrad", Compute, 112, 360),
        ("bias_grad", Memory, 32, 30),
    ],
    [
        ("relu_bwd", Memory, 40, 35),
        ("norm_bwd", Memory, 49, 60),
        ("conv_dgrad", Compute, 72, 200),
        ("conv_wgrad", Compute, 80, 240),
        ("bias_grad", Memory, 16, 20),
    ],
];

/// One iteration: 20 layers forward, back, and their update; 300 launches, 40 ms. As in measured
/// training jobs most of the time is in kernels that need more SMs than a V100 has.
fn training() -> Trace {
    const UPDATE: [Step; 6] = [
        ("cast", Unknown, 8, 25),
        ("orthogonalise", Compute, 56, 150),
        ("axpy", Memory, 32, 80),
        ("decay", Memory, 32, 70),
        ("momentum", Memory, 48, 120),
        ("step", Memory, 48, 120),
    ];
    const LAYERS_PER_STAGE: usize = 5;
    let forward = FORWARD
        .iter()
        .flat_map(|layer| layer.repeat(LAYERS_PER_STAGE));
    let backward = BACKWARD
        .iter()
        .rev()
        .flat_map(|layer| layer.repeat(LAYERS_PER_STAGE));
    let update = UPDATE.repeat(FORWARD.len() * LAYERS_PER_STAGE);
    trace("train", forward.chain(backward).chain(update))
}

fn trace(job: &str, steps: impl Iterator<Item = Step>) -> Trace {
    let entry = |(name, class, sm_needed, duration_us): Step| Entry {
        name: format!("synthetic_{job}_{name}"),
        class,
        sm_needed,
        duration_ns: duration_us * 1000,
    };
    Trace::from_orion(&steps.map(entry).collect::<Vec<_>>())
}

/// The text of a committed file: the canonical form with the label after its first line.
fn labelled(trace: &Trace) -> String {
    let text = trace.write();
    let (first, rest) = text.split_once('\n').expect("the first line is the format");
    format!("{first}\n{LABEL}{rest}")
}

fn path_of(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/traces")
        .join(file)
}

#[test]
fn the_committed_files_are_what_this_makes() {
    let files = [
        ("synthetic-inference.trace", inference()),
        ("synthetic-training.trace", training()),
    ];
    for (file, trace) in files {
        let path = path_of(file);
        if std::env::var_os("PILLION_REGENERATE").is_some_and(|value| value == "1") {
            std::fs::write(&path, labelled(&trace)).expect("the folder is in the repository");
        }
        let committed = std::fs::read_to_string(&path).expect("the file is in the repository");
        assert_eq!(
            committed,
            labelled(&trace),
            "{file}: see the top of this test"
        );
        assert_eq!(Trace::read(&path).expect("our own file"), trace);
    }
}

#[test]
fn an_inference_request_is_short_and_alternates_between_resources() {
    let trace = inference();
    assert_eq!(trace.launches.len(), 60);
    assert_eq!(trace.duration_ns_sum(), 3_000_000);
    let classes: Vec<ResourceClass> = trace.launched().map(|kernel| kernel.class).collect();
    assert!(classes.chunks(2).all(|pair| pair == [Compute, Memory]));
    assert!(trace.launched().all(|kernel| kernel.sm_needed <= 64));
}

#[test]
fn a_training_iteration_is_long_and_has_kernels_beyond_the_device_and_beside_it() {
    let trace = training();
    assert_eq!(trace.launches.len(), 300);
    assert_eq!(trace.duration_ns_sum(), 39_975_000);
    assert!(trace.launched().any(|kernel| kernel.duration_ns >= 500_000));
    let ns_where = |keep: &dyn Fn(u32) -> bool| -> u64 {
        let kept = trace.launched().filter(|kernel| keep(kernel.sm_needed));
        kept.map(|kernel| kernel.duration_ns).sum()
    };
    assert!(
        ns_where(&|sms| sms > 80) * 2 > trace.duration_ns_sum(),
        "most time beyond 80 SMs"
    );
    assert!(
        ns_where(&|sms| sms <= 80) * 4 > trace.duration_ns_sum(),
        "much time within 80 SMs"
    );
}
