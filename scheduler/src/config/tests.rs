//! Every kind of fault is reported with its place, its value and the nearest valid one.

use std::path::Path;

use policy::{
    Bound, Metric, OrionParams, PillionParams, ProbeParams, SIMULATOR_ONLY, ShareMode, ShareParams,
    Slo, SmThreshold, ThrottleParams,
};
use proptest::prelude::*;

use super::*;
use crate::config::fault_rules::FaultKind;
use crate::config::fault_rules::{Action, FaultRule};
use crate::config::limits::{HpAccess, Limits};
use crate::config::memory_rules::Rule;
use crate::config::mps_rules::MpsRules;
use crate::config::source::Source;
use crate::config::unmanaged_rules::OnUnmanaged;

mod example;
mod laws;
mod mps;
mod unmanaged;

fn check(text: &str) -> Result<Config, ConfigError> {
    Config::check(Path::new("gpu0.toml"), text)
}

fn faults(text: &str) -> String {
    check(text).expect_err("a fault").to_string()
}

const LEAST: &str = "[gpu]\nindex = 0\nsharing = \"auto\"\n";

fn pillion() -> PillionParams {
    PillionParams {
        block_priority: false,
        ..PillionParams::default()
    }
}

#[test]
fn a_rule_for_deaths_takes_no_codes_which_would_be_ns_of_work() {
    let rule = "[[faults.rules]]\nfault = \"died-in-flight\"\naction = \"report\"\n";
    assert!(check(&format!("{LEAST}{rule}")).is_ok());
    let errors = check(&format!("{LEAST}{rule}codes = [719]\n")).unwrap_err();
    let text = format!("{errors}");
    let part = "codes is set, but fault died-in-flight has no codes";
    assert!(text.contains(part), "{text}");
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
        (
            "excess = \"kill\"",
            "excess is \"kill\"; must be one of ignore, report, evict",
        ),
        ("slack = \"plenty\"", "slack is \"plenty\"; must be a size"),
        ("rules = 3", "rules is 3; must be a list"),
        (
            "[[memory.rules]]\nuser = \"1000\"",
            "[[memory.rules]] has no quota",
        ),
        (
            "[[memory.rules]]\nquota = \"1GiB\"",
            "a rule of [memory] applies to nobody",
        ),
        (
            "[[memory.rules]]\nquota = \"1GiB\"\nuser = \"no such user here\"",
            "user is \"no such user here\"; must be the name of a user of this machine",
        ),
        (
            "[[memory.rules]]\nquota = \"1GiB\"\ncgroup = \"user.slice\"",
            "cgroup is \"user.slice\"; must be the path of a cgroup",
        ),
        (
            "[[memory.rules]]\nquota = \"0\"\nuser = \"0\"",
            "quota is \"0\"; must be a size",
        ),
        (
            "[[memory.rules]]\nuid = 0",
            "unknown key `uid` in [[memory.rules]]",
        ),
        ("best = \"40%\"", "unknown key `best` in [memory]"),
    ] {
        let error = check(&format!("{LEAST}[memory]\n{line}\n")).unwrap_err();
        assert!(error.to_string().contains(part), "{line}: {error}");
    }
}

#[test]
fn rules_name_users_and_groups_by_name_or_number() {
    let config = check(&format!(
        "{LEAST}[memory]\ncontext = \"measured\"\nslack = \"0\"\n\
         [[memory.rules]]\nuser = \"root\"\nquota = \"1GiB\"\n\
         [[memory.rules]]\ngroup = \"0\"\ncgroup = \"/\"\nquota = \"unlimited\"\n"
    ));
    let memory = config.unwrap().memory;
    assert_eq!((memory.context, memory.slack_bytes), (Context::Measured, 0));
    let users: Vec<_> = memory
        .rules
        .iter()
        .map(|rule| (rule.user, rule.group))
        .collect();
    assert_eq!(users, [(Some(0), None), (None, Some(0))]);
    assert_eq!(memory.rules[1].cgroup.as_deref(), Some(""));
}

#[test]
fn the_defaults_are_the_blueprints() {
    let config = check(LEAST).unwrap();
    assert_eq!(config.gpu, Select::Index(0));
    assert_eq!(config.policy, Policy::Pillion(pillion()));
    assert_eq!((config.poll_ns, config.max_hold_ns), (50_000, 100_000_000));
    assert_eq!(config.unknown_kernel_ns, 100_000);
    assert_eq!(config.on_daemon_loss, OnDaemonLoss::Run);
    assert_eq!(config.on_collectives, OnCollectives::Refuse);
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
         index = 0"
    );
    assert!(
        faults(&gpu("uuid = \"12\"")).contains("gpu0.toml:3:8: uuid is \"12\"; must be a UUID")
    );
    assert!(
        faults(&gpu("pci = \"here\"")).contains("gpu0.toml:3:7: pci is \"here\"; must be a PCI")
    );
}

#[test]
fn a_hold_is_no_longer_than_clients_wait() {
    let told = faults(&format!("{LEAST}[policy]\nmax_hold_ms = 60000\n"));
    assert!(
        told.contains("must be a whole number from 1 to 10000; nearest is 10000"),
        "{told}"
    );
}

#[test]
fn each_fault_has_its_place_its_value_and_the_nearest_right_one() {
    let cases = [
        (
            "[polcy]",
            "gpu0.toml:4:2: unknown key `polcy` in the file; keys are gpu, policy, jobs, throttle, share, probe, tuner, memory, faults, unmanaged, mps, \
             high_priority, limits, learnt, socket; nearest is `policy`",
        ),
        (
            "[policy]\npol_us = 50",
            "gpu0.toml:5:1: unknown key `pol_us` in [policy]; keys are name, poll_us, max_hold_ms, \
             unknown_kernel_us, on_daemon_loss, collectives, dur_threshold_pct, residual_us, lease_ms, \
             sm_threshold, slo_p99, slo_miss, slo_quantile, slo_mean, slo_throughput, block_priority, feedback, beside, \
             kernel_pairs, gap_prediction, learnt_durations; nearest is `poll_us`",
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
            "[policy]\nname = \"orion\"\ndur_threshold_pct = 250",
            "gpu0.toml:6:21: dur_threshold_pct is 250; must be a number above 0 and at most 100; \
             nearest is 100",
        ),
        (
            "[policy]\nname = \"orion\"\ndur_threshold_pct = nan",
            "gpu0.toml:6:21: dur_threshold_pct is nan; must be a number above 0 and at most 100",
        ),
        (
            "[policy]\non_daemon_loss = \"halt\"\ncollectives = \"gang\"",
            "gpu0.toml:5:18: on_daemon_loss is \"halt\"; must be one of run, hold\n\
             gpu0.toml:6:15: collectives is \"gang\"; must be one of refuse, gate",
        ),
        (
            "[policy]\nname = \"temporal\"\nsm_threshold = 80",
            "gpu0.toml:6:16: sm_threshold is set, but policy temporal ignores it; nearest \
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
        "gpu0.toml:6:21: dur_threshold_pct is set, but policy launch-gate ignores it; \
         nearest is name = \"orion\""
    );
}

#[test]
fn an_sm_threshold_that_every_kernel_stays_below_can_be_set() {
    // The largest need in Orion's traces: MobileNetV2 training with batch 96.
    let config = check(&format!(
        "{LEAST}[policy]\nname = \"orion\"\nsm_threshold = 112897\n"
    ))
    .unwrap();
    let expected = OrionParams {
        sm_threshold: SmThreshold::Sms(112_897),
        ..OrionParams::default()
    };
    assert_eq!(config.policy, Policy::Orion(expected));
}

#[test]
fn every_policy_of_a_gate_is_taken_and_no_policy_of_the_simulator() {
    for name in Policy::NAMES {
        let mut config = check(&format!("{LEAST}[policy]\nname = \"{name}\"\n")).unwrap();
        config.set_block_priority(true);
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
    // A list is rejected even if its items would fit the table's fields.
    assert_eq!(
        faults(&format!("limits = [7]\n{LEAST}")),
        "gpu0.toml:1:10: limits is [7]; must be a table; nearest is [limits]"
    );
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
    let error = Source::File(path.clone()).load().unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
    std::fs::write(&path, b"[gpu]\nuuid = \"\xff\"").unwrap();
    let error = Source::File(path.clone()).load().unwrap_err().to_string();
    assert!(
        error.ends_with("gpu0.toml:2:9: byte 0xff is not UTF-8 text"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_has_a_fault(text in "\\PC{0,200}") {
        if let Err(error) = check(&text) {
            let text = error.to_string();
            prop_assert!(text.starts_with("gpu0.toml:"), "{}", text);
        }
    }

    #[test]
    fn any_value_of_any_key_is_taken_or_has_a_fault(
        key in prop::sample::select(vec![
            "name", "poll_us", "max_hold_ms", "unknown_kernel_us", "on_daemon_loss", "collectives",
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
        slo: Some(Slo::LatencyNs(20_000_000)),
        miss: 0.01,
        solo_ns: None,
        block_priority: false,
        feedback: false,
        beside: false,
        kernel_pairs: false,
        gap_prediction: false,
        learnt_durations: false,
        residual_ns_unknown: 50_000,
        lease_ns: 4_000_000,
        look_ns_max: 700_000,
    };
    let keys = "name = \"pillion\"\nslo_p99 = \"20ms\"\nblock_priority = false\nfeedback = false\n\
                beside = false\nkernel_pairs = false\ngap_prediction = false\n\
                learnt_durations = false\nresidual_us = 50\nlease_ms = 4\npoll_us = 300";
    assert_eq!(read(keys), Policy::Pillion(expected));
    let least = read("name = \"pillion\"");
    assert_eq!(least, Policy::Pillion(pillion()));
    assert_eq!(
        faults(&text("name = \"pillion\"\nslo_p99 = \"fast\"\nbeside = 1")),
        "gpu0.toml:6:11: slo_p99 is \"fast\"; must be a multiple of the time alone from \"1x\" to \"100x\", or \
         milliseconds such as \"20ms\"; nearest is \"1.05x\"\n\
         gpu0.toml:7:10: beside is 1; must be true or false"
    );
    assert_eq!(
        faults(&text("name = \"orion\"\nkernel_pairs = false")),
        "gpu0.toml:6:16: kernel_pairs is set, but policy orion ignores it; nearest is name = \"pillion\""
    );
}

#[test]
fn how_the_gpu_is_shared_is_found_out_unless_it_is_said() {
    let gpu = |keys: &str| format!("[gpu]\nindex = 0\n{keys}\n");
    let read = |keys: &str| check(&gpu(keys)).unwrap().sharing;
    assert_eq!((read(""), read("sharing = \"auto\"")), (None, None));
    assert_eq!(read("sharing = \"mps\""), Some(Sharing::Mps));
    assert_eq!(read("sharing = \"timeslice\""), Some(Sharing::TimeSlice));
    assert_eq!(
        faults(&gpu("sharing = \"mpss\"")),
        "gpu0.toml:3:11: sharing is \"mpss\"; must be one of auto, mps, timeslice; nearest is \"mps\""
    );
    assert_eq!(
        faults(&gpu("sharing = true")),
        "gpu0.toml:3:11: sharing is true; must be one of auto, mps, timeslice"
    );
}

#[test]
fn block_priority_is_off_until_it_is_known_to_work_unless_it_is_said() {
    let read = |keys: &str| {
        let text = format!("{LEAST}[policy]\nname = \"pillion\"\n{keys}\n");
        check(&text).unwrap()
    };
    let is_on = |config: &Config| match config.policy {
        Policy::Pillion(params) => params.block_priority,
        _ => panic!("{config:?}"),
    };
    for (keys, configured) in [
        ("", None),
        ("block_priority = \"auto\"", None),
        ("block_priority = true", Some(true)),
        ("block_priority = false", Some(false)),
    ] {
        let mut config = read(keys);
        assert_eq!(config.block_priority, configured, "{keys}");
        assert_eq!(is_on(&config), configured.unwrap_or(false), "{keys}");
        for works in [true, false] {
            config.set_block_priority(works);
            assert_eq!(is_on(&config), configured.unwrap_or(works), "{keys}");
        }
    }
    for value in ["\"on\"", "1"] {
        assert_eq!(
            faults(&format!("{LEAST}[policy]\nblock_priority = {value}\n")),
            format!(
                "gpu0.toml:5:18: block_priority is {value}; must be true, false or \"auto\"; nearest is \"auto\""
            )
        );
    }
}

#[test]
fn a_target_of_a_mean_or_a_rate_excludes_a_tail() {
    let text = |keys: &str| format!("{LEAST}[policy]\nname = \"pillion\"\n{keys}\n");
    for (key, slo) in [
        ("slo_throughput = 0.9", Slo::Throughput(0.9)),
        ("slo_mean = \"90ms\"", Slo::MeanNs(90_000_000)),
        ("slo_mean = \"1.2x\"", Slo::MeanSlowdown(1.2)),
    ] {
        let expected = PillionParams {
            slo: Some(slo),
            ..pillion()
        };
        assert_eq!(check(&text(key)).unwrap().policy, Policy::Pillion(expected));
    }
    for (keys, fault) in [
        (
            "slo_throughput = 0.3",
            "gpu0.toml:6:18: slo_throughput is 0.3; must be a number from 0.5 to 1; nearest is 0.5",
        ),
        (
            "slo_p99 = \"2x\"\nslo_throughput = 0.9",
            "gpu0.toml:7:18: slo_throughput and slo_p99 are both set; high-priority jobs have one target",
        ),
        (
            "slo_p99 = \"2x\"\nslo_mean = \"2x\"",
            "gpu0.toml:7:12: slo_mean and slo_p99 are both set; high-priority jobs have one target",
        ),
        (
            "slo_throughput = 0.9\nslo_mean = \"2x\"",
            "gpu0.toml:6:18: slo_throughput and slo_mean are both set; high-priority jobs have one target",
        ),
        (
            "slo_mean = \"0.5x\"",
            "gpu0.toml:6:12: slo_mean is \"0.5x\"; must be a multiple of the time alone from \"1x\" to \"100x\", \
             or milliseconds such as \"20ms\"; nearest is \"1.05x\"",
        ),
    ] {
        assert_eq!(faults(&text(keys)), fault);
    }
}

#[test]
fn the_quantile_of_a_target_is_said_once_and_a_mean_has_none() {
    let text = |keys: &str| format!("{LEAST}[policy]\n{keys}\n");
    let (slo, of) = (Some(Slo::Slowdown(1.2)), "slo_p99 = \"1.2x\"");
    for (keys, miss) in [
        ("", 0.01),
        ("\nslo_miss = 0.005", 0.005),
        ("\nslo_miss = 0.5", 0.5),
        ("\nslo_quantile = 0.995", 0.005),
        ("\nslo_quantile = 0.99", 0.01),
        ("\nslo_quantile = 0.5", 0.5),
    ] {
        let expected = Policy::Pillion(PillionParams {
            slo,
            miss,
            ..pillion()
        });
        assert_eq!(
            check(&text(&format!("{of}{keys}"))).unwrap().policy,
            expected
        );
    }
    for (keys, fault) in [
        (
            "slo_miss = 0",
            "gpu0.toml:5:12: slo_miss is 0; must be a number above 0 and at most 0.5",
        ),
        (
            "slo_miss = 1",
            "gpu0.toml:5:12: slo_miss is 1; must be a number above 0 and at most 0.5; nearest is 0.5",
        ),
        (
            "slo_miss = nan",
            "gpu0.toml:5:12: slo_miss is nan; must be a number above 0 and at most 0.5",
        ),
        (
            "slo_quantile = 99.9",
            "gpu0.toml:5:16: slo_quantile is 99.9; must be a number from 0.5 to 0.9999; nearest is 0.9999",
        ),
        (
            "slo_miss = 0.005\nslo_quantile = 0.995",
            "gpu0.toml:6:16: slo_quantile and slo_miss are both set, but both give the quantile of slo_p99; \
             nearest is slo_miss alone, 1 minus the quantile",
        ),
        (
            "slo_throughput = 0.9\nslo_miss = 0.01",
            "gpu0.toml:6:12: slo_miss is set beside slo_throughput, which bounds the mean and has no quantile; \
             nearest is slo_p99 in place of slo_throughput",
        ),
        (
            "slo_mean = \"2x\"\nslo_quantile = 0.99",
            "gpu0.toml:6:16: slo_quantile is set beside slo_mean, which bounds the mean and has no quantile; \
             nearest is slo_p99 in place of slo_mean",
        ),
        (
            "name = \"orion\"\nslo_miss = 0.01",
            "gpu0.toml:6:12: slo_miss is set, but policy orion ignores it; nearest is name = \"pillion\"",
        ),
    ] {
        assert_eq!(faults(&text(keys)), fault);
    }
}

#[test]
fn what_jobs_are_promised_is_read_by_name() {
    let jobs = "[jobs.train]\nweight = 3\nmin_progress = 0.25\n[jobs.\"etl job\"]\n";
    let rules = check(&format!("{LEAST}{jobs}")).unwrap().jobs;
    let rule = |name: &str, weight, min_progress| JobRule {
        name: name.to_owned(),
        weight,
        min_progress,
        max_share: None,
    };
    assert_eq!(rules.len(), 2);
    assert!(rules.contains(&rule("train", 3, 0.25)) && rules.contains(&rule("etl job", 1, 0.0)));
    for (text, fault) in [
        (
            "[jobs.train]\nweight = 0",
            "gpu0.toml:5:10: weight is 0; must be a whole number from 1 to 100; nearest is 1",
        ),
        (
            "[jobs]\ntrain = 2",
            "gpu0.toml:5:9: train is 2; must be a table; nearest is [jobs.train]",
        ),
        (
            "[jobs.train]\nweigth = 2",
            "gpu0.toml:5:1: unknown key `weigth` in [jobs.train]; keys are weight, min_progress, max_share; nearest is `weight`",
        ),
        (
            "[policy]\nname = \"orion\"\n[jobs.train]\nweight = 2",
            "gpu0.toml:7:10: weight is set, but policy orion ignores it; nearest is name = \"pillion\"",
        ),
        (
            "[jobs.train]\nmax_share = 0",
            "gpu0.toml:5:13: max_share is 0; must be a number from 0.01 to 1; nearest is 0.01",
        ),
        (
            "[jobs.train]\nmax_share = nan",
            "gpu0.toml:5:13: max_share is nan; must be a number from 0.01 to 1",
        ),
        (
            "[jobs.train]\nmax_share = 0.3\nmin_progress = 0.5",
            "gpu0.toml:6:16: min_progress is 0.5, above max_share; nearest is 0.3",
        ),
    ] {
        assert_eq!(faults(&format!("{LEAST}{text}")), fault);
    }
    assert!(
        faults(&format!("{LEAST}[jobs.a]\nmin_progress = 1.5")).contains("min_progress is 1.5")
    );
}

#[test]
fn the_most_of_the_gpus_time_is_read_under_every_policy() {
    for name in ["pillion", "none", "orion"] {
        let text = format!("{LEAST}[policy]\nname = \"{name}\"\n[jobs.train]\nmax_share = 0.3\n");
        let rules = check(&text).unwrap().jobs;
        let cap = rules[0].max_share.unwrap();
        assert_eq!((rules.len(), cap.to_string()), (1, "30%".to_owned()));
    }
}

#[test]
fn everybody_may_be_high_priority_unless_the_section_is_there() {
    let config = check(LEAST).unwrap();
    assert_eq!(config.high_priority, None);
    assert_eq!(config.limits, Limits::default());
    let text = "[high_priority]\nusers = [\"root\", \"1000\"]\ngroups = [\"0\"]\ncgroups = [\"/a/\", \"/\"]\n\
        [limits]\nclients_per_user = 7\njobs_per_user = 8\nconnections_per_user = 9\n";
    let config = check(&format!("{LEAST}{text}")).unwrap();
    let access = HpAccess {
        users: vec![0, 1000],
        groups: vec![0],
        cgroups: vec!["/a".to_owned(), String::new()],
    };
    assert_eq!(config.high_priority, Some(access));
    let limits = Limits {
        clients_per_user: 7,
        jobs_per_user: 8,
        connections_per_user: 9,
    };
    assert_eq!(config.limits, limits);
    let nobody = check(&format!("{LEAST}[high_priority]\nusers = []\n")).unwrap();
    assert_eq!(nobody.high_priority, Some(HpAccess::default()));
}

#[test]
fn who_may_be_high_priority_is_read_whole_or_refused_with_every_fault() {
    for (text, expected) in [
        (
            "[high_priority]\nuser = [\"root\"]",
            "gpu0.toml:5:1: unknown key `user` in [high_priority]; keys are users, groups, cgroups; nearest is `users`",
        ),
        (
            "[high_priority]\nusers = \"root\"",
            "gpu0.toml:5:9: users is \"root\"; must be a list; nearest is [\"root\"]",
        ),
        (
            "[high_priority]\nusers = [\"root\", \"rot\"]",
            "gpu0.toml:5:18: users is \"rot\"; must be the name of a user of this machine, or its number; nearest is \
             \"root\"",
        ),
        (
            "[high_priority]\ngroups = [100]",
            "gpu0.toml:5:11: groups is 100; must be the name of a group of this machine, or its number; nearest is \"100\"",
        ),
        (
            "[high_priority]\nusers = [\"-1\"]\ncgroups = [\"a.slice\"]",
            "gpu0.toml:5:10: users is \"-1\"; must be the name of a user of this machine, or its number\n\
             gpu0.toml:6:12: cgroups is \"a.slice\"; must be the path of a cgroup as /proc/PID/cgroup has it, such as \
             \"/user.slice\"; nearest is \"/a.slice\"",
        ),
        (
            "[high_priority]",
            "gpu0.toml:4:1: [high_priority] is empty; needs users, groups or cgroups (users = [] allows nobody); \
             nearest is users = [\"1000\"]",
        ),
        (
            "[limits]\nclients_per_user = 0",
            "gpu0.toml:5:20: clients_per_user is 0; must be a whole number from 1 to 256; nearest is 1",
        ),
        (
            "[limits]\njobs = 5",
            "gpu0.toml:5:1: unknown key `jobs` in [limits]; keys are clients_per_user, jobs_per_user, \
             connections_per_user",
        ),
    ] {
        assert_eq!(faults(&format!("{LEAST}{text}\n")), expected, "{text}");
    }
}
