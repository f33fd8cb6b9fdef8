//! What the kernel reports of a process: its image, and whether it still exists.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::core::ledgers::{Found, Image};
use crate::host::peer::has_ended;
use crate::host::unattached::real_uid;

impl Image {
    /// Of a running process (proc_pid_stat(5), fields 22 and 28).
    pub(crate) fn of(pid: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name, in parentheses, may contain anything; later fields are numbers and a letter.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |number: usize| {
            let text = after_name.split_ascii_whitespace().nth(number - 3);
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        Self {
            started_ticks: field(22),
            stack: field(28),
        }
    }

    /// Whether that process is exiting, or gone (proc_pid_stat(5), field 9, bit `PF_EXITING` of
    /// `include/linux/sched.h`): it closes its descriptors before it can be waited for.
    pub(crate) fn is_ending(pid: u32) -> bool {
        const PF_EXITING: u64 = 4;
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return true;
        };
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let flags = after_name.split_ascii_whitespace().nth(9 - 3);
        let flags = flags.and_then(|flags| flags.parse::<u64>().ok());
        flags.is_none_or(|flags| flags & PF_EXITING != 0)
    }
}

impl Found {
    pub(crate) fn of(number: u32, started_ticks: u64) -> io::Result<Self> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Ok(Self::Ended);
        };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Ok(Self::Ended),
            Err(error) => return Err(error.into()),
        };
        // Checked after opening its descriptor: a later process of that id has another start. One
        // with an invisible start may be the one.
        let (image, owner) = (Image::of(number), real_uid(number));
        let is_other = image.started_ticks != 0 && image.started_ticks != started_ticks;
        Ok(match () {
            () if is_other => Self::Replaced,
            () if has_ended(&process) => Self::Ended,
            () => Self::There {
                image,
                owner,
                process,
            },
        })
    }
}
