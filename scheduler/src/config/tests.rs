//! Every kind of fault is named with its place, its value and the nearest right one.

use std::path::Path;

use policy::{OrionParams, PillionParams, SIMULATOR_ONLY, Slo, SmThreshold};
use proptest::prelude::*;

use super::*;

fn check(text: &str) -> Result<Config, ConfigError> {
    Config::check(Path::new("gpu0.toml"), text)
}

/// The faults of a text that must have some, one line each.
fn faults(text: &str) -> String {
    check(text).expect_err("a fault").to_string()
}

const LEAST: &str = "[gpu]\nindex = 0\nsharing = \"mps\"\n";

#[test]
fn the_example_is_the_default() {
    let text = include_str!("../../../examples/gpu0.toml");
    assert_eq!(check(text).unwrap(), check(LEAST).unwrap());
}

#[test]
fn every_key_that_the_example_shows_commented_out_is_taken_as_shown() {
    let text = include_str!("../../../examples/gpu0.toml");
    let is_key = |line: &str| {
        let key = line.split(" = ").next().unwrap_or("");
        line.contains(" = ") && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
    };
    let mut shown = 0;
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(key) if is_key(key) => {
            shown += 1;
            key
        }
        _ => line,
    });
    let text: Vec<&str> = lines.collect();
    let config = check(&text.join("\n")).unwrap();
    assert_eq!(shown, 13);
    let defaults = check(LEAST).unwrap();
    let expected = Config {
        policy: Policy::Orion(OrionParams {
            sm_threshold: SmThreshold::Sms(80),
            ..OrionParams::default()
        }),
        socket_path: Some("/run/pillion/gpu0.sock".into()),
        memory: MemoryRules {
            context_bytes: 300 << 20,
            ..defaults.memory
        },
        ..defaults
    };
    assert_eq!(config, expected);
}

#[test]
fn quotas_are_read_or_refused_with_their_place() {
    let config = check(&format!(
        "{LEAST}[memory]\nbest_effort = \"unlimited\"\nhigh_priority = \"10GiB\"\n"
    ));
    let memory = config.unwrap().memory;
    assert_eq!(memory.best_effort, Quota::Unlimited);
    assert_eq!(memory.high_priority, Quota::Bytes(10 << 30));
    for (line, part) in [
        (
            "best_effort = \"0m\"",
            "best_effort is \"0m\"; must be a size such as 10GiB",
        ),
        ("best_effort = 40", "best_effort is 40; must be"),
        (
            "context = \"5%\"",
            "context is \"5%\"; must be a size such as 300MiB",
        ),
        ("best = \"40%\"", "unknown key `best` in [memory]"),
    ] {
        let error = check(&format!("{LEAST}[memory]\n{line}\n")).unwrap_err();
        assert!(error.to_string().contains(part), "{line}: {error}");
    }
}

#[test]
fn the_defaults_are_the_blueprints() {
    let config = check(LEAST).unwrap();
    assert_eq!(config.gpu, Select::Index(0));
    assert_eq!(config.policy, Policy::Orion(OrionParams::default()));
    assert_eq!((config.poll_ns, config.max_hold_ns), (50_000, 100_000_000));
    assert_eq!(config.unknown_kernel_ns, 100_000);
    assert_eq!(config.on_daemon_loss, OnDaemonLoss::Run);
    assert_eq!(config.socket_path, None);
    assert_eq!(config.memory.best_effort, Quota::Percent(40.0));
    assert_eq!(config.memory.high_priority, Quota::Unlimited);
}

#[test]
fn a_gpu_is_named_in_exactly_one_way() {
    let gpu = |keys: &str| format!("[gpu]\nsharing = \"mps\"\n{keys}\n");
    let select = |keys: &str| check(&gpu(keys)).unwrap().gpu;
    let pci = "0000:81:00.0".parse().unwrap();
    assert_eq!(select("uuid = \"GPU-12\""), Select::Uuid("GPU-12".into()));
    assert_eq!(select("pci = \"81:00.0\""), Select::Pci(pci));
    assert_eq!(
        faults(&gpu("index = 0\nuuid = \"GPU-12\"")),
        "gpu0.toml:1:1: [gpu] has index and uuid; needs exactly one of index, uuid, pci; nearest is \
         index = 0"
    );
    assert_eq!(
        faults(""),
        "gpu0.toml:1:1: [gpu] has none of them; needs exactly one of index, uuid, pci; nearest is \
         index = 0\n\
         gpu0.toml:1:1: [gpu] has no sharing; needs \"mps\" where jobs run under an MPS server, \
         else \"timeslice\"; nearest is sharing = \"timeslice\""
    );
    assert!(
        faults(&gpu("uuid = \"12\"")).contains("gpu0.toml:3:8: uuid is \"12\"; must be a UUID")
    );
    assert!(
        faults(&gpu("pci = \"here\"")).contains("gpu0.toml:3:7: pci is \"here\"; must be a PCI")
    );
}

#[test]
fn each_fault_has_its_place_its_value_and_the_nearest_right_one() {
    let cases = [
        (
            "[polcy]",
            "gpu0.toml:4:2: unknown key `polcy` in the file; keys are gpu, policy, memory, socket; nearest \
             is `policy`",
        ),
        (
            "[policy]\npol_us = 50",
            "gpu0.toml:5:1: unknown key `pol_us` in [policy]; keys are name, poll_us, max_hold_ms, \
             unknown_kernel_us, on_daemon_loss, dur_threshold_pct, residual_us, lease_ms, \
             sm_threshold, slo_p99, block_priority, feedback, beside, kernel_pairs, \
             gap_prediction, learnt_pace, completion_prediction, sliding; nearest is `poll_us`",
        ),
        (
            "[policy]\nname = \"orin\"",
            "gpu0.toml:5:8: name is \"orin\"; must be one of none, pillion, orion, temporal, launch-gate; \
             nearest is \"orion\"",
        ),
        (
            "[policy]\nname = \"fair\"",
            "gpu0.toml:5:8: name is \"fair\"; must be one of none, pillion, orion, temporal, launch-gate",
        ),
        (
            "[policy]\nname = true",
            "gpu0.toml:5:8: name is true; must be one of none, pillion, orion, temporal, launch-gate",
        ),
        (
            "[policy]\n  poll_us = 5",
            "gpu0.toml:5:13: poll_us is 5; must be a whole number from 10 to 1000; nearest is 10",
        ),
        (
            "[policy]\npoll_us = 50.4",
            "gpu0.toml:5:11: poll_us is 50.4; must be a whole number from 10 to 1000; nearest is 50",
        ),
        (
            "[policy]\npoll_us = \"50\"",
            "gpu0.toml:5:11: poll_us is \"50\"; must be a whole number from 10 to 1000; nearest is \
             50",
        ),
        (
            "[policy]\ndur_threshold_pct = 250",
            "gpu0.toml:5:21: dur_threshold_pct is 250; must be a number above 0 and at most 100; \
             nearest is 100",
        ),
        (
            "[policy]\ndur_threshold_pct = nan",
            "gpu0.toml:5:21: dur_threshold_pct is nan; must be a number above 0 and at most 100; \
             nearest is 2.5",
        ),
        (
            "[policy]\non_daemon_loss = \"halt\"",
            "gpu0.toml:5:18: on_daemon_loss is \"halt\"; must be one of run, hold",
        ),
        (
            "[policy]\nname = \"temporal\"\nsm_threshold = 80",
            "gpu0.toml:6:16: sm_threshold is set, but policy temporal does not look at it; nearest \
             is name = \"orion\"",
        ),
        (
            "[socket]\npath = \"run/x.sock\"",
            "gpu0.toml:5:8: path is \"run/x.sock\"; must be an absolute path of at most 103 bytes; \
             nearest is \"/run/pillion/run/x.sock\"",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(faults(&format!("{LEAST}{text}\n")), expected, "{text}");
    }
}

#[test]
fn a_policy_is_refused_with_what_it_is_and_a_key_that_it_does_not_look_at() {
    let policy = |text: &str| faults(&format!("{LEAST}[policy]\n{text}\n"));
    assert_eq!(
        policy("name = \"reef-n\""),
        "gpu0.toml:5:8: policy `reef-n` runs in the simulator only, because it decides about \
         queues of launches, and a daemon grants leases: policies of a daemon are none, pillion, orion, \
         temporal, launch-gate; nearest is \"orion\""
    );
    assert_eq!(
        policy("name = \"launch-gate\"\ndur_threshold_pct = 5"),
        "gpu0.toml:6:21: dur_threshold_pct is set, but policy launch-gate does not look at it; \
         nearest is name = \"orion\""
    );
}

#[test]
fn an_sm_threshold_that_every_kernel_stays_below_can_be_set() {
    // The largest need in Orion's traces: MobileNetV2 training with batch 96.
    let config = check(&format!("{LEAST}[policy]\nsm_threshold = 112897\n")).unwrap();
    let expected = OrionParams {
        sm_threshold: SmThreshold::Sms(112_897),
        ..OrionParams::default()
    };
    assert_eq!(config.policy, Policy::Orion(expected));
}

#[test]
fn every_policy_of_a_gate_is_taken_and_no_policy_of_the_simulator() {
    for name in Policy::NAMES {
        let config = check(&format!("{LEAST}[policy]\nname = \"{name}\"\n")).unwrap();
        assert_eq!(config.policy, name.parse().unwrap());
    }
    for (name, why) in SIMULATOR_ONLY {
        let text = faults(&format!("{LEAST}[policy]\nname = \"{name}\"\n"));
        assert!(
            text.contains("simulator only") && text.contains(why),
            "{text}"
        );
    }
}

#[test]
fn a_table_that_is_none_is_said_to_be() {
    let text = "policy = 3\n[gpu]\nindex = 0\nsharing = \"mps\"\n";
    let expected = "gpu0.toml:1:10: policy is 3; must be a table; nearest is [policy]";
    assert_eq!(faults(text), expected);
}

#[test]
fn broken_toml_has_a_place_and_a_reason() {
    let text = faults("[gpu]\nindex = = 0\n");
    assert!(text.starts_with("gpu0.toml:2:"), "{text}");
    let text = faults("[gpu]\nindex = 0\nindex = 1\n");
    assert!(text.starts_with("gpu0.toml:3:1: "), "{text}");
}

#[test]
fn all_faults_are_found_at_once_in_the_order_of_the_file() {
    let text = faults("[gpu]\nindex = -1\nsharing = \"msp\"\n[policy]\npoll_us = 0\nfoo = 1\n");
    let places: Vec<&str> = text.lines().map(|line| &line[10..13]).collect();
    assert_eq!(places, ["2:9", "3:1", "5:1", "6:1"], "{text}");
}

#[test]
fn a_file_that_is_not_there_or_no_text_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu0.toml");
    let error = Config::load(&path).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
    std::fs::write(&path, b"[gpu]\nuuid = \"\xff\"").unwrap();
    let error = Config::load(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("gpu0.toml:2:9: byte 0xff is not UTF-8 text"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_has_a_fault(text in "\\PC{0,200}") {
        let _ = check(&text);
    }

    #[test]
    fn any_value_of_any_key_is_taken_or_has_a_fault(
        key in prop::sample::select(vec![
            "name", "poll_us", "max_hold_ms", "unknown_kernel_us", "on_daemon_loss",
            "dur_threshold_pct", "residual_us", "lease_ms", "sm_threshold",
        ]),
        value in prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f64>().prop_map(|n| format!("{n:?}").replace("NaN", "nan")),
            "\"[a-z]{0,8}\"",
            Just("[1, 2]".to_owned()),
            Just("0x32".to_owned()),
            Just("1_000".to_owned()),
            Just("1979-05-27".to_owned()),
        ],
    ) {
        if let Err(error) = check(&format!("{LEAST}[policy]\n{key} = {value}\n")) {
            let text = error.to_string();
            prop_assert!(text.starts_with("gpu0.toml:5:"), "{}", text);
        }
    }
}

#[test]
fn pillions_target_and_switches_are_read_and_belong_to_it_alone() {
    let text = |keys: &str| format!("{LEAST}[policy]\n{keys}\n");
    let read = |keys: &str| check(&text(keys)).unwrap().policy;
    let expected = PillionParams {
        slo: Slo::LatencyNs(20_000_000),
        solo_ns: None,
        block_priority: false,
        feedback: false,
        beside: false,
        kernel_pairs: false,
        gap_prediction: false,
        learnt_pace: false,
        completion_prediction: false,
        sliding: false,
        residual_ns_unknown: 50_000,
        lease_ns: 4_000_000,
    };
    let keys = "name = \"pillion\"\nslo_p99 = \"20ms\"\nblock_priority = false\nfeedback = false\n\
                beside = false\nkernel_pairs = false\ngap_prediction = false\nlearnt_pace = false\n\
                completion_prediction = false\nsliding = false\nresidual_us = 50\nlease_ms = 4";
    assert_eq!(read(keys), Policy::Pillion(expected));
    let least = read("name = \"pillion\"");
    assert_eq!(least, Policy::Pillion(PillionParams::default()));
    assert_eq!(
        faults(&text("name = \"pillion\"\nslo_p99 = \"fast\"\nbeside = 1")),
        "gpu0.toml:6:11: slo_p99 is \"fast\"; must be times alone from \"1x\" to \"100x\", or ms, such as \
         \"20ms\"; nearest is \"1.05x\"\n\
         gpu0.toml:7:10: beside is 1; must be true or false; nearest is true"
    );
    assert_eq!(
        faults(&text("sliding = false")),
        "gpu0.toml:5:11: sliding is set, but policy orion does not look at it; nearest is name = \"pillion\""
    );
}
