//! Prints how well services are predicted beside trainings never met (`cluster_sim::interference`):
//! ```text
//! cargo run --release -p pillion-cluster-sim --example interference
//! ```
//! The argument `all` adds the mean over all 126 ways to see five of nine trainings, which takes
//! minutes.

use cluster_sim::interference::{Judged, Question, SEVEN_SHARES, curve, fit_errors, judge};
use cluster_sim::service_table::{
    BATCHES, SERVICES, SHARES_PCT, ServiceTable, TRAININGS, TableError,
};
use learn::interference::Choice;
use policy::latency_model::SAMPLE_SHARES;

const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];

fn main() -> Result<(), TableError> {
    let table = ServiceTable::a100()?;
    let nine = SHARES_PCT.map(|pct| f64::from(pct) / 100.0);
    for shares in [&SAMPLE_SHARES[..], &SEVEN_SHARES, &nine] {
        let found = fit_errors(&table, shares);
        let (count, all, held_out) = (shares.len(), found.all, found.held_out);
        println!("fit at {count} shares: {all:.4}, at those left out {held_out:.4}");
    }
    spread(&table);
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

/// By how much the slowest training slows a service more than the fastest, at the most.
fn spread(table: &ServiceTable) {
    let off = |p99: &dyn Fn(usize) -> Option<f64>| {
        let all: Vec<f64> = (0..TRAININGS.len()).filter_map(p99).collect();
        let most = all.iter().copied().fold(0.0, f64::max);
        most / all.iter().copied().fold(f64::INFINITY, f64::min) - 1.0
    };
    let (mut cells, mut knees) = ((0.0, String::new()), (0.0, String::new()));
    for (service, of) in SERVICES.iter().enumerate() {
        for batch in BATCHES {
            for pct in SHARES_PCT {
                let p99 = |training| Some(table.cell(service, training, batch, pct)?.batch_p99_ms);
                let found = off(&p99);
                if found > cells.0 {
                    cells = (found, format!("{}, batch {batch}, {pct} %", of.name));
                }
            }
            let knee = |training| {
                let curve = curve(table, (service, training, batch), &SAMPLE_SHARES)?;
                Some(curve.knee_p99)
            };
            let found = off(&knee);
            if found > knees.0 {
                knees = (found, format!("{}, batch {batch}", of.name));
            }
        }
    }
    println!("trainings apart by {cells:?} in a cell, l0 by {knees:?}");
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
        "{title:<13} numbers {} | R2 {} | latency {:.4} (mean {:.4}) | speed {:.3} R2 {:.3}",
        four(of.numbers),
        four(of.r2),
        of.latency,
        of.latency_of_mean,
        of.speed,
        of.speed_r2
    );
}

fn by_latencies(table: &ServiceTable, question: &Question) {
    for latencies in [30, 48, 60, 70, 72, 90, 120, 210] {
        let of = |seed, services: &[usize]| {
            let question = Question {
                latencies: Some(latencies),
                seed,
                ..question.clone()
            };
            judge(table, &question, services)
        };
        let judged: Vec<Judged> = (1..6).map(|seed| of(seed, &ALL)).collect();
        let mut worst = [0.0; 4];
        for judged in &judged {
            for (worst, own) in worst.iter_mut().zip(judged.numbers) {
                *worst = f64::max(*worst, own);
            }
        }
        show(&format!("{latencies} latencies"), &mean(judged));
        let own = (1..6).flat_map(|seed| ALL.map(|service| of(seed, &[service]).latency));
        let own = own.fold(0.0, f64::max);
        println!("  worst draw {worst:.3?}, worst latency of a service {own:.3}");
    }
}

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
    let mut of_mean: Vec<f64> = judged.iter().map(|of| of.latency_of_mean).collect();
    of_mean.sort_by(f64::total_cmp);
    println!(
        "126 divisions: latency {:.4} to {:.4} (mean of the seen {:.4} to {:.4})",
        latency[0], latency[125], of_mean[0], of_mean[125]
    );
    let all = mean(judged);
    show("their mean", &all);
    let of_mean = Judged {
        numbers: all.numbers_of_mean,
        latency: all.latency_of_mean,
        speed: all.speed_of_mean,
        r2: [0.0; 4],
        speed_r2: 0.0,
        ..all
    };
    show("mean of seen", &of_mean);
}

fn mean(all: Vec<Judged>) -> Judged {
    let count = all.len() as f64;
    let mut mean = Judged::default();
    for of in all {
        for number in 0..4 {
            mean.numbers[number] += of.numbers[number] / count;
            mean.numbers_of_mean[number] += of.numbers_of_mean[number] / count;
            mean.r2[number] += of.r2[number] / count;
        }
        mean.latency += of.latency / count;
        mean.latency_of_mean += of.latency_of_mean / count;
        mean.speed += of.speed / count;
        mean.speed_of_mean += of.speed_of_mean / count;
        mean.speed_r2 += of.speed_r2 / count;
    }
    mean
}
