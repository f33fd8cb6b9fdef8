//! The kernel's view of a process that NVML lists and that is no client: whether it can still
//! attach, and why it has not ([`crate::core::unmanaged`] has the rules).
//! - **Can attach**: it has mapped the library (preloaded, or as the shim), and its environment
//!   does not switch the library off. The library attaches at the creation of the first context,
//!   after which NVML lists the process, or at the first launch. A process without the library
//!   never attaches: nothing loads the library into a running process.
//! - **Never named**: this daemon; `pillion` and `pilliond` of the folder of this daemon's program;
//!   MPS's server and control daemon, by program name; graphics processes, by NVML's list; and an
//!   ending process, which has no mappings left. A process that uses the GPU is recognised by the
//!   driver among its mappings. Mappings, environment and program file are visible to a daemon of
//!   the same user, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH. Of other processes only the
//!   name and the user are reported, where visible.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::core::ledgers::Image;
use crate::core::unmanaged::{Eyes, Known, Sight};
use crate::host::peer::has_ended;
use crate::host::unattached;

/// Program name of MPS, whose servers work for others.
const MPS: &str = "nvidia-cuda-mps";

/// Programs of Pillion that use a GPU for no job.
const OWN: [&str; 2] = ["pillion", "pilliond"];

/// The driver in a computing process's mappings: CUDA and OpenCL libraries, device nodes.
const DRIVER: [&[u8]; 3] = [b"/libcuda.so", b"/libnvidia-opencl.so", b"/dev/nvidia"];

/// Limit of a file of /proc, bytes. 65530 mappings, the kernel's default maximum, take less.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The machine's first PID namespace (`PROC_PID_INIT_INO` of the kernel's `linux/proc_ns.h`).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Whether this process is in the machine's first PID namespace, whose ids NVML uses.
pub(crate) fn is_first_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new(FIRST_PID_NAMESPACE))
}

#[derive(Debug)]
pub(crate) struct Proc<'a> {
    pub(crate) graphics: Option<&'a [u32]>,
    pub(crate) computed: &'a [u32],
}

impl Eyes for Proc<'_> {
    fn started_ticks(&self, pid: u32) -> u64 {
        Image::of(pid).started_ticks
    }

    fn has_computed(&self, pid: u32) -> bool {
        self.computed.contains(&pid)
    }

    fn look_into(&self, pid: u32) -> Sight {
        let own = std::process::id();
        let folder = fs::read_link("/proc/self/exe").ok();
        let folder = folder.as_deref().and_then(Path::parent);
        let draws = self.graphics.is_some_and(|pids| pids.contains(&pid));
        if pid == own || draws || is_ending(pid) {
            return Sight::Exempt;
        }
        let is_own = |pid| unattached::ancestors(own).any(|ancestor| ancestor == pid);
        let may_end = self.graphics.is_some() && pid != 1 && !is_own(pid);
        let facts = Facts::of(pid);
        match facts.is_of_mps() || folder.is_some_and(|folder| facts.is_pillions(folder)) {
            true => Sight::Exempt,
            false => facts.judge(may_end),
        }
    }
}

/// Whether a process has ended or is ending; not if /proc hides it from this user (`hidepid`).
fn is_ending(number: u32) -> bool {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else {
        return true;
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) if has_ended(&process) => true,
        Err(Errno::SRCH) => true,
        _ => fs::exists(format!("/proc/{number}")).unwrap_or(false) && Image::is_ending(number),
    }
}

#[derive(Debug, Default)]
struct Facts {
    name: Option<String>,
    uid: Option<u32>,
    program: Option<PathBuf>,
    maps: Option<Vec<u8>>,
    environment: Option<Vec<u8>>,
}

impl Facts {
    fn of(pid: u32) -> Self {
        let read = |file: &str| {
            let mut bytes = Vec::new();
            let file = fs::File::open(format!("/proc/{pid}/{file}")).ok()?;
            file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
            Some(bytes)
        };
        Self {
            name: read("comm").map(|name| printable(&name)),
            uid: unattached::real_uid(pid),
            program: fs::read_link(format!("/proc/{pid}/exe")).ok(),
            maps: read("maps"),
            environment: read("environ"),
        }
    }

    /// File name of its program; for a replaced file it ends in the kernel's suffix.
    fn program_name(&self) -> Option<&str> {
        let name = self.program.as_deref()?.file_name()?.to_str()?;
        Some(name.trim_end_matches(" (deleted)"))
    }

    /// Whether it belongs to MPS. Its own name counts only if its program is invisible.
    fn is_of_mps(&self) -> bool {
        let name = self.program_name().or(self.name.as_deref());
        name.is_some_and(|name| name.starts_with(MPS))
    }

    fn is_pillions(&self, folder: &Path) -> bool {
        let parent = self.program.as_deref().and_then(Path::parent);
        parent == Some(folder) && self.program_name().is_some_and(|name| OWN.contains(&name))
    }

    fn judge(self, may_end: bool) -> Sight {
        let known = |job: Option<String>, reason: &str, is_sure| Known {
            uid: self.uid,
            name: self.name.clone().unwrap_or_default(),
            job: job.unwrap_or_default(),
            reason: reason.to_owned(),
            is_sure,
        };
        let (Some(maps), Some(environment)) = (&self.maps, &self.environment) else {
            let reason = "it uses the GPU; this daemon may not inspect it (it belongs to another \
                          user, or is hidden)";
            return Sight::Unclear(known(None, reason, false));
        };
        let job = unattached::job_id(environment);
        let job = job.map(|job| printable(job.as_bytes()));
        if !DRIVER.iter().any(|part| has(maps, part)) {
            let reason = "NVML lists it, but it has not loaded the driver";
            return Sight::Unclear(known(None, reason, false));
        }
        let reason = why(maps, environment);
        let known = known(job, reason, may_end && self.uid.is_some());
        match has_library(maps) && !is_switched_off(environment) {
            true => Sight::MayAttach(known),
            false => Sight::Past(known),
        }
    }
}

/// Why a program is no client, by proc_pid_maps(5) and proc_pid_environ(5).
fn why(maps: &[u8], environment: &[u8]) -> &'static str {
    let mut variables = environment.split(|byte| *byte == 0);
    let is_of_a_job = unattached::job_id(environment).is_some();
    if has_library(maps) && is_switched_off(environment) {
        "it uses the GPU and has the library switched off (PILLION_DISABLE)"
    } else if has_library(maps) {
        "it uses the GPU and has the library, but was forked from a client, was refused, or \
         expects no daemon: start it with PILLION_LOG=info, and its log says which"
    } else if !is_of_a_job {
        "it uses the GPU and was not started by `pillion run`"
    } else if variables.any(|it| it.starts_with(b"LD_PRELOAD=") && has(it, b"libpillion")) {
        "it uses the GPU, but the library that LD_PRELOAD names is not loaded: check that it \
         exists in this container and that this user may read it"
    } else {
        "it uses the GPU without the library: LD_PRELOAD was cleared on the way to it, for example \
         by a container's entry point"
    }
}

fn has_library(maps: &[u8]) -> bool {
    has(maps, b"/libpillion")
}

/// As the library reads it: anything but empty and `0`.
fn is_switched_off(environment: &[u8]) -> bool {
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(b"PILLION_DISABLE="));
    value.is_some_and(|value| !matches!(value, b"" | b"0"))
}

/// Characters kept of a name: a process may choose an id of any length.
const NAME_MAX: usize = 128;

fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let shown = name.trim_end_matches('\n').chars().take(NAME_MAX);
    shown
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUDA: &str = "/usr/lib/libcuda.so.1";

    fn facts(maps: &str, environment: &str) -> Facts {
        Facts {
            name: Some("python".to_owned()),
            uid: Some(1000),
            program: Some("/usr/bin/python3".into()),
            maps: Some(maps.as_bytes().to_vec()),
            environment: Some(environment.as_bytes().to_vec()),
        }
    }

    #[test]
    fn the_reason_is_what_can_be_seen() {
        let both = format!("{CUDA}\n/x/libpillion.so");
        for (maps, environment, part) in [
            (CUDA, "PILLION_JOB=a\0HOME=/", "LD_PRELOAD was cleared"),
            (CUDA, "PILLION_JOB=a\0LD_PRELOAD=", "LD_PRELOAD was cleared"),
            (CUDA, "HOME=/", "not started by `pillion run`"),
            (
                CUDA,
                "PILLION_JOB=a\0LD_PRELOAD=/x/libpillion.so",
                "is not loaded",
            ),
            (&both, "PILLION_JOB=a", "has the library, but"),
            (&both, "PILLION_DISABLE=1", "switched off"),
        ] {
            let told = why(maps.as_bytes(), environment.as_bytes());
            assert!(told.contains(part), "{maps} {environment}: {told}");
        }
    }

    #[test]
    fn who_has_the_library_and_has_not_switched_it_off_may_attach() {
        let both = format!("{CUDA}\n/x/libpillion_shim.so (deleted)");
        for (maps, environment, may_attach, is_sure) in [
            (CUDA, "", false, true),
            (&both, "", true, true),
            (&both, "PILLION_DISABLE=0", true, true),
            (&both, "PILLION_DISABLE=", true, true),
            (&both, "A=b\0PILLION_DISABLE=yes", false, true),
            ("/dev/nvidia0", "", false, true),
        ] {
            let sight = facts(maps, environment).judge(true);
            let found = match &sight {
                Sight::MayAttach(known) => (true, known.is_sure),
                Sight::Past(known) => (false, known.is_sure),
                other => panic!("{maps} {environment}: {other:?}"),
            };
            assert_eq!(found, (may_attach, is_sure), "{maps} {environment:?}");
        }
        let Sight::Past(kept) = facts(CUDA, "").judge(false) else {
            panic!("a process that cannot attach");
        };
        assert!(!kept.is_sure);
    }

    #[test]
    fn of_who_may_not_be_looked_into_the_name_is_known_and_no_more() {
        let hidden = Facts {
            maps: None,
            ..facts("", "PILLION_JOB=a")
        };
        let Sight::Unclear(known) = hidden.judge(true) else {
            panic!("nobody knows");
        };
        let seen = (&*known.name, known.uid, &*known.job, known.is_sure);
        assert_eq!(seen, ("python", Some(1000), "", false));
        assert!(known.reason.contains("may not inspect it"));
        let other = facts("/usr/lib/libc.so.6", "").judge(true);
        assert!(matches!(other, Sight::Unclear(known) if !known.is_sure));
    }

    #[test]
    fn processes_of_mps_and_of_pillion_are_known_by_their_programs() {
        let of = |program: Option<&str>, name: &str| Facts {
            program: program.map(Into::into),
            name: Some(name.to_owned()),
            ..Facts::default()
        };
        for (program, name, is_of_mps) in [
            (
                Some("/usr/bin/nvidia-cuda-mps-server"),
                "nvidia-cuda-mps",
                true,
            ),
            (
                Some("/usr/bin/nvidia-cuda-mps-control (deleted)"),
                "x",
                true,
            ),
            (None, "nvidia-cuda-mps", true),
            (None, "python", false),
            (Some("/usr/bin/python3"), "nvidia-cuda-mps", false),
        ] {
            assert_eq!(of(program, name).is_of_mps(), is_of_mps, "{program:?}");
        }
        for (program, is_pillions) in [
            ("/usr/bin/pillion", true),
            ("/usr/bin/pilliond (deleted)", true),
            ("/usr/bin/pillion-replay", false),
            ("/tmp/pillion", false),
        ] {
            let found = of(Some(program), "").is_pillions(Path::new("/usr/bin"));
            assert_eq!(found, is_pillions, "{program}");
        }
    }

    #[test]
    fn this_process_and_graphics_are_exempt_and_a_process_without_the_driver_is_not_sure() {
        let own = std::process::id();
        let eyes = Proc {
            graphics: Some(&[7]),
            computed: &[8],
        };
        assert_eq!(eyes.look_into(own), Sight::Exempt);
        assert_eq!(eyes.look_into(7), Sight::Exempt);
        assert_ne!(eyes.started_ticks(own), 0);
        assert_eq!([7, 8].map(|pid| eyes.has_computed(pid)), [false, true]);
        // No process has that id: it has ended.
        assert_eq!(eyes.look_into(u32::MAX), Sight::Exempt);
        let parent = unattached::ancestors(own).next();
        if let Some(parent) = parent {
            let sight = eyes.look_into(parent);
            let is_sure = matches!(sight, Sight::Past(known) if known.is_sure);
            assert!(!is_sure, "who started this process is never ended");
        }
        assert_eq!(printable(b"a\x1b[31mb\n"), "a?[31mb");
    }
}
