//! How a model file writes numbers: as text with the fewest digits that give the same number again,
//! in quotation marks, since serde_json's own reading of a number may miss its last bit. What is
//! not finite is refused.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;

pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = Cow::<'de, str>::deserialize(deserializer)?;
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite());
    number.ok_or_else(|| {
        let cut: String = text.chars().take(TEXT_MAX).collect();
        Error::custom(format!("{cut:?} is not a finite number"))
    })
}

/// Characters of a wrong text that an error shows.
const TEXT_MAX: usize = 40;
