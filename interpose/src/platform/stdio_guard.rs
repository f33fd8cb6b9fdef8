//! The three standard descriptors are the application's, also where it has closed them.
//!
//! A descriptor gets the lowest free number. A process without standard output that touches CUDA
//! would have our connection as its standard output, and print into it; and while it attaches, pages
//! that are shared with others would lie there. So while we open something, what is closed of the
//! three is kept occupied.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// How many there are: input, output, error.
const STANDARD: usize = 3;

/// Holds those of the three that are closed, until it is dropped.
#[derive(Debug)]
pub(crate) struct Occupied {
    _placeholders: Vec<OwnedFd>,
}

impl Occupied {
    /// Takes what is free. A process that may open nothing more gets nothing from us anyway.
    pub(crate) fn new() -> Self {
        let mut placeholders = Vec::new();
        for _ in 0..STANDARD {
            // A socket, because whoever may not make one will not talk to a daemon either. Writes of
            // a thread that does not know that its output is closed fail here, too.
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
