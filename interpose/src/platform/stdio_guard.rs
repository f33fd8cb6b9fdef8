//! Keeps the three standard descriptors for the application, also where it has closed them. A
//! descriptor gets the lowest free number. A process without standard output that touches CUDA
//! would get our connection as its standard output and print into it; during the attach, it would
//! print into shared pages. So while we open something, the closed ones of the three are occupied.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Input, output, error.
const STANDARD: usize = 3;

#[derive(Debug)]
pub(crate) struct Occupied {
    _placeholders: Vec<OwnedFd>,
}

impl Occupied {
    /// Occupies the free ones. A process that may open nothing more gets nothing from us anyway.
    pub(crate) fn new() -> Self {
        let mut placeholders = Vec::new();
        for _ in 0..STANDARD {
            // A socket: a process that may not make one cannot talk to a daemon either. Also,
            // writes of a thread that does not know that its output is closed fail.
            let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
            match socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None) {
                Ok(fd) if (fd.as_raw_fd() as usize) < STANDARD => placeholders.push(fd),
                _ => break,
            }
        }
        Self {
            _placeholders: placeholders,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_held_where_all_are_open() {
        // The test runner keeps its own three open.
        assert!(Occupied::new()._placeholders.is_empty());
    }
}
