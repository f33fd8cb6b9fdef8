//! Which job a process is of.

use protocol::hello::JobClass;

/// The process that attaches, as the kernel vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 if it cannot be seen from here (another PID namespace).
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

/// What makes a job: clients that say the same of these are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobKey {
    pub(crate) id: String,
    /// A job is one user's: nobody joins, and so spends, another's.
    pub(crate) uid: u32,
    pub(crate) class: JobClass,
}

/// A process that names no job is one by itself.
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
