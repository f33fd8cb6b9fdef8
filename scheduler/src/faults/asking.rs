//! Asks MPS to end the work of processes before they are killed ([`crate::host::mps`]): one after
//! the other, in a dedicated thread, so that a user with many of them neither fills the machine
//! with asking programs nor blocks the control daemon for others. Users take turns, and within a
//! user its endings; waiting processes are kept in those ([`Ending`]), whose number is bounded.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use protocol::clock::Clock;
use protocol::ending::TERMINATE_NS;

use super::ending::Ending;
use crate::host::mps::{Control, Doomed};
use crate::host::nvml::{Asked, Silence};

/// Longest question about one process, ns: half of the total time. A later one has the other half.
const QUESTION_NS_MAX: u64 = TERMINATE_NS / 2;
/// Several processes share the time, but each has at least this, ns.
const QUESTION_NS_MIN: u64 = 500_000_000;

pub(super) type Answer = Result<(), String>;

#[derive(Debug)]
pub(super) struct Asker {
    command: Vec<String>,
    thread: Option<Asked<Question, Answer>>,
    current: Option<u32>,
    turns: BTreeMap<u32, u64>,
    questions: u64,
    /// Factor on a question's timeout: 1, and more in tests, which share a machine.
    pub(super) patience: u64,
}

#[derive(Debug)]
struct Question {
    command: Vec<String>,
    doomed: Doomed,
    limit_ns: u64,
}

impl Question {
    fn answer(self, control: &mut Control) -> Answer {
        let clock = Clock::monotonic();
        let end_ns = clock.now_ns().saturating_add(self.limit_ns);
        control.terminate(&self.command, &self.doomed, &clock, end_ns)
    }
}

impl Default for Asker {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Asker {
    pub(super) fn new(command: &[String]) -> Self {
        Self {
            command: command.to_vec(),
            thread: None,
            current: None,
            turns: BTreeMap::new(),
            questions: 0,
            patience: 1,
        }
    }

    /// Readable when there may be an answer. None while nothing is asked: the descriptor may still
    /// be readable from the last answer, which was seen before its bell.
    pub(super) fn answered(&self) -> Option<BorrowedFd<'_>> {
        let thread = self.thread.as_ref().filter(|_| self.current.is_some());
        thread.map(Asked::answered)
    }

    /// Passes on an answer, if there is one. Returns the process if MPS has ended its work.
    pub(super) fn poll_answer(&mut self, endings: &mut [Ending]) -> Option<u32> {
        let (Some(pid), Some(thread)) = (self.current, &mut self.thread) else {
            return None;
        };
        let answer = match thread.try_answer() {
            Err(Silence::Late) => return None,
            Ok(answer) => answer,
            Err(_) => {
                self.thread = None;
                Err("the thread that asks MPS has failed".to_owned())
            }
        };
        self.current = None;
        handle_answer(endings, pid, &answer);
        answer.is_ok().then_some(pid)
    }

    pub(super) fn poll_question(&mut self, now_ns: u64, endings: &mut [Ending]) {
        self.turns
            .retain(|uid, _| endings.iter().any(|ending| ending.uid() == *uid));
        while self.current.is_none() {
            let waiting = endings.iter().map(Ending::unasked_count).sum::<usize>() as u64;
            let next = endings
                .iter_mut()
                .filter(|ending| ending.unasked().is_some());
            // Never asked first, then longest ago.
            let turn = |ending: &&mut Ending| (self.turns.get(&ending.uid()).copied(), ending.turn);
            let Some(ending) = next.min_by_key(turn) else {
                return;
            };
            let Some((pid, process)) = ending.unasked() else {
                return;
            };
            let left_ns = ending.left_ns(now_ns);
            let share_ns = (left_ns / waiting.max(1)).clamp(QUESTION_NS_MIN, QUESTION_NS_MAX);
            let limit_ns = share_ns.min(left_ns).saturating_mul(self.patience);
            self.questions += 1;
            self.turns.insert(ending.uid(), self.questions);
            ending.turn = self.questions;
            match self.ask(ending.uid(), pid, process, limit_ns) {
                Ok(()) => {
                    self.current = Some(pid);
                    ending.current = Some(pid);
                }
                Err(why) => handle_answer(endings, pid, &Err(why)),
            }
        }
    }

    fn ask(&mut self, uid: u32, pid: u32, process: Arc<OwnedFd>, limit_ns: u64) -> Answer {
        let thread = match &mut self.thread {
            Some(thread) => thread,
            none => {
                let mut control = Control::default();
                let answer = move |question: Question| question.answer(&mut control);
                let thread = Asked::start("pillion-mps", answer);
                none.insert(thread.map_err(|error| error.to_string())?)
            }
        };
        let asked = thread.try_ask(Question {
            command: self.command.clone(),
            doomed: Doomed { pid, process, uid },
            limit_ns,
        });
        asked.map_err(|silence| {
            self.thread = None;
            let what = match silence {
                Silence::Late => "does not answer",
                Silence::Ended | Silence::Stopping => "has ended",
            };
            format!("the thread that asks MPS {what}")
        })
    }
}

/// A process may be in two endings.
fn handle_answer(endings: &mut [Ending], pid: u32, answer: &Answer) {
    for ending in endings {
        ending.handle_answer(pid, answer);
    }
}
