//! Cubins: ELF files for NVIDIA's machine type.
//!
//! | where | what |
//! |---|---|
//! | symbol of a function with bit 4 of `st_other` | a kernel |
//! | `.nv.info` | per function: registers (0x2f), stack frame (0x11) |
//! | `.nv.info.KERNEL` | parameters (0x17: ordinal, offset, size × 2¹⁸), threads (see below) |
//! | `.nv.shared.KERNEL` | static shared memory |
//! | `.nv.constant0.KERNEL` | constants of its own, parameters included |
//!
//! `.nv.info.KERNEL` also has most threads (0x05) and required threads (0x10). From sm_90 on,
//! `.nv.shared.KERNEL` includes the 1 KiB that the hardware reserves.

use std::collections::HashMap;

use super::{Code, CodeError, CodeGlobal, CodeKernel, CodeParam, REGISTERS_ASSUMED};
use super::{u16_at, u32_at, u64_at};

pub(super) const MAGIC: &[u8] = b"\x7fELF";

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SYMBOL_BYTES: usize = 24;
/// `e_machine` of CUDA (ELF registry).
const MACHINE_CUDA: u16 = 190;
const NOBITS: u32 = 8;
const SYMBOL_TABLE: u32 = 2;
const SYMBOL_OBJECT: u8 = 1;
const SYMBOL_FUNCTION: u8 = 2;
/// In `st_other`: the function is a kernel.
const OTHER_ENTRY: u8 = 0x10;
/// From this ABI version on the architecture is in the flags' second byte, before in the first.
const ABI_WITH_WIDE_FLAGS: u8 = 8;
/// Reserved in each block by sm_90 and later, and included in `.nv.shared.KERNEL`.
const RESERVED_SHARED_BYTES: u32 = 1024;
const RESERVES_SHARED_FROM: u32 = 90;

/// Format of a record of `.nv.info`: only this one has a length and data.
const FORMAT_SIZED: u8 = 4;
const REGISTERS: u8 = 0x2f;
const FRAME_SIZE: u8 = 0x11;
const PARAMETER: u8 = 0x17;
const THREADS_MAX: u8 = 0x05;
const THREADS_REQUIRED: u8 = 0x10;

struct Section<'a> {
    name: &'a str,
    kind: u32,
    offset: usize,
    bytes: usize,
    link: u32,
    info: u32,
}

pub(super) fn bytes(seen: &[u8]) -> Result<usize, CodeError> {
    if seen.len() < HEADER_BYTES {
        return Ok(HEADER_BYTES);
    }
    check_header(seen)?;
    let table = |offset: usize, count: usize, each: usize| {
        let first = u64_at(seen, offset).and_then(|first| usize::try_from(first).ok())?;
        let count = usize::from(u16_at(seen, count)?);
        first.checked_add(count * each)
    };
    let overflow = CodeError::Malformed("a table exceeds the end of the ELF file");
    let sections_end = table(0x28, 0x3c, SECTION_BYTES).ok_or(overflow.clone())?;
    let segments_end = table(0x20, 0x38, SEGMENT_BYTES).ok_or(overflow.clone())?;
    let mut end = HEADER_BYTES.max(sections_end).max(segments_end);
    if seen.len() >= sections_end {
        for section in raw_sections(seen).ok_or(overflow.clone())? {
            if section.kind != NOBITS {
                end = end.max(
                    section
                        .offset
                        .checked_add(section.bytes)
                        .ok_or(overflow.clone())?,
                );
            }
        }
    }
    Ok(end)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Code, CodeError> {
    check_header(bytes)?;
    read(bytes).ok_or(CodeError::Malformed(
        "a table exceeds the end of the ELF file",
    ))
}

fn check_header(bytes: &[u8]) -> Result<(), CodeError> {
    let is_64_bit_little_endian = bytes.get(4..6) == Some(&[2, 1]);
    let is_cuda = u16_at(bytes, 0x12) == Some(MACHINE_CUDA);
    let has_sections = u16_at(bytes, 0x3a) == Some(SECTION_BYTES as u16);
    if !bytes.starts_with(MAGIC) || !is_64_bit_little_endian || !is_cuda || !has_sections {
        return Err(CodeError::Malformed(
            "the ELF file is not for an NVIDIA GPU",
        ));
    }
    Ok(())
}

fn read(bytes: &[u8]) -> Option<Code> {
    let sections = sections(bytes)?;
    let flags = u32_at(bytes, 0x30)?;
    let capability = match bytes.get(8)? {
        &abi if abi >= ABI_WITH_WIDE_FLAGS => flags >> 8 & 0xff,
        _ => flags & 0xff,
    };
    let by_name: HashMap<&str, &Section<'_>> = sections
        .iter()
        .map(|section| (section.name, section))
        .collect();
    let of_functions = match by_name.get(".nv.info") {
        Some(section) => function_records(content(bytes, section)?),
        None => HashMap::new(),
    };
    let mut code = Code {
        capability,
        ..Code::default()
    };
    let Some(table) = sections.iter().find(|section| section.kind == SYMBOL_TABLE) else {
        return Some(code);
    };
    let names = sections.get(table.link as usize)?;
    for (index, symbol) in content(bytes, table)?
        .chunks_exact(SYMBOL_BYTES)
        .enumerate()
    {
        let name = text_at(bytes, names, u32_at(symbol, 0)?)?;
        let (kind, other) = (symbol[4] & 0xf, symbol[5]);
        let section = sections.get(usize::from(u16_at(symbol, 6)?));
        if kind == SYMBOL_FUNCTION && other & OTHER_ENTRY != 0 {
            let of_function = of_functions.get(&(index as u32)).copied();
            code.kernels.push(kernel(
                bytes,
                name,
                &by_name,
                section,
                of_function.unwrap_or_default(),
                capability,
            )?);
        } else if kind == SYMBOL_OBJECT && section.is_some_and(is_variable) {
            code.globals.push(CodeGlobal {
                name: name.to_owned(),
                bytes: u64_at(symbol, 16)?,
            });
        }
    }
    Some(code)
}

/// Whether a program may look up variables of the section.
fn is_variable(section: &Section<'_>) -> bool {
    section.name.starts_with(".nv.global") || section.name.starts_with(".nv.constant")
}

#[derive(Clone, Copy, Debug, Default)]
struct OfFunction {
    registers: Option<u32>,
    frame_bytes: u32,
}

fn function_records(info: &[u8]) -> HashMap<u32, OfFunction> {
    let mut of_functions: HashMap<u32, OfFunction> = HashMap::new();
    for (attribute, data) in records(info) {
        let Some((symbol, value)) = u32_at(data, 0).zip(u32_at(data, 4)) else {
            continue;
        };
        match attribute {
            REGISTERS => of_functions.entry(symbol).or_default().registers = Some(value),
            FRAME_SIZE => of_functions.entry(symbol).or_default().frame_bytes = value,
            _ => {}
        }
    }
    of_functions
}

fn kernel(
    bytes: &[u8],
    name: &str,
    by_name: &HashMap<&str, &Section<'_>>,
    text: Option<&Section<'_>>,
    of_function: OfFunction,
    capability: u32,
) -> Option<CodeKernel> {
    let section = |prefix: &str| by_name.get(format!("{prefix}.{name}").as_str()).copied();
    let size = |prefix: &str| section(prefix).map_or(0, |section| section.bytes as u32);
    // Older toolkits put the registers in the upper byte of the section's info instead.
    let in_section = text
        .map(|text| text.info >> 24)
        .filter(|&registers| registers != 0);
    let reserved = match capability >= RESERVES_SHARED_FROM {
        true => RESERVED_SHARED_BYTES,
        false => 0,
    };
    let mut kernel = CodeKernel {
        name: name.to_owned(),
        registers: of_function
            .registers
            .or(in_section)
            .unwrap_or(REGISTERS_ASSUMED)
            .min(255),
        shared_bytes: size(".nv.shared").saturating_sub(reserved),
        local_bytes: of_function.frame_bytes,
        constant_bytes: size(".nv.constant0"),
        threads_max: None,
        params: Vec::new(),
    };
    if let Some(info) = section(".nv.info") {
        read_kernel_records(content(bytes, info)?, &mut kernel)?;
    }
    Some(kernel)
}

fn read_kernel_records(info: &[u8], kernel: &mut CodeKernel) -> Option<()> {
    let mut params: Vec<(u16, CodeParam)> = Vec::new();
    for (attribute, data) in records(info) {
        match attribute {
            PARAMETER => {
                let (ordinal, offset) = (u16_at(data, 4)?, u16_at(data, 6)?);
                let size_bytes = u32_at(data, 8)? >> 18;
                let offset = u32::from(offset);
                params.push((ordinal, CodeParam { offset, size_bytes }));
            }
            THREADS_MAX | THREADS_REQUIRED => {
                let threads = [0, 4, 8].map(|at| u32_at(data, at).unwrap_or(1).max(1));
                kernel.threads_max = Some(
                    threads
                        .iter()
                        .fold(1, |product: u32, &n| product.saturating_mul(n)),
                );
            }
            _ => {}
        }
    }
    params.sort_by_key(|&(ordinal, _)| ordinal);
    kernel.params = params.into_iter().map(|(_, param)| param).collect();
    Some(())
}

fn records(mut info: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let (&format, &attribute) = (info.first()?, info.get(1)?);
            let size = u16_at(info, 2)?;
            if format != FORMAT_SIZED {
                info = info.get(4..)?;
                continue;
            }
            let data = info.get(4..4 + usize::from(size))?;
            info = info.get(4 + usize::from(size)..)?;
            return Some((attribute, data));
        }
    })
}

/// The sections, without names.
fn raw_sections(bytes: &[u8]) -> Option<Vec<Section<'static>>> {
    let first = usize::try_from(u64_at(bytes, 0x28)?).ok()?;
    let count = usize::from(u16_at(bytes, 0x3c)?);
    let table = bytes.get(first..first.checked_add(count * SECTION_BYTES)?)?;
    let section = |entry: &[u8]| {
        Some(Section {
            name: "",
            kind: u32_at(entry, 4)?,
            offset: usize::try_from(u64_at(entry, 24)?).ok()?,
            bytes: usize::try_from(u64_at(entry, 32)?).ok()?,
            link: u32_at(entry, 40)?,
            info: u32_at(entry, 44)?,
        })
    };
    table.chunks_exact(SECTION_BYTES).map(section).collect()
}

fn sections(bytes: &[u8]) -> Option<Vec<Section<'_>>> {
    let raw = raw_sections(bytes)?;
    let names = raw.get(usize::from(u16_at(bytes, 0x3e)?))?;
    let first = usize::try_from(u64_at(bytes, 0x28)?).ok()?;
    (0..raw.len())
        .map(|index| {
            let name = u32_at(bytes, first + index * SECTION_BYTES)?;
            let &Section {
                kind,
                offset,
                bytes: size,
                link,
                info,
                ..
            } = raw.get(index)?;
            Some(Section {
                name: text_at(bytes, names, name)?,
                kind,
                offset,
                bytes: size,
                link,
                info,
            })
        })
        .collect()
}

fn content<'a>(bytes: &'a [u8], section: &Section<'_>) -> Option<&'a [u8]> {
    if section.kind == NOBITS {
        return Some(&[]);
    }
    bytes.get(section.offset..section.offset.checked_add(section.bytes)?)
}

fn text_at<'a>(bytes: &'a [u8], section: &Section<'_>, offset: u32) -> Option<&'a str> {
    let texts = content(bytes, section)?.get(offset as usize..)?;
    let end = texts.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&texts[..end]).ok()
}
