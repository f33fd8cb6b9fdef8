//! Counts and sums of the published traces, by a program in Python. The traces are not in the
//! repository (`testing::data`).

#[macro_use]
extern crate testing;

use std::collections::BTreeMap;
use std::process::ExitCode;

use cluster_sim::traces::{TraceError, azure, gavel, muri, openb, pai, philly, read, tiresias};

fn main() -> ExitCode {
    testing::main()
}

fn rows<T>(path: &str, reader: fn(&str, &[u8]) -> Result<Vec<T>, TraceError>) -> Vec<T> {
    let path = testing::data(&format!("traces/{path}"));
    read(&path, reader).unwrap_or_else(|error| panic!("{error}"))
}

fn sums<'a>(pairs: impl Iterator<Item = (&'a str, u32)>) -> BTreeMap<&'a str, u32> {
    pairs.fold(BTreeMap::new(), |mut sums, (name, value)| {
        *sums.entry(name).or_default() += value;
        sums
    })
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn openb_has_1213_nodes_with_6212_gpus() {
    let nodes = rows(
        "alibaba_gpu_v2023_openb/openb_node_list_gpu_node.csv",
        openb::nodes,
    );
    assert_eq!(nodes.len(), 1213);
    assert_eq!(
        nodes.iter().map(|node| node.cpu_milli).sum::<u64>(),
        107_018_000
    );
    assert_eq!(
        nodes.iter().map(|node| node.memory_mib).sum::<u64>(),
        503_828_480
    );
    let gpus = sums(
        nodes
            .iter()
            .map(|node| (node.gpu_model.as_deref().unwrap_or(""), node.gpus)),
    );
    let expected = [
        ("A10", 2),
        ("G2", 4392),
        ("G3", 312),
        ("P100", 265),
        ("T4", 842),
        ("V100M16", 195),
        ("V100M32", 204),
    ];
    assert_eq!(gpus, BTreeMap::from(expected));
    assert_eq!(gpus.values().sum::<u32>(), 6212);
}

#[test]
fn openb_has_8152_pods() {
    let folder = "alibaba_gpu_v2023_openb";
    let cases = [
        (
            "default",
            8152,
            7433,
            5_717_800,
            85_436_012,
            94_122_763_871.0,
            83_582_955_503.0,
        ),
        (
            "gpushare40",
            8152,
            7382,
            5_323_250,
            80_383_484,
            94_279_461_116.0,
            82_692_450_225.0,
        ),
        ("multigpu20", 8324, 8433, 5_889_800, 95_171_812, 0.0, 0.0),
    ];
    for (name, count, gpus, gpu_milli, cpu_milli, created_s, scheduled_s) in cases {
        let pods = rows(&format!("{folder}/openb_pod_list_{name}.csv"), openb::pods);
        assert_eq!(pods.len(), count, "{name}");
        assert_eq!(pods.iter().map(|pod| pod.gpus).sum::<u32>(), gpus, "{name}");
        assert_eq!(
            pods.iter().map(|pod| pod.gpu_milli).sum::<u32>(),
            gpu_milli,
            "{name}"
        );
        assert_eq!(
            pods.iter().map(|pod| pod.cpu_milli).sum::<u64>(),
            cpu_milli,
            "{name}"
        );
        assert_eq!(
            pods.iter().filter_map(|pod| pod.created_s).sum::<f64>(),
            created_s,
            "{name}"
        );
        let scheduled = pods.iter().filter_map(|pod| pod.scheduled_s).sum::<f64>();
        assert_eq!(scheduled, scheduled_s, "{name}");
        // Only pods of one GPU ask for a part of one, and only those of none for nothing.
        let whole = |pod: &openb::Pod| match pod.gpus {
            0 => pod.gpu_milli == 0,
            1 => pod.gpu_milli > 0,
            _ => pod.gpu_milli == 1000,
        };
        assert!(pods.iter().all(whole), "{name}");
    }
    let pods = rows(&format!("{folder}/openb_pod_list_default.csv"), openb::pods);
    let are = |qos| pods.iter().filter(|pod| pod.qos == Some(qos)).count();
    use openb::Qos::*;
    let qos = [LatencySensitive, BestEffort, Burstable, Guaranteed].map(are);
    assert_eq!(qos, [4647, 3398, 100, 7]);
    let are = |phase| pods.iter().filter(|pod| pod.phase == Some(phase)).count();
    use openb::Phase::*;
    assert_eq!(
        [Running, Failed, Pending, Succeeded].map(are),
        [5193, 1870, 897, 192]
    );
}

#[test]
fn fgd_has_180_allocations() {
    let folder = "alibaba_gpu_v2023_openb";
    let all = rows(
        &format!("{folder}/fgd_allocation_expected.csv"),
        openb::allocations,
    );
    assert_eq!(all.len(), 180);
    assert!(all.iter().all(|run| run.gpus == 6212 && run.tune == 1.3));
    assert!(all.iter().all(|run| (42..=51).contains(&run.seed)));
    let sum = |at: usize| all.iter().map(|run| run.allocated_pct[at]).sum::<f64>();
    assert!(is_near(sum(0), 8998.16) && is_near(sum(7), 16_424.17) && is_near(sum(13), 16_497.13));
    let runs = sums(all.iter().map(|run| (&*run.policy, 1)));
    assert_eq!((runs.len(), runs["06-FGD"]), (6, 30));
}

#[test]
fn pai_has_1897_machines_with_6742_gpus() {
    let machines = rows("alibaba_pai_v2020/pai_machine_spec.csv", pai::machines);
    assert_eq!(machines.len(), 1897);
    assert_eq!(
        machines.iter().map(|machine| machine.cpus).sum::<u32>(),
        156_576
    );
    assert_eq!(
        machines
            .iter()
            .map(|machine| machine.memory_gib)
            .sum::<u32>(),
        948_224
    );
    let gpus = sums(
        machines
            .iter()
            .map(|machine| (&*machine.gpu_type, machine.gpus)),
    );
    let expected = [
        ("CPU", 0),
        ("MISC", 2240),
        ("P100", 1596),
        ("T4", 994),
        ("V100", 832),
        ("V100M32", 1080),
    ];
    assert_eq!(gpus, BTreeMap::from(expected));
    assert_eq!(gpus.values().sum::<u32>(), 6742);
}

#[test]
fn philly_has_41124_jobs_in_the_order_of_submission() {
    let jobs = rows("philly_processed/philly_every2nd.csv", philly::jobs);
    assert_eq!(jobs.len(), 41_124);
    assert!(jobs.is_sorted_by(|a, b| a.submit_s <= b.submit_s));
    assert_eq!(
        (jobs[0].submit_s, jobs[41_123].submit_s),
        (0.0, 9_407_491.0)
    );
    assert_eq!(
        jobs.iter().map(|job| job.submit_s).sum::<f64>(),
        188_206_775_076.0
    );
    assert_eq!(
        jobs.iter().map(|job| job.duration_s).sum::<f64>(),
        545_554_999.0
    );
    assert_eq!(
        jobs.iter().map(|job| job.gpu_s).sum::<f64>(),
        1_748_659_121.0
    );
    assert!(
        jobs.iter()
            .all(|job| job.gpu_s == job.duration_s * f64::from(job.gpus))
    );
    let clusters = sums(jobs.iter().map(|job| (&*job.cluster, 1)));
    assert_eq!(
        (clusters.len(), clusters["6214e9"], clusters["795a4c"]),
        (15, 20_573, 1)
    );
}

#[test]
fn gavel_has_throughputs_on_six_kinds_of_gpu() {
    let all = rows(
        "gavel_throughputs/physical_cluster_throughputs.json",
        gavel::throughputs,
    );
    let cases = [
        (
            "k80",
            83,
            1759,
            1_208.463_074_422_851_4,
            2_314.286_880_748_641_6,
        ),
        (
            "k80_unconsolidated",
            77,
            1543,
            1_082.376_692_639_971_2,
            2_314.286_880_748_641_6,
        ),
        (
            "p100",
            83,
            1759,
            3_633.923_974_373_869_4,
            7_795.951_505_437_813,
        ),
        (
            "p100_unconsolidated",
            83,
            1759,
            2_242.377_701_982_273_7,
            7_795.951_505_437_813,
        ),
        (
            "v100",
            83,
            1759,
            7_157.235_121_896_305,
            9_612.797_974_823_861,
        ),
        (
            "v100_unconsolidated",
            83,
            1759,
            2_127.474_385_874_641_5,
            9_612.797_974_823_861,
        ),
    ];
    for (gpu, alone, pairs, alone_per_s, pairs_per_s) in cases {
        let (paired, solo): (Vec<_>, Vec<_>) = all
            .iter()
            .filter(|row| row.gpu == gpu)
            .partition(|row| row.other.is_some());
        assert_eq!((solo.len(), paired.len()), (alone, pairs), "{gpu}");
        assert!(
            is_near(solo.iter().map(|row| row.this_per_s).sum(), alone_per_s),
            "{gpu}"
        );
        assert!(
            is_near(paired.iter().map(|row| row.this_per_s).sum(), pairs_per_s),
            "{gpu}"
        );
        assert!(is_near(
            paired.iter().filter_map(|row| row.other_per_s).sum(),
            pairs_per_s
        ));
    }
    assert_eq!(all.len(), 492 + 10_338);
}

#[test]
fn gavel_has_zeros_for_both_jobs_of_6576_pairs() {
    let all = rows(
        "gavel_throughputs/physical_cluster_throughputs.json",
        gavel::throughputs,
    );
    let of_zero = |row: &&gavel::Throughput| row.other.is_some() && row.this_per_s == 0.0;
    let zeros: Vec<_> = all.iter().filter(of_zero).collect();
    assert_eq!(zeros.len(), 6576);
    assert!(zeros.iter().all(|row| row.other_per_s == Some(0.0)));
}

#[test]
fn gavel_has_a_trace_of_986_jobs() {
    let jobs = rows("gavel_msr_traces/103959.trace", gavel::jobs);
    assert_eq!(jobs.len(), 986);
    assert_eq!(
        jobs.iter().map(|job| job.total_steps).sum::<u64>(),
        1_916_994_894
    );
    assert_eq!(
        jobs.iter().map(|job| job.arrival_s).sum::<f64>(),
        4_071_092_814.0
    );
    let of = |scale| jobs.iter().filter(|job| job.scale_factor == scale).count();
    assert_eq!([1, 2, 4].map(of), [500, 40, 446]);
    assert_eq!(
        sums(jobs.iter().map(|job| (&*job.job_type, 1)))["CycleGAN"],
        47
    );
}

#[test]
fn muri_has_5755_jobs_whose_durations_are_milliseconds() {
    let jobs = rows("muri_philly/trace2_pr.csv", muri::jobs);
    assert_eq!(jobs.len(), 5755);
    assert_eq!(jobs.iter().map(|job| job.gpus).sum::<u32>(), 29_825);
    assert_eq!(
        jobs.iter().map(|job| job.iterations).sum::<u64>(),
        1_937_450_735
    );
    assert_eq!(
        jobs.iter().map(|job| job.duration_ms).sum::<f64>(),
        575_421_048_000.0
    );
    assert_eq!(
        jobs.iter().map(|job| job.interval_ms).sum::<f64>(),
        754_944_000.0
    );
    assert_eq!(jobs.iter().map(|job| job.priority).sum::<u32>(), 2909);
    // The units: so many whole iterations fit in the duration.
    let fit = |job: &muri::Job| (job.duration_ms / job.iteration_ms).floor() as u64;
    assert!(jobs.iter().all(|job| fit(job) == job.iterations));
    assert!(jobs.iter().all(|job| job.duration_ms % 1000.0 == 0.0));
    assert!(jobs.iter().all(|job| job.interval_ms % 1000.0 == 0.0));
    assert!(jobs.iter().all(|job| job.submit_s == 0.0));
    let resources = [0, 1, 2].map(|at| jobs.iter().map(|job| job.resources_ms[at]).sum::<f64>());
    assert!(is_near(resources[0], 1_833_070.2) && is_near(resources[1], 671_063.0));
    assert!(is_near(resources[2], 148_382.1));
}

#[test]
fn tiresias_has_60_jobs_whose_intervals_lead_to_the_next() {
    let jobs = rows("tiresias_60job/60_job.csv", tiresias::jobs);
    assert_eq!(jobs.len(), 60);
    assert_eq!(jobs.iter().map(|job| job.gpus).sum::<u32>(), 170);
    assert_eq!(jobs.iter().map(|job| job.iterations).sum::<u64>(), 43_825);
    assert_eq!(jobs.iter().map(|job| job.duration_s).sum::<f64>(), 10_705.0);
    assert!(jobs.is_sorted_by(|a, b| a.submit_s + a.interval_s == b.submit_s));
}

#[test]
fn azure_has_four_functions_of_one_day() {
    let functions = rows(
        "azure_functions_2019_sample/invocations.csv",
        azure::functions,
    );
    let counts = functions
        .iter()
        .map(|function| function.per_minute.iter().sum::<u32>());
    assert!(counts.eq([1150, 1125, 1125, 1125]));
    let triggers = functions.iter().map(|function| &*function.trigger);
    assert!(triggers.eq(["queue", "queue", "queue", "timer"]));
}

#[test]
fn azure_has_two_hours_of_requests_to_language_models() {
    let cases = [
        (
            "code",
            8819,
            18_059_974,
            245_896,
            13_327_267.954_592,
            3_435.948_056,
        ),
        (
            "conv",
            19_366,
            22_361_870,
            4_088_665,
            33_473_340.385_407,
            3_501.721_937,
        ),
    ];
    for (name, count, context, generated, sum_s, last_s) in cases {
        let path = format!("azure_llm_2023/AzureLLMInferenceTrace_{name}.csv");
        let requests = rows(&path, azure::requests);
        assert_eq!(requests.len(), count);
        let sum = |of: fn(&azure::Request) -> u32| requests.iter().map(of).sum::<u32>();
        assert_eq!(sum(|request| request.context_tokens), context);
        assert_eq!(sum(|request| request.generated_tokens), generated);
        assert!(is_near(
            requests.iter().map(|request| request.arrival_s).sum(),
            sum_s
        ));
        assert!(is_near(requests[count - 1].arrival_s, last_s));
    }
}
