//! Fat binaries: a header, then entries of PTX and cubins, each with its own header. The best entry
//! for a device is the cubin of its own major version with the highest supported minor version,
//! else the newest PTX that is not newer than the device, as the programming guide specifies for
//! the driver. Entries may be compressed: nvcc 13 writes frames of zstd (RFC 8878), older ones a
//! block of LZ4, whose lengths with and without compression are in the entry's header (seen in
//! PyTorch 2.10's wheel of CUDA 12.8, and in cuSPARSE 12).

use std::borrow::Cow;
use std::io::Read;

use ruzstd::decoding::StreamingDecoder;

use super::{CODE_BYTES_MAX, Code, CodeError, cubin, ptx, runnable, u16_at, u32_at, u64_at};

pub(super) const MAGIC: &[u8] = b"\x50\xed\x55\xba";
pub(super) const WRAPPER_MAGIC: &[u8] = b"\xb1\x43\x62\x46";
/// Compilers write this: magic number, version, address of the fat binary, one more address.
pub const WRAPPER_BYTES: usize = 24;

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 64;
const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;
/// Flags of an entry: LZ4, and from CUDA 12.4 on zstd.
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

struct Entry<'a> {
    kind: u16,
    capability: u32,
    flags: u64,
    /// Of a compressed entry: bytes before padding, and uncompressed bytes.
    compressed_bytes: u32,
    plain_bytes: u64,
    content: &'a [u8],
}

impl<'a> Entry<'a> {
    fn plain(&self) -> Result<Cow<'a, [u8]>, CodeError> {
        if self.flags & FLAG_LZ4 != 0 {
            return self.plain_of_lz4().map(Cow::Owned);
        }
        if self.flags & FLAG_ZSTD == 0 {
            return Ok(Cow::Borrowed(self.content));
        }
        let broken = CodeError::Malformed("cannot decompress an entry of the fat binary");
        let decoder = StreamingDecoder::new(self.content).map_err(|_| broken.clone())?;
        let mut plain = Vec::new();
        // One byte more than any image has, to detect a frame without end.
        let read = decoder
            .take(CODE_BYTES_MAX as u64 + 1)
            .read_to_end(&mut plain);
        match read {
            Ok(bytes) if bytes <= CODE_BYTES_MAX => Ok(Cow::Owned(plain)),
            _ => Err(broken),
        }
    }

    fn plain_of_lz4(&self) -> Result<Vec<u8>, CodeError> {
        let broken = || CodeError::Malformed("cannot decompress an entry of the fat binary");
        let block = self.content.get(..self.compressed_bytes as usize);
        let plain_bytes = usize::try_from(self.plain_bytes).ok();
        let plain_bytes = plain_bytes.filter(|&bytes| bytes <= CODE_BYTES_MAX);
        let (block, plain_bytes) = block.zip(plain_bytes).ok_or_else(broken)?;
        let plain = lz4_flex::block::decompress(block, plain_bytes).map_err(|_| broken())?;
        if plain.len() == plain_bytes {
            Ok(plain)
        } else {
            Err(broken())
        }
    }
}

pub(super) fn bytes(seen: &[u8]) -> Result<usize, CodeError> {
    let Some((header, content)) = u16_at(seen, 6).zip(u64_at(seen, 8)) else {
        return Ok(HEADER_BYTES);
    };
    usize::try_from(content)
        .ok()
        .and_then(|content| content.checked_add(header.into()))
        .ok_or(CodeError::Malformed("the image exceeds the size limit"))
}

pub(super) fn parse(bytes: &[u8], capability: u32) -> Result<Code, CodeError> {
    let mut entries = entries(bytes).ok_or(CodeError::Malformed(
        "an entry exceeds the end of the fat binary",
    ))?;
    let runs = |entry: &Entry<'_>| match entry.kind {
        KIND_CUBIN => entry.capability / 10 == capability / 10 && entry.capability <= capability,
        _ => entry.capability <= capability,
    };
    entries.retain(runs);
    let best = entries
        .iter()
        .max_by_key(|entry| (entry.kind, entry.capability))
        .ok_or(CodeError::NoCode(capability))?;
    let content = best.plain()?;
    let code = match best.kind {
        KIND_CUBIN => cubin::parse(&content)?,
        _ => {
            let text = content.split(|&byte| byte == 0).next();
            let text = text.and_then(|text| std::str::from_utf8(text).ok());
            ptx::parse(text.ok_or(CodeError::Ptx("the entry is not UTF-8"))?)?
        }
    };
    runnable(code, capability)
}

fn entries(bytes: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut rest = bytes.get(usize::from(u16_at(bytes, 6)?)..)?;
    let mut entries = Vec::new();
    while rest.len() >= ENTRY_BYTES {
        let kind = u16_at(rest, 0)?;
        let header = u32_at(rest, 4)? as usize;
        let size = usize::try_from(u64_at(rest, 8)?).ok()?;
        let end = header.checked_add(size)?;
        if header < ENTRY_BYTES {
            return None;
        }
        // Padding follows the used bytes of a compressed entry.
        let content = rest.get(header..end)?;
        if matches!(kind, KIND_PTX | KIND_CUBIN) {
            entries.push(Entry {
                kind,
                capability: u32_at(rest, 28)?,
                flags: u64_at(rest, 40)?,
                compressed_bytes: u32_at(rest, 16)?,
                plain_bytes: u64_at(rest, 56)?,
                content,
            });
        }
        rest = rest.get(end..)?;
    }
    Some(entries)
}
