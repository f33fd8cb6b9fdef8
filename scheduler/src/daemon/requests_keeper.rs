//! The thread that saves knowledge about marked requests for the next daemon.
//! It saves every ten seconds while a high-priority client is attached, and when the daemon ends
//! ([`crate::host::kept_requests`]). It locks the state for one client at a time, and not while it
//! writes the file.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::core::state::KeptRequests;
use crate::daemon::shared::Shared;
use crate::host::kept_requests::RequestsFile;
use crate::report::events::unix_ms;

const EVERY: Duration = Duration::from_secs(10);

pub(super) struct RequestsKeeper {
    shared: Arc<Shared>,
    file: RequestsFile,
    has_written: bool,
    is_told: bool,
}

impl RequestsKeeper {
    pub(super) fn begin(shared: Arc<Shared>, file: RequestsFile) -> Self {
        match file.read(unix_ms()) {
            Ok(all) => shared.state().expect_requests(shared.clock.now_ns(), all),
            Err(error) => {
                let path = file.path().display();
                tracing::warn!(
                    "cannot read {path}: {error}; durations of requests are learnt again, and the \
                     file is overwritten"
                );
            }
        }
        Self {
            shared,
            file,
            has_written: true,
            is_told: false,
        }
    }

    pub(super) fn run(mut self) {
        while !self.shared.is_stopping() {
            self.wait();
            self.keep();
        }
    }

    /// Waits for ten seconds, or until woken; without clients to learn from, only until woken.
    fn wait(&self) {
        let (clients, expected) = {
            let state = self.shared.state();
            let now_ns = self.shared.clock.now_ns();
            (state.learnt_after(0), state.expected_requests(now_ns))
        };
        match clients.is_none() && expected.is_empty() && !self.has_written {
            true => thread::park(),
            false => thread::park_timeout(EVERY),
        }
    }

    fn keep(&mut self) {
        let all = self.all();
        // The clients may have left because the daemon ends.
        if all.is_empty() && self.shared.is_stopping() {
            return;
        }
        self.has_written = !all.is_empty();
        match self.file.write(all, unix_ms()) {
            Ok(()) => self.is_told = false,
            Err(error) if !self.is_told => {
                self.is_told = true;
                let path = self.file.path().display();
                tracing::warn!(
                    "cannot write {path}: {error}; the next daemon will learn durations of \
                     requests again"
                );
            }
            Err(_) => {}
        }
    }

    fn all(&self) -> Vec<KeptRequests> {
        let now_ns = self.shared.clock.now_ns();
        let mut all = self.shared.state().expected_requests(now_ns);
        let mut last = 0;
        loop {
            let next = self.shared.state().learnt_after(last);
            let Some((client, learnt)) = next else {
                return all;
            };
            last = client;
            all.extend(learnt.map(|mut kept| {
                kept.learnt.shorten();
                kept
            }));
        }
    }
}
