//! Reads ELF files as a dynamic loader does: the loader that a program requests, and the versions
//! and symbols that a library needs or has. The files are untrusted. Only the requested parts are
//! read: a program may have 100 MB.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{
    DT_NEEDED, ELFCLASS32, FileHeader32, FileHeader64, SHT_DYNSYM, STB_GLOBAL, VER_FLG_BASE,
    VER_FLG_WEAK,
};
use object::read::elf::{FileHeader, ProgramHeader as _, SectionTable, Sym as _};
use object::read::{Error, ReadCache, ReadCacheOps, ReadRef as _, Result};

pub(super) const MAGIC: &[u8] = b"\x7fELF";
/// Limit on a file's length, which bounds what is read of it.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Limit on the records in a chain: libc has 50 versions.
const RECORDS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    /// The instruction set, as in `e_machine`.
    number: object::elf::Machine,
    is_64_bit: bool,
}

/// A version that a library needs of another.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) file: String,
    pub(super) name: String,
}

pub(super) struct Library<'a, R: ReadCacheOps> {
    pub(super) machine: Machine,
    endian: Endianness,
    sections: SectionTable<'a, FileHeader64<Endianness>, &'a ReadCache<R>>,
    data: &'a ReadCache<R>,
}

/// Opens a regular file, not a pipe, where the caller would block.
pub(super) fn open(path: &Path) -> io::Result<File> {
    match path.metadata()? {
        file if !file.is_file() => Err(io::Error::other("not a regular file")),
        file if file.len() > FILE_BYTES_MAX => Err(io::ErrorKind::FileTooLarge.into()),
        _ => File::open(path),
    }
}

/// The machine and the loader (`PT_INTERP`) of a program.
pub(super) fn loader<R: ReadCacheOps>(data: &ReadCache<R>) -> Result<(Machine, Option<PathBuf>)> {
    match data.read_bytes_at(MAGIC.len() as u64, 1) {
        Ok([class]) if *class == ELFCLASS32.0 => loader_by::<FileHeader32<Endianness>, R>(data),
        _ => loader_by::<FileHeader64<Endianness>, R>(data),
    }
}

fn loader_by<H: FileHeader<Endian = Endianness>, R: ReadCacheOps>(
    data: &ReadCache<R>,
) -> Result<(Machine, Option<PathBuf>)> {
    let header = H::parse(data)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, data)? {
        if let Some(path) = segment.interpreter(endian, data)? {
            let path = PathBuf::from(OsStr::from_bytes(path));
            return Ok((machine(header, endian), Some(path)));
        }
    }
    Ok((machine(header, endian), None))
}

fn machine<H: FileHeader>(header: &H, endian: H::Endian) -> Machine {
    Machine {
        number: header.e_machine(endian),
        is_64_bit: header.is_type_64(),
    }
}

impl<'a, R: ReadCacheOps> Library<'a, R> {
    pub(super) fn parse(data: &'a ReadCache<R>) -> Result<Self> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        Ok(Self {
            machine: machine(header, endian),
            endian,
            sections: header.sections(endian, data)?,
            data,
        })
    }

    /// The versions without which a loader refuses it (`.gnu.version_r`).
    pub(super) fn versions_needed(&self) -> Result<Vec<Version>> {
        let Some((files, link)) = self.sections.gnu_verneed(self.endian, self.data)? else {
            return Ok(Vec::new());
        };
        let strings = self.sections.strings(self.endian, self.data, link)?;
        let mut needed = Vec::new();
        for file in files.take(RECORDS_MAX) {
            let (file, versions) = file?;
            let name = text(file.file(self.endian, strings)?);
            for version in versions.take(RECORDS_MAX) {
                let version = version?;
                if !version.vna_flags.get(self.endian).contains(VER_FLG_WEAK) {
                    needed.push(Version {
                        file: name.clone(),
                        name: text(version.name(self.endian, strings)?),
                    });
                }
            }
        }
        Ok(needed)
    }

    pub(super) fn versions(&self) -> Result<HashSet<String>> {
        let Some((versions, link)) = self.sections.gnu_verdef(self.endian, self.data)? else {
            return Ok(HashSet::new());
        };
        let strings = self.sections.strings(self.endian, self.data, link)?;
        let mut found = HashSet::new();
        for version in versions.take(RECORDS_MAX) {
            let (version, mut names) = version?;
            // The base is the library's own name.
            if version.vd_flags.get(self.endian).contains(VER_FLG_BASE) {
                continue;
            }
            // The first is its name; others name its predecessors.
            if let Some(name) = names.next()? {
                found.insert(text(name.name(self.endian, strings)?));
            }
        }
        Ok(found)
    }

    pub(super) fn libraries_needed(&self) -> Result<Vec<String>> {
        let table = self.sections.dynamic_table(self.endian, self.data)?;
        let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
        needed
            .take(RECORDS_MAX)
            .map(|entry| table.string(entry).map(text))
            .collect()
    }

    /// The symbols without which it cannot be relocated.
    pub(super) fn symbols_needed(&self) -> Result<Vec<String>> {
        let symbols = self.sections.symbols(self.endian, self.data, SHT_DYNSYM)?;
        let needed = symbols
            .iter()
            .filter(|symbol| symbol.is_undefined(self.endian) && symbol.st_bind() == STB_GLOBAL);
        let name = |symbol| symbols.symbol_name(self.endian, symbol).map(text);
        // The first symbol has no name.
        let names = needed.map(name);
        names
            .filter(|name| name.as_ref() != Ok(&String::new()))
            .collect()
    }

    pub(super) fn symbols(&self) -> Result<HashSet<String>> {
        let symbols = self.sections.symbols(self.endian, self.data, SHT_DYNSYM)?;
        let defined = symbols
            .iter()
            .filter(|symbol| !symbol.is_undefined(self.endian) && !symbol.is_local());
        let name = |symbol| symbols.symbol_name(self.endian, symbol).map(text);
        defined.map(name).collect()
    }
}

pub(super) fn with_library<T>(
    path: &Path,
    ask: impl FnOnce(&Library<'_, File>) -> Result<T>,
) -> io::Result<T> {
    let data = ReadCache::new(open(path)?);
    let answer = Library::parse(&data).and_then(|library| ask(&library));
    answer.map_err(|error: Error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn ask_all(bytes: &[u8]) -> Result<()> {
        let data = ReadCache::new(Cursor::new(bytes));
        let loader = loader(&data).map(drop);
        let library = Library::parse(&data)?;
        library.versions_needed()?;
        library.versions()?;
        library.libraries_needed()?;
        library.symbols_needed()?;
        library.symbols()?;
        loader
    }

    /// This process's C library: in its file much depends on few bytes.
    fn libc() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| {
            line.split_whitespace()
                .find(|word| word.ends_with("/libc.so.6"))
        });
        std::fs::read(path.unwrap()).unwrap()
    }

    #[test]
    fn a_real_library_is_read() {
        let bytes = libc();
        let data = ReadCache::new(Cursor::new(&bytes));
        let library = Library::parse(&data).unwrap();
        let (versions, symbols) = (library.versions().unwrap(), library.symbols().unwrap());
        assert!(
            versions.contains("GLIBC_2.17") && !versions.contains("libc.so.6"),
            "{versions:?}"
        );
        assert!(symbols.contains("malloc") && !symbols.contains(""));
        let needed = library.libraries_needed().unwrap();
        assert!(
            needed.iter().any(|name| name.starts_with("ld-linux")),
            "{needed:?}"
        );
        let needed = library.versions_needed().unwrap();
        assert!(
            needed
                .iter()
                .any(|version| version.file.starts_with("ld-linux")),
            "{needed:?}"
        );
        assert!(
            library
                .symbols_needed()
                .unwrap()
                .iter()
                .any(|name| name.starts_with("_dl_"))
        );
    }

    #[test]
    fn a_32_bit_program_has_a_loader_too() {
        let mut bytes = vec![0_u8; 52 + 32];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, b"\x7fELF\x01\x01\x01");
        put(18, &[3]); // EM_386
        put(28, &[52]); // program headers
        put(42, &[32, 0, 1]); // their size and number
        put(52, &[3, 0, 0, 0, 84]); // PT_INTERP and where
        put(52 + 16, &[9]);
        bytes.extend(b"/ld.so.2\0");
        let (machine, loader) = loader(&ReadCache::new(Cursor::new(&bytes))).unwrap();
        assert_eq!(loader, Some(PathBuf::from("/ld.so.2")));
        assert!(!machine.is_64_bit);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_bytes_are_read_or_refused(mut bytes: Vec<u8>, class in 0..3_u8) {
            bytes.splice(0..0, [0x7f, b'E', b'L', b'F', class, 1, 1]);
            let _ = ask_all(&bytes);
        }

        #[test]
        fn any_change_of_a_real_library_is_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..16),
            is_of_headers: bool,
            length: prop::sample::Index,
        ) {
            let mut bytes = libc();
            let span = if is_of_headers { 1024 } else { bytes.len() };
            for (at, value) in &changes {
                bytes[at.index(span)] = *value;
            }
            let _ = ask_all(&bytes);
            bytes.truncate(length.index(bytes.len()));
            let _ = ask_all(&bytes);
        }
    }
}
