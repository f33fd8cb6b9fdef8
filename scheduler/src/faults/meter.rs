//! The device's gauges, read by a dedicated thread ([`crate::host::nvml::Asked`]) without waiting:
//! if NVML hangs, the device is in trouble, and the fault thread has more to do than before.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::host::device_release::{DeviceRelease, User};
use crate::host::nvml::{Asked, Ecc, Gauges, NvmlError, PATIENCE_S, Silence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gauge {
    Ecc,
    Use,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Reading {
    Missing(String),
    Ecc(Ecc),
    Use(Option<u32>),
}

pub(crate) struct Meter {
    asked: Option<Asked<Gauge, Reading>>,
    wanted: Vec<Gauge>,
    current: Option<Current>,
    is_silent: bool,
    news: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    gauge: Gauge,
    late_ns: u64,
    /// The deadline has passed: a late answer is too old to be used.
    is_late: bool,
}

const PATIENCE_NS: u64 = PATIENCE_S.cast_unsigned() * 1_000_000_000;

impl Meter {
    /// For the device with this UUID. Asks nothing yet. Dropping it closes the gauges.
    pub(crate) fn new(uuid: &str, device_release: &Arc<DeviceRelease>) -> Self {
        let (uuid, device_release) = (uuid.to_owned(), Arc::clone(device_release));
        // Close NVML before reporting it as closed.
        let mut open: Option<(Gauges, User)> = None;
        Self::of(move |gauge| {
            if open.is_none() {
                let Some(user) = device_release.user() else {
                    return Reading::Missing("the device is released".to_owned());
                };
                open = match Gauges::open(&uuid) {
                    Ok(gauges) => Some((gauges, user)),
                    Err(error) => return Reading::Missing(error.to_string()),
                };
            }
            match (&open, gauge) {
                (Some((gauges, _)), Gauge::Ecc) => Reading::Ecc(gauges.ecc()),
                (open, _) => Reading::Use(open.as_ref().and_then(|(gauges, _)| gauges.busy_pct())),
            }
        })
    }

    fn of(answer: impl FnMut(Gauge) -> Reading + Send + 'static) -> Self {
        let asked = Asked::start("pillion-gauges", answer);
        let news = asked.as_ref().err().map(|error| {
            format!(
                "cannot start a thread to ask NVML: {error}; memory errors and a stuck GPU are \
                 not detected"
            )
        });
        Self {
            asked: asked.ok(),
            wanted: Vec::new(),
            current: None,
            is_silent: false,
            news,
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.asked.is_some()
    }

    pub(crate) fn answered(&self) -> Option<BorrowedFd<'_>> {
        let asked = self.asked.as_ref().filter(|_| self.current.is_some());
        asked.map(Asked::answered)
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.current.is_some_and(|current| !current.is_late)
    }

    pub(crate) fn asks(&self, gauge: Gauge) -> bool {
        let is_asked = |current: Current| current.gauge == gauge && !current.is_late;
        self.current.is_some_and(is_asked)
    }

    pub(crate) fn want(&mut self, gauge: Gauge) {
        if !self.wanted.contains(&gauge) {
            self.wanted.push(gauge);
        }
    }

    pub(crate) fn poll(&mut self, now_ns: u64) -> Option<Reading> {
        let reading = self.poll_answer(now_ns);
        if self.current.is_none() {
            self.poll_question(now_ns);
        }
        reading
    }

    pub(crate) fn poll_news(&mut self) -> Option<String> {
        self.news.take()
    }

    fn poll_answer(&mut self, now_ns: u64) -> Option<Reading> {
        let (asked, current) = (self.asked.as_mut()?, self.current.as_mut()?);
        match asked.try_answer() {
            Err(Silence::Late) => {
                if now_ns >= current.late_ns && !std::mem::replace(&mut current.is_late, true) {
                    self.note_silence();
                }
                None
            }
            Err(_) => {
                self.current = None;
                self.note_silence();
                None
            }
            Ok(reading) => {
                let is_late = current.is_late;
                self.current = None;
                self.taken(reading).filter(|_| !is_late)
            }
        }
    }

    fn taken(&mut self, reading: Reading) -> Option<Reading> {
        if let Reading::Missing(error) = reading {
            // The thread that waits for events reports it to everybody.
            tracing::debug!("{error}; NVML's counters are not read");
            self.asked = None;
            return None;
        }
        if std::mem::take(&mut self.is_silent) {
            tracing::info!("NVML answers again: memory errors and a stuck GPU are detected again");
        }
        Some(reading)
    }

    fn poll_question(&mut self, now_ns: u64) {
        let Some(asked) = self.asked.as_mut().filter(|_| !self.wanted.is_empty()) else {
            return;
        };
        let gauge = self.wanted.remove(0);
        match asked.try_ask(gauge) {
            Ok(()) => {
                self.current = Some(Current {
                    gauge,
                    late_ns: now_ns.saturating_add(PATIENCE_NS),
                    is_late: false,
                });
            }
            Err(_) => self.note_silence(),
        }
    }

    fn note_silence(&mut self) {
        if !std::mem::replace(&mut self.is_silent, true) {
            let what = "until it answers, memory errors and a stuck GPU are not detected";
            self.news = Some(format!("{}; {what}", NvmlError::Silent));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn answer(meter: &mut Meter, now_ns: u64) -> Option<Reading> {
        let minute = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let answered = meter.answered().expect("something is asked");
        let mut fds = [PollFd::from_borrowed_fd(answered, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&minute)), Ok(1));
        meter.poll(now_ns)
    }

    #[test]
    fn nvml_that_hangs_keeps_nobody_and_is_said_once_and_what_it_says_at_last_is_too_old() {
        let (go_on, stuck) = channel::<u32>();
        let mut meter = Meter::of(move |gauge| match (gauge, stuck.recv()) {
            (Gauge::Use, Ok(busy_pct)) => Reading::Use(Some(busy_pct)),
            _ => Reading::Ecc(Ecc::default()),
        });
        assert_eq!((meter.poll(0), meter.answered().is_some()), (None, false));
        meter.want(Gauge::Use);
        for now_ns in [0, 1, PATIENCE_NS - 1] {
            assert_eq!((meter.poll(now_ns), meter.poll_news()), (None, None));
            assert!(meter.is_asking() && meter.asks(Gauge::Use));
        }
        assert_eq!(meter.poll(PATIENCE_NS), None);
        let news = meter.poll_news().expect("that it is silent");
        assert!(news.contains("has not answered for 5 s"), "{news}");
        assert!(!meter.is_asking() && !meter.asks(Gauge::Use));
        // Questions queue up, each once, until it returns.
        for gauge in [Gauge::Use, Gauge::Ecc, Gauge::Use] {
            meter.want(gauge);
        }
        assert_eq!(meter.poll(2 * PATIENCE_NS), None);
        go_on.send(1).unwrap();
        assert_eq!(answer(&mut meter, 3 * PATIENCE_NS), None, "too old");
        assert!(meter.is_asking());
        go_on.send(2).unwrap();
        go_on.send(3).unwrap();
        let mut told = Vec::new();
        while told.len() < 2 {
            // The bell may be that of the previous answer.
            told.extend(answer(&mut meter, 4 * PATIENCE_NS - 1));
        }
        assert_eq!(
            told,
            [Reading::Use(Some(2)), Reading::Ecc(Ecc::default())],
            "in the order in which they were wanted"
        );
        assert_eq!(
            (meter.poll_news(), meter.answered().is_some()),
            (None, false)
        );
        meter.want(Gauge::Ecc);
        assert_eq!(meter.poll(0), None);
        assert_eq!(meter.poll(PATIENCE_NS), None);
        assert!(meter.poll_news().is_some());
    }

    #[test]
    fn where_there_are_no_gauges_nothing_more_is_asked_and_a_thread_that_failed_is_said() {
        let mut meter = Meter::of(|_| Reading::Missing(String::new()));
        meter.want(Gauge::Ecc);
        assert_eq!(meter.poll(0), None);
        assert_eq!(answer(&mut meter, 0), None);
        assert!(!meter.is_there());
        meter.want(Gauge::Ecc);
        assert_eq!((meter.poll(0), meter.poll_news()), (None, None));
        let mut meter = Meter::of(|_| panic!("on purpose"));
        meter.want(Gauge::Ecc);
        assert_eq!(meter.poll(0), None);
        assert_eq!(answer(&mut meter, 0), None);
        assert!(meter.poll_news().is_some());
        meter.want(Gauge::Ecc);
        assert_eq!(
            (meter.poll(0), meter.poll_news()),
            (None, None),
            "said once"
        );
    }
}
