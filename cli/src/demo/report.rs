//! `report.html`: one page with three pictures and a table; no script, no external resource. Equal
//! seeds give equal pages except for the foot ([`foot`]) with program, time and command. `--json`,
//! `results.json` and `timeline.json` have no foot, so that they can be compared byte by byte.
//!
//! Colours follow the reader's light or dark setting; printing is always light. Orange is the
//! best-effort job, blue the high-priority one, green what Pillion decided.

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::demo::phase::Phase;
use crate::demo::picture;
use crate::demo::record::Launch;
use crate::demo::results::{HEADINGS, Results};
use crate::demo::timeline::Scene;
use crate::svg::{STYLE, escaped};

/// `slow` is the number of the request in the last picture.
pub(crate) fn report(
    results: &Results,
    scenes: &[Scene],
    slow: Option<usize>,
    launches: [&[Launch]; 2],
) -> String {
    let about = results.about();
    let text = |key: &str| escaped(about[key].as_str().unwrap_or_default());
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Pillion: two jobs on one GPU</title>\n<style>\n{STYLE}</style></head>\n<body>\n\
         <h1>Two jobs on one GPU</h1>\n\
         <p>High priority: <b class=\"hp\">{}</b>. Best effort: <b class=\"be\">{}</b>. \
         Policy {}, seed {}, {} s per phase.</p>\n\
         {}\n",
        text("hp"),
        text("be"),
        text("policy"),
        about["seed"],
        about["seconds"],
        origin(results),
    );
    let _ = write!(
        page,
        "<h2>How long requests take</h2>\n<p>{}</p>\n{}\n",
        seen_in_latencies(results),
        picture::latencies(scenes)
    );
    if let Some(svg) = picture::throughput(results) {
        let _ = write!(
            page,
            "<h2>Rate of the best-effort job</h2>\n<p>{}</p>\n{svg}\n",
            seen_in_rates(results)
        );
    }
    let is_recorded = scenes.iter().any(|scene| !scene.record.ops.is_empty());
    if let Some(slow) = slow.filter(|_| is_recorded) {
        let _ = write!(
            page,
            "<h2>Around one slow request</h2>\n<p>{}</p>\n{}\n{}\n",
            seen_around(scenes, slow),
            picture::around(scenes, slow, launches),
            picture::KEY
        );
    }
    page.push_str(&table(results));
    let same = if results.is_in_real_time() {
        "In real time, work on the GPU is not recorded; timeline.json beside this file (for Perfetto) has the requests, \
         the leases and the holds."
    } else {
        "The same seed gives the same page, byte for byte, except for the line below. timeline.json beside this file (for \
         Perfetto) has more of the last picture."
    };
    let _ = writeln!(
        page,
        "<p class=\"note\">All phases have the same arrivals. <i>share</i> is the best-effort job's rate \
         divided by its rate alone. {same}</p>\n{}\n</body></html>",
        foot(&Made::now())
    );
    page
}

struct Made {
    at: Timestamp,
    command: String,
}

/// The page's timestamp, s since 1970 (reproducible-builds.org, "SOURCE_DATE_EPOCH").
const DATE_ENV: &str = "SOURCE_DATE_EPOCH";

impl Made {
    fn now() -> Self {
        let set = std::env::var(DATE_ENV).ok();
        let set = set.and_then(|text| Timestamp::from_second(text.trim().parse().ok()?).ok());
        let words = std::env::args_os().skip(1);
        let words = words.map(|word| quoted(&word.to_string_lossy()));
        Self {
            at: set.unwrap_or_else(Timestamp::now),
            command: format!("pillion {}", words.collect::<Vec<_>>().join(" ")),
        }
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:=,%+@-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The last line of the page, the only one that differs between equal runs.
fn foot(made: &Made) -> String {
    let at = made.at.to_zoned(TimeZone::UTC);
    format!(
        "<p class=\"note\" id=\"made\">Pillion {}, {}, by <code>{}</code></p>",
        env!("CARGO_PKG_VERSION"),
        at.strftime("%Y-%m-%d %H:%M UTC"),
        escaped(&made.command)
    )
}

fn seen_in_rates(results: &Results) -> String {
    let share = |phase: Phase| {
        let share = results.be_share(phase)?;
        Some(format!("{:.0} %", share * 100.0))
    };
    let shares = share(results.without()).zip(share(results.with()));
    let Some((without, with)) = shares else {
        return "A bar is a rate: a longer bar means more work done.".to_owned();
    };
    let sharing = match results.without() {
        Phase::Mps => "under MPS",
        _ => "time-sliced",
    };
    format!(
        "A bar is a rate: a longer bar means more work done. Beside the other job, {sharing}, the job runs at {without} of its \
         rate alone; {sharing} and under Pillion, at {with}. Compare with the picture above: a higher rate is no gain if it costs \
         the other job its latency."
    )
}

fn origin(results: &Results) -> String {
    let device = escaped(results.about()["device"].as_str().unwrap_or_default());
    let mut html = String::from("<p class=\"note\">");
    html.push_str(&match (results.is_software(), results.is_in_real_time()) {
        (true, false) => format!(
            "The GPU is a model of a {device} in software: these numbers come from the model. Nothing here was measured on \
             hardware."
        ),
        (true, true) => format!(
            "The GPU is a model of a {device} in software, used in real time like a GPU: these numbers come from the \
             model and depend on this computer. Nothing here was measured on hardware."
        ),
        (false, _) => format!(
            "Measured on a {device}, in real time, with synthetic kernels that have the durations, blocks and SM needs of \
             the traces."
        ),
    });
    for line in results.about_lines() {
        let _ = write!(html, "<br/>{}", escaped(line));
    }
    html + "</p>"
}

fn seen_in_latencies(results: &Results) -> String {
    let p99 = |phase: Phase| results.hp_ms(phase, "p99_ms");
    let (Some(solo), Some(without), Some(with)) = (
        p99(Phase::HpSolo),
        p99(results.without()),
        p99(results.with()),
    ) else {
        return "One dot is one request.".to_owned();
    };
    let share = results
        .be_share(results.with())
        .map_or_else(String::new, |share| {
            format!(
                ", and the best-effort job keeps {:.0} % of its rate",
                share * 100.0
            )
        });
    let sharing = match results.without() {
        Phase::Mps => "under MPS",
        _ => "time-sliced",
    };
    format!(
        "One dot is one request. Alone, 99 of 100 requests are answered within {solo:.1} ms; beside the \
         other job, {sharing}, within {without:.1} ms ({:.1} times as long); {sharing} and under Pillion, \
         within {with:.1} ms ({:.2} times). So sharing alone raises the latency of the high-priority job; \
         Pillion removes {} of that increase{share}.",
        without / solo,
        with / solo,
        returned(solo, without, with),
    )
}

/// The part of the cost of sharing that Pillion removes.
fn returned(solo: f64, without: f64, with: f64) -> String {
    let lost = without - solo;
    if lost <= 0.0 {
        return "nothing".to_owned();
    }
    let share = ((without - with) / lost).clamp(0.0, 1.0);
    format!("{:.0} %", (share * 100.0).floor())
}

fn seen_around(scenes: &[Scene], slow: usize) -> String {
    let took_ms = |phase: Phase| {
        let scene = scenes.iter().find(|scene| scene.phase == phase)?;
        let request = scene.record.requests.get(slow)?;
        Some((request.done_ns - request.arrived_ns) as f64 / 1e6)
    };
    let (Some(without), Some(with)) = (took_ms(Phase::Mps), took_ms(Phase::MpsPillion)) else {
        return String::new();
    };
    format!(
        "Request {slow} was the slowest under MPS: {without:.1} ms; the same request took {with:.1} ms under \
         Pillion. Without Pillion, the kernels of both jobs run at the same time: each kernel of the \
         request waits or takes longer, and requests queue behind each other. With Pillion, the other \
         job is held while high-priority work runs, except for kernels that the policy finds harmless, and \
         resumes as soon as that work is done."
    )
}

fn table(results: &Results) -> String {
    let mut html = String::from("<h2>The numbers</h2>\n<table><tr>");
    for heading in HEADINGS {
        let _ = write!(html, "<th>{}</th>", escaped(heading));
    }
    html.push_str("</tr>\n");
    for row in results.rows() {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escaped(&cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_foot_has_version_date_and_command_and_no_markup_of_the_command() {
        let made = Made {
            at: Timestamp::from_second(1_763_800_000).unwrap(),
            command: "pillion demo --hp '<b>.trace'".to_owned(),
        };
        assert_eq!(
            foot(&made),
            format!(
                "<p class=\"note\" id=\"made\">Pillion {}, 2025-11-22 08:26 UTC, by \
                 <code>pillion demo --hp '&lt;b&gt;.trace'</code></p>",
                env!("CARGO_PKG_VERSION")
            )
        );
    }

    #[test]
    fn words_of_the_command_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("--hp-rate=40.5"), "--hp-rate=40.5");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
