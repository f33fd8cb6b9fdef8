//! Quiet times: how long HP will certainly stay idle, from the lengths of its pauses. A pause lasts
//! from HP's becoming idle to its becoming busy, as far as snapshots show. While a pause is younger
//! than the shortest of the last [`PAUSES`], the rest of that, less a tenth, is quiet. At least
//! [`PAUSES_MIN`] pauses must be known.

const PAUSES: usize = 128;

const PAUSES_MIN: usize = 64;

#[derive(Debug)]
pub(crate) struct Quiet {
    pauses_ns: [u64; PAUSES],
    count: usize,
    next: usize,
    /// The shortest of them, once there are enough; else 0.
    least_ns: u64,
    idle_since_ns: Option<u64>,
}

impl Default for Quiet {
    fn default() -> Self {
        Self {
            pauses_ns: [0; PAUSES],
            count: 0,
            next: 0,
            least_ns: 0,
            idle_since_ns: None,
        }
    }
}

impl Quiet {
    pub(crate) fn handle_hp(&mut self, since_ns: u64, busy: bool) {
        if !busy {
            self.idle_since_ns.get_or_insert(since_ns);
        } else if let Some(idle_ns) = self.idle_since_ns.take() {
            self.push(since_ns.saturating_sub(idle_ns));
        }
    }

    pub(crate) fn left_ns(&self, now_ns: u64) -> u64 {
        let Some(since_ns) = self.idle_since_ns else {
            return 0;
        };
        let sure_ns = self.least_ns - self.least_ns / 10;
        since_ns.saturating_add(sure_ns).saturating_sub(now_ns)
    }

    fn push(&mut self, pause_ns: u64) {
        self.pauses_ns[self.next] = pause_ns;
        self.next = (self.next + 1) % PAUSES;
        self.count = (self.count + 1).min(PAUSES);
        if self.count >= PAUSES_MIN {
            let kept = self.pauses_ns[..self.count].iter();
            self.least_ns = kept.copied().min().unwrap_or(0);
        }
    }
}
