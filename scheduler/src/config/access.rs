//! `[high_priority]` and `[limits]`: who may be high-priority, and how much of the daemon one user may take.

use profiler::settings::{Reader, Section, Value};
use toml::de::DeTable;

use super::memory::{self, Named};
use crate::config::limits::CLIENTS_MAX;
use crate::config::limits::UNHEARD_MAX;
use crate::config::limits::{HpAccess, Limits};

const HP_KEYS: [&str; 3] = ["users", "groups", "cgroups"];
const LIMITS_KEYS: [&str; 3] = ["clients_per_user", "jobs_per_user", "connections_per_user"];

/// Who may be high-priority, `None` for everybody; what cannot be read is `None` and has a fault.
pub(super) fn high_priority(
    reader: &mut Reader<'_>,
    document: &DeTable<'_>,
) -> Option<Option<HpAccess>> {
    let section = reader.section(document, "high_priority");
    // Something that is no table has its fault already, and lets nobody in.
    let Some(table) = section.table else {
        return Some(document.get("high_priority").map(|_| HpAccess::default()));
    };
    reader.check_keys("[high_priority]", table, &HP_KEYS);
    if table.is_empty() {
        let what = "[high_priority] says nothing; needs users, groups or cgroups (a list of nobody: users = [])";
        reader.fault(section.offset, what, Some("users = [\"1000\"]".to_owned()));
        return None;
    }
    let users = ids(reader, &section, "users", &memory::USER);
    let groups = ids(reader, &section, "groups", &memory::GROUP);
    let cgroups = list(
        reader,
        &section,
        "cgroups",
        "\"/user.slice\"",
        |reader, value| memory::cgroup_in(reader, "cgroups", value),
    );
    Some(Some(HpAccess {
        users: users?,
        groups: groups?,
        cgroups: cgroups?,
    }))
}

fn ids(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
    named: &Named,
) -> Option<Vec<u32>> {
    list(reader, section, key, "\"1000\"", |reader, value| {
        memory::id_in(reader, key, value, named)
    })
}

/// A list, empty where the key is missing; all of it is read before one that is wrong ends it, so that all faults are found.
fn list<T>(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
    example: &str,
    mut read: impl FnMut(&mut Reader<'_>, &Value<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let Some(value) = section.get(key) else {
        return Some(Vec::new());
    };
    let Some(items) = value.get_ref().as_array() else {
        let found = reader.shown(value.span());
        let near = match found.starts_with('"') {
            true => format!("{key} = [{found}]"),
            false => format!("{key} = [{example}]"),
        };
        reader.bad(value.span(), key, "a list of texts", Some(near));
        return None;
    };
    let read: Vec<Option<T>> = items.iter().map(|item| read(reader, item)).collect();
    read.into_iter().collect()
}

/// `[limits]`.
pub(super) fn limits(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Option<Limits> {
    let section = reader.section(document, "limits");
    if let Some(table) = section.table {
        reader.check_keys("[limits]", table, &LIMITS_KEYS);
    }
    let defaults = Limits::default();
    let mut limit = |key, most: usize, default: usize| {
        let limit = reader.number(&section, key, 1..=most as u64, default as u64);
        limit.map(|limit| limit as usize)
    };
    let clients = limit("clients_per_user", CLIENTS_MAX, defaults.clients_per_user);
    let jobs = limit("jobs_per_user", policy::JOBS_MAX, defaults.jobs_per_user);
    let connections = limit(
        "connections_per_user",
        UNHEARD_MAX,
        defaults.connections_per_user,
    );
    Some(Limits {
        clients_per_user: clients?,
        jobs_per_user: jobs?,
        connections_per_user: connections?,
    })
}
