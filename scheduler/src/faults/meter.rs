//! The device's gauges, asked with patience ([`crate::nvml::Asked`]): where NVML hangs, the device is in trouble, and the thread that
//! looks for faults has more to do than before.

use std::os::fd::BorrowedFd;

use crate::nvml::{Asked, Ecc, Gauges, NvmlError, PATIENCE, Silence};

/// What is asked.
#[derive(Clone, Copy, Debug)]
enum Gauge {
    Ecc,
    Use,
}

/// What it said.
#[derive(Debug)]
enum Reading {
    Missing(NvmlError),
    Ecc(Ecc),
    Use(Option<u32>),
}

/// See the module's text.
pub(super) struct Meter {
    asked: Option<Asked<Gauge, Reading>>,
    is_silent: bool,
    /// What is to be said of it.
    news: Option<String>,
}

impl Meter {
    /// Of the device with this UUID. Nothing is asked yet.
    pub(super) fn new(uuid: &str) -> Self {
        let uuid = uuid.to_owned();
        let mut gauges = None;
        let answer = move |gauge| {
            if gauges.is_none() {
                gauges = match Gauges::open(&uuid) {
                    Ok(open) => Some(open),
                    Err(error) => return Reading::Missing(error),
                };
            }
            match (&gauges, gauge) {
                (Some(gauges), Gauge::Ecc) => Reading::Ecc(gauges.ecc()),
                (gauges, _) => Reading::Use(gauges.as_ref().and_then(Gauges::busy_pct)),
            }
        };
        let asked = Asked::start("pillion-gauges", answer);
        let news = asked.as_ref().err().map(|error| {
            format!("no thread to ask NVML: {error}; errors in memory and a stuck GPU are not seen")
        });
        Self {
            asked: asked.ok(),
            is_silent: false,
            news,
        }
    }

    /// Whether there is something to ask.
    pub(super) fn is_there(&self) -> bool {
        self.asked.is_some()
    }

    /// Errors in memory so far; none if they cannot be told.
    pub(super) fn ecc(&mut self, stop: BorrowedFd<'_>) -> Option<Ecc> {
        match self.ask(Gauge::Ecc, stop)? {
            Reading::Ecc(ecc) => Some(ecc),
            _ => None,
        }
    }

    /// How much of the last sample period the device was busy, percent.
    pub(super) fn busy_pct(&mut self, stop: BorrowedFd<'_>) -> Option<u32> {
        match self.ask(Gauge::Use, stop)? {
            Reading::Use(busy_pct) => busy_pct,
            _ => None,
        }
    }

    /// What is to be said, once.
    pub(super) fn poll_news(&mut self) -> Option<String> {
        self.news.take()
    }

    fn ask(&mut self, gauge: Gauge, stop: BorrowedFd<'_>) -> Option<Reading> {
        match self.asked.as_mut()?.ask(gauge, stop, &PATIENCE) {
            Ok(Reading::Missing(error)) => {
                // The thread that waits for reports says it to everybody.
                tracing::debug!("{error}; there are no gauges");
                self.asked = None;
                None
            }
            Ok(reading) => {
                if std::mem::take(&mut self.is_silent) {
                    tracing::info!("NVML answers again: errors in memory and use are looked at");
                }
                Some(reading)
            }
            Err(Silence::Stopping) => None,
            Err(Silence::Late | Silence::Ended) => {
                if !std::mem::replace(&mut self.is_silent, true) {
                    let what = "until it does errors in memory and a stuck GPU are not seen";
                    self.news = Some(format!("{}; {what}", NvmlError::Silent));
                }
                None
            }
        }
    }
}
