//! Properties of every workload, batch, device and precision.

use proptest::prelude::*;

use profiler::Trace;
use softgpu::{Device, KernelShape};
use workloads::{Error, LayerCounts, Precision, Workload};

fn shape_of(kernel: &profiler::TraceKernel) -> KernelShape {
    KernelShape {
        grid_blocks: u64::from(kernel.grid[0]),
        threads_per_block: kernel.block[0],
        registers_per_thread: kernel.registers,
        shared_bytes_per_block: kernel.shared_bytes,
        block_ns: kernel.block_ns,
        compute_demand: kernel.compute_demand.into(),
        bandwidth_demand: kernel.bandwidth_demand.into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_trace_is_read_back_and_runs_on_its_device(
        workload in prop::sample::select(Workload::all()),
        batch in 1u32..=128,
        device in prop::sample::select(Device::all()),
        is_fp16: bool,
    ) {
        let precision = if is_fp16 { Precision::Fp16 } else { Precision::Fp32 };
        let trace = workload.trace(Some(batch), &device, precision);
        if is_fp16 && device.compute_capability.major < 7 {
            let is_refused = matches!(trace, Err(Error::NoMatrixUnits { .. }));
            prop_assert!(is_refused);
            return Ok(());
        }
        let trace = trace.unwrap();
        let read = Trace::parse(&trace.write(), std::path::Path::new("computed")).unwrap();
        prop_assert_eq!(&read, &trace);
        for kernel in &trace.kernels {
            let shape = shape_of(kernel);
            prop_assert_eq!(shape.check(&device), Ok(()));
            prop_assert_eq!(shape.sm_needed(&device), Ok(kernel.sm_needed));
            // Whole ns for each wave, so the model's time is the computed one up to rounding.
            let waves = shape.waves(&device).unwrap();
            let model_ns = shape.block_ns * waves;
            prop_assert!(model_ns.abs_diff(kernel.duration_ns) <= waves, "{}", kernel.name);
        }
    }

    #[test]
    fn a_larger_batch_never_takes_less_time(
        workload in prop::sample::select(Workload::all()),
        batch in 1u32..=64,
        device in prop::sample::select(Device::all()),
    ) {
        let ns = |batch| workload.trace(Some(batch), &device, Precision::Fp32).unwrap().duration_ns_sum();
        // A larger product may happen to be cut more evenly: a little is allowed.
        let (one, two) = (ns(batch), ns(2 * batch));
        prop_assert!(two as f64 > 0.97 * one as f64, "{one} {two}");
    }
}

#[test]
fn every_workload_takes_time_at_its_default_batch() {
    for device in ["V100-SXM2-16GB", "A100-SXM4-40GB"] {
        let device = Device::by_name(device).expect("in the table");
        for workload in Workload::all() {
            let trace = workload.trace(None, &device, Precision::Fp32).unwrap();
            assert!(!trace.launches.is_empty(), "{workload}");
            let is_priced = |kernel: &profiler::TraceKernel| kernel.duration_ns > 1_000;
            assert!(trace.kernels.iter().all(is_priced), "{workload}");
        }
    }
}

#[test]
fn a_workload_counts_the_layers_of_its_network() {
    let counts = |name| Workload::by_name(name).unwrap().layer_counts();
    let resnet = counts("resnet50-training");
    assert_eq!(resnet, counts("resnet50-inference"));
    assert_eq!((resnet.convolution, resnet.fully_connected), (53, 1));
    assert_eq!(resnet.to_array().iter().sum::<u32>(), 53 + 53 + 49 + 4);
    for workload in Workload::all() {
        assert_ne!(
            workload.layer_counts(),
            LayerCounts::default(),
            "{workload}"
        );
    }
}

#[test]
fn a_workload_has_the_parameters_of_its_network() {
    let parameters = |name| Workload::by_name(name).unwrap().parameters();
    assert_eq!(parameters("yolov5n-inference"), 1_872_157);
    assert_eq!(parameters("yolov5x-inference"), 86_749_405);
    assert_eq!(
        parameters("resnet18-training"),
        parameters("resnet18-inference")
    );
}

#[test]
fn the_largest_pass_grows_with_the_batch_and_has_a_layers_outputs() {
    let numbers = |name, batch| {
        let workload = Workload::by_name(name).unwrap();
        workload.numbers_of_largest_pass(batch).unwrap()
    };
    // The normalisation of what the first convolution leaves: 64 x 112 x 112, read and written.
    assert!(numbers("resnet18-inference", 1) >= 2 * 64 * 112 * 112);
    assert!(numbers("resnet18-inference", 1) <= 4 * 64 * 112 * 112);
    assert_eq!(
        numbers("resnet18-inference", 8),
        8 * numbers("resnet18-inference", 1)
    );
    let workload = Workload::by_name("resnet18-inference").unwrap();
    let error = workload.numbers_of_largest_pass(0).unwrap_err().to_string();
    assert_eq!(error, "batch 0: expected 1 to 4096");
}

#[test]
fn networks_launch_as_many_convolutions_and_products_as_they_have() {
    // ResNet-50 has four projections beside its 50 layers; 17 of MobileNetV2's convolutions are
    // depthwise. Inception-v3: torchvision's `inception_v3` less the auxiliary classifier. A
    // training step does each three times, but the first convolution has no gradient of its input.
    for (name, convolutions, products) in [
        ("resnet18-training", 3 * (17 + 3) - 1, 3),
        ("squeezenet-training", 3 * (2 + 8 * 3) - 1, 0),
        ("resnet18-inference", 17 + 3, 1),
        ("resnet50-inference", 49 + 4, 1),
        ("wide-resnet101-inference", 100 + 4, 1),
        ("vgg16-inference", 13, 3),
        ("vgg19-inference", 16, 3),
        ("densenet201-inference", 200, 1),
        ("inceptionv3-inference", 94, 1),
        ("mobilenetv2-inference", 35 + 17, 1),
        ("yolos-small-inference", 1, 12 * 6 + 2 * 3),
        // Seven of stride 2, 46 in blocks, two of pooling, two that narrow, three of boxes.
        ("yolov5s-training", 3 * 60 - 1, 0),
        ("yolov5n-inference", 60, 0),
        // Four times the bottlenecks of two convolutions: 28 for 7 before the head, 16 for 4 in it.
        ("yolov5x-inference", 60 + 2 * (28 - 7 + 16 - 4), 0),
        ("bert-medium-inference", 0, 8 * (6 + 2) + 1),
        ("ncf-training", 0, 3 * 4),
        // Both views: five layers, what comes after them, and the comparison.
        ("gin-training", 0, 2 * 3 * (5 * 2 + 2 + 1)),
        // Each of two layers: inputs, then 35 steps; back 35 steps, inputs and two tensors.
        ("lstm-training", 0, 2 * (1 + 35 + 35 + 3) + 3),
    ] {
        assert_eq!(launched(name, "conv_"), convolutions, "{name}");
        assert_eq!(launched(name, "gemm"), products, "{name}");
    }
}

#[test]
fn concatenations_are_launches_and_shared_features_add_their_gradients() {
    // DenseNet-201: each layer concatenates, and each block at its end. The n-th layer of a block
    // takes n parts, each of which is taken again later: n gradients to add. Inception-v3: each
    // block concatenates, and the two at 8 x 8 twice more. A block of n branches adds n - 1
    // gradients of its input.
    let pairs = |layers: [usize; 4]| layers.map(|n| n * (n + 1) / 2).iter().sum::<usize>();
    for (network, concatenations, gradients) in [
        ("densenet201", 98 + 4, pairs([6, 12, 48, 32])),
        ("inceptionv3", 11 + 2 * 2, 9 * 3 + 2 * 2 + 2 * 2),
    ] {
        let training = format!("{network}-training");
        let inference = format!("{network}-inference");
        for name in [&inference, &training] {
            assert_eq!(launched(name, "concatenate"), concatenations, "{name}");
        }
        assert_eq!(launched(&training, "add_gradients"), gradients, "{network}");
    }
}

#[test]
fn blocks_that_end_with_a_concatenation_add_the_gradients_of_their_input() {
    // SqueezeNet: one of each in each of eight blocks. YOLOv5s: eight blocks, four joints of the
    // head and one of pooling concatenate; beside seven bottlenecks with a bypass, the inputs of
    // eight blocks and of three poolings and the six features that are taken twice add gradients.
    for (name, concatenations, gradients) in [
        ("squeezenet-training", 8, 8),
        ("yolov5s-training", 8 + 4 + 1, 7 + 8 + 3 + 6),
    ] {
        assert_eq!(launched(name, "concatenate"), concatenations, "{name}");
        assert_eq!(launched(name, "add_gradients"), gradients, "{name}");
    }
}

#[test]
fn a_graph_adds_rows_along_its_edges_in_both_views_and_directions() {
    // Forward five layers and the sum over each graph; backward the layers but the first.
    assert_eq!(launched("gin-training", "index_add"), 2 * (5 + 1 + 4));
    // Backward four layers of each view, then both views' gradients of 34 tensors.
    let tensors = 5 * (2 * 2 + 2) + 2 * 2;
    assert_eq!(launched("gin-training", "add_gradients"), 2 * 4 + tensors);
}

fn launched(workload: &str, family: &str) -> usize {
    let device = Device::by_name("T4").expect("in the table");
    let workload = Workload::by_name(workload).expect("built in");
    let trace = workload.trace(None, &device, Precision::Fp32);
    let trace = trace.expect("its default batch");
    let kernels = trace.launched();
    kernels
        .filter(|kernel| kernel.source_name.starts_with(family))
        .count()
}

#[test]
fn a_faster_device_is_faster() {
    let ms = |device: &str, precision| {
        let device = Device::by_name(device).unwrap();
        let workload = Workload::by_name("bert-large-inference").unwrap();
        workload
            .trace(Some(8), &device, precision)
            .unwrap()
            .duration_ns_sum()
            / 1_000
    };
    let [t4, v100, h100] =
        ["T4", "V100-SXM2-16GB", "H100-SXM5-80GB"].map(|d| ms(d, Precision::Fp32));
    assert!(h100 < v100 && v100 < t4, "{h100} {v100} {t4}");
    assert!(2 * ms("H100-SXM5-80GB", Precision::Fp16) < h100);
}

#[test]
fn mistakes_are_named_with_what_would_be_right() {
    let error = Workload::by_name("resnet50_inference")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("did you mean \"resnet50-inference\"?"),
        "{error}"
    );
    assert!(error.contains("gpt-1.3b-decode"), "{error}");
    let device = Device::by_name("T4").unwrap();
    let workload = Workload::by_name("resnet50-training").unwrap();
    for batch in [0, workloads::BATCH_MAX + 1] {
        let error = workload
            .trace(Some(batch), &device, Precision::Fp32)
            .unwrap_err();
        assert_eq!(error, Error::Batch { batch });
    }
}
