//! Programs that use the GPU without us: named, once each, with what can be seen of the reason.
//!
//! Who empties `LD_PRELOAD` on the way to a program, an entry point of a container say, has it run without the library, and then nothing
//! holds it and nothing counts its memory. NVML lists it all the same. A process is named when it was listed in two looks, since one
//! that is about to attach has a context before it is a client.
//!
//! A program of CUDA's is known by the driver's library among its mappings. That and its environment are told to a daemon of root's, or of
//! the same user; others' processes, and those that this PID namespace shows under other numbers, are not named.

use std::collections::BTreeSet;
use std::fs;

use crate::ledgers::Image;
use crate::state::TurnedAway;
use crate::strays;

/// How the processes of MPS are called; servers work for others.
const MPS: &str = "nvidia-cuda-mps";

/// Who was listed so far.
#[derive(Debug, Default)]
pub(crate) struct Unmanaged {
    /// In the last look, and not told.
    suspects: BTreeSet<u32>,
    told: BTreeSet<u32>,
}

impl Unmanaged {
    /// These processes use the GPU now and are no clients. Who of them is to be told: was one in the last look too, and has not been told.
    pub(crate) fn handle_listed(&mut self, strangers: &[u32]) -> Vec<u32> {
        let now: BTreeSet<u32> = strangers.iter().copied().collect();
        self.told.retain(|pid| now.contains(pid));
        let untold: BTreeSet<u32> = now.difference(&self.told).copied().collect();
        let seen_twice: Vec<u32> = untold.intersection(&self.suspects).copied().collect();
        self.told.extend(&seen_twice);
        self.suspects = &untold - &self.told;
        seen_twice
    }

    /// Whether somebody will be told in the next look, if he is still there.
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
        uid: strays::real_uid(pid)?,
        name,
        job: strays::job_id(&environment).unwrap_or_default(),
        attached: false,
        reason: why(&maps, &environment).to_owned(),
        at_ns,
    })
}

/// Why a program is no client, by its mappings (proc_pid_maps(5)) and its environment (proc_pid_environ(5)).
fn why(maps: &[u8], environment: &[u8]) -> &'static str {
    let mut variables = environment.split(|byte| *byte == 0);
    let is_of_a_job = strays::job_id(environment).is_some();
    if has(maps, b"/libpillion") {
        "it uses the GPU and has the library, but is switched off (PILLION_DISABLE), was forked from a client, or expects no daemon: \
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
    fn who_is_listed_in_two_looks_is_told_once() {
        let mut unmanaged = Unmanaged::default();
        for (listed, told, has_suspects) in [
            (&[1, 2][..], &[][..], true),
            (&[2, 3], &[2], true),
            (&[2, 3], &[3], false),
            (&[2, 3], &[], false),
            (&[], &[], false),
            // Another process of that number.
            (&[2], &[], true),
            (&[2], &[2], false),
        ] {
            assert_eq!(unmanaged.handle_listed(listed), told, "{listed:?}");
            assert_eq!(unmanaged.has_suspects(), has_suspects, "{listed:?}");
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
