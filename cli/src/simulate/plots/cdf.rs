//! The distribution of latencies: a panel for each pair, a line for each series.

use std::fmt::Write as _;

use sim::{JobClass, JobOutcome};

use super::{Field, legend, shortened};
use crate::simulate::runner::Run;
use crate::svg::{Axis, WIDTH, escaped, open};

/// The caption reports further panels.
pub(crate) const PANELS_MAX: usize = 16;

const POINTS: usize = 120;
const COLUMNS: usize = 2;
const PANEL: f64 = 230.0;
const HEIGHT: f64 = 150.0;

/// Sorted latencies, ms, and a CSS class.
type Line = (Vec<f64>, String);

/// `runs` are those of the field's groups.
pub(crate) fn cdf(field: &Field<'_, '_>, runs: &[&Run<'_>]) -> String {
    let panels = field.pairs.len().min(PANELS_MAX);
    let mut body = String::new();
    let top = legend(&mut body, field, 46.0, 14.0);
    let rows = panels.div_ceil(COLUMNS) as f64;
    let columns = COLUMNS.min(panels).max(1);
    for (index, pair) in field.pairs.iter().take(PANELS_MAX).enumerate() {
        let width = (WIDTH - 10.0) / columns as f64;
        let left = width * (index % columns) as f64;
        let top = top + PANEL * (index / columns) as f64;
        let lines = lines(field, index, runs);
        panel(
            &mut body,
            pair,
            &lines,
            (left + 46.0, left + width - 14.0),
            top,
        );
    }
    let title = "Share of requests answered within a time";
    open((WIDTH, top + PANEL * rows), title) + &body + "</svg>"
}

/// All seeds of a pair together: alone first, then each series.
fn lines(field: &Field<'_, '_>, pair: usize, runs: &[&Run<'_>]) -> Vec<Line> {
    let mut lines = Vec::new();
    let of_pair = field.groups.iter().filter(|(_, p, _)| *p == pair);
    for &(series, _, group) in of_pair {
        let runs = runs
            .iter()
            .filter(|run| std::ptr::eq(run.scenario, group.scenario));
        let runs: Vec<&&Run<'_>> = runs.collect();
        if lines.is_empty() {
            let alone = sorted_ms(runs.iter().flat_map(|run| {
                let both = run.outcome.jobs.iter().zip(run.solo());
                both.filter(|(job, _)| is_hp(job)).map(|(_, solo)| solo)
            }));
            lines.push((alone, "alone".to_owned()));
        }
        let hps = runs
            .iter()
            .flat_map(|run| run.outcome.jobs.iter().filter(|job| is_hp(job)));
        lines.push((sorted_ms(hps), format!("line {}", field.colour(series))));
    }
    lines.retain(|(ms, _)| !ms.is_empty());
    lines
}

fn is_hp(job: &JobOutcome) -> bool {
    job.class == JobClass::HighPriority
}

fn sorted_ms<'o>(jobs: impl Iterator<Item = &'o JobOutcome>) -> Vec<f64> {
    let mut ns: Vec<u64> = jobs
        .flat_map(|job| job.latencies_ns.iter().copied())
        .collect();
    ns.sort_unstable();
    ns.iter().map(|&ns| ns as f64 / 1e6).collect()
}

fn panel(svg: &mut String, pair: &str, lines: &[Line], places: (f64, f64), top: f64) {
    let (above, bottom) = (top + 34.0, top + 34.0 + HEIGHT);
    let (hp, be) = pair.split_once(" | ").unwrap_or((pair, ""));
    let beside = if be.is_empty() {
        String::new()
    } else {
        format!(" beside {be}")
    };
    let title = shortened(&format!("{hp}{beside}"), 64);
    let _ = write!(
        svg,
        "<text class=\"bold\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        places.0,
        top + 24.0,
        escaped(&title)
    );
    let ends = lines
        .iter()
        .filter_map(|(ms, _)| Some((*ms.first()?, *ms.last()?)));
    let (least, most) = ends.fold((f64::MAX, 0.0), |(least, most): (f64, f64), (a, b)| {
        (least.min(a), most.max(b))
    });
    if most <= 0.0 {
        return;
    }
    let axis = Axis::log((least * 0.95, (most * 1.05).max(least * 1.5)), places);
    axis.draw(svg, above, bottom, "ms, from arrival to answer");
    let y = |share: f64| bottom - share * HEIGHT;
    for share in [0.0, 0.5, 0.9, 1.0] {
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{2:.1}\" y2=\"{2:.1}\"/>\
             <text class=\"dim small\" x=\"{3:.1}\" y=\"{4:.1}\" text-anchor=\"end\">{5:.0} %</text>",
            places.0,
            places.1,
            y(share),
            places.0 - 5.0,
            y(share) + 4.0,
            share * 100.0
        );
    }
    for (ms, class) in lines {
        let _ = write!(svg, "<path class=\"{class}\" d=\"");
        let points = POINTS.min(ms.len());
        for point in 0..=points {
            let rank = (ms.len() * point / points).min(ms.len() - 1);
            let share = (rank + 1) as f64 / ms.len() as f64;
            let command = if point == 0 { 'M' } else { 'L' };
            let _ = write!(svg, "{command}{:.1} {:.1}", axis.x(ms[rank]), y(share));
        }
        svg.push_str("\"/>");
    }
}
