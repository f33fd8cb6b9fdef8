//! Files of settings with precedence, and the place of every value in them.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Fault;
use crate::error::Place;

/// Files of settings, later ones with precedence: tables merge by key, lists are replaced. A place
/// is one number for all files: a byte of the concatenated texts.
#[derive(Debug, Default)]
pub struct Layers(Vec<Layer>);

#[derive(Debug)]
struct Layer {
    path: PathBuf,
    /// The text, after as many spaces as all earlier files have bytes: TOML ignores them, so that
    /// every place from the parser is one of all files.
    padded: String,
    start: usize,
}

impl Layer {
    fn text(&self) -> &str {
        self.padded.get(self.start..).unwrap_or_default()
    }
}

impl Layers {
    /// One file.
    #[must_use]
    pub fn one(path: &Path, text: &str) -> Self {
        let mut layers = Self::default();
        layers.push(path, text);
        layers
    }

    /// Puts a file over the present ones; `path` only names it.
    pub fn push(&mut self, path: &Path, text: &str) {
        let start = self.end();
        self.0.push(Layer {
            path: path.to_owned(),
            padded: " ".repeat(start) + text,
            start,
        });
    }

    /// The files, in their order.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|layer| layer.path.as_path())
    }

    /// Where the next file would begin.
    #[must_use]
    pub fn end(&self) -> usize {
        // One byte between two files separates the end of one from the beginning of the next.
        self.0.last().map_or(0, |layer| layer.padded.len() + 1)
    }

    /// The merged document.
    /// # Errors
    /// One file is not TOML: one fault, at the place of the syntax error.
    pub fn document(&self) -> Result<DeTable<'_>, Vec<Fault>> {
        let mut whole = DeTable::default();
        for layer in &self.0 {
            let parsed = DeTable::parse(&layer.padded).map_err(|error| {
                let offset = error.span().map_or(layer.start, |span| span.start);
                vec![Fault {
                    place: self.place(offset),
                    what: error.message().replace('\n', "; "),
                }]
            })?;
            put_over(&mut whole, parsed.into_inner());
        }
        Ok(whole)
    }

    /// The place of a byte.
    #[must_use]
    pub fn place(&self, offset: usize) -> Place {
        match self.at(offset) {
            Some(layer) => Place::of_offset(
                &layer.path,
                layer.text(),
                offset.saturating_sub(layer.start),
            ),
            None => Place::of_offset(Path::new(""), "", 0),
        }
    }

    /// The text at these bytes; empty where they span files.
    #[must_use]
    pub fn text(&self, span: std::ops::Range<usize>) -> &str {
        let layer = self.at(span.start);
        layer.and_then(|layer| layer.padded.get(span)).unwrap_or("")
    }

    fn at(&self, offset: usize) -> Option<&Layer> {
        let mut layers = self.0.iter().rev();
        layers.find(|layer| layer.start <= offset)
    }
}

fn put_over<'t>(table: &mut DeTable<'t>, over: DeTable<'t>) {
    for (key, value) in over {
        let above = table.remove(&**key.get_ref());
        let span = value.span();
        let joined = match (above.map(Spanned::into_inner), value.into_inner()) {
            (Some(DeValue::Table(mut below)), DeValue::Table(over)) => {
                put_over(&mut below, over);
                DeValue::Table(below)
            }
            (_, value) => value,
        };
        table.insert(key, Spanned::new(span, joined));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Reader, at};
    use super::*;
    use serde::Deserialize;

    fn layers(texts: &[(&str, &str)]) -> Layers {
        let mut layers = Layers::default();
        for (path, text) in texts {
            layers.push(Path::new(path), text);
        }
        layers
    }

    #[test]
    fn a_later_file_counts_key_by_key_and_each_value_has_its_place() {
        let layers = layers(&[
            (
                "default.toml",
                "[policy]\npoll_us = 50\nname = \"orion\"\nlist = [1, 2]\n",
            ),
            ("empty.toml", ""),
            (
                "gpu0.toml",
                "# of one\n[policy]\n  name = \"pillion\"\nlist = [3]\n[gpu]\nindex = 0\n",
            ),
        ]);
        let document = layers.document().unwrap();
        for (key, text, place) in [
            ("policy.poll_us", "50", "default.toml:2:11"),
            ("policy.name", "\"pillion\"", "gpu0.toml:3:10"),
            ("policy.list", "[3]", "gpu0.toml:4:8"),
            ("gpu.index", "0", "gpu0.toml:6:9"),
        ] {
            let span = at(&document, key).unwrap().span();
            assert_eq!(layers.place(span.start).to_string(), place);
            assert_eq!(layers.text(span), text);
        }
    }

    #[test]
    fn what_is_wrong_is_said_of_the_file_it_is_in() {
        let broken = layers(&[("a.toml", "a = 1\n"), ("b.toml", "b = 2\nc = = 3\n")]);
        let faults = broken.document().unwrap_err();
        assert!(
            faults[0].to_string().starts_with("b.toml:2:5: "),
            "{faults:?}"
        );

        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Numbers {
            #[expect(dead_code, reason = "only read")]
            a: u64,
            #[expect(dead_code, reason = "only read")]
            b: u64,
        }
        let wrong = layers(&[("a.toml", "a = \"one\"\n"), ("b.toml", "b = \"two\"\n")]);
        let document = wrong.document().unwrap();
        let mut reader = Reader::of(&wrong);
        let read: Option<Numbers> = reader.read(&document);
        let faults = reader.finish(read).unwrap_err();
        let said: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert!(said[0].starts_with("a.toml:1:5: a is \"one\""), "{said:?}");
        assert!(said[1].starts_with("b.toml:1:5: b is \"two\""), "{said:?}");
    }
}
