//! The report's three pictures, as SVG. Lengths are units of the view box, 960 wide; [`Axis`] maps
//! times (ms) and rates (1/s) to lengths.

use std::fmt::Write as _;

use crate::demo::phase::Phase;
use crate::demo::record::{Launch, What, Who};
use crate::demo::results::Results;
use crate::demo::timeline::Scene;
use crate::svg::{Axis, WIDTH, open};

/// Where labels end and drawing begins.
const LEFT: f64 = 170.0;
const RIGHT: f64 = 945.0;
/// Limit on the dots of a row; of more requests every n-th is drawn.
const DOTS_MAX: usize = 2_000;
/// Pieces of a lane closer than this many units are joined.
const JOIN: f64 = 0.3;

/// The legend of [`around`].
pub(crate) const KEY: &str = concat!(
    "<p class=\"key\">",
    "<span><svg viewBox=\"0 0 10 8\"><rect class=\"k-hp\" width=\"10\" height=\"8\"/></svg>this request</span> ",
    "<span><svg viewBox=\"0 0 10 8\"><rect class=\"k-pale\" width=\"10\" height=\"8\"/></svg>other requests</span> ",
    "<span><svg viewBox=\"0 0 10 8\"><rect class=\"k-be\" width=\"10\" height=\"8\"/></svg>best-effort kernels</span> ",
    "<span><svg viewBox=\"0 0 10 8\"><rect class=\"k-busy\" width=\"10\" height=\"8\"/></svg>held: high-priority work runs</span> ",
    "<span><svg viewBox=\"0 0 10 8\"><rect class=\"k-throttle\" width=\"10\" height=\"8\"/></svg>held: enough is in flight</span> ",
    "<span><svg viewBox=\"0 0 10 8\"><rect class=\"k-other\" width=\"10\" height=\"8\"/></svg>about to be released</span> ",
    "</p>"
);

/// Every request of every phase as a dot, with median and 99th percentile.
pub(crate) fn latencies(scenes: &[Scene]) -> String {
    const ROW: f64 = 64.0;
    let rows: Vec<(Phase, Vec<f64>)> = scenes.iter().filter_map(sorted_ms).collect();
    let longest = rows.iter().filter_map(|(_, ms)| ms.last().copied());
    let axis = Axis::linear((0.0, longest.fold(1.0, f64::max) * 1.02), (LEFT, RIGHT));
    let bottom = ROW * rows.len() as f64 + 4.0;
    let mut svg = open((WIDTH, bottom + 40.0), "Latency of requests in each phase");
    axis.draw(&mut svg, 0.0, bottom, "from arrival to answer, ms");
    for (index, (phase, ms)) in rows.iter().enumerate() {
        row(&mut svg, &axis, *phase, ms, ROW * index as f64);
    }
    svg.push_str("</svg>");
    svg
}

fn sorted_ms(scene: &Scene) -> Option<(Phase, Vec<f64>)> {
    let requests = scene.record.requests.iter();
    let mut ns: Vec<u64> = requests.map(|r| r.done_ns - r.arrived_ns).collect();
    ns.sort_unstable();
    let ms: Vec<f64> = ns.iter().map(|&ns| ns as f64 / 1e6).collect();
    (!ms.is_empty()).then_some((scene.phase, ms))
}

fn row(svg: &mut String, axis: &Axis, phase: Phase, ms: &[f64], top: f64) {
    /// The golden ratio spreads neighbours of a sorted list evenly.
    const SPREAD: f64 = 0.618_033_988_749_895;
    let class = class_in(phase);
    name_row(svg, phase, top + 34.0);
    let every = ms.len().div_ceil(DOTS_MAX);
    for (index, &ms) in ms.iter().enumerate().step_by(every) {
        let y = top + 26.0 + (index as f64 * SPREAD).fract() * 30.0;
        let x = axis.x(ms);
        let _ = write!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
        );
    }
    let rank = |share: f64| ms[((ms.len() as f64 * share).ceil() as usize).clamp(1, ms.len()) - 1];
    let (median, tail) = (rank(0.5), rank(0.99));
    for (name, ms, anchor) in [("p50", median, "end"), ("p99", tail, "start")] {
        let x = axis.x(ms);
        let anchor = if x > RIGHT - 110.0 { "end" } else { anchor };
        let shift = if anchor == "end" { -4.0 } else { 4.0 };
        let _ = write!(
            svg,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{name} {ms:.1} ms</text>",
            top + 8.0,
            top + 60.0,
            x + shift,
            top + 18.0
        );
    }
}

fn class_in(phase: Phase) -> &'static str {
    match (phase, phase.has_pillion()) {
        (Phase::HpSolo | Phase::BeSolo, _) => "solo",
        (_, false) => "without",
        (_, true) => "with",
    }
}

fn name_row(svg: &mut String, phase: Phase, y: f64) {
    let (name, detail) = match phase {
        Phase::HpSolo | Phase::BeSolo => ("alone", ""),
        Phase::Timeslice => ("time-sliced", "the driver's default"),
        Phase::TimeslicePillion => ("time-sliced", "under Pillion"),
        Phase::Mps => ("MPS", "NVIDIA's sharing"),
        Phase::MpsPillion => ("MPS", "under Pillion"),
    };
    let _ = write!(
        svg,
        "<text class=\"bold\" x=\"{0}\" y=\"{y:.1}\" text-anchor=\"end\">{name}</text>\
         <text class=\"dim\" x=\"{0}\" y=\"{1:.1}\" text-anchor=\"end\">{detail}</text>",
        LEFT - 12.0,
        y + 16.0
    );
}

/// Bars for the best-effort job's rate in each phase that has one, with its share of the rate
/// alone.
pub(crate) fn throughput(results: &Results) -> Option<String> {
    const ROW: f64 = 44.0;
    /// Room for the numbers right of the longest bar.
    const NUMBERS: f64 = 130.0;
    let rows = results.phases().iter();
    let rows = rows.filter_map(|&phase| Some((phase, results.be_per_s(phase)?)));
    let rows: Vec<(Phase, f64)> = rows.collect();
    let fastest = rows.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
    if fastest <= 0.0 {
        return None;
    }
    let axis = Axis::linear((0.0, fastest), (LEFT, RIGHT - NUMBERS));
    let bottom = ROW * rows.len() as f64 + 4.0;
    let mut svg = open(
        (WIDTH, bottom + 40.0),
        "Rate of the best-effort job in each phase",
    );
    axis.draw(&mut svg, 0.0, bottom, "iterations per second");
    for (index, &(phase, rate)) in rows.iter().enumerate() {
        let top = ROW * index as f64;
        name_row(&mut svg, phase, top + 20.0);
        let share = results.be_share(phase);
        let share = share.filter(|_| phase != Phase::BeSolo);
        let share = share.map_or_else(String::new, |share| format!(" ({:.0} %)", share * 100.0));
        let (class, x) = (class_in(phase), axis.x(rate));
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"26\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{rate:.2}/s{share}</text>",
            top + 8.0,
            x - LEFT,
            x + 6.0,
            top + 25.0
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}

/// Work around request number `slow`, under MPS and under MPS and Pillion, on one scale.
pub(crate) fn around(scenes: &[Scene], slow: usize, launches: [&[Launch]; 2]) -> String {
    let chosen = [Phase::Mps, Phase::MpsPillion];
    let chosen = chosen.map(|phase| scenes.iter().find(|scene| scene.phase == phase));
    let took_ms = |scene: &Scene| {
        let request = scene.record.requests.get(slow)?;
        Some((request.done_ns - request.arrived_ns) as f64 / 1e6)
    };
    let longest_ms = chosen
        .iter()
        .flatten()
        .filter_map(|s| took_ms(s))
        .fold(0.1, f64::max);
    let axis = Axis::linear((-0.15 * longest_ms, 1.2 * longest_ms), (LEFT, RIGHT));
    let mut top = 0.0;
    let mut body = String::new();
    for scene in chosen.into_iter().flatten() {
        top = panel(&mut body, &axis, scene, slow, launches[0].len(), top) + 16.0;
    }
    let mut svg = open((WIDTH, top + 34.0), "Work on the GPU around one request");
    axis.draw(&mut svg, 0.0, top - 6.0, "ms since the request arrived");
    svg + &body + "</svg>"
}

/// Draws one phase; returns where it ends.
fn panel(
    svg: &mut String,
    axis: &Axis,
    scene: &Scene,
    slow: usize,
    per_request: usize,
    top: f64,
) -> f64 {
    let Some(&request) = scene.record.requests.get(slow) else {
        return top;
    };
    let took_ms = (request.done_ns - request.arrived_ns) as f64 / 1e6;
    let is_with = scene.phase.has_pillion();
    let bottom = top + if is_with { 176.0 } else { 150.0 };
    let (x0, x1) = (axis.x(0.0), axis.x(took_ms));
    let name = if is_with { "MPS and Pillion" } else { "MPS" };
    let _ = write!(
        svg,
        "<text class=\"bold\" x=\"{x0:.1}\" y=\"{:.1}\">{name}: answered after {took_ms:.1} ms</text>\
         <rect class=\"band\" x=\"{x0:.1}\" y=\"{1:.1}\" width=\"{2:.1}\" height=\"{3:.1}\"/>\
         <line class=\"dash\" x1=\"{x0:.1}\" x2=\"{x0:.1}\" y1=\"{1:.1}\" y2=\"{bottom:.1}\"/>\
         <line class=\"dash\" x1=\"{x1:.1}\" x2=\"{x1:.1}\" y1=\"{1:.1}\" y2=\"{bottom:.1}\"/>",
        top + 16.0,
        top + 22.0,
        x1 - x0,
        bottom - top - 22.0
    );
    let ms = |ns: u64| (ns as f64 - request.arrived_ns as f64) / 1e6;
    let mut lanes: [Vec<(f64, f64, &str)>; 2] = [Vec::new(), Vec::new()];
    for op in &scene.record.ops {
        let (from, to) = (ms(op.start_ns), ms(op.end_ns));
        if to < axis.from() || from > axis.to() {
            continue;
        }
        let class = match (op.who, op.what) {
            (_, What::Move(..)) => continue,
            (Who::Be, _) => "k-be",
            (Who::Hp, What::Kernel(nth)) if nth / per_request.max(1) == slow => "k-hp",
            (Who::Hp, _) => "k-pale",
        };
        lanes[op.who as usize].push((axis.x(from), axis.x(to), class));
    }
    lane(svg, "high-priority kernels", &lanes[0], top + 28.0, 26.0);
    lane(svg, "best-effort kernels", &lanes[1], top + 60.0, 26.0);
    let mut y = top + 92.0;
    if is_with {
        let holds = scene.holds();
        let holds = holds
            .iter()
            .filter(|(_, span)| ms(span.1) >= axis.from() && ms(span.0) <= axis.to());
        let holds: Vec<_> = holds
            .map(|(gate, span)| {
                (
                    axis.x(ms(span.0)),
                    axis.x(ms(span.1)),
                    class_of(&gate.limit),
                )
            })
            .collect();
        lane(svg, "best-effort job is held", &holds, y, 18.0);
        y += 26.0;
    }
    occupancy(svg, axis, scene, ms, y);
    bottom
}

fn class_of(limit: &str) -> &'static str {
    match limit {
        "hp-busy" | "interference" | "duty" | "paused" => "k-busy",
        "throttle" => "k-throttle",
        _ => "k-other",
    }
}

fn label(svg: &mut String, text: &str, y: f64) {
    let _ = write!(
        svg,
        "<text class=\"dim\" x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>",
        LEFT - 12.0
    );
}

/// Draws pieces in order of time; joins near ones of one colour.
fn lane(svg: &mut String, title: &str, pieces: &[(f64, f64, &str)], top: f64, height: f64) {
    label(svg, title, top + height / 2.0 + 4.0);
    let mut joined: Vec<(f64, f64, &str)> = Vec::new();
    for &(from, to, class) in pieces {
        match joined.last_mut() {
            Some(last) if last.2 == class && from - last.1 < JOIN => last.1 = last.1.max(to),
            _ => joined.push((from, to, class)),
        }
    }
    for (from, to, class) in joined {
        let width = (to - from).max(JOIN);
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{from:.2}\" y=\"{top:.1}\" width=\"{width:.2}\" height=\"{height}\"/>"
        );
    }
}

/// Draws busy SMs as an area: the mean per unit of length.
fn occupancy(svg: &mut String, axis: &Axis, scene: &Scene, ms: impl Fn(u64) -> f64, top: f64) {
    const HEIGHT: f64 = 48.0;
    let samples = &scene.record.sms;
    let most = samples
        .iter()
        .map(|&(_, sms)| sms)
        .max()
        .unwrap_or(1)
        .max(1);
    let text = format!("SMs with work, 0 to {most}");
    label(svg, &text, top + HEIGHT / 2.0 + 4.0);
    let most = most as f64;
    let units = (RIGHT - LEFT) as usize;
    let mut sums = vec![0.0; units];
    for (index, &(at_ns, sms)) in samples.iter().enumerate() {
        let end_ns = samples.get(index + 1).map_or(at_ns, |next| next.0);
        let (from, to) = (axis.x(ms(at_ns)) - LEFT, axis.x(ms(end_ns)) - LEFT);
        let touched = sums.iter_mut().enumerate().skip(from as usize);
        for (unit, sum) in touched.take_while(|(unit, _)| *unit as f64 <= to) {
            let overlap = to.min(unit as f64 + 1.0) - from.max(unit as f64);
            *sum += overlap.max(0.0) * sms as f64 / most;
        }
    }
    let floor = top + HEIGHT;
    let _ = write!(svg, "<path class=\"k-sms\" d=\"M{LEFT} {floor:.1}");
    for (unit, share) in sums.iter().enumerate() {
        let y = floor - share.min(1.0) * HEIGHT;
        let _ = write!(svg, "V{y:.1}H{:.0}", LEFT + unit as f64 + 1.0);
    }
    let _ = write!(svg, "V{floor:.1}Z\"/>");
}
