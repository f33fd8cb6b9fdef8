//! Which job a process belongs to.

use protocol::hello::JobClass;

/// The attaching process, as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 if invisible from here (another PID namespace).
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

/// Identity of a job: clients with equal keys belong to one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobKey {
    pub(crate) id: String,
    /// A job belongs to one user, so that nobody joins, and spends, another's.
    pub(crate) uid: u32,
    pub(crate) class: JobClass,
}

/// A process that names no job is a job by itself.
pub(crate) fn job_key(job: &str, class: JobClass, peer: Peer) -> JobKey {
    let id = if job.is_empty() {
        format!("pid-{}", peer.pid)
    } else {
        job.to_owned()
    };
    JobKey {
        id,
        uid: peer.uid,
        class,
    }
}
