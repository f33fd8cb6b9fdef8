//! Errors after which a process gets no more work done: told to the daemon in its client page, the
//! first one.
//!
//! One word, no system call: the daemon looks. What the application gets is what the driver said.

use abi::types::CUresult;
use client::ending;

use crate::process::Client;

/// A call of the application has failed.
#[cold]
pub(crate) fn handle_failure(client: Option<&Client>, result: CUresult) {
    if let Some(client) = client.filter(|_| result.is_sticky()) {
        ending::tell_sticky(&client.page, result.0);
    }
}
