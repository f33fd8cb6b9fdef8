//! Recent share of the GPU's time of a best-effort job, by its charges. For display only.

/// Length of a window, ns; its share is reported when it is over.
const WINDOW_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    began: Option<(u64, u64)>,
    last: Option<f64>,
}

impl Used {
    pub(super) fn handle_charges(&mut self, now_ns: u64, charged_ns: u64) {
        let Some((began_ns, before_ns)) = self.began else {
            self.began = Some((now_ns, charged_ns));
            return;
        };
        let passed_ns = now_ns.saturating_sub(began_ns);
        if passed_ns >= WINDOW_NS {
            let used_ns = charged_ns.saturating_sub(before_ns);
            self.last = Some(used_ns as f64 / passed_ns as f64);
            self.began = Some((now_ns, charged_ns));
        }
    }

    /// Share of the last complete window, of one GPU's time; none before the first. Above 1 if
    /// kernels of several streams run at once, and because charges precede execution.
    pub(crate) fn share(&self) -> Option<f64> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_a_second_or_of_what_passed_between_two_looks() {
        let ms = 1_000_000;
        let mut used = Used::default();
        used.handle_charges(500 * ms, 70 * ms);
        used.handle_charges(1_000 * ms, 90 * ms);
        assert_eq!(used.share(), None);
        used.handle_charges(1_500 * ms, 370 * ms);
        assert_eq!(used.share(), Some(0.3));
        used.handle_charges(3_500 * ms, 370 * ms);
        assert_eq!(used.share(), Some(0.0));
    }
}
