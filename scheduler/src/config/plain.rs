//! Keys of `[policy]` that are plain numbers of a policy of the registry.
//! A policy with its own settings has its keys in `parse`; a policy with plain numbers lists its
//! keys, limits and defaults in its registry entry, and needs nothing here. serde cannot know these
//! keys, so they are taken out of the table before serde reads it.

use policy::Policy;
use policy::registry::Numbers;
use profiler::settings::{Reader, or_nearest};
use toml::de::{DeTable, DeValue};

/// The numbers of the document's policy, if they are plain: from the document, else the defaults.
pub(super) fn take(reader: &mut Reader<'_>, document: &mut DeTable<'_>) -> Option<Numbers> {
    let section = document.get_mut("policy")?.get_mut();
    let DeValue::Table(table) = section else {
        return None;
    };
    let name = table.get("name")?.get_ref().as_str()?;
    let Ok(Policy::Listed(mut numbers)) = name.parse() else {
        return None;
    };
    for param in numbers.entry().params() {
        let Some(value) = table.remove(param.key) else {
            continue;
        };
        let number: Option<f64> = match value.get_ref() {
            DeValue::Boolean(is_on) if param.is_switch => Some(f64::from(u8::from(*is_on))),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        };
        let taken = number.filter(|&number| param.takes(number));
        if !taken.is_some_and(|number| numbers.set(param.key, number)) {
            let near = param.nearest(number.unwrap_or(param.default)).to_string();
            let wanted = param.wanted() + &or_nearest(Some(near));
            reader.bad(value.span(), param.key, wanted);
        }
    }
    Some(numbers)
}
