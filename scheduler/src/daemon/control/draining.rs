//! The operator drains the GPU, releases its device, or ends holds.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use protocol::hello::{Reply, send};
use rustix::event::Timespec;

use super::Control;
use super::away::refuse;
use crate::core::event::{Draft, Kind};
use crate::core::state::Released;
use crate::daemon::shared::Shared;
use crate::host::fd_reaper::UntrustedSocket;
use crate::host::nvml::{Asked, Silence};
use crate::report::status::Viewer;

/// Time to reopen a released device, s: a driver without users initialises the GPU again, which
/// takes seconds. Less than the requester waits (`pillion resume`).
const REOPEN_S: i64 = 20;

const REOPEN: Timespec = Timespec {
    tv_sec: REOPEN_S,
    tv_nsec: 0,
};

impl Control {
    /// Drains the GPU, and releases its device if requested. The status shows when it is done.
    pub(super) fn drain(&self, socket: &OwnedFd, uid: u32, is_release: bool) {
        if Viewer::of(uid) != Viewer::Operator {
            let why = "only root and the daemon's own user may drain its GPU";
            return refuse(socket, why.to_owned());
        }
        let why = format!("requested by user {uid} (`pillion drain`)");
        let (is_drained, is_released) = self.shared.drain_and_release(&why, is_release);
        if is_drained {
            let text = format!(
                "the GPU is drained until `pillion resume`: best-effort jobs are held, and no new \
                 high-priority job should be started here: {why}"
            );
            self.shared.tell(Draft::new(Kind::Draining, text));
        }
        if is_released {
            let text = format!(
                "user {uid} has released the device: NVML is closed until `pillion resume`. \
                 Meanwhile Xids, memory errors, a stuck GPU and unaccounted memory are not \
                 detected, and memory of exiting processes counts as free at once"
            );
            self.shared.tell(Draft::new(Kind::DeviceReleased, text));
        }
        self.shared.note_grip();
        let _ = send(socket, &Reply::Done.encode(), &[]);
    }

    /// Releases holds of one job, or all if none is named, after reopening the device.
    pub(super) fn resume(&self, socket: UntrustedSocket, uid: u32, job: &str) {
        if Viewer::of(uid) != Viewer::Operator {
            let why = "only root and the daemon's own user may resume held jobs";
            return refuse(&socket, why.to_owned());
        }
        if !job.is_empty() {
            return answer(&socket, resume_job(&self.shared, uid, job));
        }
        if !self.shared.device_release().is_released() {
            return answer(&socket, resume_all(&self.shared, uid));
        }
        let (shared, gpu) = (Arc::clone(&self.shared), self.identity.gpu.uuid.clone());
        let reopen = move || {
            let result =
                reopen(&shared, &gpu).map_err(|why| format!("GPU {gpu} stays released: {why}"));
            answer(&socket, result.and_then(|()| resume_all(&shared, uid)));
        };
        // The thread waits for the driver, and replies. Without a thread the connection is closed.
        if let Err(error) = self.shared.start_thread("pillion-reopen", reopen) {
            tracing::warn!("cannot start a thread to open the device: {error}");
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

fn reopen(shared: &Shared, gpu: &str) -> Result<(), String> {
    let device_release = shared.device_release();
    let mut reopening = Some(device_release.reopen()?);
    let uuid = gpu.to_owned();
    // A late result is closed again.
    let open = move |()| reopening.take().map(|reopening| reopening.open(&uuid));
    let mut asked = Asked::start("pillion-reopen-ask", open).map_err(|error| error.to_string())?;
    let reopened = match asked.ask((), shared.stop_fd(), &REOPEN) {
        Ok(Some(reopened)) => reopened?,
        Err(Silence::Stopping) => return Err("the daemon is ending".to_owned()),
        Ok(None) | Err(Silence::Late | Silence::Ended) => {
            return Err(format!(
                "the driver has not answered for {REOPEN_S} s; once `nvidia-smi` answers, run \
                 `pillion resume` again; if it never does, reboot"
            ));
        }
    };
    device_release.hold(reopened)?;
    let text = format!("NVML of {gpu} is open again");
    shared.tell(Draft::new(Kind::DeviceOpened, text));
    shared.note_grip();
    Ok(())
}

fn resume_job(shared: &Shared, uid: u32, job: &str) -> Result<(), String> {
    let released = shared.release(Some(job));
    shared.ring();
    let released = released.filter(|released| !released.is_nothing());
    let released = released.ok_or_else(|| {
        format!(
            "job {job:?} is not held individually; `pillion resume` without a job ends all holds"
        )
    })?;
    tell_of_jobs(shared, uid, &released);
    Ok(())
}

fn resume_all(shared: &Shared, uid: u32) -> Result<(), String> {
    let Some(released) = shared.release(None) else {
        return Err(
            "the device was released again meanwhile; run `pillion resume` again".to_owned(),
        );
    };
    shared.ring();
    if released.is_nothing() {
        return Err("nothing is held".to_owned());
    }
    tell_of_jobs(shared, uid, &released);
    let text = format!("resumed by user {uid}: everything that was held");
    shared.tell(Draft::new(Kind::Resumed, text));
    Ok(())
}

/// Reports each job's release to its user, and releases of all to everybody.
fn tell_of_jobs(shared: &Shared, uid: u32, released: &Released) {
    for key in &released.jobs {
        let text = format!("resumed by user {uid}: job {:?}, which was held", key.id);
        shared.tell(Draft::new(Kind::Resumed, text).of_job(key));
    }
}
