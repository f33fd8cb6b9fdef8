//! The required parts of an event. Any value may have any type: an unexpected one is unstated.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::gpu::Gpu;
use crate::source::Call;

trait Any<'de>: Default {
    fn of_number(_: Number) -> Self {
        Self::default()
    }

    fn of_text(_: &str) -> Self {
        Self::default()
    }

    fn of_list<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn of_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

struct AnyVisitor<T>(PhantomData<T>);

impl<'de, T: Any<'de>> Visitor<'de> for AnyVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("anything")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E>(self, number: i64) -> Result<T, E> {
        Ok(T::of_number(Number::Whole(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<T, E> {
        let whole = i64::try_from(number).map(Number::Whole);
        Ok(T::of_number(whole.unwrap_or(Number::Real(number as f64))))
    }

    fn visit_f64<E>(self, number: f64) -> Result<T, E> {
        Ok(T::of_number(Number::Real(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::of_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::of_list(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::of_map(map)
    }
}

fn any<'de, T: Any<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(AnyVisitor(PhantomData))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    pub(super) ph: Text,
    pub(super) cat: Text,
    pub(super) name: Text,
    pub(super) pid: Number,
    pub(super) tid: Number,
    pub(super) ts: Number,
    pub(super) dur: Number,
    pub(super) args: Args,
}

impl Event {
    pub(super) fn call(&self) -> Option<Call> {
        let thread = self.pid.key() ^ self.tid.key().rotate_left(32);
        let at_ns = self.ts.nanoseconds(1000)?;
        Some(Call { thread, at_ns })
    }
}

#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) external_id: Number,
    pub(super) correlation: Number,
    pub(super) device: Number,
    pub(super) stream: Number,
    pub(super) registers: Number,
    pub(super) shared_memory: Number,
    pub(super) grid: Numbers,
    pub(super) block: Numbers,
    pub(super) kind: Text,
    pub(super) input_dims: Lists,
    pub(super) input_types: Texts,
    pub(super) concrete_inputs: Texts,
}

impl<'de> Any<'de> for Args {
    fn of_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut args = Self::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "External id" | "external id" => args.external_id = map.next_value()?,
                "correlation" => args.correlation = map.next_value()?,
                "device" => args.device = map.next_value()?,
                "stream" => args.stream = map.next_value()?,
                "registers per thread" => args.registers = map.next_value()?,
                "shared memory" => args.shared_memory = map.next_value()?,
                "grid" => args.grid = map.next_value()?,
                "block" => args.block = map.next_value()?,
                "kind" => args.kind = map.next_value()?,
                "Input Dims" | "Input dims" => args.input_dims = map.next_value()?,
                "Input type" => args.input_types = map.next_value()?,
                "Concrete Inputs" => args.concrete_inputs = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(args)
    }
}

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        any(deserializer)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Device {
    pub(super) id: Number,
    pub(super) name: Text,
    #[serde(alias = "major", rename = "computeMajor")]
    major: Number,
    #[serde(alias = "minor", rename = "computeMinor")]
    minor: Number,
    #[serde(alias = "multiProcessorCount", rename = "numSms")]
    sms: Number,
    #[serde(
        alias = "maxThreadsPerMultiProcessor",
        rename = "maxThreadsPerMultiprocessor"
    )]
    threads_per_sm: Number,
    #[serde(rename = "regsPerMultiprocessor")]
    registers_per_sm: Number,
    #[serde(rename = "sharedMemPerMultiprocessor")]
    shared_per_sm: Number,
    #[serde(rename = "warpSize")]
    warp_size: Number,
}

impl Device {
    pub(super) fn figures(&self) -> [(&'static str, Number); 8] {
        [
            ("id", self.id),
            ("computeMajor", self.major),
            ("computeMinor", self.minor),
            ("numSms", self.sms),
            ("maxThreadsPerMultiprocessor", self.threads_per_sm),
            ("regsPerMultiprocessor", self.registers_per_sm),
            ("sharedMemPerMultiprocessor", self.shared_per_sm),
            ("warpSize", self.warp_size),
        ]
    }

    pub(super) fn gpu(&self) -> Gpu {
        let small = |number: Number| number.whole().and_then(|number| u32::try_from(number).ok());
        let warps = small(self.threads_per_sm).zip(small(self.warp_size));
        Gpu {
            name: crate::name::clean(&self.name).map(|name| name.to_string()),
            compute_capability: small(self.major).zip(small(self.minor)),
            sms: small(self.sms).filter(|&sms| sms > 0),
            warps_per_sm: warps.and_then(|(threads, warp)| threads.checked_div(warp)),
            registers_per_sm: small(self.registers_per_sm),
            shared_bytes_per_sm: small(self.shared_per_sm),
            ..Gpu::default()
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Devices(pub(super) Vec<Device>);

const DEVICES_MAX: usize = crate::limits::GPUS_MAX;

impl<'de> Any<'de> for Devices {
    fn of_list<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut devices = Vec::new();
        while let Some(device) = seq.next_element::<Device>()? {
            if devices.len() < DEVICES_MAX {
                devices.push(device);
            }
        }
        Ok(Self(devices))
    }
}

impl<'de> Deserialize<'de> for Devices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        any(deserializer)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Number {
    #[default]
    None,
    Whole(i64),
    Real(f64),
    Word(u64),
}

impl Number {
    pub(super) fn whole(self) -> Option<u64> {
        match self {
            Self::Whole(number) => u64::try_from(number).ok(),
            Self::Real(number) if (0.0..9e15).contains(&number) => Some(number as u64),
            _ => None,
        }
    }

    /// Units of `factor` ns in ns; decimals scaled apart: doubles lack digits for ns since 1970.
    pub(super) fn nanoseconds(self, factor: i64) -> Option<i64> {
        match self {
            Self::Whole(number) => number.checked_mul(factor),
            Self::Real(number) if number.abs() < 9e15 => {
                let whole = (number.trunc() as i64).checked_mul(factor)?;
                whole.checked_add((number.fract() * factor as f64).round() as i64)
            }
            _ => None,
        }
    }

    fn key(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Whole(number) => number.cast_unsigned(),
            Self::Real(number) => number.to_bits(),
            Self::Word(hash) => hash,
        }
    }
}

/// FNV-1a, to compare words without keeping them.
fn hash(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Any<'_> for Number {
    fn of_number(number: Self) -> Self {
        number
    }

    fn of_text(text: &str) -> Self {
        let text = text.trim();
        let whole = text.parse().map(Self::Whole);
        let real = text.parse().map(Self::Real);
        whole
            .or(real.map_err(|_| ()))
            .unwrap_or_else(|_: ()| Self::Word(hash(text)))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        any(deserializer)
    }
}

/// Text; other values give an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text(String);

impl std::ops::Deref for Text {
    type Target = String;

    fn deref(&self) -> &String {
        &self.0
    }
}

impl Any<'_> for Text {
    fn of_text(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        any(deserializer)
    }
}

/// A short list of values of one kind; the rest of a longer one is skipped.
#[derive(Clone, Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

pub(super) type Numbers = List<Number>;
pub(super) type Texts = List<Text>;
pub(super) type Lists = List<Numbers>;

/// Most values kept of a list: no operator has more inputs, no tensor more dimensions.
const LIST_MAX: usize = 32;

impl Numbers {
    pub(super) fn triple(&self) -> Option<[u32; 3]> {
        let mut numbers = self
            .0
            .iter()
            .map(|number| u32::try_from(number.whole()?).ok());
        let triple = [numbers.next()??, numbers.next()??, numbers.next()??];
        numbers.next().is_none().then_some(triple)
    }
}

impl<'de, T: Deserialize<'de>> Any<'de> for List<T> {
    fn of_list<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut list = Vec::new();
        while list.len() < LIST_MAX {
            match seq.next_element()? {
                Some(value) => list.push(value),
                None => return Ok(Self(list)),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self(list))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        any(deserializer)
    }
}
