//! Warnings where a daemon accepts a process with other settings than it was started with.

use std::path::Path;

use protocol::hello::JobClass;

use crate::platform::config::Config;
use crate::platform::log::{self, Level};

/// Logs that the operator does not allow the class that this process was started with.
pub(super) fn class(config: &Config, class: JobClass, socket: &Path) {
    if config.class == JobClass::HighPriority && class == JobClass::BestEffort {
        let socket = socket.display();
        log::say(
            Level::Error,
            format_args!(
                "PILLION_CLASS=high-priority: the daemon at {socket} does not allow this process that class (see \
                 [high_priority] in its configuration); the process runs as best-effort"
            ),
        );
    }
}

pub(super) fn slo(config: &Config, is_known: bool, socket: &Path) {
    if let Some(slo) = config.slo.filter(|_| !is_known) {
        let socket = socket.display();
        log::say(
            Level::Warn,
            format_args!(
                "PILLION_SLO={slo}: the daemon at {socket} is older than this variable: restart it with this version; until then its \
                 configuration sets the target"
            ),
        );
    }
}

pub(super) fn cap(config: &Config, is_known: bool, socket: &Path) {
    if let Some(cap) = config.cap.filter(|_| !is_known) {
        let socket = socket.display();
        log::say(
            Level::Warn,
            format_args!(
                "PILLION_COMPUTE={cap}: the daemon at {socket} is older than this variable: restart it with this version; until then \
                 the job's GPU time is not capped"
            ),
        );
    }
}
