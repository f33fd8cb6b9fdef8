//! How much this process has submitted to the driver, as far as hooks see it.

use crate::process::Client;

/// Operations, queries included, that the client's process has submitted so far. Modulo 2^32.
pub(crate) fn submitted(client: &Client) -> u32 {
    use protocol::pages::Counter::{
        CopyCalls, GraphCalls, GraphLaunches, HostCalls, Launches, MemoryCalls, OtherCalls,
        StreamCalls, SyncCalls,
    };
    let counters = [
        CopyCalls,
        GraphCalls,
        GraphLaunches,
        HostCalls,
        Launches,
        MemoryCalls,
        OtherCalls,
        StreamCalls,
        SyncCalls,
    ];
    let counts = counters.map(|counter| client.page.counted(counter));
    counts.into_iter().fold(0, u64::wrapping_add) as u32
}
