//! The exit code and message of a command that failed.

use std::process::ExitCode;

use scheduler::report::told_once;

use crate::out;

#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    error: Option<anyhow::Error>,
}

/// Usage or unusable input; nothing was written.
const USAGE: u8 = 2;
/// 128 + SIGPIPE: a shell's exit code for a program whose output nobody reads any more.
const UNREAD: u8 = 141;
/// `EX_UNAVAILABLE` of sysexits.h: the daemon is required and not reachable.
const UNAVAILABLE: u8 = 69;

impl Failure {
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: USAGE,
            error: Some(error.into()),
        }
    }

    pub(crate) fn unavailable(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: UNAVAILABLE,
            error: Some(error.into()),
        }
    }

    /// Another exit code with a meaning of its own.
    pub(crate) fn with_code(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self {
            code,
            error: Some(error.into()),
        }
    }

    /// Exit 1, where the output has given the reason.
    pub(crate) fn silent() -> Self {
        Self {
            code: 1,
            error: None,
        }
    }

    /// Exits silently with the code of a job that the command ran.
    pub(crate) fn ended(code: u8) -> Self {
        Self { code, error: None }
    }

    /// The reason in one line; empty if the output has given it.
    pub(crate) fn why(&self) -> String {
        let error = self.error.as_ref();
        error.map_or_else(String::new, |error| told_once(error.as_ref()))
    }

    /// Nobody reads the output any more: silent, exit 141.
    pub(crate) fn unread() -> Self {
        Self {
            code: UNREAD,
            error: None,
        }
    }

    pub(crate) fn report(&self) -> ExitCode {
        if let Some(error) = &self.error {
            out::note(format_args!("pillion: {}", told_once(error.as_ref())));
        }
        ExitCode::from(self.code)
    }
}

/// Any other error: exit 1.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            code: 1,
            error: Some(error.into()),
        }
    }
}
