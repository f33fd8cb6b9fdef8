//! The device model compared with measurements: the calibration, as code. Recomputes everything
//! from published files outside the repository (`testing::data`). `cargo test --release -p
//! pillion-sim --test calibration -- --nocapture` prints every fact.

#[macro_use]
extern crate testing;

mod disb;
mod driver;
mod fact;
mod gavel;
mod orion;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fact::{Fact, Half, Unused};
use softgpu::{Config, Contention, Device, LAUNCH_GAP_NS, MODEL_VERSION};

pub(crate) const TABLE_2: &str = "Orion, Table 2";
pub(crate) const TABLE_4: &str = "Orion, Table 4, alone";

/// Bounds for held-out facts: on the median error, and on each.
const ERROR_MEDIAN_MAX: f64 = 0.15;
const ERROR_MAX: f64 = 0.35;

/// Facts with an error above [`ERROR_MAX`], of either half. `docs/model.md` has the reasons.
const FARTHER: [(&str, &str); 1] = [("trt.B.json", "resnet152_be, ms")];

pub(crate) type Change<'a> = &'a dyn Fn(Config) -> Config;

fn main() -> ExitCode {
    testing::main()
}

fn v100() -> Device {
    Device::by_name("V100-SXM2-16GB").expect("in the table")
}

fn recordings() -> PathBuf {
    testing::data("traces/gavel_throughputs");
    testing::data("")
}

fn all(data: &Path, change: Change<'_>) -> (Vec<Fact>, Vec<Unused>) {
    let mut facts = orion::table_2(&v100(), change);
    facts.extend(orion::table_4(data, &v100(), change));
    let mut unused = orion::unused();
    for (more, more_unused) in [gavel::facts(data, change), disb::facts(data, change)] {
        facts.extend(more);
        unused.extend(more_unused);
    }
    (facts, unused)
}

#[test]
fn the_model_is_as_near_to_what_was_measured_as_its_table_says() {
    let data = recordings();
    let (facts, unused) = all(&data, &|config| config);
    for fact in &facts {
        println!(
            "{:<22} {:<40} {:<18} {:?} measured {:.3} model {:.3} {:+.0} %",
            fact.group,
            fact.name,
            fact.part,
            fact.half(),
            fact.measured,
            fact.model,
            fact.error() * 100.0
        );
    }
    let tables = format!("{}\n{}\n{}", groups(&facts), few(&facts), left_out(&unused));
    println!("{tables}");
    assert_bounds(&facts);
    let document = include_str!("../../../docs/model.md");
    assert!(
        document.contains(&tables),
        "docs/model.md must have these tables:\n{tables}"
    );
    assert!(document.contains(&format!("`MODEL_VERSION` {MODEL_VERSION}")));
}

/// `PILLION_CALIBRATION=all` also prints `docs/model.md`'s table of other numbers, for minutes.
#[test]
fn other_exponents_are_farther_from_table_2() {
    let off = |contention: Contention| -> f64 {
        let change = |config: Config| Config {
            contention,
            ..config
        };
        let facts = orion::table_2(&v100(), &change);
        facts.iter().map(|fact| fact.error().abs()).sum()
    };
    let calibrated = off(Contention::CALIBRATED);
    for (name, contention, launch_gap_ns) in others() {
        let is_exponent = name.contains("exponent") && launch_gap_ns == LAUNCH_GAP_NS;
        assert!(!is_exponent || off(contention) > calibrated, "{name}");
    }
    if std::env::var_os("PILLION_CALIBRATION").is_some_and(|value| value == "all") {
        print_others(&recordings());
    }
}

fn others() -> Vec<(&'static str, Contention, u64)> {
    let calibrated = Contention::CALIBRATED;
    let interference = |interference| Contention {
        interference,
        ..calibrated
    };
    let mean = |mean_exponent| Contention {
        mean_exponent,
        ..calibrated
    };
    let overload = |overload_exponent| Contention {
        overload_exponent,
        ..calibrated
    };
    vec![
        ("as calibrated", calibrated, LAUNCH_GAP_NS),
        ("interference 0", interference(0.0), LAUNCH_GAP_NS),
        ("interference 0.1", interference(0.1), LAUNCH_GAP_NS),
        ("interference 0.3", interference(0.3), LAUNCH_GAP_NS),
        ("interference 0.4", interference(0.4), LAUNCH_GAP_NS),
        ("mean exponent 3", mean(3), LAUNCH_GAP_NS),
        ("mean exponent 10", mean(10), LAUNCH_GAP_NS),
        ("overload exponent 1.05", overload(1.05), LAUNCH_GAP_NS),
        ("overload exponent 1.2", overload(1.2), LAUNCH_GAP_NS),
        ("launch gap 0.7 us", calibrated, LAUNCH_GAP_NS / 2),
        ("launch gap 2.8 us", calibrated, LAUNCH_GAP_NS * 2),
    ]
}

fn print_others(data: &Path) {
    println!(
        "| numbers | Table 2 | V100 fitted | V100 held out | all held out | largest held out |"
    );
    println!("|---|---|--:|--:|--:|--:|");
    for (name, contention, launch_gap_ns) in others() {
        let (facts, _) = all(data, &|config| Config {
            contention,
            launch_gap_ns,
            ..config
        });
        let of = |half: Half, group: &str| {
            let is_meant = |fact: &Fact| fact.half() == half && fact.group.contains(group);
            errors(&facts, is_meant)
        };
        let table_2: Vec<String> = facts
            .iter()
            .filter(|fact| fact.group == TABLE_2)
            .map(|fact| format!("{:.2}", fact.model))
            .collect();
        let held_out = of(Half::HeldOut, "");
        let largest = held_out.iter().rev().nth(FARTHER.len());
        println!(
            "| {name} | {} | {:.1} % | {:.1} % | {:.1} % | {:.0} % |",
            table_2.join(" "),
            median(&of(Half::Fitted, "V100")) * 100.0,
            median(&of(Half::HeldOut, "V100")) * 100.0,
            median(&held_out) * 100.0,
            largest.copied().unwrap_or(0.0) * 100.0
        );
    }
}

fn assert_bounds(facts: &[Fact]) {
    let held_out: Vec<f64> = errors(facts, |fact| fact.half() == Half::HeldOut);
    let median = median(&held_out);
    assert!(median <= ERROR_MEDIAN_MAX, "median error {median}");
    for fact in facts {
        let is_named = FARTHER.contains(&(fact.name.as_str(), fact.part.as_str()));
        let is_far = fact.error().abs() > ERROR_MAX;
        assert_eq!(is_far, is_named, "{fact:?}: {:+.2}", fact.error());
    }
}

fn errors(facts: &[Fact], of: impl Fn(&Fact) -> bool) -> Vec<f64> {
    let chosen = facts.iter().filter(|fact| of(fact));
    let mut errors: Vec<f64> = chosen.map(|fact| fact.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn groups(facts: &[Fact]) -> String {
    let mut table = String::from(
        "| facts | fitted | median error | largest | held out | median error | largest |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut names: Vec<&str> = facts.iter().map(|fact| fact.group).collect();
    names.dedup();
    for group in names.into_iter().map(Some).chain([None]) {
        write!(table, "| {} |", group.unwrap_or("all")).expect("to a string");
        for half in [Half::Fitted, Half::HeldOut] {
            let is_meant =
                |fact: &Fact| fact.half() == half && group.is_none_or(|g| g == fact.group);
            let errors = errors(facts, is_meant);
            if errors.is_empty() {
                table.push_str(" 0 | | |");
                continue;
            }
            let largest = errors.last().copied().unwrap_or(0.0);
            let (count, median) = (errors.len(), median(&errors));
            write!(
                table,
                " {count} | {:.0} % | {:.0} % |",
                median * 100.0,
                largest * 100.0
            )
            .expect("to a string");
        }
        table.push('\n');
    }
    table
}

fn few(facts: &[Fact]) -> String {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for fact in facts {
        *sizes.entry(fact.group).or_default() += 1;
    }
    let mut table =
        String::from("| fact | | half | measured | model | off |\n|---|---|---|--:|--:|--:|\n");
    let shown = facts
        .iter()
        .filter(|fact| sizes[fact.group] < 10 || fact.error().abs() > 0.25);
    for fact in shown {
        let half = match fact.half() {
            Half::Fitted => "fitted",
            Half::HeldOut => "held out",
        };
        let name = if sizes[fact.group] < 10 {
            format!("{}: {}", fact.group, fact.name)
        } else {
            fact.name.clone()
        };
        writeln!(
            table,
            "| {name} | {} | {half} | {:.2} | {:.2} | {:+.0} % |",
            fact.part,
            fact.measured,
            fact.model,
            fact.error() * 100.0
        )
        .expect("to a string");
    }
    table
}

fn left_out(unused: &[Unused]) -> String {
    let mut table = String::from("| not compared | numbers | why |\n|---|--:|---|\n");
    for Unused { what, count, why } in unused {
        let count = if *count == 0 {
            String::new()
        } else {
            count.to_string()
        };
        writeln!(table, "| {what} | {count} | {why} |").expect("to a string");
    }
    table
}
