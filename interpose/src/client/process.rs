//! This process as a client: of which daemons, and by which settings.

use crate::client::Client;
use crate::client::clients::CLIENTS;
use crate::platform::config::Config;
use crate::platform::phase::{self, Phase};

/// This process as a client for the calling thread's current device, if it is one. Asks the driver
/// only if the process has several devices.
#[inline]
pub(crate) fn client() -> Option<&'static Client> {
    if phase::now() == Phase::Attached {
        CLIENTS.current()
    } else {
        None
    }
}

/// Every client that this process is.
pub(crate) fn clients() -> impl Iterator<Item = &'static Client> {
    let is_attached = phase::now() == Phase::Attached;
    CLIENTS.all().filter(move |_| is_attached)
}

/// What the environment said, once it was read.
pub(crate) fn config() -> Option<&'static Config> {
    CLIENTS.config.get()
}

/// What the environment said is this, unless another thread was first; what it is.
pub(crate) fn set_config(config: Config) -> &'static Config {
    CLIENTS.config.set(config)
}
