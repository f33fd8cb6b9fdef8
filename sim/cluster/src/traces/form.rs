//! Which published form a file has: by its header, or by the cells of its first line, only as far
//! as the choice of a reader needs. The reader then checks the header and every row.

use super::TraceError;
use super::table::{cut, text_of};

/// A published form of a trace of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Pods of Alibaba's cluster of 2023 ([`super::openb`]).
    Openb,
    /// Jobs of Philly, as Pollux's authors prepared them ([`super::philly`]).
    Philly,
    /// Jobs of Muri ([`super::muri`]).
    Muri,
    /// Jobs of Tiresias ([`super::tiresias`]).
    Tiresias,
    /// Jobs of Gavel ([`super::gavel`]).
    Gavel,
    /// Tasks of PAI ([`super::pai`]).
    Pai,
}

/// A published form of a list of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineForm {
    /// Nodes of Alibaba's cluster of 2023 ([`super::openb`]).
    Openb,
    /// Machines of PAI ([`super::pai`]).
    Pai,
}

const JOBS: &str = "a trace of openb (name,cpu_milli,memory_mib,num_gpu,gpu_milli,…), Philly \
                    (timestamp,duration,num_gpus,gpu_time,cluster), Muri or Tiresias \
                    (job_id,num_gpu,submit_time,…), Gavel (7, 9 or 10 columns with tabs between \
                    them) or PAI's tasks (job_name,task_name,inst_num,…)";

const MACHINES: &str = "the nodes of openb (sn,cpu_milli,memory_mib,gpu,model) or the machines of \
                        PAI (machine,gpu_type,cap_cpu,cap_mem,cap_gpu)";

/// The form of a trace of jobs.
///
/// # Errors
/// The file is empty, is not text, or has no known form: the error names all forms.
pub fn form(file: &str, bytes: &[u8]) -> Result<Form, TraceError> {
    let line = first_line(file, bytes, JOBS)?;
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let has = |names: &[&str]| names.iter().all(|name| cells.contains(name));
    let tabs = line.split('\t').count();
    let forms = [
        (has(&["num_gpu", "gpu_milli"]), Form::Openb),
        (has(&["timestamp", "gpu_time"]), Form::Philly),
        (has(&["job_id", "iteration_time"]), Form::Muri),
        (has(&["job_id", "num_gpu", "submit_time"]), Form::Tiresias),
        (matches!(tabs, 7 | 9 | 10), Form::Gavel),
        (has(&["job_name", "plan_gpu"]), Form::Pai),
        (is_row_of_tasks(&cells), Form::Pai),
    ];
    let found = forms.into_iter().find(|(is_it, _)| *is_it);
    found
        .map(|(_, form)| form)
        .ok_or_else(|| unknown(file, line, JOBS))
}

/// The form of a list of machines.
///
/// # Errors
/// As of [`form`].
pub fn machine_form(file: &str, bytes: &[u8]) -> Result<MachineForm, TraceError> {
    let line = first_line(file, bytes, MACHINES)?;
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let is_number = |cell: &str| cell.parse::<u32>().is_ok();
    if cells.contains(&"sn") && cells.contains(&"cpu_milli") {
        Ok(MachineForm::Openb)
    } else if cells.contains(&"machine") && cells.contains(&"cap_gpu")
        || cells.len() == 5 && cells[2..].iter().all(|cell| is_number(cell))
    {
        Ok(MachineForm::Pai)
    } else {
        Err(unknown(file, line, MACHINES))
    }
}

/// PAI's tasks are published without a header: ten cells, and numbers where numbers belong.
fn is_row_of_tasks(cells: &[&str]) -> bool {
    let is_number = |cell: &str| cell.is_empty() || cell.parse::<f64>().is_ok();
    cells.len() == 10 && [2, 4, 5, 6, 7, 8].iter().all(|&at| is_number(cells[at]))
}

fn first_line<'a>(file: &str, bytes: &'a [u8], known: &str) -> Result<&'a str, TraceError> {
    let text = text_of(file, bytes)?;
    match text.lines().next() {
        Some(line) => Ok(line),
        None => Err(TraceError::Empty {
            file: file.to_owned(),
            known: known.to_owned(),
        }),
    }
}

fn unknown(file: &str, line: &str, known: &str) -> TraceError {
    TraceError::Header {
        file: file.to_owned(),
        line: 1,
        found: cut(line),
        problem: "is of no known form".to_owned(),
        known: known.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_published_form_is_recognised_by_its_first_line() {
        let forms = [
            (
                "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase",
                Form::Openb,
            ),
            (
                "\u{feff}timestamp,duration,num_gpus,gpu_time,cluster\r",
                Form::Philly,
            ),
            (
                "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,\
                 iteration_time",
                Form::Muri,
            ),
            (
                "job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
                Form::Tiresias,
            ),
            ("LM (batch size 80)\tcd %s\t-n\t1\t5\t0.0\t1", Form::Gavel),
            (
                "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
                Form::Pai,
            ),
            (
                "j0,worker,2.0,Terminated,10.0,20.5,600.0,29.297,50.0,T4",
                Form::Pai,
            ),
            ("j0,ps,,Failed,,,,,,", Form::Pai),
        ];
        for (line, expected) in forms {
            let found = form("t", format!("{line}\nrest").as_bytes());
            assert_eq!(found.expect(line), expected, "{line}");
        }
    }

    #[test]
    fn another_form_is_refused_with_all_that_are_known() {
        for text in [
            "these are words",
            "a,b\n1,2\n",
            "sn,cpu_milli,memory_mib,gpu,model",
        ] {
            let error = form("t.csv", text.as_bytes()).expect_err(text).to_string();
            for name in ["openb", "Philly", "Muri", "Tiresias", "Gavel", "PAI"] {
                assert!(error.contains(name), "{name}: {error}");
            }
            assert!(error.starts_with("t.csv:1: the header "), "{error}");
        }
        let error = form("t.csv", b"").expect_err("it is empty").to_string();
        assert!(error.starts_with("t.csv: the file is empty"), "{error}");
    }

    #[test]
    fn lists_of_machines_are_recognised() {
        let forms = [
            ("sn,cpu_milli,memory_mib,gpu,model", MachineForm::Openb),
            ("machine,gpu_type,cap_cpu,cap_mem,cap_gpu", MachineForm::Pai),
            ("7399a758eb02,V100M32,96,384,8", MachineForm::Pai),
        ];
        for (line, expected) in forms {
            let found = machine_form("m", line.as_bytes());
            assert_eq!(found.expect(line), expected);
        }
        let error = machine_form("m.csv", b"name,gpus\n").expect_err("unknown");
        assert!(error.to_string().contains("PAI"), "{error}");
    }
}
