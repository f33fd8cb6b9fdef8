//! The workloads beside Orion's recordings of the same networks on a V100. The recordings are not
//! part of the repository (`testing::data`).
#![expect(
    clippy::unwrap_used,
    reason = "tests, which Clippy does not know as such"
)]

#[macro_use]
extern crate testing;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use profiler::{ResourceClass, Trace};
use softgpu::Device;
use workloads::{Precision, Workload};

fn main() -> ExitCode {
    testing::main()
}

struct Pair {
    file: &'static str,
    workload: &'static str,
    batch: u32,
    /// The efficiencies were fitted to it.
    is_fitted: bool,
}

const PAIRS: [Pair; 10] = [
    pair("resnet50_4_fwd", "resnet50-inference", 4, true),
    pair("resnet50_32_fb1", "resnet50-training", 32, true),
    pair("bert_2_fwd", "bert-large-inference", 2, true),
    pair("bert_8_fb1", "bert-base-training", 8, true),
    pair("resnet101_4_fwd", "resnet101-inference", 4, false),
    pair("resnet101_32_fb1", "resnet101-training", 32, false),
    pair("mobilenetv2_4_fwd", "mobilenetv2-inference", 4, false),
    pair("mobilenetv2_32_fb1", "mobilenetv2-training", 32, false),
    pair("mobilenetv2_64_fb1", "mobilenetv2-training", 64, false),
    pair("mobilenetv2_96_fb1", "mobilenetv2-training", 96, false),
];

const fn pair(file: &'static str, workload: &'static str, batch: u32, is_fitted: bool) -> Pair {
    Pair {
        file,
        workload,
        batch,
        is_fitted,
    }
}

struct Totals {
    launches: usize,
    ms: f64,
    class_ms: [f64; 3],
}

impl Totals {
    fn of(trace: &Trace) -> Self {
        let ms = |class: Option<ResourceClass>| {
            let of_class = trace
                .launched()
                .filter(|kernel| class.is_none_or(|class| kernel.class == class));
            of_class.map(|kernel| kernel.duration_ns).sum::<u64>() as f64 / 1e6
        };
        Self {
            launches: trace.launches.len(),
            ms: ms(None),
            class_ms: ResourceClass::ALL.map(|class| ms(Some(class))),
        }
    }

    fn class_shares(&self) -> [f64; 3] {
        self.class_ms.map(|ms| ms / self.ms)
    }
}

fn both(folder: &Path, pair: &Pair) -> (Totals, Totals) {
    let recorded = Trace::read(&folder.join(pair.file)).expect("a published file");
    let device = Device::by_name("V100-SXM2-16GB").expect("in the table");
    let workload = Workload::by_name(pair.workload).expect("built in");
    let computed = workload.trace(Some(pair.batch), &device, Precision::Fp32);
    (
        Totals::of(&computed.expect("a batch in range")),
        Totals::of(&recorded),
    )
}

#[test]
fn every_recorded_network_is_near_in_time_launches_and_classes() {
    let folder = testing::data("orion/model_kernels");
    for pair in &PAIRS {
        let (computed, recorded) = both(&folder, pair);
        let time = computed.ms / recorded.ms;
        assert!(
            (0.75..=1.25).contains(&time),
            "{}: time x {time}",
            pair.file
        );
        let launches = computed.launches as f64 / recorded.launches as f64;
        assert!(
            (0.7..=1.3).contains(&launches),
            "{}: launches x {launches}",
            pair.file
        );
        let shares = computed.class_shares().into_iter();
        for (ours, theirs) in shares.zip(recorded.class_shares()) {
            let off = (ours - theirs).abs();
            assert!(off < 0.15, "{}: {ours} instead of {theirs}", pair.file);
        }
    }
}

#[test]
fn the_documented_table_is_what_comes_out() {
    let folder = testing::data("orion/model_kernels");
    let mut table = String::from(
        "| recording | workload | fitted | launches | recorded | time ms | recorded | off | \
         compute ms | recorded | memory ms | recorded | unknown ms | recorded |\n\
         |---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for pair in &PAIRS {
        let (computed, recorded) = both(&folder, pair);
        let off_pct = (computed.ms / recorded.ms - 1.0) * 100.0;
        let fitted = if pair.is_fitted { "yes" } else { "" };
        write!(
            table,
            "| {} | {} --batch {} | {fitted} | {} | {} | {:.2} | {:.2} | {off_pct:+.0} % |",
            pair.file,
            pair.workload,
            pair.batch,
            computed.launches,
            recorded.launches,
            computed.ms,
            recorded.ms,
        )
        .unwrap();
        for (ours, theirs) in computed.class_ms.iter().zip(recorded.class_ms) {
            write!(table, " {ours:.2} | {theirs:.2} |").unwrap();
        }
        table.push('\n');
    }
    let document = include_str!("../../docs/workloads.md");
    assert!(
        document.contains(&table),
        "docs/workloads.md must have this table:\n{table}"
    );
}
