//! Throughputs of training jobs, alone and in pairs, as the authors of *Gavel* measured them, and
//! their job traces. Origin: github.com/stanford-futuredata/gavel (OSDI 2020). Licence: MIT; the
//! arrivals of the traces are those of Philly, CC-BY-4.0. Throughputs are JSON: `{gpu: {job:
//! {"null": alone, other: [this, beside]}}}`, all in steps per second. A job is written as a tuple
//! of Python, `('ResNet-18 (batch size 16)', 1)`: its type, and its scale factor, the number of its
//! GPUs. The pairs ran under MPS. A pair with 0 for both did not run; the file does not say why.
//! GPUs are `k80`, `p100` and `v100`, each also with the suffix `_unconsolidated`: the job's GPUs
//! are then in several machines.
//!
//! A job trace is a table with tabs and without a header, in one of three forms, which its authors'
//! program had one after the other:
//! - of seven columns, as in `103959.trace`: job type, command, argument that takes the steps, need
//!   of data (0 or 1), total steps, arrival time (s), scale factor;
//! - of nine: job type, command, argument that takes the steps, need of data, total steps, scale
//!   factor, priority weight, SLO, arrival time (s);
//! - of ten: as of nine, with the working directory after the command.
//!
//! The last two forms are tested only with rows written by hand, for lack of a file.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::table::{Table, cut, text_of};
use super::{JOB_GPUS_MAX, ROWS_MAX, SECONDS_MAX, STEPS_MAX, TraceError};

/// A job as throughputs name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScaledType {
    /// Its type: `ResNet-18 (batch size 16)`.
    pub job_type: String,
    /// How many GPUs it has.
    pub scale_factor: u32,
}

/// The measured throughput of a job on one model of GPU, alone or beside one other.
#[derive(Clone, Debug, PartialEq)]
pub struct Throughput {
    /// The model of GPU.
    pub gpu: String,
    /// The job.
    pub job: ScaledType,
    /// The job beside it; None if it was alone.
    pub other: Option<ScaledType>,
    /// Steps of the job per second.
    pub this_per_s: f64,
    /// Steps of the other per second, if there was one.
    pub other_per_s: Option<f64>,
}

/// A job of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its type, as in throughputs.
    pub job_type: String,
    /// How many steps it has.
    pub total_steps: u64,
    /// How many GPUs it asks for.
    pub scale_factor: u32,
    /// When it arrives, since the start of the trace.
    pub arrival_s: f64,
}

/// Reads throughputs, in the order of the file.
pub fn throughputs(file: &str, bytes: &[u8]) -> Result<Vec<Throughput>, TraceError> {
    let text = text_of(file, bytes)?;
    let gpus: Gpus = serde_json::from_str(text).map_err(|error| refuse(file, &error))?;
    let measured = |(gpu, jobs): (String, Jobs)| {
        jobs.0
            .into_iter()
            .flat_map(move |(job, Measurements(all))| {
                let gpu = gpu.clone();
                all.into_iter().map(move |measurement| Throughput {
                    gpu: gpu.clone(),
                    job: job.clone(),
                    other: measurement.other,
                    this_per_s: measurement.this_per_s,
                    other_per_s: measurement.other_per_s,
                })
            })
    };
    let rows: Vec<Throughput> = gpus
        .0
        .into_iter()
        .flat_map(measured)
        .take(ROWS_MAX + 1)
        .collect();
    if rows.len() > ROWS_MAX {
        return Err(TraceError::TooManyRows {
            file: file.to_owned(),
            line: 1,
            rows_max: ROWS_MAX,
        });
    }
    Ok(rows)
}

/// Reads a job trace, in the order of the file.
pub fn jobs(file: &str, bytes: &[u8]) -> Result<Vec<Job>, TraceError> {
    let mut table = Table::tabs(file, bytes, JOBS)?;
    let [job_type, steps, scale, arrival] = match table.width() {
        7 => {
            let [job_type, .., steps, arrival, scale] = table.by_position(SEVEN)?;
            [job_type, steps, scale, arrival]
        }
        9 => {
            let [job_type, .., steps, scale, _, _, arrival] = table.by_position(NINE)?;
            [job_type, steps, scale, arrival]
        }
        10 => {
            let [job_type, .., steps, scale, _, _, arrival] = table.by_position(TEN)?;
            [job_type, steps, scale, arrival]
        }
        _ => return Err(table.refuse_width("7, 9 or 10")),
    };
    table.rows(|row| {
        Ok(Job {
            job_type: row.text(&job_type)?,
            total_steps: row.whole(&steps, 0..=STEPS_MAX)?,
            scale_factor: row.whole(&scale, 1..=JOB_GPUS_MAX)?,
            arrival_s: row.number(&arrival, SECONDS_MAX)?,
        })
    })
}

type Gpus = Pairs<String, Jobs>;
type Jobs = Pairs<ScaledType, Measurements>;

/// The members of an object in their order. A repeated name is refused.
struct Pairs<K, V>(Vec<(K, V)>);

struct Measurements(Vec<Measurement>);

struct Rate(f64);

struct Measurement {
    other: Option<ScaledType>,
    this_per_s: f64,
    other_per_s: Option<f64>,
}

impl<'de, K, V> Deserialize<'de> for Pairs<K, V>
where
    K: Deserialize<'de> + Ord + Clone + fmt::Debug,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(PairsVisitor(PhantomData))
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for Measurements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MeasurementsVisitor).map(Self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_f64(RateVisitor)
    }
}

impl<'de> Deserialize<'de> for ScaledType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        scaled_type(&text).ok_or_else(|| {
            Error::custom(format!(
                "the job is {:?}: expected the form ('name', 1)",
                cut(&text)
            ))
        })
    }
}

struct PairsVisitor<K, V>(PhantomData<(K, V)>);

impl<'de, K, V> Visitor<'de> for PairsVisitor<K, V>
where
    K: Deserialize<'de> + Ord + Clone + fmt::Debug,
    V: Deserialize<'de>,
{
    type Value = Vec<(K, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut names = BTreeSet::new();
        let mut pairs = Vec::new();
        while let Some(name) = map.next_key::<K>()? {
            if !names.insert(name.clone()) {
                return Err(Error::custom(twice(&name)));
            }
            pairs.push((name, map.next_value()?));
        }
        Ok(pairs)
    }
}

struct MeasurementsVisitor;

impl<'de> Visitor<'de> for MeasurementsVisitor {
    type Value = Vec<Measurement>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut names = BTreeSet::new();
        let mut all = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(Error::custom(twice(&name)));
            }
            let measurement = if name == "null" {
                let Rate(this_per_s) = map.next_value()?;
                Measurement {
                    other: None,
                    this_per_s,
                    other_per_s: None,
                }
            } else {
                let other = scaled_type(&name);
                let wrong = || {
                    format!(
                        "the other job is {:?}: expected the form ('name', 1)",
                        cut(&name)
                    )
                };
                let other = other.ok_or_else(|| Error::custom(wrong()))?;
                let [Rate(this_per_s), Rate(other_per_s)] = map.next_value()?;
                Measurement {
                    other: Some(other),
                    this_per_s,
                    other_per_s: Some(other_per_s),
                }
            };
            all.push(measurement);
        }
        Ok(all)
    }
}

/// Refuses a rate while its number is read: a later error would have the line of the next token.
struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Rate, E> {
        if value.is_sign_positive() && value <= PER_S_MAX {
            return Ok(Rate(value));
        }
        let range = format!("0 to {PER_S_MAX} steps per second");
        Err(E::custom(format!("the rate is {value}: expected {range}")))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Rate, E> {
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Rate, E> {
        self.visit_f64(value as f64)
    }
}

/// A job as Python writes a tuple; names with quotes or backslashes are refused.
fn scaled_type(text: &str) -> Option<ScaledType> {
    let (job_type, scale_factor) = text
        .strip_prefix("('")?
        .strip_suffix(')')?
        .split_once("', ")?;
    let is_plain = !job_type.is_empty() && !job_type.contains(['\'', '"', '\\']);
    let is_number = scale_factor.bytes().all(|byte| byte.is_ascii_digit());
    let scale_factor = scale_factor
        .parse()
        .ok()
        .filter(|scale| (1..=JOB_GPUS_MAX).contains(scale));
    (is_plain && is_number).then_some(ScaledType {
        job_type: job_type.to_owned(),
        scale_factor: scale_factor?,
    })
}

fn twice(name: impl fmt::Debug) -> String {
    format!("{} occurs twice", cut(&format!("{name:?}")))
}

fn refuse(file: &str, error: &serde_json::Error) -> TraceError {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let place = format!(" at line {line} column {column}");
    TraceError::Json {
        file: file.to_owned(),
        line: line as u64,
        why: cut(message.strip_suffix(&place).unwrap_or(&message)),
        known: THROUGHPUTS.to_owned(),
    }
}

const THROUGHPUTS: &str = "the throughputs of Gavel, JSON {gpu: {\"('job', 1)\": {\"null\": rate, \
                           \"('other', 1)\": [rate, rate]}}}";

const JOBS: &str = "the jobs of Gavel, with tabs (job_type,command,num_steps_arg,needs_data_dir,\
                    total_steps,arrival_time,scale_factor or job_type,command,[working_directory,]\
                    num_steps_arg,needs_data_dir,total_steps,scale_factor,priority_weight,SLO,\
                    arrival_time)";

const SEVEN: [&str; 7] = [
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time",
    "scale_factor",
];

const NINE: [&str; 9] = [
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time",
];

const TEN: [&str; 10] = [
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time",
];

/// A step takes at least a nanosecond.
const PER_S_MAX: f64 = 1e9;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Throughput>, String> {
        throughputs("t.json", text.as_bytes()).map_err(|error| error.to_string())
    }

    fn job(job_type: &str, scale_factor: u32) -> ScaledType {
        ScaledType {
            job_type: job_type.to_owned(),
            scale_factor,
        }
    }

    #[test]
    fn throughputs_are_read_in_the_order_of_the_file() {
        let measured = r#""('B (batch size 16)', 2)": {"null": 4.5, "('A', 1)": [2.5, 3]}"#;
        let text = &format!("{{\"v100\": {{{measured}}}, \"k80\": {{}}}}");
        let row = |other, this_per_s, other_per_s| Throughput {
            gpu: "v100".to_owned(),
            job: job("B (batch size 16)", 2),
            other,
            this_per_s,
            other_per_s,
        };
        let expected = vec![row(None, 4.5, None), row(Some(job("A", 1)), 2.5, Some(3.0))];
        assert_eq!(read(text), Ok(expected.clone()));
        assert_eq!(read(&format!("\u{feff}{text}\r\n")), Ok(expected));
    }

    #[test]
    fn jobs_of_throughputs_are_read_strictly() {
        assert_eq!(scaled_type("('A3C', 1024)"), Some(job("A3C", 1024)));
        let wrong = [
            "A3C",
            "('A3C', 0)",
            "('A3C', 1025)",
            "('A3C', +1)",
            "('A3C', )",
            "('A3C',1)",
            "('A3C', 1) ",
            "(\"A3C\", 1)",
            "('', 1)",
            "('A', 'B', 1)",
            "('A\\n', 1)",
            "('A'",
        ];
        for text in wrong {
            assert_eq!(scaled_type(text), None, "{text}");
        }
    }

    #[test]
    fn throughputs_of_another_form_are_refused_with_their_line() {
        let line = |line: &str| format!("{{\"v100\": {{\n\"('A', 1)\": {{\n{line}\n}}}}}}");
        let cases = [
            (
                "\"null\": \"fast\"",
                "invalid type: string \"fast\", expected a rate",
            ),
            (
                "\"null\": -1",
                "the rate is -1: expected 0 to 1000000000 steps per second",
            ),
            ("\"null\": 1, \"null\": 2", "\"null\" occurs twice"),
            (
                "\"('B', 1)\": [1]",
                "invalid length 1, expected an array of length 2",
            ),
            ("\"('B', 1)\": [1, 2, 3]", "trailing characters"),
            (
                "\"('B', 0)\": [1, 2]",
                "the other job is \"('B', 0)\": expected the form ('name', 1)",
            ),
            ("\"null\": 1e999", "number out of range"),
        ];
        for (text, expected) in cases {
            let error = read(&line(text)).expect_err("a refusal");
            let expected = format!("t.json:3: {expected}: expected the throughputs of Gavel, JSON");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = read("{\n\"v100\": {\"A\": {}}}").expect_err("a refusal");
        assert!(
            error.starts_with("t.json:2: the job is \"A\": expected the form ('name', 1): "),
            "{error}"
        );
        let error = read("{\"a\": {},\n\"a\": {}}").expect_err("a refusal");
        assert!(
            error.starts_with("t.json:2: \"a\" occurs twice: expected"),
            "{error}"
        );
        let error = read("job_id,num_gpu\n").expect_err("a refusal");
        assert!(
            error.starts_with("t.json:1: expected value: expected the through"),
            "{error}"
        );
        assert!(read(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn jobs_of_seven_nine_and_ten_columns_are_read() {
        let expected = Job {
            job_type: "LM (batch size 80)".to_owned(),
            total_steps: 442_767,
            scale_factor: 2,
            arrival_s: 7_874_425.0,
        };
        let seven =
            "LM (batch size 80)\tcd %s \"&& python\t--steps\t1\t442767\t7874425.000000\t2\n";
        let read = jobs("j.trace", seven.as_bytes()).expect("jobs");
        assert_eq!(read, std::slice::from_ref(&expected));
        let nine = "LM (batch size 80)\tpython\t--steps\t1\t442767\t2\t1\t-1.000000\t7874425\n";
        let read = jobs("j.trace", nine.as_bytes()).expect("jobs");
        assert_eq!(read, std::slice::from_ref(&expected));
        let ten = "LM (batch size 80)\tpython\tlm\t--steps\t1\t442767\t2\t1\t-1.000000\t7874425\n";
        assert_eq!(jobs("j.trace", ten.as_bytes()).expect("jobs"), [expected]);
    }

    #[test]
    fn jobs_of_another_form_are_refused() {
        let refused = |text: &str| {
            let read = jobs("j.trace", text.as_bytes());
            read.expect_err("a refusal").to_string()
        };
        let error = refused("job_id,num_gpu\n");
        let expected =
            "j.trace:1: the header \"job_id,num_gpu\" is of another form: expected the jobs";
        assert!(error.starts_with(expected), "{error}");
        let error = refused("A\tb\t-n\t1\n");
        let expected =
            "j.trace:1: the row has 4 columns: expected 7, 9 or 10, as in the jobs of Gavel";
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(
            refused("A\tb\t-n\t1\t5\t0\t1\nA\tb\t-n\t1\t5\t0\t0\n"),
            "j.trace:2: scale_factor is \"0\": expected a whole number from 1 to 1024"
        );
        assert_eq!(
            refused("A\tb\t-n\t1\t5.5\t0\t1\n"),
            "j.trace:1: total_steps is \"5.5\": expected a whole number from 0 to 9007199254740992"
        );
        assert_eq!(
            refused("A\tb\t-n\t1\t5\t-3\t1\n"),
            "j.trace:1: arrival_time is \"-3\": expected a number from 0 to 3155760000"
        );
    }
}
