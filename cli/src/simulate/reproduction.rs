//! `reproduction.md` of `--out`: a suite's runs beside its publication's claims, made from the
//! lines of the results alone, so that it can be recreated from them.

use std::fmt::Write as _;

use serde_json::Value;
use sim::suite::Suite;
use sim::suite::published::{Claim, Measure};
use softgpu::MODEL_VERSION;

use crate::simulate::outcomes::series_name;
use crate::simulate::plan::Plan;

/// `why` is the suite's.
pub(crate) fn document(plan: &Plan, suite: &Suite, why: &str, lines: &[Value]) -> String {
    let mut text = format!(
        "# Suite {}: the publication beside the simulator\n\n\
         Content: {}. Written by `pillion simulate {} --out DIR` from {} runs{}, model version {MODEL_VERSION}. \
         Equal input gives an equal file. All numbers come from the model: nothing here was measured on hardware; \
         [model.md](model.md) has the model's limits.\n\n",
        suite.name,
        suite.about,
        plan.suite_options(suite),
        lines.len(),
        sizes(lines),
    );
    for note in &plan.notes {
        let _ = writeln!(text, "**Note:** {note}.\n");
    }
    text.push_str(
        "## Claims\n\n\
         *Over alone* is a 99th percentile, or a median where the row says so, divided by the same job's alone. Of \
         several seeds: the median, and the least to the greatest.",
    );
    let claims = suite.claims();
    let has_code = claims.iter().any(|claim| claim.policy.is_none());
    text.push_str(match has_code {
        true => {
            " *code* is `orion-code`, the behaviour of the paper's program; *here* is `orion`, the paper's description, or the \
             policy that the row names.\n"
        }
        false => "\n",
    });
    for part in &plan.parts {
        let of_part: Vec<&Value> = lines
            .iter()
            .filter(|line| line["experiment"] == part.key.as_str())
            .collect();
        let claims = claims.iter().filter(|claim| claim.part == part.key);
        let rows = claims.map(|claim| row(claim, has_code, &of_part));
        let rows: Vec<String> = rows.collect();
        if !rows.is_empty() {
            let _ = write!(
                text,
                "\n### {}\n\n{}{}",
                part.title,
                match has_code {
                    true => "| | the paper | code | here |\n|---|---|---|---|\n",
                    false => "| | the paper | here |\n|---|---|---|\n",
                },
                rows.concat()
            );
        }
    }
    let _ = write!(text, "\n{why}\n## Every pair\n\n");
    text.push_str(
        "In each cell: the high-priority job's 99th percentile over alone (for a training job, its time per \
         iteration over alone), and the mean rate of best-effort jobs as a share of their rate alone; means over the \
         seeds.\n",
    );
    for part in &plan.parts {
        let of_part = lines
            .iter()
            .filter(|line| line["experiment"] == part.key.as_str());
        let _ = write!(text, "\n### {}\n\n", part.title);
        matrix(&mut text, &of_part.collect::<Vec<_>>());
    }
    text
}

/// Length of the runs and seeds, in words.
pub(super) fn sizes(lines: &[Value]) -> String {
    let distinct = |key: &str| {
        let mut values: Vec<String> = lines.iter().map(|line| line[key].to_string()).collect();
        values.sort();
        values.dedup();
        values
    };
    let seconds: Vec<String> = distinct("seconds")
        .iter()
        .map(|s| s.trim_end_matches(".0").to_owned())
        .collect();
    let seeds = distinct("seed");
    let word = if seeds.len() == 1 { "seed" } else { "seeds" };
    format!(
        " of {} s of device time, {word} {}",
        seconds.join(" or "),
        seeds.join(", ")
    )
}

fn row(claim: &Claim, has_code: bool, lines: &[&Value]) -> String {
    let shown = |policy: &str| shown(&by_seed(claim, policy, lines));
    if let Some(policy) = claim.policy.as_ref().filter(|_| !has_code) {
        return format!("| {} | {} | {} |\n", claim.what, claim.paper, shown(policy));
    }
    let (code, here) = match &claim.policy {
        Some(policy) => ("".to_owned(), shown(policy)),
        None => (shown("orion-code"), shown("orion")),
    };
    format!("| {} | {} | {code} | {here} |\n", claim.what, claim.paper)
}

/// For each seed that has the measure, ascending.
fn by_seed(claim: &Claim, policy: &str, lines: &[&Value]) -> Vec<f64> {
    let mut seeds: Vec<u64> = lines
        .iter()
        .filter_map(|line| line["seed"].as_u64())
        .collect();
    seeds.sort_unstable();
    seeds.dedup();
    let of_seed = |seed: u64| {
        let lines = lines.iter().filter(|line| line["seed"] == seed);
        read(claim, policy, &lines.copied().collect::<Vec<_>>())
    };
    let mut values: Vec<f64> = seeds.into_iter().filter_map(of_seed).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The median of ascending values, and their ends if these print differently.
fn shown(values: &[f64]) -> String {
    let (Some(least), Some(greatest)) = (values.first(), values.last()) else {
        return "-".to_owned();
    };
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    };
    let [least, median, greatest] = [*least, median, *greatest].map(|value| format!("{value:.2}"));
    if least == greatest {
        return median;
    }
    format!("{median} ({least} to {greatest})")
}

/// Over the runs that the claim covers.
fn read(claim: &Claim, policy: &str, lines: &[&Value]) -> Option<f64> {
    let is_meant = |line: &&&Value| {
        let be = line["pair"]["be"].as_array();
        let has_be = |name: &String| be.is_some_and(|be| be.iter().any(|be| be == name));
        let swept = line["swept"].as_object();
        let has_swept =
            |value: &String| swept.is_some_and(|swept| swept.values().any(|swept| swept == value));
        line["policy"] == policy
            && (claim.be.is_empty() || claim.be.iter().any(has_be))
            && match &claim.swept {
                Some(value) => has_swept(value),
                // A policy with other numbers, or on another device, is another row.
                None => series_of(line) == policy,
            }
    };
    let lines = lines.iter().filter(is_meant);
    let values: Vec<f64> = lines
        .filter_map(|line| measured(claim.measure, line))
        .collect();
    match claim.measure {
        Measure::HpP50XWorst | Measure::HpP99XWorst => values.into_iter().reduce(f64::max),
        _ => mean(&values),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn measured(measure: Measure, line: &Value) -> Option<f64> {
    let hp = |key: &str| line["hp"][key].as_f64();
    let be = |key: &str| {
        let jobs = line["be"].as_array()?.iter();
        mean(&jobs.filter_map(|job| job[key].as_f64()).collect::<Vec<_>>())
    };
    match measure {
        Measure::BeSoloPerS => be("solo_per_s"),
        Measure::BePerS => be("per_s"),
        Measure::BeShare => {
            let jobs = line["be"].as_array()?.iter();
            let shares =
                jobs.filter_map(|job| Some(job["per_s"].as_f64()? / job["solo_per_s"].as_f64()?));
            mean(&shares.filter(|share| share.is_finite()).collect::<Vec<_>>())
        }
        Measure::HpShare => Some(hp("per_s")? / hp("solo_per_s")?),
        Measure::HpP95Ms => hp("p95_ms"),
        Measure::HpP99Ms => hp("p99_ms"),
        Measure::HpP50XWorst => Some(hp("p50_ms")? / hp("solo_p50_ms")?),
        Measure::HpP99X | Measure::HpP99XWorst => Some(hp("p99_ms")? / hp("solo_p99_ms")?),
    }
}

fn matrix(text: &mut String, lines: &[&Value]) {
    let (mut pairs, mut series) = (Vec::new(), Vec::new());
    let place = |list: &mut Vec<String>, word: String| {
        if !list.contains(&word) {
            list.push(word);
        }
    };
    for line in lines {
        place(&mut pairs, pair_of(line));
        place(&mut series, series_of(line));
    }
    let _ = write!(text, "| |");
    for name in &series {
        let _ = write!(text, " {name} |");
    }
    let _ = write!(text, "\n|---|{}\n", "---|".repeat(series.len()));
    for pair in &pairs {
        let _ = write!(text, "| {pair} |");
        for name in &series {
            let of = lines
                .iter()
                .filter(|line| pair_of(line) == *pair && series_of(line) == *name);
            let of: Vec<&&Value> = of.collect();
            let all = |value: &dyn Fn(&Value) -> Option<f64>| {
                mean(&of.iter().filter_map(|line| value(line)).collect::<Vec<_>>())
            };
            let cost = all(&|line| match line["hp"]["arrivals"].as_str() {
                Some("closed") => measured(Measure::HpShare, line).map(|share| 1.0 / share),
                _ => measured(Measure::HpP99X, line),
            });
            let share = all(&|line| measured(Measure::BeShare, line));
            let cost = cost.map_or("-".to_owned(), |cost| format!("{cost:.2}"));
            let share = share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
            let _ = write!(text, " {cost}, {share} |");
        }
        text.push('\n');
    }
}

fn pair_of(line: &Value) -> String {
    let be = line["pair"]["be"].as_array().map_or(String::new(), |be| {
        let names: Vec<&str> = be.iter().filter_map(Value::as_str).collect();
        names.join(" + ")
    });
    format!(
        "{} beside {be}",
        line["pair"]["hp"].as_str().unwrap_or("nobody")
    )
}

fn series_of(line: &Value) -> String {
    let swept = line["swept"].as_object();
    let swept = swept.into_iter().flatten();
    let swept = swept.filter_map(|(path, value)| Some((path.as_str(), value.as_str()?)));
    series_name(line["policy"].as_str().unwrap_or_default(), swept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_seeds_the_median_and_the_ends_are_shown() {
        assert_eq!(shown(&[]), "-");
        assert_eq!(shown(&[7.45]), "7.45");
        assert_eq!(shown(&[7.451, 7.452]), "7.45");
        assert_eq!(shown(&[7.0, 7.5]), "7.25 (7.00 to 7.50)");
        assert_eq!(shown(&[7.0, 7.5, 9.0]), "7.50 (7.00 to 9.00)");
    }
}
