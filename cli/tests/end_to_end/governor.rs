//! Readings of a device whose clock depends on power, and one with busy SMs, in virtual time.

use protocol::hello::{JobClass, ask_status};
use serde_json::{Value, json};

use crate::common::{Process, clean_command, pillion, until};
use crate::order::Clocked;
use crate::throttle::replay_of;

/// The device is full, and best-effort work makes way.
const POLICY: &str =
    "name = \"pillion\"\npoll_us = 1000\n[throttle]\nutilisation = 0.5\nclock_mhz = 1500";

fn status(clocked: &Clocked) -> Value {
    let status = ask_status(&clocked.path("pillion.sock")).expect("the daemon answers");
    serde_json::from_str(&status).expect("a status is JSON")
}

fn told(clocked: &Clocked, words: &[&str]) -> String {
    let mut pillion = clean_command(pillion());
    pillion.env("PILLION_SOCKET", clocked.path("pillion.sock"));
    pillion.args(words).env("COLUMNS", "10000");
    let told = Process::start("pillion", pillion).finish();
    told.expect_success().output
}

/// Calls `look` beside a high-priority job that always has these kernels, and a best-effort one.
fn beside_each_other(clocked: &Clocked, row: &str, look: impl FnOnce()) {
    let start = |class, rank| {
        let replay = replay_of(clocked, class, rank, &row.repeat(20), "");
        Process::start("pillion-replay", replay)
    };
    let hp = start(JobClass::HighPriority, "1");
    let be = start(JobClass::BestEffort, "2");
    look();
    hp.finish().expect_success();
    be.finish().expect_success();
}

#[test]
fn a_device_whose_clock_gives_way_to_power_is_told_and_is_an_event() {
    let clocked = Clocked::start_device(&["--device", "T4", "--governor", "on"], "timeslice", "3");
    let daemon = clocked.daemon_with("timeslice", POLICY);
    assert_eq!(status(&clocked)["gpu"]["device"], Value::Null);
    // Ten whole waves on 40 SMs: 73 W at the highest clock.
    beside_each_other(&clocked, "Conv,1,0,400,1000000\n", || {
        let device = until("the clock is held down", || {
            let device = status(&clocked)["gpu"]["device"].clone();
            device["slowed_by"].is_string().then_some(device)
        });
        let of = |name: &str| device[name].as_f64().unwrap();
        assert_eq!(device["event_reasons"], json!(["SwPowerCap"]));
        assert_eq!(device["slowed_by"], "its power limit (SwPowerCap)");
        assert_eq!(device["clock_max_mhz"], 1590);
        assert!((1_500.0..1_590.0).contains(&of("clock_mhz")), "{device:#}");
        assert!((64.0..=74.0).contains(&of("power_w")), "{device:#}");
        // From 37 °C on, with a time constant of 30 s, towards 75.
        assert!((37.0..=60.0).contains(&of("temperature_c")), "{device:#}");
        // A T4 has no GPM.
        assert_eq!(device["sm_activity"], Value::Null);
        assert_eq!(
            (&device["dropped"], &device["blind"]),
            (&json!(0), &json!(false))
        );
        until("it is said for people", || {
            let uuid = status(&clocked)["gpu"]["uuid"].clone();
            let table = told(&clocked, &["status", "--explain", uuid.as_str().unwrap()]);
            table.contains(" of 1590 MHz, held down by its power limit (SwPowerCap), ")
        });
    });
    // The power limit came and went many times, which is one event.
    let counts = &status(&clocked)["events"]["counts"];
    assert_eq!(counts["slowed-down"], 1, "{counts:#}");
    assert_eq!(counts["slowed-down-ended"], 0);
    let events = told(&clocked, &["events"]);
    assert!(
        events.contains("the GPU is slowed down: 15"),
        "a clock of some 1500 MHz: {events}"
    );
    // Nobody reads it any more.
    until("nobody reads", || {
        status(&clocked)["gpu"]["device"].is_null()
    });
    drop(daemon);
    clocked.finish_record();
}

#[test]
fn a_device_with_gpm_tells_how_many_of_its_sms_are_busy() {
    let clocked = Clocked::start_device(&["--device", "H100-SXM5-80GB"], "timeslice", "3");
    let daemon = clocked.daemon_with("timeslice", POLICY);
    // 98 of 132 SMs.
    beside_each_other(&clocked, "Conv,1,0,98,1000000\n", || {
        let device = until("the SMs are busy", || {
            let device = status(&clocked)["gpu"]["device"].clone();
            let activity = device["sm_activity"].as_f64();
            (activity > Some(0.5)).then_some(device)
        });
        assert!(device["sm_activity"].as_f64() < Some(0.8), "{device:#}");
        // Without a governor it has one clock, and reports neither power nor heat.
        assert_eq!(device["clock_mhz"], device["clock_max_mhz"]);
        for unknown in ["power_w", "temperature_c", "event_reasons", "slowed_by"] {
            assert_eq!(device[unknown], Value::Null, "{unknown} in {device:#}");
        }
    });
    let counts = &status(&clocked)["events"]["counts"];
    assert_eq!(counts["slowed-down"], 0, "{counts:#}");
    drop(daemon);
    clocked.finish_record();
}
