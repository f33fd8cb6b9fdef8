//! Errors after which a process gets no more work done: told to the daemon in its client page, the first one.
//!
//! One word, no system call: the daemon looks. What the application gets is what the driver said.

use core::sync::atomic::Ordering;

use abi::types::CUresult;

use crate::client::Client;

/// A call of the application has failed.
#[cold]
pub(crate) fn handle_failure(client: Option<&Client>, result: CUresult) {
    if !result.is_sticky() {
        return;
    }
    if let Some(client) = client {
        // Relaxed: the word stands for itself. The first error is the cause of those that follow.
        let word = &client.page.sticky;
        let _ = word.compare_exchange(0, result.0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
