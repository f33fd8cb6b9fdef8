//! A daemon that has accepted a client, for the log.

use core::fmt;
use std::path::PathBuf;

use protocol::hello::JobClass;

pub(crate) struct Met {
    pub(super) socket: PathBuf,
    pub(super) number: u64,
    pub(super) class: JobClass,
    pub(super) keeps: bool,
    pub(super) kernels: usize,
    pub(crate) is_first: bool,
}

impl fmt::Display for Met {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = if self.is_first { "" } else { " again" };
        let kernels = if self.kernels == 1 {
            "kernel"
        } else {
            "kernels"
        };
        write!(
            formatter,
            "attached{again} to {} as {} client {}, {} {kernels} known",
            self.socket.display(),
            self.class.name(),
            self.number,
            self.kernels
        )
    }
}
