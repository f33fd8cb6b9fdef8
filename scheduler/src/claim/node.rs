//! The claim's second half: a lock on the GPU's device node.
//!
//! Network namespaces keep abstract names apart, file systems keep nothing apart that is one file: a container that has the
//! machine's `/dev/nvidiaN` bound into it (what NVIDIA's runtime hook does, and a privileged one with the machine's `/dev`) meets
//! the lock of a daemon outside. A node that a container runtime made anew for the container (mknod(2)) is another file, and shows
//! nothing.
//!
//! The lock is one byte whose place follows from the UUID, so that daemons of several MIG instances, which share a node, are not
//! in each other's way; of an open file description (`F_OFD_SETLK` of fcntl(2)), because the driver opens and closes the same node
//! in this process and would take a process's lock with it. While the device is released
//! ([`crate::grip`]) there is no lock, and another daemon may take it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::Holder;
use crate::gpu::PciAddress;

/// Where the driver's kernel module describes the GPUs, by PCI address (the driver's README, "The /proc interface").
const GPUS: &str = "/proc/driver/nvidia/gpus";

/// Whether the lock is ours.
#[derive(Debug)]
pub(super) enum Lock {
    /// It is, until the file is closed.
    Ours(File),
    /// Somebody has it.
    Held(Holder),
}

/// The device node of a GPU; none where the driver's kernel module shows no such GPU, as beside the software GPU.
pub(super) fn path(pci: PciAddress) -> Option<PathBuf> {
    path_in(Path::new(GPUS), pci)
}

fn path_in(gpus: &Path, pci: PciAddress) -> Option<PathBuf> {
    let information = gpus.join(pci.to_string()).join("information");
    let information = fs::read_to_string(information).ok()?;
    let minor = information
        .lines()
        .find_map(|line| line.strip_prefix("Device Minor:"))?;
    let minor: u32 = minor.trim().parse().ok()?;
    Some(PathBuf::from(format!("/dev/nvidia{minor}")))
}

/// Locks the byte of `uuid` in `node`.
///
/// # Errors
///
/// What the system says, but that somebody has the lock.
pub(super) fn lock(node: &Path, uuid: &str) -> io::Result<Lock> {
    let file = File::options().read(true).write(true).open(node)?;
    let wanted = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: place(uuid),
        l_len: 1,
        // What the kernel asks for of locks of an open file description.
        l_pid: 0,
    };
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&wanted)) {
        Ok(_) => Ok(Lock::Ours(file)),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => {
            Ok(Lock::Held(holder(&file, wanted.l_start)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The byte of a UUID: its first fifteen hexadecimal digits as a number, which leaves the sign and the end of what can be locked alone.
fn place(uuid: &str) -> libc::off_t {
    let digits = uuid.split_once('-').map_or(uuid, |(_, digits)| digits);
    let digits = digits.chars().filter_map(|digit| digit.to_digit(16));
    digits
        .take(15)
        .fold(0, |place, digit| place << 4 | libc::off_t::from(digit))
}

/// Who has locked the byte, among the processes whose descriptors are shown to us (proc_pid_fdinfo(5)).
fn holder(file: &File, place: libc::off_t) -> Holder {
    let unseen = Holder {
        pid: None,
        uid: None,
    };
    let Ok(node) = file.metadata() else {
        return unseen;
    };
    let has_locked = |line: &str| {
        // `lock: 1: OFDLCK  ADVISORY  WRITE -1 00:05:512 17 17`: kind, process, file, first and last byte.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let ["lock:", _, _, _, _, _, of, first, last] = fields[..] else {
            return false;
        };
        let inode = of.rsplit(':').next().and_then(|inode| inode.parse().ok());
        let meets = |first: libc::off_t, last: &str| {
            first <= place && (last == "EOF" || last.parse().is_ok_and(|last| place <= last))
        };
        inode == Some(node.ino()) && first.parse().is_ok_and(|first| meets(first, last))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut numbered = processes
        .filter_map(|process| Some((process.file_name().to_str()?.parse().ok()?, process)));
    let found = numbered.find(|(_, process)| {
        let descriptors = fs::read_dir(process.path().join("fdinfo"));
        let mut descriptors = descriptors.into_iter().flatten().flatten();
        descriptors.any(|descriptor| {
            let text = fs::read_to_string(descriptor.path()).unwrap_or_default();
            text.lines().any(has_locked)
        })
    });
    found.map_or(unseen, |(pid, process)| Holder {
        pid: Some(pid),
        uid: process.metadata().ok().map(|of| of.uid()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-6f0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8";
    const MIG: &str = "MIG-0d1c2b3a-4958-5677-8695-a4b3c2d1e0ff";

    #[test]
    fn the_node_is_the_one_whose_minor_number_the_kernel_module_tells() {
        let folder = tempfile::tempdir().unwrap();
        let pci: PciAddress = "0000:0a:00.0".parse().unwrap();
        assert_eq!(path_in(folder.path(), pci), None);
        let gpu = folder.path().join("0000:0a:00.0");
        fs::create_dir(&gpu).unwrap();
        let information = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 130\nBus Location: \t 0000:0a:00.0\nDevice Minor: \t 3\n";
        fs::write(gpu.join("information"), information).unwrap();
        let node = path_in(folder.path(), pci);
        assert_eq!(node, Some(PathBuf::from("/dev/nvidia3")));
    }

    #[test]
    fn a_byte_is_locked_once_and_that_of_another_instance_as_well() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Lock::Ours(ours) = lock(file.path(), UUID).unwrap() else {
            panic!("nobody has it yet");
        };
        // Closing another description of the same file, as the driver does, gives nothing up.
        drop(File::open(file.path()).unwrap());
        let Lock::Held(holder) = lock(file.path(), UUID).unwrap() else {
            panic!("it is ours");
        };
        assert_eq!(holder.pid, Some(std::process::id()));
        assert!(matches!(lock(file.path(), MIG), Ok(Lock::Ours(_))));
        drop(ours);
        assert!(matches!(lock(file.path(), UUID), Ok(Lock::Ours(_))));
    }
}
