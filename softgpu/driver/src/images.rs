//! Sources of a module: a text of the software GPU, a cubin, a fat binary or PTX. Kernels of a text
//! take the time stated there. Kernels of the other kinds, of which only name and requirements are
//! known, take an assumed time (`softgpu::code::BLOCK_NS` for a block) and compute nothing, except
//! those of `pillion-replay`'s PTX, known by name and parameters (`Builtin::of_entry`). Texts also
//! have the built-in kernels, which do compute.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use abi::types::CUresult;
use softgpu::Builtin;
use softgpu::code::{
    self, BLOCK_NS, CODE_BYTES_MAX, Code, CodeError, CodeGlobal, CodeKernel, CodeParam, Extent,
    Kind,
};
use softgpu::module_image::{HEADER, IMAGE_BYTES_MAX, ImageKernel, is_image, parse_image};

use crate::driver::Driver;
use crate::raw::Bytes;
use crate::tables::Kernel;
use crate::thread;

/// Demands of an unknown kernel, as `softgpu::shape_of_trace_entry` assumes them for such entries.
const COMPUTE_DEMAND: f64 = 0.5;
const BANDWIDTH_DEMAND: f64 = 0.4;
/// Offset of the fat binary's address in a wrapper.
const WRAPPER_CONTENT: usize = 8;

/// Why an image was not loaded: the code for the caller, and a message.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub(crate) code: CUresult,
    pub(crate) text: String,
}

impl From<CUresult> for LoadError {
    fn from(code: CUresult) -> Self {
        Self {
            code,
            text: String::new(),
        }
    }
}

impl From<CodeError> for LoadError {
    fn from(error: CodeError) -> Self {
        let code = match error {
            CodeError::Malformed(_) => CUresult::INVALID_IMAGE,
            CodeError::NoCode(_) => CUresult::NO_BINARY_FOR_GPU,
            CodeError::Ptx(_) => CUresult::INVALID_PTX,
        };
        Self {
            code,
            text: error.to_string(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    pub(crate) globals: Vec<CodeGlobal>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Arc<CString>,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) traits: Arc<Traits>,
}

#[derive(Debug, Default)]
pub(crate) struct Traits {
    pub(crate) params: Vec<CodeParam>,
    /// Whether a launch must pass parameters: a text does not list them.
    pub(crate) needs_params: bool,
    pub(crate) local_bytes: u32,
    pub(crate) constant_bytes: u32,
    pub(crate) threads_max: Option<u32>,
}

impl Image {
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(*self.by_name.get(name)?)
    }

    pub(crate) fn global(&self, name: &str) -> Option<&CodeGlobal> {
        self.globals.iter().find(|global| global.name == name)
    }

    fn new(entries: Vec<Entry>, globals: Vec<CodeGlobal>) -> Self {
        let by_name = (0..)
            .zip(&entries)
            .map(|(index, entry)| (entry.name.to_string_lossy().into_owned(), index));
        Self {
            by_name: by_name.collect(),
            entries,
            globals,
        }
    }

    /// The kernels of a text, and the built-in ones that it does not hide.
    fn of_text(text: &str) -> Result<Self, LoadError> {
        let kernels = parse_image(text).map_err(|error| LoadError {
            code: CUresult::INVALID_IMAGE,
            text: error.to_string(),
        })?;
        let mut entries: Vec<Entry> = Vec::new();
        for kernel in kernels {
            let name = kernel.name.clone();
            entries.extend(Entry::new(
                &name,
                Kernel::TakesTime(kernel),
                Traits::default(),
            ));
        }
        let hidden: HashMap<String, usize> = Self::new(entries.clone(), Vec::new()).by_name;
        for builtin in Builtin::ALL {
            if !hidden.contains_key(builtin.name()) {
                entries.extend(Entry::of_builtin(builtin));
            }
        }
        Ok(Self::new(entries, Vec::new()))
    }

    pub(crate) fn of_code(code: Code) -> Self {
        let entries = code.kernels.into_iter().filter_map(Entry::of_code);
        Self::new(entries.collect(), code.globals)
    }
}

impl Entry {
    /// `None` for a name that C cannot pass.
    fn new(name: &str, kernel: Kernel, traits: Traits) -> Option<Self> {
        Some(Self {
            name: Arc::new(CString::new(name).ok()?),
            kernel: Arc::new(kernel),
            traits: Arc::new(traits),
        })
    }

    fn of_builtin(builtin: Builtin) -> Option<Self> {
        let traits = Traits {
            params: packed(builtin),
            needs_params: true,
            ..Traits::default()
        };
        Self::new(builtin.name(), Kernel::Computes(builtin), traits)
    }

    fn of_code(kernel: CodeKernel) -> Option<Self> {
        let takes = ImageKernel {
            name: kernel.name.clone(),
            block_ns: BLOCK_NS,
            registers_per_thread: kernel.registers,
            shared_bytes_per_block: kernel.shared_bytes,
            compute_demand: COMPUTE_DEMAND,
            bandwidth_demand: BANDWIDTH_DEMAND,
        };
        let traits = Traits {
            needs_params: !kernel.params.is_empty(),
            params: kernel.params,
            local_bytes: kernel.local_bytes,
            constant_bytes: kernel.constant_bytes,
            threads_max: kernel.threads_max,
        };
        let known = Builtin::of_entry(&kernel.name).filter(|&known| traits.params == packed(known));
        let kernel_of = known.map_or(Kernel::TakesTime(takes), Kernel::Computes);
        Self::new(&kernel.name, kernel_of, traits)
    }
}

/// Offsets of a built-in kernel's parameters: each at the next multiple of its size.
pub(crate) fn packed(builtin: Builtin) -> Vec<CodeParam> {
    let mut end = 0u32;
    let place = |param: &softgpu::Param| {
        let size_bytes = param.size_bytes() as u32;
        let offset = end.next_multiple_of(size_bytes);
        end = offset + size_bytes;
        CodeParam { offset, size_bytes }
    };
    builtin.params().iter().map(place).collect()
}

impl Driver {
    /// Compute capability of the current device, major * 10 + minor.
    pub(crate) fn capability(&self) -> u32 {
        let context = thread::current().unwrap_or_default();
        let capability = self.device_of(context).compute_capability;
        capability.major * 10 + capability.minor
    }

    pub(crate) fn image_at(&self, at: Bytes) -> Result<Image, LoadError> {
        self.image_behind(at, true)
    }

    fn image_behind(&self, at: Bytes, may_be_wrapper: bool) -> Result<Image, LoadError> {
        if at.is_null() {
            return Err(CUresult::INVALID_VALUE.into());
        }
        let mut needed = 1;
        let extent = loop {
            match at.with(needed, code::extent)?? {
                Extent::AtLeast(more) => needed = more,
                other => break other,
            }
        };
        match extent {
            Extent::Whole(Kind::Wrapper, bytes) if may_be_wrapper => {
                let address = at.with(bytes, |bytes| {
                    bytes[WRAPPER_CONTENT..].first_chunk().copied()
                })?;
                let address = u64::from_le_bytes(address.unwrap_or_default());
                self.image_behind(Bytes::at(address), false)
            }
            Extent::Whole(kind, bytes) => {
                let code =
                    at.with(bytes, |bytes| code::parse(kind, bytes, self.capability()))??;
                Ok(Image::of_code(code))
            }
            Extent::Text | Extent::AtLeast(_) => {
                let text = at.text_with_prefix(&[], IMAGE_BYTES_MAX.max(PTX_BYTES_MAX));
                self.image_of_text(text.ok_or(CUresult::INVALID_IMAGE)?)
            }
        }
    }

    pub(crate) fn image_of(&self, bytes: &[u8]) -> Result<Image, LoadError> {
        match code::extent(bytes)? {
            Extent::Whole(kind, _) if kind != Kind::Wrapper => {
                Ok(Image::of_code(code::parse(kind, bytes, self.capability())?))
            }
            Extent::Text => {
                let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
                self.image_of_text(text.to_vec())
            }
            _ => Err(CUresult::INVALID_IMAGE.into()),
        }
    }

    pub(crate) fn image_in(&self, path: &str) -> Result<Image, LoadError> {
        let bytes = fs::read(Path::new(path)).map_err(|_| CUresult::FILE_NOT_FOUND)?;
        if bytes.len() > CODE_BYTES_MAX {
            return Err(CUresult::INVALID_IMAGE.into());
        }
        self.image_of(&bytes)
    }

    fn image_of_text(&self, text: Vec<u8>) -> Result<Image, LoadError> {
        let text = String::from_utf8(text).map_err(|_| CUresult::INVALID_IMAGE)?;
        if is_image(text.as_bytes()) {
            return Image::of_text(&text);
        }
        // A text without any sign of PTX is no image at all.
        if !text.contains(".version") {
            return Err(LoadError {
                code: CUresult::INVALID_IMAGE,
                text: format!("neither PTX nor a text that begins with {HEADER:?}"),
            });
        }
        Ok(Image::of_code(code::parse_ptx(&text, self.capability())?))
    }
}

const PTX_BYTES_MAX: usize = 256 << 20;
