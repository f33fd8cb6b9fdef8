//! Draws the screen of `pillion top` for any size of a terminal: GPUs above, their last minutes as
//! bars, jobs below, keys in the last row. No row wraps. If there is little room, bars are dropped
//! first, then columns from the right.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};

use super::model::{Gpu, Job, Latency, Model, Sample};
use super::view::{Prompt, View, class_of};

/// Least time that the bars of a picture cover together, in samples.
const BARS_OVER: usize = 300;

/// Least rows of a picture: its bars, and its title.
const PICTURE_MIN: u16 = 3;
const PICTURE_MAX: u16 = 7;

/// Least rows for jobs: a heading and some jobs.
const JOBS_MIN: u16 = 6;

/// A picture of latency ends at twice the target.
const LATENCY_TOP: f64 = 2.0;

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, view: &View, now: &str) {
    let area = frame.area();
    let jobs = view.jobs(model);
    let selected = view.selected(&jobs);
    let above = head_of(model, view, now, area);
    let head = u16::try_from(above.len()).unwrap_or(u16::MAX);
    let spare = area.height.saturating_sub(head + JOBS_MIN + 1);
    let picture = match spare {
        0..PICTURE_MIN => 0,
        rows => rows.min(PICTURE_MAX),
    };
    let rows = Layout::vertical([
        Constraint::Length(head),
        Constraint::Length(picture),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [first, pictures, below, last] = rows.areas(area);
    frame.render_widget(Paragraph::new(above), first);
    let place = jobs.get(selected).map_or(0, |job| job.gpu);
    if let Some(gpu) = model.gpus.get(place).filter(|_| picture > 0) {
        draw_pictures(frame, pictures, model, gpu);
    }
    draw_jobs(frame, below, model, &jobs, selected);
    frame.render_widget(Paragraph::new(last_row(view)), last);
    if view.is_help {
        draw_help(frame);
    }
}

/// The title and the GPUs. If they are too many, those with alarms come first, and the last row
/// counts the others.
fn head_of(model: &Model, view: &View, now: &str, area: Rect) -> Vec<Line<'static>> {
    let direction = if view.is_reversed { ", reversed" } else { "" };
    let filter = match view.filter.as_str() {
        "" => String::new(),
        filter => format!("  filter {filter:?}"),
    };
    let version = env!("CARGO_PKG_VERSION");
    let title = format!(
        "pillion {version}  {now}  GPUs {}  jobs {}  by {}{direction}{filter}",
        model.gpus.len(),
        model.jobs.len(),
        view.order.name()
    );
    let mut lines = vec![Line::from(title).bold()];
    let silent = model.silent.iter().map(|silent| {
        let text = format!("no daemon answers at {silent}");
        Line::from(text).fg(Color::Red)
    });
    let rows = |gpu: &Gpu| rows_of(gpu, area.width);
    let room = usize::from(area.height.saturating_sub(JOBS_MIN + 1)).max(2);
    let all: usize = model.gpus.iter().map(|gpu| rows(gpu).len()).sum();
    if 1 + all + model.silent.len() <= room {
        lines.extend(model.gpus.iter().flat_map(rows));
        lines.extend(silent);
    } else {
        let has_alarm = |gpu: &&Gpu| !gpu.alarms.is_empty();
        lines.extend(silent);
        lines.extend(model.gpus.iter().filter(has_alarm).flat_map(rows));
        lines.extend(
            model
                .gpus
                .iter()
                .filter(|gpu| !has_alarm(gpu))
                .flat_map(rows),
        );
        let left_out = lines.len().saturating_sub(room - 1);
        lines.truncate(room - 1);
        lines.push(Line::from(format!("… {left_out} more rows: `pillion status`")).dim());
    }
    if model.gpus.is_empty() {
        lines.push(Line::from("no daemon is running").fg(Color::Yellow));
    }
    lines
}

/// A row of numbers, and one of alarms if any. The least important is last, and left out first.
fn rows_of(gpu: &Gpu, width: u16) -> Vec<Line<'static>> {
    let hp = &gpu.hp;
    let mut spans = vec![
        Span::from(" HP p50 "),
        Span::from(ms(hp.p50_ns)).bold(),
        Span::from(" p99 "),
        Span::from(ms(hp.p99_ns)).style(judged(hp)),
    ];
    if let Some(target_ns) = hp.target_ns {
        spans.push(Span::from(format!(" of {} ms", ms(Some(target_ns)))));
    }
    if let Some(within) = hp.within {
        spans.push(Span::from(format!(", {} in time", exact_percent(within))));
    }
    spans.push(Span::from("  BE "));
    spans.push(Span::from(percent(gpu.be_share)).bold());
    let width = usize::from(width);
    let used = |spans: &[Span<'_>]| spans.iter().map(Span::width).sum::<usize>();
    let name = elided(&gpu.name, width.saturating_sub(used(&spans)).max(NAME_MIN));
    spans.insert(0, Span::from(name).fg(Color::Cyan));
    let unmanaged = gpu
        .unmanaged
        .map_or("-".to_owned(), |count| count.to_string());
    let (held, all) = (bytes(Some(gpu.memory_held)), bytes(Some(gpu.memory_bytes)));
    for more in [
        format!("  unmanaged {unmanaged}"),
        format!("  memory {held} of {all}"),
        format!("  {}", gpu.sharing),
    ] {
        if used(&spans) + more.len() <= width {
            spans.push(Span::from(more));
        }
    }
    let mut rows = vec![Line::from(spans)];
    if !gpu.alarms.is_empty() {
        rows.push(Line::from(format!("  {}", gpu.alarms.join("; "))).fg(Color::Red));
    }
    rows
}

fn judged(latency: &Latency) -> Style {
    let colour = match (latency.is_missed, latency.target_ns, latency.p99_ns) {
        (true, ..) => Color::Red,
        (false, Some(target), Some(p99)) if p99 > target => Color::Yellow,
        (false, Some(_), Some(_)) => Color::Green,
        _ => Color::Reset,
    };
    Style::new().fg(colour).add_modifier(Modifier::BOLD)
}

fn draw_pictures(frame: &mut Frame<'_>, area: Rect, model: &Model, gpu: &Gpu) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)])
        .spacing(2)
        .areas(area);
    let samples: Vec<Sample> = model.history(gpu).collect();
    let of = match gpu.hp.target_ns {
        Some(_) => "HP p99 of its target, to 2x",
        None => "HP p99 of its median, to 2x",
    };
    let latency = bars(&samples, left.width, |sample| {
        Some(sample.latency? / LATENCY_TOP)
    });
    let share = bars(&samples, right.width, |sample| sample.be_share);
    let minutes = |width: u16| minutes_of(width);
    picture(
        frame,
        left,
        &format!("{of}, {}", minutes(left.width)),
        &latency,
        Color::Magenta,
    );
    let title = format!("BE share, {}", minutes(right.width));
    picture(frame, right, &title, &share, Color::Blue);
}

fn samples_of(width: u16) -> usize {
    BARS_OVER.div_ceil(usize::from(width.max(1)))
}

fn minutes_of(width: u16) -> String {
    let seconds = samples_of(width) * usize::from(width);
    format!("last {} min", seconds.div_ceil(60))
}

/// Per mille for each column, the newest last: the greatest of its samples, if any.
fn bars(samples: &[Sample], width: u16, of: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<u64>> {
    let each = samples_of(width);
    let columns = samples.rchunks(each).map(|chunk| {
        let values = chunk.iter().filter_map(&of);
        let most = values.max_by(f64::total_cmp)?;
        Some((most.clamp(0.0, 1.0) * 1_000.0) as u64)
    });
    let mut columns: Vec<_> = columns.take(width.into()).collect();
    columns.resize(width.into(), None);
    columns.reverse();
    columns
}

fn picture(frame: &mut Frame<'_>, area: Rect, title: &str, bars: &[Option<u64>], colour: Color) {
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    frame.render_widget(Paragraph::new(title).dim(), above);
    let bars = Sparkline::default()
        .data(bars.iter().copied())
        .max(1_000)
        .absent_value_symbol(" ")
        .style(Style::new().fg(colour));
    frame.render_widget(bars, below);
}

/// A column of jobs: heading, width, whether it is numeric, its text.
type Column = (&'static str, u16, bool, fn(&Job, &Model) -> String);

/// From the most important to the least. The id gets the remaining width.
const COLUMNS: [Column; 12] = [
    ("CLASS", 5, false, |job, _| class_of(job).to_owned()),
    ("P99 ms", 8, true, |job, _| ms(job.latency.p99_ns)),
    ("TARGET", 8, true, |job, _| ms(job.latency.target_ns)),
    ("SHARE", 6, true, |job, _| percent(job.share)),
    ("GPU", 6, true, |job, _| percent(job.gpu_use)),
    ("MEMORY", 9, true, |job, _| bytes(job.memory_held)),
    ("IN TIME", 8, true, |job, _| {
        job.latency.within.map_or("-".to_owned(), exact_percent)
    }),
    ("HELD BY", 12, false, |job, _| {
        job.held_by.clone().unwrap_or_else(|| "-".to_owned())
    }),
    ("P50 ms", 8, true, |job, _| ms(job.latency.p50_ns)),
    ("QUOTA", 9, true, |job, _| bytes(job.memory_quota)),
    ("LAUNCH/S", 9, true, |job, _| {
        job.launches_per_s
            .map_or("-".to_owned(), |per_s| format!("{per_s:.0}"))
    }),
    ("ON", 24, false, |job, model| {
        model
            .gpus
            .get(job.gpu)
            .map_or("-".to_owned(), |gpu| gpu.name.clone())
    }),
];

/// The columns' order on the screen, by heading.
const SHOWN: [&str; 12] = [
    "CLASS", "ON", "P50 ms", "P99 ms", "TARGET", "IN TIME", "SHARE", "HELD BY", "GPU", "MEMORY",
    "QUOTA", "LAUNCH/S",
];

const NAME_MIN: usize = 4;

const ID_MIN: u16 = 16;

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, model: &Model, jobs: &[&Job], selected: usize) {
    let mut left = area.width.saturating_sub(ID_MIN);
    let mut fit = Vec::new();
    for column in &COLUMNS {
        let Some(rest) = left.checked_sub(column.1 + 1) else {
            break;
        };
        left = rest;
        fit.push(column);
    }
    fit.sort_by_key(|column| SHOWN.iter().position(|name| *name == column.0));
    let id_width = usize::from(ID_MIN + left);
    let cell = |text: String, width: u16, is_number: bool| {
        let text = elided(&text, width.into());
        match is_number {
            true => Cell::from(Line::from(text).right_aligned()),
            false => Cell::from(text),
        }
    };
    let rows = jobs.iter().map(|job| {
        let id = Cell::from(elided(&job.id, id_width));
        let cells = fit
            .iter()
            .map(|(_, width, is_number, text)| cell(text(job, model), *width, *is_number));
        let style = match (job.latency.is_missed, job.is_hp) {
            (true, _) => Style::new().fg(Color::Red),
            (false, true) => Style::new().add_modifier(Modifier::BOLD),
            (false, false) => Style::new(),
        };
        Row::new(std::iter::once(id).chain(cells)).style(style)
    });
    let names = fit
        .iter()
        .map(|(name, width, is_number, _)| cell((*name).to_owned(), *width, *is_number));
    let header = Row::new(std::iter::once(Cell::from("JOB")).chain(names)).reversed();
    let widths = std::iter::once(Constraint::Min(ID_MIN))
        .chain(fit.iter().map(|column| Constraint::Length(column.1)));
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().bg(Color::DarkGray));
    let mut state = TableState::new().with_selected((!jobs.is_empty()).then_some(selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn last_row(view: &View) -> Line<'static> {
    let keys = "q quit  ↑↓ select  T stop  s set  f filter  , . sort  / reverse  h help";
    match &view.prompt {
        Some(Prompt::Filter(text)) => Line::from(format!("filter: {text}_")),
        Some(Prompt::Set { job, line }) => {
            let example = if line.is_empty() {
                "  (--memory 40%, --compute 50%, --slo 15ms)"
            } else {
                ""
            };
            Line::from(format!(
                "set {}: {line}_{example}",
                elided(job, ID_MIN.into())
            ))
        }
        Some(Prompt::Stop { job, .. }) => {
            let job = elided(job, 32);
            Line::from(format!("stop {job}, as `pillion stop` does? y/n")).fg(Color::Yellow)
        }
        None if !view.message.is_empty() => Line::from(view.message.clone()).fg(Color::Yellow),
        None => Line::from(keys).dim(),
    }
}

const HELP: [(&str, &str); 12] = [
    ("↑ ↓  k j", "select a job; also Home, End, PgUp, PgDn"),
    ("T", "stop the selected job (asks first)"),
    ("s", "set the job's memory, compute or target"),
    ("f", "show only jobs whose id, class or user id match"),
    (", .", "sort by the column before, after"),
    ("/", "reverse the order"),
    ("r", "ask the daemons now"),
    ("Esc", "clear filter and selection"),
    ("q", "quit"),
    ("", ""),
    ("BE, SHARE", "rate of best-effort jobs relative to alone"),
    ("GPU", "expected GPU time of launches, per time"),
];

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (area.width.min(66), area.height.min(HELP.len() as u16 + 2));
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    let lines = HELP.map(|(key, what)| Line::from(format!(" {key:<10} {what}")));
    let help = Paragraph::new(lines.to_vec()).block(Block::bordered().title(" keys "));
    frame.render_widget(Clear, place);
    frame.render_widget(help, place);
}

fn ms(ns: Option<u64>) -> String {
    ns.map_or("-".to_owned(), |ns| {
        let ms = ns as f64 / 1e6;
        match ms {
            ..100.0 => format!("{ms:.2}"),
            _ => format!("{ms:.0}"),
        }
    })
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// With a decimal place, never rounded up to 100 %.
fn exact_percent(share: f64) -> String {
    format!("{:.1} %", (share * 1_000.0).floor() / 10.0)
}

fn bytes(bytes: Option<u64>) -> String {
    const GIB: f64 = (1u64 << 30) as f64;
    match bytes {
        None => "-".to_owned(),
        Some(bytes) if bytes < 1 << 30 => format!("{:.0} MiB", bytes as f64 / GIB * 1024.0),
        Some(bytes) => format!("{:.1} GiB", bytes as f64 / GIB),
    }
}

/// Cuts the middle of a text that is too wide, as ids differ at both ends.
fn elided(text: &str, width: usize) -> String {
    let width_of = |text: &str| Span::raw(text.to_owned()).width();
    if width_of(text) <= width {
        return text.to_owned();
    }
    let (mut head, mut tail) = (String::new(), String::new());
    let mut ends = text.chars();
    let room = width.saturating_sub(1);
    let is_full = |head: &str, tail: &str, c: char| {
        width_of(head) + width_of(tail) + width_of(&c.to_string()) > room
    };
    while let Some(c) = ends.next() {
        if is_full(&head, &tail, c) {
            break;
        }
        head.push(c);
        match ends.next_back() {
            Some(c) if !is_full(&head, &tail, c) => tail.insert(0, c),
            _ => break,
        }
    }
    format!("{head}…{tail}")
}
