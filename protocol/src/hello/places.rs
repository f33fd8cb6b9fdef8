//! Where daemons listen, and how a GPU is called there.

use std::path::{Path, PathBuf};

/// The sockets on which a GPU's daemon may listen, root's first; `uuid` is `GPU-…` as NVML prints.
pub fn socket_paths(uuid: &str) -> Vec<PathBuf> {
    socket_folders()
        .into_iter()
        .map(|folder| folder.join(format!("{uuid}.sock")))
        .collect()
}

/// The folders in which daemons put their sockets, root's first.
pub fn socket_folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("/run/pillion")];
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()) {
        folders.push(Path::new(&runtime).join("pillion"));
    }
    folders
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
