//! Values of `[memory]` and `[high_priority]`: sizes, users, groups and cgroups.

use nix::unistd::{Group, User};
use profiler::nearest::nearest;
use profiler::settings;
use protocol::quota::{self, Quota};
use serde::{Deserialize, Deserializer};

pub(super) fn quota<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quota, D::Error> {
    let wanted = format!("{}, or \"unlimited\"", quota::EXPECTED);
    settings::text(deserializer, &wanted, |text| {
        let quota = Quota::parse(text).filter(|quota| !quota.is_too_small());
        quota.ok_or(None)
    })
}

/// Bytes, or zero.
pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    settings::text(deserializer, "a size such as 300MiB", |text| {
        bytes(text).ok_or(None)
    })
}

pub(super) fn bytes(text: &str) -> Option<u64> {
    match Quota::parse(text) {
        Some(Quota::Bytes(bytes)) => Some(bytes),
        _ => (text == "0").then_some(0),
    }
}

struct Id<const IS_GROUP: bool>(u32);

impl<'de, const IS_GROUP: bool> Deserialize<'de> for Id<IS_GROUP> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // In the file each name stands at the beginning of a line, before a colon.
        let (noun, file) = match IS_GROUP {
            true => ("group", "/etc/group"),
            false => ("user", "/etc/passwd"),
        };
        let number = |name: &str| match IS_GROUP {
            true => Some(Group::from_name(name).ok()??.gid.as_raw()),
            false => Some(User::from_name(name).ok()??.uid.as_raw()),
        };
        let wanted = format!("the name of a {noun} of this machine, or its number");
        settings::text(deserializer, &wanted, |text| {
            let id = text.parse().ok().or_else(|| number(text));
            id.map(Self).ok_or_else(|| {
                let lines = std::fs::read_to_string(file).unwrap_or_default();
                let names = lines.lines().filter_map(|line| line.split(':').next());
                nearest(text, names).map(|name| format!("\"{name}\""))
            })
        })
    }
}

pub(super) fn id<'de, D, const IS_GROUP: bool>(deserializer: D) -> Result<Option<u32>, D::Error>
where
    D: Deserializer<'de>,
{
    Id::<IS_GROUP>::deserialize(deserializer).map(|id| Some(id.0))
}

pub(super) fn ids<'de, D, const IS_GROUP: bool>(deserializer: D) -> Result<Vec<u32>, D::Error>
where
    D: Deserializer<'de>,
{
    let ids: Vec<Id<IS_GROUP>> = Vec::deserialize(deserializer)?;
    Ok(ids.into_iter().map(|id| id.0).collect())
}

/// The path of a cgroup, without a trailing slash.
struct Cgroup(String);

impl<'de> Deserialize<'de> for Cgroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wanted = "the path of a cgroup as /proc/PID/cgroup has it, such as \"/user.slice\"";
        settings::text(deserializer, wanted, |text| match text.starts_with('/') {
            true => Ok(Self(text.trim_end_matches('/').to_owned())),
            false => Err(Some(format!("\"/{text}\""))),
        })
    }
}

pub(super) fn cgroup<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Cgroup::deserialize(deserializer).map(|cgroup| Some(cgroup.0))
}

pub(super) fn cgroups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let cgroups: Vec<Cgroup> = Vec::deserialize(deserializer)?;
    Ok(cgroups.into_iter().map(|cgroup| cgroup.0).collect())
}
