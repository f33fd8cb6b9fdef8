//! A trace as a stream of events: the visitor, and what the walk met.

use std::io::BufReader;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::event::{self, Device, Event};
use super::lenient::Lenient;
use crate::Context;
use crate::error::Error;

const EVENTS_PER_PROGRESS: u64 = 16_384;

const PIECE_BYTES: usize = 256 << 10;

pub(super) trait Visit {
    /// The next event. An error ends the walk.
    fn event(&mut self, event: Event) -> Result<(), Error>;
    fn devices(&mut self, devices: Vec<Device>);
}

#[derive(Default)]
pub(super) struct Walked {
    pub(super) events: u64,
    pub(super) has_list: bool,
    pub(super) is_bare_list: bool,
    pub(super) failure: Option<Error>,
    pub(super) broken: Option<serde_json::Error>,
}

pub(super) fn walk(
    lenient: &mut Lenient,
    visit: &mut dyn Visit,
    context: &mut Context<'_>,
) -> Walked {
    let reader = BufReader::with_capacity(PIECE_BYTES, lenient);
    let mut json = serde_json::Deserializer::from_reader(reader);
    let mut root = Root {
        visit,
        context,
        walked: Walked::default(),
    };
    let result = DeserializeSeed::deserialize(&mut root, &mut json).and_then(|()| json.end());
    let mut walked = root.walked;
    walked.broken = result.err().filter(|_| walked.failure.is_none());
    walked
}

struct Root<'v, 'c, 'p> {
    visit: &'v mut dyn Visit,
    context: &'c mut Context<'p>,
    walked: Walked,
}

impl<'de> DeserializeSeed<'de> for &mut Root<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Root<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object with traceEvents, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => map.next_value_seed(Events(self))?,
                "deviceProperties" | "computeProperties" => {
                    self.visit.devices(map.next_value::<event::Devices>()?.0);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        self.walked.is_bare_list = true;
        Events(self).visit_seq(seq)
    }
}

struct Events<'s, 'v, 'c, 'p>(&'s mut Root<'v, 'c, 'p>);

impl<'de> DeserializeSeed<'de> for Events<'_, '_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, '_, '_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Root {
            visit,
            context,
            walked,
        } = self.0;
        while let Some(event) = seq.next_element::<Event>()? {
            walked.events += 1;
            // A list of other things is no trace.
            walked.has_list |= !event.ph.is_empty();
            if walked.events.is_multiple_of(EVENTS_PER_PROGRESS) {
                (context.progress)(walked.events, 0);
            }
            if let Err(failure) = visit.event(event) {
                walked.failure = Some(failure);
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        walked.has_list |= !walked.is_bare_list;
        Ok(())
    }
}
