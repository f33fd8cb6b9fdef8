//! What is known of pairs when four of the nine trainings were never run before: predictions from
//! their layers, until a training has run beside a service (Mudi, EuroSys'25, sections 4.2 and
//! 7.3).

use learn::interference::{Learner, Neighbours, Settings};

use crate::interference::{SEEN, UNSEEN, neighbours, sample};
use crate::service_table::{BATCHES, SERVICES, ServiceTable};
use crate::services::{Known, place};

/// Fate of a prediction when the training starts beside that service. The last three are controls:
/// they show how much predictions matter to an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learning {
    /// The pair is measured: all its curves, at once, without noise or cost. So a prediction
    /// decides at most one start of each pair.
    Measured,
    /// Nothing is measured: the prediction stays.
    Predicted,
    /// The prediction stays, and is that of another of the four trainings.
    Permuted,
    /// The prediction stays, and is from layers alone: the mean of the trainings seen, because no
    /// method is better on networks left out ([`crate::interference`]).
    Mean,
}

impl Learning {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Measured, Self::Predicted, Self::Permuted, Self::Mean];
}

/// Knowledge that grows. Seen trainings are sampled. Others are predicted, and measured once they
/// run: then their curves with all batches are appended to the samples of the service's model, and
/// its predictions of the others are renewed.
#[derive(Debug)]
pub(super) struct Learnt {
    learner: Learner,
    sampled: Known,
    known: Known,
    unmeasured: Vec<Vec<usize>>,
    has_time: bool,
    learning: Learning,
}

impl Learnt {
    /// Knowledge before any training ran. `has_time`: times of iterations alone are known of all.
    pub(super) fn new(
        table: &ServiceTable,
        sampled: &Known,
        has_time: bool,
        learning: Learning,
    ) -> Self {
        let learner = Learner::new(Settings::default());
        let mut learnt = Self {
            learner: learner.expect("the default is within bounds"),
            sampled: sampled.clone(),
            known: sampled.clone(),
            unmeasured: vec![UNSEEN.to_vec(); SERVICES.len()],
            has_time: has_time && learning != Learning::Mean,
            learning,
        };
        for service in 0..SERVICES.len() {
            for training in UNSEEN {
                for batch in 0..BATCHES.len() {
                    learnt.known.clear(place(service, training, batch));
                }
            }
            for training in SEEN {
                learnt.push(table, service, training);
            }
            learnt.predict(table, service);
        }
        learnt
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    pub(super) fn is_predicted(&self, service: usize, training: usize) -> bool {
        self.unmeasured[service].contains(&training)
    }

    /// That training runs beside that service. Returns whether a first measurement was made.
    pub(super) fn handle_runs(
        &mut self,
        table: &ServiceTable,
        service: usize,
        training: usize,
    ) -> bool {
        if self.learning != Learning::Measured || !self.is_predicted(service, training) {
            return false;
        }
        self.unmeasured[service].retain(|&of| of != training);
        for batch in 0..BATCHES.len() {
            let place = place(service, training, batch);
            self.known.copy(place, &self.sampled);
        }
        self.push(table, service, training);
        self.predict(table, service);
        true
    }

    fn push(&mut self, table: &ServiceTable, service: usize, training: usize) {
        let samples = BATCHES.map(|batch| sample(table, (service, training, batch), self.has_time));
        for sample in samples.into_iter().flatten() {
            // An unlearnable table leaves pairs unknown, and nothing starts there.
            let _: Result<(), _> = self.learner.push(sample);
        }
    }

    fn asked(&self, table: &ServiceTable, training: usize) -> Option<Neighbours> {
        let at = UNSEEN.iter().position(|&of| of == training)?;
        let of = match self.learning {
            Learning::Permuted => UNSEEN[(at + 1) % UNSEEN.len()],
            _ => training,
        };
        neighbours(table, of, self.has_time)
    }

    /// Fits the service's model anew, and predicts all trainings that were not measured there.
    fn predict(&mut self, table: &ServiceTable, service: usize) {
        let refit = self.learner.refit(service as u16);
        if let Some(Ok(fitted)) = refit.map(|refit| refit.run()) {
            self.learner.swap(fitted);
        }
        let Some(model) = self.learner.model(service as u16) else {
            return;
        };
        for &training in &self.unmeasured[service] {
            let Some(beside) = self.asked(table, training) else {
                continue;
            };
            for (number, &batch) in BATCHES.iter().enumerate() {
                let alone_ms = table.batch_p99_alone_ms(service, batch);
                let found = alone_ms.map(|alone_ms| model.predict(batch, alone_ms, &beside));
                if let Some(Ok(found)) = found {
                    let speeds = found.speeds.unwrap_or_default();
                    let place = place(service, training, number);
                    self.known.set(place, found.curve, speeds);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_predicted_is_not_what_measuring_would_give() {
        let table = ServiceTable::a100().unwrap();
        let sampled = Known::sampled(&table);
        for (has_time, learning) in [
            (false, Learning::Measured),
            (true, Learning::Measured),
            (true, Learning::Permuted),
        ] {
            let learnt = Learnt::new(&table, &sampled, has_time, learning);
            let curve = |known: &Known, place: usize| known.curves[place].unwrap();
            for service in 0..SERVICES.len() {
                for batch in 0..BATCHES.len() {
                    for training in UNSEEN {
                        let place = place(service, training, batch);
                        assert_ne!(curve(learnt.known(), place), curve(&sampled, place));
                        let speeds = |of: &Known| of.speed(place, 0.5);
                        assert!((speeds(learnt.known()) - speeds(&sampled)).abs() > 1e-9);
                    }
                    for training in SEEN {
                        let place = place(service, training, batch);
                        assert_eq!(curve(learnt.known(), place), curve(&sampled, place));
                    }
                }
            }
        }
    }

    /// Where nothing is learnt, nothing is known, and the truth does not replace it.
    #[test]
    fn a_place_that_was_cleared_is_unknown() {
        let table = ServiceTable::a100().unwrap();
        let mut known = Known::sampled(&table);
        for batch in 0..BATCHES.len() {
            known.clear(place(2, 7, batch));
        }
        assert_eq!(known.slope(2, 7), None);
        assert_eq!(known.setting(2, 7, crate::services::Bound::Queueing), None);
        assert!(known.slope(2, 6).is_some());
    }

    #[test]
    fn a_pair_is_measured_at_its_first_start_and_in_controls_never() {
        let table = ServiceTable::a100().unwrap();
        let sampled = Known::sampled(&table);
        let [service, training] = [1, UNSEEN[0]];
        let place = place(service, training, 0);
        for learning in Learning::ALL {
            let mut learnt = Learnt::new(&table, &sampled, true, learning);
            let is_measured = learnt.handle_runs(&table, service, training);
            assert_eq!(is_measured, learning == Learning::Measured);
            assert_eq!(!learnt.is_predicted(service, training), is_measured);
            let is_sampled = learnt.known.curves[place] == sampled.curves[place];
            assert_eq!(is_sampled, is_measured, "{learning:?}");
            assert!(!learnt.handle_runs(&table, service, training));
        }
    }
}
