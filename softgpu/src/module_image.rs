//! Modules of the software GPU: a text that lists kernels and their costs.
//! ```text
//! softgpu-module 1
//! kernel Conv2d%3Aforward block_ns=1350000 regs=64 shared=65536 compute=0.89 bandwidth=0.2
//! ```
//! A name is percent-encoded: each byte that is no letter, digit, `_`, `-`, `.`, `#` or `@` is `%`
//! and two hexadecimal digits. `block_ns` is the time of one block alone, `regs` registers per
//! thread, `shared` static shared bytes per block; `compute` and `bandwidth` are the demands of
//! [`crate::KernelShape`]. A program passes the text as a CUDA module image (`cuModuleLoadData`),
//! where it ends with a NUL. Every such module also has the kernels of [`crate::Builtin`].

use std::fmt::Write as _;

/// First line of an image.
pub const HEADER: &str = "softgpu-module 1";
/// Longest image; the traces of one model have some hundred kernels of about a hundred bytes each.
pub const IMAGE_BYTES_MAX: usize = 16 << 20;

/// The contents of a line.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageKernel {
    /// Name, decoded.
    pub name: String,
    /// Time of one block alone.
    pub block_ns: u64,
    /// Registers per thread.
    pub registers_per_thread: u32,
    /// Static shared memory per block.
    pub shared_bytes_per_block: u32,
    /// See [`crate::KernelShape::compute_demand`].
    pub compute_demand: f64,
    /// See [`crate::KernelShape::bandwidth_demand`].
    pub bandwidth_demand: f64,
}

/// A fault of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ImageError {
    /// Counted from 1.
    pub line: usize,
    /// A short reason.
    pub reason: String,
}

/// Whether an image is such a text.
pub fn is_image(image: &[u8]) -> bool {
    image.starts_with(HEADER.as_bytes())
        && matches!(image.get(HEADER.len()), None | Some(b'\n' | b'\r'))
}

/// The image with these kernels, without the NUL.
pub fn write_image(kernels: &[ImageKernel]) -> String {
    let mut text = format!("{HEADER}\n");
    for kernel in kernels {
        let ImageKernel {
            block_ns,
            compute_demand,
            bandwidth_demand,
            ..
        } = kernel;
        let (registers, shared) = (kernel.registers_per_thread, kernel.shared_bytes_per_block);
        let _ = writeln!(
            text,
            "kernel {} block_ns={block_ns} regs={registers} shared={shared} compute={compute_demand} \
             bandwidth={bandwidth_demand}",
            encode_name(&kernel.name),
        );
    }
    text
}

/// Parses an image, without the NUL. Empty lines are allowed.
/// # Errors
/// [`ImageError`] with the line and the reason.
pub fn parse_image(text: &str) -> Result<Vec<ImageKernel>, ImageError> {
    let mut lines = (1..).zip(text.lines());
    if lines.next().is_none_or(|(_, line)| line != HEADER) {
        return Err(ImageError {
            line: 1,
            reason: format!("expected {HEADER:?}"),
        });
    }
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            parse_line(line).map_err(|reason| ImageError {
                line: number,
                reason,
            })
        })
        .collect()
}

fn parse_line(line: &str) -> Result<ImageKernel, String> {
    let mut words = line.split_ascii_whitespace();
    if words.next() != Some("kernel") {
        return Err("expected \"kernel\"".into());
    }
    let name = words
        .next()
        .and_then(decode_name)
        .ok_or("invalid kernel name")?;
    let mut kernel = ImageKernel {
        name,
        block_ns: field(words.next(), "block_ns")?,
        registers_per_thread: field(words.next(), "regs")?,
        shared_bytes_per_block: field(words.next(), "shared")?,
        compute_demand: 0.0,
        bandwidth_demand: 0.0,
    };
    kernel.compute_demand = demand(words.next(), "compute")?;
    kernel.bandwidth_demand = demand(words.next(), "bandwidth")?;
    match words.next() {
        Some(word) => Err(format!("unexpected {word:?}")),
        None => Ok(kernel),
    }
}

fn field<T: std::str::FromStr>(word: Option<&str>, name: &str) -> Result<T, String> {
    word.and_then(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        .ok_or_else(|| format!("expected {name}=NUMBER"))
}

fn demand(word: Option<&str>, name: &str) -> Result<f64, String> {
    let number: f64 = field(word, name)?;
    if number.is_finite() && number >= 0.0 {
        return Ok(number);
    }
    Err(format!(
        "{name} is {number}: expected a number of at least 0"
    ))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.#@".contains(&byte)
}

fn encode_name(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if is_plain(byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn decode_name(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_first_chunk::<2>()?;
        let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|name| !name.is_empty() && !name.contains('\0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kernel(name: &str) -> ImageKernel {
        ImageKernel {
            name: name.into(),
            block_ns: 1_350_000,
            registers_per_thread: 64,
            shared_bytes_per_block: 65_536,
            compute_demand: 0.89,
            bandwidth_demand: 0.2,
        }
    }

    #[test]
    fn the_documented_line_is_read_and_written() {
        let text = "softgpu-module 1\n\
            kernel Conv2d%3Aforward block_ns=1350000 regs=64 shared=65536 compute=0.89 bandwidth=0.2\n";
        let kernels = vec![kernel("Conv2d:forward")];
        assert_eq!(parse_image(text).unwrap(), kernels);
        assert_eq!(write_image(&kernels), text);
        assert!(is_image(text.as_bytes()) && !is_image(b"softgpu-module 10\n"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let refused = |line: &str| {
            parse_image(&format!("{HEADER}\n\n{line}\n"))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(refused("kernal x"), "line 3: expected \"kernel\"");
        assert_eq!(refused("kernel a%zz"), "line 3: invalid kernel name");
        assert_eq!(
            refused("kernel a block_ns=-1"),
            "line 3: expected block_ns=NUMBER"
        );
        let text = refused("kernel a block_ns=1 regs=1 shared=0 compute=NaN bandwidth=0");
        assert_eq!(
            text,
            "line 3: compute is NaN: expected a number of at least 0"
        );
        assert_eq!(parse_image("\x7fELF").unwrap_err().line, 1);
    }

    proptest! {
        #[test]
        fn any_name_survives(name in "[^\0]{1,60}", block_ns: u64, compute in 0.0f64..2.0) {
            let kernels =
                vec![ImageKernel { block_ns, compute_demand: compute, ..kernel(&name) }];
            prop_assert_eq!(parse_image(&write_image(&kernels)).unwrap(), kernels);
        }

        #[test]
        fn any_text_is_refused_or_read_as_what_is_written_and_read_the_same(text in "(softgpu-module 1\n)?(kernel [ -~]{0,80}\n){0,3}\\PC{0,40}") {
            if let Ok(kernels) = parse_image(&text) {
                prop_assert_eq!(parse_image(&write_image(&kernels)), Ok(kernels));
            }
        }
    }
}
