//! An operator drains the GPU, has its device released, or lets go what is held.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::hello::{Reply, send};
use rustix::event::Timespec;

use super::Control;
use super::away::refuse;
use crate::daemon::Shared;
use crate::disposal::Line;
use crate::events::{Draft, Kind};
use crate::nvml::{Asked, Silence};
use crate::state::Released;
use crate::status::Viewer;

/// How long a device that was released may take to be opened again, s: a driver that has nobody
/// left initialises the GPU anew, which takes seconds. Less than who asks waits (`pillion resume`).
const REOPEN_S: i64 = 20;

const REOPEN: Timespec = Timespec {
    tv_sec: REOPEN_S,
    tv_nsec: 0,
};

impl Control {
    /// Drains the GPU, and releases its device if that is asked. Nobody waits for that here: the
    /// status says when it is done.
    pub(super) fn drain(&self, socket: &OwnedFd, uid: u32, is_release: bool) {
        if Viewer::of(uid) != Viewer::Operator {
            let why = "only root and the daemon's own user may drain its GPU";
            return refuse(socket, why.to_owned());
        }
        let why = format!("user {uid} wants it so (`pillion drain`)");
        let (is_drained, is_released) = self.shared.drain_and_release(&why, is_release);
        if is_drained {
            let text = format!(
                "no new high-priority job should be started here, and best-effort jobs are held, until `pillion resume`: {why}"
            );
            self.shared.tell(Draft::new(Kind::Draining, text));
        }
        if is_released {
            let text = format!(
                "user {uid} has the device released: device node and NVML are closed until `pillion resume`. Until then Xids, errors in memory, \
                 a stuck GPU and memory past accounts are not seen, and memory of processes that end counts as free at once"
            );
            self.shared.tell(Draft::new(Kind::DeviceReleased, text));
        }
        self.shared.note_grip();
        let _ = send(socket, &Reply::Done.encode(), &[]);
    }

    /// Lets go what is held: of one job, or everything if none is named, for which the device is
    /// opened before.
    pub(super) fn resume(&self, socket: Line, uid: u32, job: &str) {
        if Viewer::of(uid) != Viewer::Operator {
            let why = "only root and the daemon's own user may end what is held";
            return refuse(&socket, why.to_owned());
        }
        if !job.is_empty() {
            return answer(&socket, resume_job(&self.shared, uid, job));
        }
        if !self.shared.grip().is_released() {
            return answer(&socket, resume_all(&self.shared, uid));
        }
        let (shared, gpu) = (Arc::clone(&self.shared), self.identity.gpu.uuid.clone());
        let reopen = move || {
            let result =
                reopen(&shared, &gpu).map_err(|why| format!("GPU {gpu} stays released: {why}"));
            answer(&socket, result.and_then(|()| resume_all(&shared, uid)));
        };
        // It waits for the driver, and who asked is told by it. Without a thread the connection
        // ends.
        if let Err(error) = self.shared.start_thread("pillion-reopen", reopen) {
            tracing::warn!("no thread to open the device: {error}");
        }
    }
}

fn answer(socket: &OwnedFd, result: Result<(), String>) {
    match result {
        Ok(()) => {
            let _ = send(socket, &Reply::Done.encode(), &[]);
        }
        Err(reason) => refuse(socket, reason),
    }
}

/// Opens the device again.
fn reopen(shared: &Shared, gpu: &str) -> Result<(), String> {
    let grip = shared.grip();
    let mut reopening = Some(grip.reopen()?);
    let uuid = gpu.to_owned();
    // What comes too late is closed again.
    let open = move |()| reopening.take().map(|reopening| reopening.open(&uuid));
    let mut asked = Asked::start("pillion-reopen-ask", open).map_err(|error| error.to_string())?;
    let reopened = match asked.ask((), shared.stop_fd(), &REOPEN) {
        Ok(Some(reopened)) => reopened?,
        Err(Silence::Stopping) => return Err("the daemon is ending".to_owned()),
        Ok(None) | Err(Silence::Late | Silence::Ended) => {
            return Err(format!(
                "the driver has not answered for {REOPEN_S} s; see whether `nvidia-smi` does, and say `pillion resume` once more; if it never does, reboot"
            ));
        }
    };
    grip.hold(reopened)?;
    let text = format!("device node and NVML of {gpu} are open again");
    shared.tell(Draft::new(Kind::DeviceOpened, text));
    shared.note_grip();
    Ok(())
}

fn resume_job(shared: &Shared, uid: u32, job: &str) -> Result<(), String> {
    let released = shared.release(Some(job));
    shared.ring();
    if released.is_nothing() {
        return Err(format!("job {job:?} is not held by itself"));
    }
    tell_of_jobs(shared, uid, &released);
    Ok(())
}

fn resume_all(shared: &Shared, uid: u32) -> Result<(), String> {
    let released = shared.release(None);
    shared.ring();
    if released.is_nothing() {
        return Err("nothing is held".to_owned());
    }
    tell_of_jobs(shared, uid, &released);
    let text = format!("resumed by user {uid}: everything that was held");
    shared.tell(Draft::new(Kind::Resumed, text));
    Ok(())
}

/// Each job's user is told of that, and of what was held for all everybody.
fn tell_of_jobs(shared: &Shared, uid: u32, released: &Released) {
    for key in &released.jobs {
        let text = format!("resumed by user {uid}: job {:?}, which was held", key.id);
        shared.tell(Draft::new(Kind::Resumed, text).of_job(key));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use protocol::clock::Clock;
    use protocol::hello::{Request, ask_once, ask_status};
    use serde_json::Value;

    use super::*;
    use crate::claim::{Claim, lock};
    use crate::{Config, Daemon, Gpu};

    const DRAIN: Request = Request::Drain { is_release: true };

    /// A daemon that has locked `node`, which the device is said to have.
    fn daemon(folder: &Path, node: &Path, uuid: &str) -> Daemon {
        let path = folder.join("gpu0.toml");
        std::fs::write(&path, "[gpu]\nindex = 0\nsharing = \"timeslice\"\n").unwrap();
        let config = Config::load(&path).unwrap();
        let gpu = Gpu {
            uuid: uuid.to_owned(),
            name: "V100-SXM2-16GB".to_owned(),
            pci: "0000:01:00.0".parse().unwrap(),
            sms: 80,
            memory_bytes: 16 << 30,
            cuda_driver: 0,
            block_priority: None,
        };
        let socket = folder.join("gpu0.sock");
        let is_released = crate::drained::is_released(&socket, uuid);
        let mut claim = Claim::take_with(uuid, Some(node), is_released).unwrap();
        let daemon = Daemon::start(&config, gpu, &socket, Clock::monotonic()).unwrap();
        daemon.with_node(claim.take_node())
    }

    fn ask(socket: &Path, request: &Request) -> Reply {
        ask_once(socket, request, Duration::from_secs(60)).unwrap()
    }

    fn has_open(node: &Path) -> bool {
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut files = descriptors.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        files.any(|file| file == node)
    }

    /// Once every part of it has closed the device.
    fn wait_until_closed(socket: &Path) {
        let clock = Clock::monotonic();
        loop {
            let status: Value = serde_json::from_str(&ask_status(socket).unwrap()).unwrap();
            if status["gpu"]["released"]["open"] == 0 {
                return;
            }
            clock.sleep_until(clock.now_ns() + 1_000_000);
        }
    }

    /// Runs `during` while the daemon does.
    fn run(daemon: Daemon, during: impl FnOnce()) {
        let stopper = daemon.stopper();
        thread::scope(|scope| {
            let running = scope.spawn(move || daemon.run());
            during();
            stopper.stop();
            running.join().unwrap().unwrap();
        });
    }

    #[test]
    fn the_device_node_is_closed_while_the_device_is_released_also_by_the_next_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let (node, socket) = (
            folder.path().join("nvidia0"),
            folder.path().join("gpu0.sock"),
        );
        std::fs::write(&node, "").unwrap();
        let uuid = format!("GPU-drain-{}", std::process::id());
        let before = daemon(folder.path(), &node, &uuid);
        run(before, || {
            assert!(has_open(&node));
            for _ in 0..2 {
                assert_eq!(ask(&socket, &DRAIN), Reply::Done);
                wait_until_closed(&socket);
                assert!(!has_open(&node));
            }
        });
        let next = daemon(folder.path(), &node, &uuid);
        assert!(!has_open(&node));
        run(next, || {
            wait_until_closed(&socket);
            // Somebody else has it meanwhile, who is a daemon as far as can be seen.
            let theirs = lock(&node, &uuid).unwrap();
            let resume = Request::Resume { job: String::new() };
            let Reply::Refused { reason } = ask(&socket, &resume) else {
                panic!("the device is another's");
            };
            assert!(reason.contains("stays released"), "{reason}");
            assert!(reason.contains("which has locked"), "{reason}");
            drop(theirs);
            wait_until_closed(&socket);
            assert!(!has_open(&node));
            assert_eq!(ask(&socket, &resume), Reply::Done);
            assert!(has_open(&node));
            assert!(
                matches!(ask(&socket, &resume), Reply::Refused { .. }),
                "nothing is held"
            );
        });
    }
}
