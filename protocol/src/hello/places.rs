//! Where daemons listen, and the names of GPUs there.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::geteuid;

/// The folder of the sockets of root's daemons, which serve every user.
pub const SYSTEM_FOLDER: &str = "/run/pillion";

/// The sockets on which a GPU's daemon may listen, root's first; `uuid` is NVML's `GPU-…`.
pub fn socket_paths(uuid: &str) -> Vec<PathBuf> {
    socket_folders()
        .into_iter()
        .map(|folder| folder.join(format!("{uuid}.sock")))
        .collect()
}

/// The folders of daemons' sockets, root's first; the one below `/tmp` only if no other user can
/// have created its contents.
pub fn socket_folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from(SYSTEM_FOLDER)];
    folders.extend(runtime_folder());
    let temporary = temporary_folder();
    let found = temporary.symlink_metadata();
    if found.is_ok_and(|found| is_private(&found)) {
        folders.push(temporary);
    }
    folders
}

/// The folder of this user's daemon's socket: `/run/pillion` for root, else `pillion` in
/// `$XDG_RUNTIME_DIR` or `/run/user/UID`, else [`temporary_folder`]. May be missing.
pub fn own_socket_folder() -> PathBuf {
    match geteuid().is_root() {
        true => SYSTEM_FOLDER.into(),
        false => runtime_folder().unwrap_or_else(temporary_folder),
    }
}

/// A folder that is this user's own, as the XDG specification requires: the environment may be
/// another user's (`su`, `sudo -E`). A session without a login finds that of one with a login.
fn runtime_folder() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let named = named.filter(|folder| folder.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    let mut folders = named.into_iter().chain([usual]);
    let own = folders.find(|folder| folder.metadata().is_ok_and(|found| is_own(&found)));
    own.map(|folder| folder.join("pillion"))
}

/// Whether `found` is a folder of this process's user that no other user can write to.
pub fn is_own(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0
}

/// The socket folder without a login (`su`, cron, a container), if it [is private](is_private).
pub fn temporary_folder() -> PathBuf {
    format!("/tmp/pillion-{}", geteuid().as_raw()).into()
}

/// Whether `found` is a folder of this process's user that no other user can read or write: in
/// `/tmp` any user may have created a folder of the name.
pub fn is_private(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0
}

/// A device's UUID as NVML and nvidia-smi print it.
pub fn format_uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
