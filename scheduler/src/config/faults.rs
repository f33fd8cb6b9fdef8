//! `[faults]`: what is looked for, and what is done about it.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use abi::types::CUresult;
use profiler::settings::{Reader, Section, Value};
use toml::de::DeTable;

use crate::config::fault_rules::FaultKind;
use crate::config::fault_rules::{Action, FaultRule, FaultRules, GRACE_NS, PER_HOUR};

const KEYS: [&str; 7] = [
    "stuck_s",
    "mps_logs",
    "mps_patterns",
    "mps_control",
    "mps_start",
    "mps_terminate",
    "rules",
];
const RULE_KEYS: [&str; 5] = ["fault", "codes", "action", "per_hour", "grace_s"];

const SECOND_NS: u64 = 1_000_000_000;
/// A day. 0 switches it off.
const STUCK_S: RangeInclusive<u64> = 0..=86_400;
const PER_HOUR_RANGE: RangeInclusive<u64> = 1..=1_000;
const GRACE_S: RangeInclusive<u64> = 0..=3_600;
/// NVIDIA's catalogue ends far below.
const XID_MAX: u64 = 9_999;
const LOGS_MAX: usize = 8;
const WORDS_MAX: usize = 64;

/// Reads the section; what cannot be read is `None` and has a fault.
pub(super) fn parse(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Option<FaultRules> {
    let section = reader.section(document, "faults");
    if let Some(table) = section.table {
        reader.check_keys("[faults]", table, &KEYS);
    }
    let defaults = FaultRules::default();
    let stuck_s = defaults.stuck_ns.map_or(0, |ns| ns / SECOND_NS);
    let stuck_s = reader.number(&section, "stuck_s", STUCK_S, stuck_s);
    let logs = texts(reader, &section, "mps_logs", LOGS_MAX, &|text| {
        text.starts_with('/')
    });
    let patterns = texts(reader, &section, "mps_patterns", LOGS_MAX, &|text| {
        !text.is_empty()
    });
    let control = command(reader, &section, "mps_control");
    let start = command(reader, &section, "mps_start");
    let terminate = command(reader, &section, "mps_terminate");
    let rules = rules(reader, &section);
    Some(FaultRules {
        stuck_ns: Some(stuck_s? * SECOND_NS).filter(|&ns| ns > 0),
        mps_logs: logs?
            .unwrap_or_default()
            .into_iter()
            .map(PathBuf::from)
            .collect(),
        mps_patterns: patterns?.unwrap_or_default(),
        mps_control: control?.unwrap_or(defaults.mps_control),
        mps_start: start?.unwrap_or(defaults.mps_start),
        mps_terminate: terminate?.unwrap_or(defaults.mps_terminate),
        rules: rules?,
    })
}

/// A list of texts of which each `is_right`.
fn texts(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
    most: usize,
    is_right: &dyn Fn(&str) -> bool,
) -> Option<Option<Vec<String>>> {
    let Some(value) = section.get(key) else {
        return Some(None);
    };
    let wanted = match key {
        "mps_logs" => format!("a list of at most {most} absolute paths"),
        "mps_patterns" => format!("a list of at most {most} texts"),
        _ => format!("a list of at most {most} texts, the first an absolute path"),
    };
    let near = (key == "mps_logs").then(|| "[\"/var/log/nvidia-mps/control.log\"]".to_owned());
    let list = value.get_ref().as_array();
    let list = list.filter(|list| list.len() <= most);
    let text_of = |value: &Value<'_>| {
        let text = value.get_ref().as_str()?;
        (is_right(text) && !text.contains('\0')).then(|| text.to_owned())
    };
    let texts: Option<Vec<String>> = list.and_then(|list| list.iter().map(text_of).collect());
    if texts.is_none() {
        reader.bad(value.span(), key, &wanted, near);
        return None;
    }
    Some(texts)
}

/// A program and its arguments.
fn command(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
) -> Option<Option<Vec<String>>> {
    let words = texts(reader, section, key, WORDS_MAX, &|_| true)?;
    let Some(words) = words else {
        return Some(None);
    };
    if words
        .first()
        .is_some_and(|program| program.starts_with('/'))
    {
        return Some(Some(words));
    }
    let span = section.get(key).map_or(0..0, Value::span);
    let near = words
        .first()
        .map(|program| format!("[\"/usr/bin/{program}\"]"));
    let wanted = "a list of texts, the first the absolute path of a program; there is no shell";
    reader.bad(span, key, wanted, near);
    None
}

/// `[[faults.rules]]`.
fn rules(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<Vec<FaultRule>> {
    let Some(value) = section.get("rules") else {
        return Some(Vec::new());
    };
    let Some(list) = value.get_ref().as_array() else {
        let near = Some("[[faults.rules]]".to_owned());
        reader.bad(value.span(), "rules", "a list of tables", near);
        return None;
    };
    // All are read before one that is wrong ends it, so that all faults are found.
    let rules: Vec<_> = list
        .iter()
        .map(|value| {
            let Some(table) = value.get_ref().as_table() else {
                reader.bad(value.span(), "rules", "a list of tables", None);
                return None;
            };
            reader.check_keys("[[faults.rules]]", table, &RULE_KEYS);
            let section = Section {
                offset: value.span().start,
                table: Some(table),
            };
            rule(reader, &section)
        })
        .collect();
    rules.into_iter().collect()
}

fn rule(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<FaultRule> {
    let fault = required(reader, section, "fault", &FaultKind::NAMES, "\"xid\"");
    let fault = fault.map(|index| FaultKind::ALL[index]);
    let action = required(reader, section, "action", &Action::NAMES, "\"report\"");
    let action = action.map(|index| Action::NAMES[index]);
    let codes = codes(reader, section, fault);
    let per_hour = reader.number(section, "per_hour", PER_HOUR_RANGE, PER_HOUR.into());
    let grace_s = reader.number(section, "grace_s", GRACE_S, GRACE_NS / SECOND_NS);
    let (fault, action) = (fault?, action?);
    let mut is_right = true;
    if let Some(value) = section.get("grace_s")
        && action != "restart-job"
    {
        let what = format!("grace_s is set, but action {action} does not look at it");
        let near = Some("action = \"restart-job\"".to_owned());
        reader.fault(value.span().start, what, near);
        is_right = false;
    }
    let action = match action {
        "report" => Action::Report,
        "hold-be" => Action::HoldBe,
        "restart-job" => Action::RestartJob {
            grace_ns: grace_s? * SECOND_NS,
        },
        "restart-mps" => Action::RestartMps,
        _ => Action::DrainGpu,
    };
    if matches!(action, Action::RestartJob { .. }) && !fault.is_of_job() {
        let what = format!("restart-job is for faults of a job, and {fault} is the GPU's");
        reader.fault(
            section.offset,
            what,
            Some("fault = \"sticky-error\"".to_owned()),
        );
        is_right = false;
    }
    is_right.then_some(())?;
    Some(FaultRule {
        fault,
        codes: codes?,
        action,
        per_hour: u32::try_from(per_hour?).ok()?,
    })
}

/// One of `words`, which must be there, as its index.
fn required(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
    words: &[&str],
    example: &str,
) -> Option<usize> {
    let index = reader.word(section, key, words)?;
    if index.is_none() {
        let what = format!(
            "a rule of [faults] has no {key}; needs one of {}",
            words.join(", ")
        );
        reader.fault(section.offset, what, Some(format!("{key} = {example}")));
    }
    index
}

/// `codes`: what they are follows from the fault.
fn codes(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    fault: Option<FaultKind>,
) -> Option<Vec<u64>> {
    let Some(value) = section.get("codes") else {
        return Some(Vec::new());
    };
    let is_sticky = |code: u64| u32::try_from(code).is_ok_and(|code| CUresult(code).is_sticky());
    let (wanted, near, is_right): (_, _, &dyn Fn(u64) -> bool) = match fault? {
        FaultKind::StickyError => (
            "a list of CUDA results after which a context is lost",
            "[700, 719]",
            &is_sticky,
        ),
        FaultKind::Xid => ("a list of Xids", "[79]", &|code| {
            (1..=XID_MAX).contains(&code)
        }),
        other => {
            let what = format!("codes is set, but {other} has none");
            reader.fault(value.span().start, what, Some("fault = \"xid\"".to_owned()));
            return None;
        }
    };
    let number = |value: &Value<'_>| {
        let integer = value.get_ref().as_integer()?;
        let code = u64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
        is_right(code).then_some(code)
    };
    let list = value.get_ref().as_array().filter(|list| !list.is_empty());
    let codes: Option<Vec<u64>> = list.and_then(|list| list.iter().map(number).collect());
    if codes.is_none() {
        reader.bad(value.span(), "codes", wanted, Some(near.to_owned()));
    }
    codes
}
