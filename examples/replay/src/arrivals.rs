//! When requests arrive: closed loop, Poisson, uniform, or read from a file.
//!
//! Files: Orion's JSON list of gaps in seconds, a DISB workload (absolute milliseconds per task),
//! or one absolute time in seconds per line. Times are ns from the start of the replay.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::Options;

/// Longest replay, one day: bounds the list of arrivals.
const SECONDS_MAX: f64 = 86_400.0;
/// Most arrivals of one replay.
const ARRIVALS_MAX: usize = 10_000_000;

/// A schedule of arrivals.
#[derive(Debug, PartialEq)]
pub(crate) enum Arrivals {
    /// The next request begins when the last is done, until so many ns after the start.
    Closed {
        /// No request begins later than this after the start.
        duration_ns: u64,
    },
    /// Requests at these times after the start, ascending.
    Open(Vec<u64>),
}

impl Arrivals {
    /// The schedule that the options describe.
    ///
    /// # Errors
    /// An impossible rate or duration, or a file that cannot be read, with what would be right.
    pub(crate) fn parse(options: &Options) -> Result<Self> {
        let seconds = options.seconds;
        ensure!(
            seconds > 0.0 && seconds <= SECONDS_MAX,
            "--seconds {seconds}: expected more than 0 and at most {SECONDS_MAX}"
        );
        let duration_ns = (seconds * 1e9) as u64;
        match options.arrivals.as_str() {
            "closed" => Ok(Self::Closed { duration_ns }),
            "poisson" => Ok(Self::Open(poisson(
                rate(options)?,
                duration_ns,
                options.seed,
            ))),
            "uniform" => Ok(Self::Open(uniform(rate(options)?, duration_ns))),
            path => {
                let mut times = read(Path::new(path), options.arrivals_stream)?;
                times.retain(|&t| t < duration_ns);
                ensure!(!times.is_empty(), "{path}: no arrival within {seconds} s");
                Ok(Self::Open(times))
            }
        }
    }

    /// When request `index` arrives on the clock, or `None` when there is none left. `end_ns` is
    /// when the previous one was done.
    pub(crate) fn next_ns(&self, index: usize, start_ns: u64, end_ns: u64) -> Option<u64> {
        match self {
            Self::Closed { duration_ns } => (end_ns < start_ns + duration_ns).then_some(end_ns),
            Self::Open(times) => times.get(index).map(|t| start_ns + t),
        }
    }
}

fn rate(options: &Options) -> Result<f64> {
    let rate = options.rate.with_context(|| {
        format!(
            "--arrivals {} needs --rate, requests per second",
            options.arrivals
        )
    })?;
    ensure!(
        rate > 0.0 && rate * options.seconds <= ARRIVALS_MAX as f64,
        "--rate {rate}: expected more than 0 and at most {} requests in all",
        ARRIVALS_MAX
    );
    Ok(rate)
}

fn poisson(rate: f64, duration_ns: u64, seed: u64) -> Vec<u64> {
    let mut random = Pcg64::seed_from_u64(seed);
    let gap_ns = |u: f64| (-(1.0 - u).ln() / rate * 1e9) as u64;
    let mut times = Vec::new();
    let mut now_ns = gap_ns(random.random());
    while now_ns < duration_ns {
        times.push(now_ns);
        now_ns += gap_ns(random.random());
    }
    times
}

fn uniform(rate: f64, duration_ns: u64) -> Vec<u64> {
    (0..)
        .map(|i| (f64::from(i) / rate * 1e9) as u64)
        .take_while(|&t| t < duration_ns)
        .collect()
}

#[derive(Deserialize)]
struct DisbWorkload {
    tasks: Vec<DisbTask>,
}

#[derive(Deserialize)]
struct DisbTask {
    load: DisbLoad,
}

#[derive(Deserialize)]
struct DisbLoad {
    trace: Option<Vec<f64>>,
}

fn read(path: &Path, stream: usize) -> Result<Vec<u64>> {
    let text = profiler::read_text(path)?;
    let name = path.display();
    let seconds = if text.trim_start().starts_with('[') {
        let gaps: Vec<f64> = serde_json::from_str(&text)
            .with_context(|| format!("{name}: expected a JSON list of gaps in seconds"))?;
        gaps.iter()
            .scan(0.0, |now, gap| {
                *now += gap;
                Some(*now)
            })
            .collect()
    } else if text.trim_start().starts_with('{') {
        disb(&text, stream).with_context(|| format!("{name}: not a DISB workload with arrivals"))?
    } else {
        lines(&text, path)?
    };
    ensure!(
        seconds.len() <= ARRIVALS_MAX,
        "{name}: more than {ARRIVALS_MAX} arrivals"
    );
    for (index, pair) in seconds.windows(2).enumerate() {
        ensure!(
            pair[0] <= pair[1],
            "{name}: arrival {} at {} s is before the one at {} s; expected ascending times",
            index + 1,
            pair[1],
            pair[0]
        );
    }
    ensure!(
        seconds.iter().all(|s| (0.0..=SECONDS_MAX).contains(s)),
        "{name}: expected times from 0 to {SECONDS_MAX} s"
    );
    Ok(seconds.iter().map(|s| (s * 1e9) as u64).collect())
}

fn disb(text: &str, stream: usize) -> Result<Vec<f64>> {
    let workload: DisbWorkload = serde_json::from_str(text)?;
    let traces: Vec<_> = workload
        .tasks
        .into_iter()
        .filter_map(|t| t.load.trace)
        .collect();
    let count = traces.len();
    match traces.into_iter().nth(stream) {
        Some(trace) => Ok(trace.iter().map(|ms| ms / 1e3).collect()),
        None => bail!("--arrivals-stream {stream}: the file has {count}, counted from 0"),
    }
}

fn lines(text: &str, path: &Path) -> Result<Vec<f64>> {
    let numbered = (1..).zip(text.lines().map(str::trim));
    numbered
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            line.parse()
                .ok()
                .filter(|s: &f64| s.is_finite())
                .with_context(|| {
                    format!(
                        "{}:{number}: {line:?}; expected a time in seconds",
                        path.display()
                    )
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn options(arguments: &[&str]) -> Options {
        let base = ["pillion-replay", "--trace", "t"];
        Options::parse_from(base.iter().chain(arguments))
    }

    #[test]
    fn equal_seeds_give_equal_arrivals_and_others_do_not() {
        let at = |seed| poisson(15.0, 10_000_000_000, seed);
        assert_eq!(at(1), at(1));
        assert_ne!(at(1), at(2));
        // 150 expected in 10 s, standard deviation 12.2: 5 of them is out of the question.
        assert!((90..210).contains(&at(1).len()), "{}", at(1).len());
    }

    #[test]
    fn uniform_arrivals_are_equally_spaced() {
        assert_eq!(
            uniform(4.0, 1_000_000_000),
            [0, 250_000_000, 500_000_000, 750_000_000]
        );
    }

    #[test]
    fn a_closed_loop_ends_with_its_duration() {
        let arrivals = Arrivals::Closed { duration_ns: 100 };
        assert_eq!(arrivals.next_ns(0, 5, 5), Some(5));
        assert_eq!(arrivals.next_ns(7, 5, 104), Some(104));
        assert_eq!(arrivals.next_ns(8, 5, 105), None);
    }

    #[test]
    fn a_poisson_schedule_needs_a_rate() {
        let error = Arrivals::parse(&options(&["--arrivals", "poisson"])).unwrap_err();
        assert!(error.to_string().contains("needs --rate"), "{error}");
        let error =
            Arrivals::parse(&options(&["--arrivals", "poisson", "--rate", "-1"])).unwrap_err();
        assert!(error.to_string().contains("--rate -1"), "{error}");
    }

    #[test]
    fn bad_lines_are_named() {
        let error = lines("0.5\nsoon\n", Path::new("a.txt")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.txt:2: \"soon\"; expected a time in seconds"
        );
        assert_eq!(
            lines("# c\n0.5\n\n1\n", Path::new("a.txt")).unwrap(),
            [0.5, 1.0]
        );
    }

    #[test]
    fn a_disb_workload_is_absolute_milliseconds_per_task() {
        let text = r#"{"tasks":[{"load":{"type":"continuous"}},{"load":{"trace":[0,150]}}]}"#;
        assert_eq!(disb(text, 0).unwrap(), [0.0, 0.15]);
        assert!(
            disb(text, 1)
                .unwrap_err()
                .to_string()
                .contains("the file has 1")
        );
    }
}
