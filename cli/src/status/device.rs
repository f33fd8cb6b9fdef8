//! Describes the device's clock, power and heat.

use serde_json::Value;

/// One line about the device, if a throttle depends on it or power or heat limit its clock.
pub(super) fn line(status: &Value) -> Option<String> {
    let is_slow = status.pointer("/gpu/device/slowed_by")?.is_string();
    let is_throttled = status["policy"]["throttle"].is_object();
    let words = stands(status).filter(|_| is_slow || is_throttled)?;
    Some(format!("GPU: {words}"))
}

/// Its clock, the reason for a reduced one, power, temperature and SMs in use, as far as known.
pub(crate) fn stands(status: &Value) -> Option<String> {
    let device = status.pointer("/gpu/device")?;
    let of = |name: &str| device[name].as_f64();
    let clock = of("clock_mhz").map(|clock| match of("clock_max_mhz") {
        Some(max) => format!("{clock:.0} of {max:.0} MHz"),
        None => format!("{clock:.0} MHz"),
    });
    let held = device["slowed_by"].as_str();
    let held = held.map(|by| format!("held down by {by}"));
    let power = of("power_w").map(|power| format!("{power:.0} W"));
    let temperature = of("temperature_c").map(|celsius| format!("{celsius:.0} C"));
    let sms = of("sm_activity").map(|share| format!("{:.0} % of its SMs in use", share * 100.0));
    let parts = [clock, held, power, temperature, sms].into_iter().flatten();
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_is_said_where_a_throttle_goes_by_it_or_it_is_slow() {
        let slow = json!({
            "clock_mhz": 1350, "clock_max_mhz": 1590, "power_w": 70.2, "temperature_c": 74.0, "sm_activity": null,
            "event_reasons": ["SwPowerCap"], "slowed_by": "its power limit (SwPowerCap)"
        });
        let said = |device: &Value, throttle: Value| {
            line(&json!({"gpu": {"device": device}, "policy": {"throttle": throttle}}))
        };
        let expected =
            "GPU: 1350 of 1590 MHz, held down by its power limit (SwPowerCap), 70 W, 74 C";
        assert_eq!(said(&slow, Value::Null).unwrap(), expected);
        let mut quick = slow.clone();
        quick["slowed_by"] = Value::Null;
        quick["power_w"] = Value::Null;
        quick["sm_activity"] = json!(0.431);
        assert_eq!(said(&quick, Value::Null), None);
        assert_eq!(
            said(&quick, json!({"rate": 1.0})).unwrap(),
            "GPU: 1350 of 1590 MHz, 74 C, 43 % of its SMs in use"
        );
        assert_eq!(said(&Value::Null, json!({})), None);
        assert_eq!(said(&json!({"slowed_by": null}), json!({})), None);
    }
}
