//! Whether the policy counts on priorities between blocks of different processes.
//!
//! No driver reports whether they work, so this is known by measurement (`host::measured`), by the
//! software GPU's word, or by the configuration.

use std::path::PathBuf;

/// What is known of priorities between blocks on a GPU, and by whose word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockPriority {
    /// The software GPU's server says whether they work.
    Told(bool),
    /// It was measured, by this file.
    Measured(bool, PathBuf),
    /// There is no such file.
    NotMeasured(PathBuf),
    /// The file cannot be used; why.
    Unusable(String),
}

impl BlockPriority {
    /// Whether they are known to work.
    #[must_use]
    pub fn works(&self) -> bool {
        matches!(self, Self::Told(true) | Self::Measured(true, _))
    }

    /// For people, after "on" or "off".
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Told(_) => "by the software GPU's word".to_owned(),
            Self::Measured(_, path) => format!("as measured ({})", path.display()),
            Self::NotMeasured(path) => format!(
                "because nobody has measured whether it works on this GPU: benches/gpu does, and writes {}",
                path.display()
            ),
            Self::Unusable(why) => {
                format!("because what was measured on this GPU cannot be used: {why}")
            }
        }
    }
}

/// Whether priorities between blocks are counted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counting {
    /// What `[policy] block_priority` says; none: `auto`.
    pub configured: Option<bool>,
    /// What is known.
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

    /// Whether they are.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.configured.unwrap_or(self.known.works())
    }

    /// Why, for people.
    #[must_use]
    pub fn why(&self) -> String {
        match self.configured {
            Some(_) => "by the configuration".to_owned(),
            None => self.known.why(),
        }
    }
}
