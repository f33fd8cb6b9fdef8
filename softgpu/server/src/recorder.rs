//! A file of what the device ran: `--record`. It has a line of tab-separated fields for each
//! completed operation that took time:
//! - `kernel`, label, stream, start, end, blocks, threads per block
//! - `h2d`, `d2h`, `d2d` or `set`, label, stream, start, end, bytes
//! - `sms`, since when, number of SMs with at least one block (a mean if less is known)
//! - `use`, label, process id, time, time in which the process has computed so far, SMs with a
//!   block of the process × time; six times a second, and less often if nothing happens
//!
//! Times are ns of the device. The record affects neither counters nor times; it has no size limit.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use softgpu::{Completion, ContextUtilisation, CopyDirection, OpKind};

use crate::client::Effect;

#[derive(Debug)]
pub(crate) struct Recorder {
    out: BufWriter<File>,
    /// The last sample of the integral, and the rate before it.
    at_ns: u64,
    busy_sm_ns: u64,
    sms: Option<u64>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl Recorder {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            out: BufWriter::new(File::create(path)?),
            at_ns: 0,
            busy_sm_ns: 0,
            sms: None,
            failed: None,
        })
    }

    /// Writes an operation that a process of `label` completed.
    pub(crate) fn handle_completion(
        &mut self,
        label: &str,
        completion: &Completion,
        effect: &Effect,
    ) {
        let word = match completion.kind {
            OpKind::Kernel => "kernel",
            OpKind::Copy(CopyDirection::HostToDevice) => "h2d",
            OpKind::Copy(CopyDirection::DeviceToHost) => "d2h",
            OpKind::Copy(CopyDirection::DeviceToDevice) => "d2d",
            OpKind::Memset => "set",
            OpKind::Marker | OpKind::Wait | OpKind::Hold => return,
        };
        let label: String = label.chars().filter(|c| !c.is_control()).collect();
        let Completion {
            stream,
            started_ns,
            at_ns,
            ..
        } = completion;
        let size = size_of_effect(effect);
        let line = writeln!(
            self.out,
            "{word}\t{label}\t{}\t{started_ns}\t{at_ns}\t{size}",
            stream.0
        );
        self.note(line);
    }

    pub(crate) fn handle_use(&mut self, label: &str, pid: u32, at_ns: u64, of: ContextUtilisation) {
        let label: String = label.chars().filter(|c| !c.is_control()).collect();
        let (busy_ns, busy_sm_ns) = (of.busy_ns, of.busy_sm_ns);
        let line = writeln!(
            self.out,
            "use\t{label}\t{pid}\t{at_ns}\t{busy_ns}\t{busy_sm_ns}"
        );
        self.note(line);
    }

    /// The integral of busy SMs at `now_ns`. Nothing changes between two events of the device, so a
    /// call at each of them yields exact numbers.
    pub(crate) fn sample(&mut self, now_ns: u64, busy_sm_ns: u64) {
        let Some(passed_ns) = now_ns.checked_sub(self.at_ns).filter(|&ns| ns > 0) else {
            return;
        };
        let sms = (busy_sm_ns - self.busy_sm_ns).div_ceil(passed_ns);
        if self.sms != Some(sms) {
            let line = writeln!(self.out, "sms\t{}\t{sms}", self.at_ns);
            self.note(line);
            self.sms = Some(sms);
        }
        (self.at_ns, self.busy_sm_ns) = (now_ns, busy_sm_ns);
    }

    /// Flushes the file; returns the first error.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    fn note(&mut self, line: io::Result<()>) {
        if let Err(error) = line {
            self.failed.get_or_insert(error);
        }
    }
}

fn size_of_effect(effect: &Effect) -> String {
    match effect {
        Effect::Kernel {
            blocks, threads, ..
        } => format!("{blocks}\t{threads}"),
        Effect::Memory(work) => work.bytes().unwrap_or(0).to_string(),
        Effect::None | Effect::Free { .. } | Effect::Event { .. } | Effect::HostCall { .. } => {
            "0".to_owned()
        }
    }
}
