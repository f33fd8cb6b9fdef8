//! Building blocks of SVG pictures: axes, and the frame. Lengths are units of the view box;
//! [`Axis`] maps values to lengths. Colours are classes of `report.css`, so that a picture follows
//! the reader's light or dark setting.

use std::fmt::Write as _;

/// The colours, for a page or for a picture of its own.
pub(crate) const STYLE: &str = include_str!("report.css");

pub(crate) const WIDTH: f64 = 960.0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    from: f64,
    to: f64,
    left: f64,
    right: f64,
    is_log: bool,
}

impl Axis {
    /// Equal distances for equal differences.
    pub(crate) fn linear((from, to): (f64, f64), (left, right): (f64, f64)) -> Self {
        Self {
            from,
            to,
            left,
            right,
            is_log: false,
        }
    }

    /// Equal distances for equal ratios; both ends are above 0.
    pub(crate) fn log(ends: (f64, f64), places: (f64, f64)) -> Self {
        Self {
            is_log: true,
            ..Self::linear(ends, places)
        }
    }

    pub(crate) const fn from(&self) -> f64 {
        self.from
    }

    pub(crate) const fn to(&self) -> f64 {
        self.to
    }

    /// The place of a value, clamped to the ends.
    pub(crate) fn x(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// Up to about ten round values, as text.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        if self.is_log && self.to / self.from > 4.0 {
            return self.decades();
        }
        let least = (self.to - self.from) / 10.0;
        let power = 10f64.powf(least.max(1e-6).log10().floor());
        // 1, 2 or 5 times a power of ten, so that there are up to ten.
        let fits = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= least);
        let step = fits.unwrap_or(10.0) * power;
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step).floor() as i64;
        let tick = |index: i64| {
            let value = index as f64 * step;
            (value, number(value, step))
        };
        (first..=last).map(tick).collect()
    }

    /// 1, 2 and 5 in each power of ten, and more if these are few.
    fn decades(&self) -> Vec<(f64, String)> {
        let factors: &[f64] = if self.to / self.from < 40.0 {
            &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let first = self.from.log10().floor() as i32;
        let last = self.to.log10().ceil() as i32;
        let all =
            (first..=last).flat_map(|power| factors.iter().map(move |f| f * 10f64.powi(power)));
        let inside = all.filter(|value| (self.from..=self.to).contains(value));
        inside
            .map(|value| (value, format!("{}", (value * 1e6).round() / 1e6)))
            .collect()
    }

    /// Lines from `top` to `bottom` with numbers below, and the title under them.
    pub(crate) fn draw(&self, svg: &mut String, top: f64, bottom: f64, title: &str) {
        for (value, number) in self.ticks() {
            let (x, y) = (self.x(value), bottom + 15.0);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
                 <text class=\"dim\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{number}</text>"
            );
        }
        let _ = write!(
            svg,
            "<text class=\"dim\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{title}</text>",
            self.right,
            bottom + 32.0
        );
    }
}

/// A tick with as many decimals as its step has.
fn number(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

/// The beginning of a picture; `title` is for readers who cannot see it.
pub(crate) fn open((width, height): (f64, f64), title: &str) -> String {
    format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">")
}

pub(crate) fn alone(picture: &str) -> String {
    let name = "<svg ";
    let rest = picture.strip_prefix(name).unwrap_or(picture);
    let end = rest.find('>').map_or(0, |end| end + 1);
    let (attributes, body) = rest.split_at(end);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes}<style>{STYLE}\nsvg {{ background: var(--paper); }}</style>{body}\n"
    )
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::Axis;

    #[test]
    fn ticks_are_round_and_lie_inside() {
        let texts = |axis: Axis| -> Vec<String> {
            let ticks = axis.ticks().into_iter();
            ticks.map(|(_, text)| text).collect()
        };
        assert_eq!(
            texts(Axis::linear((0.0, 1.0), (0.0, 1.0))),
            [
                "0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1.0"
            ]
        );
        assert_eq!(
            texts(Axis::log((0.9, 30.0), (0.0, 1.0))),
            ["1", "1.5", "2", "3", "4", "5", "7", "10", "15", "20", "30"]
        );
        assert_eq!(
            texts(Axis::log((0.4, 20.0), (0.0, 1.0))),
            ["0.5", "1", "2", "5", "10", "20"]
        );
    }

    #[test]
    fn places_are_between_the_ends() {
        let axis = Axis::log((1.0, 100.0), (10.0, 30.0));
        for (value, place) in [
            (1.0, 10.0),
            (10.0, 20.0),
            (100.0, 30.0),
            (1e9, 30.0),
            (0.1, 10.0),
        ] {
            assert!((axis.x(value) - place).abs() < 1e-9, "{value}");
        }
    }
}
