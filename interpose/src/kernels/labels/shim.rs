//! Labels in the shim: there are none. A program's calls of cuBLAS and cuDNN go by whatever stands behind the name of
//! the driver, so only the preload library can see them, and it steps aside for the shim.

use profiler::Operator;
use profiler::family::Intensity;

/// A kept label; 0, the only one here, is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LabelIndex(pub(crate) u32);

impl LabelIndex {
    pub(crate) const NONE: Self = Self(0);

    /// No operator.
    pub(crate) fn operator(self) -> Option<Operator> {
        None
    }

    /// No sizes.
    pub(crate) const fn intensity(self) -> Option<Intensity> {
        None
    }

    /// None, as ever.
    #[inline]
    pub(crate) const fn without_operator(self) -> Self {
        self
    }

    /// There are none to keep.
    pub(crate) fn is_kept(self) -> bool {
        false
    }
}

/// A launch is seen; it carries no label.
#[inline]
pub(crate) fn handle_launch() -> LabelIndex {
    LabelIndex::NONE
}
