//! Records as words: one list of fields defines the type, its encoding and its decoding.

use super::{Extent, Spot, WireError};

/// A value encoded as one or more words.
pub(super) trait Word: Sized {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>);

    /// Decodes words of an untrusted process.
    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError>;
}

/// Defines an enum whose variants are encoded as words, apart from the variant's number.
macro_rules! records {
    (
        $(#[$enum_doc:meta])* $enum:ident, $what:literal:
        $(
            $(#[$doc:meta])* $name:ident = $kind:literal {
                $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
            }
        )*
    ) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum $enum {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type,)* },)*
        }

        impl $enum {
            fn kind(&self) -> u32 {
                match self {
                    $(Self::$name { .. } => $kind,)*
                }
            }

            fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
                match self {
                    $(Self::$name { $($field,)* } => {
                        $($crate::wire::words::Word::put($field, to);)*
                    })*
                }
            }

            /// Decodes the fields of the variant with that number.
            fn take(
                kind: u32,
                from: &mut impl Iterator<Item = u64>,
            ) -> Result<Self, $crate::wire::WireError> {
                Ok(match kind {
                    $($kind => Self::$name {
                        $($field: $crate::wire::words::Word::take(from)?,)*
                    },)*
                    _ => return Err($crate::wire::WireError::Unknown($what)),
                })
            }
        }
    };
}

pub(super) use records;

/// The one of `all` that has this number.
pub(super) fn choice<T: Copy>(number: u64, all: &[T], what: &'static str) -> Result<T, WireError> {
    let chosen = usize::try_from(number).ok().and_then(|at| all.get(at));
    chosen.copied().ok_or(WireError::Unknown(what))
}

impl Word for u64 {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut Self>) {
        if let Some(word) = to.next() {
            *word = *self;
        }
    }

    fn take(from: &mut impl Iterator<Item = Self>) -> Result<Self, WireError> {
        from.next().ok_or(WireError::Short)
    }
}

impl Word for u32 {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
        u64::from(*self).put(to);
    }

    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError> {
        u64::take(from)?
            .try_into()
            .map_err(|_| WireError::Unknown("number"))
    }
}

impl<const N: usize> Word for [u64; N] {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
        self.iter().for_each(|word| word.put(to));
    }

    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError> {
        let mut words = [0; N];
        for word in &mut words {
            *word = u64::take(from)?;
        }
        Ok(words)
    }
}

impl Word for Spot {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
        [self.start, self.pitch, self.slice].put(to);
    }

    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError> {
        let [start, pitch, slice] = Word::take(from)?;
        Ok(Self {
            start,
            pitch,
            slice,
        })
    }
}

impl Word for Extent {
    fn put<'a>(&self, to: &mut impl Iterator<Item = &'a mut u64>) {
        [self.width, self.height, self.depth].put(to);
    }

    fn take(from: &mut impl Iterator<Item = u64>) -> Result<Self, WireError> {
        let [width, height, depth] = Word::take(from)?;
        Ok(Self {
            width,
            height,
            depth,
        })
    }
}
