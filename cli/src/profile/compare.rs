//! `pillion profile compare`: the changes from one profile of a job to the next.

use std::path::PathBuf;

use clap::Args;
use import::compare::{Change, Row, compare};
use profiler::Profile;
use serde_json::{Value, json};

use super::output;
use crate::failure::Failure;

/// Shows which kernels became slower or faster, are new or missing, the greatest effect first.
#[derive(Debug, Args)]
#[command(after_help = "Example: pillion profile compare before.profile.toml after.profile.toml")]
pub(crate) struct Options {
    /// The earlier profile.
    before: PathBuf,
    /// The later profile.
    after: PathBuf,
    /// Count a kernel as the same if its median changed by less.
    #[arg(long, value_name = "PCT", default_value_t = 5.0)]
    threshold: f64,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// Exits 2 for a file that is no profile.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let before = Profile::load(&options.before).map_err(Failure::usage)?;
    let after = Profile::load(&options.after).map_err(Failure::usage)?;
    let rows = compare(&before, &after, options.threshold.max(0.0));
    let text = if options.json {
        format!("{}\n", json_of(&before, &after, &rows))
    } else {
        text_of(&before, &after, &rows)
    };
    output::write(&text, None)
}

fn json_of(before: &Profile, after: &Profile, rows: &[Row<'_>]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let kernel = row.after.or(row.before);
            json!({
                "change": row.change.word(),
                "name": kernel.map(|kernel| &kernel.name),
                "operator": kernel.and_then(|kernel| kernel.operator.as_ref()).map(ToString::to_string),
                "grid": kernel.map(|kernel| kernel.grid),
                "block": kernel.map(|kernel| kernel.block),
                "shared_bytes": kernel.map(|kernel| kernel.shared_bytes),
                "median_before_ns": row.before.map(|kernel| kernel.durations.median_ns),
                "median_after_ns": row.after.map(|kernel| kernel.durations.median_ns),
                "change_pct": row.change_pct(),
                "impact_ns": row.impact_ns(),
            })
        })
        .collect();
    json!({"schema_version": 1, "gpu_before": before.gpu, "gpu_after": after.gpu, "kernels": rows})
}

fn text_of(before: &Profile, after: &Profile, rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    if before.gpu != after.gpu {
        text += &format!(
            "note: measured on {} before and on {} after, which also changes the times\n",
            before.gpu, after.gpu
        );
    }
    let count = |change| rows.iter().filter(|row| row.change == change).count();
    let counts: Vec<String> = [
        Change::Slower,
        Change::Faster,
        Change::New,
        Change::Gone,
        Change::Same,
    ]
    .into_iter()
    .map(|change| format!("{} {}", count(change), change.word()))
    .collect();
    text += &format!("{}\n", counts.join(", "));
    let changed = rows.iter().filter(|row| row.change != Change::Same);
    let mut table = output::table(
        &["CHANGE", "BEFORE", "AFTER", "%", "EFFECT", "KERNEL"],
        &["CHANGE", "KERNEL"],
    );
    for row in changed {
        let median = |kernel: Option<&profiler::KernelProfile>| {
            kernel.map_or("-".to_owned(), |kernel| {
                output::duration(kernel.durations.median_ns)
            })
        };
        let effect = row.impact_ns();
        let sign = if effect < 0.0 { "-" } else { "+" };
        table.add_row(vec![
            row.change.word().to_owned(),
            median(row.before),
            median(row.after),
            row.change_pct()
                .map_or("-".to_owned(), |pct| format!("{pct:+.1}")),
            format!("{sign}{}", output::duration(effect.abs() as u64)),
            row.after
                .or(row.before)
                .map_or(String::new(), output::kernel),
        ]);
    }
    if table.row_count() > 0 {
        text += &format!("\n{}\n", output::plain(&table));
    }
    text
}
