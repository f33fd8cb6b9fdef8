//! A daemon that has taken a client, as people are told of it.

use core::fmt;
use std::path::PathBuf;

use protocol::hello::JobClass;

/// A daemon that has taken a client.
pub(crate) struct Met {
    pub(super) socket: PathBuf,
    /// The client's number there.
    pub(super) number: u64,
    pub(super) class: JobClass,
    /// It keeps what is learnt of kernels.
    pub(super) keeps: bool,
    pub(super) kernels: usize,
    /// None has before.
    pub(crate) is_first: bool,
}

impl fmt::Display for Met {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "attached to {} as {} client {}, {} kernels known",
            self.socket.display(),
            self.class.name(),
            self.number,
            self.kernels
        )
    }
}
