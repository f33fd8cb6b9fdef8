//! Alibaba's GPU cluster of 2020, *PAI*: its machines, its jobs and the tasks of jobs. A job has
//! tasks (`worker`, `ps`), and a task has instances that all ask for the same. Origin:
//! github.com/alibaba/clusterdata, cluster-trace-gpu-v2020. Licence: CC-BY-4.0. The tables are
//! published without headers, with their columns in the order of the structures below; a header is
//! accepted. Units: CPUs and GPUs that a task asks for are in percent of one (`plan_cpu` 600 is six
//! CPUs, `plan_gpu` 50 is half a GPU), those of a machine are whole; memory is in GiB; times are in
//! seconds since a moment that was not published; as Unix time they have the true time of day and
//! day of the week in UTC+8. An empty cell is unknown. Whether a job ends after it starts is not
//! checked.

use super::table::{Column, Row, Table};
use super::{MACHINE_GPUS_MAX, SECONDS_MAX, TraceError};

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its name, a hash.
    pub name: String,
    /// The model of its GPUs; `CPU` if it has none, `MISC` for models of older generations.
    pub gpu_type: String,
    /// How many CPUs it has.
    pub cpus: u32,
    /// Its memory.
    pub memory_gib: u32,
    /// How many GPUs it has.
    pub gpus: u32,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name, a hash.
    pub name: String,
    /// The key of its instances in a table that is not read here.
    pub inst_id: Option<String>,
    /// Its user, a hash.
    pub user: Option<String>,
    /// Its state: `Terminated` (it ended without error), `Failed`, `Running` or `Waiting`.
    pub status: Option<String>,
    /// When it was submitted.
    pub start_s: Option<f64>,
    /// When it ended.
    pub end_s: Option<f64>,
}

/// A task of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The job's name.
    pub job: String,
    /// Its role in the job: `worker`, `ps`, `tensorflow` and others.
    pub name: String,
    /// How many instances it has.
    pub instances: Option<u32>,
    /// Its state, as of a job.
    pub status: Option<String>,
    /// When it was launched; the job waited until its first task was.
    pub start_s: Option<f64>,
    /// When it ended.
    pub end_s: Option<f64>,
    /// CPUs that an instance asks for, in percent of one.
    pub cpu_pct: Option<f64>,
    /// Memory that an instance asks for.
    pub memory_gib: Option<f64>,
    /// GPUs that an instance asks for, in percent of one.
    pub gpu_pct: Option<f64>,
    /// The model of GPU that it was given, as of a machine.
    pub gpu_type: Option<String>,
}

/// Reads the machines.
pub fn machines(file: &str, bytes: &[u8]) -> Result<Vec<Machine>, TraceError> {
    let known = "the machines of PAI (machine,gpu_type,cap_cpu,cap_mem,cap_gpu)";
    let mut table = Table::commas(file, bytes, known)?;
    let [machine, gpu_type, cpu, memory, gpu] =
        table.by_name_or_position(["machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"])?;
    table.rows(|row| {
        Ok(Machine {
            name: row.text(&machine)?,
            gpu_type: row.text(&gpu_type)?,
            cpus: row.whole(&cpu, 0..=CPUS_MAX)?,
            memory_gib: row.whole(&memory, 0..=MEMORY_GIB_MAX)?,
            gpus: row.whole(&gpu, 0..=MACHINE_GPUS_MAX)?,
        })
    })
}

/// Reads the jobs.
pub fn jobs(file: &str, bytes: &[u8]) -> Result<Vec<Job>, TraceError> {
    let known = "the jobs of PAI (job_name,inst_id,user,status,start_time,end_time)";
    let mut table = Table::commas(file, bytes, known)?;
    let [job, inst, user, status, start, end] = table.by_name_or_position([
        "job_name",
        "inst_id",
        "user",
        "status",
        "start_time",
        "end_time",
    ])?;
    table.rows(|row| {
        Ok(Job {
            name: row.text(&job)?,
            inst_id: text(row, &inst)?,
            user: text(row, &user)?,
            status: text(row, &status)?,
            start_s: number(row, &start, SECONDS_MAX)?,
            end_s: number(row, &end, SECONDS_MAX)?,
        })
    })
}

/// Reads the tasks.
pub fn tasks(file: &str, bytes: &[u8]) -> Result<Vec<Task>, TraceError> {
    let known = "the tasks of PAI (job_name,task_name,inst_num,status,start_time,end_time,\
                 plan_cpu,plan_mem,plan_gpu,gpu_type)";
    let mut table = Table::commas(file, bytes, known)?;
    let [
        job,
        task,
        instances,
        status,
        start,
        end,
        cpu,
        memory,
        gpu,
        gpu_type,
    ] = table.by_name_or_position([
        "job_name",
        "task_name",
        "inst_num",
        "status",
        "start_time",
        "end_time",
        "plan_cpu",
        "plan_mem",
        "plan_gpu",
        "gpu_type",
    ])?;
    table.rows(|row| {
        Ok(Task {
            job: row.text(&job)?,
            name: row.text(&task)?,
            instances: row.optional(&instances, |column| row.whole(column, 0..=INSTANCES_MAX))?,
            status: text(row, &status)?,
            start_s: number(row, &start, SECONDS_MAX)?,
            end_s: number(row, &end, SECONDS_MAX)?,
            cpu_pct: number(row, &cpu, f64::from(CPUS_MAX) * 100.0)?,
            memory_gib: number(row, &memory, f64::from(MEMORY_GIB_MAX))?,
            gpu_pct: number(row, &gpu, f64::from(MACHINE_GPUS_MAX) * 100.0)?,
            gpu_type: text(row, &gpu_type)?,
        })
    })
}

fn text(row: &Row<'_>, column: &Column) -> Result<Option<String>, TraceError> {
    row.optional(column, |column| row.text(column))
}

fn number(row: &Row<'_>, column: &Column, max: f64) -> Result<Option<f64>, TraceError> {
    row.optional(column, |column| row.number(column, max))
}

const CPUS_MAX: u32 = 10_000;

/// 1 PiB.
const MEMORY_GIB_MAX: u32 = 1 << 20;

/// Instances of a task; the trace has 7.5 million in all.
const INSTANCES_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(read: Result<T, TraceError>) -> String {
        read.err().expect("a refusal").to_string()
    }

    #[test]
    fn machines_are_read_with_and_without_a_header() {
        let row = "7399a758eb02,V100M32,96,384,8\n";
        let read = machines("m.csv", row.as_bytes()).expect("machines");
        let expected = Machine {
            name: "7399a758eb02".to_owned(),
            gpu_type: "V100M32".to_owned(),
            cpus: 96,
            memory_gib: 384,
            gpus: 8,
        };
        assert_eq!(read, [expected]);
        let text = format!("machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n{row}");
        assert_eq!(machines("m.csv", text.as_bytes()).expect("machines"), read);
    }

    #[test]
    fn a_machine_of_another_form_is_refused() {
        let known = "the machines of PAI (machine,gpu_type,cap_cpu,cap_mem,cap_gpu)";
        let header = "sn,cpu_milli,memory_mib,gpu,model";
        assert_eq!(
            refused(machines("m.csv", header.as_bytes())),
            format!("m.csv:1: the header {header:?} is of another form: expected {known}")
        );
        assert_eq!(
            refused(machines("m.csv", b"a,CPU,96,512\n")),
            format!("m.csv:1: the row has 4 columns: expected 5, as in {known}")
        );
        assert_eq!(
            refused(machines("m.csv", b"a,CPU,96,512,0\nb,T4,96,512,two\n")),
            "m.csv:2: cap_gpu is \"two\": expected a whole number from 0 to 64"
        );
        assert_eq!(
            refused(machines("m.csv", b"")),
            format!("m.csv: the file is empty: expected {known}")
        );
    }

    #[test]
    fn jobs_are_read_in_the_published_order_or_by_header() {
        let read = jobs(
            "j.csv",
            b"j0,i0,u0,Terminated,494389.0,495000\nj1,,,Waiting,,\n",
        );
        let read = read.expect("jobs");
        assert_eq!(
            (read[0].start_s, read[0].end_s),
            (Some(494_389.0), Some(495_000.0))
        );
        let unknown = Job {
            name: "j1".to_owned(),
            inst_id: None,
            user: None,
            status: Some("Waiting".to_owned()),
            start_s: None,
            end_s: None,
        };
        assert_eq!(read[1], unknown);
        let text = b"job_name,status,user,inst_id,end_time,start_time\n\
                     j0,Terminated,u0,i0,495000,494389\n";
        assert_eq!(jobs("j.csv", text).expect("jobs"), read[..1]);
    }

    #[test]
    fn tasks_are_read_in_the_published_order() {
        let text =
            b"j0,worker,2.0,Terminated,10.0,20.5,600.0,29.297,50.0,T4\nj0,ps,,Failed,,,,,,\n";
        let read = tasks("t.csv", text).expect("tasks");
        let expected = Task {
            job: "j0".to_owned(),
            name: "worker".to_owned(),
            instances: Some(2),
            status: Some("Terminated".to_owned()),
            start_s: Some(10.0),
            end_s: Some(20.5),
            cpu_pct: Some(600.0),
            memory_gib: Some(29.297),
            gpu_pct: Some(50.0),
            gpu_type: Some("T4".to_owned()),
        };
        assert_eq!(read[0], expected);
        assert_eq!(
            (read[1].instances, read[1].gpu_pct, &read[1].gpu_type),
            (None, None, &None)
        );
    }

    #[test]
    fn a_cell_of_a_job_or_task_out_of_range_is_refused() {
        assert_eq!(
            refused(jobs("j.csv", b"j0,i0,u0,Terminated,-1,\n")),
            "j.csv:1: start_time is \"-1\": expected a number from 0 to 3155760000"
        );
        assert_eq!(
            refused(jobs("j.csv", b",i0,u0,Terminated,1,\n")),
            "j.csv:1: job_name is \"\": expected a text that is not empty"
        );
        assert_eq!(
            refused(tasks("t.csv", b"j0,ps,1.5,Failed,,,,,,\n")),
            "t.csv:1: inst_num is \"1.5\": expected a whole number from 0 to 1000000"
        );
        assert_eq!(
            refused(tasks("t.csv", b"j0,ps,1,Failed,,,,,6401,\n")),
            "t.csv:1: plan_gpu is \"6401\": expected a number from 0 to 6400"
        );
    }
}
