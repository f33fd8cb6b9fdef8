//! The changes between two profiles of one job.

use std::collections::HashMap;

use profiler::{KernelProfile, Operator, Profile};

/// The change of a kernel and shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Its median grew by more than the threshold.
    Slower,
    /// Its median fell by more than the threshold.
    Faster,
    /// In the second profile only.
    New,
    /// In the first profile only.
    Gone,
    /// Neither of these.
    Same,
}

impl Change {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::New => "new",
            Self::Gone => "gone",
            Self::Same => "same",
        }
    }
}

/// A kernel and shape of one or both profiles.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its change.
    pub change: Change,
    /// In the first profile.
    pub before: Option<&'a KernelProfile>,
    /// In the second profile.
    pub after: Option<&'a KernelProfile>,
}

impl Row<'_> {
    /// Median after ÷ before, percent more (or, negative, less); `None` where one is missing.
    #[must_use]
    pub fn change_pct(&self) -> Option<f64> {
        let median = |kernel: &KernelProfile| kernel.durations.median_ns as f64;
        let (before, after) = (median(self.before?), median(self.after?));
        Some((after / before.max(1.0) - 1.0) * 100.0)
    }

    /// The effect on the job's time, ns: launches × median after, less the same before.
    #[must_use]
    pub fn impact_ns(&self) -> f64 {
        let sum = |kernel: Option<&KernelProfile>| {
            kernel.map_or(0.0, |kernel| kernel.durations.sum_ns as f64)
        };
        match (self.before, self.after) {
            (Some(before), Some(after)) => {
                let median = |kernel: &KernelProfile| kernel.durations.median_ns as f64;
                (median(after) - median(before)) * after.count as f64
            }
            (before, after) => sum(after) - sum(before),
        }
    }
}

type Key<'a> = (&'a str, [u32; 3], [u32; 3], u32, Option<&'a Operator>);

fn key(kernel: &KernelProfile) -> Key<'_> {
    let operator = kernel.operator.as_ref();
    let (grid, block) = (kernel.grid, kernel.block);
    (&kernel.name, grid, block, kernel.shared_bytes, operator)
}

/// All kernels and shapes, greatest impact first. Medians within `threshold_pct` count as the same.
#[must_use]
pub fn compare<'a>(before: &'a Profile, after: &'a Profile, threshold_pct: f64) -> Vec<Row<'a>> {
    let old: HashMap<Key<'a>, &'a KernelProfile> = before
        .kernels
        .iter()
        .map(|kernel| (key(kernel), kernel))
        .collect();
    let mut rows: Vec<Row<'a>> = Vec::with_capacity(after.kernels.len());
    let mut found = HashMap::new();
    for kernel in &after.kernels {
        let before = old.get(&key(kernel)).copied();
        found.insert(key(kernel), ());
        let mut row = Row {
            change: Change::New,
            before,
            after: Some(kernel),
        };
        if let Some(pct) = row.change_pct() {
            row.change = if pct > threshold_pct {
                Change::Slower
            } else if pct < -threshold_pct {
                Change::Faster
            } else {
                Change::Same
            };
        }
        rows.push(row);
    }
    let gone = before
        .kernels
        .iter()
        .filter(|kernel| !found.contains_key(&key(kernel)));
    rows.extend(gone.map(|kernel| Row {
        change: Change::Gone,
        before: Some(kernel),
        after: None,
    }));
    rows.sort_by(|a, b| b.impact_ns().abs().total_cmp(&a.impact_ns().abs()));
    rows
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use profiler::Profile;

    use super::{Change, compare};

    fn profile(kernels: &[(&str, u64, u64)]) -> Profile {
        let mut text =
            "format = \"pillion-profile\"\nversion = 2\ngpu = \"T4\"\nsources = []\n".to_owned();
        for (name, median, count) in kernels {
            text += &format!(
                "[[kernel]]\nname = \"{name}\"\ngrid = [1, 1, 1]\nblock = [32, 1, 1]\nshared_bytes = 0\ncount = {count}\n\
                 duration_ns = {{ sum = {}, median = {median}, p95 = {median} }}\nregisters = 16\nsm_needed = 1\n\
                 class = \"unknown\"\nclass_rule = \"unknown\"\n",
                median * count
            );
        }
        Profile::parse(&text, Path::new("p")).expect("right")
    }

    #[test]
    fn changes_are_told_and_the_greatest_comes_first() {
        let before = profile(&[
            ("a", 100, 10),
            ("b", 100, 10),
            ("c", 100, 10),
            ("d", 1000, 1),
        ]);
        let after = profile(&[("a", 104, 10), ("b", 150, 10), ("c", 50, 1000), ("e", 7, 1)]);
        let rows = compare(&before, &after, 5.0);
        let told: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.after.or(row.before).map_or("", |kernel| &*kernel.name),
                    row.change,
                )
            })
            .collect();
        let expected = [
            ("c", Change::Faster),
            ("d", Change::Gone),
            ("b", Change::Slower),
            ("a", Change::Same),
            ("e", Change::New),
        ];
        assert_eq!(told, expected);
        assert_eq!(rows[2].change_pct(), Some(50.0));
    }

    #[test]
    fn a_profile_is_the_same_as_itself() {
        let one = profile(
            &[("a", 100, 10), ("b", 0, 1)]
                .map(|(name, median, count)| (name, median.max(1), count)),
        );
        assert!(
            compare(&one, &one, 0.0)
                .iter()
                .all(|row| row.change == Change::Same)
        );
    }
}
