//! The daemon's own use of its device: NVML. A GPU cannot be reset while any process has it open,
//! so `pillion drain --release` closes NVML until `pillion resume`.
//! A thread with NVML open holds a [`User`], and [`DeviceRelease::user`] grants none while the
//! device is released. A release does not wait: each thread polls [`User::is_over`] and closes what
//! it opened. A thread whose NVML call does not return closes nothing; [`DeviceRelease::released`]
//! counts the remaining users.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::host::nvml::{NvmlError, Processes};

#[derive(Debug, Default)]
pub(crate) struct DeviceRelease {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Since when the device is released, ns on the daemon's clock.
    released_ns: Option<u64>,
    /// Number of releases: users from before the last one are over.
    releases: u64,
    users: usize,
    is_reopening: bool,
}

#[derive(Debug)]
pub(crate) struct User {
    device_release: Arc<DeviceRelease>,
    releases: u64,
}

impl User {
    pub(crate) fn is_over(&self) -> bool {
        self.device_release.held.lock().releases != self.releases
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.device_release.held.lock().users -= 1;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) since_ns: u64,
    pub(crate) open: usize,
}

/// An attempt to reopen, one at a time. Ends when dropped, by any owner.
#[derive(Debug)]
pub(crate) struct Reopening {
    user: User,
}

impl Drop for Reopening {
    fn drop(&mut self) {
        self.user.device_release.held.lock().is_reopening = false;
    }
}

#[derive(Debug)]
pub(crate) struct Reopened(Reopening);

impl DeviceRelease {
    /// A user of the device; none while it is released.
    pub(crate) fn user(self: &Arc<Self>) -> Option<User> {
        let mut held = self.held.lock();
        held.released_ns
            .is_none()
            .then(|| Self::admit(self, &mut held))
    }

    fn admit(this: &Arc<Self>, held: &mut Held) -> User {
        held.users += 1;
        User {
            device_release: Arc::clone(this),
            releases: held.releases,
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.held.lock().released_ns.is_some()
    }

    /// Count of releases while open; none while released.
    pub(crate) fn opened(&self) -> Option<u64> {
        let held = self.held.lock();
        held.released_ns.is_none().then_some(held.releases)
    }

    /// Since when the device is released, and its remaining users; none if it is not.
    pub(crate) fn released(&self) -> Option<Released> {
        let held = self.held.lock();
        held.released_ns.map(|since_ns| Released {
            since_ns,
            open: held.users,
        })
    }

    /// Releases the device. False if already released. The caller wakes the users.
    pub(crate) fn release(&self, now_ns: u64) -> bool {
        let mut held = self.held.lock();
        held.releases += 1;
        let is_news = held.released_ns.is_none();
        held.released_ns.get_or_insert(now_ns);
        is_news
    }

    /// Begins to reopen the device; fails while another attempt is under way.
    pub(crate) fn reopen(self: &Arc<Self>) -> Result<Reopening, String> {
        let mut held = self.held.lock();
        if std::mem::replace(&mut held.is_reopening, true) {
            let why = "the device is already being opened; if that does not end, the driver hangs: \
                       reboot";
            return Err(why.to_owned());
        }
        Ok(Reopening {
            user: Self::admit(self, &mut held),
        })
    }

    pub(crate) fn hold(&self, Reopened(reopening): Reopened) -> Result<(), String> {
        let mut held = self.held.lock();
        let is_current = held.releases == reopening.user.releases;
        if is_current {
            held.released_ns = None;
        }
        // Unlock before the attempt is dropped, whose drop takes this lock.
        drop(held);
        match is_current {
            true => Ok(()),
            false => Err("the device was released again meanwhile".to_owned()),
        }
    }
}

impl Reopening {
    /// Asks NVML for the device with this UUID. The driver decides how long that takes.
    pub(crate) fn open(self, uuid: &str) -> Result<Reopened, String> {
        match Processes::open(uuid).and_then(|processes| processes.list()) {
            Ok(_) => {}
            // NVML was missing before, too.
            Err(error @ (NvmlError::NoLibrary(_) | NvmlError::NoSymbol(_))) => {
                tracing::warn!("{error}; the device is used without NVML");
            }
            Err(error) => {
                return Err(format!(
                    "{error}; once `nvidia-smi` shows the GPU again, run `pillion resume` again; \
                     if it never does, reboot"
                ));
            }
        }
        Ok(Reopened(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_opens_a_device_that_is_released_and_who_has_it_open_is_counted_until_it_closes() {
        let device_release = Arc::new(DeviceRelease::default());
        let user = device_release.user().unwrap();
        assert!(!user.is_over());
        assert_eq!(
            (device_release.released(), device_release.opened()),
            (None, Some(0))
        );
        assert!(device_release.release(7));
        assert!(!device_release.release(8), "said once");
        assert!(user.is_over() && device_release.user().is_none());
        let released = |open| Some(Released { since_ns: 7, open });
        assert_eq!(
            (device_release.released(), device_release.opened()),
            (released(1), None)
        );
        drop(user);
        assert_eq!(device_release.released(), released(0));
    }

    #[test]
    fn one_at_a_time_opens_it_again_and_in_vain_if_it_is_released_meanwhile() {
        let device_release = Arc::new(DeviceRelease::default());
        device_release.release(7);
        let first = device_release.reopen().unwrap();
        assert!(device_release.reopen().is_err());
        device_release.release(8);
        assert!(device_release.hold(Reopened(first)).is_err());
        assert!(device_release.is_released());
        let second = device_release.reopen().unwrap();
        assert_eq!(device_release.released().unwrap().open, 1);
        device_release.hold(Reopened(second)).unwrap();
        assert_eq!(
            (device_release.released(), device_release.opened()),
            (None, Some(2))
        );
        device_release.release(9);
        assert_eq!(device_release.released().unwrap().open, 0);
    }
}
