//! Result codes of nvml.h, and the texts for them.

use std::ffi::CStr;

/// `nvmlReturn_t`. A number with names, not a closed enum: `nvmlErrorString` takes any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) u32);

pub(crate) type Outcome<T = ()> = Result<T, Code>;

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(crate) const TIMEOUT: Self = Self(10);
    pub(crate) const GPU_IS_LOST: Self = Self(15);
    pub(crate) const NO_DATA: Self = Self(21);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// The result of `nvmlErrorString`, for all codes of the header, used here or not.
    pub(crate) fn text(self) -> &'static CStr {
        let known = TEXTS.iter().find(|(number, _)| *number == self.0);
        known.map_or(UNKNOWN_TEXT, |(_, text)| text)
    }
}

const UNKNOWN_TEXT: &CStr = c"Unknown Error";

const TEXTS: &[(u32, &CStr)] = &[
    (0, c"Success"),
    (1, c"Uninitialized"),
    (2, c"Invalid Argument"),
    (3, c"Not Supported"),
    (4, c"Insufficient Permissions"),
    (5, c"Already Initialized"),
    (6, c"Not Found"),
    (7, c"Insufficient Size"),
    (8, c"Insufficient External Power"),
    (9, c"Driver Not Loaded"),
    (10, c"Timeout"),
    (11, c"Interrupt Request Issue"),
    (12, c"NVML Shared Library Not Found"),
    (13, c"Function Not Found"),
    (14, c"Corrupted infoROM"),
    (15, c"GPU is lost"),
    (16, c"GPU requires reset"),
    (17, c"The operating system has blocked the request."),
    (18, c"Driver/library version mismatch"),
    (19, c"In use by another client"),
    (20, c"Insufficient Memory"),
    (21, c"No data"),
    (22, c"vGPU operation not supported with ECC enabled"),
    (23, c"Insufficient Resources"),
    (24, c"Frequency not supported"),
    (25, c"Argument version mismatch"),
    (26, c"Deprecated"),
    (27, c"Not ready"),
    (28, c"GPU not found"),
    (29, c"Invalid state"),
    (999, UNKNOWN_TEXT),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_text_of_its_own_and_other_numbers_are_unknown() {
        let mut texts: Vec<_> = TEXTS
            .iter()
            .map(|(number, _)| Code(*number).text())
            .collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), TEXTS.len());
        for number in [30, 998, 1000, u32::MAX] {
            assert_eq!(Code(number).text(), UNKNOWN_TEXT);
        }
    }
}
