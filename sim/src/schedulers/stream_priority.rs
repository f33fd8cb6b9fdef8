//! `stream-priority`: all jobs as threads of one process, a stream each, the high-priority job's
//! with the greater priority; every launch goes at once. The Orion paper's baseline "Streams": "We
//! assign a high-priority stream to the high-priority job, and a default-priority stream to each of
//! the best-effort jobs." Blocks of a waiting high-priority kernel start before those of others
//! (where [`softgpu::Config::block_priority`] is on); running blocks stay. One process has no time
//! slices: only with sharing MPS.

use crate::scheduler::Placement;

pub(super) const PLACEMENT: Placement = Placement {
    one_context: true,
    priorities: true,
};
