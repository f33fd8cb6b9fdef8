//! Output format of a trace ([`protocol::trace`]): a line of JSON, then its entries.

use policy::Limit;
use protocol::trace::{ENTRY_BYTES, HEADER_END, SCHEMA_VERSION};
use serde::Serialize;

use crate::core::state::Traced;
use crate::report::status::Identity;

#[derive(Debug, Serialize)]
struct Header {
    schema_version: u32,
    gpu: String,
    model: String,
    sms: u32,
    daemon_version: &'static str,
    began_ns: u64,
    ended_ns: u64,
    /// It ended at [`protocol::trace::ENTRIES_MAX`].
    is_full: bool,
    /// Records missing because their thread's ring was full.
    dropped: u64,
    jobs: Vec<Job>,
    clients: Vec<Client>,
    /// Names of the rules that hold best-effort work, in the order of their numbers.
    limits: Vec<&'static str>,
    kernels: Vec<Kernel>,
}

#[derive(Debug, Serialize)]
struct Job {
    job: String,
    class: &'static str,
    uid: u32,
}

#[derive(Debug, Serialize)]
struct Client {
    client: u64,
    job: u32,
    /// 0: invisible from the daemon.
    pid: u32,
    name: String,
}

#[derive(Debug, Serialize)]
struct Kernel {
    client: u64,
    kernel: u64,
    name: String,
}

pub(crate) fn document(traced: Traced, identity: &Identity, sms: u32) -> Vec<u8> {
    let header = Header {
        schema_version: SCHEMA_VERSION,
        gpu: identity.gpu.uuid.clone(),
        model: identity.gpu.name.clone(),
        sms,
        daemon_version: env!("CARGO_PKG_VERSION"),
        began_ns: traced.began_ns,
        ended_ns: traced.ended_ns,
        is_full: traced.is_full,
        dropped: traced.dropped,
        jobs: traced
            .jobs
            .into_iter()
            .map(|key| Job {
                job: key.id,
                class: key.class.name(),
                uid: key.uid,
            })
            .collect(),
        clients: traced
            .clients
            .into_iter()
            .map(|client| Client {
                client: client.id,
                job: client.job,
                pid: client.pid,
                name: client.name,
            })
            .collect(),
        limits: Limit::ALL.iter().map(|limit| limit.name()).collect(),
        kernels: traced
            .kernels
            .into_iter()
            .map(|((client, kernel), name)| Kernel {
                client,
                kernel,
                name,
            })
            .collect(),
    };
    // Only text and numbers: serialising cannot fail.
    let mut bytes = serde_json::to_vec(&header).unwrap_or_default();
    bytes.push(HEADER_END);
    let entries = traced.entries.iter().map(Vec::len).sum::<usize>();
    bytes.reserve(entries * ENTRY_BYTES);
    for word in traced.entries.iter().flatten().flatten() {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}
