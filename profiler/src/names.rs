//! The spellings of a kernel's name. The driver knows a C++ kernel by its mangled name. Tools
//! demangle it differently: libstdc++ (PyTorch) writes `(anonymous namespace)`, `true` and `4ul`
//! where NVIDIA's tools write `<unnamed>`, `(bool)1` and `(unsigned long)4`. [`canonical`] is one
//! spelling for all equivalent ones. Others share only the base name ([`crate::base_name`]).

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Longest demangled name, bytes. Substitutions can make a short mangled name grow without end.
const DEMANGLED_BYTES_MAX: usize = 64 << 10;

const UNNAMED: [&str; 2] = ["(anonymous namespace)", "<unnamed>"];

/// Types that NVIDIA's tools write before the value of a template argument.
const CASTS: [&str; 13] = [
    "(bool)",
    "(char)",
    "(signed char)",
    "(unsigned char)",
    "(short)",
    "(unsigned short)",
    "(int)",
    "(unsigned int)",
    "(long)",
    "(unsigned long)",
    "(long long)",
    "(unsigned long long)",
    "(unsigned)",
];

/// A mangled C++ name in demangled form, with parameters; `None` for any other name.
#[must_use]
pub fn demangled(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    let symbol = Symbol::new(name).ok()?;
    let mut text = Bounded(String::new());
    symbol
        .structured_demangle(&mut text, &DemangleOptions::new())
        .ok()?;
    Some(text.0)
}

/// One spelling for all equivalent names of a kernel. For comparison only: it has no blanks.
#[must_use]
pub fn canonical(name: &str) -> String {
    let demangled = demangled(name);
    let text = demangled.as_deref().unwrap_or(name);
    // Every kernel returns nothing, but only templates have it in their names.
    let mut rest = text.strip_prefix("void ").unwrap_or(text);
    let mut result = String::with_capacity(rest.len());
    while let Some(first) = rest.chars().next() {
        let (length, written) = token(rest, result.chars().next_back());
        if !first.is_whitespace() {
            result.push_str(written);
        }
        rest = rest.get(length..).unwrap_or("");
    }
    result
}

/// The first token of a text: its length, and its spelling. `before` is what was written last.
fn token(text: &str, before: Option<char>) -> (usize, &str) {
    if let Some(unnamed) = UNNAMED.iter().find(|unnamed| text.starts_with(**unnamed)) {
        return (unnamed.len(), "<unnamed>");
    }
    if let Some(cast) = CASTS.iter().find(|cast| text.starts_with(**cast)) {
        let value = text.get(cast.len()..).and_then(|rest| rest.chars().next());
        if value.is_some_and(|c| c.is_ascii_digit() || c == '-') {
            return (cast.len(), "");
        }
    }
    let word = text.find(|c: char| !is_of_word(c)).unwrap_or(text.len());
    if word == 0 {
        let length = text.chars().next().map_or(0, char::len_utf8);
        return (length, text.get(..length).unwrap_or(""));
    }
    let spelling = text.get(..word).unwrap_or("");
    let written = match spelling {
        "true" => "1",
        "false" => "0",
        number if number.starts_with(|c: char| c.is_ascii_digit()) => {
            number.trim_end_matches(['u', 'l', 'U', 'L'])
        }
        _ => spelling,
    };
    // A part of a longer word is no word of its own.
    match before.is_some_and(is_of_word) {
        true => (word, spelling),
        false => (word, written),
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > DEMANGLED_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// PyTorch's element-wise kernel, as NVIDIA's runtime registers it.
    const MANGLED: &str = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5ArrayIPcLi1EEEEEviT0_T1_";

    #[test]
    fn a_mangled_name_is_read() {
        assert_eq!(
            demangled("_Z5scaleIfEvPT_S0_id").unwrap(),
            "void scale<float>(float*, float, int, double)"
        );
        assert_eq!(demangled("saxpy"), None);
        assert_eq!(demangled("_Z"), None);
        assert_eq!(demangled("Conv#c98@100000"), None);
    }

    #[test]
    fn spellings_of_one_name_are_one() {
        let torch = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, \
                     at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)";
        let nvidia = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, \
                      at::detail::Array<char *, (int)1>>(int, T2, T3)";
        assert_eq!(canonical(MANGLED), canonical(torch));
        assert_ne!(
            canonical(MANGLED),
            canonical(nvidia),
            "NVIDIA's tools leave T2 and T3 as they are"
        );
        assert_eq!(
            canonical("k<true, 4ul, (anonymous namespace)::f>"),
            canonical("k<(bool)1, (unsigned long)4, <unnamed>::f>"),
        );
        assert_eq!(canonical("istrue_4ul"), "istrue_4ul");
        assert_eq!(canonical("(int)x"), "(int)x");
    }

    #[test]
    fn a_name_that_grows_without_end_is_left_alone() {
        // Each level names the one before twice.
        let mut name = "_Z1fI1AE".to_owned();
        for _ in 0..3000 {
            name.push_str("S_S_");
        }
        assert!(canonical(&name).len() <= DEMANGLED_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_text_has_a_spelling(text in "\\PC{0,80}", mangled in "_Z[a-zA-Z0-9_]{0,80}") {
            for text in [&text, &mangled] {
                let once = canonical(text);
                prop_assert!(once.len() <= DEMANGLED_BYTES_MAX.max(text.len()));
            }
        }
    }
}
