//! Suites: related experiments, as built-in scenario files. Two of them, `orion` and `muxflow`,
//! repeat published experiments ([`published`]). A suite is data: the files in `suite/` and a list
//! of them. Recorded traces and arrivals are read from a folder; where they are missing, the
//! built-in workload or the arrivals of that name replace them, and the suite states so.

pub mod published;

use std::path::Path;

use crate::library::Library;
use crate::scenario::{Scenario, ScenarioError};
use published::Claim;

/// A suite.
#[derive(Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// Its description, in one line.
    pub about: &'static str,
    /// Its experiments, in order.
    pub parts: &'static [Part],
    /// One of its recorded files, if any; where this is missing, all are.
    data: Option<&'static str>,
    quick: Quick,
    publication: Option<Publication>,
}

#[derive(Clone, Copy, Debug)]
enum Quick {
    Minute,
    /// A tenth of the time, with a warm-up of [`WARMUP_TENTH`] at most: a run is as long as its
    /// requests take. Runs above [`TENTH_NS_MAX`] are left out.
    Tenth,
}

impl Quick {
    fn cut(self, scenario: &mut Scenario) -> bool {
        scenario.seeds.truncate(1);
        let experiment = &mut scenario.experiment;
        let duration_ns = &mut experiment.duration_ns;
        match self {
            Self::Minute => {
                *duration_ns = QUICK_NS.min(*duration_ns);
                true
            }
            Self::Tenth => {
                *duration_ns = (*duration_ns / 10).max(1);
                experiment.warmup_requests = experiment.warmup_requests.min(WARMUP_TENTH);
                experiment.duration_ns <= TENTH_NS_MAX
            }
        }
    }
}

#[derive(Debug)]
struct Publication {
    claims: &'static str,
    why: &'static str,
}

/// An experiment of a suite.
#[derive(Debug)]
pub struct Part {
    /// Its key in results.
    pub key: &'static str,
    /// The subject of its runs.
    pub title: &'static str,
    /// The scenario file.
    pub text: &'static str,
    /// Whether a quick run has it.
    pub is_quick: bool,
}

/// A suite that is ready to run.
#[derive(Debug)]
pub struct Built {
    /// Every experiment with its scenarios.
    pub parts: Vec<(&'static Part, Vec<Scenario>)>,
    /// Notes for a reader of the results, a line each.
    pub notes: Vec<String>,
}

/// An unknown suite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: suites are {known}")]
pub struct UnknownSuite {
    /// The given name.
    pub name: String,
    /// The known suites.
    pub known: String,
}

const QUICK_NS: u64 = 60_000_000_000;

/// Unjudged requests of a tenth: until `pillion` knows the solo latency of marked ones.
const WARMUP_TENTH: u32 = 150;

/// Longest run of a tenth: requests of 50 ms at a fifth of the time would take a third of all.
const TENTH_NS_MAX: u64 = 120_000_000_000;

const NOWHERE: &str = "/dev/null";

impl Suite {
    /// The suite of that name.
    ///
    /// # Errors
    /// It is unknown.
    pub fn by_name(name: &str) -> Result<&'static Self, UnknownSuite> {
        let suites = SUITES.iter();
        let found = suites.clone().find(|suite| suite.name == name);
        found.ok_or_else(|| UnknownSuite {
            name: name.to_owned(),
            known: suites
                .map(|suite| suite.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// Whether its rows are judged ([`crate::targets`]).
    #[must_use]
    pub const fn judges_targets(&self) -> bool {
        matches!(self.quick, Quick::Tenth)
    }

    /// Its publication's claims; empty without one.
    #[must_use]
    pub fn claims(&self) -> Vec<Claim> {
        let publication = self.publication.as_ref();
        // The file comes with the program, and a test reads it.
        publication.map_or_else(Vec::new, |of| {
            published::parse(of.claims).unwrap_or_default()
        })
    }

    /// Where and why its results differ from its publication's, in Markdown; `None` without one.
    #[must_use]
    pub fn why(&self) -> Option<&'static str> {
        self.publication.as_ref().map(|of| of.why)
    }

    /// Its scenarios, with recorded data from the folder `data`. A quick suite has the first seed,
    /// and at most 60 s of device time; `slo` a tenth of its requests.
    ///
    /// # Errors
    /// A file in `data` is invalid.
    pub fn build(
        &'static self,
        data: Option<&Path>,
        is_quick: bool,
        library: &mut Library,
    ) -> Result<Built, ScenarioError> {
        let folder = data.unwrap_or(Path::new(NOWHERE));
        let mut notes = Vec::new();
        if let Some(data) = self.data.filter(|data| !folder.join(data).exists()) {
            notes.push(format!(
                "no recorded traces ({data}): built-in workloads replace them, and the results differ. \
                 Set PILLION_DATA to the folder of the recorded traces"
            ));
        }
        let mut parts = Vec::new();
        for part in self.parts.iter().filter(|part| part.is_quick || !is_quick) {
            let name = format!("{}/{}.toml", self.name, part.key);
            let mut scenarios = Scenario::parse(Path::new(&name), part.text, folder, library)?;
            if is_quick {
                scenarios.retain_mut(|scenario| self.quick.cut(scenario));
            }
            parts.push((part, scenarios));
        }
        Ok(Built { parts, notes })
    }
}

const fn part(key: &'static str, title: &'static str, text: &'static str, is_quick: bool) -> Part {
    Part {
        key,
        title,
        text,
        is_quick,
    }
}

static SUITES: [Suite; 6] = [
    Suite {
        name: "orion",
        about: "the experiments of Orion (EuroSys'24)",
        data: Some("orion/model_kernels"),
        quick: Quick::Minute,
        publication: Some(Publication {
            claims: include_str!("suite/orion/published.toml"),
            why: include_str!("suite/orion/why.md"),
        }),
        parts: &ORION,
    },
    Suite {
        name: "robustness",
        about: "how much a gate helps when its inputs are wrong, late or missing",
        data: Some("orion/model_kernels"),
        quick: Quick::Minute,
        publication: None,
        parts: &ROBUSTNESS,
    },
    Suite {
        name: "busy",
        about: "a high-priority job that keeps the device busy half of the time",
        data: Some("orion/model_kernels"),
        quick: Quick::Minute,
        publication: None,
        parts: &BUSY,
    },
    Suite {
        name: "ablation",
        about: "the value of each mechanism of the policy pillion",
        data: Some("orion/model_kernels"),
        quick: Quick::Minute,
        publication: None,
        parts: &ABLATION,
    },
    Suite {
        name: "slo",
        about: "whether a latency target is met and its slack used, where requests are marked",
        data: Some("orion/model_kernels"),
        quick: Quick::Tenth,
        publication: None,
        parts: &SLO,
    },
    Suite {
        name: "muxflow",
        about: "MuxFlow's experiments with a throttle and shares of the SMs, on a T4 that clocks down",
        data: None,
        quick: Quick::Minute,
        publication: Some(Publication {
            claims: include_str!("suite/muxflow/published.toml"),
            why: include_str!("suite/muxflow/why.md"),
        }),
        parts: &MUXFLOW,
    },
];

static MUXFLOW: [Part; 3] = [
    part(
        "figure-9",
        "Inference beside training, requests at random (Figure 9)",
        include_str!("suite/muxflow/figure-9.toml"),
        true,
    ),
    part(
        "figure-9-closed",
        "The same, one request after the other",
        include_str!("suite/muxflow/figure-9-closed.toml"),
        true,
    ),
    part(
        "shares",
        "Fixed and dynamic shares of the SMs (Figures 6 and 10)",
        include_str!("suite/muxflow/shares.toml"),
        true,
    ),
];

static ORION: [Part; 9] = [
    part(
        "inf-train",
        "Inference beside training, Poisson arrivals (Figure 7, Table 4)",
        include_str!("suite/orion/inf-train.toml"),
        true,
    ),
    part(
        "inf-train-apollo",
        "Inference beside training, arrivals of an Apollo car (Figure 6)",
        include_str!("suite/orion/inf-train-apollo.toml"),
        true,
    ),
    part(
        "inf-inf",
        "Inference beside inference, Poisson arrivals (Figure 12)",
        include_str!("suite/orion/inf-inf.toml"),
        true,
    ),
    part(
        "inf-inf-apollo",
        "Inference beside inference, arrivals of an Apollo car (Figure 11)",
        include_str!("suite/orion/inf-inf-apollo.toml"),
        true,
    ),
    part(
        "train-train",
        "Training beside training (Figure 10)",
        include_str!("suite/orion/train-train.toml"),
        true,
    ),
    part(
        "five-clients",
        "Five inference jobs on an A100 (Figure 13)",
        include_str!("suite/orion/five-clients.toml"),
        true,
    ),
    part(
        "breakdown",
        "The value of each rule of the policy (Figure 14)",
        include_str!("suite/orion/breakdown.toml"),
        true,
    ),
    part(
        "dur-threshold",
        "How much best-effort work may be in flight (section 6.4)",
        include_str!("suite/orion/dur-threshold.toml"),
        true,
    ),
    part(
        "launch-gap",
        "How fast the host launches (not in the paper)",
        include_str!("suite/orion/launch-gap.toml"),
        true,
    ),
];

static ROBUSTNESS: [Part; 8] = [
    part(
        "disturbances",
        "One disturbance at a time",
        include_str!("suite/robustness/disturbances.toml"),
        true,
    ),
    part(
        "bursts",
        "Requests in bursts",
        include_str!("suite/robustness/bursts.toml"),
        true,
    ),
    part(
        "silence",
        "Silent for two minutes, then all of the device",
        include_str!("suite/robustness/silence.toml"),
        // A quick run would end in the silence.
        false,
    ),
    part(
        "sixteen",
        "Sixteen best-effort jobs",
        include_str!("suite/robustness/sixteen.toml"),
        true,
    ),
    part(
        "deaths",
        "Jobs that are killed with work in flight",
        include_str!("suite/robustness/deaths.toml"),
        true,
    ),
    part(
        "time-slices",
        "Time slices",
        include_str!("suite/robustness/time-slices.toml"),
        true,
    ),
    part(
        "length-blocks",
        "Long best-effort kernels in blocks of 100 us",
        include_str!("suite/robustness/length-blocks.toml"),
        true,
    ),
    part(
        "length-waves",
        "Long best-effort kernels in one wave",
        include_str!("suite/robustness/length-waves.toml"),
        true,
    ),
];

static BUSY: [Part; 2] = [
    part(
        "trainings",
        "Busy half of the time, beside training",
        include_str!("suite/busy/trainings.toml"),
        true,
    ),
    part(
        "long-kernels",
        "Busy half of the time, beside kernels of 1 to 10 ms",
        include_str!("suite/busy/long-kernels.toml"),
        true,
    ),
];

static ABLATION: [Part; 9] = [
    part(
        "front",
        "Every policy, inference beside training",
        include_str!("suite/ablation/front.toml"),
        true,
    ),
    part(
        "unseen",
        "Jobs on which no number was chosen",
        include_str!("suite/ablation/unseen.toml"),
        true,
    ),
    part(
        "two-threads",
        "Jobs that launch from two threads, as PyTorch's do",
        include_str!("suite/ablation/two-threads.toml"),
        true,
    ),
    part(
        "inf-train",
        "Inference beside training, Poisson arrivals",
        include_str!("suite/ablation/inf-train.toml"),
        true,
    ),
    part(
        "periodic",
        "Inference beside training, requests at equal intervals",
        include_str!("suite/ablation/periodic.toml"),
        true,
    ),
    part(
        "busy",
        "Busy half of the time",
        include_str!("suite/ablation/busy.toml"),
        true,
    ),
    part(
        "no-block-priority",
        "Without priorities of blocks",
        include_str!("suite/ablation/no-block-priority.toml"),
        true,
    ),
    part(
        "copies",
        "Beside a job that copies to the device again and again",
        include_str!("suite/ablation/copies.toml"),
        false,
    ),
    part(
        "copies-three",
        "Beside three jobs that copy 64 MB again and again",
        include_str!("suite/ablation/copies-three.toml"),
        false,
    ),
];

static SLO: [Part; 8] = [
    part(
        "poisson",
        "Targets asked and held, Poisson arrivals",
        include_str!("suite/slo/poisson.toml"),
        true,
    ),
    part(
        "uniform",
        "Targets asked and held, requests at equal intervals",
        include_str!("suite/slo/uniform.toml"),
        true,
    ),
    part(
        "recorded",
        "Targets asked and held, arrivals of an Apollo car",
        include_str!("suite/slo/recorded.toml"),
        true,
    ),
    part(
        "burst",
        "Targets asked and held, three times as many requests for a while",
        include_str!("suite/slo/burst.toml"),
        // A tenth of it is over before the burst.
        false,
    ),
    part(
        "gpucolo-model",
        "The mean latency over sleeps and shares of best-effort jobs (GPUColo, Figure 6)",
        include_str!("suite/slo/gpucolo-model.toml"),
        // Runs are as long as the publication's: a tenth of one is a transient.
        false,
    ),
    part(
        "gpucolo-burst",
        "A mean latency of 90 ms while batches are greater (GPUColo, Figure 8)",
        include_str!("suite/slo/gpucolo-burst.toml"),
        false,
    ),
    part(
        "gpucolo-targets",
        "Five targets for a mean latency (GPUColo, Figure 9)",
        include_str!("suite/slo/gpucolo-targets.toml"),
        false,
    ),
    part(
        "mudi-burst",
        "Batches and shares at three times the rate (Mudi, Figure 16)",
        include_str!("suite/slo/mudi-burst.toml"),
        false,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_whole_without_recorded_data_and_says_so() {
        for suite in &SUITES {
            let mut library = Library::default();
            let full = suite.build(None, false, &mut library).unwrap();
            let notes = usize::from(suite.data.is_some());
            assert_eq!(full.notes.len(), notes, "{:?}", full.notes);
            assert_eq!(full.parts.len(), suite.parts.len(), "{}", suite.name);
            for (part, scenarios) in &full.parts {
                assert!(!scenarios.is_empty(), "{}", part.key);
                assert!(scenarios.iter().all(|scenario| !scenario.seeds.is_empty()));
            }
            let quick = suite.build(None, true, &mut library).unwrap();
            for scenario in quick.parts.iter().flat_map(|(_, scenarios)| scenarios) {
                assert_eq!(scenario.seeds.len(), 1);
                let experiment = &scenario.experiment;
                match suite.quick {
                    Quick::Minute => assert!(experiment.duration_ns <= QUICK_NS),
                    Quick::Tenth => {
                        let per_s = experiment.jobs[0].arrivals.per_s().unwrap();
                        let requests = experiment.duration_ns as f64 / 1e9 * per_s;
                        assert!((requests - 1_050.0).abs() < 1.0, "{requests}");
                        assert_eq!(experiment.warmup_requests, WARMUP_TENTH);
                    }
                }
            }
        }
    }

    #[test]
    fn every_claim_is_of_a_part_and_speaks_of_runs_that_there_are() {
        for suite in &SUITES {
            let Some(publication) = &suite.publication else {
                assert!(suite.claims().is_empty() && suite.why().is_none());
                continue;
            };
            let claims = published::parse(publication.claims).unwrap();
            assert!(!claims.is_empty());
            let built = suite.build(None, true, &mut Library::default()).unwrap();
            for claim in claims {
                let part = built.parts.iter().find(|(part, _)| part.key == claim.part);
                let (_, scenarios) = part.unwrap_or_else(|| panic!("{claim:?}"));
                let policy = claim.policy.as_deref().unwrap_or(suite.name);
                let is_meant = |scenario: &&Scenario| {
                    let has_be = scenario.shown.iter().any(|s| claim.be.contains(&s.trace));
                    let mut swept = scenario.swept.iter();
                    scenario.experiment.policy.name() == policy
                        && (claim.be.is_empty() || has_be)
                        && (claim.swept.as_ref())
                            .is_none_or(|value| swept.any(|s| s.value == *value))
                };
                assert!(scenarios.iter().any(|s| is_meant(&s)), "{claim:?}");
            }
        }
    }

    #[test]
    fn an_unknown_suite_is_answered_with_those_that_there_are() {
        let error = Suite::by_name("oriom").unwrap_err();
        assert_eq!(
            error.to_string(),
            "oriom: suites are orion, robustness, busy, ablation, slo, muxflow"
        );
    }
}
