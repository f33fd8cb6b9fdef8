//! Keys of `[policy]` that are plain numbers of a policy of the registry.
//!
//! A policy with settings of its own has its keys in `parse`; a policy with plain numbers names its
//! keys, their limits and their defaults in its registry entry, and needs nothing here.

use policy::registry::{self, Entry, Numbers, POLICIES};
use profiler::settings::{Reader, Section};
use toml::de::DeValue;

/// The keys that are known where the policy `name` is in force, each with the policy that it is of.
pub(super) fn keys(name: Option<&str>) -> Vec<(&'static str, &'static Entry)> {
    let named = name.and_then(registry::find);
    let unlisted = named.filter(|entry| !POLICIES.contains(entry));
    let entries = POLICIES.iter().copied().chain(unlisted);
    let keys = entries.flat_map(|entry| entry.params().iter().map(move |param| (param.key, entry)));
    keys.collect()
}

/// The numbers that the section sets, the others as they are.
pub(super) fn numbers(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    mut numbers: Numbers,
) -> Option<Numbers> {
    let mut is_right = true;
    for param in numbers.entry().params() {
        let Some(value) = section.get(param.key) else {
            continue;
        };
        let number: Option<f64> = match value.get_ref() {
            DeValue::Boolean(is_on) if param.is_switch => Some(f64::from(u8::from(*is_on))),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        };
        match number.filter(|&number| param.takes(number)) {
            Some(number) => is_right &= numbers.set(param.key, number),
            None => {
                let near = param.nearest(number.unwrap_or(param.default)).to_string();
                reader.bad(value.span(), param.key, &param.wanted(), Some(near));
                is_right = false;
            }
        }
    }
    is_right.then_some(numbers)
}
