//! Memory and copies, counted when the driver has agreed.
//!
//! Device memory only: page-locked host memory is not the device's. A copy is counted in the
//! direction that its entry point names, and as "other" where the driver finds it out.

use abi::types::CUresult;
use protocol::pages::Counter;

use crate::client::Client;

/// An allocation of so many bytes was asked for.
pub(crate) fn handle_allocated(client: Option<&Client>, result: CUresult, bytes: usize) {
    if let Some(client) = agreed(client, result) {
        client.page.count(Counter::Allocations, 1);
        client.page.count(Counter::AllocatedBytes, bytes as u64);
    }
}

/// An allocation was given back; freeing nothing is allowed and not counted.
pub(crate) fn handle_freed(client: Option<&Client>, result: CUresult, address: u64) {
    if let Some(client) = agreed(client, result).filter(|_| address != 0) {
        client.page.count(Counter::Frees, 1);
    }
}

/// A copy was asked for; `direction` is one of the counters of copied bytes.
pub(crate) fn handle_copied(
    client: Option<&Client>,
    result: CUresult,
    direction: Counter,
    bytes: usize,
) {
    if let Some(client) = agreed(client, result) {
        client.page.count(Counter::Copies, 1);
        client.page.count(direction, bytes as u64);
    }
}

/// `count` values of `width` bytes were to be set.
pub(crate) fn handle_set(client: Option<&Client>, result: CUresult, count: usize, width: u64) {
    if let Some(client) = agreed(client, result) {
        let bytes = (count as u64).saturating_mul(width);
        client.page.count(Counter::SetBytes, bytes);
    }
}

fn agreed(client: Option<&Client>, result: CUresult) -> Option<&Client> {
    client.filter(|_| result == CUresult::SUCCESS)
}
