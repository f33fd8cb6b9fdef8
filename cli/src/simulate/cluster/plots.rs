//! The pictures of runs on clusters: lines by time, by requested GPUs, and by how much longer jobs
//! take; bars of energy. Every policy has one colour, by its place in the plan.

use std::fmt::Write as _;

use crate::simulate::plots::{COLOURS, keys};
use crate::svg::{Axis, WIDTH, escaped, open};

const LEFT: f64 = 60.0;
const RIGHT: f64 = WIDTH - 30.0;
const HEIGHT: f64 = 340.0;

#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: usize,
    /// From left to right.
    pub(crate) points: Vec<(f64, f64)>,
    /// The published points.
    pub(crate) beside: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale<'a> {
    pub(crate) ends: (f64, f64),
    pub(crate) is_log: bool,
    pub(crate) title: &'a str,
}

impl Scale<'_> {
    fn axis(&self, places: (f64, f64)) -> Axis {
        if self.is_log {
            Axis::log(self.ends, places)
        } else {
            Axis::linear(self.ends, places)
        }
    }
}

/// `title` is the text for a reader who cannot see the picture.
pub(crate) fn lines(title: &str, lines: &[Line<'_>], across: &Scale<'_>, up: &Scale<'_>) -> String {
    let mut body = String::new();
    let entries = lines.iter().map(|line| (line.name, colour(line.colour)));
    let top = keys(&mut body, entries, LEFT, 14.0) + 26.0;
    let bottom = top + HEIGHT;
    let axis = across.axis((LEFT, RIGHT));
    axis.draw(&mut body, top, bottom, &escaped(across.title));
    let rise = up.axis((bottom, top));
    let _ = write!(
        body,
        "<text class=\"dim\" x=\"4\" y=\"{:.1}\">{}</text>",
        top - 10.0,
        escaped(up.title)
    );
    for (value, text) in rise.ticks() {
        let y = rise.x(value);
        let _ = write!(
            body,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"dim\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for line in lines {
        let place = |&(x, y): &(f64, f64)| (axis.x(x), rise.x(y));
        let places: Vec<_> = line.points.iter().map(place).collect();
        let beside: Vec<_> = line.beside.iter().map(place).collect();
        draw(&mut body, &places, &beside, &colour(line.colour));
    }
    open((WIDTH, bottom + 40.0), &escaped(title)) + &body + "</svg>"
}

fn draw(svg: &mut String, places: &[(f64, f64)], beside: &[(f64, f64)], colour: &str) {
    if let [(x, y)] = places {
        let _ = write!(
            svg,
            "<circle class=\"fill {colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
        );
    } else if !places.is_empty() {
        let _ = write!(svg, "<path class=\"line {colour}\" d=\"");
        for (index, (x, y)) in places.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(svg, "{command}{x:.1} {y:.1}");
        }
        svg.push_str("\"/>");
    }
    for (x, y) in beside {
        let _ = write!(
            svg,
            "<circle class=\"fill ring {colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"
        );
    }
}

/// A bar for each policy: MWh of GPUs with a job, then of GPUs without.
pub(crate) fn energy(rows: &[(&str, f64, f64)]) -> String {
    const LEFT: f64 = 170.0;
    const ROW: f64 = 26.0;
    const TOP: f64 = 24.0;
    let most = rows.iter().map(|(_, used, idle)| used + idle);
    let most = most.fold(0.0, f64::max).max(1e-9);
    let axis = Axis::linear((0.0, most * 1.02), (LEFT, RIGHT));
    let bottom = TOP + ROW * rows.len() as f64;
    let mut svg = open((WIDTH, bottom + 40.0), "energy by policy");
    for (index, (word, class)) in [("GPUs with a job", "k-hp"), ("GPUs without", "k-pale")]
        .into_iter()
        .enumerate()
    {
        let x = LEFT + 160.0 * index as f64;
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"3\" width=\"12\" height=\"9\"/>\
             <text class=\"dim\" x=\"{}\" y=\"12\">{word}</text>",
            x + 17.0
        );
    }
    axis.draw(&mut svg, TOP, bottom, "MWh");
    for (index, (name, used, idle)) in rows.iter().enumerate() {
        let top = TOP + 4.0 + ROW * index as f64;
        let (middle, end) = (axis.x(*used), axis.x(used + idle));
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"k-hp\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"16\"/>\
             <rect class=\"k-pale\" x=\"{middle:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"16\"/>",
            LEFT - 10.0,
            top + 12.0,
            escaped(name),
            middle - LEFT,
            end - middle
        );
    }
    svg.push_str("</svg>");
    svg
}

fn colour(number: usize) -> String {
    format!("s{}", number % COLOURS)
}
