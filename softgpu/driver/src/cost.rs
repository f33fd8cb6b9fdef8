//! Host time of calls on the virtual clock. In real time a call costs what it costs. On the virtual
//! clock computing takes no time, so a program would launch a million kernels in an instant.
//! Assumed, of the order measured around CUDA on hosts of the V100's time: a launch takes about 5
//! µs, the pace at which Orion's frameworks issue kernels.

/// A launch, a copy or a fill.
pub(crate) const SUBMIT_HOST_NS: u64 = 5_000;
/// A query, or an operation on an event. Above zero, so that a loop of queries lets time pass.
pub(crate) const QUERY_HOST_NS: u64 = 1_000;
