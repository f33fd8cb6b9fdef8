//! Prints how well services are predicted beside trainings never met
//! (`cluster_sim::interference`):
//!
//! ```text
//! cargo run --release -p pillion-cluster-sim --example interference
//! ```
//!
//! With the argument `all` also the mean over all 126 ways to see five of nine trainings, which
//! takes minutes.

use cluster_sim::interference::{Judged, Question, SEVEN_SHARES, fit_error, judge};
use cluster_sim::service_table::{SERVICES, ServiceTable, TRAININGS, TableError};
use learn::interference::Choice;
use policy::latency_model::SAMPLE_SHARES;

const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];

fn main() -> Result<(), TableError> {
    let table = ServiceTable::a100()?;
    println!("fit, 6 shares: {:.4}", fit_error(&table, &SAMPLE_SHARES));
    println!("fit, 7 shares: {:.4}", fit_error(&table, &SEVEN_SHARES));
    for has_time in [false, true] {
        let question = Question {
            has_time,
            ..Question::mudi()
        };
        let features = if has_time {
            "layers and time"
        } else {
            "layers"
        };
        println!("\n{features}");
        let all = judge(&table, &question, &ALL);
        show("all", &all);
        for service in ALL {
            let own = judge(&table, &question, &[service]);
            show(SERVICES[service].name, &own);
            for (_, choices) in &own.choices {
                println!("  {}", choices.map(|choice| shown(&choice)).join(", "));
            }
            for (_, choices) in &own.speed_choices {
                let shown: Vec<String> = choices.iter().map(shown).collect();
                println!("  speeds: {}", shown.join(", "));
            }
        }
        for training in question.unseen.clone() {
            let own = Question {
                unseen: vec![training],
                ..question.clone()
            };
            show(TRAININGS[training].name, &judge(&table, &own, &ALL));
        }
        for seed in 1..4 {
            let permuted = Question {
                is_permuted: true,
                seed,
                ..question.clone()
            };
            show("permuted", &judge(&table, &permuted, &ALL));
        }
        by_latencies(&table, &question);
        if std::env::args().any(|argument| argument == "all") {
            every_division(&table, &question);
        }
    }
    Ok(())
}

fn shown(choice: &Choice) -> String {
    format!(
        "{:?}/{:?} {:.2}",
        choice.method, choice.features, choice.error
    )
}

fn show(title: &str, of: &Judged) {
    let four = |numbers: [f64; 4]| numbers.map(|number| format!("{number:.3}")).join(" ");
    println!(
        "{title:<13} numbers {} | R2 {} | latency {:.3} (mean {:.3}) | speed {:.3} R2 {:.3}",
        four(of.numbers),
        four(of.r2),
        of.latency,
        of.latency_of_mean,
        of.speed,
        of.speed_r2
    );
}

/// By how many latencies of each service are learnt, means over five draws.
fn by_latencies(table: &ServiceTable, question: &Question) {
    for latencies in [30, 48, 60, 72, 90, 120, 210] {
        let judged = (1..6).map(|seed| {
            let question = Question {
                latencies: Some(latencies),
                seed,
                ..question.clone()
            };
            judge(table, &question, &ALL)
        });
        show(&format!("{latencies} latencies"), &mean(judged.collect()));
    }
}

/// Over all ways to see five.
fn every_division(table: &ServiceTable, question: &Question) {
    let count = TRAININGS.len() as u32;
    let judged = (0..1_u32 << count).filter(|seen| seen.count_ones() == 5);
    let judged = judged.map(|seen| {
        let of = |is_seen: bool| {
            let all = 0..count;
            let own = all.filter(move |training| (seen >> training & 1 == 1) == is_seen);
            own.map(|training| training as usize).collect()
        };
        let question = Question {
            seen: of(true),
            unseen: of(false),
            ..question.clone()
        };
        judge(table, &question, &ALL)
    });
    let judged: Vec<Judged> = judged.collect();
    let mut latency: Vec<f64> = judged.iter().map(|of| of.latency).collect();
    latency.sort_by(f64::total_cmp);
    println!(
        "126 divisions: latency {:.3} to {:.3}",
        latency[0], latency[125]
    );
    show("their mean", &mean(judged));
}

fn mean(all: Vec<Judged>) -> Judged {
    let count = all.len() as f64;
    let mut mean = Judged::default();
    for of in all {
        for number in 0..4 {
            mean.numbers[number] += of.numbers[number] / count;
            mean.r2[number] += of.r2[number] / count;
        }
        mean.latency += of.latency / count;
        mean.latency_of_mean += of.latency_of_mean / count;
        mean.speed += of.speed / count;
        mean.speed_r2 += of.speed_r2 / count;
    }
    mean
}
