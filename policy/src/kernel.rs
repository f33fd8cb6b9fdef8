//! A kernel as far as a policy needs it. The *resource class* is the resource of the GPU that a
//! kernel mostly uses: compute units or memory bandwidth. Concurrent kernels of opposite class slow
//! each other down little, two of the same class much (conv-bn 1.41× faster together than in turn,
//! conv-conv 0.98×; Orion, Table 2). A kernel without a profile, or with little use of either, is
//! *unknown*. `sm_needed` is the number of SMs that would hold all blocks of the launch at once,
//! ceil(blocks ÷ blocks per SM), not capped at the device's: large training kernels need thousands.

/// The resource that a kernel mostly uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The compute units, by roofline or ≥ 60 % of compute throughput.
    Compute,
    /// The memory bandwidth, by roofline or ≥ 60 % of memory throughput.
    Memory,
    /// Neither, or not profiled.
    Unknown,
}

impl Class {
    /// Every class, in the order of the bits of a [`ClassSet`].
    pub const ALL: [Self; 3] = [Self::Compute, Self::Memory, Self::Unknown];

    /// The class of these [`ClassSet`] bits; unknown unless exactly one, as in a peer's bad record.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        match bits {
            1 => Self::Compute,
            2 => Self::Memory,
            _ => Self::Unknown,
        }
    }

    /// This class as its one bit of a [`ClassSet`].
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Compute => 1,
            Self::Memory => 2,
            Self::Unknown => 4,
        }
    }

    /// The class's name as profiles and tables show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::Unknown => "unknown",
        }
    }
}

/// A set of classes: compute = 1, memory = 2, unknown = 4, as in a lease page of shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClassSet(u32);

impl ClassSet {
    /// No class.
    pub const EMPTY: Self = Self(0);
    /// Every class.
    pub const ALL: Self = Self(7);

    /// The set with these bits. Drops unknown bits, so untrusted memory gives a valid set.
    #[must_use]
    pub const fn from_bits_truncate(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits, at most 7.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether `class` is in the set.
    #[must_use]
    pub const fn contains(self, class: Class) -> bool {
        self.0 & class.bits() != 0
    }

    /// This set and `class`.
    #[must_use]
    pub const fn with(self, class: Class) -> Self {
        Self(self.0 | class.bits())
    }

    /// This set without `class`.
    #[must_use]
    pub const fn without(self, class: Class) -> Self {
        Self(self.0 & !class.bits())
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every class of this set is in `other`.
    #[must_use]
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether the set has no class.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl From<Class> for ClassSet {
    fn from(class: Class) -> Self {
        Self::EMPTY.with(class)
    }
}

/// One launch, as profiles describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The resource it mostly uses.
    pub class: Class,
    /// SMs that hold all its blocks at once, not capped at the device's.
    pub sm_needed: u32,
    /// The expected solo duration, in ns; the profile's p95.
    pub expected_ns: u64,
}

impl Kernel {
    /// A copy as the gate counts it: work of no class that needs no SM. Assumes pinned memory over
    /// PCIe 3.0 (12 GB/s), or within a small device 200 GB/s; completions correct it.
    #[must_use]
    pub const fn of_copy(bytes: u64, is_within_device: bool) -> Self {
        let bytes_per_ns = if is_within_device { 200 } else { 12 };
        Self {
            class: Class::Unknown,
            sm_needed: 0,
            expected_ns: bytes / bytes_per_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_survives_the_way_through_its_bits() {
        for class in Class::ALL {
            assert_eq!(Class::from_bits(class.bits()), class);
            assert!(ClassSet::from(class).contains(class));
            assert!(!ClassSet::ALL.without(class).contains(class));
        }
    }

    #[test]
    fn bits_of_no_class_are_dropped_or_unknown() {
        assert_eq!(ClassSet::from_bits_truncate(u32::MAX), ClassSet::ALL);
        assert_eq!(ClassSet::from_bits_truncate(8), ClassSet::EMPTY);
        for bits in [0, 3, 8, u32::MAX] {
            assert_eq!(Class::from_bits(bits), Class::Unknown);
        }
    }

    #[test]
    fn a_set_is_a_subset_of_its_unions_only() {
        let memory = ClassSet::from(Class::Memory);
        let both = memory.with(Class::Compute);
        assert!(memory.is_subset(both));
        assert!(!both.is_subset(memory));
        assert_eq!(memory.union(both), both);
        assert!(ClassSet::EMPTY.is_subset(memory));
        assert!(ClassSet::EMPTY.is_empty());
    }
}
