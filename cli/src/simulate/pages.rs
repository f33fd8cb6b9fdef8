//! Writes the files of `--out`: results, a page with pictures and tables, the pictures, a timeline.
//! `report.html` is self-contained: no script, no external resource; colours follow the reader's
//! light or dark setting. Each file is written whole or not at all.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::out;
use crate::simulate::comparison::{self, Comparison};
use crate::simulate::outcomes::Group;
use crate::simulate::plan::{Part, Plan};
use crate::simulate::plots::{self, Field};
use crate::simulate::reproduction;
use crate::simulate::results::{self, HEADINGS};
use crate::simulate::runner::Run;
use crate::simulate::scenes;
use crate::svg::{STYLE, alone, escaped};

struct Picture {
    key: &'static str,
    title: &'static str,
    caption: String,
    svg: String,
}

/// Pictures of more series are illegible; the tables remain.
const SERIES_MAX: usize = 24;

/// Writes all files into the folder, which exists; `lines` are those of the runs.
pub(crate) fn write(folder: &Path, plan: &Plan, runs: &[Run<'_>], lines: &[Value]) -> Result<()> {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    out::file(folder, "results.jsonl", &text)?;
    if let Some((suite, why)) = plan.suite.and_then(|suite| Some((suite, suite.why()?))) {
        let document = reproduction::document(plan, suite, why, lines);
        out::file(folder, "reproduction.md", &document)?;
    }
    let mut sections = String::new();
    let mut tables = Vec::new();
    for part in &plan.parts {
        let of_part: Vec<&Run<'_>> = runs
            .iter()
            .filter(|run| std::ptr::eq(run.part, part))
            .collect();
        let groups = Group::all(&of_part);
        let field = Field::new(&groups);
        tables.push((part.title.clone(), Comparison::of(&groups)));
        let pictures = pictures(&field, &groups, &of_part);
        for picture in &pictures {
            let name = match part.key.as_str() {
                "" => format!("{}.svg", picture.key),
                part => format!("{part}.{}.svg", picture.key),
            };
            out::file(folder, &name, &alone(&picture.svg))?;
        }
        section(&mut sections, part, &groups, &pictures);
    }
    if comparison::is_wanted(plan) {
        let document = comparison::document(plan, &tables, lines);
        out::file(folder, "tables.md", &document)?;
    }
    out::file(folder, "report.html", &page(plan, runs.len(), &sections))?;
    out::file(folder, "timeline.json", &scenes::timeline(runs)?)
}

/// Leaves out pictures with nothing to draw.
fn pictures(field: &Field<'_, '_>, groups: &[Group<'_>], runs: &[&Run<'_>]) -> Vec<Picture> {
    let mut pictures = Vec::new();
    let has_hp = field.groups.iter().any(|(_, _, group)| group.hp.is_some());
    let has_be = field
        .groups
        .iter()
        .any(|(_, _, group)| !group.be.is_empty());
    if let Some(path) = plots::swept_number(groups).filter(|_| has_hp) {
        pictures.push(Picture {
            key: "curve",
            title: "Effect of the swept number",
            caption: format!(
                "{} against {path}: means over the pairs that have a value; values above ten are drawn as ten.",
                plots::slowdown_name(field)
            ),
            svg: plots::curve(field, &path),
        });
    }
    if field.series.len() > SERIES_MAX {
        return pictures;
    }
    if has_hp {
        pictures.push(Picture {
            key: "p99",
            title: "Cost of sharing for the high-priority job",
            caption: format!(
                "A column is a policy, a row the jobs that run together: {}. A bar starts at 1 (alone) and \
                 ends at ten times; blue: up to 1.25 times, orange: more.",
                plots::slowdown_name(field)
            ),
            svg: plots::tails(field),
        });
    }
    if has_hp && has_be {
        pictures.push(Picture {
            key: "pareto",
            title: "Gain of the best-effort jobs",
            caption: "Right is worse for the high-priority job, up is better for the best-effort jobs (their \
                      rate over their rate alone). A large dot is the mean of a policy, small dots are its pairs; \
                      no other policy beats those on the dashed line."
                .to_owned(),
            svg: plots::pareto(field),
        });
    }
    if has_hp {
        let shown = field.pairs.len().min(plots::PANELS_MAX);
        let more = match field.pairs.len() - shown {
            0 => String::new(),
            left => format!(" {left} further pairs are not drawn."),
        };
        pictures.push(Picture {
            key: "latency",
            title: "Distribution of latencies",
            caption: format!(
                "Share of requests answered within a time; further left is better, dashed is alone.{more}"
            ),
            svg: plots::cdf(field, runs),
        });
    }
    pictures.push(Picture {
        key: "utilisation",
        title: "Utilisation of the device",
        caption: "Means over the pairs.".to_owned(),
        svg: plots::utilisation(field),
    });
    pictures
}

fn section(html: &mut String, part: &Part, groups: &[Group<'_>], pictures: &[Picture]) {
    if !part.title.is_empty() {
        let _ = writeln!(html, "<h2>{}</h2>", escaped(&part.title));
    }
    let level = if part.title.is_empty() { 2 } else { 3 };
    for picture in pictures {
        let _ = writeln!(
            html,
            "<h{level}>{}</h{level}>\n<p>{}</p>\n{}",
            picture.title,
            escaped(&picture.caption),
            picture.svg
        );
    }
    let _ = writeln!(html, "<details><summary>The numbers</summary>");
    let same = |a: &Group<'_>, b: &Group<'_>| a.heading() == b.heading();
    for groups in groups.chunk_by(same) {
        let _ = write!(
            html,
            "<p>{}</p>\n<table><tr>",
            escaped(&groups[0].heading())
        );
        for heading in HEADINGS {
            let _ = write!(html, "<th>{heading}</th>");
        }
        for group in groups {
            html.push_str("</tr>\n<tr>");
            for cell in results::row(group) {
                let _ = write!(html, "<td>{}</td>", escaped(&cell));
            }
        }
        html.push_str("</tr></table>\n");
    }
    html.push_str("</details>\n");
}

fn page(plan: &Plan, runs: usize, sections: &str) -> String {
    let title = match plan.suite {
        Some(suite) => format!("Suite {}: {}", suite.name, suite.about),
        None => "Policies on a model of a GPU".to_owned(),
    };
    let title = escaped(&title);
    let notes = plan.notes.iter();
    let notes: String = notes
        .map(|note| format!("<p class=\"note\">{}</p>\n", escaped(note)))
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Pillion: {title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n\
         <p class=\"note\">{runs} runs in virtual time. The GPU is a model in software: these numbers come \
         from the model, nothing here was measured on hardware.</p>\n{notes}{sections}\
         <p class=\"note\">The same input gives the same page, byte for byte. timeline.json beside this file (for \
         Perfetto) shows the work around the slowest request.</p>\n</body></html>\n"
    )
}
