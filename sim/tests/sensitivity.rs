//! How far results depend on the model's assumptions: each halved and doubled, one at a time.
//! Orion's recordings of ResNet-50 (a V100) are looked up in `PILLION_DATA`, by default
//! `../shared/data` beside the workspace; without them the built-in workloads are used. With
//! `PILLION_CALIBRATION=all` `docs/model.md`'s table is recomputed, longer.

#[macro_use]
extern crate testing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use profiler::Trace;
use sim::{Arrivals, Experiment, HostModel, Job, JobClass, JobKind, NoObserver, PolicySpec};
use softgpu::{Config, Contention, Device, Dispatch, LAUNCH_GAP_NS, Sharing};
use workloads::{Precision, Workload};

fn main() -> ExitCode {
    testing::main()
}

struct Assumption {
    name: &'static str,
    gpu: Config,
    host: HostModel,
}

struct Row {
    hp_p99: f64,
    be_per_s: f64,
    be_share: f64,
}

#[test]
fn orion_protects_whatever_assumption_is_moved() {
    for assumption in assumptions() {
        let [mps, orion] = ["mps", "orion"].map(|policy| row(&assumption, policy, 10));
        let name = assumption.name;
        assert!(orion.hp_p99 < 1.25, "{name}: {} times solo", orion.hp_p99);
        assert!(orion.hp_p99 < mps.hp_p99, "{name}");
        assert!(orion.be_share > 0.5, "{name}: {}", orion.be_share);
    }
}

#[test]
fn the_documented_table_of_what_results_owe_to_assumptions_is_what_comes_out() {
    const POLICIES: [&str; 4] = ["mps", "mps-priority", "reef-n", "orion"];
    if std::env::var_os("PILLION_CALIBRATION").is_none_or(|value| value != "all") {
        testing::ignore("it takes minutes: PILLION_CALIBRATION=all runs it");
    }
    testing::data("orion/model_kernels");
    let mut table = format!(
        "| moved | {} |\n|---|--:|--:|--:|--:|\n",
        POLICIES.join(" | ")
    );
    let mut beside = String::new();
    for assumption in assumptions() {
        let cells = POLICIES.map(|policy| {
            let row = row(&assumption, policy, 120);
            format!("{:.2}, {:.2}", row.hp_p99, row.be_per_s)
        });
        let line = format!("| {} | {} |\n", assumption.name, cells.join(" | "));
        let is_documented = !assumption.name.contains("poll");
        let rows = if is_documented {
            &mut table
        } else {
            &mut beside
        };
        rows.push_str(&line);
    }
    println!("{table}{beside}");
    let document = include_str!("../../docs/model.md");
    assert!(
        document.contains(&table),
        "docs/model.md must have this table:\n{table}"
    );
}

/// ResNet-50 of 4 images, 15 random requests a second, beside ResNet-50's training of 32.
fn row(assumption: &Assumption, policy: &str, seconds: u64) -> Row {
    let job = |class, kind, file, workload, arrivals| {
        Job::new(workload, class, kind, trace(file, workload), arrivals)
    };
    let experiment = Experiment {
        device: v100(),
        laws: sim::Laws::default(),
        gpu: assumption.gpu,
        jobs: vec![
            job(
                JobClass::HighPriority,
                JobKind::Inference,
                "resnet50_4_fwd",
                "resnet50-inference",
                Arrivals::Poisson { per_s: 15.0 },
            ),
            job(
                JobClass::BestEffort,
                JobKind::Training,
                "resnet50_32_fb1",
                "resnet50-training",
                Arrivals::Closed,
            ),
        ],
        policy: PolicySpec::from_str(policy).expect("a name"),
        seed: 1,
        duration_ns: seconds * 1_000_000_000,
        host: assumption.host,
        warmup_requests: 10,
        profiles: sim::ProfileErrors::NONE,
    };
    let outcome = experiment.run(&mut NoObserver).expect("it can be run");
    let [hp_alone, be_alone] = [0, 1].map(|job| {
        let alone = experiment
            .run_solo(job, &mut NoObserver)
            .expect("it can be run");
        alone.jobs.into_iter().next().expect("the one job")
    });
    let p99_ns = |job: &sim::JobOutcome| job.quantile_ns(990).expect("requests") as f64;
    let [hp, be] = [&outcome.jobs[0], &outcome.jobs[1]];
    Row {
        hp_p99: p99_ns(hp) / p99_ns(&hp_alone),
        be_per_s: be.per_s(),
        be_share: be.per_s() / be_alone.per_s(),
    }
}

fn assumptions() -> Vec<Assumption> {
    let gpu = Config::new(Sharing::Mps, &v100());
    // Orion's clients are PyTorch's threads, which launch every 30 us.
    let host = HostModel {
        launch_gap_ns: 30_000,
        ..HostModel::default()
    };
    let mut all = vec![Assumption {
        name: "nothing",
        gpu,
        host,
    }];
    let of_gpu = of_gpu(gpu).into_iter();
    all.extend(of_gpu.map(|(name, gpu)| Assumption { name, gpu, host }));
    let of_host = of_host(host).into_iter();
    all.extend(of_host.map(|(name, host)| Assumption { name, gpu, host }));
    all
}

fn of_gpu(gpu: Config) -> [(&'static str, Config); 10] {
    let law = gpu.contention;
    let gap = |launch_gap_ns| Config {
        launch_gap_ns,
        ..gpu
    };
    let of_law = |contention| Config { contention, ..gpu };
    let interference = |interference| {
        of_law(Contention {
            interference,
            ..law
        })
    };
    let mean = |mean_exponent| {
        of_law(Contention {
            mean_exponent,
            ..law
        })
    };
    let overload = |overload_exponent| {
        of_law(Contention {
            overload_exponent,
            ..law
        })
    };
    let unordered = Config {
        block_priority: false,
        ..gpu
    };
    let overtaking = Config {
        dispatch: Dispatch::FillIn,
        ..gpu
    };
    [
        ("launch gap x 0.5", gap(LAUNCH_GAP_NS / 2)),
        ("launch gap x 2", gap(LAUNCH_GAP_NS * 2)),
        ("interference x 0.5", interference(law.interference / 2.0)),
        ("interference x 2", interference(law.interference * 2.0)),
        ("mean exponent 3", mean(3)),
        ("mean exponent 10", mean(10)),
        ("overload exponent 1.05", overload(1.05)),
        ("overload exponent 1.2", overload(1.2)),
        ("no block priorities", unordered),
        ("kernels may overtake", overtaking),
    ]
}

fn of_host(host: HostModel) -> [(&'static str, HostModel); 7] {
    let pace = |launch_gap_ns| HostModel {
        launch_gap_ns,
        ..host
    };
    let poll = |poll_ns| HostModel { poll_ns, ..host };
    let helper = |helper_poll_ns| HostModel {
        helper_poll_ns,
        ..host
    };
    [
        ("host's pace 5 µs", pace(5_000)),
        ("host's pace 15 µs", pace(15_000)),
        ("host's pace 60 µs", pace(60_000)),
        ("daemon's poll x 0.5", poll(host.poll_ns / 2)),
        ("daemon's poll x 2", poll(host.poll_ns * 2)),
        ("helper's poll x 0.5", helper(host.helper_poll_ns / 2)),
        ("helper's poll x 2", helper(host.helper_poll_ns * 2)),
    ]
}

fn v100() -> Device {
    Device::by_name("V100-SXM2-16GB").expect("in the table")
}

fn trace(file: &str, workload: &str) -> Arc<Trace> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let data = std::env::var_os("PILLION_DATA")
        .map_or_else(|| workspace.join("../shared/data"), PathBuf::from);
    let path = data.join("orion/model_kernels").join(file);
    let trace = if path.is_file() {
        Trace::read(&path).expect("a published file")
    } else {
        let workload = Workload::by_name(workload).expect("built in");
        let trace = workload.trace(None, &v100(), Precision::Fp32);
        trace.expect("the default batch")
    };
    Arc::new(trace)
}
