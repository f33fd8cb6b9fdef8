//! The sections of laws that hold under every policy.

use super::*;

#[test]
fn a_throttle_is_there_with_its_section_and_refused_where_it_makes_no_sense() {
    let read = |text: &str| check(&format!("{LEAST}{text}")).map(|config| config.throttle);
    let throttle = |utilisation, clock_mhz| {
        Some(ThrottleParams {
            utilisation,
            clock_mhz,
        })
    };
    assert_eq!(read("").unwrap(), None);
    assert_eq!(read("[throttle]").unwrap(), throttle(0.9, None));
    let both = "[throttle]\nutilisation = 0.7\nclock_mhz = 1380";
    assert_eq!(read(both).unwrap(), throttle(0.7, Some(1_380)));
    for (text, fault) in [
        (
            "utilisation = 0.05",
            "gpu0.toml:5:15: utilisation is 0.05; must be a number from 0.1 to 1; nearest is 0.1",
        ),
        (
            "utilisation = nan",
            "gpu0.toml:5:15: utilisation is nan; must be a number from 0.1 to 1",
        ),
        (
            "clock_mhz = 14",
            "gpu0.toml:5:13: clock_mhz is 14; must be a whole number from 100 to 10000; nearest is 100",
        ),
        (
            "utilization = 0.9",
            "gpu0.toml:5:1: unknown key `utilization` in [throttle]; keys are utilisation, clock_mhz; nearest is `utilisation`",
        ),
    ] {
        let errors = read(&format!("[throttle]\n{text}"))
            .unwrap_err()
            .to_string();
        assert!(errors.contains(fault), "{errors}");
    }
}

#[test]
fn a_share_is_there_with_its_section_and_refused_where_it_makes_no_sense() {
    let read = |text: &str| check(&format!("{LEAST}{text}")).map(|config| config.share);
    assert_eq!(read("").unwrap(), None);
    let params = |mode, restart_s: u64| {
        let restart_ns = restart_s * 1_000_000_000;
        Some(ShareParams { mode, restart_ns })
    };
    let dynamic = params(ShareMode::Dynamic, 900);
    assert_eq!(read("[share]").unwrap(), dynamic);
    let target = "[share]\nmode = \"target\"";
    assert_eq!(read(target).unwrap(), params(ShareMode::Target, 900));
    assert_eq!(read("[share]\nmode = \"off\"").unwrap(), None);
    let fixed = "[share]\nmode = \"static\"\npercent = 60\nrestart_s = 60";
    assert_eq!(read(fixed).unwrap(), params(ShareMode::Static(60), 60));
    for (text, fault) in [
        (
            "mode = \"fixed\"",
            "gpu0.toml:5:8: mode is \"fixed\"; must be one of off, static, dynamic, target",
        ),
        (
            "mode = \"static\"",
            "gpu0.toml:5:8: mode is static, but percent, the share, is missing",
        ),
        (
            "mode = \"target\"\n[policy]\nname = \"orion\"",
            "gpu0.toml:5:8: mode is \"target\", but policy orion has no target; nearest is \"dynamic\"",
        ),
        (
            "percent = 60",
            "gpu0.toml:5:11: percent is set, but mode \"dynamic\" ignores it; nearest is mode = \"static\"",
        ),
        (
            "mode = \"off\"\nrestart_s = 60",
            "gpu0.toml:6:13: restart_s is set, but mode \"off\" ignores it",
        ),
        (
            "mode = \"static\"\npercent = 5",
            "gpu0.toml:6:11: percent is 5; must be a whole number from 10 to 100; nearest is 10",
        ),
    ] {
        let errors = read(&format!("[share]\n{text}")).unwrap_err().to_string();
        assert!(errors.contains(fault), "{errors}");
    }
}

#[test]
fn a_probe_has_bounds_for_each_metric_that_make_sense() {
    let read = |text: &str| check(&format!("{LEAST}{text}")).map(|config| config.probe);
    assert_eq!(read("").unwrap(), None);
    let default = ProbeParams::default();
    assert_eq!(read("[probe]").unwrap(), Some(default));
    let of = |text: &str| read(&format!("[probe]\n{text}")).unwrap().unwrap();
    let bound = |text: &str, metric: Metric| of(text).bounds[metric as usize];
    assert_eq!(bound("memory = false", Metric::Memory), Bound::Off);
    let two = bound("utilisation = [0.5, 1]", Metric::Utilisation);
    assert_eq!(two, Bound::At(0.5, Some(1.0)));
    let one = bound("temperature_c = [80]", Metric::Temperature);
    assert_eq!(one, Bound::At(80.0, None));
    assert_eq!(of("[throttle]\nclock_mhz = 1380").clock_mhz, Some(1_380));
    let both = "clock_mhz = 1500\n[throttle]\nclock_mhz = 1380";
    assert_eq!(of(both).clock_mhz, Some(1_500));
    let wanted = |least: &str, most: &str, worse: &str| {
        format!(
            "must be false, or one or two numbers from {least} to {most}: unhealthy from the first on, \
             overlimit from the second, which lies {worse} the first"
        )
    };
    for (text, fault) in [
        ("memory = true", format!("gpu0.toml:5:10: memory is true; {}; nearest is [0.92, 0.97]", wanted("0.01", "1", "above"))),
        ("memory = 0.9", format!("gpu0.toml:5:10: memory is 0.9; {}; nearest is [0.92, 0.97]", wanted("0.01", "1", "above"))),
        ("memory = [0.9, 0.8]", format!("gpu0.toml:5:10: memory is [0.9, 0.8]; {}", wanted("0.01", "1", "above"))),
        ("memory = [92, 97]", format!("gpu0.toml:5:10: memory is [92, 97]; {}", wanted("0.01", "1", "above"))),
        ("memory = []", format!("gpu0.toml:5:10: memory is []; {}", wanted("0.01", "1", "above"))),
        ("clock = [0.7, 0.9]", format!("gpu0.toml:5:9: clock is [0.7, 0.9]; {}; nearest is [0.9, 0.75]", wanted("0.01", "0.94", "below"))),
        ("power = [nan]", format!("gpu0.toml:5:9: power is [nan]; {}; nearest is [1]", wanted("0.01", "2", "above"))),
        ("heat = [80]", "gpu0.toml:5:1: unknown key `heat` in [probe]; keys are utilisation, sm_activity, clock, memory, temperature_c, power, clock_mhz".to_owned()),
    ] {
        let errors = read(&format!("[probe]\n{text}")).unwrap_err().to_string();
        assert!(errors.contains(&fault), "{errors}\n{fault}");
    }
}

#[test]
fn a_tuner_is_there_with_its_section_and_refused_where_it_makes_no_sense() {
    let read = |text: &str| check(&format!("{LEAST}{text}")).map(|config| config.tuner);
    assert_eq!(read("").unwrap(), None);
    let rules = |settle| Some(TunerRules { settle });
    assert_eq!(read("[tuner]").unwrap(), rules(100));
    assert_eq!(read("[tuner]\nsettle = 20").unwrap(), rules(20));
    for (text, fault) in [
        (
            "settle = 19",
            "gpu0.toml:5:10: settle is 19; must be a whole number from 20 to 10000; nearest is 20",
        ),
        (
            "settled = 100",
            "gpu0.toml:5:1: unknown key `settled` in [tuner]; keys are settle; nearest is `settle`",
        ),
    ] {
        let errors = read(&format!("[tuner]\n{text}")).unwrap_err().to_string();
        assert!(errors.contains(fault), "{errors}");
    }
}
