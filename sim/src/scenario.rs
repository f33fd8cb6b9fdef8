//! Scenarios: experiments as a TOML file, or as the command's options. `docs/simulate.md` has every
//! key; `examples/scenario.toml` is a complete file. An invalid file is refused with all its
//! faults, each with place, value and the nearest valid value, before any run. Unreadable keys and
//! values are reported together; without any, conflicts are reported. Relative paths in a file
//! start at the file's folder. A file becomes a [`Scenario`] for each combination of its sweep, in
//! order, with a run per seed.

mod job;
mod parse;
mod size;
#[cfg(test)]
mod tests;

pub use job::{RATE_MAX, kind_of, shown_arrivals};
pub use parse::{
    DEVICE_DEFAULT, SECONDS_DEFAULT, SECONDS_MAX, SHARING_NAMES, WARMUP_DEFAULT, check,
    contradiction,
};

use std::path::{Path, PathBuf};

use profiler::settings::{Fault, lines};

use crate::experiment::Experiment;
use crate::library::Library;
use crate::sweep::Swept;

/// One combination of a scenario file: an experiment without its seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name; may be empty.
    pub name: String,
    /// Everything but the seed.
    pub experiment: Experiment,
    /// The names of each job's trace and arrivals in results, in the order of the jobs.
    pub shown: Vec<Shown>,
    /// One run for each.
    pub seeds: Vec<u64>,
    /// The swept values of this combination, in the order of the sweep.
    pub swept: Vec<Swept>,
}

/// A job in results.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Its trace: the file's name or the workload's.
    pub trace: String,
    /// Its arrivals: `closed`, `poisson 15/s`, or the file's name.
    pub arrivals: String,
}

/// Why a scenario cannot be run: an operator's mistake.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Box<profiler::Error>),
    /// Its faults, one line each.
    #[error("{}", lines(.0))]
    Invalid(Vec<Fault>),
}

impl Scenario {
    /// Reads every combination of the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or all its faults.
    pub fn read(path: &Path, library: &mut Library) -> Result<Vec<Self>, ScenarioError> {
        let text = profiler::read_text(path).map_err(Box::new)?;
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
        Self::parse(path, &text, &folder, library)
    }

    /// Reads `text`; `path` only names it in faults, paths in it start at `folder`.
    ///
    /// # Errors
    /// All its faults.
    pub fn parse(
        path: &Path,
        text: &str,
        folder: &Path,
        library: &mut Library,
    ) -> Result<Vec<Self>, ScenarioError> {
        parse::parse(path, text, folder, library).map_err(ScenarioError::Invalid)
    }

    /// The experiment with that seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Experiment {
        Experiment {
            seed,
            ..self.experiment.clone()
        }
    }
}
