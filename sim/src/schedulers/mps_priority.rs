//! `mps-priority`: a process and a context each under MPS, high-priority jobs as clients of normal
//! priority and best-effort ones below normal (`CUDA_MPS_CLIENT_PRIORITY`); launches go at once.
//! The model treats a client's priority as one of its blocks, as between streams of one process
//! (where [`softgpu::Config::block_priority`] is on); NVIDIA calls it a hint. Only with sharing
//! MPS: priorities do not cross time slices.

use crate::scheduler::Placement;

pub(super) const PLACEMENT: Placement = Placement {
    one_context: false,
    priorities: true,
};
