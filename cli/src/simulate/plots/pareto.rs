//! Best-effort gain against high-priority loss, and the series that no other dominates.

use std::fmt::Write as _;

use super::{Field, slowdown, slowdown_name};
use crate::simulate::outcomes::Group;
use crate::svg::{Axis, WIDTH, escaped, open};

const LEFT: f64 = 60.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 400.0;

/// Of a series, over its pairs.
struct Mean {
    series: usize,
    slowdown: f64,
    share: f64,
}

/// A small dot for each pair, a large one for each mean, and a line through the undominated means.
pub(crate) fn pareto(field: &Field<'_, '_>) -> String {
    let share = |group: &Group<'_>| group.be_share();
    let dots: Vec<(usize, f64, f64)> = field
        .groups
        .iter()
        .filter_map(|(series, _, group)| Some((*series, slowdown(group)?, share(group)?)))
        .collect();
    let means: Vec<Mean> = (0..field.series.len())
        .filter_map(|series| {
            Some(Mean {
                series,
                slowdown: field.mean(series, slowdown)?,
                share: field.mean(series, share)?,
            })
        })
        .collect();
    let most = dots.iter().map(|dot| dot.1).fold(1.5, f64::max);
    let most_share = dots.iter().map(|dot| dot.2).fold(1.0, f64::max);
    let least = dots.iter().map(|dot| dot.1).fold(1.0, f64::min);
    let axis = Axis::log((least * 0.95, most * 1.1), (LEFT, RIGHT));
    let height = |share: f64| BOTTOM - share / most_share * (BOTTOM - TOP);
    let mut svg = open(
        (WIDTH, BOTTOM + 40.0),
        "Best-effort share against the high-priority job's loss",
    );
    axis.draw(&mut svg, TOP, BOTTOM, slowdown_name(field));
    for (share, text) in Axis::linear((0.0, most_share * 100.0), (0.0, 1.0)).ticks() {
        let y = height(share / 100.0);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"dim\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text} %</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (series, slowdown, share) in &dots {
        let (x, y, class) = (axis.x(*slowdown), height(*share), field.colour(*series));
        let _ = write!(
            svg,
            "<circle class=\"fill pale {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>"
        );
    }
    front(&mut svg, &means, |mean| {
        (axis.x(mean.slowdown), height(mean.share))
    });
    let mut taken: Vec<[f64; 4]> = means
        .iter()
        .map(|mean| around(axis.x(mean.slowdown), height(mean.share)))
        .collect();
    for mean in &means {
        let (x, y) = (axis.x(mean.slowdown), height(mean.share));
        let name = &field.series[mean.series];
        let _ = write!(
            svg,
            "<circle class=\"fill ring {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"/>",
            field.colour(mean.series)
        );
        name_beside(&mut svg, name, (x, y), &mut taken);
    }
    svg.push_str("</svg>");
    svg
}

/// The undominated means: no other is at least as good on both axes and better on one.
fn front(svg: &mut String, means: &[Mean], place: impl Fn(&Mean) -> (f64, f64)) {
    let beats = |a: &Mean, b: &Mean| {
        a.slowdown <= b.slowdown
            && a.share >= b.share
            && (a.slowdown, a.share) != (b.slowdown, b.share)
    };
    let unbeaten = means
        .iter()
        .filter(|mean| !means.iter().any(|other| beats(other, mean)));
    let mut places: Vec<(f64, f64)> = unbeaten.map(place).collect();
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((first, rest)) = places.split_first() else {
        return;
    };
    let _ = write!(
        svg,
        "<path class=\"front\" d=\"M{:.1} {:.1}",
        first.0, first.1
    );
    for (x, y) in rest {
        let _ = write!(svg, "H{x:.1}V{y:.1}");
    }
    svg.push_str("\"/>");
}

/// The box of a large dot: left, top, right, bottom.
fn around(x: f64, y: f64) -> [f64; 4] {
    [x - 7.0, y - 7.0, x + 7.0, y + 7.0]
}

/// Places a name where no dot or other name is, if there is such a place nearby.
fn name_beside(svg: &mut String, name: &str, (x, y): (f64, f64), taken: &mut Vec<[f64; 4]>) {
    let width = 6.4 * name.chars().count() as f64;
    let fits = |b: &[f64; 4]| b[0] > LEFT && b[2] < WIDTH && b[1] > 0.0 && b[3] < BOTTOM;
    let overlaps =
        |a: &[f64; 4], b: &[f64; 4]| a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
    let mut candidates = Vec::new();
    for down in [
        0.0, -13.0, 13.0, -26.0, 26.0, -39.0, 39.0, -52.0, 52.0, -65.0, 65.0,
    ] {
        for left in [x + 10.0, x - 10.0 - width] {
            candidates.push([left, y + down - 7.0, left + width, y + down + 6.0]);
        }
    }
    let free = candidates
        .iter()
        .find(|place| fits(place) && !taken.iter().any(|other| overlaps(place, other)));
    let Some(&at) = free.or(candidates.first()) else {
        return;
    };
    taken.push(at);
    let middle = (at[1] + at[3]) / 2.0;
    if (middle - y).abs() > 14.0 {
        let near = if at[0] > x { at[0] - 2.0 } else { at[2] + 2.0 };
        let _ = write!(
            svg,
            "<line class=\"lead\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{near:.1}\" y2=\"{middle:.1}\"/>"
        );
    }
    let _ = write!(
        svg,
        "<text class=\"halo\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        at[0],
        middle + 4.5,
        escaped(name)
    );
}
