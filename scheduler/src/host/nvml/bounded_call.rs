//! Calls that may never return.
//! An NVML call enters the kernel's driver. If that hangs, the call does not return and cannot be
//! interrupted. So a dedicated thread makes it, and the caller waits for [`PATIENCE`] and continues
//! without an answer. Until the call returns nothing more is asked, and its late answer is dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Timeout of an answer, s. NVML usually takes some ms, under load some hundred.
pub(crate) const PATIENCE_S: i64 = 5;

pub(crate) const PATIENCE: Timespec = Timespec {
    tv_sec: PATIENCE_S,
    tv_nsec: 0,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Timeout, or an earlier answer is still owed.
    Late,
    Stopping,
    Ended,
}

#[derive(Debug)]
pub(crate) struct Asked<Q, A> {
    questions: Sender<Q>,
    answers: Receiver<A>,
    answered: Arc<OwnedFd>,
    is_owed: bool,
}

impl<Q: Send + 'static, A: Send + 'static> Asked<Q, A> {
    /// Starts the thread. It ends after this is dropped, once it has answered; nobody waits for it.
    pub(crate) fn start(
        name: &str,
        mut answer: impl FnMut(Q) -> A + Send + 'static,
    ) -> io::Result<Self> {
        let (questions, asked) = channel();
        let (given, answers) = channel();
        let answered = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let answered = Arc::new(answered);
        let bell = Bell(Arc::clone(&answered));
        let answer_all = move || {
            // Dropped last, so that a woken caller sees that the thread has ended.
            let bell = bell;
            let given = given;
            for question in asked {
                if given.send(answer(question)).is_err() {
                    return;
                }
                bell.ring();
            }
        };
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(answer_all)?;
        Ok(Self {
            questions,
            answers,
            answered,
            is_owed: false,
        })
    }

    /// Waits for `patience` or until `stop`; fails at once if an answer is still owed.
    pub(crate) fn ask(
        &mut self,
        question: Q,
        stop: BorrowedFd<'_>,
        patience: &Timespec,
    ) -> Result<A, Silence> {
        self.try_ask(question)?;
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(self.answered.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
            ];
            match poll(&mut fds, Some(patience)) {
                Ok(0) => return Err(Silence::Late),
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(Silence::Ended),
            }
            let is_stopping = !fds[1].revents().is_empty();
            match self.try_answer() {
                Err(Silence::Late) if is_stopping => return Err(Silence::Stopping),
                // The bell may be that of a late answer.
                Err(Silence::Late) => {}
                over => return over,
            }
        }
    }
}

impl<Q, A> Asked<Q, A> {
    /// Asks without waiting: [`Asked::try_answer`] has the answer when [`Asked::answered`] is
    /// readable. A late answer to an earlier question is dropped. Error: an answer is still owed,
    /// or the thread has ended.
    pub(crate) fn try_ask(&mut self, question: Q) -> Result<(), Silence> {
        if self.is_owed {
            self.try_answer()?;
        }
        self.questions.send(question).map_err(|_| Silence::Ended)?;
        self.is_owed = true;
        Ok(())
    }

    /// The answer to the last question, once; an error while there is none, or without the thread.
    pub(crate) fn try_answer(&mut self) -> Result<A, Silence> {
        let _ = rustix::io::read(&*self.answered, &mut [0; 8]);
        let answer = self.answers.try_recv().map_err(|none| match none {
            TryRecvError::Empty => Silence::Late,
            TryRecvError::Disconnected => Silence::Ended,
        })?;
        self.is_owed = false;
        Ok(answer)
    }

    pub(crate) fn answered(&self) -> BorrowedFd<'_> {
        self.answered.as_fd()
    }
}

/// Wakes a waiting caller, also when the thread has ended.
struct Bell(Arc<OwnedFd>);

impl Bell {
    fn ring(&self) {
        // A full counter wakes too.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    const NONE: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    const LONG: Timespec = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };

    #[test]
    fn who_does_not_answer_is_not_waited_for_again_until_it_has() {
        let (go_on, stuck) = channel::<()>();
        let answer = move |question: u32| {
            if question == 1 {
                stuck.recv().unwrap();
            }
            10 * question
        };
        let mut asked = Asked::start("test", answer).unwrap();
        let stop = never();
        assert_eq!(asked.ask(0, stop.as_fd(), &LONG), Ok(0));
        assert_eq!(asked.ask(1, stop.as_fd(), &NONE), Err(Silence::Late));
        for _ in 0..3 {
            assert_eq!(asked.ask(2, stop.as_fd(), &LONG), Err(Silence::Late));
        }
        go_on.send(()).unwrap();
        let late = || asked.ask(3, stop.as_fd(), &LONG).ok();
        assert_eq!(std::iter::repeat_with(late).flatten().next(), Some(30));
        assert_eq!(asked.ask(4, stop.as_fd(), &LONG), Ok(40));
    }

    #[test]
    fn who_does_not_wait_is_told_when_there_is_an_answer() {
        let (go_on, stuck) = channel::<()>();
        let answer = move |question: u32| {
            stuck.recv().unwrap();
            10 * question
        };
        let mut asked = Asked::start("test", answer).unwrap();
        asked.try_ask(1).unwrap();
        assert_eq!(asked.try_answer(), Err(Silence::Late));
        assert_eq!(asked.try_ask(2), Err(Silence::Late));
        go_on.send(()).unwrap();
        let mut fds = [PollFd::from_borrowed_fd(asked.answered(), PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&LONG)), Ok(1));
        assert_eq!(asked.try_answer(), Ok(10));
        asked.try_ask(3).unwrap();
        drop(go_on);
        let mut fds = [PollFd::from_borrowed_fd(asked.answered(), PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&LONG)), Ok(1));
        assert_eq!(asked.try_answer(), Err(Silence::Ended));
    }

    #[test]
    fn who_is_to_stop_waits_no_longer_and_a_thread_that_has_ended_answers_nothing() {
        let (_go_on, stuck) = channel::<()>();
        let mut asked = Asked::start("test", move |(): ()| stuck.recv().is_ok()).unwrap();
        let stop = never();
        rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(asked.ask((), stop.as_fd(), &LONG), Err(Silence::Stopping));
        let mut asked: Asked<(), ()> = Asked::start("test", |()| panic!("on purpose")).unwrap();
        for _ in 0..2 {
            let silent = asked.ask((), never().as_fd(), &LONG);
            assert_eq!(silent, Err(Silence::Ended));
        }
    }
}
