//! Arrival times of requests: closed loop, Poisson, in bursts, uniform, or read from a file. The
//! simulator and the replay program for the software GPU share this source, so that equal seeds
//! mean equal arrivals in both, in every phase and under every policy. Times are ns from the run's
//! start. Files ([`Arrivals::read`]): Orion's JSON list of gaps in seconds, a DISB workload
//! (absolute ms per task), or an absolute time in seconds per line.

use std::path::Path;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Deserialize;

use crate::error::Error;

/// Longest run, one day: bounds every list of arrivals.
pub const SECONDS_MAX: f64 = 86_400.0;

pub(crate) const OUT_OF_ORDER: &str = "the phases are out of order: expected ascending times";

/// Shortest mean of a burst, and of the time between two.
const BURST_S_MIN: f64 = 0.001;

/// Most arrivals of one run.
pub const ARRIVALS_MAX: usize = 10_000_000;

/// When requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// The next request begins when the last is complete.
    Closed,
    /// Independent random arrivals.
    Poisson {
        /// Mean rate, requests per second.
        per_s: f64,
    },
    /// A Markov-modulated Poisson process of two states: bursts, the first at once, and silences.
    Bursts {
        /// Mean rate within a burst, requests per second.
        per_s: f64,
        /// Mean length of a burst, s.
        on_s: f64,
        /// Mean time between the end of one and the beginning of the next, s.
        off_s: f64,
    },
    /// At equal distances, the first one at once.
    Uniform {
        /// Requests per second.
        per_s: f64,
    },
    /// After these gaps, ns, repeated from the first.
    Gaps(Arc<[u64]>),
    /// At these times after the start, ns, ascending; none after the last.
    Times(Arc<[u64]>),
}

/// A change of the request rate, for [`Arrivals::Poisson`] and [`Arrivals::Uniform`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Its beginning, counted as arrivals are, ns.
    pub start_ns: u64,
    /// Requests per second from then on.
    pub per_s: f64,
}

impl Arrivals {
    /// Checks that the arrivals can have these phases, in a run of `duration_ns`.
    ///
    /// # Errors
    /// The fault, in words that follow the name of the arrivals' owner.
    pub fn check_phases(&self, phases: &[Phase], duration_ns: u64) -> Result<(), String> {
        let has_rate = matches!(self, Self::Poisson { .. } | Self::Uniform { .. });
        if !has_rate && !phases.is_empty() {
            return Err(
                "phases are set, but the arrivals have no rate: expected poisson or uniform"
                    .to_owned(),
            );
        }
        let is_before = |pair: &[Phase]| pair[0].start_ns < pair[1].start_ns;
        if !phases.windows(2).all(is_before) {
            return Err(OUT_OF_ORDER.to_owned());
        }
        let mut rates = phases
            .iter()
            .map(|phase| Self::Poisson { per_s: phase.per_s });
        rates.try_for_each(|rate| rate.check(duration_ns))
    }

    /// Checks the parameters, for a run of `duration_ns`.
    ///
    /// # Errors
    /// The fault, in words that follow the name of the arrivals' owner.
    pub fn check(&self, duration_ns: u64) -> Result<(), String> {
        let seconds = duration_ns as f64 / 1e9;
        match self {
            Self::Closed => Ok(()),
            Self::Bursts { on_s, off_s, .. }
                if [on_s, off_s]
                    .iter()
                    .any(|s| !(BURST_S_MIN..=SECONDS_MAX).contains(*s)) =>
            {
                Err(format!(
                    "bursts of {on_s} s, {off_s} s apart: expected {BURST_S_MIN} to {SECONDS_MAX} s each"
                ))
            }
            Self::Poisson { per_s } | Self::Uniform { per_s } | Self::Bursts { per_s, .. } => {
                // The comparison also refuses a NaN.
                if *per_s > 0.0 && *per_s * seconds <= ARRIVALS_MAX as f64 {
                    return Ok(());
                }
                Err(format!(
                    "{per_s} requests per second: expected more than 0 and at most {ARRIVALS_MAX} requests in all"
                ))
            }
            Self::Gaps(gaps) => {
                let sum_ns: u128 = gaps.iter().map(|&gap| u128::from(gap)).sum();
                let rounds = u128::from(duration_ns).checked_div(sum_ns);
                if rounds.is_some_and(|n| (n + 1) * gaps.len() as u128 <= ARRIVALS_MAX as u128) {
                    return Ok(());
                }
                Err(format!(
                    "{} gaps of {sum_ns} ns in all: expected some time between arrivals, and at most \
                     {ARRIVALS_MAX} arrivals",
                    gaps.len()
                ))
            }
            Self::Times(times) if times.len() > ARRIVALS_MAX => {
                Err(format!("more than {ARRIVALS_MAX} arrivals"))
            }
            Self::Times(times) => match times.windows(2).position(|pair| pair[0] > pair[1]) {
                None => Ok(()),
                Some(index) => Err(format!(
                    "arrival {} at {} ns is before the one at {} ns; expected ascending times",
                    index + 1,
                    times[index + 1],
                    times[index]
                )),
            },
        }
    }

    /// The arrivals before `duration_ns`, by `seed`. Only if checked: a rate of 0 has no end.
    #[must_use]
    pub fn schedule(&self, duration_ns: u64, seed: u64) -> Schedule {
        self.schedule_from(0, duration_ns, seed)
    }

    /// The same for a job that begins at `start_ns`, from which its arrivals count.
    #[must_use]
    pub fn schedule_from(&self, start_ns: u64, duration_ns: u64, seed: u64) -> Schedule {
        Schedule {
            arrivals: self.clone(),
            phases: Vec::new(),
            start_ns,
            duration_ns,
            index: 0,
            last_ns: 0,
            burst_ns: None,
            random: Pcg64::seed_from_u64(seed),
        }
    }

    /// Mean arrivals per second; `None` in a closed loop, in bursts, and for lists of times.
    #[must_use]
    pub fn per_s(&self) -> Option<f64> {
        match self {
            Self::Poisson { per_s } | Self::Uniform { per_s } => Some(*per_s),
            Self::Gaps(gaps) => {
                let all_ns: f64 = gaps.iter().map(|&ns| ns as f64).sum();
                (all_ns > 0.0).then(|| gaps.len() as f64 / all_ns * 1e9)
            }
            Self::Closed | Self::Bursts { .. } | Self::Times(_) => None,
        }
    }

    /// The arrivals of a file, stretched in time to a mean of `per_s` per second, and repeated,
    /// rounds of times a mean gap apart. `None`: they are of no file, or span no time.
    #[must_use]
    pub fn stretched(&self, per_s: f64) -> Option<Self> {
        let gaps_ns: Vec<f64> = match self {
            Self::Gaps(gaps) => gaps.iter().map(|&ns| ns as f64).collect(),
            Self::Times(times) => {
                let between = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
                let whole_ns: f64 = between.clone().sum();
                let mean_ns = whole_ns / (times.len() as f64 - 1.0);
                [mean_ns].into_iter().chain(between).collect()
            }
            _ => return None,
        };
        let all_ns: f64 = gaps_ns.iter().sum();
        let scale = gaps_ns.len() as f64 / per_s * 1e9 / all_ns;
        if !(scale.is_finite() && scale > 0.0) {
            return None;
        }
        // Rounds the sums rather than the gaps, so that the rate is met for short gaps, too.
        let (mut sum_ns, mut last_ns) = (0.0, 0);
        let stretched = gaps_ns.iter().map(|gap_ns| {
            sum_ns += gap_ns * scale;
            let at_ns = sum_ns as u64;
            at_ns - std::mem::replace(&mut last_ns, at_ns)
        });
        Some(Self::Gaps(stretched.collect()))
    }

    /// Reads a file of arrivals; its first character determines the kind. `stream` is the index of
    /// a DISB workload's list, from 0.
    ///
    /// # Errors
    /// [`Error::ArrivalsFile`]: the file cannot be read, or its content is invalid.
    pub fn read(path: &Path, stream: usize) -> Result<Self, Error> {
        let text = profiler::read_text(path).map_err(|error| {
            // The message names the file, as ours does, and for some faults a line and a column.
            let (text, named) = (error.to_string(), path.display().to_string());
            let rest = text.strip_prefix(&named).unwrap_or(&text);
            let place = rest.strip_prefix(':').and_then(|rest| {
                let (place, what) = rest.split_once(": ")?;
                let line = place.split(':').next()?.parse().ok()?;
                Some((line, what))
            });
            Error::ArrivalsFile {
                path: path.to_owned(),
                line: place.map(|(line, _)| line),
                what: place
                    .map_or(rest.trim_start_matches(": "), |(_, what)| what)
                    .to_owned(),
            }
        })?;
        Self::parse(&text, path, stream)
    }

    /// Like [`Arrivals::read`], for the file's text. `path` is for messages.
    ///
    /// # Errors
    /// As [`Arrivals::read`].
    pub fn parse(text: &str, path: &Path, stream: usize) -> Result<Self, Error> {
        let wrong = |(line, what)| Error::ArrivalsFile {
            path: path.to_owned(),
            line,
            what,
        };
        let whole = |what: String| wrong((None, what));
        let arrivals = match text.trim_start().chars().next() {
            Some('[') => Self::Gaps(gaps(text).map_err(wrong)?),
            Some('{') => Self::Times(disb(text, stream).map_err(wrong)?),
            _ => Self::Times(lines(text).map_err(wrong)?),
        };
        let is_empty = matches!(&arrivals, Self::Gaps(ns) | Self::Times(ns) if ns.is_empty());
        if is_empty {
            return Err(whole("no arrival".to_owned()));
        }
        let longest_ns = (SECONDS_MAX * 1e9) as u64;
        let checked_for_ns = match &arrivals {
            // Repeated only as often as a run is long, which is checked with the run.
            Self::Gaps(gaps) => {
                let all_ns = gaps
                    .iter()
                    .fold(0, |sum: u64, gap| sum.saturating_add(*gap));
                all_ns.min(longest_ns)
            }
            _ => longest_ns,
        };
        arrivals.check(checked_for_ns).map_err(whole)?;
        Ok(arrivals)
    }
}

/// The arrivals of one run, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    phases: Vec<Phase>,
    start_ns: u64,
    duration_ns: u64,
    index: u64,
    last_ns: u64,
    burst_ns: Option<f64>,
    random: Pcg64,
}

impl Schedule {
    /// The same in phases, which must have been checked.
    #[must_use]
    pub fn in_phases(mut self, phases: &[Phase]) -> Self {
        self.phases = phases.to_vec();
        self
    }

    /// The source of the schedule.
    #[must_use]
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// When the next request arrives, ns after the start; `None` when none is left. Only a closed
    /// loop uses `end_ns`, when the previous one was complete (0 before the first).
    pub fn next_ns(&mut self, end_ns: u64) -> Option<u64> {
        let from_ns = self.last_ns;
        let own_ns = match &self.arrivals {
            Arrivals::Closed => end_ns.saturating_sub(self.start_ns),
            &Arrivals::Poisson { per_s } => {
                let requests = self.exponential();
                self.after_ns(from_ns, per_s, requests)
            }
            &Arrivals::Bursts { per_s, on_s, off_s } => {
                from_ns.saturating_add(self.burst_gap_ns(per_s, on_s, off_s))
            }
            &Arrivals::Uniform { per_s } => self.after_ns(0, per_s, self.index as f64),
            Arrivals::Gaps(gaps) => {
                let place = usize::try_from(self.index % gaps.len() as u64).unwrap_or_default();
                from_ns.saturating_add(gaps[place])
            }
            Arrivals::Times(times) => *times.get(usize::try_from(self.index).ok()?)?,
        };
        self.index += 1;
        self.last_ns = own_ns;
        let at_ns = self.start_ns.saturating_add(own_ns);
        (at_ns < self.duration_ns).then_some(at_ns)
    }

    /// When `requests` (may be fractional) have arrived since `from_ns`, at first at `per_s`.
    fn after_ns(&self, mut from_ns: u64, mut per_s: f64, mut requests: f64) -> u64 {
        for phase in &self.phases {
            let within_ns = phase.start_ns.saturating_sub(from_ns);
            let within = within_ns as f64 / 1e9 * per_s;
            if within > requests {
                break;
            }
            requests -= within;
            from_ns += within_ns;
            per_s = phase.per_s;
        }
        from_ns.saturating_add((requests / per_s * 1e9) as u64)
    }

    fn exponential(&mut self) -> f64 {
        let uniform: f64 = self.random.random();
        -(1.0 - uniform).ln()
    }

    fn burst_gap_ns(&mut self, per_s: f64, on_s: f64, off_s: f64) -> u64 {
        let mut left_ns = match self.burst_ns {
            Some(left_ns) => left_ns,
            None => self.exponential() * on_s * 1e9,
        };
        let mut within_ns = self.exponential() / per_s * 1e9;
        let mut gap_ns = 0.0;
        // A mean silence of 1 ms brings the end of the run nearer each time.
        while within_ns > left_ns && gap_ns < self.duration_ns as f64 {
            within_ns -= left_ns;
            gap_ns += left_ns + self.exponential() * off_s * 1e9;
            left_ns = self.exponential() * on_s * 1e9;
        }
        self.burst_ns = Some(left_ns - within_ns);
        (gap_ns + within_ns) as u64
    }
}

/// The seed of the job at `index`: the run's own for the first, so that a run of one random job has
/// the arrivals of a replay with that seed; otherwise far apart.
#[must_use]
pub fn seed_of_job(seed: u64, index: usize) -> u64 {
    // 2^64 ÷ golden ratio: neighbours do not meet (Knuth, TAOCP 3, 6.4).
    seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

type Wrong = (Option<usize>, String);

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

fn gaps(text: &str) -> Result<Arc<[u64]>, Wrong> {
    let gaps: Vec<f64> = serde_json::from_str(text).map_err(|error| {
        let what = format!("expected a JSON list of gaps in seconds: {error}");
        (Some(error.line()), what)
    })?;
    let numbered = (1..).zip(gaps);
    numbered
        .map(|(number, gap)| to_ns(gap).map_err(|what| (None, format!("gap {number}: {what}"))))
        .collect()
}

fn disb(text: &str, stream: usize) -> Result<Arc<[u64]>, Wrong> {
    let workload: DisbWorkload = serde_json::from_str(text).map_err(|error| {
        let what = format!("not a DISB workload with arrivals: {error}");
        (Some(error.line()), what)
    })?;
    let traces = workload.tasks.into_iter().filter_map(|t| t.load.trace);
    let mut traces: Vec<_> = traces.collect();
    if stream >= traces.len() {
        let count = traces.len();
        let what = format!("arrivals stream {stream}: the file has {count}, numbered from 0");
        return Err((None, what));
    }
    let numbered = (1..).zip(traces.swap_remove(stream));
    let times = numbered.map(|(number, ms)| {
        let at = to_ns(ms / 1e3).map(|ns| (None, ns));
        at.map_err(|what| (None, format!("arrival {number} of stream {stream}: {what}")))
    });
    ascending(times)
}

fn lines(text: &str) -> Result<Arc<[u64]>, Wrong> {
    let numbered = (1..).zip(text.lines().map(str::trim));
    let written = numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    ascending(written.map(|(number, line)| {
        let seconds = line.parse().ok().filter(|s: &f64| s.is_finite());
        let ns = match seconds {
            Some(seconds) => to_ns(seconds),
            None => Err(format!("{line:?}; expected a time in seconds")),
        };
        ns.map(|ns| (Some(number), ns))
            .map_err(|what| (Some(number), what))
    }))
}

fn ascending(
    times: impl Iterator<Item = Result<(Option<usize>, u64), Wrong>>,
) -> Result<Arc<[u64]>, Wrong> {
    let mut last_ns = 0;
    let checked = times.zip(1..).map(|(time, number)| {
        let (line, ns) = time?;
        if ns < last_ns {
            let [this, last] = [ns, last_ns].map(|ns| ns as f64 / 1e9);
            let what = format!(
                "arrival {number} at {this} s is before the one at {last} s; expected ascending times"
            );
            return Err((line, what));
        }
        last_ns = ns;
        Ok(ns)
    });
    checked.collect()
}

fn to_ns(seconds: f64) -> Result<u64, String> {
    match (0.0..=SECONDS_MAX).contains(&seconds) {
        true => Ok((seconds * 1e9).round() as u64),
        false => Err(format!("{seconds} s; expected 0 to {SECONDS_MAX} s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(arrivals: &Arrivals, duration_ns: u64, seed: u64) -> Vec<u64> {
        let mut schedule = arrivals.schedule(duration_ns, seed);
        std::iter::from_fn(|| schedule.next_ns(0)).collect()
    }

    fn parse(text: &str, stream: usize) -> Result<Arrivals, String> {
        Arrivals::parse(text, Path::new("a.txt"), stream).map_err(|error| error.to_string())
    }

    #[test]
    fn equal_seeds_give_equal_arrivals_and_others_do_not() {
        let at = |seed| all(&Arrivals::Poisson { per_s: 15.0 }, 10_000_000_000, seed);
        assert_eq!(at(1), at(1));
        assert_ne!(at(1), at(2));
        // 150 expected in 10 s, standard deviation 12.2: 5 of them are practically impossible.
        assert!((90..210).contains(&at(1).len()), "{}", at(1).len());
    }

    #[test]
    fn bursts_have_their_rate_within_and_silences_between() {
        let bursts = Arrivals::Bursts {
            per_s: 100.0,
            on_s: 0.5,
            off_s: 2.0,
        };
        let times = all(&bursts, 1_000_000_000_000, 3);
        // 1000 s in cycles of 2.5 s with 50 requests: a mean of 20 000, and bursts vary by a
        // twentieth.
        assert!((17_000..23_000).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        let (within, between): (Vec<u64>, Vec<u64>) = gaps.partition(|&gap| gap < 100_000_000);
        let mean = |ns: &[u64]| ns.iter().sum::<u64>() as f64 / ns.len() as f64 / 1e6;
        assert!((9.0..11.0).contains(&mean(&within)), "{}", mean(&within));
        assert!(
            (1_700.0..2_400.0).contains(&mean(&between)),
            "{}",
            mean(&between)
        );
        assert_eq!(times, all(&bursts, 1_000_000_000_000, 3));
        assert_ne!(times, all(&bursts, 1_000_000_000_000, 4));
    }

    #[test]
    fn a_job_that_begins_later_has_the_same_arrivals_later() {
        for arrivals in [
            Arrivals::Poisson { per_s: 15.0 },
            Arrivals::Uniform { per_s: 15.0 },
            Arrivals::Gaps([7, 5].into()),
        ] {
            let at = |start_ns, duration_ns| {
                let mut schedule = arrivals.schedule_from(start_ns, duration_ns, 1);
                let times = std::iter::from_fn(|| schedule.next_ns(0));
                times.take(50).collect::<Vec<u64>>()
            };
            let later: Vec<u64> = at(0, 9_000_000_000)
                .iter()
                .map(|ns| ns + 1_000_000_000)
                .collect();
            assert_eq!(at(1_000_000_000, 10_000_000_000), later, "{arrivals:?}");
        }
        let mut closed = Arrivals::Closed.schedule_from(30, 100, 1);
        assert_eq!(closed.next_ns(0), Some(30));
        assert_eq!(closed.next_ns(70), Some(70));
        assert_eq!(closed.next_ns(100), None);
    }

    #[test]
    fn uniform_arrivals_are_equally_spaced() {
        assert_eq!(
            all(&Arrivals::Uniform { per_s: 4.0 }, 1_000_000_000, 1),
            [0, 250_000_000, 500_000_000, 750_000_000]
        );
    }

    #[test]
    fn phases_have_their_rates() {
        let phases = [
            Phase {
                start_ns: 500_000_000_000,
                per_s: 40.0,
            },
            Phase {
                start_ns: 750_000_000_000,
                per_s: 2.0,
            },
        ];
        for arrivals in [
            Arrivals::Uniform { per_s: 10.0 },
            Arrivals::Poisson { per_s: 10.0 },
        ] {
            arrivals.check_phases(&phases, 1_000_000_000_000).unwrap();
            let mut schedule = arrivals.schedule(1_000_000_000_000, 1).in_phases(&phases);
            let times: Vec<u64> = std::iter::from_fn(|| schedule.next_ns(0)).collect();
            assert!(times.is_sorted());
            let within = |from: u64, to: u64| {
                let range = from * 1_000_000_000..to * 1_000_000_000;
                times.iter().filter(|&ns| range.contains(ns)).count()
            };
            // Five standard deviations of the random ones.
            let counts = [within(0, 500), within(500, 750), within(750, 1_000)];
            for (count, (expected, off)) in
                counts.iter().zip([(5_000, 360), (10_000, 500), (500, 115)])
            {
                assert!(count.abs_diff(expected) <= off, "{counts:?}");
            }
            if matches!(arrivals, Arrivals::Uniform { .. }) {
                assert_eq!(counts, [5_000, 10_000, 500]);
            }
        }
    }

    #[test]
    fn phases_that_cannot_be_meant_are_refused() {
        let check = |arrivals: Arrivals, phases: &[(u64, f64)]| {
            let phase = |&(start_ns, per_s)| Phase { start_ns, per_s };
            let phases: Vec<Phase> = phases.iter().map(phase).collect();
            arrivals.check_phases(&phases, 60_000_000_000)
        };
        let poisson = || Arrivals::Poisson { per_s: 1.0 };
        assert!(check(Arrivals::Closed, &[]).is_ok());
        assert!(check(Arrivals::Closed, &[(1, 2.0)]).is_err());
        assert!(check(poisson(), &[(1, 2.0), (2, 3.0)]).is_ok());
        assert!(check(poisson(), &[(2, 2.0), (1, 3.0)]).is_err());
        assert!(check(poisson(), &[(1, 2.0), (1, 3.0)]).is_err());
        for per_s in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(check(poisson(), &[(1, per_s)]).is_err());
        }
    }

    #[test]
    fn a_closed_loop_ends_with_its_duration() {
        let mut schedule = Arrivals::Closed.schedule(100, 1);
        assert_eq!(schedule.next_ns(5), Some(5));
        assert_eq!(schedule.next_ns(99), Some(99));
        assert_eq!(schedule.next_ns(100), None);
    }

    #[test]
    fn gaps_are_repeated_and_times_are_not() {
        let gaps = parse("[0.5, 1]", 0).unwrap();
        assert_eq!(
            all(&gaps, 3_400_000_000, 1),
            [500_000_000, 1_500_000_000, 2_000_000_000, 3_000_000_000]
        );
        let times = parse("# c\n0.5\n\n1\n", 0).unwrap();
        assert_eq!(all(&times, 3_400_000_000, 1), [500_000_000, 1_000_000_000]);
    }

    #[test]
    fn a_file_is_stretched_to_a_rate_and_repeated() {
        let times = parse("1\n1.1\n1.3\n", 0).unwrap();
        assert_eq!(times.per_s(), None);
        // The mean gap is 0.15 s, and so is that between the last and the first.
        let stretched = times.stretched(10.0).unwrap();
        assert!((stretched.per_s().unwrap() - 10.0).abs() < 1e-6);
        let tenths: Vec<u64> = all(&stretched, 700_000_000, 1)
            .iter()
            .map(|ns| (ns + 500_000) / 1_000_000)
            .collect();
        assert_eq!(tenths, [100, 167, 300, 400, 467, 600]);
        let gaps = parse("[0.5, 1.5]", 0).unwrap();
        assert_eq!(gaps.per_s(), Some(1.0));
        let gaps = gaps.stretched(100.0).unwrap();
        assert_eq!(gaps, Arrivals::Gaps([5_000_000, 15_000_000].into()));
        for arrivals in [Arrivals::Closed, Arrivals::Uniform { per_s: 1.0 }] {
            assert_eq!(arrivals.stretched(2.0), None);
        }
        for text in ["1\n", "1\n1\n"] {
            assert_eq!(parse(text, 0).unwrap().stretched(2.0), None, "{text:?}");
        }
    }

    #[test]
    fn a_disb_workload_is_absolute_milliseconds_per_task() {
        let text = r#"{"tasks":[{"load":{"type":"continuous"}},{"load":{"trace":[0,150]}}]}"#;
        let times = parse(text, 0).unwrap();
        assert_eq!(all(&times, 1_000_000_000, 1), [0, 150_000_000]);
        let error = parse(text, 1).unwrap_err();
        assert_eq!(
            error,
            "a.txt: arrivals stream 1: the file has 1, numbered from 0"
        );
    }

    #[test]
    fn what_cannot_be_meant_is_named_with_its_line() {
        let error = |text: &str| parse(text, 0).unwrap_err();
        assert_eq!(
            error("0.5\nsoon\n"),
            "a.txt:2: \"soon\"; expected a time in seconds"
        );
        assert_eq!(error("# nothing\n"), "a.txt: no arrival");
        assert!(error("[0.1,\n\"x\"]").starts_with("a.txt:2: expected a JSON list"));
        assert_eq!(
            error("[1, -0.1]"),
            "a.txt: gap 2: -0.1 s; expected 0 to 86400 s"
        );
        assert!(error("[0, 0]").contains("expected some time between"));
        assert_eq!(
            error("# s\n1\n\n-1\n"),
            "a.txt:4: -1 s; expected 0 to 86400 s"
        );
        assert_eq!(
            error("1e9\n"),
            "a.txt:1: 1000000000 s; expected 0 to 86400 s"
        );
        assert_eq!(
            error("0\n\n2\n# c\n1.5\n"),
            "a.txt:5: arrival 3 at 1.5 s is before the one at 2 s; expected ascending times"
        );
        let disb = r#"{"tasks":[{"load":{"trace":[0, 150, -1]}}]}"#;
        assert_eq!(
            error(disb),
            "a.txt: arrival 3 of stream 0: -0.001 s; expected 0 to 86400 s"
        );
        assert!(error(&disb.replace("-1", "1")).contains("arrival 3 at 0.001 s is before"));
        assert!(error("nan\n").contains("expected a time in seconds"));
    }

    #[test]
    fn gaps_that_add_up_to_more_than_time_are_gaps_all_the_same() {
        let gaps = vec!["86400"; 213_505].join(", ");
        let read = parse(&format!("[{gaps}]"), 0).unwrap();
        assert_eq!(all(&read, 1_000_000_000, 1), [0_u64; 0]);
    }

    #[test]
    fn rates_that_cannot_be_meant_are_refused() {
        for per_s in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            let (on_s, off_s) = (1.0, 1.0);
            for arrivals in [
                Arrivals::Poisson { per_s },
                Arrivals::Uniform { per_s },
                Arrivals::Bursts { per_s, on_s, off_s },
            ] {
                assert!(arrivals.check(60_000_000_000).is_err(), "{per_s}");
            }
        }
    }

    #[test]
    fn bursts_without_a_length_are_refused() {
        for (on_s, off_s) in [(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (1.0, 1e6)] {
            let bursts = Arrivals::Bursts {
                per_s: 10.0,
                on_s,
                off_s,
            };
            assert!(bursts.check(60_000_000_000).is_err(), "{on_s} {off_s}");
        }
    }

    #[test]
    fn the_first_jobs_seed_is_the_runs() {
        assert_eq!(seed_of_job(7, 0), 7);
        assert_ne!(seed_of_job(7, 1), seed_of_job(7, 2));
    }
}
