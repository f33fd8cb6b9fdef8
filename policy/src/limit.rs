//! The rule behind a lease, for reports about a waiting job. It is computed together with the lease
//! ([`crate::Gate::gate_with_limit`]) and decides nothing.

/// What keeps a job from launching more than its lease admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Nobody is protected, or the policy never holds.
    Ungated,
    /// Everything may go until the budget is spent; then it is [`Limit::Throttle`].
    Budget,
    /// As much BE work is in flight as HP may have to wait for.
    Throttle,
    /// HP is busy, and nothing goes beside it.
    HpBusy,
    /// HP is busy: only work of another resource, on fewer SMs than the threshold, goes beside it.
    Interference,
    /// The job has used its share of the GPU's time, or best-effort jobs together have used theirs
    /// (the throttle's rate, or its ceiling).
    Rate,
    /// HP requests miss their target too often: BE work goes only in a part of each period.
    Duty,
    /// HP requests miss their target so often, or at every batch size, that no BE work goes, not
    /// even after `max_hold`.
    Paused,
    /// Another BE job has the turn.
    Turn,
    /// The job's kernels wait for peers on other GPUs, so it goes only while no HP job is attached.
    Collectives,
}

impl Limit {
    /// All limits, in the order of their numbers in traces and counters.
    pub const ALL: [Self; 10] = [
        Self::Ungated,
        Self::Budget,
        Self::Throttle,
        Self::HpBusy,
        Self::Interference,
        Self::Rate,
        Self::Duty,
        Self::Paused,
        Self::Turn,
        Self::Collectives,
    ];

    /// The word in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ungated => "ungated",
            Self::Budget => "budget",
            Self::Throttle => "throttle",
            Self::HpBusy => "hp-busy",
            Self::Interference => "interference",
            Self::Rate => "rate",
            Self::Duty => "duty",
            Self::Paused => "paused",
            Self::Turn => "turn",
            Self::Collectives => "collectives",
        }
    }
}
