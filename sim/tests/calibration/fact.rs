//! A fact: a published measurement, and the model's value.

#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) group: &'static str,
    /// The joint measurement: the unit that the split keeps together.
    pub(crate) name: String,
    pub(crate) part: String,
    pub(crate) measured: f64,
    pub(crate) model: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Fitted,
    HeldOut,
}

impl Fact {
    /// The split: by the parity of the FNV-1a hash of the name (even: fitted). Orion's Table 2 is
    /// fitted whatever the hash: the form of the law came from it.
    pub(crate) fn half(&self) -> Half {
        if self.group == crate::TABLE_2 || fnv_1a(&self.name).is_multiple_of(2) {
            Half::Fitted
        } else {
            Half::HeldOut
        }
    }

    pub(crate) fn error(&self) -> f64 {
        self.model / self.measured - 1.0
    }
}

/// A published 64-bit hash (Fowler, Noll, Vo).
fn fnv_1a(text: &str) -> u64 {
    let basis = 0xcbf2_9ce4_8422_2325;
    text.bytes().fold(basis, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[derive(Clone, Debug)]
pub(crate) struct Unused {
    pub(crate) what: String,
    pub(crate) count: usize,
    pub(crate) why: &'static str,
}
