//! A kernel's resource class: the gate pairs kernels of opposite ones (Orion, EuroSys'24, §5.1).

use std::fmt;

/// Percent of the peak from which a kernel is bound (Orion, §5.2; as NVIDIA's "low utilisation").
pub const BOUND_PCT: f64 = 60.0;

/// The resource that bounds a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceClass {
    /// Bound by the compute units.
    Compute,
    /// Bound by the memory bandwidth.
    Memory,
    /// Too little of either to judge, or never measured.
    Unknown,
}

impl ResourceClass {
    /// All classes, in the order in which messages list them.
    pub const ALL: [Self; 3] = [Self::Compute, Self::Memory, Self::Unknown];

    /// The word for it in files: `compute`, `memory` or `unknown`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Unknown => "unknown",
        }
    }

    /// The class of this word, see [`ResourceClass::word`].
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.word() == word)
    }

    /// One letter for kernel names: `c`, `m` or `u`.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Compute => 'c',
            Self::Memory => 'm',
            Self::Unknown => 'u',
        }
    }
}

impl fmt::Display for ResourceClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::ResourceClass;

    #[test]
    fn every_class_reads_back_from_its_word_and_no_other_word_does() {
        for class in ResourceClass::ALL {
            assert_eq!(ResourceClass::from_word(class.word()), Some(class));
            assert_eq!(class.to_string(), class.word());
        }
        for word in ["", "Compute", "compute ", "cpu"] {
            assert_eq!(ResourceClass::from_word(word), None);
        }
    }
}
