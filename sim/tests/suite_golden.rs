//! A small piece of every experiment of every suite, run by run, as recorded with the frozen model:
//! the first pair of jobs of each part, on built-in workloads, one second of device time, one seed.
//! A change here changes the suites' results: a change of the model is a commit of its own, with
//! the suite's table before and after. `oracle` is left out: its planning is not part of the model.

use sim::NoObserver;
use sim::library::Library;
use sim::suite::Suite;

const GOLDEN: &str = include_str!("suite_golden.txt");
const DURATION_NS: u64 = 1_000_000_000;

fn table() -> String {
    let suite = Suite::by_name("orion").expect("it comes with the program");
    let built = suite
        .build(None, true, &mut Library::default())
        .expect("a test holds it");
    let mut table = String::new();
    for (part, scenarios) in built.parts {
        let first = scenarios[0].shown.clone();
        for scenario in scenarios.iter().filter(|scenario| scenario.shown == first) {
            let mut experiment = scenario.with_seed(1);
            if experiment.policy.name() == "oracle" {
                continue;
            }
            experiment.duration_ns = DURATION_NS;
            experiment.warmup_requests = 0;
            let outcome = experiment.run(&mut NoObserver).expect("it was checked");
            let swept: Vec<&str> = scenario
                .swept
                .iter()
                .filter(|swept| !swept.path.starts_with("jobs"))
                .map(|swept| swept.value.as_str())
                .collect();
            table += &format!("{} [{}]", part.key, swept.join(", "));
            for job in &outcome.jobs {
                let p99_ns = job.quantile_ns(990).unwrap_or(0);
                table += &format!(" | {} {} {p99_ns}", job.requests, job.launches);
            }
            table.push('\n');
        }
    }
    table
}

#[test]
fn every_run_is_as_it_was() {
    let table = table();
    assert!(table == GOLDEN, "now:\n{table}");
}
