//! Model files: a predictor as bytes, and back. A file is text of two lines, both JSON. The first
//! is a header,
//! ```text
//! {"format":"pillion-model","version":1,"kind":"predictor","crc32":1234,"bytes":5678}
//! ```
//! with the checksum (CRC-32 of IEEE 802.3, as zip's) and the length of the second, the body. A
//! predictor's body has its settings, its schema, the learnt state of its machines, and its
//! samples, but no trees: reading fits the forest again, and as seed and samples are in the file,
//! the same trees grow. So a file does not depend on how smartcore keeps trees, and a version that
//! draws differently still reads it.
//!
//! A file that is cut off, damaged, of another version or kind, or whose numbers are not finite or
//! do not fit together, is refused. The checksum is for accidents; all numbers are checked besides.
//! The caller must write a file so that no reader sees half of it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::features::{Encoder, FIELDS_MAX, Field, Schema};
use crate::fm_ftrl::{FmFtrl, State, check_target};
use crate::forest::FitError;
use crate::predictor::{Counts, Predictor, Sample, Settings, linear};

/// Why a model file is refused. All name the file as the caller does.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FileError {
    /// There is no header.
    #[error(
        "{file}: begins with {found:?}: expected the header of a model of Pillion, JSON with \"format\":\"{FORMAT}\""
    )]
    Header {
        /// The file.
        file: String,
        /// The beginning of the first line.
        found: String,
    },
    /// A version that this program does not read.
    #[error("{file}: a model file of version {found}: expected version {VERSION}")]
    Version {
        /// The file.
        file: String,
        /// Its version.
        found: u64,
    },
    /// A model of another kind.
    #[error("{file}: a model of the kind {found:?}: expected {expected:?}")]
    Kind {
        /// The file.
        file: String,
        /// Its kind.
        found: String,
        /// The kind asked for.
        expected: String,
    },
    /// The body has another length: a write or a copy was cut short.
    #[error("{file}: {found} bytes after the header: expected {expected}, as the header says")]
    Length {
        /// The file.
        file: String,
        /// Bytes after the header.
        found: usize,
        /// The header's value.
        expected: u64,
    },
    /// The body differs from the written one.
    #[error(
        "{file}: damaged: its checksum is {found:08x}, expected {expected:08x}, as the header says"
    )]
    Checksum {
        /// The file.
        file: String,
        /// Checksum of the body.
        found: u32,
        /// The header's value.
        expected: u32,
    },
    /// The body is whole, but not of the form of its kind.
    #[error("{file}: {why}: expected the body of a {kind} of version {VERSION}")]
    Body {
        /// The file.
        file: String,
        /// Its kind.
        kind: String,
        /// The error, with its place.
        why: String,
    },
    /// Parts of the body that do not fit together or are out of range.
    #[error(
        "{file}: {part} are out of range or do not fit the rest: expected a body that a predictor wrote"
    )]
    Content {
        /// The file.
        file: String,
        /// Which parts.
        part: &'static str,
    },
    /// The forest of the file cannot be fitted.
    #[error("{file}: {why}")]
    Fit {
        /// The file.
        file: String,
        /// Why.
        why: FitError,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    #[serde(borrow)]
    format: Cow<'a, str>,
    version: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    crc32: u32,
    bytes: u64,
}

/// The file of a body, which has no line feed.
pub(crate) fn seal(kind: &str, body: &str) -> Vec<u8> {
    let header = Header {
        format: FORMAT.into(),
        version: VERSION,
        kind: kind.into(),
        crc32: crc32fast::hash(body.as_bytes()),
        bytes: body.len() as u64,
    };
    let header = serde_json::to_string(&header).expect("strings and numbers are always JSON");
    format!("{header}\n{body}\n").into_bytes()
}

pub(crate) fn unseal<'a>(file: &str, kind: &str, bytes: &'a [u8]) -> Result<&'a str, FileError> {
    let named = || file.to_owned();
    let end = bytes
        .iter()
        .take(HEADER_BYTES_MAX)
        .position(|&byte| byte == b'\n');
    let head = &bytes[..end.unwrap_or(bytes.len().min(HEADER_BYTES_MAX))];
    let header = serde_json::from_slice::<Header<'_>>(head).ok();
    let Some((end, header)) = end
        .zip(header)
        .filter(|(_, header)| header.format == FORMAT)
    else {
        let text = String::from_utf8_lossy(head);
        let found = text.chars().take(FOUND_CHARS_MAX).collect();
        return Err(FileError::Header {
            file: named(),
            found,
        });
    };
    if header.version != VERSION {
        return Err(FileError::Version {
            file: named(),
            found: header.version,
        });
    }
    if header.kind != kind {
        return Err(FileError::Kind {
            file: named(),
            found: header.kind.chars().take(FOUND_CHARS_MAX).collect(),
            expected: kind.to_owned(),
        });
    }
    let rest = &bytes[end + 1..];
    let Some((b'\n', body)) = rest
        .split_last()
        .filter(|(_, body)| body.len() as u64 == header.bytes)
    else {
        return Err(FileError::Length {
            file: named(),
            found: rest.len(),
            expected: header.bytes.saturating_add(1),
        });
    };
    let found = crc32fast::hash(body);
    if found != header.crc32 {
        let expected = header.crc32;
        return Err(FileError::Checksum {
            file: named(),
            found,
            expected,
        });
    }
    str::from_utf8(body).map_err(|error| FileError::Body {
        file: named(),
        kind: kind.to_owned(),
        why: error.to_string(),
    })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    settings: Settings,
    fields: Vec<Field>,
    names: Vec<(usize, String)>,
    machine: State,
    linear: State,
    counts: Counts,
    forest: Option<Fit>,
    samples: Vec<Stored>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fit {
    first: u64,
    count: usize,
    width: u32,
}

#[derive(Serialize, Deserialize)]
struct Stored(f64, Vec<Cell>);

#[derive(Serialize, Deserialize)]
struct Cell(u32, f64);

impl Predictor {
    /// The model file of this predictor, without a pending refit, which will be due again.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut counts = self.counts.clone();
        counts.is_due |= self.is_refitting();
        let stored = |sample: &Sample| {
            let cells = sample
                .row
                .iter()
                .map(|&(column, value)| Cell(column, value));
            Stored(sample.target, cells.collect())
        };
        let body = Body {
            settings: self.settings,
            fields: self.encoder.schema().fields().to_vec(),
            names: self.encoder.names().to_vec(),
            machine: self.machine.state().clone(),
            linear: self.linear.state().clone(),
            counts,
            forest: self.fitted().map(|(first, count, width)| Fit {
                first,
                count,
                width,
            }),
            samples: self.samples.iter().map(stored).collect(),
        };
        let body = serde_json::to_string(&body).expect("strings and numbers are always JSON");
        seal(PREDICTOR, &body)
    }

    /// The predictor of a model file, which predicts to the bit as the written one, unless more
    /// than [`Settings::samples_max`] samples arrived during a refit: the forest is then fitted to
    /// those of its samples that are still stored. Takes as long as a refit. `file` is for errors.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn from_bytes(file: &str, bytes: &[u8]) -> Result<Self, FileError> {
        let text = unseal(file, PREDICTOR, bytes)?;
        let body: Body = serde_json::from_str(text).map_err(|error| FileError::Body {
            file: file.to_owned(),
            kind: PREDICTOR.to_owned(),
            why: error.to_string(),
        })?;
        let content = |part| FileError::Content {
            file: file.to_owned(),
            part,
        };
        let fitted = body
            .forest
            .as_ref()
            .map(|fit| (fit.first, fit.count, fit.width));
        let parts = parts(body).map_err(content)?;
        let (first, end) = (parts.first(), parts.counts.seen);
        let is_right = |(from, count, width): (u64, usize, u32)| {
            let to = from.checked_add(count as u64).filter(|_| count > 0);
            let is_width = (1..=parts.encoder.columns()).contains(&width);
            let is_few = is_width && count <= parts.fitted_max(width);
            from >= first && to.is_some_and(|to| to <= end) && is_few
        };
        if !fitted.is_none_or(is_right) {
            return Err(content("the samples of the forest"));
        }
        let file = file.to_owned();
        Self::restore(parts, fitted).map_err(|why| FileError::Fit { file, why })
    }
}

/// The predictor of a body, without its forest, or the wrong part.
fn parts(body: Body) -> Result<Predictor, &'static str> {
    let Body {
        settings, counts, ..
    } = body;
    if body.fields.len() > FIELDS_MAX {
        return Err("the fields");
    }
    let schema = Schema::new(body.fields).map_err(|_| "the fields")?;
    let mut parts = Predictor::new(schema.clone(), settings).map_err(|_| "the settings")?;
    parts.encoder = Encoder::restore(schema, body.names).ok_or("the names")?;
    parts.machine = FmFtrl::restore(settings.machine, body.machine).ok_or("the weights")?;
    parts.linear = FmFtrl::restore(linear(&settings), body.linear).ok_or("the weights")?;
    let columns = parts.encoder.columns();
    let stored = body
        .samples
        .into_iter()
        .map(|Stored(target, cells)| Sample {
            row: cells
                .into_iter()
                .map(|Cell(column, value)| (column, value))
                .collect(),
            target,
        });
    parts.samples = stored.collect();
    let is_right = |sample: &Sample| {
        let row = &sample.row;
        row.is_sorted_by(|(a, _), (b, _)| a < b)
            && row
                .iter()
                .all(|(column, value)| *column < columns && (0.0..=1.0).contains(value))
            && check_target(sample.target).is_ok()
    };
    if parts.samples.len() > 2 * settings.samples_max || !parts.samples.iter().all(is_right) {
        return Err("the samples");
    }
    if !counts.is_valid() || counts.seen < parts.samples.len() as u64 {
        return Err("the counts");
    }
    parts.counts = counts;
    Ok(parts)
}

const FORMAT: &str = "pillion-model";

const VERSION: u64 = 1;

const PREDICTOR: &str = "predictor";

const HEADER_BYTES_MAX: usize = 1024;

const FOUND_CHARS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value as Json;

    use super::*;
    use crate::features::Value;

    fn body() -> Json {
        let fields = vec![Field::category("a", 8), Field::number("b", 0.0, 8.0)];
        let mut settings = Settings::default();
        settings.forest.trees = 2;
        settings.machine.factors = 2;
        let schema = Schema::new(fields).expect("two fields with names and a range");
        let mut predictor = Predictor::new(schema, settings).expect("settings in range");
        for number in 0..30_u32 {
            let name = format!("n{}", number % 3);
            let values = [Value::Name(&name), Value::Number(f64::from(number % 8))];
            let learnt = predictor.learn(&values, f64::from(number % 5));
            learnt.expect("a sample in range");
            if let Some(refit) = predictor.poll_refit() {
                predictor.handle_refitted(refit.run().expect("samples in range"));
            }
        }
        let bytes = predictor.to_bytes();
        let text = unseal("f", PREDICTOR, &bytes).expect("what was written");
        serde_json::from_str(text).expect("what was written")
    }

    fn replace(value: &mut Json, number: &mut usize, new: &Json) {
        if *number == 0 {
            *value = new.clone();
        }
        *number = number.wrapping_sub(1);
        match value {
            Json::Array(all) => all.iter_mut().for_each(|one| replace(one, number, new)),
            Json::Object(all) => all.values_mut().for_each(|one| replace(one, number, new)),
            _ => {}
        }
    }

    fn read(body: &Json) -> Result<Predictor, FileError> {
        Predictor::from_bytes("f", &seal(PREDICTOR, &body.to_string()))
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        for number in ["NaN", "Infinity", "-1e999", "1e999", "null", "\"1\""] {
            let mut body = body();
            body["machine"]["weights"][0]["z"] = Json::from("here");
            let body = body.to_string().replace("\"here\"", number);
            let read = Predictor::from_bytes("f", &seal(PREDICTOR, &body));
            let error = read.unwrap_err().to_string();
            assert!(
                error.ends_with("expected the body of a predictor of version 1"),
                "{error}"
            );
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let cases = [
            ("/forest/count", Json::from(31), "the samples of the forest"),
            ("/forest/width", Json::from(9), "the samples of the forest"),
            ("/counts/seen", Json::from(3), "the counts"),
            ("/counts/taken", Json::from(99), "the counts"),
            ("/samples/0/1/0/0", Json::from(9), "the samples"),
            ("/samples/0/0", Json::from(1e200), "the samples"),
            ("/names/0/0", Json::from(1), "the names"),
            ("/settings/samples_max", Json::from(0), "the settings"),
            ("/settings/samples_max", Json::from(1 << 17), "the settings"),
            // Enough to store the samples, too few for the forest.
            (
                "/settings/samples_max",
                Json::from(15),
                "the samples of the forest",
            ),
            ("/machine/factors", Json::Array(vec![]), "the weights"),
            ("/linear/bias/n", Json::from(-1.0), "the weights"),
        ];
        for (place, value, part) in cases {
            let mut body = body();
            *body.pointer_mut(place).unwrap() = value;
            let error = read(&body).unwrap_err();
            let file = "f".to_owned();
            assert_eq!(error, FileError::Content { file, part }, "{place}");
        }
    }

    proptest! {
        /// The checksum is right: only the checks of the content are left.
        #[test]
        fn a_body_with_another_value_is_refused_or_predicts(
            number in 0..600_usize,
            new in prop_oneof![
                any::<u64>().prop_map(Json::from),
                (0..40_u64).prop_map(Json::from),
                any::<f64>().prop_map(Json::from),
                (-2.0..2.0_f64).prop_map(Json::from),
                Just(Json::Null),
                Just(Json::Array(vec![])),
            ],
        ) {
            let mut body = body();
            let mut number = number;
            replace(&mut body, &mut number, &new);
            // More trees than a test has time for.
            let trees = body.pointer("/settings/forest/trees").and_then(Json::as_u64);
            prop_assume!(trees.is_none_or(|trees| !(50..=1000).contains(&trees)));
            match read(&body) {
                Ok(mut predictor) => {
                    let values = [Value::Name("n1"), Value::Number(3.0)];
                    // Fields may have changed: an error is right, a panic is not.
                    let _ = predictor.predictions(&values);
                    let _ = predictor.learn(&values, 1.0);
                    let _ = predictor.poll_refit();
                    let again = Predictor::from_bytes("f", &predictor.to_bytes());
                    prop_assert!(again.is_ok(), "{again:?}");
                }
                Err(error) => prop_assert!(error.to_string().starts_with("f: ")),
            }
        }
    }
}
