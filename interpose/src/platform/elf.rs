//! Finds a function of libc without calling libc. We export `dlsym` and its kin, so asking them for
//! libc's own leads back to us, or to another interposer. Instead we read the symbol tables of the
//! loaded objects, as the dynamic linker does: the auxiliary vector leads to the program's dynamic
//! section, and that to the linker's list of objects (`DT_DEBUG`, made for debuggers). Only
//! `getauxval` is called: a program's own `dl_iterate_phdr` may call `dlsym`. No lock is needed:
//! objects loaded before the program began, such as libc, stay at the front of the list.

#![expect(unsafe_code, reason = "reads the tables of loaded files")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};

/// Functions that identify libc's objects: other interposers of `dlsym` do not define them. The
/// first is only in libc itself; the second where the `dl…` functions are, before glibc 2.34 in
/// `libdl.so.2`.
const ONLY_IN_LIBC: [&CStr; 2] = [c"__libc_start_main", c"dlinfo"];

/// Most objects, dynamic section entries, program headers, and symbols of one hash that are read.
/// The list is the dynamic linker's own, but an endless search has no place in another's process.
const STEPS_MAX: usize = 1 << 16;

/// Tags of entries of a dynamic section (System V ABI).
const DT_NULL: usize = 0;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_DEBUG: usize = 21;
const DT_GNU_HASH: usize = 0x6fff_fef5;

#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// The beginning of `struct r_debug` in `<link.h>`, to which `DT_DEBUG` points.
#[repr(C)]
struct Debug {
    version: c_int,
    objects: *const Object,
}

/// The beginning of `struct link_map` in `<link.h>`.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Self,
}

unsafe extern "C" {
    /// Our own dynamic section, and our file's start in memory; both defined by the linker.
    #[cfg(shim)]
    static _DYNAMIC: Dynamic;
    static __ehdr_start: libc::Elf64_Ehdr;
}

struct Symbols {
    base: usize,
    symbols: *const libc::Elf64_Sym,
    names: *const c_char,
    gnu_hash: *const u32,
    hash: *const u32,
}

pub(crate) fn find_in_libc(name: &CStr) -> Option<NonNull<c_void>> {
    ONLY_IN_LIBC.iter().find_map(|mark| find_beside(mark, name))
}

pub(crate) fn is_ours(address: *const c_void) -> bool {
    let (base, headers) = own_headers();
    let at = (address as usize).wrapping_sub(base);
    headers.iter().any(|header| is_loaded(header, at))
}

fn own_headers() -> (usize, &'static [libc::Elf64_Phdr]) {
    let file = &raw const __ehdr_start;
    // SAFETY: the linker puts the file header and the program headers into the first segment, which
    // is mapped as long as our code is.
    let headers = unsafe {
        let headers = file.byte_add((*file).e_phoff as usize);
        core::slice::from_raw_parts(headers.cast(), usize::from((*file).e_phnum))
    };
    (file as usize, headers)
}

fn is_loaded(segment: &libc::Elf64_Phdr, at: usize) -> bool {
    let from = segment.p_vaddr as usize;
    segment.p_type == libc::PT_LOAD && (from..from + segment.p_memsz as usize).contains(&at)
}

/// Withdraws functions that we export from look-ups. Must run before any look-up.
#[cfg(shim)]
pub(crate) fn withdraw<'a>(names: impl Iterator<Item = &'a CStr>) {
    // SAFETY: our own tables. Only symbol values are written, which the dynamic linker alone reads,
    // under its lock, which this thread holds: it is loading us.
    unsafe {
        let (base, headers) = own_headers();
        let own = Object {
            base,
            name: ptr::null(),
            dynamic: &raw const _DYNAMIC,
            next: ptr::null(),
        };
        let Some(symbols) = Symbols::of(&raw const own) else {
            return;
        };
        let found: Vec<_> = names.filter_map(|name| symbols.find(name)).collect();
        let at = symbols.symbols as usize - own.base;
        let segment = headers.iter().find(|header| is_loaded(header, at));
        // Code is not made writable: the names stay where they share its segment.
        let is_data = |segment: &&libc::Elf64_Phdr| segment.p_flags & libc::PF_X == 0;
        let Some(segment) = segment.filter(is_data).filter(|_| !found.is_empty()) else {
            return;
        };
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let begin = (own.base + segment.p_vaddr as usize) & !(page - 1);
        let bytes = own.base + (segment.p_vaddr + segment.p_memsz) as usize - begin;
        let protect = |mode| libc::mprotect(begin as *mut c_void, bytes, mode) == 0;
        let mode = match segment.p_flags & libc::PF_W {
            0 => libc::PROT_READ,
            _ => libc::PROT_READ | libc::PROT_WRITE,
        };
        if protect(libc::PROT_READ | libc::PROT_WRITE) {
            for symbol in found {
                // The dynamic linker skips symbols without a value.
                (*symbol.as_ptr()).st_value = 0;
            }
            protect(mode);
        }
    }
}

/// The function `name` in the first object after the one that defines it at `ours`, else libc's: as
/// `dlsym(RTLD_NEXT)`, without a lock, for objects loaded before the program began.
#[cfg(not(shim))]
pub(crate) fn find_after(ours: *const c_void, name: &CStr) -> Option<NonNull<c_void>> {
    let mut is_behind = false;
    // SAFETY: as in `find_beside`: the search ends at libc, before any object that may be unloaded.
    unsafe {
        let mut object = first_object()?;
        for _ in 0..STEPS_MAX {
            let found = Symbols::of(object).and_then(|symbols| symbols.function(name));
            match found {
                Some(found) if is_behind => return Some(found),
                Some(found) => is_behind = ptr::eq(found.as_ptr(), ours),
                None => {}
            }
            object = (*object).next;
            if object.is_null() {
                break;
            }
        }
    }
    find_in_libc(name)
}

/// Whether the object at `one` precedes that at `other` in look-up order; loaded before the program
/// began.
#[cfg(not(shim))]
pub(crate) fn is_before(one: usize, other: usize) -> bool {
    // SAFETY: as in `find_beside`: the search ends among objects loaded before the program began.
    unsafe {
        let Some(mut object) = first_object() else {
            return false;
        };
        for _ in 0..STEPS_MAX {
            if (*object).base == one || (*object).base == other {
                return (*object).base == one;
            }
            object = (*object).next;
            if object.is_null() {
                break;
            }
        }
    }
    false
}

/// `name` in the first object that defines `mark`.
fn find_beside(mark: &CStr, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the dynamic linker keeps its list as the ABI requires, and the objects at the front
    // of the list stay for the life of the process (see above).
    unsafe {
        let mut object = first_object()?;
        for _ in 0..STEPS_MAX {
            if let Some(symbols) = Symbols::of(object)
                && symbols.find(mark).is_some()
            {
                return symbols.function(name);
            }
            object = (*object).next;
            if object.is_null() {
                break;
            }
        }
    }
    None
}

/// The program: the first object in the dynamic linker's list. Safety: none of its own: it reads
/// what the kernel and the dynamic linker have put there.
unsafe fn first_object() -> Option<*const Object> {
    // SAFETY: the function has no precondition. The program headers are mapped for good.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        if headers.is_null() || count > STEPS_MAX {
            return None;
        }
        let headers = core::slice::from_raw_parts(headers, count);
        let of = |kind: u32| headers.iter().find(|header| header.p_type == kind);
        // The program's load address; without that header it lies where it was linked to.
        let base = of(libc::PT_PHDR).map_or(0, |own| {
            (headers.as_ptr() as usize).wrapping_sub(own.p_vaddr as usize)
        });
        let dynamic = base.wrapping_add(of(libc::PT_DYNAMIC)?.p_vaddr as usize);
        let debug = entry(dynamic as *const Dynamic, DT_DEBUG)? as *const Debug;
        let objects = (!debug.is_null()).then(|| (*debug).objects)?;
        (!objects.is_null()).then_some(objects)
    }
}

/// The first entry with that tag. Safety: `dynamic` is a dynamic section, ended by `DT_NULL`.
unsafe fn entry(dynamic: *const Dynamic, tag: usize) -> Option<usize> {
    for at in 0..STEPS_MAX {
        // SAFETY: the entry before this one was not the last.
        let entry = unsafe { &*dynamic.add(at) };
        if entry.tag == tag {
            return Some(entry.value);
        }
        if entry.tag == DT_NULL {
            break;
        }
    }
    None
}

impl Symbols {
    /// Safety: `object` is in the dynamic linker's list.
    unsafe fn of(object: *const Object) -> Option<Self> {
        // SAFETY: see above.
        let (base, dynamic) = unsafe { ((*object).base, (*object).dynamic) };
        if dynamic.is_null() {
            return None;
        }
        // glibc relocates these values when it loads an object; musl leaves them as in the file.
        let address = |tag: usize| {
            // SAFETY: see above.
            let value = unsafe { entry(dynamic, tag) }?;
            Some(if value < base { base + value } else { value })
        };
        Some(Self {
            base,
            symbols: address(DT_SYMTAB)? as *const libc::Elf64_Sym,
            names: address(DT_STRTAB)? as *const c_char,
            gnu_hash: address(DT_GNU_HASH).map_or(ptr::null(), |at| at as *const u32),
            hash: address(DT_HASH).map_or(ptr::null(), |at| at as *const u32),
        })
    }

    /// The address of function `name`, if defined here. Safety: tables of a loaded object.
    unsafe fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: see above; a symbol that was found can be read.
        let value = unsafe { self.find(name)?.as_ref() }.st_value;
        NonNull::new(self.base.wrapping_add(value as usize) as *mut c_void)
    }

    /// The symbol of function `name`, if defined here. Safety: tables of a loaded object.
    unsafe fn find(&self, name: &CStr) -> Option<NonNull<libc::Elf64_Sym>> {
        // SAFETY: see above.
        unsafe {
            if self.gnu_hash.is_null() {
                self.find_by_hash(name)
            } else {
                self.find_by_gnu_hash(name)
            }
        }
    }

    /// Searches the older table: its second word counts the symbols. Safety: as [`Self::find`].
    unsafe fn find_by_hash(&self, name: &CStr) -> Option<NonNull<libc::Elf64_Sym>> {
        if self.hash.is_null() {
            return None;
        }
        // SAFETY: see above.
        let count = unsafe { *self.hash.add(1) } as usize;
        // SAFETY: see above.
        (0..count.min(STEPS_MAX)).find_map(|at| unsafe { self.symbol_if(at, name) })
    }

    /// Searches the newer table: four words, a filter of `filter_words` 64-bit words, the first
    /// symbol of each bucket, and a hash for each symbol from `first` on, whose lowest bit ends a
    /// bucket. Safety: as [`Self::find`].
    unsafe fn find_by_gnu_hash(&self, name: &CStr) -> Option<NonNull<libc::Elf64_Sym>> {
        // SAFETY: see above.
        unsafe {
            let word = |at: usize| *self.gnu_hash.add(at) as usize;
            let (bucket_count, first, filter_words) = (word(0), word(1), word(2));
            if bucket_count == 0 {
                return None;
            }
            let hash = gnu_hash(name);
            let buckets = 4 + 2 * filter_words;
            let hashes = buckets + bucket_count;
            let begin = word(buckets + hash as usize % bucket_count);
            if begin < first {
                return None;
            }
            for at in begin..begin + STEPS_MAX {
                let found = word(hashes + at - first) as u32;
                if found | 1 == hash | 1
                    && let Some(symbol) = self.symbol_if(at, name)
                {
                    return Some(symbol);
                }
                if found & 1 == 1 {
                    break;
                }
            }
        }
        None
    }

    /// Symbol `at`, if it is function `name`, defined here. Safety: [`Self::find`]'s; `at` exists.
    unsafe fn symbol_if(&self, at: usize, name: &CStr) -> Option<NonNull<libc::Elf64_Sym>> {
        /// Type "function", in the lower half of `st_info`.
        const STT_FUNC: u8 = 2;
        /// Section of undefined symbols.
        const SHN_UNDEF: u16 = 0;
        // SAFETY: see above.
        let place = unsafe { self.symbols.add(at) };
        // SAFETY: see above.
        let symbol = unsafe { &*place };
        // A program that takes the address of a foreign function has an unsectioned symbol.
        let is_here = symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0;
        if !is_here || symbol.st_info & 0xf != STT_FUNC {
            return None;
        }
        // SAFETY: a symbol's name lies in the table of names and ends in NUL.
        let is_named_so = unsafe { is_text(self.names.add(symbol.st_name as usize), name) };
        NonNull::new(place.cast_mut()).filter(|_| is_named_so)
    }
}

/// Whether a NUL-terminated text is `name`. Reads byte by byte and volatile, so that the compiler
/// makes no call of `strlen` or `memcmp`: a program may define its own, which look up libc's.
/// Safety: `text` ends in NUL.
unsafe fn is_text(text: *const c_char, name: &CStr) -> bool {
    // SAFETY: no byte after either NUL is read: both end there, or they differ before.
    name.to_bytes_with_nul()
        .iter()
        .enumerate()
        .all(|(at, byte)| unsafe { ptr::read_volatile(text.add(at).cast::<u8>()) == *byte })
}

fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
    })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU8;

    use super::*;

    // census: A2, A3, A4
    #[test]
    fn what_libc_defines_is_found_where_dlsym_finds_it() {
        for name in [c"dlsym", c"dlopen", c"getauxval", c"abort"] {
            let ours = find_in_libc(name).unwrap();
            // SAFETY: the arguments of a plain look-up.
            let its =
                unsafe { crate::platform::loader::dlsym()(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(ours.as_ptr(), its, "{name:?}");
        }
    }

    #[test]
    fn what_lies_in_this_file_is_told_from_what_does_not() {
        static OURS: AtomicU8 = AtomicU8::new(0);
        assert!(is_ours(OURS.as_ptr().cast()));
        assert!(is_ours(find_in_libc as *const c_void));
        assert!(!is_ours(find_in_libc(c"getauxval").unwrap().as_ptr()));
        assert!(!is_ours(ptr::null()));
    }

    #[test]
    fn what_libc_does_not_define_is_not_found() {
        assert_eq!(find_in_libc(c"no_such_function_anywhere"), None);
        assert_eq!(find_in_libc(c""), None);
    }

    #[test]
    fn the_older_hash_table_finds_nothing_where_there_is_none() {
        let symbols = Symbols {
            base: 0,
            symbols: ptr::null(),
            names: ptr::null(),
            gnu_hash: ptr::null(),
            hash: ptr::null(),
        };
        // SAFETY: no table is there to be read.
        assert_eq!(unsafe { symbols.function(c"dlsym") }, None);
    }

    #[test]
    fn the_hash_is_the_one_that_linkers_write() {
        // From the description of the format: the empty name, and two that linkers agree on.
        assert_eq!(gnu_hash(c""), 0x1505);
        assert_eq!(gnu_hash(c"printf"), 0x156b_2bb8);
        assert_eq!(gnu_hash(c"exit"), 0x7c96_7e3f);
    }
}
