//! Power of a GPU by how much of it is in use: linear between rest and board power, as OLTunes'
//! score has it (section 3.3). Boards take less than that where memory decides and more where
//! matrix units do; the traces publish no readings of power against use, which would replace the
//! line.

/// Power of one model of GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// At rest.
    pub idle_w: f64,
    /// Board power, taken for that of all of it in use.
    pub tdp_w: f64,
}

impl Power {
    /// With such a share of it in use, 0 to 1, in W.
    #[must_use]
    pub fn at(&self, busy: f64) -> f64 {
        self.idle_w + (self.tdp_w - self.idle_w) * busy
    }
}
