//! Whether the policy relies on priorities between blocks of different processes.
//! No driver reports whether such priorities work. The daemon knows from a measurement
//! (`host::measured`), from the software GPU, or from the configuration.

use std::path::PathBuf;

/// Knowledge of block priorities on a GPU, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockPriority {
    /// The software GPU's server reports whether they work.
    Told(bool),
    /// Measured, according to this file.
    Measured(bool, PathBuf),
    /// This file does not exist.
    NotMeasured(PathBuf),
    /// The file is unusable, for this reason.
    Unusable(String),
}

impl BlockPriority {
    /// Whether block priorities are known to work.
    #[must_use]
    pub fn works(&self) -> bool {
        matches!(self, Self::Told(true) | Self::Measured(true, _))
    }

    /// The reason for display, after "on" or "off".
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Told(_) => "as the software GPU reports".to_owned(),
            Self::Measured(_, path) => format!("as measured ({})", path.display()),
            Self::NotMeasured(path) => format!(
                "because its effect on this GPU has not been measured; benches/gpu measures it and \
                 writes {}",
                path.display()
            ),
            Self::Unusable(why) => {
                format!("because the measurement of this GPU cannot be used: {why}")
            }
        }
    }
}

/// Whether the daemon relies on block priorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counting {
    /// `[policy] block_priority`; none: `auto`.
    pub configured: Option<bool>,
    /// Knowledge, whatever is configured.
    pub known: BlockPriority,
}

impl Counting {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(configured: Option<bool>) -> Self {
        Self {
            configured,
            known: BlockPriority::NotMeasured(PathBuf::new()),
        }
    }

    /// Whether the daemon relies on them.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.configured.unwrap_or(self.known.works())
    }

    /// The reason, for display.
    #[must_use]
    pub fn why(&self) -> String {
        match self.configured {
            Some(_) => "by the configuration".to_owned(),
            None => self.known.why(),
        }
    }
}
