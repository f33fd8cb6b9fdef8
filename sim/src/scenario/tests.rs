//! Scenario files: their results, and the refusal of invalid ones.

use std::path::Path;

use policy::ShareMode;

use super::*;
use crate::arrivals::Arrivals;
use crate::job::{JobClass, JobKind};

const PAIR: &str = r#"
device = "T4"
seconds = 2.5
seeds = [3, 4]

[policy]
name = "mps"

[[jobs]]
name = "serve"
class = "high-priority"
trace = "resnet50-inference@2"
arrivals = "poisson"
rate = 30
memory = "2 GiB"

[[jobs]]
trace = "mobilenetv2-training"
"#;

fn parse(text: &str) -> Result<Vec<Scenario>, ScenarioError> {
    let mut library = Library::default();
    Scenario::parse(
        Path::new("s.toml"),
        text,
        Path::new("/nonexistent"),
        &mut library,
    )
}

fn scenarios(text: &str) -> Vec<Scenario> {
    parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn faults(text: &str) -> Vec<String> {
    let error = parse(text).expect_err("it is wrong").to_string();
    error.lines().map(str::to_owned).collect()
}

#[test]
fn a_file_becomes_an_experiment() {
    let all = scenarios(PAIR);
    let [scenario] = &all[..] else {
        panic!("{} scenarios", all.len())
    };
    assert_eq!(scenario.seeds, [3, 4]);
    let experiment = scenario.with_seed(4);
    assert_eq!(experiment.seed, 4);
    assert_eq!(experiment.device.name, "T4");
    assert_eq!(experiment.duration_ns, 2_500_000_000);
    assert_eq!(experiment.warmup_requests, 10);
    assert_eq!(experiment.gpu.sharing, softgpu::Sharing::Mps);
    assert_eq!(experiment.policy.name(), "mps");
    let [serve, train] = &experiment.jobs[..] else {
        panic!("{} jobs", experiment.jobs.len())
    };
    assert_eq!(
        (&*serve.name, serve.class),
        ("serve", JobClass::HighPriority)
    );
    assert_eq!(serve.kind, JobKind::Inference);
    assert_eq!(serve.arrivals, Arrivals::Poisson { per_s: 30.0 });
    assert_eq!(serve.memory_bytes, Some(2 << 30));
    // A job without a class is best-effort, and one in a closed loop trains.
    assert_eq!((&*train.name, train.class), ("1", JobClass::BestEffort));
    assert_eq!(train.kind, JobKind::Training);
    assert_eq!(scenario.shown[0].trace, "resnet50-inference@2");
    assert_eq!(scenario.shown[0].arrivals, "poisson 30/s");
}

#[test]
fn every_key_of_gpu_and_host_reaches_the_experiment() {
    let text = format!(
        "{PAIR}launch_gap_ns = 30000
threads = 2
[gpu]
slice_ns = 1000000
context_switch_ns = 7
block_priority = false
dispatch = \"fill-in\"
[host]
launch_gap_ns = 1
launch_latency_ns = 2
notice_ns = 3
driver_queue = 4
poll_ns = 5
idle_poll_ns = 6
helper_poll_ns = 7
wake_ns = 8
max_hold_ns = 9
"
    );
    let experiment = scenarios(&text)[0].with_seed(1);
    assert_eq!(experiment.gpu.slice_ns, 1_000_000);
    assert_eq!(experiment.gpu.context_switch_ns, 7);
    assert!(!experiment.gpu.block_priority);
    assert_eq!(experiment.gpu.dispatch, softgpu::Dispatch::FillIn);
    let of = |job| experiment.host_of(job).launch_gap_ns;
    assert_eq!((of(0), of(1)), (1, 15_000));
    let threads: Vec<u32> = experiment.jobs.iter().map(|job| job.threads).collect();
    assert_eq!(threads, [1, 2]);
    let host = experiment.host;
    let set = [
        host.launch_gap_ns,
        host.launch_latency_ns,
        host.notice_ns,
        u64::from(host.driver_queue),
        host.poll_ns,
        host.idle_poll_ns,
        host.helper_poll_ns,
        host.wake_ns,
        host.max_hold_ns,
    ];
    assert_eq!(set, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_sweep_is_a_product_in_the_order_of_the_file() {
    let text = format!(
        "{PAIR}\n[sweep]\njobs.serve.rate = [10, 20]\n\"policy.name\" = [\"mps\", \"streams\"]\n"
    );
    let all = scenarios(&text);
    let seen: Vec<(Arrivals, &str)> = all
        .iter()
        .map(|s| {
            (
                s.experiment.jobs[0].arrivals.clone(),
                s.experiment.policy.name(),
            )
        })
        .collect();
    let at = |per_s| Arrivals::Poisson { per_s };
    assert_eq!(
        seen,
        [
            (at(10.0), "mps"),
            (at(10.0), "streams"),
            (at(20.0), "mps"),
            (at(20.0), "streams"),
        ]
    );
    let swept: Vec<(&str, &str)> = all[2]
        .swept
        .iter()
        .map(|swept| (&*swept.path, &*swept.value))
        .collect();
    assert_eq!(swept, [("jobs.serve.rate", "20"), ("policy.name", "mps")]);
}

#[test]
fn any_field_can_be_swept_a_table_is_laid_over_and_its_label_is_its_name() {
    let text = format!(
        "{PAIR}
[sweep]
device = [\"T4\", \"A30\"]
\"jobs.1\" = [{{ trace = \"bert-base-training\", memory = 5 }}]
policy = [{{ label = \"as one process\", name = \"streams\" }}]
host.poll_ns = [1000]
seeds = [[1], [1, 2]]
"
    );
    let all = scenarios(&text);
    assert_eq!(all.len(), 4);
    let last = &all[3];
    assert_eq!(last.experiment.device.name, "A30");
    assert_eq!(last.experiment.jobs[1].memory_bytes, Some(5));
    assert_eq!(last.shown[1].trace, "bert-base-training");
    assert_eq!(last.experiment.policy.name(), "streams");
    assert_eq!(last.experiment.host.poll_ns, 1000);
    assert_eq!(last.seeds, [1, 2]);
    assert!(
        last.swept
            .iter()
            .any(|swept| swept.value == "as one process")
    );
}

#[test]
fn of_a_list_of_traces_the_first_that_there_is_is_taken() {
    let text = PAIR.replace(
        "\"mobilenetv2-training\"",
        "[\"recorded/train\", \"resnet101-training\"]",
    );
    assert_eq!(scenarios(&text)[0].shown[1].trace, "resnet101-training");
    // Without any, the fault is about the last one.
    let text = PAIR.replace(
        "\"mobilenetv2-training\"",
        "[\"recorded/train\", \"other/train\"]",
    );
    assert_eq!(
        faults(&text),
        [
            "s.toml:18:28: trace \"other/train\": /nonexistent/other/train: cannot be read: \
          No such file or directory (os error 2)"
        ]
    );
}

const WRONG: &[(&str, &str, &str)] = &[
    (
        "seconds = 2.5",
        "secnods = 2.5",
        "s.toml:3:1: unknown key `secnods` in the file",
    ),
    ("seconds = 2.5", "secnods = 2.5", "nearest is `seconds`"),
    (
        "seconds = 2.5",
        "seconds = -1",
        "s.toml:3:11: seconds is -1; must be a number above 0 and at most 86400",
    ),
    (
        "seconds = 2.5",
        "seconds = 1e-10",
        "s.toml:3:11: duration 0 ns",
    ),
    ("\"T4\"", "\"T5\"", "s.toml:2:10: unknown device \"T5\""),
    (
        "[3, 4]",
        "[]",
        "s.toml:4:9: seeds is []; must be a list of 1 to 1000 whole numbers; nearest is [1, 2, 3]",
    ),
    (
        "[3, 4]",
        "[3, -4]",
        "s.toml:4:13: seeds is -4; must be a whole number",
    ),
    (
        "name = \"mps\"",
        "name = \"mp\"",
        "s.toml:7:8: name is \"mp\"",
    ),
    (
        "name = \"mps\"",
        "name = \"mps\"\ndepth = 3",
        "s.toml:8:1: policy mps has no numbers, but depth is set",
    ),
    (
        "[policy]\nname = \"mps\"",
        "",
        "s.toml:1:1: the file has no policy",
    ),
    (
        "high-priority",
        "high",
        "s.toml:11:9: class is \"high\"; must be one of high-priority, best-effort; nearest is \"high-priority\"",
    ),
    (
        "rate = 30",
        "",
        "s.toml:13:12: arrivals poisson need a rate, in requests per second; nearest is rate = 15",
    ),
    (
        "rate = 30",
        "rate = 0",
        "s.toml:14:8: rate is 0; must be a number above 0",
    ),
    (
        "\"poisson\"",
        "\"closed\"",
        "s.toml:13:12: rate is set, but arrivals closed take no rate",
    ),
    (
        "\"poisson\"\nrate = 30",
        "\"posson\"",
        "nearest is \"poisson\"",
    ),
    (
        "\"2 GiB\"",
        "\"2 GB\"",
        "s.toml:15:10: memory is \"2 GB\"; must be bytes",
    ),
    (
        "\"2 GiB\"",
        "\"20 GiB\"",
        "s.toml:15:10: the jobs need 21474836480 bytes of device memory",
    ),
    (
        "resnet50-inference@2",
        "resnet50-inferense",
        "did you mean \"resnet50-inference\"?",
    ),
    (
        "resnet50-inference@2",
        "resnet50-inference@0",
        "batch 0: expected 1 to 4096",
    ),
    (
        "trace = \"mobilenetv2-training\"",
        "",
        "s.toml:17:1: [[jobs]] has no trace",
    ),
    ("seconds = 2.5", "seconds = ", "s.toml:3:11: "),
    (
        "\"poisson\"\n",
        "\"poisson\"\non_s = 2\n",
        "s.toml:14:8: on_s is set, but arrivals poisson have no bursts; nearest is arrivals = \"bursts\"",
    ),
    (
        "\"poisson\"\nrate = 30",
        "\"bursts\"\nrate = 30\noff_s = 0",
        "s.toml:15:9: off_s is 0; must be a number above 0",
    ),
    (
        "\"poisson\"\nrate = 30",
        "\"poison\"\nrate = 30",
        "s.toml:13:12: /nonexistent/poison: cannot be read: No such file or directory (os error 2); nearest is \"poisson\"",
    ),
    (
        "\"poisson\"\nrate = 30",
        "\"poison\"\nrate = 0",
        "s.toml:14:8: rate is 0",
    ),
    (
        "\"poisson\"\nrate = 30",
        "\"bursts\"",
        "s.toml:13:12: arrivals bursts need a rate",
    ),
    (
        "\"resnet50-inference@2\"",
        "{ kernel_ms = 1 }",
        "s.toml:12:11: unknown key `kernel_ms` in [jobs.trace]; keys are kernel_us, block_us, class, launches; nearest is `kernel_us`",
    ),
    (
        "\"resnet50-inference@2\"",
        "{ kernel_us = 100, block_us = 101 }",
        "block_us is 101; must be a number above 0 and at most 100; nearest is 100",
    ),
    (
        "[policy]",
        "[profiles]\nflipped_share = 1.5\n[policy]",
        "s.toml:7:17: flipped_share is 1.5; must be a number from 0 to 1; nearest is 1",
    ),
    (
        "[policy]",
        "[profiles]\nof = \"best-efort\"\n[policy]",
        "nearest is \"best-effort\"",
    ),
    (
        "[policy]",
        "[host]\nstall_ns = 6000000000\n[policy]",
        "s.toml:6:1: host model: stall_ns is above 5 s",
    ),
    (
        "[policy]",
        "[gpu]\ncontention = 0\n[policy]",
        "s.toml:7:14: contention is 0; must be a number above 0",
    ),
    (
        "rate = 30",
        "rate = 30\ndeath_s = -1",
        "s.toml:15:11: death_s is -1; must be a number above 0",
    ),
];

#[test]
fn everything_that_is_wrong_is_named_with_its_place_and_the_mend() {
    for &(from, to, said) in WRONG {
        let text = PAIR.replace(from, to);
        assert_ne!(text, PAIR, "{from}");
        let faults = faults(&text);
        assert!(
            faults.iter().any(|fault| fault.contains(said)),
            "{said}:\n{faults:#?}"
        );
        assert!(
            faults.iter().all(|fault| fault.starts_with("s.toml:")),
            "{faults:#?}"
        );
    }
}

#[test]
fn all_faults_are_found_at_once_in_the_order_of_the_file_and_each_once() {
    let text = PAIR
        .replace("\"T4\"", "\"T5\"")
        .replace("best-effort", "best")
        .replace("rate = 30", "rate = \"30\"")
        .replace("name = \"mps\"", "name = \"mips\"");
    let text = format!("{text}\n[sweep]\nwarmup_requests = [0, 1]\n");
    let places: Vec<String> = faults(&text)
        .iter()
        .map(|fault| fault.split(": ").next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(places, ["s.toml:2:10", "s.toml:7:8", "s.toml:14:8"]);
}

#[test]
fn what_is_wrong_in_a_sweep_is_found_at_its_value() {
    for (sweep, said) in [
        ("seconds = [1, 0]", "s.toml:21:15: seconds is 0"),
        (
            "seconds = 1",
            "s.toml:21:11: seconds is 1; must be a list of the values to try, such as [1, 2.5, 5]; nearest is [1]",
        ),
        ("seconds = []", "must be a list"),
        (
            "secands = [1]",
            "s.toml:21:1: unknown key `secands` in the file",
        ),
        (
            "jobs.srve.rate = [1]",
            "jobs.srve.rate: no job is called srve; jobs are serve, 1; nearest is `serve`",
        ),
        ("jobs.serve.rats = [1]", "unknown key `rats` in [[jobs]]"),
        ("jobs.serve = [1]", "must be a table"),
        (
            "policy.name = [\"mps\", \"orio\"]",
            "s.toml:21:23: name is \"orio\"",
        ),
        ("a.b.c.d = [1]", "a.b.c.d is not a path"),
        ("name = [\"x\"]", "name cannot be swept"),
        (
            "host.poll_ns = [0]",
            "s.toml:21:17: poll_ns is 0; must be a whole number from 1 to 1000000000; nearest is 1",
        ),
    ] {
        let faults = faults(&format!("{PAIR}\n[sweep]\n{sweep}\n"));
        assert!(
            faults.iter().any(|fault| fault.contains(said)),
            "{said}:\n{faults:#?}"
        );
    }
    let many = vec!["1"; 101].join(", ");
    let sweep = format!("{PAIR}\n[sweep]\nseconds = [{many}]\nwarmup_requests = [{many}]\n");
    assert_eq!(
        faults(&sweep),
        ["s.toml:21:1: the sweep has more than 10000 combinations"]
    );
}

const DISTURBED: &str = r#"
seconds = 2

[policy]
name = "orion"

[[jobs]]
name = "hp"
class = "high-priority"
trace = "resnet50-inference"
arrivals = "bursts"
rate = 60
on_s = 0.5
off_s = 2
start_s = 0.25

[[jobs]]
name = "be"
trace = { kernel_us = 1000, block_us = 100, class = "memory" }
death_s = 1.5

[sweep]
"jobs.be.trace.kernel_us" = [500, 2000]
file = [
    { label = "as it is" },
    { label = "told short", profiles = { duration_factor = 0.1, of = "best-effort" } },
    { label = "stalls", "host.stall_ns" = 2000000, "host.stall_every_ns" = 50000000, "jobs.hp.rate" = 30 },
    { label = "contention", gpu.contention = 2 },
]
"#;

#[test]
fn a_sweep_of_the_file_changes_what_is_named_wherever_it_is() {
    let all = scenarios(DISTURBED);
    assert_eq!(all.len(), 8);
    for (index, scenario) in all.iter().enumerate() {
        let experiment = &scenario.experiment;
        let [hp, be] = &experiment.jobs[..] else {
            panic!("{} jobs", experiment.jobs.len());
        };
        let which = index % 4;
        let per_s = if which == 2 { 30.0 } else { 60.0 };
        let (on_s, off_s) = (0.5, 2.0);
        assert_eq!(hp.arrivals, Arrivals::Bursts { per_s, on_s, off_s });
        assert_eq!((hp.start_ns, hp.death_ns), (250_000_000, None));
        assert_eq!((be.start_ns, be.death_ns), (0, Some(1_500_000_000)));
        let kernel = &be.trace.kernels[0];
        let kernel_ns = if index < 4 { 500_000 } else { 2_000_000 };
        assert_eq!((kernel.duration_ns, kernel.block_ns), (kernel_ns, 100_000));
        assert_eq!(be.trace.launches.len(), 100);
        let told = experiment.profiles.duration_factor;
        assert_eq!(told, if which == 1 { 0.1 } else { 1.0 });
        let stall_ns = if which == 2 { 2_000_000 } else { 0 };
        assert_eq!(experiment.host.stall_ns, stall_ns);
        let scale = if which == 3 { 2.0 } else { 1.0 };
        assert_eq!(experiment.gpu.contention.scale, scale);
        let labels = ["as it is", "told short", "stalls", "contention"];
        assert_eq!(scenario.swept[1].value, labels[which]);
        assert!(experiment.check().is_ok());
    }
    let shown: Vec<&str> = all.iter().map(|s| &*s.shown[1].trace).collect();
    assert_eq!(shown[0], "memory of 500 us in blocks of 100 us");
}

#[test]
fn what_is_wrong_in_a_sweep_of_the_file_is_found_at_its_value() {
    for (from, to, said) in [
        (
            "{ label = \"as it is\" }",
            "7",
            "file is 7; must be a table of paths",
        ),
        (
            "gpu.contention = 2",
            "gpu.contension = 2",
            "unknown key `contension` in [gpu]",
        ),
        (
            "{ label = \"as it is\" }",
            "{ file = {} }",
            "file cannot be in file",
        ),
        (
            "\"jobs.be.trace.kernel_us\"",
            "\"jobs.hp.trace.kernel_us\"",
            "jobs.hp.trace.kernel_us: trace is not a table, such as { kernel_us = 1 }",
        ),
        (
            "\"jobs.be.trace.kernel_us\"",
            "\"file.seconds\"",
            "file.seconds cannot be swept",
        ),
    ] {
        let text = DISTURBED.replace(from, to);
        assert_ne!(text, DISTURBED, "{from}");
        let faults = faults(&text);
        assert!(
            faults.iter().any(|fault| fault.contains(said)),
            "{said}:\n{faults:#?}"
        );
    }
}

#[test]
fn what_is_wrong_with_a_job_is_at_that_job_and_all_of_it_is_found() {
    // The file does not exist: faults only name it.
    let folder = tempfile::tempdir().unwrap();
    let kernel = "class=compute grid=9,1,1 block=256,1,1 shared_bytes=98304 registers=64 sm_needed=9 \
                  block_ns=5000 duration_ns=5000 compute_demand=0.5 bandwidth_demand=0.2 source=\"big\" name=\"big\"";
    for (name, device) in [("big.trace", "T4"), ("v100.trace", "V100-SXM2-16GB")] {
        let trace = format!("pillion-trace 1\ndevice {device}\nkernel {kernel}\nlaunch 0\n");
        std::fs::write(folder.path().join(name), trace).unwrap();
    }
    std::fs::write(folder.path().join("late.txt"), "0.5\n\n-1\n").unwrap();
    let text = format!(
        "{PAIR}[[jobs]]\ntrace = \"big.trace\"\n[[jobs]]\ntrace = \"mobilenetv2-training\"\n\
         arrivals = \"uniform\"\nrate = 1e6\n[[jobs]]\nname = \"x\"\ntrace = \"v100.trace\"\n"
    );
    let text = text.replace("2.5", "86400");
    let read = |text: &str| {
        let path = Path::new("s.toml");
        Scenario::parse(path, text, folder.path(), &mut Library::default())
            .expect_err("it is wrong")
            .to_string()
    };
    let faults = read(&text);
    let faults: Vec<&str> = faults.lines().collect();
    let said = [
        "s.toml:20:9: job \"2\": kernel \"big\" on T4",
        "s.toml:23:12: job \"3\": 1000000 requests per second",
        "s.toml:27:9: job \"x\": its trace was measured on V100-SXM2-16GB, not on T4",
    ];
    assert_eq!(faults.len(), said.len(), "{faults:#?}");
    for (fault, said) in faults.iter().zip(said) {
        assert!(fault.starts_with(said), "{faults:#?}");
    }
    // A file of arrivals is named with its own line.
    let late = PAIR.replace("\"poisson\"\nrate = 30", "\"late.txt\"");
    let fault = read(&late);
    assert!(fault.starts_with("s.toml:13:12: "), "{fault}");
    assert!(
        fault.contains("late.txt:3: -1 s; expected 0 to 86400 s"),
        "{fault}"
    );
    // Of jobs that do not fit together, the first without room.
    let memory = PAIR.replace("training\"", "training\"\nmemory = \"15 GiB\"");
    assert!(
        read(&memory).starts_with("s.toml:19:10: the jobs need"),
        "{}",
        read(&memory)
    );
}

#[test]
fn keys_of_several_tables_vary_together() {
    let text = format!(
        "{PAIR}\n[sweep]\nfile = [\n{{ policy = {{ name = \"orion\", is_profiled = 0 }} }},\n\
         {{ label = \"turns\", sharing = \"timeslice\", policy = {{ name = \"none\" }}, host = {{ poll_ns = 7 }} }},\n]\n"
    );
    let all = scenarios(&text);
    let [learnt, turns] = &all[..] else {
        panic!("{} scenarios", all.len())
    };
    assert_eq!(learnt.swept[0].value, "orion, is_profiled 0");
    assert_eq!(learnt.experiment.policy.name(), "orion");
    assert_eq!(learnt.experiment.gpu.sharing, softgpu::Sharing::Mps);
    assert_eq!(turns.swept[0].value, "turns");
    assert_eq!(turns.experiment.policy.name(), "none");
    assert_eq!(turns.experiment.gpu.sharing, softgpu::Sharing::TimeSlice);
    assert_eq!(turns.experiment.host.poll_ns, 7);
}

#[test]
fn a_sweep_does_not_guess_which_of_two_jobs_is_meant() {
    let text = PAIR.replace("[[jobs]]\ntrace = ", "[[jobs]]\nname = \"serve\"\ntrace = ");
    let text = format!("{text}\n[sweep]\njobs.serve.copy_in = [1, 2]\n");
    assert_eq!(
        faults(&text),
        [
            "s.toml:22:12: jobs.serve.copy_in: jobs 0 and 1 are both called serve; nearest is `jobs.0`"
        ]
    );
    assert_eq!(scenarios(&text.replace("jobs.serve", "jobs.0")).len(), 2);
}

#[test]
fn mps_without_mps_is_refused() {
    let text = PAIR.replace("seconds = 2.5", "sharing = \"timeslice\"");
    assert!(faults(&text)[0].contains(
        "policy mps: on time slices, kernels of several jobs never compute at the same time"
    ));
}

#[test]
fn pieces_of_a_right_file_are_read_or_refused_with_its_name() {
    for cut in 0..PAIR.len() {
        let (head, tail) = PAIR.split_at(cut);
        for text in [head, tail, &format!("{tail}\n{head}")] {
            let refusal = parse(text).err().map(|error| error.to_string());
            let is_named = refusal
                .as_deref()
                .is_none_or(|error| error.starts_with("s.toml"));
            assert!(is_named, "cut at {cut}: {refusal:?}");
        }
    }
}

#[test]
fn a_job_in_phases_has_their_rates_and_says_so() {
    let text = PAIR.replace(
        "rate = 30",
        "rate = 30\nphases = [{ at_s = 0.5, rate = 75 }]",
    );
    let scenario = &scenarios(&text)[0];
    let [phase] = scenario.experiment.jobs[0].phases[..] else {
        panic!("one phase")
    };
    assert_eq!((phase.start_ns, phase.per_s), (500_000_000, 75.0));
    assert_eq!(scenario.shown[0].arrivals, "poisson 30/s, from 0.5 s 75/s");
    let closed = PAIR.replace(
        "arrivals = \"poisson\"\nrate = 30",
        "phases = [{ at_s = 0.5, rate = 75 }]",
    );
    let wrong = faults(&closed);
    assert!(wrong[0].contains("no rate"), "{wrong:?}");
}

#[test]
fn a_job_in_phases_has_their_traces_and_what_is_wrong_in_one_is_said_with_its_line() {
    let with = |phases: &str| PAIR.replace("rate = 30", &format!("rate = 30\nphases = [{phases}]"));
    let text = with("{ at_s = 0.5, trace = \"resnet50-inference@8\" }, { at_s = 1, rate = 75 }");
    let scenario = &scenarios(&text)[0];
    let job = &scenario.experiment.jobs[0];
    let [later] = &job.trace_phases[..] else {
        panic!("one of them has a trace")
    };
    assert_eq!((later.start_ns, job.phases.len()), (500_000_000, 1));
    assert_ne!(later.trace, job.trace);
    let shown = &scenario.shown[0];
    assert!(
        shown.trace.ends_with(", from 0.5 s resnet50-inference@8"),
        "{shown:?}"
    );
    assert_eq!(shown.arrivals, "poisson 30/s, from 1 s 75/s");

    let line = text.lines().position(|line| line.starts_with("phases"));
    let place = format!("s.toml:{}:", line.unwrap() + 1);
    for (phases, said) in [
        ("{ at_s = 0.5 }", "the phase from 0.5 s on changes nothing"),
        (
            "{ at_s = 0.5, trace = \"resnet50-inferense\" }",
            "did you mean \"resnet50-inference\"?",
        ),
        (
            "{ at_s = 0.5, trace = \"resnet50-inference@many\" }",
            "\"many\" is not a batch size",
        ),
        (
            "{ at_s = 0.5, trace = { kernel_us = 1, block_us = 2 } }",
            "block_us",
        ),
        ("{ at_s = -1, rate = 30 }", "at_s"),
        ("{ at_s = 1, batch = 8 }", "batch"),
    ] {
        let wrong = faults(&with(phases));
        assert!(
            wrong[0].starts_with(&place) && wrong[0].contains(said),
            "{wrong:?}"
        );
    }
    let early = "{ at_s = 1, trace = \"resnet50-inference@8\" }, { at_s = 1, trace = \"resnet50-inference\" }";
    assert!(faults(&with(early))[0].contains("out of order"));
}

#[test]
fn a_run_is_as_long_as_its_requests_take() {
    let text = PAIR.replace("seconds = 2.5", "requests = 90");
    assert_eq!(scenarios(&text)[0].experiment.duration_ns, 3_000_000_000);
    let both = PAIR.replace("seconds = 2.5", "seconds = 2.5\nrequests = 90");
    assert!(faults(&both)[0].contains("one of them"), "{both}");
    let closed = text.replace("arrivals = \"poisson\"\nrate = 30", "");
    assert!(faults(&closed)[0].contains("no job has a rate"), "{closed}");
    let many = text.replace("requests = 90", "requests = 9000000");
    assert!(faults(&many)[0].contains("in a day"), "{many}");
}

#[test]
fn recorded_arrivals_are_stretched_to_the_rate() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("car.txt"), "1\n1.1\n1.3\n").unwrap();
    let of = |arrivals: &str| {
        let text = PAIR.replace("arrivals = \"poisson\"", arrivals);
        let mut library = Library::default();
        Scenario::parse(Path::new("s.toml"), &text, folder.path(), &mut library)
    };
    let stretched = &of("arrivals = \"car.txt\"\nstretch = true").unwrap()[0];
    assert_eq!(stretched.shown[0].arrivals, "car.txt 30/s");
    let per_s = stretched.experiment.jobs[0].arrivals.per_s();
    assert!((per_s.unwrap() - 30.0).abs() < 1e-6, "{per_s:?}");
    // Where the file is missing the rate is that of its replacement.
    let poisson = of("arrivals = [\"no/car.txt\", \"poisson\"]\nstretch = true").unwrap();
    assert_eq!(poisson[0].shown[0].arrivals, "poisson 30/s");
    for (arrivals, fault) in [
        ("arrivals = \"poisson\"\nstretch = true", "not a file"),
        ("arrivals = \"car.txt\"", "rate is set"),
    ] {
        let error = of(arrivals).unwrap_err().to_string();
        assert!(error.contains(fault), "{error}");
    }
}

#[test]
fn laws_besides_the_policy_are_those_of_a_daemon() {
    let with = |laws: &str| {
        let text = PAIR.replace("\"mps\"", "\"pillion\"");
        text.replace("[policy]", &format!("{laws}\n[policy]"))
    };
    let text = with("[gpu]\ngovernor = true\n[throttle]\nclock_mhz = 1400\n[share]\npercent = 35");
    let experiment = &scenarios(&text)[0].experiment;
    assert_eq!(experiment.gpu.governor.unwrap().tdp_w, 70.0);
    let throttle = experiment.laws.throttle.unwrap();
    assert_eq!(
        (throttle.utilisation, throttle.clock_mhz),
        (0.9, Some(1400))
    );
    assert_eq!(experiment.laws.share, Some(ShareMode::Static(35)));
    let experiment = &scenarios(&with("[share]"))[0].experiment;
    assert_eq!(experiment.laws.share, Some(ShareMode::Dynamic));
    assert_eq!(experiment.gpu.governor, None);
    assert_eq!(
        faults(&with("[throttle]\nutilisation = 1.5\n[share]\npercent = 5")),
        [
            "s.toml:7:15: utilisation is 1.5; must be 0.1 to 1; nearest is 1",
            "s.toml:9:11: percent is 5; must be a whole number from 10 to 100; nearest is 10",
        ]
    );
    let laws = PAIR.replace("[policy]", "[share]\n[policy]");
    assert_eq!(
        faults(&laws),
        ["s.toml:7:1: mps is not a policy of the daemon, so [throttle] and [share] do not apply"]
    );
}
