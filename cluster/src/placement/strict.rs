//! First come, first served: a policy whose queue lets no job pass another.

use crate::job::JobSpec;
use crate::placement::{Candidate, Decision, Measured, Placement};
use crate::view::View;

/// The policy within, in strict order of arrival.
pub struct Strict(pub Box<dyn Placement>);

impl Placement for Strict {
    fn place(
        &mut self,
        view: &View,
        job: &JobSpec,
        now_ns: u64,
        candidates: Option<&mut Vec<Candidate>>,
    ) -> Decision {
        self.0.place(view, job, now_ns, candidates)
    }

    fn handle_measured(&mut self, measured: Measured<'_>) {
        self.0.handle_measured(measured);
    }

    fn is_strict(&self) -> bool {
        true
    }
}
