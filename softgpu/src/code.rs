//! Images that a program loads (cubins, fat binaries and PTX), parsed as far as needed to know
//! their kernels and what a launch of one occupies. Nothing here runs device code. A kernel of such
//! an image has a name, registers, static shared memory and parameters, and takes time
//! ([`BLOCK_NS`] for a block, an assumption); it computes nothing. Only the kernels of our own PTX
//! are known better ([`crate::Builtin::of_entry`]). An image comes as an address without a length.
//! [`extent`] computes from the bytes read so far how many more belong to it; the caller reads
//! those and asks again. [`parse`] reads the whole.
//!
//! The layouts are those that public tools print (`readelf`, `cuobjdump`) and NVIDIA's PTX manual
//! describes. Undocumented parts are as NVRTC 13.5 and nvFatbin 13.5 write for sm_75 to sm_100.

mod cubin;
mod fatbin;
mod ptx;

pub use self::fatbin::WRAPPER_BYTES;
pub use self::ptx::write as write_ptx;

/// Longest image that is read; the largest cubin in cuBLAS 13 is some tens of megabytes.
pub const CODE_BYTES_MAX: usize = 1 << 30;
/// Time of one block of a kernel known only by its image, ns: assumed, as of Orion's short kernels.
pub const BLOCK_NS: u64 = 10_000;
/// Registers of a kernel whose image does not state them (PTX does not): those of a small kernel.
pub const REGISTERS_ASSUMED: u32 = 32;

/// The contents of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Its compute capability, major * 10 + minor; for PTX the least.
    pub capability: u32,
    /// Whether it must still be compiled and thus runs on every later device.
    pub is_virtual: bool,
    /// The kernels, in the image's order.
    pub kernels: Vec<CodeKernel>,
    /// The variables that a program may look up.
    pub globals: Vec<CodeGlobal>,
}

/// A kernel of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeKernel {
    /// Its symbol.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block, without what the hardware reserves.
    pub shared_bytes: u32,
    /// Local memory of a thread.
    pub local_bytes: u32,
    /// Its own constant memory, parameters included.
    pub constant_bytes: u32,
    /// Most threads of a block, if the program limited them.
    pub threads_max: Option<u32>,
    /// Its parameters, in order.
    pub params: Vec<CodeParam>,
}

/// Place of a parameter among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeParam {
    /// Bytes from the beginning of the first parameter.
    pub offset: u32,
    /// Bytes of it.
    pub size_bytes: u32,
}

/// A variable of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeGlobal {
    /// Its symbol.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A fault of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Not an image, or a broken one.
    #[error("invalid image: {0}")]
    Malformed(&'static str),
    /// It has no code for this device.
    #[error("no code for a device of compute capability {0}")]
    NoCode(u32),
    /// A text that begins like PTX but is not PTX.
    #[error("not PTX: {0}")]
    Ptx(&'static str),
}

/// Kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ELF for NVIDIA's machine type.
    Cubin,
    /// Several cubins and PTX texts in one.
    Fatbin,
    /// The structure that points to a fat binary.
    Wrapper,
}

/// Length of an image, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// At least this many bytes, more than were seen.
    AtLeast(usize),
    /// Exactly this many.
    Whole(Kind, usize),
    /// A text that ends with a NUL.
    Text,
}

/// The image's length, as far as the bytes seen so far determine it. Never requires a byte that
/// does not belong to a correct image.
/// # Errors
/// [`CodeError::Malformed`] if this cannot be an image.
pub fn extent(seen: &[u8]) -> Result<Extent, CodeError> {
    let Some(&first) = seen.first() else {
        return Ok(Extent::AtLeast(1));
    };
    let magics: [(&[u8], Kind); 3] = [
        (cubin::MAGIC, Kind::Cubin),
        (fatbin::MAGIC, Kind::Fatbin),
        (fatbin::WRAPPER_MAGIC, Kind::Wrapper),
    ];
    for (magic, kind) in magics {
        let known = seen.len().min(magic.len());
        if seen[..known] != magic[..known] {
            continue;
        }
        if known < magic.len() {
            // One byte at a time: a text with a magic number's first byte may be shorter.
            return Ok(Extent::AtLeast(known + 1));
        }
        let bytes = match kind {
            Kind::Cubin => cubin::bytes(seen)?,
            Kind::Fatbin => fatbin::bytes(seen)?,
            Kind::Wrapper => WRAPPER_BYTES,
        };
        if bytes > CODE_BYTES_MAX {
            return Err(CodeError::Malformed("the image exceeds the size limit"));
        }
        return Ok(match bytes > seen.len() {
            true => Extent::AtLeast(bytes),
            false => Extent::Whole(kind, bytes),
        });
    }
    if first.is_ascii_graphic() || first.is_ascii_whitespace() {
        return Ok(Extent::Text);
    }
    Err(CodeError::Malformed(
        "the image is neither an ELF file nor a fat binary nor a text",
    ))
}

/// Parses an image for a device of this compute capability (major * 10 + minor).
/// # Errors
/// See [`CodeError`].
pub fn parse(kind: Kind, bytes: &[u8], capability: u32) -> Result<Code, CodeError> {
    let code = match kind {
        Kind::Cubin => cubin::parse(bytes)?,
        Kind::Fatbin => return fatbin::parse(bytes, capability),
        Kind::Wrapper => return Err(CodeError::Malformed("the wrapper points to another image")),
    };
    runnable(code, capability)
}

/// Parses a PTX text for such a device.
/// # Errors
/// See [`CodeError`].
pub fn parse_ptx(text: &str, capability: u32) -> Result<Code, CodeError> {
    runnable(ptx::parse(text)?, capability)
}

/// A cubin runs on its own major version from its minor version on, PTX on everything later (CUDA
/// C++ Programming Guide, binary and PTX compatibility).
fn runnable(code: Code, capability: u32) -> Result<Code, CodeError> {
    let runs = code.capability <= capability
        && (code.is_virtual || code.capability / 10 == capability / 10);
    if runs {
        Ok(code)
    } else {
        Err(CodeError::NoCode(capability))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk::<2>()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?))
}

#[cfg(test)]
mod tests;
