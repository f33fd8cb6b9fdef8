//! Jobs of Microsoft's cluster *Philly* of 2017, as Pollux's authors prepared them. Origin:
//! github.com/petuum/adaptdl, simulator/traces/philly.csv, made of msr-fiddle's philly-traces.
//! Licence: Apache-2.0 and, the data, CC-BY-4.0. Columns:
//! `timestamp,duration,num_gpus,gpu_time,cluster`. The timestamp is the local time of the
//! submission, without a zone: a difference of two across 2017-11-05 can be an hour wrong.
//! Durations are in seconds. The file is not sorted by time; the rows are given in order of
//! submission.

use super::calendar::{self, civil_ns, since_first};
use super::table::Table;
use super::{JOB_GPUS_MAX, SECONDS_MAX, TraceError};

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// When it was submitted, since the earliest submission of the file.
    pub submit_s: f64,
    /// How long it ran.
    pub duration_s: f64,
    /// How many GPUs it had.
    pub gpus: u32,
    /// The sum over its GPUs of how long it had them.
    pub gpu_s: f64,
    /// Its virtual cluster, the beginning of a hash.
    pub cluster: String,
}

/// Reads jobs, in the order of submission; those of one second are in the order of the file.
pub fn jobs(file: &str, bytes: &[u8]) -> Result<Vec<Job>, TraceError> {
    let known = "the jobs of Philly (timestamp,duration,num_gpus,gpu_time,cluster)";
    let mut table = Table::commas(file, bytes, known)?;
    let [timestamp, duration, gpus, gpu_time, cluster] =
        table.by_name(["timestamp", "duration", "num_gpus", "gpu_time", "cluster"])?;
    let jobs = table.rows(|row| {
        let submit_ns = civil_ns(row.cell(&timestamp));
        let submit_ns = submit_ns.ok_or_else(|| row.refuse(&timestamp, calendar::FORM))?;
        let job = Job {
            submit_s: 0.0,
            duration_s: row.number(&duration, SECONDS_MAX)?,
            gpus: row.whole(&gpus, 0..=JOB_GPUS_MAX)?,
            gpu_s: row.number(&gpu_time, SECONDS_MAX * f64::from(JOB_GPUS_MAX))?,
            cluster: row.text(&cluster)?,
        };
        Ok((submit_ns, job))
    })?;
    Ok(since_first(jobs, |job, submit_s| job.submit_s = submit_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rows: &str) -> Result<Vec<Job>, String> {
        let text = format!("timestamp,duration,num_gpus,gpu_time,cluster\n{rows}");
        jobs("philly.csv", text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn jobs_are_given_in_the_order_of_submission() {
        let rows = "2017-10-01 00:00:10,66.0,1,66.0,11cb48\n2017-09-30 23:59:50,5,2,10,6c71a0\n\
                    2017-10-01 00:00:10,7.0,1,7.0,11cb48\n";
        let read = read(rows).expect("jobs");
        let times: Vec<_> = read
            .iter()
            .map(|job| (job.submit_s, job.duration_s))
            .collect();
        assert_eq!(times, [(0.0, 5.0), (20.0, 66.0), (20.0, 7.0)]);
        let first = Job {
            submit_s: 0.0,
            duration_s: 5.0,
            gpus: 2,
            gpu_s: 10.0,
            cluster: "6c71a0".to_owned(),
        };
        assert_eq!(read[0], first);
    }

    #[test]
    fn a_cell_out_of_range_is_refused() {
        let cases = [
            (
                "2017-02-29 00:00:10,6,1,6,a",
                "timestamp is \"2017-02-29 00:00:10\": expected YYYY",
            ),
            (
                "2017-10-01 00:00:10,x,1,6,a",
                "duration is \"x\": expected a number from 0 to",
            ),
            (
                "2017-10-01 00:00:10,6,1025,6,a",
                "num_gpus is \"1025\": expected a whole number",
            ),
            (
                "2017-10-01 00:00:10,6,1,-6,a",
                "gpu_time is \"-6\": expected a number from 0 to",
            ),
            (
                "2017-10-01 00:00:10,6,1,6,",
                "cluster is \"\": expected a text that is not empty",
            ),
        ];
        for (row, expected) in cases {
            let error = read(row).expect_err("a refusal");
            assert!(
                error.starts_with(&format!("philly.csv:2: {expected}")),
                "{error}"
            );
        }
    }
}
