//! Values of `[unmanaged]`: reaction to processes that use the GPU outside Pillion.

use profiler::settings::{self, Reader, Whole};
use serde::{Deserialize, Deserializer};
use toml::de::DeTable;

const SECOND_NS: u64 = 1_000_000_000;

/// Default of `grace_s`, ns.
pub const GRACE_NS: u64 = 30 * SECOND_NS;

/// Reaction to processes that use the GPU and are no clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UnmanagedRules {
    /// `action`.
    pub action: OnUnmanaged,
    /// `grace_s`: time from the first sighting to the request to end, ns.
    #[serde(rename = "grace_s", deserialize_with = "grace")]
    pub grace_ns: u64,
    /// `root`: end processes of root, too.
    pub root: bool,
}

/// See [`UnmanagedRules`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnmanaged {
    /// Name them in status, events and log.
    #[default]
    Report,
    /// Name them, and end those that are surely named.
    Evict,
}

impl Default for UnmanagedRules {
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

/// Rejects keys that the action ignores: a written rule must be in force.
pub(super) fn check(rules: &UnmanagedRules, reader: &mut Reader<'_>, document: &DeTable<'_>) {
    if rules.action == OnUnmanaged::Evict {
        return;
    }
    for key in ["grace_s", "root"] {
        if let Some(value) = settings::at(document, &format!("unmanaged.{key}")) {
            let what = format!(
                "{key} is set, but action \"report\" ignores it; nearest is action = \"evict\""
            );
            reader.fault(value.span().start, what);
        }
    }
}
