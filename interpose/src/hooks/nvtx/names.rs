//! Names from programs: zero-terminated strings of bytes or of `wchar_t`.

#![expect(unsafe_code, reason = "reads strings of the program's")]

use core::marker::PhantomData;

pub(super) trait Name: Copy {
    fn bytes(self) -> impl Iterator<Item = u8> + Clone;
}

/// A string of bytes, read only as far as it is compared.
#[derive(Clone, Copy)]
pub(super) struct Narrow<'a>(Units<'a, u8>);

/// A string of `wchar_t`, which is UTF-32 on Linux; invalid characters are U+FFFD.
#[derive(Clone, Copy)]
pub(super) struct Wide<'a>(Units<'a, u32>);

impl Narrow<'_> {
    /// The string there; `None`: null. Safety: it ends in zero, and does not change meanwhile.
    pub(super) unsafe fn at(string: *const core::ffi::c_char) -> Option<Self> {
        let string: *const u8 = string.cast();
        (!string.is_null()).then_some(Self(Units(string, PhantomData)))
    }
}

impl Wide<'_> {
    /// The string there; `None`: null. Safety: it ends in zero, and does not change meanwhile.
    pub(super) unsafe fn at(string: *const u32) -> Option<Self> {
        (!string.is_null()).then_some(Self(Units(string, PhantomData)))
    }
}

impl Name for Narrow<'_> {
    fn bytes(self) -> impl Iterator<Item = u8> + Clone {
        self.0
    }
}

impl Name for Wide<'_> {
    fn bytes(self) -> impl Iterator<Item = u8> + Clone {
        self.0.flat_map(|unit| {
            let character = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
            let mut bytes = [0; 4];
            let length = character.encode_utf8(&mut bytes).len();
            bytes.into_iter().take(length)
        })
    }
}

/// No name equals the empty one.
impl<N: Name> Name for Option<N> {
    fn bytes(self) -> impl Iterator<Item = u8> + Clone {
        self.into_iter().flat_map(|name| name.bytes())
    }
}

/// The elements of a string before its zero.
#[derive(Clone, Copy)]
struct Units<'a, T>(*const T, PhantomData<&'a T>);

impl<T: Copy + Default + PartialEq> Iterator for Units<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        // SAFETY: at the string's zero or before it: iteration never passes the zero.
        let unit = unsafe { self.0.read() };
        if unit == T::default() {
            return None;
        }
        // SAFETY: the zero is further on.
        self.0 = unsafe { self.0.add(1) };
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: impl Name) -> String {
        String::from_utf8(name.bytes().collect()).unwrap()
    }

    #[test]
    fn both_kinds_are_read_up_to_their_zero() {
        // SAFETY: strings that end in zero.
        let narrow = unsafe { Narrow::at(c"größer".as_ptr()) };
        assert_eq!(text(narrow), "größer");
        let wide = [0x67, 0xf6, 0x1f600, 0x11_0000, 0, 0x78];
        // SAFETY: as above.
        assert_eq!(text(unsafe { Wide::at(wide.as_ptr()) }), "gö😀\u{fffd}");
        // SAFETY: null is no string.
        let none = unsafe { Narrow::at(core::ptr::null()) };
        assert!(none.is_none() && text(none).is_empty());
    }
}
