//! Prometheus itself (Debian's `prometheus`, with promtool), exporter, alerts and dashboard.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::{Exporter, ask, jobs};
use crate::common::{Gpu, Process, clean_command, tools, until, workspace};

/// Runs promtool in the folder of the examples, or with this on its standard input.
fn promtool(arguments: &[&str], input: Option<&str>) {
    let mut command = Command::new(tools::program("promtool"));
    command
        .args(arguments)
        .current_dir(workspace().join("examples/monitoring"));
    let mut process = Process::start("promtool", command);
    if let Some(input) = input {
        process.write(input);
    }
    process.finish().expect_success();
}

fn documented() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(workspace().join("docs/monitoring.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `pillion_"));
    let rows = rows.map(|row| {
        let mut cells = row.split('|').map(str::trim);
        let name = cells.nth(1).unwrap().trim_matches('`');
        (name.to_owned(), cells.next().unwrap().to_owned())
    });
    rows.collect()
}

fn api(address: SocketAddr, path: &str) -> Value {
    let (head, body) = ask(address, &format!("GET /api/v1/{path}"), "");
    // Long answers come in chunks; the JSON of these queries is in one piece.
    let json = body.find('{').zip(body.rfind('}'));
    let (first, last) = json.unwrap_or_else(|| panic!("{head}\n{body}"));
    serde_json::from_str(&body[first..=last]).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn prometheus(folder: &Path, config: &str) -> (Process, SocketAddr) {
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let mut command = clean_command(tools::program("prometheus"));
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.join("data").display()
        ))
        .args(["--web.listen-address=127.0.0.1:0", "--log.level=info"]);
    let process = Process::start("prometheus", command);
    let address = until("Prometheus to listen", || {
        let log = process.errors();
        let line = log
            .lines()
            .find(|line| line.contains("msg=\"Listening on\""))?;
        let (_, address) = line.split_once("address=")?;
        address.split_whitespace().next()?.parse().ok()
    });
    until("Prometheus to be ready", || {
        ask(address, "GET /-/ready", "").0.contains(" 200 OK")
    });
    (process, address)
}

#[test]
fn prometheus_scrapes_every_metric_that_is_documented() {
    tools::program("prometheus");
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let exporter = Exporter::start(&gpu, &daemon);
    let [service, training] = jobs(&gpu, &daemon);
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: pillion\n    static_configs:\n      - targets: ['{}']\n",
        exporter.address
    );
    let folder = tempfile::tempdir().unwrap();
    let (process, address) = prometheus(folder.path(), &config);
    let mut expected = BTreeSet::from(["up".to_owned()]);
    for (name, kind) in documented() {
        match kind.as_str() {
            "histogram" => {
                expected.extend(["bucket", "count", "sum"].map(|part| format!("{name}_{part}")))
            }
            _ => drop(expected.insert(name)),
        }
    }
    let is_up = || {
        let up = api(address, "query?query=up");
        let result = &up["data"]["result"][0];
        result["metric"]["job"] == "pillion" && result["value"][1] == "1"
    };
    until("up == 1", is_up);
    let names = || -> BTreeSet<String> {
        let names = api(address, "label/__name__/values");
        let names = names["data"].as_array().unwrap().iter();
        names
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect()
    };
    let missing = || -> Vec<String> { expected.difference(&names()).cloned().collect() };
    until("every documented name", || missing().is_empty());
    // No label is renamed, as `job` would be.
    let labels = api(address, "labels");
    assert!(!labels.to_string().contains("exported_"), "{labels}");
    // The page that Prometheus requests contains infos and units.
    let metadata = api(address, "metadata?metric=pillion_be_held_seconds");
    assert!(
        metadata.to_string().contains("\"unit\":\"seconds\""),
        "{metadata}"
    );
    promtool(&["check", "metrics"], Some(&exporter.page()));
    process.signal(Signal::TERM);
    process.finish_untold().expect_success();
    gpu.expect_right_end("serve", service, &daemon);
    gpu.expect_right_end("train", training, &daemon);
}

#[test]
fn the_alerts_are_rules_and_go_off_when_they_should() {
    promtool(&["check", "rules", "alerts.yml"], None);
    promtool(&["test", "rules", "alerts.test.yml"], None);
    promtool(&["check", "config", "prometheus.yml"], None);
}

/// The page of the unit tests, which has every family.
#[test]
fn a_page_with_every_family_passes_promtool() {
    let page = include_str!("../../../src/exporter/metrics/golden.prom");
    promtool(&["check", "metrics"], Some(page));
}

/// The expressions of the dashboard, with a value for each variable.
fn expressions() -> Vec<String> {
    let path = workspace().join("examples/monitoring/dashboard.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let variables = |expression: &str| {
        expression
            .replace("$UUID", ".*")
            .replace("$pillion_job", ".*")
    };
    expressions.map(variables).collect()
}

#[test]
fn the_dashboard_asks_for_documented_metrics_in_promql() {
    let expressions = expressions();
    assert!(expressions.len() > 15, "{expressions:#?}");
    let documented = documented();
    let is_known = |word: &str| {
        documented.iter().any(|(name, kind)| {
            let rest = word.strip_prefix(name.as_str());
            let parts = ["_bucket", "_count", "_sum"];
            rest.is_some_and(|rest| rest.is_empty() || kind == "histogram" && parts.contains(&rest))
        })
    };
    let alerts =
        std::fs::read_to_string(workspace().join("examples/monitoring/alerts.yml")).unwrap();
    for text in expressions.iter().chain([&alerts]) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let words = words.filter(|word| word.starts_with("pillion_") && *word != "pillion_job");
        let unknown: Vec<&str> = words.filter(|word| !is_known(word)).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {text}");
    }
    let rules = expressions.iter().enumerate().map(|(nth, expression)| {
        let expression = Value::from(expression.as_str());
        format!("      - {{record: panel:{nth}, expr: {expression}}}\n")
    });
    let rules: String = rules.collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dashboard.yml");
    std::fs::write(
        &file,
        format!("groups:\n  - name: dashboard\n    rules:\n{rules}"),
    )
    .unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()], None);
}
