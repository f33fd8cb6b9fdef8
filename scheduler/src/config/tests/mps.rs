//! `[mps]`, and its former keys in `[faults]`.

use super::*;

fn mps(text: &str) -> Result<MpsRules, ConfigError> {
    Ok(check(&format!("{LEAST}[mps]\n{text}\n"))?.mps)
}

#[test]
fn mps_is_not_managed_unless_that_is_said() {
    let rules = check(LEAST).unwrap().mps;
    assert_eq!(rules, mps("").unwrap());
    assert_eq!((rules.manage, rules.restarts_per_hour), (false, 3));
    let managed = mps("manage = true\nrestarts_per_hour = 0").unwrap();
    assert_eq!((managed.manage, managed.restarts_per_hour), (true, 0));
}

#[test]
fn static_partitions_are_an_argument_of_the_usual_start() {
    let program = "/usr/bin/nvidia-cuda-mps-control";
    let start = |text: &str| mps(text).unwrap().start_command();
    assert_eq!(start("manage = true"), [program, "-d"]);
    let with = "manage = true\nstatic_partitioning = true";
    assert_eq!(start(with), [program, "-d", "-S"]);
}

#[test]
fn keys_that_moved_are_named_with_their_place_and_where_they_are_now() {
    let section = "[faults]\nmps_control = [\"/a\"]\nmps_start = [\"/a\"]\nmps_terminate = 3\n\
                   mps_logs = []\nmps_patterns = []\nstuck = 5\n";
    let said = faults(&format!("{LEAST}{section}"));
    for (line, (old, new)) in [
        ("mps_control", "control"),
        ("mps_start", "start"),
        ("mps_terminate", "terminate"),
        ("mps_logs", "logs"),
        ("mps_patterns", "patterns"),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("{old} of [faults] has moved; nearest is {new} in [mps]");
        let column = old.len() + 4;
        let expected = format!("gpu0.toml:{}:{column}: {what}", line + 5);
        assert!(said.contains(&expected), "no {expected} in {said}");
    }
    assert!(said.contains("unknown key `stuck` in [faults]"), "{said}");
}

#[test]
fn what_only_counts_where_it_is_managed_and_two_ways_to_start_it_are_refused() {
    for (text, part) in [
        (
            "restarts_per_hour = 3",
            "restarts_per_hour is set, but applies only where this daemon starts MPS; nearest is manage = true",
        ),
        (
            "static_partitioning = true",
            "static_partitioning is set, but applies only where this daemon starts MPS",
        ),
        (
            "manage = true\nstatic_partitioning = true\nstart = [\"/bin/true\"]",
            "start and static_partitioning are both set",
        ),
        ("manage = \"yes\"", "manage is \"yes\""),
        (
            "manage = true\nrestarts_per_hour = 21",
            "restarts_per_hour is 21; must be",
        ),
        (
            "start = [\"nvidia-cuda-mps-control\"]",
            "nearest is [\"/usr/bin/nvidia-cuda-mps-control\"]",
        ),
        (
            "logs = [\"a.log\"]",
            "logs is [\"a.log\"]; must be a list of at most 8 absolute paths",
        ),
        ("managed = true", "unknown key `managed` in [mps]"),
    ] {
        let said = mps(text).unwrap_err().to_string();
        assert!(said.contains(part), "{text}: {said}");
    }
}

#[test]
fn another_section_of_mps_takes_a_restart() {
    let before = check(LEAST).unwrap();
    let after = check(&format!("{LEAST}[mps]\nmanage = true\n")).unwrap();
    assert_eq!(before.fixed_difference(&after), Some("[mps]"));
}

#[test]
fn programs_that_are_missing_are_told_where_they_are_used() {
    let missing = |text: &str| check(&format!("{LEAST}{text}")).unwrap().missing_programs();
    let start =
        "[mps]\nstart = [\"/no/such/start\"]\ncontrol = [\"/bin/sh\"]\nterminate = [\"/bin/sh\"]\n";
    assert_eq!(missing(start), Vec::<String>::new(), "nobody runs it");
    let rule = "[[faults.rules]]\nfault = \"mps-fault\"\naction = \"restart-mps\"\n";
    for text in [format!("{start}{rule}"), format!("{start}manage = true\n")] {
        let said = missing(&text);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("[mps] start: /no/such/start: "),
            "{said:?}"
        );
    }
}
