//! PTX, scanned for kernels: names, parameters, static shared memory and limits on threads. The
//! scanner parses declarations and brackets and skips everything else, so it also reads newer PTX
//! versions. Shared memory declared outside the kernels is charged to none.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::{Code, CodeError, CodeGlobal, CodeKernel, CodeParam, REGISTERS_ASSUMED};

pub(super) fn parse(text: &str) -> Result<Code, CodeError> {
    let tokens = tokens(text);
    let mut scanner = Scanner {
        tokens: &tokens,
        at: 0,
    };
    let mut code = Code {
        is_virtual: true,
        ..Code::default()
    };
    if scanner.next() != Some(".version") || scanner.next().is_none() {
        return Err(CodeError::Ptx("the text does not begin with .version"));
    }
    if scanner.next() != Some(".target") {
        return Err(CodeError::Ptx("no .target follows .version"));
    }
    code.capability = scanner
        .next()
        .and_then(capability)
        .ok_or(CodeError::Ptx("no architecture follows .target"))?;
    while let Some(token) = scanner.next() {
        match token {
            ".entry" => code.kernels.push(scanner.kernel()?),
            ".global" | ".const" => code.globals.extend(scanner.variable()),
            "{" => scanner.skip_block()?,
            _ => {}
        }
    }
    Ok(code)
}

/// `sm_90a` is 90.
fn capability(target: &str) -> Option<u32> {
    let digits = target.strip_prefix("sm_")?;
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

struct Scanner<'a> {
    tokens: &'a [&'a str],
    at: usize,
}

impl<'a> Scanner<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let token = self.tokens.get(self.at).copied();
        self.at += 1;
        token
    }

    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn kernel(&mut self) -> Result<CodeKernel, CodeError> {
        let name = self.next().filter(|name| is_identifier(name));
        let mut kernel = CodeKernel {
            name: name
                .ok_or(CodeError::Ptx("no name follows .entry"))?
                .to_owned(),
            registers: REGISTERS_ASSUMED,
            shared_bytes: 0,
            local_bytes: 0,
            constant_bytes: 0,
            threads_max: None,
            params: Vec::new(),
        };
        if self.peek() == Some("(") {
            self.at += 1;
            kernel.params = self.params()?;
        }
        loop {
            match self.next() {
                Some(".maxntid" | ".reqntid") => kernel.threads_max = Some(self.product()),
                Some("{") => {
                    kernel.shared_bytes = self.body()?;
                    return Ok(kernel);
                }
                Some(";") => return Ok(kernel),
                Some(_) => {}
                None => {
                    return Err(CodeError::Ptx(
                        "a kernel has neither a body nor a semicolon",
                    ));
                }
            }
        }
    }

    fn params(&mut self) -> Result<Vec<CodeParam>, CodeError> {
        let mut params: Vec<CodeParam> = Vec::new();
        loop {
            match self.next() {
                Some(".param") => {
                    let (_, bytes, align) = self
                        .declaration()
                        .ok_or(CodeError::Ptx("a parameter has no type or no name"))?;
                    let end = params
                        .last()
                        .map_or(0, |last| last.offset.saturating_add(last.size_bytes));
                    let offset = end.checked_next_multiple_of(align.max(1));
                    let size = u32::try_from(bytes).ok();
                    let (offset, size_bytes) = offset
                        .zip(size)
                        .ok_or(CodeError::Ptx("the parameters are too large"))?;
                    params.push(CodeParam { offset, size_bytes });
                }
                Some(")") => return Ok(params),
                Some(_) => {}
                None => return Err(CodeError::Ptx("a parameter list is not closed")),
            }
        }
    }

    /// Parses what follows `.global` and similar words.
    fn variable(&mut self) -> Option<CodeGlobal> {
        let (name, bytes, _) = self.declaration()?;
        Some(CodeGlobal {
            name: name.to_owned(),
            bytes,
        })
    }

    /// Parses attributes, a type, a name and dimensions. Returns name, bytes and alignment.
    fn declaration(&mut self) -> Option<(&'a str, u64, u32)> {
        let (mut width, mut lanes, mut align) = (None, 1, None);
        loop {
            let token = self.peek()?;
            match token {
                ".align" => {
                    self.at += 1;
                    align = self.next()?.parse().ok();
                }
                ".ptr" | ".attribute" => self.at += 1,
                "(" => while self.next()? != ")" {},
                ".v2" | ".v4" => {
                    lanes = if token == ".v2" { 2 } else { 4 };
                    self.at += 1;
                }
                _ if token.starts_with('.') => {
                    width = width.or(type_bytes(token));
                    self.at += 1;
                }
                _ if is_identifier(token) => break,
                _ => return None,
            }
        }
        let name = self.next()?;
        let width = width? * lanes;
        let mut bytes = u64::from(width);
        while self.peek() == Some("[") {
            self.at += 1;
            // `extern .shared x[]` has no size of its own.
            let count: u64 = match self.peek()? {
                "]" => 0,
                number => number.parse().ok()?,
            };
            bytes = bytes.checked_mul(count)?;
            while self.next()? != "]" {}
        }
        Some((name, bytes, align.unwrap_or(width)))
    }

    /// Parses what follows a kernel's opening bracket. Returns the declared bytes of shared memory.
    fn body(&mut self) -> Result<u32, CodeError> {
        let (mut depth, mut shared) = (1u32, 0u64);
        while depth > 0 {
            match self.next() {
                Some("{") => depth += 1,
                Some("}") => depth -= 1,
                // `ld.shared.u32` is one token, different from this one.
                Some(".shared") => {
                    if let Some((_, bytes, align)) = self.declaration() {
                        let aligned = shared.next_multiple_of(u64::from(align.max(1)));
                        shared = aligned.saturating_add(bytes);
                    }
                }
                Some(_) => {}
                None => return Err(CodeError::Ptx("a block is not closed")),
            }
        }
        Ok(u32::try_from(shared).unwrap_or(u32::MAX))
    }

    fn skip_block(&mut self) -> Result<(), CodeError> {
        self.body().map(|_| ())
    }

    /// `256, 1, 1` as one number.
    fn product(&mut self) -> u32 {
        let mut product: u32 = 1;
        while let Some(number) = self.peek().and_then(|token| token.parse::<u32>().ok()) {
            product = product.saturating_mul(number.max(1));
            self.at += 1;
            if self.peek() != Some(",") {
                break;
            }
            self.at += 1;
        }
        product
    }
}

/// Width of a PTX type; `None` for other words with a dot.
fn type_bytes(word: &str) -> Option<u32> {
    let name = word.strip_prefix('.')?;
    if name == "pred" {
        return Some(1);
    }
    let digits = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let letters = &name[..name.len() - digits.len()];
    let bits: u32 = digits.parse().ok()?;
    let is_type =
        matches!(letters, "b" | "u" | "s" | "f") && matches!(bits, 8 | 16 | 32 | 64 | 128);
    is_type.then_some(bits / 8)
}

fn is_identifier(token: &str) -> bool {
    token
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '%'))
}

/// Words and single marks, without comments and string literals.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(&rest[..end]);
            end
        } else {
            let end = first.len_utf8();
            if !first.is_whitespace() {
                tokens.push(&rest[..end]);
            }
            end
        };
        rest = &rest[length..];
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}

/// A text that declares the contents of all of these; of equal names the first.
pub fn write<'a>(codes: impl Iterator<Item = &'a Code>, capability: u32) -> String {
    let mut text = format!(".version 8.0\n.target sm_{capability}\n.address_size 64\n");
    let mut seen = HashSet::new();
    for code in codes {
        for CodeGlobal { name, bytes } in &code.globals {
            if seen.insert(name.as_str()) {
                let _ = writeln!(text, ".visible .global .align 16 .b8 {name}[{bytes}];");
            }
        }
        for kernel in &code.kernels {
            if seen.insert(&kernel.name) {
                write_kernel(&mut text, kernel);
            }
        }
    }
    text
}

fn write_kernel(text: &mut String, kernel: &CodeKernel) {
    let mut end = 0u32;
    let params = kernel.params.iter().enumerate().map(|(index, param)| {
        // The least alignment that leads to its offset.
        let aligned = |align: &u32| end.checked_next_multiple_of(*align) == Some(param.offset);
        let align = (0..8).map(|power| 1 << power).find(aligned).unwrap_or(1);
        end = param.offset.saturating_add(param.size_bytes);
        format!(".param .align {align} .b8 p{index}[{}]", param.size_bytes)
    });
    let params: Vec<String> = params.collect();
    let _ = writeln!(
        text,
        ".visible .entry {}({})",
        kernel.name,
        params.join(", ")
    );
    if let Some(threads) = kernel.threads_max {
        let _ = writeln!(text, ".maxntid {threads}, 1, 1");
    }
    let shared = match kernel.shared_bytes {
        0 => String::new(),
        bytes => format!(" .shared .b8 s[{bytes}];"),
    };
    let _ = writeln!(text, "{{{shared} ret; }}");
}
