//! The probe of the daemon's GPU ([`policy::probe`]): its readings and their consequences.

use policy::probe::PERIOD_NS;
use policy::{
    DeviceReading, KeptProbe, Metric, MetricView, Probe, ProbeParams, ProbeState, ProbeView,
};

use crate::core::event::{Draft, Kind, Severity};

/// Readings that are nearly a period apart count as a period apart.
const NEARLY_NS: u64 = PERIOD_NS / 10 * 9;

#[derive(Debug, Default)]
pub(crate) struct ProbeWatch {
    probe: Option<Probe>,
    read_ns: Option<u64>,
    is_unsaved: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ProbeNews {
    pub(crate) draft: Option<Draft>,
    /// Why arriving best-effort jobs wait; none: they do not.
    pub(crate) holds: Option<String>,
    pub(crate) is_for_returned: bool,
    pub(crate) evicts: Option<String>,
    /// A change of the state for the next daemon; the inner none removes the file.
    pub(crate) keep: Option<Option<KeptProbe>>,
}

impl ProbeWatch {
    /// Turns the probe off, or sets its bounds; `kept`: the previous daemon's state, at the start.
    pub(crate) fn configure(
        &mut self,
        now_ns: u64,
        params: Option<ProbeParams>,
        kept: Option<KeptProbe>,
    ) -> ProbeNews {
        let was_on = self.probe.is_some();
        match (params, &mut self.probe) {
            (None, probe) => *probe = None,
            (Some(params), Some(probe)) => probe.set_params(params),
            (Some(params), probe) => {
                *probe = Some(match kept {
                    Some(kept) => Probe::restore(now_ns, params, &kept),
                    None => Probe::new(now_ns, params),
                });
            }
        }
        ProbeNews {
            holds: self.why(now_ns),
            is_for_returned: self.is_over(),
            keep: (was_on && self.probe.is_none()).then_some(None),
            ..ProbeNews::default()
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.probe.is_some()
    }

    /// The device was read, or did not answer. Ignored if read just before.
    pub(crate) fn handle_reading(
        &mut self,
        now_ns: u64,
        reading: DeviceReading,
        clock_alone_mhz: Option<u32>,
    ) -> Option<ProbeNews> {
        let probe = self.probe.as_mut()?;
        let since_ns = self.read_ns.map(|at_ns| now_ns.saturating_sub(at_ns));
        if since_ns.is_some_and(|ns| ns < NEARLY_NS) {
            return None;
        }
        self.read_ns = Some(now_ns);
        let outcome = probe.handle_reading(now_ns, reading, clock_alone_mhz);
        let view = probe.view(now_ns);
        let is_to_keep = outcome.changed.is_some() || self.is_unsaved;
        let kept = is_to_keep.then(|| Some(probe.kept(now_ns)));
        Some(ProbeNews {
            draft: outcome
                .changed
                .and_then(|(before, _)| draft(before, &view, now_ns)),
            holds: self.why(now_ns),
            is_for_returned: self.is_over(),
            evicts: outcome
                .evicts
                .then(|| format!("the GPU is {}", in_words(&view))),
            keep: kept,
        })
    }

    fn is_over(&self) -> bool {
        let state = self.probe.as_ref().map(Probe::state);
        state == Some(ProbeState::Overlimit)
    }

    /// The state for the next daemon was written, or not. Returns whether the failure is new.
    pub(crate) fn note_saved(&mut self, is_saved: bool) -> bool {
        let was_unsaved = std::mem::replace(&mut self.is_unsaved, !is_saved);
        !is_saved && !was_unsaved
    }

    pub(crate) fn view(&self, now_ns: u64) -> Option<ProbeView> {
        self.probe.as_ref().map(|probe| probe.view(now_ns))
    }

    fn why(&self, now_ns: u64) -> Option<String> {
        let view = self.view(now_ns).filter(|view| view.state.holds_comers())?;
        Some(format!("the GPU is {}", in_words(&view)))
    }
}

fn in_words(view: &ProbeView) -> String {
    let state = match view.state {
        ProbeState::Overlimit => "over its limits",
        ProbeState::Disabled => "lost",
        ProbeState::Init | ProbeState::Healthy | ProbeState::Unhealthy => view.state.name(),
    };
    let metrics = view.metrics.iter();
    let cause = view.metric.filter(|_| view.state != ProbeState::Disabled);
    let mut cause = metrics.filter(|of| Some(of.metric) == cause);
    match cause.next().and_then(|of| metric_in_words(of, view.state)) {
        Some(cause) => format!("{state} ({cause})"),
        None => state.to_owned(),
    }
}

/// Such as `memory 93 %, bound 92 %`.
fn metric_in_words(of: &MetricView, state: ProbeState) -> Option<String> {
    let second = of.overlimit.filter(|_| state == ProbeState::Overlimit);
    let bound = second.or(of.unhealthy)?;
    let shown = |value: f64| match of.metric {
        Metric::Temperature => format!("{value:.0} C"),
        _ => format!("{:.0} %", value * 100.0),
    };
    let name = match of.metric {
        Metric::Utilisation => "utilisation",
        Metric::SmActivity => "SM activity",
        Metric::Clock => "SM clock",
        Metric::Memory => "memory",
        Metric::Temperature => "temperature",
        Metric::Power => "power",
    };
    Some(format!(
        "{name} {}, bound {}",
        shown(of.value?),
        shown(bound)
    ))
}

fn draft(before: ProbeState, view: &ProbeView, now_ns: u64) -> Option<Draft> {
    let words = in_words(view);
    let least_s = view
        .until_ns
        .map_or(0, |ns| ns.saturating_sub(now_ns).div_ceil(1_000_000_000));
    Some(match view.state {
        ProbeState::Init => return None,
        ProbeState::Healthy if before == ProbeState::Init => return None,
        ProbeState::Healthy => {
            let text = "the GPU is healthy again: waiting best-effort jobs resume";
            Draft::new(Kind::ProbeHealthy, text)
        }
        ProbeState::Unhealthy if before == ProbeState::Overlimit => {
            let text = "the GPU is no longer over its limits: new best-effort jobs wait until it \
                        is healthy";
            Draft::new(Kind::ProbeUnhealthy, text).severity(Severity::Info)
        }
        ProbeState::Unhealthy => {
            let text = format!("the GPU is {words}: new best-effort jobs wait");
            Draft::new(Kind::ProbeUnhealthy, text)
        }
        ProbeState::Overlimit => {
            let text = format!(
                "the GPU is {words}: best-effort jobs are terminated, and new ones wait for \
                 {least_s} s at least (entry {} in two hours)",
                view.entries
            );
            Draft::new(Kind::ProbeOverlimit, text)
        }
        ProbeState::Disabled => {
            let text = "the driver reports that the GPU is lost: new best-effort jobs wait";
            Draft::new(Kind::ProbeDisabled, text)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn with_memory(used: f64) -> DeviceReading {
        DeviceReading {
            memory_used: Some(used),
            ..DeviceReading::default()
        }
    }

    fn text(news: &ProbeNews) -> &str {
        news.draft.as_ref().map_or("", |draft| draft.text.as_str())
    }

    #[test]
    fn what_follows_is_told_held_and_kept() {
        let mut watch = ProbeWatch::default();
        assert!(watch.handle_reading(0, with_memory(1.0), None).is_none());
        let params = Some(ProbeParams::default());
        assert!(watch.configure(0, params, None).holds.is_none() && watch.is_on());
        let mut at_s = 0;
        let mut say = |watch: &mut ProbeWatch, used| {
            at_s += 1;
            watch
                .handle_reading(at_s * SECOND_NS, with_memory(used), None)
                .unwrap()
        };
        let news = say(&mut watch, 0.5);
        assert!(news.draft.is_none() && news.keep.is_some());
        let news = say(&mut watch, 0.93);
        let why = "the GPU is unhealthy (memory 93 %, bound 92 %)";
        assert_eq!(text(&news), format!("{why}: new best-effort jobs wait"));
        assert_eq!(news.holds.as_deref(), Some(why));
        assert!(news.evicts.is_none());
        let news = say(&mut watch, 0.98);
        let why = "the GPU is over its limits (memory 98 %, bound 97 %)";
        assert_eq!(
            text(&news),
            format!(
                "{why}: best-effort jobs are terminated, and new ones wait for 30 s at least (entry 1 in two hours)"
            )
        );
        assert_eq!(news.evicts.as_deref(), Some(why));
        let kept = news.keep.unwrap().unwrap();
        assert_eq!(kept.state, ProbeState::Overlimit);
        let news = say(&mut watch, 0.98);
        assert!(news.draft.is_none() && news.evicts.is_none() && news.keep.is_none());
        assert!(news.is_for_returned);
        assert!(watch.note_saved(false) && !watch.note_saved(false));
        assert!(say(&mut watch, 0.98).keep.is_some());
        assert!(!watch.note_saved(true));
        let news = say(&mut watch, 0.98);
        assert!(news.keep.is_none());
        assert!(news.holds.is_some());
        let mut next = ProbeWatch::default();
        let news = next.configure(0, params, Some(kept));
        assert_eq!(news.holds.as_deref(), Some("the GPU is over its limits"));
        assert!(next.handle_reading(0, with_memory(0.5), None).is_some());
        let soon_ns = SECOND_NS / 5;
        assert!(
            next.handle_reading(soon_ns, with_memory(0.5), None)
                .is_none()
        );
        let news = next.configure(0, None, None);
        assert!(news.holds.is_none() && news.keep == Some(None) && !next.is_on());
    }

    #[test]
    fn heat_and_a_lost_device_are_said_in_their_own_words() {
        let mut watch = ProbeWatch::default();
        let params = ProbeParams::default();
        watch.configure(0, Some(params), None);
        let hot = DeviceReading {
            temperature_c: Some(83.4),
            slowdown_c: Some(90.0),
            ..DeviceReading::default()
        };
        for s in 1..3 {
            assert!(
                watch
                    .handle_reading(s * SECOND_NS, hot, None)
                    .unwrap()
                    .draft
                    .is_none()
            );
        }
        let news = watch.handle_reading(3 * SECOND_NS, hot, None).unwrap();
        assert!(
            text(&news).contains("unhealthy (temperature 83 C, bound 82 C)"),
            "{news:?}"
        );
        let lost = DeviceReading {
            is_lost: true,
            ..DeviceReading::default()
        };
        let news = watch.handle_reading(4 * SECOND_NS, lost, None).unwrap();
        assert_eq!(news.draft.as_ref().unwrap().kind(), Kind::ProbeDisabled);
        assert_eq!(news.holds.as_deref(), Some("the GPU is lost"));
    }
}
