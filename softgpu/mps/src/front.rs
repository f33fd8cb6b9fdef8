//! The program without arguments: commands on standard input, answers on standard output.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use protocol::hello::{connect_to, receive, send};

/// Prefix of a command, so that no packet is empty.
pub(crate) const COMMAND: u8 = b'>';
/// First byte of an answer after which more commands may follow.
pub(crate) const GO_ON: u8 = 0;
/// First byte of the answer to `quit`: the exit status follows.
pub(crate) const ENDED: u8 = 1;

/// Talks to the daemon that listens at `socket`. Like NVIDIA's, it connects before it reads any
/// input, and waits for the daemon without a timeout.
pub(crate) fn run(socket: &Path) -> ExitCode {
    let Ok(daemon) = connect_to(socket) else {
        eprintln!("Cannot find MPS control daemon process");
        return ExitCode::FAILURE;
    };
    let mut output = std::io::stdout();
    for line in std::io::stdin().lock().split(b'\n') {
        let Ok(line) = line else { break };
        let command = [&[COMMAND], &line[..]].concat();
        let answer = send(&daemon, &command, &[]).and_then(|()| receive(&daemon));
        let answer = answer.map(|(answer, _)| answer).unwrap_or_default();
        match answer.split_first() {
            Some((&GO_ON, text)) => {
                let written = output.write_all(text).and_then(|()| output.flush());
                if written.is_err() {
                    return ExitCode::FAILURE;
                }
            }
            Some((&ENDED, status)) => return status.first().map_or(1, |&status| status).into(),
            _ => {
                eprintln!("Cannot send command to MPS control daemon process");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
