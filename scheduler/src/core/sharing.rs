//! How jobs share the GPU, by MPS or in time slices: the sources, their precedence, and the
//! consequences.
//!
//! | known by | when |
//! |---|---|
//! | `clients` | a client's driver has reported `CU_DEVICE_ATTRIBUTE_MPS_ENABLED` |
//! | `configuration` | none has, and `[gpu] sharing` names a way |
//! | `control-daemon` | none has, `[gpu] sharing` is `auto`, and MPS's control daemon answers |
//! | `assumption` | none has, `auto`, and it does not: time slices |
//!
//! - **A client's report overrides the configuration**: the driver knows. A configuration that
//!   differs from it is reported, and not followed.
//! - **The default is time slices**, which is right or cautious in either case: best-effort work
//!   then runs only while high-priority jobs are idle. Under MPS that costs best-effort jobs what
//!   they would get beside busy ones. The opposite error, MPS assumed under time slices, would
//!   admit kernels beside high-priority ones by resource and SMs, which mean nothing there: each
//!   takes the whole GPU from the high-priority job for a slice.
//! - **If clients differ** (one does not see MPS's pipes, `CUDA_MPS_PIPE_DIRECTORY`), kernels of
//!   some pairs never overlap, so leases are made as in time slices until clients agree. Whether
//!   MPS is asked before a process is killed depends on that process's own report. A lying client
//!   costs best-effort jobs what time slices cost them. The last reports are kept without clients:
//!   the next ones will most likely report the same.

use policy::Sharing;

use crate::config::sharing_name;
use crate::core::event::{Draft, Kind};

#[derive(Clone, Debug)]
pub(crate) struct Ways {
    /// None: `auto`.
    configured: Option<Sharing>,
    has_control_daemon: bool,
    heard: Option<Heard>,
    /// Query the control daemon: at the start, or after a client came whose driver does not report.
    pub(crate) is_control_daemon_wanted: bool,
    pub(crate) news: Option<Draft>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Alike(Sharing),
    Differing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownBy {
    Clients,
    Configuration,
    ControlDaemon,
    Assumption,
}

impl KnownBy {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Configuration => "configuration",
            Self::ControlDaemon => "control-daemon",
            Self::Assumption => "assumption",
        }
    }
}

impl Ways {
    pub(crate) fn new(configured: Option<Sharing>) -> Self {
        Self {
            configured,
            has_control_daemon: false,
            heard: None,
            is_control_daemon_wanted: true,
            news: None,
        }
    }

    pub(crate) fn configured(&self) -> Option<Sharing> {
        self.configured
    }

    pub(crate) fn in_force(&self) -> Sharing {
        match self.heard {
            Some(Heard::Alike(sharing)) => sharing,
            Some(Heard::Differing) => Sharing::TimeSlice,
            None => match (self.configured, self.has_control_daemon) {
                (Some(configured), _) => configured,
                (None, true) => Sharing::Mps,
                (None, false) => Sharing::TimeSlice,
            },
        }
    }

    pub(crate) fn known_by(&self) -> KnownBy {
        match (self.heard, self.configured, self.has_control_daemon) {
            (Some(_), _, _) => KnownBy::Clients,
            (None, Some(_), _) => KnownBy::Configuration,
            (None, None, true) => KnownBy::ControlDaemon,
            (None, None, false) => KnownBy::Assumption,
        }
    }

    pub(crate) fn has_mps(&self) -> bool {
        self.in_force() == Sharing::Mps || self.is_differing()
    }

    pub(crate) fn is_differing(&self) -> bool {
        self.heard == Some(Heard::Differing)
    }

    pub(crate) fn is_wrong(&self) -> bool {
        let Some(Heard::Alike(heard)) = self.heard else {
            return false;
        };
        self.configured
            .is_some_and(|configured| configured != heard)
    }

    pub(crate) fn wants_control_daemon(&self) -> bool {
        self.configured.is_none() && self.heard.is_none()
    }

    pub(crate) fn handle_control_daemon(&mut self, is_there: bool) {
        self.has_control_daemon = is_there;
    }

    /// All present clients' reports. True if they changed; for the first ones, if they differ from
    /// the configuration.
    pub(crate) fn handle_words(&mut self, words: impl IntoIterator<Item = Sharing>) -> bool {
        let mut words = words.into_iter();
        let Some(first) = words.next() else {
            return false;
        };
        let heard = match words.all(|word| word == first) {
            true => Heard::Alike(first),
            false => Heard::Differing,
        };
        let before = self.heard.replace(heard);
        let is_expected = before.is_none() && self.configured.map(Heard::Alike) == Some(heard);
        before != Some(heard) && !is_expected
    }

    pub(crate) fn to_tell(&self) -> Option<Draft> {
        let in_force = in_words(self.in_force());
        Some(match (self.heard?, self.configured) {
            (Heard::Differing, _) => Draft::new(
                Kind::SharingMixed,
                "some clients share the GPU by MPS, others in time slices (CUDA_MPS_PIPE_DIRECTORY \
                 names where a process looks for MPS): until they agree, best-effort work runs \
                 only while high-priority jobs are idle",
            ),
            (Heard::Alike(heard), Some(configured)) if heard != configured => Draft::new(
                Kind::SharingWrong,
                format!(
                    "[gpu] sharing is \"{}\", but clients share the GPU {in_force}, as their \
                     driver reports; leases follow the driver",
                    sharing_name(configured)
                ),
            ),
            (Heard::Alike(_), _) => Draft::new(
                Kind::SharingKnown,
                format!("clients share the GPU {in_force}, as their driver reports"),
            ),
        })
    }
}

pub(crate) fn sharing_by(is_on_mps: bool) -> Sharing {
    match is_on_mps {
        true => Sharing::Mps,
        false => Sharing::TimeSlice,
    }
}

fn in_words(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Mps => "by MPS",
        Sharing::TimeSlice => "in time slices",
    }
}

#[cfg(test)]
mod tests {
    use super::Sharing::{Mps, TimeSlice};
    use super::*;

    #[test]
    fn a_clients_word_counts_more_than_the_configuration_and_that_more_than_the_control_daemons() {
        for (configured, has_control_daemon, words, in_force, known_by) in [
            (None, false, &[][..], TimeSlice, KnownBy::Assumption),
            (None, true, &[], Mps, KnownBy::ControlDaemon),
            (
                Some(TimeSlice),
                true,
                &[],
                TimeSlice,
                KnownBy::Configuration,
            ),
            (Some(Mps), false, &[], Mps, KnownBy::Configuration),
            (None, true, &[TimeSlice], TimeSlice, KnownBy::Clients),
            (None, false, &[Mps], Mps, KnownBy::Clients),
            (
                Some(Mps),
                true,
                &[TimeSlice, TimeSlice],
                TimeSlice,
                KnownBy::Clients,
            ),
            (Some(TimeSlice), false, &[Mps, Mps], Mps, KnownBy::Clients),
            (
                Some(Mps),
                true,
                &[Mps, TimeSlice],
                TimeSlice,
                KnownBy::Clients,
            ),
        ] {
            let mut ways = Ways::new(configured);
            ways.handle_control_daemon(has_control_daemon);
            assert_eq!(ways.handle_words(words.iter().copied()), !words.is_empty());
            assert_eq!(
                (ways.in_force(), ways.known_by()),
                (in_force, known_by),
                "{ways:?}"
            );
            let wanted = configured.is_none() && words.is_empty();
            assert_eq!(ways.wants_control_daemon(), wanted);
        }
    }

    #[test]
    fn a_configured_way_that_is_not_the_true_one_is_wrong_and_said_once_until_something_else_is() {
        let said = |ways: &mut Ways, words: &[Sharing]| {
            let is_new = ways.handle_words(words.iter().copied());
            is_new.then(|| ways.to_tell().unwrap().kind())
        };
        let mut ways = Ways::new(Some(Mps));
        assert!(!ways.is_wrong());
        assert_eq!(said(&mut ways, &[TimeSlice]), Some(Kind::SharingWrong));
        assert!(ways.is_wrong() && !ways.has_mps());
        assert_eq!(said(&mut ways, &[TimeSlice, TimeSlice]), None);
        assert_eq!(said(&mut ways, &[]), None);
        assert_eq!(said(&mut ways, &[TimeSlice]), None);
        assert!(ways.is_wrong());
        assert_eq!(said(&mut ways, &[TimeSlice, Mps]), Some(Kind::SharingMixed));
        assert!(!ways.is_wrong() && ways.has_mps() && ways.is_differing());
        assert_eq!(said(&mut ways, &[Mps]), Some(Kind::SharingKnown));
        assert!(!ways.is_wrong() && !ways.is_differing());
    }
}
