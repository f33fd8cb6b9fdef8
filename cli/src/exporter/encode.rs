//! Encodes a page as text: Prometheus' format 0.0.4, and OpenMetrics 1.0. Both have one line per
//! sample. They differ in a family's name in the lines above its samples, in units, and in the end:
//! <https://prometheus.io/docs/instrumenting/exposition_formats>,
//! <https://prometheus.io/docs/specs/om/open_metrics_spec>. Both write the bound of a bucket alike
//! (`1.0`), so that a series does not depend on the requested format.

use std::fmt::{self, Display, Write as _};

use super::page::{Family, Histogram, Kind, Number, Page, Sample};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Version 0.0.4, which every consumer reads.
    Text,
    OpenMetrics,
}

const NS_PER_S: u64 = 1_000_000_000;

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that an `Accept` header prefers (RFC 9110, 12.5.1). OpenMetrics only if the
    /// header names it, in a version that is implemented here, and prefers nothing else.
    pub(super) fn accepted(header: &str) -> Self {
        let (mut open_metrics, mut text) = (0.0_f64, 0.0_f64);
        for range in header.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut version) = (1.0, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => weight = value.trim().parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => (),
                }
            }
            match media.as_str() {
                "application/openmetrics-text" if matches!(version, None | Some("1.0.0")) => {
                    open_metrics = open_metrics.max(weight);
                }
                "text/plain" | "text/*" => text = text.max(weight),
                _ => (),
            }
        }
        match open_metrics > 0.0 && open_metrics >= text {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    pub(super) fn write(self, page: &Page) -> String {
        let mut text = String::new();
        for (family, samples) in page.families() {
            self.write_head(&mut text, family);
            for sample in samples {
                write_sample(&mut text, family, sample);
            }
        }
        if self == Self::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn write_head(self, text: &mut String, family: &Family) {
        let (name, kind) = match (self, family.kind) {
            (Self::OpenMetrics, Kind::Counter) => (stem(family.name, "_total"), "counter"),
            (Self::OpenMetrics, Kind::Info) => (stem(family.name, "_info"), "info"),
            (Self::Text, Kind::Counter) => (family.name, "counter"),
            (_, Kind::Histogram) => (family.name, "histogram"),
            // 0.0.4 has no infos.
            (_, Kind::Gauge | Kind::Info) => (family.name, "gauge"),
        };
        put(text, format_args!("# HELP {name} {}\n", family.help));
        put(text, format_args!("# TYPE {name} {kind}\n"));
        if self == Self::OpenMetrics && !family.unit.is_empty() {
            put(text, format_args!("# UNIT {name} {}\n", family.unit));
        }
    }
}

fn stem(name: &'static str, suffix: &str) -> &'static str {
    name.strip_suffix(suffix).unwrap_or(name)
}

fn write_sample(text: &mut String, family: &Family, sample: &Sample) {
    let name = family.name;
    let labels = Labels(&sample.labels, None);
    match &sample.value {
        Number::Count(count) => put(text, format_args!("{name}{labels} {count}\n")),
        Number::Ns(ns) => put(text, format_args!("{name}{labels} {}\n", Seconds(*ns))),
        Number::Ratio(ratio) => put(text, format_args!("{name}{labels} {ratio}\n")),
        Number::Histogram(histogram) => write_histogram(text, name, sample, histogram),
    }
}

fn write_histogram(text: &mut String, name: &str, sample: &Sample, histogram: &Histogram) {
    let bounds = histogram.buckets.iter();
    let bounds = bounds.map(|&(bound_ns, count)| (canonical(bound_ns), count));
    let all = ("+Inf".to_owned(), histogram.count);
    for (bound, count) in bounds.chain([all]) {
        let labels = Labels(&sample.labels, Some(&bound));
        put(text, format_args!("{name}_bucket{labels} {count}\n"));
    }
    let labels = Labels(&sample.labels, None);
    let sum = Seconds(histogram.sum_ns);
    put(text, format_args!("{name}_sum{labels} {sum}\n"));
    put(
        text,
        format_args!("{name}_count{labels} {}\n", histogram.count),
    );
}

/// A bound as OpenMetrics requires it: `1.0`, `0.005`.
fn canonical(ns: u64) -> String {
    format!("{:?}", ns as f64 / NS_PER_S as f64)
}

fn put(text: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a `String` does not fail.
    let _ = text.write_fmt(line);
}

/// Nanoseconds printed as seconds, without rounding.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / NS_PER_S, self.0 % NS_PER_S);
        match rest {
            0 => write!(f, "{whole}"),
            _ => {
                let digits = format!("{rest:09}");
                write!(f, "{whole}.{}", digits.trim_end_matches('0'))
            }
        }
    }
}

/// `{a="1",le="0.5"}`; the bound of a bucket comes last.
struct Labels<'a>(&'a [(&'static str, String)], Option<&'a str>);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.0.iter().map(|(name, value)| (*name, value.as_str()));
        let labels = labels.chain(self.1.map(|bound| ("le", bound)));
        let mut before = '{';
        for (name, value) in labels {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            write!(f, "{before}{name}=\"{}\"", value.replace('\n', "\\n"))?;
            before = ',';
        }
        match before {
            '{' => Ok(()),
            _ => f.write_char('}'),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::{BUILD_INFO, HELD_TIME, LAUNCHES, REQUESTS, SHARE};
    use super::*;

    fn page() -> Page {
        let mut page = Page::default();
        let labels = [("version", "1".to_owned()), ("protocol", "3.8".to_owned())];
        page.add(&BUILD_INFO, &labels, Number::Count(1));
        let job = [("pillion_job", "a\"b\\c".to_owned())];
        let histogram = Histogram {
            buckets: vec![(1_000_000, 1), (1_000_000_000, 2)],
            count: 3,
            sum_ns: 5_000_000_001,
        };
        page.add(&REQUESTS, &job, Number::Histogram(histogram));
        page.add(&SHARE, &job, Number::Ratio(0.25));
        page.add(&HELD_TIME, &job, Number::Ns(1_500_000_000));
        page.add(&LAUNCHES, &[], Number::Count(u64::MAX));
        page
    }

    #[test]
    fn the_format_that_everything_reads_has_totals_in_its_types_and_no_end() {
        let expected = r#"# HELP pillion_build_info Version of the exporter and of its protocol.
# TYPE pillion_build_info gauge
pillion_build_info{version="1",protocol="3.8"} 1
# HELP pillion_hp_request_duration_seconds Requests of a high-priority job that have ended, from arrival to end.
# TYPE pillion_hp_request_duration_seconds histogram
pillion_hp_request_duration_seconds_bucket{pillion_job="a\"b\\c",le="0.001"} 1
pillion_hp_request_duration_seconds_bucket{pillion_job="a\"b\\c",le="1.0"} 2
pillion_hp_request_duration_seconds_bucket{pillion_job="a\"b\\c",le="+Inf"} 3
pillion_hp_request_duration_seconds_sum{pillion_job="a\"b\\c"} 5.000000001
pillion_hp_request_duration_seconds_count{pillion_job="a\"b\\c"} 3
# HELP pillion_be_share_ratio Speed of a best-effort job, as a share of its speed alone.
# TYPE pillion_be_share_ratio gauge
pillion_be_share_ratio{pillion_job="a\"b\\c"} 0.25
# HELP pillion_be_held_seconds_total Time that a best-effort job was held, by the rule that held it.
# TYPE pillion_be_held_seconds_total counter
pillion_be_held_seconds_total{pillion_job="a\"b\\c"} 1.5
# HELP pillion_kernel_launches_total Kernels that the job has launched.
# TYPE pillion_kernel_launches_total counter
pillion_kernel_launches_total 18446744073709551615
"#;
        assert_eq!(Format::Text.write(&page()), expected);
    }

    #[test]
    fn openmetrics_has_units_infos_and_an_end_and_the_same_samples() {
        let text = Format::OpenMetrics.write(&page());
        for line in [
            "# TYPE pillion_build info",
            "# TYPE pillion_be_held_seconds counter",
            "# UNIT pillion_be_held_seconds seconds",
            "# UNIT pillion_be_share_ratio ratio",
            "# TYPE pillion_kernel_launches counter",
            "# UNIT pillion_hp_request_duration_seconds seconds",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
        let samples = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(samples(&text), samples(&Format::Text.write(&page())));
    }

    #[test]
    fn openmetrics_is_for_who_names_it_and_wants_nothing_more() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2";
        for header in [
            prometheus,
            newer,
            "application/OpenMetrics-Text; version=\"1.0.0\"",
        ] {
            assert_eq!(Format::accepted(header), Format::OpenMetrics, "{header}");
        }
        for header in [
            "",
            "*/*",
            "text/html,*/*;q=0.8",
            "text/plain;version=0.0.4",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text;q=0.3,text/plain;q=0.7",
        ] {
            assert_eq!(Format::accepted(header), Format::Text, "{header}");
        }
    }

    #[test]
    fn seconds_are_exact() {
        for (ns, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (1_000_000_000, "1"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(Seconds(ns).to_string(), text);
        }
    }
}
