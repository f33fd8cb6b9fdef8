//! Files beside the socket that pass a daemon's state to the next.
//! Such a file is written beside its place and renamed, so a killed daemon leaves the old one or
//! the new one. It is read only if it belongs to root or the daemon's own user and nobody else may
//! write to it. The usual folders (`/run/pillion`, `$XDG_RUNTIME_DIR/pillion`) are emptied at boot,
//! including the files.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

const MODE: u32 = 0o600;

/// The file of GPU `uuid` with this ending, whose daemon listens at `socket`.
pub(crate) fn beside(socket: &Path, uuid: &str, ending: &str) -> PathBuf {
    // Names of MIG instances once contained slashes.
    let name = format!("{}.{ending}", uuid.replace('/', "_"));
    socket.with_file_name(name)
}

/// The file's text, at most so many bytes; none without a file, an error if foreign or no text.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.cast_signed());
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_file() || ![0, own].contains(&found.uid()) || found.mode() & 0o022 != 0 {
        let why = "it is not a regular file that only the daemon's user or root can write";
        return Err(io::Error::other(why));
    }
    let mut text = String::new();
    file.take(bytes_max).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Replaces the file. On an error the old one remains.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.to_owned().into_os_string();
    new.push(".new");
    // Left by a killed daemon, or by another user if the folder is not the daemon's alone.
    let _ = fs::remove_file(&new);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&new)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
