//! The thread that watches the GPU's memory: takes back what dead processes held, once the device shows it free.
//!
//! A thread of its own, because NVML may take its time, and in real time, because what it asks is: on the virtual
//! clock nothing waits for it. NVML is opened when it is first needed; where there is none that is said once, and
//! the end of a process has to do. One that fails to answer is asked again, for a while.
//!
//! NVML costs the driver time, so it is asked only about processes whose end is known, and less often once nothing has
//! come back for a second.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::daemon::Shared;
use crate::nvml::{NvmlError, Processes};

/// Between two looks while memory of a dead process is not back. A fifth of the 100 ms within which it is to be.
const LEAVING_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Between two looks after [`QUICK_LOOKS`] of them in vain.
const SLOW_LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Looks in vain, and failing answers of NVML in a row, that are borne: a second of looks.
const QUICK_LOOKS: u32 = 50;

/// See the module's text.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    uuid: String,
    nvml: Nvml,
    answers: Answers,
    /// Looks since something came back or somebody left.
    looks_in_vain: u32,
}

/// What is made of NVML's answers.
#[derive(Debug, Default)]
struct Answers {
    /// In a row.
    failures: u32,
}

enum Nvml {
    NotOpened,
    Open(Processes),
    Missing,
}

impl Watch {
    pub(crate) fn new(shared: Arc<Shared>, uuid: &str) -> Self {
        Self {
            shared,
            uuid: uuid.to_owned(),
            nvml: Nvml::NotOpened,
            answers: Answers::default(),
            looks_in_vain: 0,
        }
    }

    /// Watches until the daemon stops.
    pub(crate) fn run(mut self) {
        while self.wait() {
            let leaving = self.shared.ledgers().leaving(has_ended);
            if leaving.is_anybody_over {
                self.look();
            }
        }
    }

    /// Until there is something to look at; false when the daemon stops.
    fn wait(&mut self) -> bool {
        let watched = self.shared.ledgers().leaving(has_ended);
        let (stop, leaving) = (self.shared.stop_fd(), self.shared.leaving_fd());
        let mut fds = vec![
            PollFd::new(&stop, PollFlags::IN),
            PollFd::new(&leaving, PollFlags::IN),
        ];
        let living = watched.living.iter();
        fds.extend(living.map(|process| PollFd::new(&**process, PollFlags::IN)));
        let look = match self.looks_in_vain {
            0..QUICK_LOOKS => &LEAVING_LOOK,
            _ => &SLOW_LOOK,
        };
        // Interrupted or not, the next look is none too many.
        let _ = poll(&mut fds, watched.is_anybody_over.then_some(look));
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (is_stopped, has_left) = (is_ready(&fds[0]), is_ready(&fds[1]));
        let has_news = fds[1..].iter().any(is_ready);
        if has_left {
            let _ = rustix::io::read(leaving, &mut [0; 8]);
        }
        if has_news {
            self.looks_in_vain = 0;
        }
        !is_stopped
    }

    fn look(&mut self) {
        // Asked before the ledgers are locked: who attaches does not wait for NVML.
        let answer = self.listed();
        let back = self.answers.handle(answer).map_or(0, |listed| {
            let mut ledgers = self.shared.ledgers();
            ledgers.poll_leaving(has_ended, |pid| listed.contains(&pid))
        });
        self.looks_in_vain = match back {
            0 => self.looks_in_vain.saturating_add(1),
            _ => 0,
        };
    }

    /// The processes that have memory of the device.
    fn listed(&mut self) -> Result<Vec<u32>, NvmlError> {
        if let Nvml::NotOpened = self.nvml {
            self.nvml = Processes::open(&self.uuid).map_or_else(
                |error| {
                    tracing::warn!(
                        "{error}; memory of processes that ended counts as free at once"
                    );
                    Nvml::Missing
                },
                Nvml::Open,
            );
        }
        match &self.nvml {
            Nvml::Open(processes) => Ok(processes.list()?.iter().map(|found| found.pid).collect()),
            _ => Ok(Vec::new()),
        }
    }
}

impl Answers {
    /// Who has memory of the device, as far as is known; none if that is to be asked again.
    fn handle(&mut self, answer: Result<Vec<u32>, NvmlError>) -> Option<Vec<u32>> {
        let error = match answer {
            Ok(listed) => {
                self.failures = 0;
                return Some(listed);
            }
            Err(error) => error,
        };
        self.failures = self.failures.saturating_add(1);
        match self.failures {
            1 => tracing::warn!("{error}; it is asked again"),
            QUICK_LOOKS => tracing::warn!(
                "{error}, still; until it answers memory of processes that ended counts as free"
            ),
            _ => {}
        }
        (self.failures >= QUICK_LOOKS).then(Vec::new)
    }
}

/// Whether a process has ended, by its descriptor (pidfd_open(2)).
fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )
    .is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvml_that_fails_is_asked_again_for_a_while_and_believed_once_it_answers() {
        let failing = || Err(NvmlError::NoSymbol("nvmlInit_v2"));
        let mut answers = Answers::default();
        for _ in 1..QUICK_LOOKS {
            assert_eq!(answers.handle(failing()), None);
        }
        assert_eq!(answers.handle(failing()), Some(vec![]), "the end has to do");
        assert_eq!(answers.handle(Ok(vec![7])), Some(vec![7]));
        assert_eq!(answers.handle(failing()), None);
    }
}
