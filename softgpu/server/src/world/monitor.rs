//! Reports to monitors, and the past instants in them.

use std::collections::{BTreeMap, VecDeque};

use softgpu::wire::{
    GovernedState, Monitor, PROCESSES_MAX, ProcessUse, SAMPLE_NS, SAMPLES_MAX, Sample,
};
use softgpu::{ContextUtilisation, Governed, Sharing};

use super::{ClientId, World};
use crate::client::Client;

#[derive(Debug, Default)]
pub(super) struct History {
    /// Oldest first; one less than in a report, which includes the present.
    past: VecDeque<Past>,
}

#[derive(Debug)]
struct Past {
    device: Sample,
    clients: BTreeMap<ClientId, ContextUtilisation>,
}

impl History {
    /// The next instant to remember, if it has come. Skips instants that would not be kept.
    pub(super) fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let last_ns = self.past.back().map_or(0, |past| past.device.at_ns);
        let due_ns = (last_ns / SAMPLE_NS + 1) * SAMPLE_NS;
        let kept_ns = SAMPLE_NS * (SAMPLES_MAX as u64 - 1);
        let oldest_ns = now_ns.saturating_sub(kept_ns).next_multiple_of(SAMPLE_NS);
        Some(due_ns.max(oldest_ns)).filter(|&due_ns| due_ns <= now_ns)
    }

    fn push(&mut self, past: Past) {
        if self.past.len() == SAMPLES_MAX - 1 {
            self.past.pop_front();
        }
        self.past.push_back(past);
    }

    /// The latest instant that is a whole period ago; `None` is the beginning.
    fn period_before(&self, now_ns: u64) -> Option<&Past> {
        let is_before = |past: &&Past| past.device.at_ns + SAMPLE_NS <= now_ns;
        self.past.iter().rev().find(is_before)
    }
}

impl World {
    pub(super) fn remember(&mut self) {
        let used = |client: &Client| self.used_by(client);
        let clients = self.clients.iter();
        let past = Past {
            device: self.sample(),
            clients: clients.map(|(&id, client)| (id, used(client))).collect(),
        };
        if let Some(recorder) = &mut self.recorder {
            for (client, (_, used)) in self.clients.values().zip(&past.clients) {
                let pid = client.pid.unwrap_or(0);
                recorder.handle_use(&client.label, pid, past.device.at_ns, *used);
            }
        }
        self.history.push(past);
    }

    pub(crate) fn monitor(&mut self) -> Monitor {
        self.step();
        let past = self.history.past.iter().map(|past| past.device);
        Monitor {
            device: self.gpu.device().name.clone(),
            uuid: self.uuid,
            is_mps: self.gpu.config().sharing == Sharing::Mps,
            scale: self.time.scale(),
            used_bytes: self.memory.used_bytes(),
            health: self.broken.health(),
            governed: self.gpu.governed().map(rounded),
            samples: past.chain([self.sample()]).collect(),
            processes: self.processes(),
        }
    }

    /// The processes with contexts, by pid. A process may have several connections.
    fn processes(&self) -> Vec<ProcessUse> {
        let now_ns = self.gpu.now_ns();
        let before = self.history.period_before(now_ns);
        let since_ns = before.map_or(0, |past| past.device.at_ns);
        let mut processes: BTreeMap<u32, ProcessUse> = BTreeMap::new();
        for (id, client) in &self.clients {
            let has_context = client.contexts.iter().any(Option::is_some);
            let Some(pid) = client.pid.filter(|_| has_context) else {
                continue;
            };
            let earlier = before.and_then(|past| past.clients.get(id));
            let (now, earlier) = (self.used_by(client), earlier.copied().unwrap_or_default());
            let process = processes.entry(pid).or_default();
            process.pid = pid;
            process.window_ns = now_ns - since_ns;
            process.held_bytes += client.memory.used_bytes();
            process.busy_ns += now.busy_ns - earlier.busy_ns;
            process.bandwidth_ns += now.bandwidth_ns - earlier.bandwidth_ns;
        }
        processes.into_values().take(PROCESSES_MAX).collect()
    }

    fn sample(&self) -> Sample {
        let used = self.gpu.utilisation();
        Sample {
            at_ns: self.gpu.now_ns(),
            busy_ns: used.busy_ns + self.broken.busy_extra_ns(self.gpu.now_ns(), used.busy_ns),
            busy_sm_ns: used.busy_sm_ns,
            bandwidth_ns: used.bandwidth_ns,
        }
    }

    fn used_by(&self, client: &Client) -> ContextUtilisation {
        let contexts = client.contexts.iter().flatten();
        let used = contexts.map(|context| self.gpu.utilisation_of(context.id));
        used.fold(client.used_gone, sum)
    }
}

/// In NVML's units.
fn rounded(governed: Governed) -> GovernedState {
    GovernedState {
        clock_mhz: governed.clock_mhz,
        power_mw: (governed.power_w * 1e3).round() as u32,
        temperature_c: governed.temperature_c.round() as u32,
        is_power_capped: governed.is_power_capped,
        is_hot: governed.is_hot,
    }
}

pub(super) fn sum(a: ContextUtilisation, b: ContextUtilisation) -> ContextUtilisation {
    ContextUtilisation {
        busy_ns: a.busy_ns + b.busy_ns,
        busy_sm_ns: a.busy_sm_ns + b.busy_sm_ns,
        bandwidth_ns: a.bandwidth_ns + b.bandwidth_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_ns: u64) -> Past {
        Past {
            device: Sample {
                at_ns,
                ..Sample::default()
            },
            clients: BTreeMap::new(),
        }
    }

    #[test]
    fn instants_come_due_in_steps_and_old_ones_are_left_out() {
        let mut history = History::default();
        assert_eq!(history.due_ns(SAMPLE_NS - 1), None);
        let mut remembered = 0;
        while let Some(due_ns) = history.due_ns(3 * SAMPLE_NS) {
            history.push(at(due_ns));
            remembered += 1;
        }
        assert_eq!(remembered, 3);
        let late_ns = 1000 * SAMPLE_NS + 7;
        while let Some(due_ns) = history.due_ns(late_ns) {
            history.push(at(due_ns));
        }
        assert_eq!(history.past.len(), SAMPLES_MAX - 1);
        let at_ns = |past: Option<&Past>| past.map(|past| past.device.at_ns / SAMPLE_NS);
        assert_eq!(at_ns(history.past.front()), Some(1000 - 62));
        assert_eq!(at_ns(history.past.back()), Some(1000));
        assert_eq!(at_ns(history.period_before(late_ns)), Some(999));
    }

    #[test]
    fn before_the_first_period_is_over_there_is_only_the_beginning() {
        let mut history = History::default();
        assert!(history.period_before(SAMPLE_NS).is_none());
        history.push(at(SAMPLE_NS));
        assert!(history.period_before(2 * SAMPLE_NS - 1).is_none());
        assert!(history.period_before(2 * SAMPLE_NS).is_some());
    }
}
