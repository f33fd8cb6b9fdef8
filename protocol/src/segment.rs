//! Shared memory: anonymous memory files, passed by descriptor, mapped as our page types, of sealed
//! size: no peer can truncate one under a mapping (SIGBUS). None has a name, so none stays.

#![expect(unsafe_code, reason = "maps shared memory as page types")]

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{
    MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create,
};
use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap, munmap,
};
use rustix::process::{Resource, getrlimit};

use crate::clock::{Clock, ClockPage};
use crate::ledger::LedgerPage;
use crate::notebook::NotebookPage;
use crate::pages::{BellPage, ClientPage, DaemonPage, HpPage, LeasePage, PAGE_MAGIC};
use crate::recording::RecordPage;
use crate::sync::Ordering;

/// A type that may lie in memory shared with another process.
/// # Safety
/// Any bits must be valid, and all contents atomic (or padding): others write to it at any time.
pub unsafe trait SharedPage: Sync + 'static {}

// SAFETY: the page types consist of atomics in repr(C) structs and arrays.
unsafe impl SharedPage for DaemonPage {}
// SAFETY: as above.
unsafe impl SharedPage for HpPage {}
// SAFETY: as above.
unsafe impl SharedPage for BellPage {}
// SAFETY: as above.
unsafe impl SharedPage for ClientPage {}
// SAFETY: as above.
unsafe impl SharedPage for LeasePage {}
// SAFETY: as above.
unsafe impl SharedPage for LedgerPage {}
// SAFETY: as above.
unsafe impl SharedPage for ClockPage {}
// SAFETY: as above.
unsafe impl SharedPage for NotebookPage {}
// SAFETY: as above.
unsafe impl SharedPage for RecordPage {}

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// Identity of a descriptor's file: device and inode, unique while the file is open.
pub fn identity(fd: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The access that a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only; a store through it is a SIGSEGV, so callers keep to the table in `pages`.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// A mapped shared page. Dereferences to the page; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping<T: SharedPage> {
    page: NonNull<T>,
    owned: PhantomData<T>,
}

// SAFETY: a mapping is valid in all threads of the process, and `T` is `Sync` by `SharedPage`.
unsafe impl<T: SharedPage> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: SharedPage> Sync for Mapping<T> {}

impl<T: SharedPage> Mapping<T> {
    /// Makes zeroed memory for a `T`, sealed against resizing; `name` shows in `/proc/PID/maps`.
    /// # Errors
    /// No descriptor or memory is left, or the file size limit (`RLIMIT_FSIZE`) is too low.
    pub fn create(name: &str) -> io::Result<(OwnedFd, Self)> {
        let fd = create_sealed(name, size_of::<T>() as u64)?;
        let mapping = Self::open(&fd, Access::ReadWrite)?;
        Ok((fd, mapping))
    }

    /// Maps a received descriptor. Fails if the file is smaller than `T`.
    pub fn open(fd: impl AsFd, access: Access) -> io::Result<Self> {
        check_size::<T>(&fd)?;
        // SAFETY: a fresh shared mapping chosen by the kernel aliases no Rust memory. The size was
        // checked above, and the file does not shrink: it is sealed; or it belongs to this user
        // (the clock's, a recording's), who could end this process as well; or it is the daemon's,
        // which a client trusts.
        let address = unsafe {
            mmap(
                core::ptr::null_mut(),
                size_of::<T>(),
                access.protection(),
                MapFlags::SHARED,
                fd,
                0,
            )?
        };
        let page = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            page,
            owned: PhantomData,
        })
    }

    /// Maps an untrusted peer's memory file, which must be sealed like ours, so that no process can
    /// shorten it under the mapping, and have the size of a `T`.
    /// # Errors
    /// It is no such file, or cannot be mapped for writing.
    pub fn open_from_peer(fd: impl AsFd) -> io::Result<Self> {
        let seals = fcntl_get_seals(&fd)?;
        let size_bytes = fstat(&fd)?.st_size;
        if !seals.contains(SEALS) || size_bytes != size_of::<T>() as i64 {
            let error =
                format!("not shared memory of Pillion: {size_bytes} bytes, seals {seals:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Self::open(fd, Access::ReadWrite)
    }

    /// Keeps the mapping out of forked children, which must not touch the parent's rings.
    pub fn keep_from_children(&self) -> io::Result<()> {
        // SAFETY: the range is exactly this mapping; the advice affects future forks only.
        unsafe {
            madvise(
                self.page.as_ptr().cast(),
                size_of::<T>(),
                Advice::LinuxDontFork,
            )?
        };
        Ok(())
    }

    /// Replaces the page at its address by the file of `fd`, which must have and keep the size of a
    /// `T`. A thread that accesses it meanwhile gets one page or the other: Linux replaces a
    /// mapping in one step (mmap(2), `MAP_FIXED`). Later children lack the page.
    /// # Errors
    /// If the file is shorter, the former page stays. If it cannot be mapped, the address may be
    /// unmapped: callers map the file elsewhere first.
    pub fn replace(&self, fd: impl AsFd, access: Access) -> io::Result<()> {
        check_size::<T>(&fd)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is exactly this mapping. It holds a valid `T` before and after, as any
        // bytes are one, and all of it is atomic, so references to it stay valid.
        unsafe {
            let address = self.page.as_ptr().cast();
            mmap(address, size_of::<T>(), access.protection(), flags, fd, 0)?;
        }
        self.keep_from_children()
    }

    /// Zeroed memory of this process alone, without a memory file.
    /// # Errors
    /// The system gives no memory.
    pub fn anonymous() -> io::Result<Self> {
        let protection = Access::ReadWrite.protection();
        let (null, flags) = (core::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a fresh mapping chosen by the kernel aliases no Rust memory.
        let address = unsafe { mmap_anonymous(null, size_of::<T>(), protection, flags)? };
        let page = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            page,
            owned: PhantomData,
        })
    }

    /// As [`Mapping::replace`], with zeroed memory of this process alone.
    /// # Errors
    /// The system gives no memory.
    pub fn replace_with_zeros(&self) -> io::Result<()> {
        let protection = Access::ReadWrite.protection();
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: as in `replace`.
        unsafe { mmap_anonymous(self.page.as_ptr().cast(), size_of::<T>(), protection, flags)? };
        self.keep_from_children()
    }

    /// Moves the page to the new file of `fd`, at the same address: for a page whose descriptor is
    /// lost, or that never had one. Other threads' additions to its first `words` words are kept;
    /// their stores there in that microsecond may be lost. Non-zero words of the file stay; the
    /// page's other words are the file's.
    /// # Errors
    /// The file is shorter, or the system gives no memory; the page is unchanged.
    pub fn move_to(&self, fd: impl AsFd, words: usize) -> io::Result<()> {
        assert!(words * size_of::<AtomicU64>() <= size_of::<T>());
        let new = Self::open(&fd, Access::ReadWrite)?;
        // SAFETY: the range is this mapping. Size 0 leaves it and maps its pages again (mremap(2)).
        let twin = unsafe {
            let flags = MremapFlags::MAYMOVE;
            mremap(self.page.as_ptr().cast(), 0, size_of::<T>(), flags)?
        };
        let old = Self {
            page: NonNull::new(twin.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            owned: PhantomData,
        };
        let of = |page: &Self| {
            // SAFETY: page aligned, and as long as asserted above. Shared pages consist of atomics.
            unsafe { core::slice::from_raw_parts(page.page.cast::<AtomicU64>().as_ptr(), words) }
        };
        let relaxed = Ordering::Relaxed;
        let before: Vec<u64> = of(&old).iter().map(|word| word.load(relaxed)).collect();
        for (word, value) in of(&new).iter().zip(&before) {
            let _ = word.compare_exchange(0, *value, relaxed, relaxed);
        }
        self.replace(&fd, Access::ReadWrite)?;
        // From here on no thread writes to the old memory.
        for ((word, value), old) in of(&new).iter().zip(before).zip(of(&old)) {
            let added = old.load(relaxed).wrapping_sub(value);
            word.fetch_add(added, relaxed);
        }
        Ok(())
    }

    /// Leaves the page mapped for the rest of the process's life.
    pub fn leak(self) -> &'static T {
        let page = self.page;
        core::mem::forget(self);
        // SAFETY: never unmapped from here on; `T` is valid for any bytes by `SharedPage`.
        unsafe { page.as_ref() }
    }
}

impl Access {
    fn protection(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::READ,
            Self::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

fn check_size<T>(fd: impl AsFd) -> io::Result<()> {
    let size_bytes = fstat(fd)?.st_size;
    if size_bytes >= size_of::<T>() as i64 {
        return Ok(());
    }
    let error = format!(
        "the shared memory has {size_bytes} bytes, expected {}",
        size_of::<T>()
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Creates a page for one client, which hands it to one daemon after another.
/// # Errors
/// The system gives no memory file.
pub fn client_page(clock: &Clock) -> io::Result<(OwnedFd, Mapping<ClientPage>)> {
    let (fd, page) = Mapping::<ClientPage>::create("pillion-client")?;
    begin_client_page(&page, clock);
    Ok((fd, page))
}

/// As [`client_page`] without a file, for processes whose system-call filter forbids memory files.
/// # Errors
/// The system gives no memory.
pub fn anonymous_client_page(clock: &Clock) -> io::Result<Mapping<ClientPage>> {
    let page = Mapping::<ClientPage>::anonymous()?;
    begin_client_page(&page, clock);
    Ok(page)
}

fn begin_client_page(page: &ClientPage, clock: &Clock) {
    let key = clock.bell_key();
    page.helper_bell.key.store(key, Ordering::Relaxed);
    page.magic.store(PAGE_MAGIC, Ordering::Release);
}

impl<T: SharedPage> Deref for Mapping<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: mapped with `T`'s size and alignment until dropped; any bytes are a valid `T`.
        unsafe { self.page.as_ref() }
    }
}

impl<T: SharedPage> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, whichever function made it, and no reference outlives
        // `self`.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), size_of::<T>()) };
    }
}

/// Whether this process may create a file of that size, memory files included. Beyond its limit
/// (`RLIMIT_FSIZE`) the kernel also sends SIGXFSZ, which ends the process.
/// # Errors
/// The limit is lower.
pub fn check_file_limit(size_bytes: u64) -> io::Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(most) if most < size_bytes => Err(io::Error::other(format!(
            "the file size limit (ulimit -f) is {most} bytes; {size_bytes} bytes are needed"
        ))),
        _ => Ok(()),
    }
}

/// A zeroed, sealed memory file of `size_bytes`.
/// # Errors
/// No descriptor or memory is left, or the file size limit (`RLIMIT_FSIZE`) is too low.
pub fn create_sealed(name: &str, size_bytes: u64) -> io::Result<OwnedFd> {
    check_file_limit(size_bytes)?;
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, size_bytes)?;
    // Memory files have mode 0777: a peer that gets a read-only descriptor could reopen the file
    // for writing. With this mode only its owner and root could.
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// A memory file with a text, which a peer reads without waiting for a disk. Its maker can only
/// shorten it, which takes the memory back; nobody else can change it, because peers get a
/// [`read_only`] descriptor. It is therefore not sealed against shortening.
/// # Errors
/// No descriptor or memory is left.
pub fn sealed_text(name: &str, text: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let file = File::from(fd);
    // This write does not move the file's read position.
    file.write_all_at(text, 0)?;
    fchmod(&file, Mode::RUSR)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

/// A second descriptor of the same memory that can only be mapped for reading.
/// # Errors
/// No descriptor is left, or /proc is not mounted.
pub fn read_only(fd: impl AsFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(File::open(path)?.into())
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn two_mappings_of_one_descriptor_see_each_other() {
        let (fd, writer) = Mapping::<HpPage>::create("pillion-test").unwrap();
        let reader = Mapping::<HpPage>::open(&fd, Access::Read).unwrap();
        writer.epoch.store(7, Ordering::Relaxed);
        assert_eq!(reader.epoch.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_peer_cannot_shrink_a_page() {
        let (fd, _page) = Mapping::<HpPage>::create("pillion-test").unwrap();
        assert!(ftruncate(&fd, 0).is_err());
    }

    #[test]
    fn a_read_only_descriptor_refuses_a_writable_mapping() {
        let (fd, _page) = Mapping::<HpPage>::create("pillion-test").unwrap();
        let fd = read_only(&fd).unwrap();
        assert!(Mapping::<HpPage>::open(&fd, Access::ReadWrite).is_err());
        assert!(Mapping::<HpPage>::open(&fd, Access::Read).is_ok());
    }

    #[test]
    fn a_sealed_text_never_changes_and_only_its_maker_takes_it_back() {
        let made = File::from(sealed_text("pillion-test", b"a text").unwrap());
        let mut file = File::from(read_only(&made).unwrap());
        assert!(made.write_at(b"b", 0).is_err() && made.set_len(7).is_err());
        assert!(file.write_at(b"b", 0).is_err() && file.set_len(0).is_err());
        let mut text = String::new();
        io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "a text");
        made.set_len(0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn only_its_owner_may_open_a_page_again() {
        let (fd, _page) = Mapping::<HpPage>::create("pillion-test").unwrap();
        assert_eq!(fstat(&fd).unwrap().st_mode & 0o777, 0o600);
    }

    #[test]
    fn what_a_peer_brings_is_a_sealed_page_of_its_size_or_refused() {
        let (fd, page) = Mapping::<LeasePage>::create("pillion-test").unwrap();
        page.magic.store(7, Ordering::Relaxed);
        let brought = Mapping::<LeasePage>::open_from_peer(&fd).unwrap();
        assert_eq!(brought.magic.load(Ordering::Relaxed), 7);
        assert!(Mapping::<HpPage>::open_from_peer(&fd).is_err());
        assert!(Mapping::<LeasePage>::open_from_peer(read_only(&fd).unwrap()).is_err());
        let (other, _page) = Mapping::<LeasePage>::create("pillion-test").unwrap();
        assert_eq!(
            identity(&fd).unwrap(),
            identity(fd.try_clone().unwrap()).unwrap()
        );
        assert_ne!(identity(&fd).unwrap(), identity(&other).unwrap());
        let unsealed = memfd_create("pillion-test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, size_of::<LeasePage>() as u64).unwrap();
        assert!(Mapping::<LeasePage>::open_from_peer(&unsealed).is_err());
        assert!(Mapping::<LeasePage>::open_from_peer(File::open("/dev/zero").unwrap()).is_err());
    }

    #[test]
    fn a_page_takes_the_place_of_another_under_those_who_use_it() {
        let (_fd, first) = Mapping::<HpPage>::create("pillion-test").unwrap();
        let (fd, next) = Mapping::<HpPage>::create("pillion-test").unwrap();
        next.epoch.store(7, Ordering::Relaxed);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    first.epoch.fetch_add(0, Ordering::Relaxed);
                }
            });
            for _ in 0..100 {
                first.replace(&fd, Access::ReadWrite).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert_eq!(first.epoch.load(Ordering::Relaxed), 7);
        let fd = create_sealed("pillion-test", size_of::<HpPage>() as u64).unwrap();
        first.move_to(&fd, 8).unwrap();
        let copy = Mapping::<HpPage>::open(&fd, Access::Read).unwrap();
        assert_eq!(copy.epoch.load(Ordering::Relaxed), 7);
        first.epoch.store(8, Ordering::Relaxed);
        assert_eq!(copy.epoch.load(Ordering::Relaxed), 8);
        first.epoch.store(7, Ordering::Relaxed);
        first.replace_with_zeros().unwrap();
        assert_eq!(first.epoch.load(Ordering::Relaxed), 0);
        first.epoch.store(7, Ordering::Relaxed);
        let short = create_sealed("pillion-test", 8).unwrap();
        assert!(first.replace(&short, Access::Read).is_err());
        assert_eq!(first.epoch.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_threads_add_while_a_page_moves_comes_along() {
        let page = Mapping::<HpPage>::anonymous().unwrap();
        let is_done = AtomicBool::new(false);
        let added = std::thread::scope(|scope| {
            let adds = scope.spawn(|| {
                let mut added = 0_u64;
                while !is_done.load(Ordering::Relaxed) {
                    page.epoch.fetch_add(1, Ordering::Relaxed);
                    added += 1;
                }
                added
            });
            for _ in 0..100 {
                let fd = create_sealed("pillion-test", size_of::<HpPage>() as u64).unwrap();
                page.move_to(&fd, 8).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
            adds.join().unwrap()
        });
        assert_eq!(page.epoch.load(Ordering::Relaxed), added);
    }

    #[test]
    fn a_short_file_is_refused() {
        let fd = create_sealed("pillion-test", 8).unwrap();
        let error = Mapping::<LeasePage>::open(&fd, Access::Read).unwrap_err();
        assert!(
            error.to_string().contains("8 bytes, expected 128"),
            "{error}"
        );
    }
}
