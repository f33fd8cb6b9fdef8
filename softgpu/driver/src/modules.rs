//! Modules and functions.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use abi::types::{CUfunction_attribute, CUresult};
use softgpu::module_image::{HEADER, IMAGE_BYTES_MAX, ImageError, parse_image};
use softgpu::{Builtin, KernelShape};

use crate::driver::Driver;
use crate::raw::Bytes;
use crate::tables::{Function, Kernel, Module};

/// Dynamic shared memory that a block may have without asking for more (CUDA C++ Programming Guide,
/// compute capability 7.x and later).
pub(crate) const SHARED_BYTES_DEFAULT: u32 = 48 << 10;
/// Registers of the built-in kernels, as `softgpu::Builtin` charges them.
const REGISTERS_BUILTIN: i32 = 32;

/// Why a module was not loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// For the caller only.
    Code(CUresult),
    /// The image is one of ours with a mistake in it.
    Image(ImageError),
}

impl From<CUresult> for LoadError {
    fn from(code: CUresult) -> Self {
        Self::Code(code)
    }
}

impl Driver {
    /// Loads an image: a text of the software GPU, or anything else, which then has the built-in
    /// kernels only.
    pub(crate) fn load_module(&self, image: Bytes) -> Result<u64, LoadError> {
        let (context, _) = self.current()?;
        if image.is_null() {
            return Err(CUresult::INVALID_VALUE.into());
        }
        let kernels = match image.text_with_prefix(HEADER.as_bytes(), IMAGE_BYTES_MAX) {
            Some(text) => {
                let text = String::from_utf8(text).map_err(|_| CUresult::INVALID_IMAGE)?;
                parse_image(&text).map_err(LoadError::Image)?
            }
            None => Vec::new(),
        };
        let kernels = kernels
            .into_iter()
            .map(|kernel| (kernel.name.clone(), kernel))
            .collect();
        let module = Module {
            context,
            kernels: Arc::new(kernels),
            functions: HashMap::new(),
        };
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        tables.modules.insert(handle, module);
        Ok(handle)
    }

    pub(crate) fn unload_module(&self, handle: u64) -> Result<(), CUresult> {
        let mut tables = self.tables.lock();
        let module = tables
            .modules
            .remove(&handle)
            .ok_or(CUresult::INVALID_HANDLE)?;
        for function in module.functions.values() {
            tables.functions.remove(function);
        }
        Ok(())
    }

    /// A kernel of a module; the same handle each time.
    pub(crate) fn module_function(&self, handle: u64, name: &str) -> Result<u64, CUresult> {
        let mut tables = self.tables.lock();
        let module = tables
            .modules
            .get(&handle)
            .ok_or(CUresult::INVALID_HANDLE)?;
        if let Some(&function) = module.functions.get(name) {
            return Ok(function);
        }
        // A kernel of the image hides a built-in one.
        let kernel = match (module.kernels.get(name), Builtin::from_name(name)) {
            (Some(kernel), _) => Kernel::TakesTime(kernel.clone()),
            (None, Some(builtin)) => Kernel::Computes(builtin),
            (None, None) => return Err(CUresult::NOT_FOUND),
        };
        let c_name = CString::new(name).map_err(|_| CUresult::NOT_FOUND)?;
        let function = Function {
            context: module.context,
            name: Arc::new(c_name),
            kernel: Arc::new(kernel),
            dynamic_shared_bytes_max: SHARED_BYTES_DEFAULT,
        };
        let function_handle = tables.new_handle();
        tables.functions.insert(function_handle, function);
        if let Some(module) = tables.modules.get_mut(&handle) {
            module.functions.insert(name.to_owned(), function_handle);
        }
        Ok(function_handle)
    }

    pub(crate) fn function(&self, handle: u64) -> Result<Function, CUresult> {
        let known = self.tables.lock().functions.get(&handle).cloned();
        known.ok_or(CUresult::INVALID_HANDLE)
    }

    /// What `cuFuncGetAttribute` answers.
    pub(crate) fn function_attribute(
        &self,
        handle: u64,
        attribute: CUfunction_attribute,
    ) -> Result<i32, CUresult> {
        let function = self.function(handle)?;
        let (registers, shared_bytes) = match &*function.kernel {
            Kernel::Computes(_) => (REGISTERS_BUILTIN, 0),
            Kernel::TakesTime(kernel) => (
                kernel.registers_per_thread as i32,
                kernel.shared_bytes_per_block as i32,
            ),
        };
        let capability = self.device.compute_capability;
        Ok(match attribute {
            CUfunction_attribute::MAX_THREADS_PER_BLOCK => self.threads_max(&function),
            CUfunction_attribute::SHARED_SIZE_BYTES => shared_bytes,
            CUfunction_attribute::NUM_REGS => registers,
            CUfunction_attribute::PTX_VERSION | CUfunction_attribute::BINARY_VERSION => {
                (capability.major * 10 + capability.minor) as i32
            }
            CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                function.dynamic_shared_bytes_max as i32
            }
            CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => -1,
            CUfunction_attribute::CONST_SIZE_BYTES
            | CUfunction_attribute::LOCAL_SIZE_BYTES
            | CUfunction_attribute::CACHE_MODE_CA
            | CUfunction_attribute::CLUSTER_SIZE_MUST_BE_SET
            | CUfunction_attribute::REQUIRED_CLUSTER_WIDTH
            | CUfunction_attribute::REQUIRED_CLUSTER_HEIGHT
            | CUfunction_attribute::REQUIRED_CLUSTER_DEPTH
            | CUfunction_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            | CUfunction_attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE => 0,
            _ => return Err(CUresult::INVALID_VALUE),
        })
    }

    /// What `cuFuncSetAttribute` takes.
    pub(crate) fn set_function_attribute(
        &self,
        handle: u64,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Result<(), CUresult> {
        let max = self.device.shared_bytes_per_block_optin;
        let mut tables = self.tables.lock();
        let function = tables
            .functions
            .get_mut(&handle)
            .ok_or(CUresult::INVALID_HANDLE)?;
        match attribute {
            CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
                let bytes = u32::try_from(value).ok().filter(|&bytes| bytes <= max);
                function.dynamic_shared_bytes_max = bytes.ok_or(CUresult::INVALID_VALUE)?;
                Ok(())
            }
            // A hint, which the model, that always has the largest configuration, has no use for.
            CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => Ok(()),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    /// Blocks of a function that an SM holds.
    pub(crate) fn occupancy(
        &self,
        handle: u64,
        threads: u32,
        dynamic_bytes: u64,
    ) -> Result<u32, CUresult> {
        let function = self.function(handle)?;
        let dynamic_bytes = u32::try_from(dynamic_bytes).map_err(|_| CUresult::INVALID_VALUE)?;
        let shape = static_shape(&function, threads, dynamic_bytes);
        match shape.check(&self.device) {
            Ok(()) => Ok(shape.blocks_per_sm(&self.device)),
            Err(softgpu::Error::LaunchTooLarge { .. }) => Ok(0),
            Err(_) => Err(CUresult::INVALID_VALUE),
        }
    }

    /// Threads of the largest block that fits.
    fn threads_max(&self, function: &Function) -> i32 {
        let fits = |&threads: &u32| {
            static_shape(function, threads, 0)
                .check(&self.device)
                .is_ok()
        };
        (1..=32)
            .rev()
            .map(|warps| warps * 32)
            .find(fits)
            .unwrap_or(0) as i32
    }
}

/// One block of a function, without what a launch adds.
pub(crate) fn static_shape(
    function: &Function,
    threads: u32,
    dynamic_shared_bytes: u32,
) -> KernelShape {
    let shape = KernelShape {
        grid_blocks: 1,
        threads_per_block: threads,
        registers_per_thread: REGISTERS_BUILTIN as u32,
        shared_bytes_per_block: dynamic_shared_bytes,
        block_ns: 1,
        compute_demand: 0.0,
        bandwidth_demand: 0.0,
    };
    match &*function.kernel {
        Kernel::Computes(_) => shape,
        Kernel::TakesTime(kernel) => KernelShape {
            registers_per_thread: kernel.registers_per_thread,
            shared_bytes_per_block: kernel
                .shared_bytes_per_block
                .saturating_add(dynamic_shared_bytes),
            block_ns: kernel.block_ns,
            compute_demand: kernel.compute_demand,
            bandwidth_demand: kernel.bandwidth_demand,
            ..shape
        },
    }
}
