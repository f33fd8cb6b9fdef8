//! The pictures of a set of runs: tails, latencies, trade-off, utilisation. A *series* is a policy
//! with its swept values, a *pair* the jobs that run together. Every picture's caption explains it.
//! A series has one colour (`.s0` to `.s11` of `report.css`) in all pictures of a page.

mod cdf;
mod curve;
mod pareto;

use std::fmt::Write as _;

pub(crate) use cdf::{PANELS_MAX, cdf};
pub(crate) use curve::{curve, swept_number};
pub(crate) use pareto::pareto;

use sim::PolicySpec;

use crate::simulate::outcomes::Group;
use crate::svg::{Axis, WIDTH, escaped, open};

/// Colours of series; further series reuse them.
pub(crate) const COLOURS: usize = 12;

/// Greater slowdowns are drawn as this, with their number.
const SLOWDOWN_MAX: f64 = 10.0;

/// Slowdowns up to this are blue.
const GOOD: f64 = 1.25;

/// One part's groups, by series and pair in order of appearance.
#[derive(Debug)]
pub(crate) struct Field<'g, 'p> {
    pub(crate) series: Vec<String>,
    pub(crate) pairs: Vec<String>,
    pub(crate) groups: Vec<(usize, usize, &'g Group<'p>)>,
    colours: Vec<usize>,
}

impl<'g, 'p> Field<'g, 'p> {
    pub(crate) fn new(groups: &'g [Group<'p>]) -> Self {
        let mut field = Self {
            series: Vec::new(),
            pairs: Vec::new(),
            groups: Vec::new(),
            colours: Vec::new(),
        };
        for group in groups {
            let series = place(&mut field.series, group.series());
            let pair = place(&mut field.pairs, group.pair());
            field.groups.push((series, pair, group));
        }
        // A policy has one colour in all pictures; other series get theirs by position.
        let policy = |name: &String| PolicySpec::names().iter().position(|policy| policy == name);
        let policies: Option<Vec<usize>> = field.series.iter().map(policy).collect();
        field.colours = policies.unwrap_or_else(|| (0..field.series.len()).collect());
        field
    }

    /// None if the group was not run or has no value.
    fn value(&self, at: (usize, usize), of: impl Fn(&Group<'_>) -> Option<f64>) -> Option<f64> {
        let found = self.groups.iter().find(|(s, p, _)| (*s, *p) == at);
        of(found?.2)
    }

    fn colour(&self, series: usize) -> String {
        format!("s{}", self.colours[series] % COLOURS)
    }

    /// The mean over the pairs of one series.
    pub(crate) fn mean(
        &self,
        series: usize,
        of: impl Fn(&Group<'_>) -> Option<f64>,
    ) -> Option<f64> {
        let values = self.groups.iter().filter(|(s, _, _)| *s == series);
        let values: Vec<f64> = values.filter_map(|(_, _, group)| of(group)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// The index of a word in a list, to which it appends a new word.
fn place(list: &mut Vec<String>, word: String) -> usize {
    list.iter()
        .position(|known| *known == word)
        .unwrap_or_else(|| {
            list.push(word);
            list.len() - 1
        })
}

/// Slowdown of the high-priority 99th percentile against alone; for a training job, of its rate.
pub(crate) fn slowdown(group: &Group<'_>) -> Option<f64> {
    let hp = group.hp?;
    Some(if hp.is_training {
        1.0 / hp.share
    } else {
        hp.slowdown[2]
    })
}

pub(crate) fn slowdown_name(field: &Field<'_, '_>) -> &'static str {
    let mut hps = field.groups.iter().filter_map(|(_, _, group)| group.hp);
    match hps.next() {
        Some(hp) if hp.is_training => "time of an iteration, over alone",
        _ => "99th percentile of latency, over alone",
    }
}

/// Bars for each pair, a column for each series, starting at the value alone.
pub(crate) fn tails(field: &Field<'_, '_>) -> String {
    const LEFT: f64 = 250.0;
    const TOP: f64 = 112.0;
    const ROW: f64 = 30.0;
    let columns = field.series.len().max(1) as f64;
    let column = ((WIDTH - LEFT) / columns).clamp(56.0, 140.0);
    let rows = field.pairs.len() + usize::from(field.pairs.len() > 1);
    let bottom = TOP + ROW * rows as f64;
    let width = (LEFT + column * columns + 50.0).max(WIDTH);
    let mut svg = open((width, bottom + 8.0), "99th percentiles against alone");
    for (index, name) in field.series.iter().enumerate() {
        let x = LEFT + column * (index as f64 + 0.3);
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" transform=\"rotate(-40 {x:.1} {y:.1})\">{}</text>",
            escaped(name),
            y = TOP - 10.0
        );
    }
    for row in 0..rows {
        let top = TOP + ROW * row as f64;
        let is_mean = row == field.pairs.len();
        let name = field.pairs.get(row).map_or("mean", String::as_str);
        label(&mut svg, name, is_mean, LEFT - 12.0, top);
        for series in 0..field.series.len() {
            let value = if is_mean {
                field.mean(series, slowdown)
            } else {
                field.value((series, row), slowdown)
            };
            let left = LEFT + column * series as f64;
            bar(&mut svg, value, (left, left + column - 10.0), top);
        }
    }
    svg.push_str("</svg>");
    svg
}

/// The high-priority job is above the best-effort ones.
fn label(svg: &mut String, name: &str, is_bold: bool, right: f64, top: f64) {
    let (above, below) = name.split_once(" | ").unwrap_or((name, ""));
    let class = if is_bold { " class=\"bold\"" } else { "" };
    let _ = write!(
        svg,
        "<text{class} x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        top + 12.0,
        escaped(above)
    );
    if !below.is_empty() {
        let _ = write!(
            svg,
            "<text class=\"dim\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            top + 25.0,
            escaped(&shortened(below, 38))
        );
    }
}

fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max - 1).chain(['…']).collect()
}

fn bar(svg: &mut String, value: Option<f64>, places: (f64, f64), top: f64) {
    let Some(value) = value else {
        let _ = write!(
            svg,
            "<text class=\"dim\" x=\"{:.1}\" y=\"{:.1}\">-</text>",
            places.0,
            top + 13.0
        );
        return;
    };
    let axis = Axis::log((1.0, SLOWDOWN_MAX), places);
    let class = if value <= GOOD { "k-hp" } else { "k-be" };
    let digits = if value < 9.995 { 2 } else { 0 };
    let _ = write!(
        svg,
        "<rect class=\"trough\" x=\"{0:.1}\" y=\"{1:.1}\" width=\"{2:.1}\" height=\"6\"/>\
         <rect class=\"{class}\" x=\"{0:.1}\" y=\"{1:.1}\" width=\"{3:.1}\" height=\"6\"/>\
         <text x=\"{0:.1}\" y=\"{4:.1}\">{value:.digits$}</text>",
        places.0,
        top + 17.0,
        places.1 - places.0,
        (axis.x(value) - places.0).max(1.0),
        top + 13.0
    );
}

/// Means over the pairs.
pub(crate) fn utilisation(field: &Field<'_, '_>) -> String {
    const LEFT: f64 = 190.0;
    const ROW: f64 = 40.0;
    let axis = Axis::linear((0.0, 100.0), (LEFT, WIDTH - 60.0));
    let bottom = 26.0 + ROW * field.series.len() as f64;
    let mut svg = open((WIDTH, bottom + 40.0), "Utilisation of the device");
    let words = [
        ("SMs with work", "k-hp"),
        ("arithmetic", "k-be"),
        ("memory bandwidth", "k-busy"),
    ];
    for (index, (word, class)) in words.into_iter().enumerate() {
        let x = LEFT + 160.0 * index as f64;
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"3\" width=\"12\" height=\"9\"/>\
             <text class=\"dim\" x=\"{}\" y=\"12\">{word}</text>",
            x + 17.0
        );
    }
    axis.draw(
        &mut svg,
        22.0,
        bottom,
        "per cent of the device, over the whole run",
    );
    for (series, name) in field.series.iter().enumerate() {
        let top = 26.0 + ROW * series as f64;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 12.0,
            top + 21.0,
            escaped(name)
        );
        let shares: [fn(&Group<'_>) -> f64; 3] =
            [|g| g.util.sm, |g| g.util.compute, |g| g.util.bandwidth];
        for (index, (of, (_, class))) in shares.into_iter().zip(words).enumerate() {
            let pct = field.mean(series, |group| Some(of(group))).unwrap_or(0.0) * 100.0;
            let (y, x) = (top + 2.0 + 11.0 * index as f64, axis.x(pct));
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"9\"/>\
                 <text class=\"dim small\" x=\"{:.1}\" y=\"{:.1}\">{pct:.0}</text>",
                (x - LEFT).max(0.5),
                x + 4.0,
                y + 8.5
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Returns where the legend ends.
fn legend(svg: &mut String, field: &Field<'_, '_>, left: f64, top: f64) -> f64 {
    let names = field.series.iter().enumerate();
    let entries = names.map(|(series, name)| (name.as_str(), field.colour(series)));
    keys(svg, entries, left, top)
}

/// Draws names beside their colour classes, in rows; returns where they end.
pub(crate) fn keys<'n>(
    svg: &mut String,
    entries: impl Iterator<Item = (&'n str, String)>,
    left: f64,
    top: f64,
) -> f64 {
    let (mut x, mut y) = (left, top);
    for (name, class) in entries {
        // Average width of a character at 12 px: 6.2 units.
        let width = 34.0 + 6.2 * name.chars().count() as f64;
        if x + width > WIDTH - 10.0 && x > left {
            (x, y) = (left, y + 18.0);
        }
        let _ = write!(
            svg,
            "<rect class=\"fill {class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"9\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            y - 9.0,
            x + 19.0,
            y,
            escaped(name)
        );
        x += width;
    }
    y + 8.0
}
