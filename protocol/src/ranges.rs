//! Text form of the NVTX ranges that are a job's requests or iterations: `DOMAIN/GLOB`, with one
//! parser for flag and library. The domain, as passed to `nvtxDomainCreate`, ends at the first
//! slash; empty, or without a slash, it is the default domain. In the glob `*` matches anything,
//! `?` one character (a byte of its UTF-8), all else itself.

/// The text form that [`RangePattern::parse`] accepts, for messages.
pub const EXPECTED: &str = "DOMAIN/GLOB such as /forward* (default domain) or triton/request, of at most \
     255 bytes, with * and ? only in the glob";

/// Longest text, bytes: it bounds every comparison.
const BYTES_MAX: usize = 255;

/// Ranges of one domain, matched by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePattern {
    domain: String,
    glob: String,
}

impl RangePattern {
    /// Parses a text. `None` if it is malformed, or matches nothing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, glob) = text.split_once('/').unwrap_or(("", text));
        let is_one = !glob.is_empty() && !domain.contains(['*', '?']);
        (is_one && text.len() <= BYTES_MAX).then(|| Self {
            domain: domain.to_owned(),
            glob: glob.to_owned(),
        })
    }

    /// Whether the pattern is for the default domain.
    #[must_use]
    pub fn is_of_default_domain(&self) -> bool {
        self.domain.is_empty()
    }

    /// Whether the pattern's domain has this name, as UTF-8.
    pub fn has_domain(&self, name: impl Iterator<Item = u8>) -> bool {
        self.domain.bytes().eq(name)
    }

    /// Whether the glob matches a range's name, given as UTF-8. Takes at most as many steps as both
    /// lengths multiplied.
    #[inline]
    pub fn has_range(&self, name: impl Iterator<Item = u8> + Clone) -> bool {
        matches(self.glob.as_bytes(), name)
    }
}

impl core::fmt::Display for RangePattern {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.domain, self.glob)
    }
}

fn matches<I: Iterator<Item = u8> + Clone>(glob: &[u8], mut name: I) -> bool {
    let mut at = 0;
    // The position behind the last star, and the rest of the name that the star does not match.
    let mut star: Option<(usize, I)> = None;
    loop {
        if glob.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, name.clone()));
            continue;
        }
        let (byte, wanted) = (name.next(), glob.get(at));
        match (byte, wanted) {
            (None, None) => return true,
            (None, Some(_)) => return false,
            (Some(byte), Some(&wanted)) if wanted == b'?' || wanted == byte => at += 1,
            (Some(_), None) if glob.last() == Some(&b'*') => return true,
            _ => {
                let Some((behind, rest)) = &mut star else {
                    return false;
                };
                if rest.next().is_none() {
                    return false;
                }
                (at, name) = (*behind, rest.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_has_a_domain_and_a_glob() {
        for (text, shown, is_default) in [
            ("/forward*", "/forward*", true),
            ("forward", "/forward", true),
            ("triton/request ?", "triton/request ?", false),
            ("a/b/c", "a/b/c", false),
        ] {
            let pattern = RangePattern::parse(text).unwrap();
            assert_eq!(pattern.to_string(), shown);
            assert_eq!(pattern.is_of_default_domain(), is_default, "{text}");
            assert_eq!(RangePattern::parse(shown), Some(pattern));
        }
        let long = "x".repeat(BYTES_MAX + 1);
        for text in ["", "/", "triton/", "*/request", "tri?on/request", &long] {
            assert_eq!(RangePattern::parse(text), None, "{text}");
        }
        let pattern = RangePattern::parse("triton/request").unwrap();
        assert!(pattern.has_domain("triton".bytes()) && pattern.has_range("request".bytes()));
        assert!(!pattern.has_domain("trito".bytes()) && !pattern.has_domain("".bytes()));
    }

    #[test]
    fn stars_and_question_marks_stand_for_others() {
        for (glob, name, is_match) in [
            ("forward", "forward", true),
            ("forward", "forwards", false),
            ("forward", "forwar", false),
            ("forward*", "forward", true),
            ("forward*", "forward 17", true),
            ("*ward", "forward", true),
            ("f*w?rd", "fowwrwwod", false),
            ("f*w?rd", "fowwrwward", true),
            ("*", "", true),
            ("?", "", false),
            ("**a**", "bbbab", true),
            ("a*b*c", "abbbbbb", false),
        ] {
            assert_eq!(
                matches(glob.as_bytes(), name.bytes()),
                is_match,
                "{glob} {name}"
            );
        }
    }

    /// The glob's definition, as an oracle.
    fn defined(glob: &[u8], name: &[u8]) -> bool {
        match (glob, name) {
            ([], _) => name.is_empty(),
            ([b'*', glob @ ..], _) => (0..=name.len()).any(|n| defined(glob, &name[n..])),
            ([b'?', glob @ ..], [_, name @ ..]) => defined(glob, name),
            ([byte, glob @ ..], [first, name @ ..]) => byte == first && defined(glob, name),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn it_is_what_the_definition_says(glob in "[ab*?]{0,8}", name in "[abc]{0,12}") {
            let (glob, name) = (glob.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches(glob, name.iter().copied()), defined(glob, name));
        }
    }
}
