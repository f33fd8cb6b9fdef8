//! For how long, and up to how many tasks, a batch of inference tasks is collected (`OLTunes` 2025,
//! Table 4, Algorithm 3 and section 3.4.1). Times are in ms, as the paper's. A batch that is not
//! full is deployed when the window W has passed since its first task. W shrinks while
//! latency-critical tasks are more than ρ of those that wait, and grows otherwise. A batch that
//! could not be deployed shortens W and makes batches smaller.
//!
//! # What is chosen here
//! - **First W**: not published; [`Limits::initial_ms`].
//! - **No task waits**: the share is 0/0. W holds.
//! - **Feedback**: the steps are not published. Here W loses one step, and batches lose one task,
//!   but never the last one.
//! - **Growth of batches**: the paper has none, so that every batch would be one task after four
//!   failures in all its life. Here each deployed batch gives a task back, up to the most.

/// Bounds and steps of a window: the paper's defaults, but for `initial_ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The first W.
    pub initial_ms: u32,
    /// Least W.
    pub min_ms: u32,
    /// Greatest W.
    pub max_ms: u32,
    /// w: the step by which W grows or shrinks.
    pub step_ms: u32,
    /// ρ: of the waiting tasks, the share of latency-critical ones beyond which W shrinks.
    pub critical_max: f64,
    /// Most tasks of a batch.
    pub tasks_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            initial_ms: 1000,
            min_ms: 50,
            max_ms: 1000,
            step_ms: 10,
            critical_max: 0.7,
            tasks_max: 4,
        }
    }
}

/// Why limits are invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WindowError {
    /// The first W is outside its bounds, or these are the wrong way round.
    #[error("window of {initial_ms} ms: expected {min_ms} to {max_ms} ms")]
    Initial {
        /// The requested window.
        initial_ms: u32,
        /// Least.
        min_ms: u32,
        /// Greatest.
        max_ms: u32,
    },
    /// No share.
    #[error("share of latency-critical tasks of {0}: expected 0 to 1")]
    CriticalMax(f64),
    /// A batch of no task.
    #[error("batches of 0 tasks: expected 1 or more")]
    TasksMax,
}

/// The window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    limits: Limits,
    wait_ms: u32,
    tasks_max: usize,
}

impl Window {
    /// A window before the first batch.
    ///
    /// # Errors
    /// [`WindowError`] names the invalid limit.
    pub fn new(limits: Limits) -> Result<Self, WindowError> {
        let Limits {
            initial_ms,
            min_ms,
            max_ms,
            ..
        } = limits;
        if !(min_ms..=max_ms).contains(&initial_ms) {
            return Err(WindowError::Initial {
                initial_ms,
                min_ms,
                max_ms,
            });
        }
        if !(0.0..=1.0).contains(&limits.critical_max) {
            return Err(WindowError::CriticalMax(limits.critical_max));
        }
        if limits.tasks_max == 0 {
            return Err(WindowError::TasksMax);
        }
        Ok(Self {
            limits,
            wait_ms: initial_ms,
            tasks_max: limits.tasks_max,
        })
    }

    /// W.
    #[must_use]
    pub const fn wait_ms(&self) -> u32 {
        self.wait_ms
    }

    /// Most tasks of a batch, at present.
    #[must_use]
    pub const fn tasks_max(&self) -> usize {
        self.tasks_max
    }

    /// So many tasks wait: `adjustTimeWindow` of Algorithm 3.
    pub fn handle_waiting(&mut self, critical: usize, others: usize) {
        let all = critical + others;
        if all == 0 {
            return;
        }
        if critical as f64 / all as f64 > self.limits.critical_max {
            self.shrink();
        } else {
            let grown = self.wait_ms.saturating_add(self.limits.step_ms);
            self.wait_ms = grown.min(self.limits.max_ms);
        }
    }

    /// A batch could not be deployed: `feedback` of Algorithm 3.
    pub fn handle_failed(&mut self) {
        self.shrink();
        self.tasks_max = (self.tasks_max - 1).max(1);
    }

    /// A batch was deployed.
    pub fn handle_deployed(&mut self) {
        self.tasks_max = (self.tasks_max + 1).min(self.limits.tasks_max);
    }

    fn shrink(&mut self) {
        let shrunk = self.wait_ms.saturating_sub(self.limits.step_ms);
        self.wait_ms = shrunk.max(self.limits.min_ms);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window() -> Window {
        Window::new(Limits::default()).expect("the defaults can be")
    }

    #[test]
    fn w_shrinks_beyond_seven_tenths_of_critical_tasks_and_grows_up_to_there() {
        let mut window = window();
        window.handle_waiting(71, 29);
        assert_eq!(window.wait_ms(), 990);
        window.handle_waiting(70, 30);
        assert_eq!(window.wait_ms(), 1000);
        window.handle_waiting(0, 1);
        assert_eq!(window.wait_ms(), 1000);
    }

    #[test]
    fn w_holds_while_no_task_waits() {
        let mut window = window();
        window.handle_waiting(1, 0);
        window.handle_waiting(0, 0);
        assert_eq!(window.wait_ms(), 990);
    }

    #[test]
    fn failures_shrink_batches_to_one_task_and_deployments_restore_them() {
        let mut window = window();
        for _ in 0..200 {
            window.handle_failed();
        }
        assert_eq!((window.wait_ms(), window.tasks_max()), (50, 1));
        for _ in 0..5 {
            window.handle_deployed();
        }
        assert_eq!((window.wait_ms(), window.tasks_max()), (50, 4));
    }

    #[test]
    fn limits_that_cannot_be_are_refused_with_a_sentence() {
        let said = |limits| Window::new(limits).map(|_| ()).unwrap_err().to_string();
        let limits = Limits::default();
        assert_eq!(
            said(Limits {
                initial_ms: 40,
                ..limits
            }),
            "window of 40 ms: expected 50 to 1000 ms"
        );
        assert!(
            said(Limits {
                critical_max: f64::NAN,
                ..limits
            })
            .contains("NaN")
        );
        assert!(
            said(Limits {
                tasks_max: 0,
                ..limits
            })
            .contains("1 or more")
        );
    }

    proptest! {
        #[test]
        fn whatever_happens_the_window_keeps_its_bounds(
            events in prop::collection::vec((0usize..4, 0usize..50, 0usize..50), 0..300),
        ) {
            let mut window = window();
            for (event, critical, others) in events {
                match event {
                    0 => window.handle_failed(),
                    1 => window.handle_deployed(),
                    _ => window.handle_waiting(critical, others),
                }
                prop_assert!((50..=1000).contains(&window.wait_ms()));
                prop_assert!((1..=4).contains(&window.tasks_max()));
            }
        }
    }
}
