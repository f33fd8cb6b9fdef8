//! The high-priority job's thread when nothing holds it: its steps, their arrivals at the device,
//! and their completions. Mirrors `world` for such a job, for clairvoyant policies.

use std::collections::VecDeque;

use crate::host::HostModel;

#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    pub(super) request: usize,
    pub(super) in_request: bool,
    pub(super) began_ns: u64,
    pub(super) made: usize,
    pub(super) done: usize,
    /// When it makes the next step; `None` while it waits for queue room, completion or a request.
    pub(super) acts_ns: Option<u64>,
    pub(super) notices_ns: Option<u64>,
    pub(super) under_way: VecDeque<(u64, usize)>,
}

impl Thread {
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.in_request = true;
        self.began_ns = now_ns;
        self.made = 0;
        self.done = 0;
        self.acts_ns = Some(now_ns);
        self.notices_ns = None;
    }

    pub(super) fn end(&mut self) {
        self.in_request = false;
        self.request += 1;
        self.acts_ns = None;
        self.notices_ns = None;
    }

    pub(super) fn act(&mut self, now_ns: u64, steps: usize, host: &HostModel) {
        while let Some(at_ns) = self.acts_ns.filter(|&at_ns| at_ns <= now_ns) {
            let there_ns = at_ns.saturating_add(host.launch_latency_ns);
            self.under_way.push_back((there_ns, self.made));
            self.made += 1;
            self.acts_ns = None;
            self.go_on(at_ns, steps, host);
        }
    }

    pub(super) fn handle_done(
        &mut self,
        now_ns: u64,
        count: usize,
        steps: usize,
        host: &HostModel,
    ) {
        self.done = count;
        if count == steps {
            self.notices_ns = Some(now_ns.saturating_add(host.notice_ns));
        } else if self.acts_ns.is_none() {
            self.go_on(now_ns, steps, host);
        }
    }

    fn go_on(&mut self, now_ns: u64, steps: usize, host: &HostModel) {
        let on_device = self.made - self.done;
        if self.made < steps && on_device < host.driver_queue as usize {
            self.acts_ns = Some(now_ns.saturating_add(host.launch_gap_ns));
        }
    }
}
