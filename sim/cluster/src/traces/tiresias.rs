//! The jobs that the authors of *Tiresias* ran on their test bed. Origin:
//! github.com/SymbioticLab/Tiresias, simulator/60_job.csv (NSDI 2019). Licence: Apache-2.0.
//! Columns: `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`. All times are in
//! seconds; an interval is from the submission of its job to that of the next. Muri's traces have
//! these columns too, but in milliseconds, so that a header with `iteration_time` is refused.

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
    /// Its model: `vgg19`, `resnet50` and others.
    pub model: String,
    /// How long it runs alone.
    pub duration_s: f64,
    /// How long after its submission the next job is submitted.
    pub interval_s: f64,
}

/// Reads jobs, in the order of the file.
pub fn jobs(file: &str, bytes: &[u8]) -> Result<Vec<Job>, TraceError> {
    let known = "the jobs of Tiresias (job_id,num_gpu,submit_time,iterations,model_name,duration,\
                 interval)";
    let mut table = Table::commas(file, bytes, known)?;
    if table.names("iteration_time") {
        return Err(table.refuse_header("is that of Muri, whose times are in milliseconds"));
    }
    let [id, gpus, submit, iterations, model, duration, interval] = table.by_name([
        "job_id",
        "num_gpu",
        "submit_time",
        "iterations",
        "model_name",
        "duration",
        "interval",
    ])?;
    table.rows(|row| {
        Ok(Job {
            id: row.whole(&id, 0..=u64::MAX)?,
            gpus: row.whole(&gpus, 0..=JOB_GPUS_MAX)?,
            submit_s: row.number(&submit, SECONDS_MAX)?,
            iterations: row.whole(&iterations, 0..=STEPS_MAX)?,
            model: row.text(&model)?,
            duration_s: row.number(&duration, SECONDS_MAX)?,
            interval_s: row.number(&interval, SECONDS_MAX)?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval";

    #[test]
    fn a_job_is_read() {
        let text = format!("{HEADER}\n1,8,30,133,vgg11,147,23\n");
        let expected = Job {
            id: 1,
            gpus: 8,
            submit_s: 30.0,
            iterations: 133,
            model: "vgg11".to_owned(),
            duration_s: 147.0,
            interval_s: 23.0,
        };
        assert_eq!(jobs("t.csv", text.as_bytes()).expect("jobs"), [expected]);
    }

    #[test]
    fn a_cell_out_of_range_is_refused() {
        let text = format!("{HEADER}\n1,8,30,133,vgg11,147,23\n2,8,30,133,,147,23\n");
        let error = jobs("t.csv", text.as_bytes())
            .expect_err("a refusal")
            .to_string();
        assert_eq!(
            error,
            "t.csv:3: model_name is \"\": expected a text that is not empty"
        );
    }

    #[test]
    fn a_trace_of_muri_is_refused_by_its_header() {
        let text = format!("{HEADER},iteration_time\n1,8,30,133,vgg11,147,23,5\n");
        let error = jobs("t.csv", text.as_bytes())
            .expect_err("a refusal")
            .to_string();
        let problem = "is that of Muri, whose times are in milliseconds";
        let known = format!("the jobs of Tiresias ({HEADER})");
        let header = format!("{HEADER},iteration_time");
        let expected = format!("t.csv:1: the header \"{header}\" {problem}: expected {known}");
        assert_eq!(error, expected);
    }
}
