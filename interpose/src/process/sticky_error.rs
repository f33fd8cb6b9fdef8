//! Reports the first error after which a process gets no more work done, in its client page. One
//! atomic, no system call: the daemon polls it. The application gets the driver's result.

use abi::types::CUresult;
use client::ending;

use crate::process::Client;

#[cold]
pub(crate) fn handle_failure(client: Option<&Client>, result: CUresult) {
    if let Some(client) = client.filter(|_| result.is_sticky()) {
        ending::tell_sticky(&client.page, result.0);
    }
}
