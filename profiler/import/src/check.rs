//! Omissions and doubtful values of a readable profile.

use profiler::scale::Gpu;
use profiler::{KernelProfile, Profile, ResourceClass};

/// Share of a job's time from which on an omission is reported, percent.
const SHARE_PCT: f64 = 5.0;

/// The greatest p95 without doubt, in medians.
const SPREAD: u64 = 3;

/// The cautions about `profile`, a sentence each, the most important first.
#[must_use]
pub fn check(profile: &Profile) -> Vec<String> {
    let mut doubts = Vec::new();
    if profile.kernels.is_empty() {
        doubts.push("the profile has no kernels, so every launch will count as unknown".to_owned());
        return doubts;
    }
    if !Gpu::of_profile(profile).can_be_scaled() {
        doubts.push(format!(
            "the profile cannot be scaled to another GPU: SMs, clock or bandwidth of `{}` are unknown",
            profile.gpu
        ));
    }
    let mut say = |what: &str, remedy: &str, is_meant: &dyn Fn(&KernelProfile) -> bool| {
        let (share, count) = share_of(profile, is_meant);
        if count > 0 && share >= SHARE_PCT {
            doubts.push(format!(
                "{share:.0} % of the time is in {count} {}{what}; {remedy}",
                if count == 1 { "kernel " } else { "kernels " },
            ));
        }
    };
    say(
        "of unknown class",
        "import counters of Nsight Compute (`ncu --set full`) for the class",
        &|kernel| kernel.class == ResourceClass::Unknown,
    );
    say(
        "of unknown launch shape",
        "import an SQLite export of Nsight Systems for the shape",
        &|kernel| kernel.grid == [0; 3],
    );
    say(
        "with an unknown number of blocks per SM",
        "one block per SM is assumed; import an SQLite export of Nsight Systems for the number",
        &|kernel| kernel.grid != [0; 3] && kernel.evidence.blocks_per_sm.is_none(),
    );
    say(
        "whose p95 is more than 3 medians",
        "profile a longer, undisturbed run",
        &|kernel| kernel.durations.p95_ns > kernel.durations.median_ns.saturating_mul(SPREAD),
    );
    say(
        "launched only once",
        "profile several requests or iterations",
        &|kernel| kernel.count == 1,
    );
    doubts
}

fn share_of(profile: &Profile, is_meant: &dyn Fn(&KernelProfile) -> bool) -> (f64, usize) {
    let sum = |kernels: &mut dyn Iterator<Item = &KernelProfile>| {
        kernels
            .map(|kernel| kernel.durations.sum_ns as f64)
            .sum::<f64>()
    };
    let all = sum(&mut profile.kernels.iter());
    let meant = || profile.kernels.iter().filter(|kernel| is_meant(kernel));
    (sum(&mut meant()) / all.max(1.0) * 100.0, meant().count())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use profiler::Profile;

    use super::check;

    const GOOD: &str = "format = \"pillion-profile\"\nversion = 2\ngpu = \"T4\"\nsources = []\n\
        [[kernel]]\nname = \"f\"\ngrid = [1, 1, 1]\nblock = [32, 1, 1]\nshared_bytes = 0\ncount = 4\n\
        duration_ns = { sum = 400, median = 100, p95 = 110 }\nregisters = 16\nsm_needed = 1\n\
        class = \"memory\"\nclass_rule = \"throughput\"\nblocks_per_sm = 16\n";

    fn doubts(from: &str, to: &str) -> Vec<String> {
        let text = GOOD.replacen(from, to, 1);
        check(&Profile::parse(&text, Path::new("p")).expect("right"))
    }

    #[test]
    fn what_is_lacking_is_said_and_nothing_else() {
        assert!(doubts("T4", "T4").is_empty());
        for (from, to, expected) in [
            (
                "T4",
                "RTX 9090",
                "SMs, clock or bandwidth of `RTX 9090` are unknown",
            ),
            (
                "\"memory\"",
                "\"unknown\"",
                "100 % of the time is in 1 kernel of unknown class",
            ),
            (
                "grid = [1, 1, 1]\nblock = [32, 1, 1]",
                "grid = [0, 0, 0]\nblock = [0, 0, 0]",
                "kernel of unknown launch shape",
            ),
            (
                "blocks_per_sm = 16\n",
                "",
                "unknown number of blocks per SM",
            ),
            ("p95 = 110", "p95 = 310", "p95 is more than 3 medians"),
            ("count = 4", "count = 1", "launched only once"),
        ] {
            let found = doubts(from, to);
            assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        }
        let empty = GOOD.split("[[kernel]]").next().expect("a head");
        let empty = Profile::parse(empty, Path::new("p")).expect("right");
        assert!(check(&empty)[0].contains("the profile has no kernels"));
    }
}
