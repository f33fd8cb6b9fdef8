//! One event of a trace, as far as it is needed.
//!
//! Any value may have any type: a number may be text, a list may be missing. What is not of the
//! type that is needed is taken as not stated.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::gpu::Gpu;
use crate::source::Call;

/// The visits of a type that takes neither booleans nor numbers nor null: nothing is stated.
macro_rules! no_text {
    ($type:ty) => {
        fn visit_bool<E>(self, _: bool) -> Result<$type, E> {
            Ok(<$type>::default())
        }

        fn visit_i64<E>(self, _: i64) -> Result<$type, E> {
            Ok(<$type>::default())
        }

        fn visit_u64<E>(self, _: u64) -> Result<$type, E> {
            Ok(<$type>::default())
        }

        fn visit_f64<E>(self, _: f64) -> Result<$type, E> {
            Ok(<$type>::default())
        }

        fn visit_unit<E>(self) -> Result<$type, E> {
            Ok(<$type>::default())
        }
    };
}

/// The same, and no text either.
macro_rules! anything_else {
    ($type:ty) => {
        no_text!($type);

        fn visit_str<E>(self, _: &str) -> Result<$type, E> {
            Ok(<$type>::default())
        }
    };
}

/// An event.
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
    /// Thread and time of an event on the host.
    pub(super) fn call(&self) -> Option<Call> {
        let thread = self.pid.key() ^ self.tid.key().rotate_left(32);
        let at_ns = self.ts.nanoseconds(1000)?;
        Some(Call { thread, at_ns })
    }
}

/// Arguments of an event.
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

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgsVisitor;

        impl<'de> Visitor<'de> for ArgsVisitor {
            type Value = Args;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("arguments")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Args, A::Error> {
                let mut args = Args::default();
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

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Args, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Args::default())
            }

            anything_else!(Args);
        }

        deserializer.deserialize_any(ArgsVisitor)
    }
}

/// A GPU as the trace describes it, in the words of 2021 and of now.
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
    /// Its numbers, by their names in traces of now.
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

/// The GPUs of a trace.
#[derive(Debug, Default)]
pub(super) struct Devices(pub(super) Vec<Device>);

/// More GPUs than a machine has.
const DEVICES_MAX: usize = crate::limits::GPUS_MAX;

impl<'de> Deserialize<'de> for Devices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DevicesVisitor;

        impl<'de> Visitor<'de> for DevicesVisitor {
            type Value = Devices;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of devices")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Devices, A::Error> {
                let mut devices = Vec::new();
                while let Some(device) = seq.next_element::<Device>()? {
                    if devices.len() < DEVICES_MAX {
                        devices.push(device);
                    }
                }
                Ok(Devices(devices))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Devices, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Devices::default())
            }

            anything_else!(Devices);
        }

        deserializer.deserialize_any(DevicesVisitor)
    }
}

/// A number; text that is one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Number {
    #[default]
    None,
    Whole(i64),
    Real(f64),
    /// Text that is no number, as something to compare.
    Word(u64),
}

impl Number {
    /// As a number that is not negative.
    pub(super) fn whole(self) -> Option<u64> {
        match self {
            Self::Whole(number) => u64::try_from(number).ok(),
            Self::Real(number) if (0.0..9e15).contains(&number) => Some(number as u64),
            _ => None,
        }
    }

    /// Units of `factor` ns as ns. Whole part and decimals are scaled apart, because a double has
    /// not enough digits for the time since 1970 in ns.
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

    /// Something to compare numbers and words by.
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

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;

        impl<'de> Visitor<'de> for NumberVisitor {
            type Value = Number;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
                Ok(Number::Whole(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
                Ok(i64::try_from(number).map_or(Number::Real(number as f64), Number::Whole))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
                Ok(Number::Real(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Number, E> {
                let text = text.trim();
                let whole = text.parse().map(Number::Whole);
                let real = text.parse().map(Number::Real);
                Ok(whole
                    .or(real.map_err(|_| ()))
                    .unwrap_or_else(|_: ()| Number::Word(hash(text))))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Number, E> {
                Ok(Number::None)
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number::None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Number, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Number::None)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Number, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Number::None)
            }
        }

        deserializer.deserialize_any(NumberVisitor)
    }
}

/// Text; what is none is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text(String);

impl std::ops::Deref for Text {
    type Target = String;

    fn deref(&self) -> &String {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Text, E> {
                Ok(Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Text, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Text::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Text::default())
            }

            no_text!(Text);
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

/// A short list of values of one kind; the rest of a longer one is passed over.
#[derive(Clone, Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A list of numbers: a shape, or the dimensions of a tensor.
pub(super) type Numbers = List<Number>;
/// A list of texts.
pub(super) type Texts = List<Text>;
/// The dimensions of several tensors.
pub(super) type Lists = List<Numbers>;

/// Most values of a list that are kept: an operator has no more inputs, a tensor no more dimensions.
const LIST_MAX: usize = 32;

impl Numbers {
    /// Three numbers of 32 bits.
    pub(super) fn triple(&self) -> Option<[u32; 3]> {
        let mut numbers = self
            .0
            .iter()
            .map(|number| u32::try_from(number.whole()?).ok());
        let triple = [numbers.next()??, numbers.next()??, numbers.next()??];
        numbers.next().is_none().then_some(triple)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = List<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut list = Vec::new();
                while list.len() < LIST_MAX {
                    match seq.next_element()? {
                        Some(value) => list.push(value),
                        None => return Ok(List(list)),
                    }
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<List<T>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(List(Vec::new()))
            }

            anything_else!(List<T>);
        }

        deserializer.deserialize_any(ListVisitor(std::marker::PhantomData))
    }
}
