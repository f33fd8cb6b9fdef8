//! Writes timelines for Perfetto: the Trace Event Format, "JSON object format", a line per event. A
//! *process* is a named row of the display, a *track* a line in it. Times are ns here and
//! microseconds with three decimals in the file, exactly.

use std::fmt::Write as _;

use serde_json::Value;

#[derive(Debug, Default)]
pub(crate) struct Writer {
    text: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Track {
    pub(crate) pid: u64,
    pub(crate) tid: u64,
}

impl Writer {
    /// The whole document; `other` holds further information for a reader.
    pub(crate) fn document(self, other: &Value) -> String {
        format!(
            "{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":[\n{}\n]}}\n",
            self.text
        )
    }

    pub(crate) fn name_process(&mut self, pid: u64, name: &str) {
        self.named(Track { pid, tid: 0 }, "process_name", name);
    }

    pub(crate) fn name_track(&mut self, track: Track, name: &str) {
        self.named(track, "thread_name", name);
    }

    fn named(&mut self, Track { pid, tid }: Track, what: &str, name: &str) {
        let name = Value::from(name);
        self.event(&format!(
            "\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{what}\",\"args\":{{\"name\":{name}}}"
        ));
    }

    /// An interval; intervals of one track must not overlap. Null is no `args`.
    pub(crate) fn span(
        &mut self,
        Track { pid, tid }: Track,
        (cat, name): (&str, &str),
        (start_ns, end_ns): (u64, u64),
        args: &Value,
    ) {
        let (ts, dur) = (us(start_ns), us(end_ns - start_ns));
        let name = Value::from(name);
        let args = match args {
            Value::Null => String::new(),
            args => format!(",\"args\":{args}"),
        };
        self.event(&format!(
            "\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"dur\":{dur},\"cat\":\"{cat}\",\"name\":{name}{args}"
        ));
    }

    /// A request, which may overlap others of its track. `id` is its number in the process.
    pub(crate) fn request(
        &mut self,
        Track { pid, tid }: Track,
        id: u64,
        name: &str,
        span_ns: (u64, u64),
    ) {
        let name = Value::from(name);
        for (ph, at_ns) in [("b", span_ns.0), ("e", span_ns.1)] {
            let ts = us(at_ns);
            self.event(&format!(
                "\"ph\":\"{ph}\",\"cat\":\"request\",\"id\":\"{pid}.{id}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"name\":{name}"
            ));
        }
    }

    /// SMs with work from a moment on.
    pub(crate) fn busy_sms(&mut self, pid: u64, at_ns: u64, sms: u64) {
        let ts = us(at_ns);
        self.event(&format!(
            "\"ph\":\"C\",\"pid\":{pid},\"tid\":0,\"ts\":{ts},\"name\":\"busy SMs\",\"args\":{{\"SMs\":{sms}}}"
        ));
    }

    fn event(&mut self, fields: &str) {
        let comma = if self.text.is_empty() { "" } else { ",\n" };
        // Writing to a string does not fail.
        let _ = write!(self.text, "{comma}{{{fields}}}");
    }
}

fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}
