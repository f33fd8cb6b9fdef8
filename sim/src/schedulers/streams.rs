//! `streams`: all jobs are threads of a process, one stream each, no priority; launches go at once:
//! NVIDIA's own way to share a GPU inside one program. On the model it equals [`mps`](super::mps).
//! On a real machine the two differ by the host (threads of one Python interpreter take turns,
//! Orion §6.2.1), which has no lock here, and by the driver's behaviour between processes, which is
//! assumed to be that between streams. The Orion paper's baseline of this name gives the
//! high-priority job a high-priority stream; that is [`stream-priority`](super::stream_priority).
//! Only with MPS: one process has no time slices.

use crate::scheduler::Placement;

pub(super) const PLACEMENT: Placement = Placement {
    one_context: true,
    priorities: false,
};
