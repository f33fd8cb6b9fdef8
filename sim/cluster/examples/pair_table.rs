//! Writes the service table (`cluster_sim::service_table`), or a summary of it.
//! ```text
//! cargo run --release -p pillion-cluster-sim --example pair_table > pairs-a100.csv
//! cargo run --release -p pillion-cluster-sim --example pair_table -- summary
//! ```
//! The table takes about 25 minutes of one core. Names of services as arguments limit it to them,
//! so that parts can be computed side by side: the file is their rows in the order of
//! `service_table::SERVICES`, with one head.

use std::env;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use cluster_sim::service_table::measure::{self, MeasureError};
use cluster_sim::service_table::{SERVICES, ServiceTable, TRAININGS};

const HEAD: &str = "\
# An inference service and a training on one A100-SXM4-40GB, as the simulator of one GPU has it.
# Made by: cargo run --release -p pillion-cluster-sim --example pair_table
# How each number is found: sim/cluster/src/service_table/measure.rs. Four significant digits.
# service, training: as in SERVICES and TRAININGS of sim/cluster/src/service_table.rs;
#   without a training the service alone, without a service the training alone
# batch: requests that are answered together; 200 requests arrive per second, at random
# share_pct: what the service has of the SMs, per cent; the training has the others
# late: share of requests that took longer than the service's target, 0 to 1;
#   1 where the service cannot keep up with its requests
# request_p99_ms: 99th percentile from a request's arrival to its answer;
#   empty where the service cannot keep up
# batch_p99_ms: 99th percentile of what a batch takes, one after the other
# iterations_per_s: speed of the training
service,training,batch,share_pct,late,request_p99_ms,batch_p99_ms,iterations_per_s
";

/// Share of late requests with which a setting keeps the target, as the 99th percentile does.
const LATE_MAX: f64 = 0.01;

fn main() -> ExitCode {
    let names: Vec<String> = env::args().skip(1).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    let done = match names.as_slice() {
        [word] if word == "summary" => summarise(&mut out),
        names => write_table(&mut out, names),
    };
    match done.and_then(|()| out.flush().map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pair_table: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_table(out: &mut impl Write, names: &[String]) -> Result<(), String> {
    let known = SERVICES.map(|service| service.name);
    if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!(
            "{name:?}: expected summary or services, of {}",
            known.join(", ")
        ));
    }
    let wanted = |place: &usize| names.is_empty() || names.iter().any(|n| n == known[*place]);
    let services: Vec<usize> = (0..known.len()).filter(wanted).collect();
    let written = out.write_all(HEAD.as_bytes()).map_err(MeasureError::Io);
    let progress = |done: &str| eprintln!("{done}");
    let written = written.and_then(|()| measure::write_rows(out, &services, progress));
    written.map_err(|error| error.to_string())
}

/// For each training a line: beside each service the training's speed in per cent of its speed
/// alone, with the fastest setting that keeps the target (batch, and share of the service).
fn summarise(out: &mut impl Write) -> Result<(), String> {
    let table = ServiceTable::a100().map_err(|error| error.to_string())?;
    let mut lines = String::from("| training |");
    lines.extend(SERVICES.map(|service| format!(" {} |", service.name)));
    lines += " best ÷ worst |\n|---|";
    lines += &"---|".repeat(SERVICES.len() + 1);
    for (place, training) in TRAININGS.iter().enumerate() {
        lines += &format!("\n| {} |", training.name);
        let alone = table.alone_per_s(place).unwrap_or(f64::NAN);
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for service in 0..SERVICES.len() {
            let Some(best) = table.best(service, place, LATE_MAX) else {
                lines += " none |";
                least = 0.0;
                continue;
            };
            let speed = best.cell.iterations_per_s / alone;
            (least, most) = (least.min(speed), most.max(speed));
            let (percent, batch, share) = (100.0 * speed, best.batch, best.share_pct);
            lines += &format!(" {percent:.1} % ({batch}, {share} %) |");
        }
        lines += &format!(" {:.2} |", most / least);
    }
    writeln!(out, "{lines}").map_err(|error| error.to_string())
}
