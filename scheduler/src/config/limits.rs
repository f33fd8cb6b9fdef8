//! Who may be high-priority, and one user's limits.
//! The operator sets both (`[high_priority]` and `[limits]` of the configuration), and both use a
//! process's owner as the kernel reports it, never what the process claims. A job that asks for
//! high priority without permission is best-effort, not refused: refused, it would run unmanaged,
//! and so harm the jobs that the list protects.

use profiler::settings::whole;
use serde::Deserialize;

use crate::config::memory::{cgroups, ids};
use crate::config::memory_rules::{Owner, is_below};

/// Clients at once. Each costs 4.3 MB of address space, 0.3 MB of memory once it launches, and, if
/// high-priority, two reads of each of its claimed rings per poll.
pub const CLIENTS_MAX: usize = 256;

/// Connections without a request yet. Beyond it the user with most of them loses the oldest.
pub const UNHEARD_MAX: usize = 64;

/// Who may be high-priority: members of any of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HpAccess {
    /// User ids.
    #[serde(deserialize_with = "ids::<_, false>")]
    pub users: Vec<u32>,
    /// Group ids: the process's own or a supplementary one.
    #[serde(deserialize_with = "ids::<_, true>")]
    pub groups: Vec<u32>,
    /// Paths of cgroups without a trailing slash, including those below. Empty is the root.
    #[serde(deserialize_with = "cgroups")]
    pub cgroups: Vec<String>,
}

impl HpAccess {
    /// Whether a process of `owner` may. Invisible properties grant nothing.
    pub(crate) fn allows(&self, owner: &Owner) -> bool {
        let is_in = |rule: &String| owner.cgroups.iter().any(|path| is_below(rule, path));
        self.users.contains(&owner.uid)
            || self.groups.iter().any(|group| owner.gids.contains(group))
            || self.cgroups.iter().any(is_in)
    }
}

/// One user's limits, so that something is left for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// `clients_per_user`: attached processes.
    #[serde(deserialize_with = "whole::<_, _, 1, { CLIENTS_MAX as u64 }>")]
    pub clients_per_user: usize,
    /// `jobs_per_user`: best-effort jobs.
    #[serde(deserialize_with = "whole::<_, _, 1, { policy::JOBS_MAX as u64 }>")]
    pub jobs_per_user: usize,
    /// `connections_per_user`: connections without a request yet; beyond it the oldest is closed.
    #[serde(deserialize_with = "whole::<_, _, 1, { UNHEARD_MAX as u64 }>")]
    pub connections_per_user: usize,
}

impl Limits {
    /// Places left to a user's high-priority clients: a sixth, at most [`HP_ROOM`].
    pub(crate) fn hp_room_of_user(&self) -> usize {
        (self.clients_per_user / 6).min(HP_ROOM)
    }
}

/// Clients' places that all best-effort jobs leave to high-priority ones.
pub const HP_ROOM: usize = CLIENTS_MAX / 8;

impl Default for Limits {
    /// Three quarters of all for one user; of connections, silent only for microseconds, a quarter.
    fn default() -> Self {
        Self {
            clients_per_user: CLIENTS_MAX * 3 / 4,
            jobs_per_user: policy::JOBS_MAX * 3 / 4,
            connections_per_user: 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: u32, gids: &[u32], cgroup: &str) -> Owner {
        Owner {
            uid,
            gids: gids.to_vec(),
            cgroups: vec![cgroup.to_owned()],
        }
    }

    #[test]
    fn who_is_in_any_list_may_be_high_priority_and_nobody_else() {
        let access = HpAccess {
            users: vec![1000],
            groups: vec![44],
            cgroups: vec!["/system.slice/serve.service".to_owned()],
        };
        for (owner, may) in [
            (owner(1000, &[100], "/user.slice"), true),
            (owner(1001, &[100, 44], "/user.slice"), true),
            (owner(1001, &[100], "/system.slice/serve.service"), true),
            (owner(1001, &[100], "/system.slice/serve.service/a"), true),
            (owner(1001, &[100], "/system.slice/serve.service2"), false),
            (owner(1001, &[100], "/user.slice"), false),
            // Root has no privilege here: in containers everybody is root.
            (owner(0, &[0], "/"), false),
        ] {
            assert_eq!(access.allows(&owner), may, "{owner:?}");
        }
        let unseen = Owner {
            uid: 1001,
            ..Owner::default()
        };
        assert!(!access.allows(&unseen));
        assert!(!HpAccess::default().allows(&owner(0, &[0], "")));
    }
}
