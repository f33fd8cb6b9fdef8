//! A small table of captures on streams without a slot of their own (`streams`), so that the count
//! of captures under way includes them. A capture that does not fit is ignored.

use core::sync::atomic::{AtomicU64, Ordering};

/// Captures at once on streams beyond the thousands that have a slot.
const CAPTURES_MAX: usize = 32;

pub(crate) struct Captures([Capture; CAPTURES_MAX]);

struct Capture {
    /// The stream's key; 0 is a free place.
    stream: AtomicU64,
    context: AtomicU64,
}

impl Captures {
    pub(crate) const fn new() -> Self {
        Self(
            [const {
                Capture {
                    stream: AtomicU64::new(0),
                    context: AtomicU64::new(0),
                }
            }; CAPTURES_MAX],
        )
    }

    pub(crate) fn begin(&self, stream: u64, context: u64) -> bool {
        let free = self.0.iter().find(|place| {
            // Relaxed, here and below: one thread begins and ends the capture of a stream, and the
            // count that others read has its own ordering.
            let claim = &place.stream;
            claim
                .compare_exchange(0, stream, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
        if let Some(place) = free {
            place.context.store(context, Ordering::Relaxed);
        }
        free.is_some()
    }

    pub(crate) fn end(&self, stream: u64) -> bool {
        self.0.iter().any(|place| {
            let is_its =
                place
                    .stream
                    .compare_exchange(stream, 0, Ordering::Relaxed, Ordering::Relaxed);
            is_its.is_ok()
        })
    }

    pub(crate) fn end_all_of(&self, context: u64) -> u32 {
        let ended = self.0.iter().filter(|place| {
            let stream = place.stream.load(Ordering::Relaxed);
            stream != 0
                && place.context.load(Ordering::Relaxed) == context
                && place
                    .stream
                    .compare_exchange(stream, 0, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        });
        ended.count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_forgotten_once_by_its_end_or_with_its_context() {
        let captures = Captures::new();
        assert!(captures.begin(64, 8) && captures.begin(128, 16) && captures.begin(192, 16));
        assert!(captures.end(64));
        assert!(!captures.end(64));
        assert_eq!(captures.end_all_of(16), 2);
        assert_eq!(captures.end_all_of(16), 0);
        assert!(!captures.end(128));
    }

    #[test]
    fn more_captures_than_fit_are_not_noted() {
        let captures = Captures::new();
        let noted = (1..=CAPTURES_MAX as u64 + 1).filter(|stream| captures.begin(64 * stream, 8));
        assert_eq!(noted.count(), CAPTURES_MAX);
    }
}
