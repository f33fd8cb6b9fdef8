//! `pillion simulate cluster` as a user runs it: traces of each form, output, refusals, written
//! files. Recorded traces are not part of the repository (`testing::data`).

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::pages::expect_page;
use crate::simulate_on_one_core;
use crate::simulating::{expect_refused, expect_success, lines, simulate, text, words};

/// A folder with traces; a command line refers to them by name.
struct Files(tempfile::TempDir);

const TIRESIAS: &str = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n\
    0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,23\n2,2,53,133,vgg11,300,10\n3,4,63,1,vgg11,0,1\n";

const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,\
    creation_time,deletion_time,scheduled_time\n\
    p0,6000,12288,1,460,,LS,Succeeded,0,4000,0\np1,6000,12288,1,540,,LS,Succeeded,10,5010,10\n\
    p2,4000,8192,1,300,,BE,Succeeded,20,1020,20\np3,4000,8192,2,1000,,BE,Succeeded,90000,90600,90000\n";

const TRACES: [(&str, &str); 9] = [
    ("TIRESIAS", TIRESIAS),
    ("PODS", PODS),
    (
        "PHILLY",
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-01 00:00:00,66.0,1,66.0,a\n\
         2017-10-01 01:00:00,90.0,4,360.0,b\n",
    ),
    (
        "MURI",
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,\
         iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n\
         0,16,0,5,vgg16,16,20000,3000,332,83,68,110,0\n1,1,0,5,a2c,64,10000,4000,517,514,14,0,1\n",
    ),
    (
        "GAVEL",
        "LM\tc\t-n\t1\t4000\t0.0\t1\nA3C\tc\t-n\t1\t2000\t6.0\t1\nLM\tc\t-n\t1\t400\t7.0\t4\n",
    ),
    (
        "TASKS",
        "j0,worker,2.0,Terminated,1000.0,1020.0,600.0,29.5,50.0,T4\n\
         j1,worker,1,Terminated,1010.0,1040.0,600.0,2.0,150.0,T4\n",
    ),
    (
        "PAIRS",
        r#"{"v100": {"('LM', 1)": {"null": 4.0, "('A3C', 1)": [1.0, 0.5]},
            "('A3C', 1)": {"null": 2.0, "('LM', 1)": [0.5, 1.0]}}}"#,
    ),
    (
        "NODES",
        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\nn1,64000,262144,2,T4\n",
    ),
    ("WORDS", "these are words\n"),
];

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("room");
        for (name, content) in TRACES {
            fs::write(folder.path().join(name), content).expect("room");
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn line(&self, line: &str) -> String {
        let path = |word: &str| {
            let is_file = TRACES.iter().any(|(name, _)| *name == word) || word == "OUT";
            if is_file {
                self.path(word).display().to_string()
            } else {
                word.to_owned()
            }
        };
        let words: Vec<String> = words(line).map(path).collect();
        format!("cluster {}", words.join(" "))
    }

    fn lines(&self, line: &str) -> Vec<Value> {
        lines(&self.line(line))
    }

    fn refused(&self, line: &str, said: &str) {
        expect_refused(&self.line(line), said);
    }
}

#[test]
fn every_form_of_trace_is_played() {
    let files = Files::new();
    for (trace, jobs, more) in [
        ("TIRESIAS", 3, ""),
        ("PODS", 4, "--slo 0.96"),
        ("PHILLY", 2, ""),
        ("MURI", 2, ""),
        ("GAVEL", 2, "--pairs PAIRS"),
        ("TASKS", 2, ""),
    ] {
        let line = format!("--trace {trace} --gpus 16 --policy first-fit {more}");
        let lines = files.lines(&line);
        assert_eq!(lines.len(), 1, "{trace}");
        assert_eq!(lines[0]["trace"], trace);
        assert_eq!(lines[0]["jobs"], jobs, "{trace}");
        let refused = |class: &str| lines[0][class]["refused"].as_u64().unwrap();
        assert_eq!(refused("high_priority") + refused("best_effort"), 0);
    }
}

#[test]
fn each_run_is_a_line_with_the_fields_of_the_contract() {
    let files = Files::new();
    let lines = files
        .lines("--trace PODS --nodes NODES --slo 0.96 --policy gpucolo,fgd@promised --seeds 2,1");
    let order = lines
        .iter()
        .map(|line| json!([line["policy"], line["seed"]]));
    let expected = json!([
        ["gpucolo", 2],
        ["gpucolo", 1],
        ["fgd@promised", 2],
        ["fgd@promised", 1]
    ]);
    assert_eq!(order.collect::<Value>(), expected);
    for line in &lines {
        assert_eq!(line["schema_version"], 1);
        assert_eq!(line["model"], cluster_sim::MODEL);
        assert_eq!((&line["suite"], &line["gpus"]), (&Value::Null, &json!(4)));
        for key in words("gpus_mean gpus_most gpu_hours used_j idle_j makespan_s") {
            assert!(line[key].as_f64().unwrap() > 0.0, "{key}: {line}");
        }
        for class in ["high_priority", "best_effort"] {
            assert_eq!(line[class]["jobs"], 2);
            for key in words("refused promised late completion_s waiting_s waiting_p99_s speed") {
                assert!(line[class][key].is_number(), "{class}.{key}: {line}");
            }
        }
        assert_eq!(line["high_priority"]["promised"], 2);
        assert_eq!(line["best_effort"]["promised"], 0);
        assert_eq!(line["gpus_daily"].as_array().unwrap().len(), 2);
        // Nobody with a promise comes on the second day.
        assert_eq!(line["violations_daily"][1], Value::Null);
        for key in words("exclusive separate least") {
            assert!(line["bounds"][key].is_number(), "{key}: {line}");
        }
    }
    // Both share a GPU under each: under GPUColo's rule one is late, as 0.96 is its share exactly.
    let late = |line: &Value| line["violations"].as_f64().unwrap();
    assert!(late(&lines[0]) > late(&lines[2]), "{lines:#?}");
}

#[test]
fn neighbours_matter_where_pairs_are_given() {
    let files = Files::new();
    let speed = |more: &str| {
        let line = format!("--trace TIRESIAS --gpus 8 --policy gpucolo {more}");
        files.lines(&line)[0]["best_effort"]["speed"]
            .as_f64()
            .unwrap()
    };
    let (alone, beside) = (speed(""), speed("--pairs PAIRS"));
    assert!(beside <= alone, "{beside} beside others, {alone} without");
    let line = "--trace GAVEL --gpus 1 --policy gpucolo --pairs PAIRS";
    let gavel = files.lines(line)[0]["best_effort"]["speed"]
        .as_f64()
        .unwrap();
    // Each has half of the GPU for most of the time, and keeps half of that.
    assert!(gavel < 0.5, "{gavel}");
}

#[test]
fn what_is_left_out_is_said_on_standard_error_and_people_get_a_table() {
    let files = Files::new();
    let ended = simulate(&files.line("--trace TIRESIAS --gpus 16 --policy first-fit,exclusive"));
    expect_success(&ended);
    assert_eq!(
        text(&ended.stderr),
        "pillion: 1 of 4 jobs left out: no length\n"
    );
    let table = text(&ended.stdout);
    for word in [
        "TIRESIAS: 3 jobs, 16 GPUs",
        "POLICY",
        "MWh",
        "exclusive",
        "All numbers are simulated",
    ] {
        assert!(table.contains(word), "{word}:\n{table}");
    }
    let heading = table.lines().find(|line| line.contains("POLICY"));
    let row = table.lines().find(|line| line.contains("first-fit"));
    let ends = [heading.unwrap(), row.unwrap()].map(|line| line.trim_end().chars().count());
    assert_eq!(ends[0], ends[1], "numbers are on the right:\n{table}");
}

#[test]
fn inflation_fills_a_cluster_and_counts_what_does_not_fit() {
    let files = Files::new();
    let line = "--trace PODS --nodes NODES --inflate 1.3 --seeds 1,2 --policy random,fgd";
    let lines = files.lines(line);
    assert_eq!(lines.len(), 4);
    for line in &lines {
        let count = |key: &str| line[key].as_u64().unwrap();
        assert!(count("arrived") > count("dropped"), "{line}");
        assert_eq!((&line["target"], &line["jobs"]), (&json!(1.3), &json!(4)));
        assert_eq!(line["published_pct_at"], Value::Null);
        let at = line["allocated_pct_at"].as_object().unwrap();
        assert!(at.contains_key("50") && at.contains_key("130"), "{line}");
        let allocated = line["allocated"].as_f64().unwrap();
        assert!(allocated > 0.3 && allocated <= 1.0, "{line}");
    }
    let all = files.lines("--trace PODS --gpus 4 --inflate 0.9 --seeds 1");
    let policies: Vec<&str> = all
        .iter()
        .filter_map(|line| line["policy"].as_str())
        .collect();
    let published = cluster_sim::fgd::POLICIES.map(|(_, ours)| ours);
    assert_eq!(policies, published);
    let at = all[0]["allocated_pct_at"].as_object().unwrap();
    assert!(at.contains_key("90") && !at.contains_key("95"), "{at:?}");
}

const REFUSALS: [(&str, &str); 44] = [
    (
        "--trace TIRESIAS --gpus 8 --policy fair",
        "muxflow, pillion",
    ),
    (
        "--trace TIRESIAS --gpus 8 --policy fdg",
        "did you mean `fgd`?",
    ),
    (
        "--trace TIRESIAS --gpus 8 --policy fgd,fgd",
        "fgd is given twice",
    ),
    ("--trace TIRESIAS --gpus 8 --seeds 3,3", "3 is given twice"),
    ("--trace TIRESIAS", "--gpus <N>"),
    ("--gpus 8", "--trace <FILE>"),
    (
        "--trace TIRESIAS --gpus 8 --nodes NODES",
        "cannot be used with",
    ),
    (
        "--trace TIRESIAS --gpus 0",
        "--gpus 0: expected 1 to 100000",
    ),
    (
        "--trace TIRESIAS --gpus 8 --node-gpus 33",
        "expected 1 to 32",
    ),
    ("--trace TIRESIAS --gpus 8 --device V101", "V100"),
    ("--trace TIRESIAS --gpus 8 --days 0", "--days 0"),
    ("--trace TIRESIAS --gpus 8 --slo 0.96", "leave --slo out"),
    ("--trace PODS --gpus 8 --slo -1", "--slo -1"),
    ("--trace PODS --gpus 8 --inflate 0", "--inflate 0"),
    (
        "--trace PODS --gpus 8 --inflate 1.3 --seeds 4294967296",
        "4294967296",
    ),
    (
        "--trace TIRESIAS --gpus 8 --inflate 1.3",
        "expected the pods of openb",
    ),
    ("--trace GAVEL --gpus 8", "--pairs FILE"),
    (
        "--trace GAVEL --gpus 8 --pairs PAIRS --pairs-gpu a100",
        "expected one of v100",
    ),
    (
        "--trace TIRESIAS --gpus 8 --pairs WORDS",
        "throughputs of Gavel",
    ),
    ("--trace WORDS --gpus 8", "WORDS:1: the header"),
    ("--trace TIRESIAS --nodes WORDS", "machines of PAI"),
    (
        "--trace TIRESIAS --gpus 8 --policy fgd@most",
        "demand, elastic",
    ),
    (
        "--trace PODS --gpus 8 --inflate 1.3 --policy fgd@elastic",
        "expected fgd",
    ),
    (
        "--suite none",
        "fgd, gpucolo, mudi, muxflow, oltunes, predict",
    ),
    ("--suite fgd", "PILLION_DATA"),
    ("--suite fgd --neighbours measured", "of suite fgd"),
    ("--suite fgd --speed-max 1.2", "of suite fgd"),
    ("--suite gpucolo --speed-max 3", "expected 1 to 2"),
    ("--suite mudi --speed-max 1.2", "its own table"),
    ("--suite mudi --policy fgd", "mudi-slope"),
    ("--suite mudi --seeds 3,3", "3 is given twice"),
    ("--suite muxflow --policy fgd", "with its own seeds"),
    ("--suite oltunes --seeds 1", "its own policies and seeds"),
    ("--suite oltunes", "PILLION_DATA"),
    ("--suite predict --policy fgd", "compares learners"),
    ("--suite predict --seeds 3,3", "3 is given twice"),
    (
        "--suite gpucolo --neighbours some",
        "measured, permuted or unnoticed",
    ),
    ("--trace TIRESIAS --gpus 8 --quick", "cannot be used with"),
    (
        "--trace TIRESIAS --gpus 8 --neighbours measured",
        "cannot be used with",
    ),
    (
        "--trace TIRESIAS --nodes NODES --node-gpus 4",
        "cannot be used with",
    ),
    (
        "--trace TIRESIAS --nodes NODES --device T4",
        "cannot be used with",
    ),
    (
        "--trace PODS --gpus 8 --inflate 1 --pairs-gpu v100",
        "cannot be used with",
    ),
    (
        "--trace TIRESIAS --gpus 8 --pairs-gpu v100",
        "--pairs <FILE>",
    ),
    (
        "--trace TIRESIAS --gpus 8 --out /proc/nothing",
        "--out /proc/nothing",
    ),
];

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_run() {
    let files = Files::new();
    for (line, said) in REFUSALS {
        files.refused(line, said);
    }
}

#[test]
fn the_document_names_every_policy() {
    let document = crate::simulating::workspace().join("docs/simulate.md");
    let document = fs::read_to_string(document).expect("it is there");
    let section = document.split("## Clusters").nth(1).expect("it is there");
    for entry in cluster::placement::registry::ALL {
        assert!(
            section.contains(&format!("`{}`", entry.name)),
            "{}",
            entry.name
        );
    }
}

#[test]
fn a_job_that_fits_nowhere_is_counted_as_refused() {
    let files = Files::new();
    let lines = files.lines("--trace TIRESIAS --gpus 4 --policy first-fit");
    assert_eq!(lines[0]["best_effort"]["refused"], 1);
    assert_eq!(lines[0]["best_effort"]["jobs"], 3);
    // Sixteen GPUs on nodes of eight: a gang may span several, and no policy forgets it.
    for line in files.lines("--trace MURI --gpus 16") {
        assert_eq!(line["unplaced"], 0, "{line}");
        assert_eq!(line["best_effort"]["refused"], 0, "{line}");
    }
}

#[test]
fn equal_input_is_equal_output_to_the_byte() {
    let files = Files::new();
    for line in [
        "--trace PODS --nodes NODES --slo 0.96 --pairs PAIRS --seeds 1,2 --json",
        "--trace PODS --nodes NODES --inflate 1.3 --json",
    ] {
        let line = files.line(line);
        let first = simulate(&line);
        expect_success(&first);
        assert_eq!(first.stdout, simulate(&line).stdout);
        assert_eq!(first.stdout, simulate_on_one_core(&line).stdout);
    }
}

fn written(files: &Files, line: &str) -> (String, Vec<(String, String)>) {
    let out = files.path("OUT");
    let ended = simulate(&files.line(&format!("{line} --json --out OUT")));
    expect_success(&ended);
    let entries = fs::read_dir(&out).expect("it is written").flatten();
    let mut found: Vec<(String, String)> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().expect("our names are text");
            (name, fs::read_to_string(entry.path()).expect("text"))
        })
        .collect();
    found.sort();
    fs::remove_dir_all(&out).expect("it is ours");
    (text(&ended.stdout).to_owned(), found)
}

#[test]
fn pages_and_pictures_stand_alone_and_are_equal_for_equal_input() {
    let files = Files::new();
    let weeks = "--trace PODS --gpus 4 --slo 0.96 --policy first-fit,pillion --seeds 1,2";
    let inflation = "--trace PODS --nodes NODES --inflate 1.3 --seeds 1,2 --policy random,fgd";
    for (line, names) in [
        (
            weeks,
            "completion.svg energy.svg gpus.svg report.html results.jsonl violations.svg",
        ),
        (inflation, "PODS.allocation.svg report.html results.jsonl"),
    ] {
        let first = written(&files, line);
        assert_eq!(first, written(&files, line));
        let (printed, found) = first;
        let found_names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found_names.join(" "), names);
        for (name, content) in &found {
            if name == "results.jsonl" {
                assert_eq!(*content, printed);
                continue;
            }
            expect_page(content);
            assert!(content.contains("prefers-color-scheme: dark"), "{name}");
        }
        let page = &found
            .iter()
            .find(|(name, _)| name == "report.html")
            .unwrap()
            .1;
        let pictures = found.iter().filter(|(name, _)| name.ends_with(".svg"));
        assert_eq!(page.matches("<svg viewBox").count(), pictures.count());
    }
}

fn with_data(line: &str) -> Output {
    let folder = testing::data("traces");
    let data = folder.parent().expect("traces are in a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillion"));
    command.args(["simulate", "cluster"]).args(words(line));
    command.env("PILLION_DATA", data).output().expect("it runs")
}

#[test]
fn the_suite_fgd_sets_the_published_allocations_beside_ours() {
    let ended = with_data("--suite fgd --quick --policy best-fit --json");
    expect_success(&ended);
    let lines: Vec<Value> = text(&ended.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3 * 2);
    for line in &lines {
        assert_eq!(
            (&line["suite"], &line["gpus"]),
            (&json!("fgd"), &json!(6212))
        );
        let at = |key: &str| line[key]["130"].as_f64().unwrap();
        let gap = at("allocated_pct_at") - at("published_pct_at");
        assert!(gap.abs() < 0.006, "{gap}: {line}");
    }
    let table = with_data("--suite fgd --quick --policy best-fit");
    expect_success(&table);
    let table = text(&table.stdout);
    for word in [
        "openb_pod_list_gpushare40",
        "published",
        "furthest",
        "+0.00",
    ] {
        assert!(table.contains(word), "{word}:\n{table}");
    }
}

#[test]
fn the_suite_gpucolo_runs_with_chosen_policies() {
    let ended = with_data("--suite gpucolo --quick --policy exclusive,muxflow,pillion");
    expect_success(&ended);
    let table = text(&ended.stdout);
    let mut rows = table.lines();
    for policy in ["exclusive", "muxflow", "pillion"] {
        let is_row = |row: &str| row.split_whitespace().next() == Some(policy);
        assert!(rows.any(is_row), "{policy}:\n{table}");
    }
}

#[test]
fn the_suite_oltunes_has_a_line_for_each_pattern_and_policy() {
    let ended = with_data("--suite oltunes --quick --json");
    expect_success(&ended);
    let lines: Vec<Value> = text(&ended.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3 * 14);
    for line in &lines {
        assert_eq!(line["schema_version"], 1);
        assert_eq!(line["model"], cluster_sim::MODEL);
        assert_eq!(
            (&line["suite"], &line["load"]),
            (&json!("oltunes"), &json!("table-7"))
        );
        assert_eq!(line["utilisation"].as_array().unwrap().len(), 8);
        for key in words("inputs_per_s joules epc kept_speed utilisation_spread") {
            assert!(line[key].as_f64().unwrap() > 0.0, "{key}: {line}");
        }
        for class in ["critical", "throughput_oriented"] {
            for key in words("requests violations p50_ms p99_ms queueing_ms running_ms") {
                assert!(line[class][key].is_number(), "{class}.{key}: {line}");
            }
        }
        let policy = line["policy"].as_str().unwrap();
        let predicts = ["oltunes", "pillion"].map(|name| policy.starts_with(name));
        if predicts.contains(&true) {
            let served = line["predictor"]["served"].as_str().unwrap();
            assert!(line["predictor"]["r2"][served].as_f64().unwrap() > 0.5);
            assert!(line["predictor"]["samples"].as_u64().unwrap() > 100);
        } else {
            assert!(line["predictor"].is_null(), "{line}");
        }
    }
    let table = with_data("--suite oltunes --quick");
    expect_success(&table);
    let table = text(&table.stdout);
    for word in ["pattern real", "orion-first-free", "oltunes@no-window"] {
        assert!(table.contains(word), "{word}:\n{table}");
    }
}

#[test]
fn recorded_traces_of_each_form_are_played() {
    let recorded = [
        ("tiresias_60job/60_job.csv", "--gpus 64"),
        (
            "philly_processed/philly_every2nd.csv",
            "--gpus 512 --days 30",
        ),
        ("muri_philly/trace2_pr.csv", "--gpus 512 --days 7"),
        (
            "alibaba_gpu_v2023_openb/openb_pod_list_default.csv",
            "--gpus 128 --slo 0.96",
        ),
        (
            "gavel_msr_traces/103959.trace",
            "--gpus 512 --days 14 --pairs PAIRS",
        ),
    ];
    for (trace, more) in recorded {
        let path = testing::data(&format!("traces/{trace}"));
        let pairs = testing::data("traces/gavel_throughputs/physical_cluster_throughputs.json");
        let more = more.replace("PAIRS", &pairs.display().to_string());
        let line = format!(
            "--trace {} --policy first-fit {more} --json",
            path.display()
        );
        let ended = with_data(&line);
        expect_success(&ended);
        let line: Value = serde_json::from_slice(&ended.stdout).expect("a line");
        println!("{trace}: {} jobs, {} GPUs", line["jobs"], line["gpus_mean"]);
        assert!(line["jobs"].as_u64().unwrap() > 30, "{line}");
    }
}

#[test]
fn the_suite_predict_judges_learners_by_what_they_have_not_seen() {
    let ended = with_data("--suite predict --quick --json");
    expect_success(&ended);
    let lines: Vec<Value> = text(&ended.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let orders = lines.iter().filter(|line| line["served"].is_array());
    let orders: Vec<&Value> = orders.collect();
    assert_eq!(orders.len(), 2);
    for line in orders {
        assert_eq!(
            (&line["suite"], &line["seed"]),
            (&json!("predict"), &json!(1))
        );
        let late = &line["accuracy"][3];
        assert_eq!(late["learnt"], 1400);
        let r2 = |of: &str| late[of].as_f64().unwrap();
        assert!(r2("served") > 0.8 && r2("machine") > r2("linear"), "{line}");
        assert!(line["served"][0][1] == "machine", "{line}");
        assert!(
            line["learners"][1]["samples"].as_u64() > Some(1000),
            "{line}"
        );
    }
    let kept = lines.iter().filter(|line| line["kept_from"] == "gpu");
    let names: Vec<&Value> = kept.map(|line| &line["name"]).collect();
    assert_eq!(names[..4], ["k80", "p100", "v100", "all"]);
}
