//! DISB's facts: latencies of networks under TensorRT on an RTX 3080, solo and together
//! (`benchmarks/results` of SJTU-IPADS/disb, 2023): VGG-19 and ResNet-152, which make up workloads
//! A and B; the other three were not built in then. TensorRT fuses everything but products and
//! convolutions, so only those are launched, with times scaled so that a solo request takes the
//! report's time.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use softgpu::{Config, Device, KernelShape, Sharing};
use workloads::{Precision, Workload};

use crate::Change;
use crate::driver::{Job, launches, run, scaled};
use crate::fact::{Fact, Unused};

const CLIENTS: [(&str, &str); 2] = [
    ("vgg19_rt", "vgg19-inference"),
    ("resnet152_be", "resnet152-inference"),
];

const WORKLOADS: [(&str, Option<u64>); 2] =
    [("trt.A.json", Some(10_000_000)), ("trt.B.json", None)];

pub(crate) fn facts(data: &Path, change: Change<'_>) -> (Vec<Fact>, Vec<Unused>) {
    let device = rtx_3080();
    let mut facts = Vec::new();
    for (report, period_ns) in WORKLOADS {
        let text = std::fs::read_to_string(data.join("disb/results").join(report));
        let report_json: Value =
            serde_json::from_str(&text.expect("a published file")).expect("it is JSON");
        let reported = CLIENTS.map(|(client, _)| latencies_us(&report_json, client));
        let jobs: Vec<Job> = CLIENTS
            .iter()
            .zip(reported)
            .map(|(&(client, workload), (alone_us, _))| Job {
                launches: fused(workload, &device, alone_us * 1e3),
                between_ns: 0,
                period_ns: period_ns.filter(|_| client == "vgg19_rt"),
            })
            .collect();
        let config = change(Config::new(Sharing::Mps, &device));
        let outcomes = run(&device, config, &jobs, 3_000_000_000);
        for (((client, _), (_, shared_us)), outcome) in CLIENTS.iter().zip(reported).zip(outcomes) {
            facts.push(Fact {
                group: "DISB, RTX 3080",
                name: report.to_owned(),
                part: format!("{client}, ms"),
                measured: shared_us / 1e3,
                model: outcome.latency_ns_mean / 1e6,
            });
        }
    }
    let unused = vec![
        Unused {
            what: "DISB, TensorRT: workloads C, D, E, REAL".to_owned(),
            count: 36,
            why: "these were chosen before DenseNet-201 and Inception-v3 were built in, and DistilBERT's sequence is not told",
        },
        Unused {
            what: "DISB, Triton and TF-Serving".to_owned(),
            count: 80,
            why: "most of a request is the server's time on the host, and what runs on the GPU is not told",
        },
    ];
    (facts, unused)
}

fn latencies_us(report: &Value, client: &str) -> (f64, f64) {
    let results = report["results"].as_array().expect("a list of results");
    let result = results.iter().find(|result| result["clientName"] == client);
    let analyzer = &result.expect("the client is in it")["analyzers"][0];
    let us = |key: &str| analyzer[key].as_f64().expect("a number");
    (us("standAloneTotalLatency(us)"), us("avgTotalLatency(us)"))
}

fn fused(workload: &str, device: &Device, alone_ns: f64) -> Arc<[KernelShape]> {
    let workload = Workload::by_name(workload).expect("built in");
    let trace = workload.trace(Some(1), device, Precision::Fp32);
    let trace = trace.expect("a batch in range");
    let is_product = |name: &str| name.starts_with("conv") || name.starts_with("gemm");
    let products: Vec<KernelShape> = launches(&trace)
        .iter()
        .zip(trace.launched())
        .filter(|(_, kernel)| is_product(&kernel.source_name))
        .map(|(shape, _)| *shape)
        .collect();
    scaled(&products, device, alone_ns)
}

/// From NVIDIA's data sheet; the rest as an RTX 3090, the same architecture.
fn rtx_3080() -> Device {
    Device {
        name: "RTX-3080".to_owned(),
        sms: 68,
        bandwidth_gb_s: 760,
        max_clock_mhz: 1710,
        l2_bytes: 5 << 20,
        source: "vendor".to_owned(),
        ..Device::by_name("RTX-3090").expect("in the table")
    }
}
