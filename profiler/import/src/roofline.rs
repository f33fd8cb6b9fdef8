//! A profile's roofline as a self-contained SVG: operations per second over operations per byte of
//! device memory, both logarithmic, under the GPU's peaks. It follows a light or dark scheme.

use std::fmt::Write;

use devices::Device;
use profiler::base_name::base;
use profiler::{Profile, ResourceClass};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 60.0;
const TOP: f64 = 50.0;
const RIGHT: f64 = 30.0;

/// Radius of the smallest and the largest kernel; the area grows with the share of time.
const RADIUS_MIN: f64 = 3.0;
const RADIUS_MAX: f64 = 24.0;

const NAMED_MAX: usize = 6;
const NAMED_SHARE: f64 = 0.03;
const NAME_CHARS_MAX: usize = 28;
/// Room for a name, so that none overlap.
const NAME_WIDTH: f64 = 190.0;
const NAME_HEIGHT: f64 = 14.0;

/// Colours: three for the classes that colour-blind people can distinguish (Okabe and Ito).
const STYLE: &str = ":root { color-scheme: light dark; --paper: #fff; --ink: #1c2128; --dim: #57606a; --faint: #d8dee4; \
    --compute: #0072b2; --memory: #d55e00; --unknown: #8c959f; } \
    @media (prefers-color-scheme: dark) { :root { --paper: #0f1318; --ink: #e6edf3; --dim: #9da7b1; --faint: #30363d; \
    --compute: #56b4e9; --memory: #e69f00; --unknown: #8c959f; } } \
    text { fill: var(--ink); } .dim { fill: var(--dim); } .paper { fill: var(--paper); } .grid { stroke: var(--faint); } \
    .roof { fill: none; stroke: var(--ink); stroke-width: 2; } circle { fill-opacity: .6; stroke-opacity: .9; } \
    .compute { fill: var(--compute); stroke: var(--compute); } .memory { fill: var(--memory); stroke: var(--memory); } \
    .unknown { fill: var(--unknown); stroke: var(--unknown); } \
    .name { font-size: 11px; paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }";

struct Point<'a> {
    name: &'a str,
    class: ResourceClass,
    intensity: f64,
    gflop_per_s: f64,
    /// Of the time of the kernels drawn, 0 to 1.
    share: f64,
}

/// The picture; `None` if no kernel of the profile has counted operations and bytes.
#[must_use]
pub fn roofline(profile: &Profile) -> Option<String> {
    let points = points(profile);
    if points.is_empty() {
        return None;
    }
    let device = Device::all()
        .iter()
        .find(|device| device.name == profile.gpu);
    let bandwidth_gb_s = device.map(|device| f64::from(device.bandwidth_gb_s));
    let measured = profile
        .measured
        .as_ref()
        .and_then(|measured| measured.bandwidth_gb_s);
    let bandwidth_gb_s = measured.map(f64::from).or(bandwidth_gb_s);
    let peak_gflop_s = device.map(|device| device.fp32_tflops() * 1e3);
    let roof = bandwidth_gb_s.zip(peak_gflop_s);
    let axes = Axes::of(&points, roof);
    let mut svg = String::new();
    draw(&mut svg, profile, &points, &axes, roof)
        .expect("a String takes all that is written to it");
    Some(svg)
}

fn points(profile: &Profile) -> Vec<Point<'_>> {
    let placed = profile.kernels.iter().filter_map(|kernel| {
        let place = kernel.evidence.roofline?;
        let is_drawn = place.mflop_per_s > 0 && place.mbyte_per_s > 0;
        is_drawn.then_some((kernel, place))
    });
    let all: f64 = placed
        .clone()
        .map(|(kernel, _)| kernel.durations.sum_ns as f64)
        .sum();
    placed
        .map(|(kernel, place)| Point {
            name: &kernel.name,
            class: kernel.class,
            intensity: place.mflop_per_s as f64 / place.mbyte_per_s as f64,
            gflop_per_s: place.mflop_per_s as f64 / 1e3,
            share: kernel.durations.sum_ns as f64 / all.max(1.0),
        })
        .collect()
}

struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn of(points: &[Point<'_>], roof: Option<(f64, f64)>) -> Self {
        let ridge = roof.map(|(bandwidth, peak)| peak / bandwidth);
        let xs = points.iter().map(|point| point.intensity).chain(ridge);
        let ys = points.iter().map(|point| point.gflop_per_s);
        let ys = ys.chain(roof.map(|(_, peak)| peak));
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
            for value in values {
                least = least.min(value.log10().floor());
                most = most.max(value.log10().ceil());
            }
            (least.min(most - 1.0), most + 0.3)
        };
        Self {
            x: ends(&mut xs.into_iter()),
            y: ends(&mut ys.into_iter()),
        }
    }

    fn x(&self, intensity: f64) -> f64 {
        let part = (intensity.log10() - self.x.0) / (self.x.1 - self.x.0);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, gflop_per_s: f64) -> f64 {
        let part = (gflop_per_s.log10() - self.y.0) / (self.y.1 - self.y.0);
        HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)
    }
}

fn draw(
    svg: &mut String,
    profile: &Profile,
    points: &[Point<'_>],
    axes: &Axes,
    roof: Option<(f64, f64)>,
) -> std::fmt::Result {
    let kernels = match points.len() {
        1 => "1 kernel".to_owned(),
        count => format!("{count} kernels"),
    };
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{kernels} on {}</text>\n\
         <text class=\"dim\" x=\"{LEFT}\" y=\"41\">area: share of the time</text>",
        escaped(&profile.gpu),
    )?;
    draw_axes(svg, axes)?;
    if let Some((bandwidth, peak)) = roof {
        draw_roof(svg, axes, bandwidth, peak)?;
    }
    for point in points {
        let radius = radius(point);
        writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\" class=\"{}\">\
             <title>{}: {:.1} % of the time, {:.3} FLOP/B, {:.1} GFLOP/s, {}</title></circle>",
            axes.x(point.intensity),
            axes.y(point.gflop_per_s),
            point.class,
            escaped(point.name),
            point.share * 100.0,
            point.intensity,
            point.gflop_per_s,
            point.class,
        )?;
    }
    draw_names(svg, points, axes)?;
    draw_key(svg)?;
    writeln!(svg, "</svg>")
}

fn draw_roof(svg: &mut String, axes: &Axes, bandwidth: f64, peak: f64) -> std::fmt::Result {
    let (left, right) = (10f64.powf(axes.x.0), 10f64.powf(axes.x.1));
    let ridge = peak / bandwidth;
    let low = left.max(10f64.powf(axes.y.0) / bandwidth);
    let (low_x, low_y) = (axes.x(low), axes.y(bandwidth * low));
    let (ridge_x, level_y) = (axes.x(ridge), axes.y(peak));
    writeln!(
        svg,
        "<polyline class=\"roof\" points=\"{low_x:.1},{low_y:.1} {ridge_x:.1},{level_y:.1} {:.1},{level_y:.1}\"/>",
        axes.x(right),
    )?;
    let angle = (level_y - low_y).atan2(ridge_x - low_x).to_degrees();
    let (middle_x, middle_y) = ((low_x + ridge_x) / 2.0, (low_y + level_y) / 2.0);
    writeln!(
        svg,
        "<text class=\"dim\" transform=\"translate({middle_x:.1} {middle_y:.1}) rotate({angle:.1})\" y=\"-6\" \
         text-anchor=\"middle\">memory {bandwidth:.0} GB/s</text>\n\
         <text class=\"dim\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">FP32 {:.1} TFLOP/s</text>",
        axes.x(right) - 4.0,
        level_y - 6.0,
        peak / 1e3,
    )
}

fn draw_names(svg: &mut String, points: &[Point<'_>], axes: &Axes) -> std::fmt::Result {
    let mut longest: Vec<&Point<'_>> = points
        .iter()
        .filter(|point| point.share >= NAMED_SHARE)
        .collect();
    longest.sort_by(|a, b| b.share.total_cmp(&a.share));
    let mut written: Vec<(f64, f64)> = Vec::new();
    for point in longest.into_iter().take(NAMED_MAX) {
        let (x, y) = (axes.x(point.intensity), axes.y(point.gflop_per_s));
        let is_over = |&(other_x, other_y): &(f64, f64)| {
            (x - other_x).abs() < NAME_WIDTH && (y - other_y).abs() < NAME_HEIGHT
        };
        if written.iter().any(is_over) {
            continue;
        }
        written.push((x, y));
        let name: String = base(point.name).chars().take(NAME_CHARS_MAX).collect();
        let is_right = x > WIDTH / 2.0;
        let (side, anchor) = if is_right {
            (-1.0, "end")
        } else {
            (1.0, "start")
        };
        writeln!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x + side * (radius(point) + 4.0),
            y + 4.0,
            escaped(&name),
        )?;
    }
    Ok(())
}

fn radius(point: &Point<'_>) -> f64 {
    (RADIUS_MAX * point.share.sqrt()).max(RADIUS_MIN)
}

fn draw_axes(svg: &mut String, axes: &Axes) -> std::fmt::Result {
    let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    let mut decade = axes.x.0;
    while decade <= axes.x.1 {
        let x = axes.x(10f64.powf(decade));
        writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{floor}\" class=\"grid\"/>"
        )?;
        let label = label(decade);
        writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            floor + 18.0
        )?;
        decade += 1.0;
    }
    decade = axes.y.0;
    while decade <= axes.y.1 {
        let y = axes.y(10f64.powf(decade));
        writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" class=\"grid\"/>"
        )?;
        let label = label(decade);
        writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            y + 4.0
        )?;
        decade += 1.0;
    }
    writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">floating-point operations per byte of device memory</text>\n\
         <text transform=\"translate(20 {}) rotate(-90)\" text-anchor=\"middle\">GFLOP/s</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 16.0,
        (TOP + floor) / 2.0,
    )
}

fn draw_key(svg: &mut String) -> std::fmt::Result {
    for (index, class) in ResourceClass::ALL.into_iter().enumerate() {
        let x = WIDTH - RIGHT - 260.0 + 90.0 * index as f64;
        writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"24\" r=\"6\" class=\"{class}\"/>\
             <text x=\"{}\" y=\"28\">{class}</text>",
            x + 10.0,
        )?;
    }
    Ok(())
}

fn label(decade: f64) -> String {
    let decimals = if decade < 0.0 { -decade as usize } else { 0 };
    format!("{:.decimals$}", 10f64.powf(decade))
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            _ if character.is_control() => escaped.push('?'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use profiler::Profile;

    use super::roofline;

    const KERNEL: &str = "format = \"pillion-profile\"\nversion = 2\ngpu = \"H100-PCIe\"\nsources = []\n\
        [[kernel]]\nname = \"f<int>(a & b)\"\ngrid = [1, 1, 1]\nblock = [32, 1, 1]\nshared_bytes = 0\ncount = 4\n\
        duration_ns = { sum = 400, median = 100, p95 = 110 }\nregisters = 16\nsm_needed = 1\n\
        class = \"memory\"\nclass_rule = \"throughput\"\nmflop_per_s = 2646000\nmbyte_per_s = 329678\n";

    #[test]
    fn a_kernel_with_counts_is_drawn_under_the_roof() {
        let profile = Profile::parse(KERNEL, Path::new("p")).expect("right");
        let svg = roofline(&profile).expect("a kernel with counts");
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
        assert!(
            svg.contains(
                "f&lt;int&gt;(a &amp; b): 100.0 % of the time, 8.026 FLOP/B, 2646.0 GFLOP/s, memory"
            ),
            "{svg}"
        );
        assert_eq!(
            (
                svg.matches("<polyline").count(),
                svg.matches("<circle").count()
            ),
            (1, 4)
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let text = KERNEL.replace("mflop_per_s = 2646000\nmbyte_per_s = 329678\n", "");
        let profile = Profile::parse(&text, Path::new("p")).expect("right");
        assert_eq!(roofline(&profile), None);
    }
}
