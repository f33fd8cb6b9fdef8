//! The imitated release of NVIDIA's control daemon: R535, R550 and R555 were observed, and differ
//! in their words (`docs/mps.md`).

/// Selects the release: `535`, `550` (the default) or `555`.
pub(crate) const RELEASE_ENV: &str = "SOFTGPU_MPS_RELEASE";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Release {
    R535,
    R550,
    R555,
}

impl Release {
    pub(crate) fn of_environment() -> Result<Self, String> {
        match std::env::var(RELEASE_ENV).as_deref() {
            Ok("535") => Ok(Self::R535),
            Err(_) | Ok("" | "550") => Ok(Self::R550),
            Ok("555") => Ok(Self::R555),
            Ok(other) => Err(format!("{RELEASE_ENV}={other}: expected 535, 550 or 555")),
        }
    }

    /// Whether it knows `get_server_status`.
    pub(crate) fn has_server_status(self) -> bool {
        self >= Self::R550
    }

    pub(crate) fn has_pid_file(self) -> bool {
        self >= Self::R550
    }

    /// Whether only its own user and root may change its settings.
    pub(crate) fn guards_settings(self) -> bool {
        self >= Self::R550
    }

    /// Whether an unknown option is an error. Otherwise the program then reads commands.
    pub(crate) fn refuses_options(self) -> bool {
        self >= Self::R555
    }
}
