//! `examples/gpu0.toml` has every key, with its default.

use super::*;

const EXAMPLE: &str = include_str!("../../../../examples/gpu0.toml");

#[test]
fn the_example_is_the_default() {
    assert_eq!(check(EXAMPLE).unwrap(), check(LEAST).unwrap());
}

fn example_with_all_keys() -> (String, u32) {
    let is_key = |line: &str| {
        let key = line.split(" = ").next().unwrap_or("");
        line.contains(" = ")
            && key
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let mut shown = 0;
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix("# ") {
        Some(key) if is_key(key) => {
            shown += 1;
            key
        }
        Some(
            rule @ ("[[memory.rules]]" | "[[faults.rules]]" | "[high_priority]" | "[throttle]"
            | "[share]" | "[probe]" | "[tuner]"),
        ) => rule,
        _ => line,
    });
    let lines: Vec<&str> = lines.collect();
    (lines.join("\n"), shown)
}

fn probe_of_example() -> ProbeParams {
    ProbeParams {
        bounds: [
            Bound::At(0.97, None),
            Bound::At(0.95, None),
            Bound::At(0.9, Some(0.75)),
            Bound::At(0.92, Some(0.97)),
            Bound::At(82.0, Some(87.0)),
            Bound::At(1.0, None),
        ],
        clock_mhz: Some(1_380),
    }
}

#[test]
fn every_key_that_the_example_shows_commented_out_is_taken_as_shown() {
    let (text, shown) = example_with_all_keys();
    let config = check(&text).unwrap();
    assert_eq!(shown, 65);
    let defaults = check(LEAST).unwrap();
    let Policy::Pillion(policy) = defaults.policy else {
        panic!("{defaults:?}");
    };
    let expected = Config {
        policy: Policy::Pillion(PillionParams {
            slo: Some(Slo::Slowdown(1.05)),
            ..policy
        }),
        socket_path: Some("/run/pillion/gpu0.sock".into()),
        memory: MemoryRules {
            context: Context::Bytes(300 << 20),
            rules: vec![Rule {
                user: Some(1000),
                group: Some(100),
                cgroup: Some("/user.slice".to_owned()),
                quota: Quota::Percent(20.0),
            }],
            ..defaults.memory
        },
        faults: FaultRules {
            rules: vec![FaultRule {
                fault: FaultKind::StickyError,
                codes: vec![700, 719],
                action: Action::RestartJob {
                    grace_ns: 10_000_000_000,
                },
                per_hour: 3,
            }],
            ..defaults.faults
        },
        unmanaged: UnmanagedRules {
            action: OnUnmanaged::Evict,
            ..defaults.unmanaged
        },
        mps: MpsRules {
            manage: true,
            logs: ["control.log", "server.log"]
                .map(|name| Path::new("/var/log/nvidia-mps").join(name))
                .to_vec(),
            ..defaults.mps
        },
        throttle: Some(ThrottleParams {
            utilisation: 0.9,
            clock_mhz: Some(1_380),
        }),
        share: Some(ShareParams {
            mode: ShareMode::Static(60),
            restart_ns: 900_000_000_000,
        }),
        probe: Some(probe_of_example()),
        tuner: Some(TunerRules { settle: 100 }),
        learnt: LearntRules {
            keep: Some(true),
            folder: Some("/var/lib/pillion".into()),
        },
        high_priority: Some(HpAccess {
            users: vec![1000],
            groups: vec![100],
            cgroups: vec!["/system.slice/serve.service".to_owned()],
        }),
        ..defaults
    };
    assert_eq!(config, expected);
}

/// The keys that the message about an unknown key lists; `text` ends with that key's section.
fn keys_of(text: &str) -> Vec<String> {
    let message = faults(text);
    let listed = message.split("keys are ").nth(1);
    let listed = listed.unwrap_or_else(|| panic!("{text}: {message}"));
    let end = listed.find([';', '\n']).unwrap_or(listed.len());
    listed[..end].split(", ").map(str::to_owned).collect()
}

/// The lines of a section of the example, commented out or not.
fn lines_of(header: &str) -> String {
    let text = |line: &'static str| line.trim_start_matches(['#', ' ']);
    let is_header = |line: &&str| line.starts_with('[') && line.ends_with(']');
    let mut lines = EXAMPLE.lines().map(text).skip_while(|line| *line != header);
    let first = lines.next();
    let more = lines.take_while(|line| !is_header(line));
    first.into_iter().chain(more).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_key_of_the_file_is_in_its_section_of_the_example() {
    let mut headers: Vec<String> = keys_of(&format!("{LEAST}[none]\n"))
        .into_iter()
        .map(|section| match section.as_str() {
            "jobs" => "[jobs.train]".to_owned(),
            _ => format!("[{section}]"),
        })
        .collect();
    headers.extend(["[[memory.rules]]", "[[faults.rules]]"].map(str::to_owned));
    let mut count = 0;
    for header in headers {
        // LEAST is that section.
        let opened = if header == "[gpu]" { "" } else { &header };
        let lines = lines_of(&header);
        assert!(!lines.is_empty(), "{header}");
        for key in keys_of(&format!("{LEAST}{opened}\nno_such_key = 1\n")) {
            count += 1;
            let is_in_key = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let mut words = lines.split(|c| !is_in_key(c));
            assert!(words.any(|word| word == key), "{header}: {key}");
        }
    }
    assert!(count > 70, "only {count} keys found");
}
