//! Orion's facts: Table 2 (two kernels side by side) and Table 4 (training alone), on a V100.

use std::path::Path;

use profiler::Trace;
use softgpu::{Config, Device, Gpu, KernelShape, Op, Sharing, TraceClass, shape_of_trace_entry};

use crate::Change;
use crate::driver::{Job, launches, run};
use crate::fact::{Fact, Unused};

type Entry = (TraceClass, u32, u64);

/// Conv2d on all SMs, and BN2d on 40 % of them (§3.2 of the paper).
const CONV: Entry = (TraceClass::Compute, 80, 1_350_000);
const NORM: Entry = (TraceClass::Memory, 32, 930_000);

const SPEED_UPS: [(&str, [Entry; 2], f64); 3] = [
    ("Conv2d beside Conv2d", [CONV, CONV], 0.98),
    ("BN2d beside BN2d", [NORM, NORM], 1.08),
    ("Conv2d beside BN2d", [CONV, NORM], 1.41),
];

/// Recordings and training iterations per second on a dedicated GPU.
const DEDICATED: [(&str, &str, f64); 4] = [
    ("ResNet50 of 32", "resnet50_32_fb1", 10.3),
    ("MobileNetV2 of 64", "mobilenetv2_64_fb1", 12.5),
    ("ResNet101 of 32", "resnet101_32_fb1", 6.3),
    ("BERT-base of 8", "bert_8_fb1", 4.91),
];

pub(crate) fn table_2(device: &Device, change: Change<'_>) -> Vec<Fact> {
    let facts = SPEED_UPS.iter().map(|&(name, kernels, measured)| {
        let shapes = kernels.map(|(class, sms, ns)| shape_of_trace_entry(class, sms, ns));
        let config = change(Config::new(Sharing::Mps, device));
        let in_turn_ns = makespan_ns(device, config, shapes, false);
        Fact {
            group: crate::TABLE_2,
            name: name.to_owned(),
            part: "speed-up".to_owned(),
            measured,
            model: in_turn_ns as f64 / makespan_ns(device, config, shapes, true) as f64,
        }
    });
    facts.collect()
}

fn makespan_ns(
    device: &Device,
    config: Config,
    shapes: [KernelShape; 2],
    side_by_side: bool,
) -> u64 {
    let mut gpu = Gpu::new(device.clone(), config);
    let context = gpu.create_context();
    let mut stream = || gpu.create_stream(context, 0).expect("the context is new");
    let streams = [stream(), stream()];
    for (index, shape) in shapes.into_iter().enumerate() {
        let stream = streams[if side_by_side { index } else { 0 }];
        let op = Op::Kernel {
            shape,
            priority: None,
        };
        gpu.submit(0, stream, op).expect("it fits a V100");
    }
    let mut end_ns = 0;
    while let Some(event_ns) = gpu.next_event_ns() {
        end_ns = gpu
            .advance(event_ns)
            .last()
            .map_or(end_ns, |done| done.at_ns);
    }
    end_ns
}

pub(crate) fn table_4(data: &Path, device: &Device, change: Change<'_>) -> Vec<Fact> {
    let facts = DEDICATED.iter().map(|&(name, file, measured)| {
        let trace = Trace::read(&data.join("orion/model_kernels").join(file));
        let job = Job {
            launches: launches(&trace.expect("a published file")),
            between_ns: 0,
            period_ns: None,
        };
        let config = change(Config::new(Sharing::Mps, device));
        let outcome = run(device, config, &[job], 3_000_000_000);
        Fact {
            group: crate::TABLE_4,
            name: name.to_owned(),
            part: "iterations/s".to_owned(),
            measured,
            model: outcome[0].requests_per_s,
        }
    });
    facts.collect()
}

pub(crate) fn unused() -> Vec<Unused> {
    vec![
        Unused {
            what: "Orion, Table 4: Transformer alone".to_owned(),
            count: 1,
            why: "no recording of its training is there, and no such network is built in",
        },
        Unused {
            what: "Orion, Table 4 collocated, Figures 7 to 14".to_owned(),
            count: 0,
            why: "outcomes of policies: what the simulator is to reproduce, so nothing is fitted to them",
        },
        Unused {
            what: "Orion, sample results of its repository".to_owned(),
            count: 4,
            why: "which jobs, rates and policy they are of is not recorded",
        },
    ]
}
