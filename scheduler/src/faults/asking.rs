//! Asks MPS to end the work of processes that are about to be killed ([`crate::host::mps`]): of one
//! after the other, in one thread of its own, so that whoever has many of them neither fills the
//! machine with programs that ask nor keeps the control daemon from others. Users take turns, and
//! of one user what is being ended; who waits is with those that are being ended ([`Ending`]),
//! whose number is bounded.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use protocol::clock::Clock;
use protocol::ending::TERMINATE_NS;

use super::ending::Ending;
use crate::host::mps::{Control, Doomed};
use crate::host::nvml::{Asked, Silence};

/// Longest time for one process, ns: half of what there is. Whoever comes meanwhile has the other.
const QUESTION_NS_MAX: u64 = TERMINATE_NS / 2;
/// Where several wait they share the time, but it is no less than this for one, ns.
const QUESTION_NS_MIN: u64 = 500_000_000;

/// What came of asking: nothing, or why MPS did not do it.
pub(super) type Answer = Result<(), String>;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Asker {
    /// The program that is asked, with its arguments.
    command: Vec<String>,
    /// None before it is needed.
    thread: Option<Asked<Question, Answer>>,
    /// About which process is asked now.
    current: Option<u32>,
    /// Users of whom something is being ended, and which question was the last one for each.
    turns: BTreeMap<u32, u64>,
    questions: u64,
    /// So many times longer than it should a question may take: 1, and in tests, which share a machine, more.
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

    /// Readable when there may be an answer. None while nothing is asked: it may be readable still from the last answer, which
    /// was seen before it was rung for.
    pub(super) fn answered(&self) -> Option<BorrowedFd<'_>> {
        let thread = self.thread.as_ref().filter(|_| self.current.is_some());
        thread.map(Asked::answered)
    }

    /// Hands on an answer, if there is one. Returns the process if MPS has ended its work.
    pub(super) fn poll_answer(&mut self, endings: &mut [Ending]) -> Option<u32> {
        let (Some(pid), Some(thread)) = (self.current, &mut self.thread) else {
            return None;
        };
        let answer = match thread.try_answer() {
            Err(Silence::Late) => return None,
            Ok(answer) => answer,
            Err(_) => {
                self.thread = None;
                Err("the thread that asks has failed".to_owned())
            }
        };
        self.current = None;
        handle_answer(endings, pid, &answer);
        answer.is_ok().then_some(pid)
    }

    /// Asks about the next process, if nothing is asked.
    pub(super) fn poll_question(&mut self, now_ns: u64, endings: &mut [Ending]) {
        self.turns
            .retain(|uid, _| endings.iter().any(|ending| ending.uid() == *uid));
        while self.current.is_none() {
            let waiting = endings.iter().map(Ending::unasked_count).sum::<usize>() as u64;
            let next = endings
                .iter_mut()
                .filter(|ending| ending.unasked().is_some());
            // Who was never asked for comes first, then who was not for longest.
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
            format!("the thread that asks is {silence:?}")
        })
    }
}

/// One process may be in two of them.
fn handle_answer(endings: &mut [Ending], pid: u32, answer: &Answer) {
    for ending in endings {
        ending.handle_answer(pid, answer);
    }
}
