//! `[memory]`: what jobs may hold, and what is done about memory that is in nobody's account.

use std::ops::Range;

use nix::unistd::{Group, User};
use profiler::nearest::nearest;
use profiler::settings::{Reader, Section, Value};
use protocol::quota::{self, Quota};
use toml::de::DeTable;

use super::{Context, MemoryRules, OnExcess};
use crate::config::memory_rules::Rule;

const MEMORY_KEYS: [&str; 6] = [
    "best_effort",
    "high_priority",
    "context",
    "excess",
    "slack",
    "rules",
];
const RULE_KEYS: [&str; 4] = ["user", "group", "cgroup", "quota"];

/// The word of `context` for what the daemon finds out.
const MEASURED: &str = "measured";

/// Reads the section; what cannot be read is `None` and has a fault.
pub(super) fn parse(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Option<MemoryRules> {
    let section = reader.section(document, "memory");
    if let Some(table) = section.table {
        reader.check_keys("[memory]", table, &MEMORY_KEYS);
    }
    let defaults = MemoryRules::default();
    let best_effort = quota(reader, &section, "best_effort", defaults.best_effort);
    let high_priority = quota(reader, &section, "high_priority", defaults.high_priority);
    let context = context(reader, &section, defaults.context);
    let excess = reader.word(&section, "excess", &OnExcess::NAMES);
    let slack_bytes = bytes(reader, &section, "slack", defaults.slack_bytes);
    let rules = rules(reader, &section);
    Some(MemoryRules {
        best_effort: best_effort?,
        high_priority: high_priority?,
        context: context?,
        excess: excess?.map_or(defaults.excess, |index| OnExcess::ALL[index]),
        slack_bytes: slack_bytes?,
        rules: rules?,
    })
}

fn quota(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
    default: Quota,
) -> Option<Quota> {
    let wanted = format!("{}, or \"unlimited\"", quota::EXPECTED);
    let Some((span, text)) = reader.text(section, key, &wanted)? else {
        return Some(default);
    };
    let quota = Quota::parse(text).filter(|quota| !quota.is_too_small());
    if quota.is_none() {
        reader.bad(span, key, &wanted, None);
    }
    quota
}

fn bytes(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
    default: u64,
) -> Option<u64> {
    const WANTED: &str = "a size such as 300MiB";
    let Some((span, text)) = reader.text(section, key, WANTED)? else {
        return Some(default);
    };
    size(reader, span, key, text, WANTED)
}

fn context(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    default: Context,
) -> Option<Context> {
    const WANTED: &str = "a size such as 300MiB, or \"measured\"";
    let Some((span, text)) = reader.text(section, "context", WANTED)? else {
        return Some(default);
    };
    if text == MEASURED {
        return Some(Context::Measured);
    }
    size(reader, span, "context", text, WANTED).map(Context::Bytes)
}

/// Bytes, which may be none.
fn size(
    reader: &mut Reader<'_>,
    span: Range<usize>,
    key: &str,
    text: &str,
    wanted: &str,
) -> Option<u64> {
    match Quota::parse(text) {
        Some(Quota::Bytes(bytes)) => Some(bytes),
        _ if text == "0" => Some(0),
        _ => {
            reader.bad(span, key, wanted, None);
            None
        }
    }
}

/// `[[memory.rules]]`.
fn rules(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<Vec<Rule>> {
    let Some(value) = section.get("rules") else {
        return Some(Vec::new());
    };
    let Some(list) = value.get_ref().as_array() else {
        let wanted = "a list of tables";
        reader.bad(
            value.span(),
            "rules",
            wanted,
            Some("[[memory.rules]]".to_owned()),
        );
        return None;
    };
    let mut rules = Some(Vec::new());
    for value in list.iter() {
        let offset = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            reader.bad(value.span(), "rules", "a list of tables", None);
            rules = None;
            continue;
        };
        reader.check_keys("[[memory.rules]]", table, &RULE_KEYS);
        let table = Some(table);
        match rule(reader, &Section { offset, table }) {
            Some(rule) => rules = rules.map(|rules| [rules, vec![rule]].concat()),
            None => rules = None,
        }
    }
    rules
}

fn rule(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<Rule> {
    let user = section.get("user");
    let user = user.map_or(Some(None), |value| {
        id_in(reader, "user", value, &USER).map(Some)
    });
    let group = section.get("group");
    let group = group.map_or(Some(None), |value| {
        id_in(reader, "group", value, &GROUP).map(Some)
    });
    let cgroup = section.get("cgroup");
    let cgroup = cgroup.map_or(Some(None), |value| {
        cgroup_in(reader, "cgroup", value).map(Some)
    });
    let quota = match section.get("quota") {
        Some(_) => quota(reader, section, "quota", Quota::Unlimited),
        None => {
            let near = Some("quota = \"40%\"".to_owned());
            reader.fault(section.offset, "a rule of [memory] has no quota", near);
            None
        }
    };
    let rule = Rule {
        user: user?,
        group: group?,
        cgroup: cgroup?,
        quota: quota?,
    };
    if (rule.user, rule.group) == (None, None) && rule.cgroup.is_none() {
        let what = "a rule of [memory] says for nobody; needs one of user, group, cgroup";
        reader.fault(section.offset, what, Some("user = \"1000\"".to_owned()));
        return None;
    }
    Some(rule)
}

/// What has numbers, and names on this machine.
pub(super) struct Named {
    noun: &'static str,
    /// The number of a name.
    number: fn(&str) -> Option<u32>,
    /// A file with the names that people know, each at the beginning of a line, before a colon.
    file: &'static str,
}

pub(super) const USER: Named = Named {
    noun: "user",
    number: |name| Some(User::from_name(name).ok()??.uid.as_raw()),
    file: "/etc/passwd",
};

pub(super) const GROUP: Named = Named {
    noun: "group",
    number: |name| Some(Group::from_name(name).ok()??.gid.as_raw()),
    file: "/etc/group",
};

/// A number, or a name that this machine knows; `key` is where the value stands.
pub(super) fn id_in(
    reader: &mut Reader<'_>,
    key: &str,
    value: &Value<'_>,
    named: &Named,
) -> Option<u32> {
    let wanted = format!(
        "the name of a {} of this machine, or its number",
        named.noun
    );
    let Some(text) = value.get_ref().as_str() else {
        let number = value.get_ref().as_integer();
        let near = number.map(|_| format!("\"{}\"", reader.shown(value.span())));
        reader.bad(value.span(), key, &wanted, near);
        return None;
    };
    let id = text.parse().ok().or_else(|| (named.number)(text));
    if id.is_none() {
        let names = std::fs::read_to_string(named.file).unwrap_or_default();
        let names: Vec<&str> = names
            .lines()
            .filter_map(|line| line.split(':').next())
            .collect();
        let near = nearest(text, names.iter().copied()).map(|name| format!("\"{name}\""));
        reader.bad(value.span(), key, &wanted, near);
    }
    id
}

/// The path of a cgroup, without the slash at its end; `key` is where the value stands.
pub(super) fn cgroup_in(reader: &mut Reader<'_>, key: &str, value: &Value<'_>) -> Option<String> {
    let wanted = "the path of a cgroup as /proc/PID/cgroup has it, such as \"/user.slice\"";
    let text = value.get_ref().as_str();
    let Some(path) = text.filter(|text| text.starts_with('/')) else {
        let near = text.map(|text| format!("\"/{text}\""));
        reader.bad(value.span(), key, wanted, near);
        return None;
    };
    Some(path.trim_end_matches('/').to_owned())
}
