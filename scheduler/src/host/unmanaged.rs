//! Programs that use the GPU without us: named, once each, with what can be seen of the reason.
//!
//! Who empties `LD_PRELOAD` on the way to a program, an entry point of a container say, has it run
//! without the library, and then nothing holds it and nothing counts its memory. NVML lists it all
//! the same. A process is named when it was listed for [`GRACE_NS`], since one that is about to
//! attach has a context before it is a client.
//!
//! A program of CUDA's is known by the driver's library among its mappings. That and its
//! environment are told to a daemon of root's, or of the same user; others' processes, and those
//! that this PID namespace shows under other numbers, are not named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::core::ledgers::Image;
use crate::core::state::TurnedAway;
use crate::host::unattached;

/// How the processes of MPS are called; servers work for others.
const MPS: &str = "nvidia-cuda-mps";

/// How long a process is given to attach after it was first seen, ns. One that waits for a daemon
/// asks every few seconds.
const GRACE_NS: u64 = 15_000_000_000;

/// Who was listed so far: by process id, since when, ns.
#[derive(Debug, Default)]
pub(crate) struct Unmanaged {
    suspects: BTreeMap<u32, u64>,
    told: BTreeSet<u32>,
}

impl Unmanaged {
    /// These processes use the GPU now and are no clients. Who of them is to be told: has been one
    /// for long, and has not been told.
    pub(crate) fn handle_listed(&mut self, strangers: &[u32], now_ns: u64) -> Vec<u32> {
        let is_there = |pid: &u32| strangers.contains(pid);
        self.told.retain(is_there);
        self.suspects.retain(|pid, _| is_there(pid));
        for pid in strangers.iter().filter(|pid| !self.told.contains(pid)) {
            self.suspects.entry(*pid).or_insert(now_ns);
        }
        let is_due = |since_ns: &u64| now_ns.saturating_sub(*since_ns) >= GRACE_NS;
        let due = self
            .suspects
            .iter()
            .filter(|(_, since_ns)| is_due(since_ns));
        let due: Vec<u32> = due.map(|(pid, _)| *pid).collect();
        self.told.extend(&due);
        self.suspects.retain(|pid, _| !due.contains(pid));
        due
    }

    /// Whether somebody is to be told soon, if he is still there.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }
}

/// A process as the status lists it; none if it is no program of CUDA's, or may not be looked into.
pub(crate) fn look_into(pid: u32, at_ns: u64) -> Option<TurnedAway> {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).ok();
    let name = String::from_utf8_lossy(&read("comm")?)
        .trim_end()
        .to_owned();
    let (maps, environment) = (read("maps")?, read("environ")?);
    if !has(&maps, b"/libcuda.so") || name.starts_with(MPS) {
        return None;
    }
    Some(TurnedAway {
        pid,
        started_ticks: Image::of(pid).started_ticks,
        uid: unattached::real_uid(pid)?,
        name,
        job: unattached::job_id(&environment).unwrap_or_default(),
        attached: false,
        reason: why(&maps, &environment).to_owned(),
        at_ns,
    })
}

/// Why a program is no client, by its mappings (proc_pid_maps(5)) and its environment
/// (proc_pid_environ(5)).
fn why(maps: &[u8], environment: &[u8]) -> &'static str {
    let mut variables = environment.split(|byte| *byte == 0);
    let is_of_a_job = unattached::job_id(environment).is_some();
    if has(maps, b"/libpillion") {
        "it uses the GPU and has the library, but is switched off (PILLION_DISABLE), was forked from a client, was refused, or expects no daemon: \
         PILLION_LOG=info says which"
    } else if !is_of_a_job {
        "it uses the GPU and was not started by `pillion run`"
    } else if variables.any(|it| it.starts_with(b"LD_PRELOAD=") && has(it, b"libpillion")) {
        "it uses the GPU and LD_PRELOAD names a library that is not loaded: is it there, in this container and for this user?"
    } else {
        "it uses the GPU without the library: something on the way to it emptied LD_PRELOAD, its entry point say"
    }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_listed_for_long_is_told_once() {
        let mut unmanaged = Unmanaged::default();
        for (at_s, listed, told, has_suspects) in [
            (0, &[1, 2][..], &[][..], true),
            (10, &[2, 3], &[], true),
            (16, &[2, 3], &[2], true),
            (24, &[2, 3], &[], true),
            (25, &[2, 3], &[3], false),
            (60, &[2, 3], &[], false),
            (70, &[], &[], false),
            // Another process of that number.
            (80, &[2], &[], true),
            (99, &[2], &[2], false),
        ] {
            let due = unmanaged.handle_listed(listed, at_s * 1_000_000_000);
            assert_eq!(due, told, "{at_s} s: {listed:?}");
            assert_eq!(unmanaged.has_suspects(), has_suspects, "{at_s} s");
        }
    }

    #[test]
    fn the_reason_is_what_can_be_seen() {
        for (maps, environment, part) in [
            (
                "/usr/lib/libcuda.so.1",
                "PILLION_JOB=a\0HOME=/",
                "emptied LD_PRELOAD",
            ),
            (
                "/usr/lib/libcuda.so.1",
                "PILLION_JOB=a\0LD_PRELOAD=",
                "emptied LD_PRELOAD",
            ),
            (
                "/usr/lib/libcuda.so.1",
                "HOME=/",
                "not started by `pillion run`",
            ),
            (
                "/usr/lib/libcuda.so.1",
                "PILLION_JOB=a\0LD_PRELOAD=/x/libpillion.so",
                "is not loaded",
            ),
            ("/x/libpillion.so", "PILLION_JOB=a", "has the library"),
        ] {
            let told = why(maps.as_bytes(), environment.as_bytes());
            assert!(told.contains(part), "{maps} {environment}: {told}");
        }
    }

    #[test]
    fn a_process_without_cuda_is_not_named() {
        assert_eq!(look_into(std::process::id(), 0), None);
    }
}
