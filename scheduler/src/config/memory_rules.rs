//! The operator's memory rules: upper bounds of quotas for jobs of a user, a group or a cgroup,
//! whatever they ask for.
//! The owner of a process is known from the kernel ([`crate::host::peer`]): its user and groups,
//! and its cgroup when it attaches (cgroups(7)). A login without a job's environment is subject to
//! its user's rules all the same.

use protocol::quota::Quota;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::memory::{cgroup, id, quota};

/// One rule. Unset properties match anybody.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Rule {
    /// User id.
    #[serde(default, deserialize_with = "id::<_, false>")]
    pub user: Option<u32>,
    /// Group id: the process's own or a supplementary one.
    #[serde(default, deserialize_with = "id::<_, true>")]
    pub group: Option<u32>,
    /// Path of a cgroup without a trailing slash, including those below. Empty is the root.
    #[serde(default, deserialize_with = "cgroup")]
    pub cgroup: Option<String>,
    /// Upper bound for each of its jobs.
    #[serde(deserialize_with = "quota")]
    pub quota: Quota,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gids: Vec<u32>,
    /// Paths, one for each hierarchy.
    pub(crate) cgroups: Vec<String>,
}

/// Each line is hierarchy, controllers and path, separated by colons.
pub(crate) fn cgroups(text: &str) -> Vec<String> {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths
        .map(|path| path.trim_end_matches('/').to_owned())
        .collect()
}

/// Whether the cgroup `path` is `rule` or below it.
pub(crate) fn is_below(rule: &str, path: &str) -> bool {
    let rest = path.strip_prefix(rule);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Rule {
    fn is_for(&self, owner: &Owner) -> bool {
        self.user.is_none_or(|user| user == owner.uid)
            && self
                .group
                .is_none_or(|group| owner.gids.is_empty() || owner.gids.contains(&group))
            && self.cgroup.as_ref().is_none_or(|rule| {
                let mut paths = owner.cgroups.iter();
                owner.cgroups.is_empty() || paths.any(|path| is_below(rule, path))
            })
    }
}

/// The bound for a job of `owner` on a device with `device_bytes`, by all matching rules; `None`
/// without any. A percentage of an unknown size is zero: rules are kept or nothing is granted.
pub(crate) fn most_bytes(rules: &[Rule], owner: &Owner, device_bytes: u64) -> Option<u64> {
    let its = rules.iter().filter(|rule| rule.is_for(owner));
    its.filter_map(|rule| rule.quota.bytes_of(device_bytes))
        .min()
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rule = Self::deserialize(deserializer)?;
        if (rule.user, rule.group) == (None, None) && rule.cgroup.is_none() {
            return Err(D::Error::custom(
                "a rule of [memory] applies to nobody; needs one of user, group, cgroup; nearest \
                 is user = \"1000\"",
            ));
        }
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn owner() -> Owner {
        Owner {
            uid: 1000,
            gids: vec![100, 27, 44],
            cgroups: cgroups("0::/user.slice/user-1000.slice/session-3.scope\n"),
        }
    }

    fn rule(user: Option<u32>, group: Option<u32>, cgroup: Option<&str>) -> Rule {
        Rule {
            user,
            group,
            cgroup: cgroup.map(str::to_owned),
            quota: Quota::Bytes(GIB),
        }
    }

    #[test]
    fn a_rule_is_for_whom_all_that_it_names_is_true_of() {
        for (rule, is_for) in [
            (rule(Some(1000), None, None), true),
            (rule(Some(1001), None, None), false),
            (rule(None, Some(44), None), true),
            (rule(None, Some(100), None), true),
            (rule(None, Some(0), None), false),
            (rule(None, None, Some("/user.slice")), true),
            (rule(None, None, Some("/user.slice/user-1000.slice")), true),
            (rule(None, None, Some("/user")), false),
            (rule(None, None, Some("")), true),
            (rule(Some(1000), None, Some("/system.slice")), false),
            (rule(Some(1000), Some(27), Some("/user.slice")), true),
        ] {
            assert_eq!(rule.is_for(&owner()), is_for, "{rule:?}");
        }
        // Only the user is visible.
        let hidden = Owner {
            uid: 1000,
            ..Owner::default()
        };
        assert!(rule(None, Some(0), None).is_for(&hidden));
        assert!(rule(None, None, Some("/system.slice")).is_for(&hidden));
        assert!(!rule(Some(1001), Some(0), None).is_for(&hidden));
    }

    #[test]
    fn of_several_rules_the_smallest_holds() {
        let mut rules = vec![rule(Some(1000), None, None), rule(None, Some(44), None)];
        rules[1].quota = Quota::Percent(5.0);
        assert_eq!(most_bytes(&rules, &owner(), 10 * GIB), Some(GIB / 2));
        assert_eq!(most_bytes(&rules, &owner(), 100 * GIB), Some(GIB));
        let other = Owner {
            gids: vec![0],
            ..Owner::default()
        };
        assert_eq!(most_bytes(&rules, &other, 10 * GIB), None);
        assert_eq!(most_bytes(&rules, &owner(), 0), Some(0));
        rules.truncate(1);
        rules[0].quota = Quota::Unlimited;
        assert_eq!(most_bytes(&rules, &owner(), 10 * GIB), None);
    }
}
