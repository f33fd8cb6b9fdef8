//! Whether a job would fit into the cluster if that were empty.

use std::collections::HashMap;

use crate::job::JobSpec;
use crate::view::View;

/// Kept answers about the empty cluster, and that cluster.
#[derive(Debug, Default)]
pub(super) struct Ever {
    empty: Option<View>,
    answers: HashMap<JobSpec, bool>,
}

const ANSWERS_MAX: usize = 4096;

impl Ever {
    pub(super) fn could(
        &mut self,
        view: &View,
        job: &JobSpec,
        fits: impl FnOnce(&View) -> bool,
    ) -> bool {
        let asked = job.without_id();
        if let Some(&could) = self.answers.get(&asked) {
            return could;
        }
        let empty = self
            .empty
            .get_or_insert_with(|| View::new(view.inventory().clone()));
        let could = fits(empty);
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.insert(asked, could);
        could
    }
}
