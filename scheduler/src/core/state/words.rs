//! Clients' reports of how they share the GPU, and events about them.

use policy::Sharing;

use super::{Client, Gone, State};
use crate::core::event::{Draft, Kind};

impl State {
    /// A client has attached or left: the knowledge of how the GPU is shared may change.
    pub(super) fn note_words(&mut self, by: &Gone) {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        let words: Vec<Sharing> = clients
            .clone()
            .filter_map(|client| client.sharing)
            .collect();
        let is_silent = clients.count() > words.len();
        if self.ways.handle_words(words) {
            let news = self.ways.to_tell();
            self.ways.news = news.map(|draft| draft.of_job(&by.key).pid(by.pid));
        }
        self.ways.is_control_daemon_wanted |= is_silent;
    }

    pub(crate) fn take_sharing_news(&mut self) -> Option<Draft> {
        self.ways.news.take()
    }

    /// Whether to query MPS's control daemon now: no client's driver has reported how the GPU is
    /// shared, and none was queried since a client came whose driver does not.
    pub(crate) fn take_control_daemon_wanted(&mut self) -> bool {
        std::mem::take(&mut self.ways.is_control_daemon_wanted) && self.ways.wants_control_daemon()
    }

    pub(crate) fn handle_control_daemon(&mut self, is_there: bool) {
        let before = self.ways.in_force();
        self.ways.handle_control_daemon(is_there);
        if self.ways.in_force() != before {
            let text = match is_there {
                true => {
                    "MPS's control daemon answers: until a client reports otherwise, Pillion \
                     assumes that jobs share the GPU by MPS"
                }
                false => {
                    "MPS's control daemon no longer answers: until a client reports otherwise, \
                     Pillion assumes that jobs share the GPU in time slices"
                }
            };
            self.ways.news = Some(Draft::new(Kind::SharingKnown, text));
        }
    }

    /// Whether this client uses MPS: by its own report, else as the others.
    pub(crate) fn is_on_mps(&self, client: &Client) -> bool {
        match client.sharing {
            Some(sharing) => sharing == Sharing::Mps,
            None => self.ways.has_mps(),
        }
    }
}
