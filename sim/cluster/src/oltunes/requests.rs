//! Requests of the comparison: which model, when, how many inputs, until when. Vision is
//! latency-critical (LC). Of language nine tenths are throughput-oriented (TO), the rest LC
//! (section 4.1). An LC request is one input. A TO request is [`TO_INPUTS`] inputs, and asks for a
//! batch of [`TO_BATCHES`], drawn.

use std::path::Path;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use sim::Arrivals;

use crate::oltunes::facts::Facts;

/// Inputs of a TO request. The paper has batches of 1 to 128, and no numbers of inputs.
pub const TO_INPUTS: u32 = 16;

/// Places in `oltunes_table::BATCHES` that TO requests ask for, each as often: 4, 8 and 16 inputs.
pub const TO_BATCHES: [usize; 3] = [1, 2, 3];

/// Until when a TO request is to be answered. The paper calls it relatively flexible.
pub const TO_DEADLINE_S: f64 = 60.0;

/// Part of language that is throughput-oriented (section 4.1).
const TO_PART: f64 = 0.9;

/// λ of LC and of TO requests: the middle of the paper's ranges.
const LAMBDAS: [f64; 2] = [0.75, 0.25];

/// The factor on Table 7's rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Those of vision, which is LC.
    pub vision: f64,
    /// Those of language.
    pub language: f64,
}

impl Load {
    /// The paper's.
    pub const TABLE_7: Self = Self {
        vision: 1.0,
        language: 1.0,
    };
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Its arrival.
    pub at_ns: u64,
    /// Place of its model.
    pub model: usize,
    /// LC, not TO.
    pub is_critical: bool,
    /// Inputs that are to be answered.
    pub inputs: u32,
    /// Place of the batch that it asks for.
    pub batch: usize,
    /// From its arrival on.
    pub deadline_ns: u64,
    /// Weight of latency.
    pub lambda: f64,
}

/// How requests arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// At equal intervals.
    Uniform,
    /// At random.
    Poisson,
    /// As recorded.
    Real(Recorded),
}

impl Pattern {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Poisson => "poisson",
            Self::Real(_) => "real",
        }
    }
}

/// Lists of DISB's `REAL.json`: requests of a recorded car (Baidu's Apollo) to five networks.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    lists: Vec<Vec<u64>>,
    period_ns: u64,
}

/// The list of each model, in the order of `oltunes_table::MODELS`. Language has that of DistilBERT
/// (4), ResNet-50 and 152 that of ResNet-152 (0), ResNet-18, with the most requests, that of
/// VGG-19, which has the most (2), YOLOv5 those of DenseNet (1) and Inception (3).
const LISTS: [usize; 8] = [2, 1, 3, 4, 4, 0, 0, 4];

impl Recorded {
    /// From DISB's file.
    ///
    /// # Errors
    /// The file is unreadable or invalid.
    pub fn read(path: &Path) -> Result<Self, sim::Error> {
        let count = LISTS.iter().max().map_or(0, |last| last + 1);
        let list = |stream| {
            let times: Arc<[u64]> = match Arrivals::read(path, stream)? {
                Arrivals::Times(times) => times,
                other => unreachable!("a DISB file has times: {other:?}"),
            };
            Ok(times.to_vec())
        };
        let lists = (0..count).map(list).collect::<Result<_, sim::Error>>()?;
        Ok(Self::new(lists))
    }

    fn new(lists: Vec<Vec<u64>>) -> Self {
        let last = lists.iter().filter_map(|times| times.last());
        let period_ns = last.max().map_or(1, |last| last + 1);
        Self { lists, period_ns }
    }

    /// A model's times, cyclic from a drawn place of its list, stretched to a rate.
    fn times(&self, model: usize, rate: f64, span_ns: u64, random: &mut Pcg64) -> Vec<u64> {
        let list = &self.lists[LISTS[model % LISTS.len()]];
        let recorded = list.len() as f64 / self.period_ns as f64 * 1e9;
        let scale = recorded / rate;
        let start = random.random_range(0..self.period_ns);
        let rounds = (span_ns as f64 / scale / self.period_ns as f64) as u64 + 2;
        let all = (0..rounds).flat_map(|round| {
            let shifted = list.iter().map(move |at| at + round * self.period_ns);
            shifted.filter(|&at| at >= start)
        });
        all.map(|at| ((at - start) as f64 * scale) as u64)
            .take_while(|&at| at < span_ns)
            .collect()
    }
}

/// All requests of so long, in the order of their arrival.
#[must_use]
pub fn requests(
    facts: &Facts,
    pattern: &Pattern,
    load: Load,
    span_ns: u64,
    seed: u64,
) -> Vec<Request> {
    let mut all = Vec::new();
    for model in 0..facts.models.len() {
        let mut random = Pcg64::seed_from_u64(seed << 8 | model as u64);
        let times = times(facts, pattern, model, load, span_ns, &mut random);
        all.extend(
            times
                .into_iter()
                .map(|at_ns| request(facts, model, at_ns, &mut random)),
        );
    }
    all.sort_by_key(|request| (request.at_ns, request.model));
    all
}

fn times(
    facts: &Facts,
    pattern: &Pattern,
    model: usize,
    load: Load,
    span_ns: u64,
    random: &mut Pcg64,
) -> Vec<u64> {
    let of = &facts.models[model];
    let load = if of.is_vision {
        load.vision
    } else {
        load.language
    };
    let spaced = |rate: f64, gap: &mut dyn FnMut() -> f64| {
        let (mut at, mut times) = (gap() / rate, Vec::new());
        while at * 1e9 < span_ns as f64 {
            times.push((at * 1e9) as u64);
            at += gap() / rate;
        }
        times
    };
    match pattern {
        Pattern::Uniform => {
            let mut first = Some(random.random_range(0.0..1.0));
            spaced(load * of.rps_uniform, &mut || first.take().unwrap_or(1.0))
        }
        Pattern::Poisson => {
            let mut gap = || -(1.0 - random.random_range(0.0..1.0f64)).ln();
            spaced(load * of.rps_poisson, &mut gap)
        }
        Pattern::Real(recorded) => recorded.times(model, load * of.rps_poisson, span_ns, random),
    }
}

fn request(facts: &Facts, model: usize, at_ns: u64, random: &mut Pcg64) -> Request {
    let of = &facts.models[model];
    let is_critical = of.is_vision || random.random_range(0.0..1.0) >= TO_PART;
    let drawn = TO_BATCHES[random.random_range(0..TO_BATCHES.len())];
    let deadline_s = if is_critical {
        of.slo_ms / 1e3
    } else {
        TO_DEADLINE_S
    };
    Request {
        at_ns,
        model,
        is_critical,
        inputs: if is_critical { 1 } else { TO_INPUTS },
        batch: if is_critical { 0 } else { drawn },
        deadline_ns: (deadline_s * 1e9) as u64,
        lambda: LAMBDAS[usize::from(!is_critical)],
    }
}
