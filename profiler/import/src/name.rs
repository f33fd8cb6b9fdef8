//! Names of kernels, and the part of a name on which two tools agree. A kernel has a mangled name
//! (the driver's, exact), a demangled one (for display) and a base name (the function alone,
//! without namespaces, template arguments and parameters). Demanglers differ: NVIDIA's tools print
//! `<unnamed>::f<(bool)0>`, PyTorch's `(anonymous namespace)::f<false>`. They agree on the base
//! name, so files of different tools are joined by base name and shape.

use std::sync::Arc;

use profiler::base_name::base;

use crate::limits::NAME_BYTES_MAX;

/// The names of a kernel in a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    /// The display name: demangled where the file has that, else as it is in the file.
    pub shown: Arc<str>,
    /// The mangled name, where the file states it.
    pub mangled: Option<Arc<str>>,
    /// The function alone.
    pub base: Arc<str>,
}

impl Names {
    /// A kernel's names from a file's `text`, demangled or not. `None` if [`clean`] leaves nothing.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let shown = clean(text)?;
        let base = Arc::from(base(&shown));
        let mangled = shown.starts_with("_Z").then(|| Arc::clone(&shown));
        Some(Self {
            shown,
            mangled,
            base,
        })
    }

    /// Adds the mangled name that the file states beside it.
    #[must_use]
    pub fn with_mangled(mut self, mangled: &str) -> Self {
        self.mangled = clean(mangled).or(self.mangled);
        self
    }
}

/// `text` as profiles require: one trimmed line, no control characters, at most [`NAME_BYTES_MAX`].
#[must_use]
pub fn clean(text: &str) -> Option<Arc<str>> {
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or("").trim();
    if text.is_empty() {
        return None;
    }
    if text.contains(char::is_control) {
        let replaced = text.replace(char::is_control, "?");
        return Some(Arc::from(replaced.trim()));
    }
    Some(Arc::from(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Names, clean};

    #[test]
    fn names_are_made_fit_for_a_profile() {
        assert_eq!(clean("  f(int)\t").as_deref(), Some("f(int)"));
        assert_eq!(clean("a\nb").as_deref(), Some("a?b"));
        assert_eq!(clean(" \u{0} ").as_deref(), Some("?"));
        assert_eq!(clean(" \t"), None);
        let names = Names::new("f(int)").expect("a name").with_mangled("_Z1fi");
        assert_eq!(
            (&*names.base, names.mangled.as_deref()),
            ("f", Some("_Z1fi"))
        );
        let long = "é".repeat(100_000);
        assert!(clean(&long).is_some_and(|name| name.len() <= super::NAME_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn any_name_is_kept_fit_or_not_at_all(name in any::<String>()) {
            let names = Names::new(&name);
            prop_assert!(names.is_none_or(|names| names.shown.trim() == &*names.shown));
        }
    }
}
