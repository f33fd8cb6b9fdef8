//! Writes the table of inference models on `OLTunes`' GPUs (`cluster_sim::oltunes_table`), in about
//! 10 minutes of one core.
//! ```text
//! cargo run --release -p pillion-cluster-sim --example oltunes_table > oltunes.csv
//! ```

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use cluster_sim::oltunes_table::measure::{MeasureError, write_rows};

const HEAD: &str = "\
# Inference models on three models of GPU, alone and in pairs, as the simulator of one GPU has it.
# Made by: cargo run --release -p pillion-cluster-sim --example oltunes_table
# How each number is found: sim/cluster/src/oltunes_table/measure.rs. Four significant digits.
# gpu, model, beside: as in GPUS and MODELS of sim/cluster/src/oltunes_table.rs
# batch, beside_batch: inputs that are answered together; one batch after the other
# share_pct: of a task alone, its share of the SMs under MPS, per cent
# latency_ms: of a task alone, what a batch takes on the mean
# sm_activity: of a task alone, share of the time of all SMs in which an SM has a block, 0 to 1
# mechanism: of a pair, how both share the GPU; under mps a pair is there in one order only,
#   under others model is high-priority and beside best-effort
# speed, beside_speed: of a pair, speeds that model and beside keep, as parts of those alone
# compute_kernels, memory_kernels: of a batch, launches with half of the GPU's arithmetic or more,
#   and with half of its memory bandwidth or more
gpu,model,batch,share_pct,latency_ms,sm_activity,beside,beside_batch,mechanism,speed,beside_speed,compute_kernels,memory_kernels
";

fn main() -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    match write_table(&mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oltunes_table: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_table(out: &mut impl Write) -> Result<(), MeasureError> {
    out.write_all(HEAD.as_bytes())?;
    write_rows(out, |done| eprintln!("{done}"))?;
    Ok(out.flush()?)
}
