//! What is known of pairs when four of the nine trainings were never run before: predictions from
//! their layers, until a training has run beside a service (Mudi, EuroSys'25, sections 4.2 and
//! 7.3).

use learn::interference::{Learner, Settings};

use crate::interference::{SEEN, UNSEEN, neighbours, sample};
use crate::service_table::{BATCHES, SERVICES, ServiceTable};
use crate::services::{Known, place};

/// Knowledge that grows. Of the trainings seen all is sampled. Of the others it is predicted, and
/// measured once they run: then their curves with all batches are appended to what the service's
/// model learns from, and its predictions of the others are made anew.
#[derive(Debug)]
pub(super) struct Learnt {
    learner: Learner,
    /// What measuring gives.
    sampled: Known,
    known: Known,
    /// By service, which of the unseen trainings have not run beside it.
    unmeasured: Vec<Vec<usize>>,
    has_time: bool,
}

impl Learnt {
    /// Before any training ran. `has_time`: whether the time of an iteration alone is known of all.
    pub(super) fn new(table: &ServiceTable, sampled: &Known, has_time: bool) -> Self {
        let mut learnt = Self {
            learner: Learner::new(Settings::default()).expect("the default is within bounds"),
            sampled: sampled.clone(),
            known: sampled.clone(),
            unmeasured: vec![UNSEEN.to_vec(); SERVICES.len()],
            has_time,
        };
        for service in 0..SERVICES.len() {
            for training in SEEN {
                learnt.push(table, service, training);
            }
            learnt.predict(table, service);
        }
        learnt
    }

    /// What is known now.
    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    /// That training runs beside that service. Whether this is for the first time, so that what is
    /// known has changed.
    pub(super) fn handle_runs(
        &mut self,
        table: &ServiceTable,
        service: usize,
        training: usize,
    ) -> bool {
        let unmeasured = &mut self.unmeasured[service];
        let Some(at) = unmeasured.iter().position(|&of| of == training) else {
            return false;
        };
        unmeasured.remove(at);
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
            // A table whose numbers cannot be learnt leaves predictions as they are.
            let _: Result<(), _> = self.learner.push(sample);
        }
    }

    /// Fits the service's model anew, and asks it for all trainings that did not run there.
    fn predict(&mut self, table: &ServiceTable, service: usize) {
        let refit = self.learner.refit(service as u16);
        if let Some(Ok(fitted)) = refit.map(|refit| refit.run()) {
            self.learner.swap(fitted);
        }
        let Some(model) = self.learner.model(service as u16) else {
            return;
        };
        for &training in &self.unmeasured[service] {
            let Some(beside) = neighbours(table, training, self.has_time) else {
                continue;
            };
            for (number, &batch) in BATCHES.iter().enumerate() {
                let Some(alone_ms) = table.batch_p99_alone_ms(service, batch) else {
                    continue;
                };
                let Ok(found) = model.predict(batch, alone_ms, &beside) else {
                    continue;
                };
                let speeds = found.speeds.unwrap_or_default();
                let place = place(service, training, number);
                self.known.set(place, found.curve, speeds);
            }
        }
    }
}
