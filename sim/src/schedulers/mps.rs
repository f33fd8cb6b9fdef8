//! `mps`: a process each under NVIDIA's Multi-Process Service, no priorities; launches go at once.
//! Kernels of all processes compute side by side; kernels that wait for room get it in the order in
//! which they reached the heads of their streams. The model assumes that MPS does between processes
//! what the device does between streams. Only with MPS; in time slices it is [`policy::none`].

use crate::scheduler::Placement;

pub(super) const PLACEMENT: Placement = Placement {
    one_context: false,
    priorities: false,
};
