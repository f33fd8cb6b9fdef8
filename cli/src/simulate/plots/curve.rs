//! The effect of a job's number: the high-priority job's loss against it, a line for each series.

use std::fmt::Write as _;

use super::{Field, SLOWDOWN_MAX, legend, slowdown, slowdown_name};
use crate::simulate::outcomes::Group;
use crate::svg::{Axis, WIDTH, escaped, open};

const LEFT: f64 = 60.0;
const RIGHT: f64 = WIDTH - 30.0;
const HEIGHT: f64 = 340.0;
const POINTS_MIN: usize = 4;

/// The path of a job's number that was swept over enough values.
pub(crate) fn swept_number(groups: &[Group<'_>]) -> Option<String> {
    let first = groups.first()?;
    let mut paths = first.scenario.swept.iter().map(|swept| &swept.path);
    let is_curve = |path: &&String| {
        let values: Option<Vec<f64>> = groups.iter().map(|group| value(group, path)).collect();
        let mut values = values.unwrap_or_default();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values.len() >= POINTS_MIN && values.iter().all(|&value| value > 0.0)
    };
    paths
        .find(|path| path.starts_with("jobs.") && is_curve(path))
        .cloned()
}

/// `path` is that of [`swept_number`].
pub(crate) fn curve(field: &Field<'_, '_>, path: &str) -> String {
    let points: Vec<(usize, f64, f64)> = field
        .groups
        .iter()
        .filter_map(|(series, _, group)| Some((*series, value(group, path)?, slowdown(group)?)))
        .collect();
    let ends = |of: fn(&(usize, f64, f64)) -> f64| {
        let values = points.iter().map(of);
        values.fold((f64::MAX, 0.0_f64), |(least, most), value| {
            (least.min(value), most.max(value))
        })
    };
    let (x_ends, (least, most)) = (ends(|point| point.1), ends(|point| point.2));
    let mut body = String::new();
    let top = legend(&mut body, field, LEFT, 14.0) + 8.0;
    let bottom = top + HEIGHT;
    let across = Axis::log((x_ends.0 * 0.9, x_ends.1 * 1.1), (LEFT, RIGHT));
    let most = (most * 1.05).clamp(1.2, SLOWDOWN_MAX);
    let up = Axis::log((least.min(1.0) * 0.98, most), (bottom, top));
    let name = path.rsplit('.').next().unwrap_or(path);
    across.draw(&mut body, top, bottom, &escaped(name));
    for (value, text) in up.ticks() {
        let y = up.x(value);
        let _ = write!(
            body,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"dim\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for series in 0..field.series.len() {
        let places: Vec<(f64, f64)> = mean_points(&points, series)
            .into_iter()
            .map(|(value, slowdown)| (across.x(value), up.x(slowdown)))
            .collect();
        line(&mut body, &places, &field.colour(series));
    }
    let title = format!("{}, against {name}", slowdown_name(field));
    open((WIDTH, bottom + 40.0), &escaped(&title)) + &body + "</svg>"
}

/// A series' values, ascending, each with the mean over the pairs that have it.
fn mean_points(points: &[(usize, f64, f64)], series: usize) -> Vec<(f64, f64)> {
    let mut own: Vec<(f64, f64)> = points
        .iter()
        .filter(|point| point.0 == series)
        .map(|&(_, value, slowdown)| (value, slowdown))
        .collect();
    own.sort_by(|a, b| a.0.total_cmp(&b.0));
    let groups = own.chunk_by(|a, b| a.0 == b.0);
    groups
        .map(|of| {
            let sum: f64 = of.iter().map(|(_, slowdown)| slowdown).sum();
            (of[0].0, sum / of.len() as f64)
        })
        .collect()
}

fn line(svg: &mut String, places: &[(f64, f64)], colour: &str) {
    let _ = write!(svg, "<path class=\"line {colour}\" d=\"");
    for (index, (x, y)) in places.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(svg, "{command}{x:.1} {y:.1}");
    }
    svg.push_str("\"/>");
    for (x, y) in places {
        let _ = write!(
            svg,
            "<circle class=\"fill {colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
        );
    }
}

fn value(group: &Group<'_>, path: &str) -> Option<f64> {
    let mut swept = group.scenario.swept.iter();
    swept.find(|swept| swept.path == path)?.value.parse().ok()
}
