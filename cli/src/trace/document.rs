//! Parses a trace as the daemon delivers it.

use std::collections::HashMap;

use anyhow::{Context, bail};
use protocol::record::Record;
use protocol::trace::{ENTRY_BYTES, Entry, HEADER_END, SCHEMA_VERSION};
use serde::Deserialize;

/// The first line: the subject of the trace.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Header {
    /// UUID of the GPU.
    pub(super) gpu: String,
    pub(super) model: String,
    pub(super) sms: u32,
    pub(super) daemon_version: String,
    /// On the shared clock, ns.
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) is_full: bool,
    pub(super) dropped: u64,
    pub(super) jobs: Vec<Job>,
    pub(super) clients: Vec<Client>,
    pub(super) limits: Vec<String>,
    kernels: Vec<Kernel>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Job {
    pub(super) job: String,
    pub(super) class: String,
    pub(super) uid: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Client {
    pub(super) client: u64,
    /// Index of its job.
    pub(super) job: usize,
    /// 0: unknown.
    pub(super) pid: u32,
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
struct Kernel {
    client: u64,
    kernel: u64,
    name: String,
}

#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) header: Header,
    /// In the order in which the daemon recorded them.
    pub(super) entries: Vec<Entry>,
    /// By client and kernel.
    pub(super) kernels: HashMap<(u64, u64), String>,
}

impl Document {
    pub(super) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let end = bytes.iter().position(|&byte| byte == HEADER_END);
        let end = end.context("the first line is missing")?;
        let version: Version = serde_json::from_slice(&bytes[..end])?;
        let version = version.schema_version;
        if version != SCHEMA_VERSION {
            bail!("its version is {version}, but this program reads version {SCHEMA_VERSION}");
        }
        let mut header: Header = serde_json::from_slice(&bytes[..end])?;
        if header.ended_ns < header.began_ns {
            bail!("it ends before it begins");
        }
        let rest = &bytes[end + 1..];
        if !rest.len().is_multiple_of(ENTRY_BYTES) {
            bail!("its last entry is incomplete");
        }
        let entries = Entry::decode_all(rest).collect::<Result<_, _>>()?;
        let kernels = std::mem::take(&mut header.kernels);
        let kernels = kernels.into_iter();
        Ok(Self {
            header,
            entries,
            kernels: kernels
                .map(|known| ((known.client, known.kernel), known.name))
                .collect(),
        })
    }
}

impl Document {
    /// Cuts the end, to about this share of the entries, and to fewer than before.
    pub(super) fn shorten(&mut self, share: f64) {
        let last = (self.entries.len() as f64 * share) as usize;
        let ended_ns = self.entries.get(last).map_or(self.header.began_ns, at_ns);
        self.entries.truncate(last);
        self.entries.retain(|entry| at_ns(entry) <= ended_ns);
        self.header.ended_ns = ended_ns.clamp(self.header.began_ns, self.header.ended_ns);
        self.header.is_full = true;
    }
}

/// When it happened; of a request, when it ended.
fn at_ns(entry: &Entry) -> u64 {
    match entry {
        Entry::Record {
            read_ns, record, ..
        } => {
            let at_ns = match record {
                Record::Launch(launch) => launch.at_ns,
                Record::Memcpy(copy) => copy.at_ns,
                Record::Complete { at_ns, .. } => *at_ns,
                _ => 0,
            };
            if at_ns == 0 { *read_ns } else { at_ns }
        }
        Entry::Lease(lease) => lease.at_ns,
        Entry::Request(request) => request.ended_ns,
    }
}

#[derive(Deserialize)]
struct Version {
    schema_version: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"schema_version":1,"gpu":"GPU-1","model":"A30","sms":56,"daemon_version":"0.1.0","began_ns":1,"ended_ns":2,"is_full":false,"dropped":0,"jobs":[],"clients":[],"limits":["ungated"],"kernels":[{"client":1,"kernel":7,"name":"gemm"}]}"#;

    #[test]
    fn what_cannot_be_a_trace_is_refused_in_words() {
        let whole = format!("{HEADER}\n").into_bytes();
        let read = Document::parse(&whole).unwrap();
        assert_eq!(read.kernels[&(1, 7)], "gemm");
        assert_eq!(read.entries.len(), 0);
        let other = HEADER.replace("\"schema_version\":1", "\"schema_version\":2");
        let early = HEADER.replace("\"ended_ns\":2", "\"ended_ns\":0");
        for (bytes, part) in [
            (HEADER.as_bytes().to_vec(), "first line is missing"),
            (format!("{other}\n").into_bytes(), "its version is 2"),
            (
                format!("{HEADER}\nrest").into_bytes(),
                "last entry is incomplete",
            ),
            (format!("{early}\n").into_bytes(), "ends before it begins"),
        ] {
            let why = Document::parse(&bytes).unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
    }
}
