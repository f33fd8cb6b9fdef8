//! Values of `[unmanaged]`: what is done about processes that use the GPU past Pillion.

use profiler::settings::{self, Reader, Whole};
use serde::{Deserialize, Deserializer};
use toml::de::DeTable;

const SECOND_NS: u64 = 1_000_000_000;

/// `grace_s` if it is not said, ns.
pub const GRACE_NS: u64 = 30 * SECOND_NS;

/// What is done about processes that use the GPU and are no clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnmanagedRules {
    /// `action`.
    pub action: OnUnmanaged,
    /// `grace_s`: how long a process is left alone after it was first seen, ns.
    #[serde(rename = "grace_s", deserialize_with = "grace")]
    pub grace_ns: u64,
    /// `root`: processes of root are ended, too.
    pub root: bool,
}

/// See [`UnmanagedRules`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnmanaged {
    /// They are named, in status, events and log.
    #[default]
    Report,
    /// They are named, and those that are surely named are ended.
    Evict,
}

impl Default for UnmanagedRules {
    /// Nothing is ended.
    fn default() -> Self {
        Self {
            action: OnUnmanaged::Report,
            grace_ns: GRACE_NS,
            root: false,
        }
    }
}

/// `grace_s`: up to an hour.
fn grace<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let seconds = Whole::<0, 3_600>::deserialize(deserializer)?.0;
    Ok(seconds * SECOND_NS)
}

/// Refuses keys that the action does not look at: a rule that is written is to be in force.
pub(super) fn check(rules: &UnmanagedRules, reader: &mut Reader<'_>, document: &DeTable<'_>) {
    if rules.action == OnUnmanaged::Evict {
        return;
    }
    for key in ["grace_s", "root"] {
        if let Some(value) = settings::at(document, &format!("unmanaged.{key}")) {
            let what = format!(
                "{key} is set, but action \"report\" does not look at it; nearest is action = \"evict\""
            );
            reader.fault(value.span().start, what);
        }
    }
}
