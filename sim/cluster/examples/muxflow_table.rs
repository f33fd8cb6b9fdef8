//! Writes the table of services beside trainings on a T4 (`cluster_sim::muxflow_table`), in about 9
//! minutes of one core.
//! ```text
//! cargo run --release -p pillion-cluster-sim --example muxflow_table > muxflow-t4.csv
//! ```

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use cluster_sim::muxflow_table::measure::{MeasureError, write_rows};

const HEAD: &str = "\
# An online service and a training on one T4 under six mechanisms, as the simulator has it.
# Made by: cargo run --release -p pillion-cluster-sim --example muxflow_table
# How each number is found: sim/cluster/src/muxflow_table/measure.rs. Four significant digits.
# service, training: as in SERVICES and TRAININGS of sim/cluster/src/muxflow_table.rs;
#   without a training the service alone, without a service the training alone
# load_pct: for how much of the time the service's requests keep the GPU busy alone, per cent
# mean_ms, p99_ms: latency of the service, from arrival to answer
# behind_s: when the last request was answered, after the 40 s in which requests came
# iterations_per_s: speed of the training
service,load_pct,training,mechanism,mean_ms,p99_ms,behind_s,iterations_per_s
";

fn main() -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    match write_table(&mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("muxflow_table: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_table(out: &mut impl Write) -> Result<(), MeasureError> {
    out.write_all(HEAD.as_bytes())?;
    write_rows(out, |done| eprintln!("{done}"))?;
    Ok(out.flush()?)
}
