//! An MPS server: a process of the user whose clients it serves. It only exists: while it lives,
//! the device server assigns the clients' contexts to it. It exits at the end of its standard
//! input, by which its control daemon ends it, also when the control daemon is killed, a case that
//! NVIDIA does not document.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use softgpu::wire::MpsRequest;

use crate::device;
use crate::log::Log;

/// Its output on standard output when it is ready.
pub(crate) const READY: &[u8] = b"ready\n";

pub(crate) fn run() -> ExitCode {
    let log = Log::on_stderr();
    log.write("Startup");
    log.write("Initializing server process");
    let Ok(socket) = device::register(MpsRequest::Server) else {
        log.write("Driver initialization failed with: no CUDA-capable device is detected");
        log.write("Failed to start : no CUDA-capable device is detected");
        return ExitCode::FAILURE;
    };
    let mut output = std::io::stdout();
    if output
        .write_all(READY)
        .and_then(|()| output.flush())
        .is_err()
    {
        return ExitCode::FAILURE;
    }
    log.write("Server has started");
    let stdin = std::io::stdin();
    let mut ends =
        [&socket.as_fd(), &stdin.as_fd()].map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
    while rustix::io::retry_on_intr(|| poll(&mut ends, None)).is_ok() {
        let [device, daemon] = ends.each_ref().map(|end| !end.revents().is_empty());
        if daemon {
            return ExitCode::SUCCESS;
        }
        if device {
            break;
        }
    }
    ExitCode::FAILURE
}
