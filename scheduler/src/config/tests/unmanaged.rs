//! `[unmanaged]`: reaction to processes that use the GPU outside Pillion.

use super::*;

#[test]
fn nothing_is_ended_unless_it_is_said_and_of_roots_unless_that_is_said_too() {
    let rules = |text: &str| check(&format!("{LEAST}{text}\n")).unwrap().unmanaged;
    let of = |action, seconds: u64, root| UnmanagedRules {
        action,
        grace_ns: seconds * 1_000_000_000,
        root,
    };
    for (text, expected) in [
        ("", of(OnUnmanaged::Report, 30, false)),
        ("[unmanaged]", of(OnUnmanaged::Report, 30, false)),
        (
            "[unmanaged]\naction = \"report\"",
            of(OnUnmanaged::Report, 30, false),
        ),
        (
            "[unmanaged]\naction = \"evict\"",
            of(OnUnmanaged::Evict, 30, false),
        ),
        (
            "[unmanaged]\naction = \"evict\"\ngrace_s = 0\nroot = true",
            of(OnUnmanaged::Evict, 0, true),
        ),
    ] {
        assert_eq!(rules(text), expected, "{text}");
    }
}

#[test]
fn what_is_wrong_in_unmanaged_is_named_with_its_place() {
    for (text, expected) in [
        (
            "action = \"kill\"",
            "gpu0.toml:5:10: action is \"kill\"; must be one of report, evict",
        ),
        (
            "action = \"evict\"\ngrace_s = 3601",
            "gpu0.toml:6:11: grace_s is 3601; must be a whole number from 0 to 3600; nearest is 3600",
        ),
        (
            "action = \"evict\"\nroot = 1",
            "gpu0.toml:6:8: root is 1; must be",
        ),
        (
            "grace_s = 5",
            "gpu0.toml:5:11: grace_s is set, but action \"report\" ignores it; nearest is action = \"evict\"",
        ),
        (
            "action = \"report\"\nroot = true",
            "gpu0.toml:6:8: root is set, but action \"report\" ignores it; nearest is action = \"evict\"",
        ),
        (
            "grace = \"30s\"",
            "gpu0.toml:5:1: unknown key `grace` in [unmanaged]; keys are action, grace_s, root; nearest is `grace_s`",
        ),
    ] {
        let text = format!("{LEAST}[unmanaged]\n{text}\n");
        assert!(faults(&text).contains(expected), "{}", faults(&text));
    }
}

#[test]
fn a_running_daemon_takes_over_another_rule() {
    let before = check(LEAST).unwrap();
    let next = check(&format!("{LEAST}[unmanaged]\naction = \"evict\"\n")).unwrap();
    assert_eq!(before.fixed_difference(&next), None);
}
