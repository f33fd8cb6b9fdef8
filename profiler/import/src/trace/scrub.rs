//! A copy of a trace with only an import's data. A trace holds stacks of Python with the paths of
//! sources, names of hosts and processes, environment and arguments. So a new trace gets the events
//! and arguments that an import reads, and the GPUs' figures. The program's names of kernels and
//! ranges stay; a named thread or stream gets a number.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::event::{Args, Device, Event, List, Number, Text};
use super::lenient::Lenient;
use super::walk::{Visit, walk};
use super::work;
use crate::Context;
use crate::error::Error;
use crate::input::Input;

pub(crate) fn scrub(path: &Path, to: impl Write, context: &mut Context<'_>) -> Result<(), Error> {
    let mut lenient = Lenient::new(Input::open(path, context.limits.bytes_max)?);
    let mut scrubber = Scrubber {
        path,
        to,
        events: 0,
        words: HashMap::new(),
        devices: Vec::new(),
    };
    scrubber.write("{\"traceEvents\": [")?;
    let walked = walk(&mut lenient, &mut scrubber, context);
    if let Some(failure) = walked.failure {
        return Err(failure);
    }
    if let Some(error) = walked.broken.filter(serde_json::Error::is_io) {
        return Err(lenient.error(error.into()));
    }
    // An open list was accepted before, so its content is wanted.
    let devices: Vec<Value> = scrubber.devices.iter().map(device).collect();
    let end = format!("\n], \"deviceProperties\": {}}}\n", Value::from(devices));
    scrubber.write(&end)?;
    scrubber.to.flush().map_err(|error| unwritten(path, error))
}

fn unwritten(path: &Path, source: io::Error) -> Error {
    Error::not_copied(path, source)
}

struct Scrubber<'a, W> {
    path: &'a Path,
    to: W,
    events: u64,
    words: HashMap<u64, usize>,
    devices: Vec<Device>,
}

impl<W: Write> Visit for Scrubber<'_, W> {
    fn event(&mut self, event: Event) -> Result<(), Error> {
        let Some(kept) = self.kept(&event) else {
            return Ok(());
        };
        let between = if self.events == 0 { "\n" } else { ",\n" };
        self.events += 1;
        self.write(&format!("{between}{kept}"))
    }

    fn devices(&mut self, devices: Vec<Device>) {
        self.devices = devices;
    }
}

impl<W: Write> Scrubber<'_, W> {
    fn write(&mut self, text: &str) -> Result<(), Error> {
        let written = self.to.write_all(text.as_bytes());
        written.map_err(|error| unwritten(self.path, error))
    }

    fn kept(&mut self, event: &Event) -> Option<Value> {
        if *event.ph != "X" {
            return None;
        }
        let args = &event.args;
        let kept = match event.cat.as_str() {
            "kernel" | "Kernel" => json!({
                "ph": "X", "cat": "kernel", "name": *event.name,
                "ts": self.number(event.ts), "dur": self.number(event.dur), "args": self.launch(args),
            }),
            "cuda_runtime" | "cuda_driver" | "Runtime" | "runtime" => {
                args.correlation
                    .whole()
                    .filter(|_| event.name.contains("aunch"))?;
                json!({
                    "ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": self.number(event.pid),
                    "tid": self.number(event.tid), "ts": self.number(event.ts),
                    "args": {"correlation": self.number(args.correlation)},
                })
            }
            "user_annotation" => self.annotation(event),
            "cpu_op" | "Operator" if event.name.starts_with("ProfilerStep#") => {
                self.annotation(event)
            }
            "cpu_op" | "Operator" => {
                args.external_id.whole()?;
                work::of(&event.name, args)?;
                json!({"ph": "X", "cat": "cpu_op", "name": *event.name, "args": self.operator(args)})
            }
            _ => return None,
        };
        Some(kept)
    }

    fn launch(&mut self, args: &Args) -> Value {
        let mut kept = Map::new();
        for (key, number) in [
            ("External id", args.external_id),
            ("correlation", args.correlation),
            ("device", args.device),
            ("stream", args.stream),
            ("registers per thread", args.registers),
            ("shared memory", args.shared_memory),
        ] {
            if number != Number::None {
                kept.insert(key.to_owned(), self.number(number));
            }
        }
        for (key, shape) in [("grid", &args.grid), ("block", &args.block)] {
            if !shape.0.is_empty() {
                kept.insert(key.to_owned(), self.numbers(shape));
            }
        }
        kept.into()
    }

    fn annotation(&mut self, event: &Event) -> Value {
        json!({
            "ph": "X", "cat": "user_annotation", "name": *event.name, "pid": self.number(event.pid),
            "tid": self.number(event.tid), "ts": self.number(event.ts), "dur": self.number(event.dur),
        })
    }

    fn operator(&mut self, args: &Args) -> Value {
        let dims: Vec<Value> = args
            .input_dims
            .0
            .iter()
            .map(|dims| self.numbers(dims))
            .collect();
        // Names of types and lists of numbers; other arguments may be any text of the program.
        let texts = |list: &List<Text>, is_kept: fn(char) -> bool| -> Vec<String> {
            let kept = |text: &Text| text.chars().all(is_kept).then(|| text.to_string());
            list.0
                .iter()
                .map(|text| kept(text).unwrap_or_default())
                .collect()
        };
        let types = texts(&args.input_types, |c| {
            c.is_ascii_alphanumeric() || "_:".contains(c)
        });
        let concrete = texts(&args.concrete_inputs, |c| {
            c.is_ascii_digit() || "[], .-".contains(c)
        });
        json!({
            "External id": self.number(args.external_id), "Input Dims": dims, "Input type": types,
            "Concrete Inputs": concrete,
        })
    }

    fn numbers(&mut self, list: &List<Number>) -> Value {
        let numbers: Vec<Value> = list.0.iter().map(|&number| self.number(number)).collect();
        numbers.into()
    }

    fn number(&mut self, number: Number) -> Value {
        match number {
            Number::None => Value::Null,
            Number::Whole(number) => number.into(),
            Number::Real(number) => number.into(),
            Number::Word(hash) => {
                let next = self.words.len();
                format!("word {}", self.words.entry(hash).or_insert(next)).into()
            }
        }
    }
}

fn device(device: &Device) -> Value {
    let mut kept = Map::new();
    kept.insert("name".to_owned(), device.name.as_str().into());
    for (key, number) in device.figures() {
        match number {
            Number::Whole(number) => kept.insert(key.to_owned(), number.into()),
            Number::Real(number) => kept.insert(key.to_owned(), number.into()),
            Number::None | Number::Word(_) => None,
        };
    }
    kept.into()
}
