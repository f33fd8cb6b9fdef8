//! Arrivals from the options, as [`sim::Arrivals`]: equal seeds mean equal arrivals here and in the
//! simulator.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use sim::Arrivals;
use sim::arrivals::{SECONDS_MAX, Schedule};

use crate::Options;

/// The schedule of the options; times are ns after the start of the replay. Errors: an impossible
/// rate or duration, or a file that cannot be read, with the remedy.
pub(crate) fn parse(options: &Options) -> Result<Schedule> {
    let seconds = options.seconds;
    ensure!(
        seconds > 0.0 && seconds <= SECONDS_MAX,
        "--seconds {seconds}: expected more than 0 and at most {SECONDS_MAX}"
    );
    let duration_ns = (seconds * 1e9) as u64;
    let (arrivals, option) = match options.arrivals.as_str() {
        "closed" => (Arrivals::Closed, String::new()),
        "poisson" => {
            let per_s = rate(options)?;
            (Arrivals::Poisson { per_s }, "--rate ".to_owned())
        }
        "uniform" => {
            let per_s = rate(options)?;
            (Arrivals::Uniform { per_s }, "--rate ".to_owned())
        }
        path => {
            let arrivals = Arrivals::read(Path::new(path), options.arrivals_stream)?;
            let first_ns = arrivals.schedule(duration_ns, options.seed).next_ns(0);
            ensure!(first_ns.is_some(), "{path}: no arrival within {seconds} s");
            (arrivals, format!("{path}: "))
        }
    };
    arrivals
        .check(duration_ns)
        .map_err(|what| anyhow!("{option}{what}"))?;
    Ok(arrivals.schedule(duration_ns, options.seed))
}

fn rate(options: &Options) -> Result<f64> {
    options.rate.with_context(|| {
        format!(
            "--arrivals {} needs --rate, requests per second",
            options.arrivals
        )
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Vec<u64>> {
        let base = ["pillion-replay", "--trace", "t"];
        let mut schedule = parse(&Options::parse_from(base.iter().chain(arguments)))?;
        Ok(std::iter::from_fn(|| schedule.next_ns(0)).collect())
    }

    #[test]
    fn uniform_arrivals_are_equally_spaced_for_as_long_as_asked() {
        let times = parsed(&["--arrivals", "uniform", "--rate", "4", "--seconds", "1"]).unwrap();
        assert_eq!(times, [0, 250_000_000, 500_000_000, 750_000_000]);
    }

    #[test]
    fn random_arrivals_are_decided_by_the_seed() {
        let of = |seed| parsed(&["--arrivals", "poisson", "--rate", "15", "--seed", seed]).unwrap();
        assert_eq!(of("1"), of("1"));
        assert_ne!(of("1"), of("2"));
    }

    #[test]
    fn a_poisson_schedule_needs_a_rate() {
        let error = parsed(&["--arrivals", "poisson"]).unwrap_err();
        assert!(error.to_string().contains("needs --rate"), "{error}");
        let error = parsed(&["--arrivals", "poisson", "--rate", "-1"]).unwrap_err();
        assert!(error.to_string().contains("--rate -1"), "{error}");
    }

    #[test]
    fn a_file_without_an_arrival_in_time_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12.5\n").unwrap();
        let path = file.path().to_str().unwrap();
        let error = parsed(&["--arrivals", path]).unwrap_err().to_string();
        assert!(error.contains("no arrival within 10 s"), "{error}");
        assert_eq!(
            parsed(&["--arrivals", path, "--seconds", "20"]).unwrap(),
            [12_500_000_000]
        );
    }
}
