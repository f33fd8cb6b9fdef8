//! Jobs of a virtual cluster of Philly, to which the authors of *Muri* gave models. Origin:
//! github.com/Rivendile/Muri, simulator/trace-data (SIGCOMM 2022). Licence: Apache-2.0.
//!
//! Columns: `job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,
//! iteration_time,resource_time_0,resource_time_1,resource_time_2,priority`.
//! - `iteration_time` and `resource_time_*` are in milliseconds. The file does not name the three
//!   resources. The sum of their times is often more than an iteration: their uses overlap.
//! - `duration` is in milliseconds and a multiple of 1000. `iterations` is the number of whole
//!   iterations that fit in it, in all 5755 rows of `trace2_pr.csv`.
//! - `submit_time` is in seconds, as in Tiresias's form, which this one extends. It is 0 in all
//!   rows of `trace2_pr.csv`: all jobs are there from the start.
//! - `interval`, from a job's submission to that of the next, is a multiple of 1000 too, so that it
//!   is taken for milliseconds. The file cannot confirm that.

use super::table::Table;
use super::{JOB_GPUS_MAX, SECONDS_MAX, STEPS_MAX, TraceError};

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// How many GPUs it asks for.
    pub gpus: u32,
    /// When it is submitted.
    pub submit_s: f64,
    /// How many iterations it has.
    pub iterations: u64,
    /// Its model: `vgg16`, `bert` and others.
    pub model: String,
    /// Samples of an iteration.
    pub batch_size: u32,
    /// How long it runs alone.
    pub duration_ms: f64,
    /// How long after its submission the next job was submitted, where it was recorded.
    pub interval_ms: f64,
    /// How long an iteration takes alone.
    pub iteration_ms: f64,
    /// How long of an iteration it uses each of three resources.
    pub resources_ms: [f64; 3],
    /// 0 or 1.
    pub priority: u32,
}

/// Reads jobs, in the order of the file.
pub fn jobs(file: &str, bytes: &[u8]) -> Result<Vec<Job>, TraceError> {
    let known = "the jobs of Muri (job_id,num_gpu,submit_time,iterations,model_name,batch_size,\
                 duration,interval,iteration_time,resource_time_0..2,priority)";
    let mut table = Table::commas(file, bytes, known)?;
    let [id, gpus, submit, iterations, model, batch] = table.by_name([
        "job_id",
        "num_gpu",
        "submit_time",
        "iterations",
        "model_name",
        "batch_size",
    ])?;
    let [
        duration,
        interval,
        iteration,
        first,
        second,
        third,
        priority,
    ] = table.by_name([
        "duration",
        "interval",
        "iteration_time",
        "resource_time_0",
        "resource_time_1",
        "resource_time_2",
        "priority",
    ])?;
    let ms_max = SECONDS_MAX * 1000.0;
    table.rows(|row| {
        let ms = |column| row.number(column, ms_max);
        Ok(Job {
            id: row.whole(&id, 0..=u64::MAX)?,
            gpus: row.whole(&gpus, 0..=JOB_GPUS_MAX)?,
            submit_s: row.number(&submit, SECONDS_MAX)?,
            iterations: row.whole(&iterations, 0..=STEPS_MAX)?,
            model: row.text(&model)?,
            batch_size: row.whole(&batch, 1..=BATCH_MAX)?,
            duration_ms: ms(&duration)?,
            interval_ms: ms(&interval)?,
            iteration_ms: ms(&iteration)?,
            resources_ms: [ms(&first)?, ms(&second)?, ms(&third)?],
            priority: row.whole(&priority, 0..=1)?,
        })
    })
}

const BATCH_MAX: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(row: &str) -> Result<Vec<Job>, String> {
        let header = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,\
                      interval,iteration_time,resource_time_0,resource_time_1,\
                      resource_time_2,priority";
        let text = format!("{header}\n{row}\n");
        jobs("muri.csv", text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_job_is_read() {
        let read = read("2,16,0,5086032,bert,4,1240992000,326000,244,0.5,166,86,1").expect("jobs");
        let expected = Job {
            id: 2,
            gpus: 16,
            submit_s: 0.0,
            iterations: 5_086_032,
            model: "bert".to_owned(),
            batch_size: 4,
            duration_ms: 1_240_992_000.0,
            interval_ms: 326_000.0,
            iteration_ms: 244.0,
            resources_ms: [0.5, 166.0, 86.0],
            priority: 1,
        };
        assert_eq!(read, [expected]);
    }

    #[test]
    fn a_cell_out_of_range_is_refused() {
        let cases = [
            (
                "x,1,0,5,bert,4,9,9,9,1,1,1,1",
                "job_id is \"x\": expected a whole number from 0",
            ),
            (
                "2,1,0,5.5,bert,4,9,9,9,1,1,1,1",
                "iterations is \"5.5\": expected a whole number",
            ),
            (
                "2,1,0,5,bert,0,9,9,9,1,1,1,1",
                "batch_size is \"0\": expected a whole number from 1",
            ),
            (
                "2,1,0,5,bert,4,nan,9,9,1,1,1,1",
                "duration is \"nan\": expected a number from 0",
            ),
            (
                "2,1,0,5,bert,4,9,9,9,1,1,-1,1",
                "resource_time_2 is \"-1\": expected a number",
            ),
            (
                "2,1,0,5,bert,4,9,9,9,1,1,1,2",
                "priority is \"2\": expected a whole number from 0 to",
            ),
        ];
        for (row, expected) in cases {
            let error = read(row).expect_err("a refusal");
            assert!(
                error.starts_with(&format!("muri.csv:2: {expected}")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_trace_of_tiresias_is_refused_by_its_header() {
        let text = b"job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n";
        let error = jobs("60_job.csv", text).expect_err("a refusal").to_string();
        assert!(
            error.contains("has no column batch_size: expected the jobs of Muri"),
            "{error}"
        );
    }
}
