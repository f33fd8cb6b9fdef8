//! Whether CUPTI timed a recorded process, else why not: the word [`super::RecordPage::cupti`].

/// How a process uses CUPTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cupti {
    /// The process has not decided yet.
    Unasked,
    /// It times the kernels.
    Used,
    /// It timed kernels until another tool took over.
    Lost,
    /// CUPTI is disabled.
    Off,
    /// The GPU is a software GPU, which has no CUPTI.
    SoftwareGpu,
    /// CUPTI was not found, or could not be loaded.
    NotFound,
    /// The environment is that of another profiler.
    Profiled,
    /// The library that was found lacks a function.
    Incomplete,
    /// Older than CUDA 11.0, or of a later major version than the driver (`cuptiGetVersion`).
    Unfit(u32),
    /// Another tool in the process has subscribed.
    Taken,
    /// A CUPTI call failed with that result of `cupti_result.h`.
    Failed(Call, u32),
}

/// A call of CUPTI that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `cuptiGetVersion`.
    Version,
    /// `cuptiSubscribe`.
    Subscribe,
    /// `cuptiActivityRegisterCallbacks`.
    Register,
    /// `cuptiActivityEnable`.
    Enable,
}

const KIND_BITS: u32 = 8;
const UNFIT: u32 = 8;
/// The first code of [`Cupti::Failed`], by [`Call`].
const FAILED: u32 = 16;
const PLAIN: [Cupti; 8] = [
    Cupti::Unasked,
    Cupti::Used,
    Cupti::Lost,
    Cupti::Off,
    Cupti::SoftwareGpu,
    Cupti::NotFound,
    Cupti::Profiled,
    Cupti::Incomplete,
];
const TAKEN: u32 = 9;
const CALLS: [Call; 4] = [Call::Version, Call::Subscribe, Call::Register, Call::Enable];

impl Cupti {
    /// Encodes it. A number that is too large is clamped.
    #[must_use]
    pub fn word(self) -> u32 {
        let with = |kind: u32, number: u32| kind | number.min(u32::MAX >> KIND_BITS) << KIND_BITS;
        match self {
            Self::Unfit(version) => with(UNFIT, version),
            Self::Taken => TAKEN,
            Self::Failed(call, result) => with(FAILED + call as u32, result),
            plain => {
                let place = PLAIN.iter().position(|known| *known == plain);
                place.unwrap_or_default() as u32
            }
        }
    }

    /// Decodes a word, which may have any value.
    #[must_use]
    pub fn of(word: u32) -> Self {
        let (kind, number) = (word & ((1 << KIND_BITS) - 1), word >> KIND_BITS);
        let call = kind
            .checked_sub(FAILED)
            .and_then(|at| CALLS.get(at as usize));
        match kind {
            UNFIT => Self::Unfit(number),
            TAKEN => Self::Taken,
            _ => match (call, PLAIN.get(kind as usize)) {
                (Some(call), _) => Self::Failed(*call, number),
                (None, Some(plain)) => *plain,
                (None, None) => Self::Unasked,
            },
        }
    }
}

impl Call {
    /// The function's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Version => "cuptiGetVersion",
            Self::Subscribe => "cuptiSubscribe",
            Self::Register => "cuptiActivityRegisterCallbacks",
            Self::Enable => "cuptiActivityEnable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_and_nonsense_is_nothing() {
        let others = [Cupti::Unfit(130_001), Cupti::Taken];
        let failed = CALLS.map(|call| Cupti::Failed(call, 999));
        for is in PLAIN.into_iter().chain(others).chain(failed) {
            assert_eq!(Cupti::of(is.word()), is);
        }
        for nonsense in [10, 15, 20, u32::MAX] {
            assert_eq!(Cupti::of(nonsense), Cupti::Unasked);
        }
    }
}
