//! Libraries: images without a context, and their kernels (CUDA 12). A library becomes a module in
//! each context that uses one of its kernels or variables.

use std::collections::HashMap;
use std::sync::Arc;

use abi::types::{CUfunction_attribute, CUresult};

use crate::driver::Driver;
use crate::functions::{SHARED_BYTES_DEFAULT, attribute_of, check_settable};
use crate::images::{Entry, Image, LoadError};
use crate::raw::Bytes;
use crate::tables::{Function, Tables};

#[derive(Debug, Default)]
pub(crate) struct Libraries {
    libraries: HashMap<u64, Library>,
    kernels: HashMap<u64, LibraryKernel>,
}

#[derive(Debug)]
struct Library {
    image: Arc<Image>,
    kernels: HashMap<String, u64>,
    modules: HashMap<u64, u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct LibraryKernel {
    pub(crate) library: u64,
    pub(crate) entry: Entry,
    /// As set for the device.
    dynamic_shared_bytes_max: Option<u32>,
}

impl Libraries {
    pub(crate) fn forget_context(&mut self, context: u64) {
        for library in self.libraries.values_mut() {
            library.modules.remove(&context);
        }
    }

    fn library(&self, handle: u64) -> Result<&Library, CUresult> {
        self.libraries.get(&handle).ok_or(CUresult::INVALID_HANDLE)
    }
}

impl Driver {
    pub(crate) fn load_library(&self, image: Bytes) -> Result<u64, LoadError> {
        let image = self.image_at(image)?;
        Ok(self.keep_library(image))
    }

    /// As [`Self::load_library`], from a file.
    pub(crate) fn load_library_file(&self, path: &str) -> Result<u64, LoadError> {
        let image = self.image_in(path)?;
        Ok(self.keep_library(image))
    }

    fn keep_library(&self, image: Image) -> u64 {
        let library = Library {
            image: Arc::new(image),
            kernels: HashMap::new(),
            modules: HashMap::new(),
        };
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        tables.libraries.libraries.insert(handle, library);
        handle
    }

    pub(crate) fn unload_library(&self, handle: u64) -> Result<(), CUresult> {
        let library = {
            let mut tables = self.tables.lock();
            let library = tables.libraries.libraries.remove(&handle);
            let library = library.ok_or(CUresult::INVALID_HANDLE)?;
            for kernel in library.kernels.values() {
                tables.libraries.kernels.remove(kernel);
                tables.end_code_handle(*kernel);
            }
            library
        };
        for module in library.modules.into_values() {
            self.forget_module(module);
        }
        Ok(())
    }

    /// A kernel by name; each call returns the same handle.
    pub(crate) fn library_kernel(&self, handle: u64, name: &str) -> Result<u64, CUresult> {
        let mut tables = self.tables.lock();
        let entry = tables.libraries.library(handle)?.image.entry(name).cloned();
        let entry = entry.ok_or(CUresult::NOT_FOUND)?;
        kernel_of(&mut tables, handle, entry)
    }

    pub(crate) fn library_kernel_count(&self, handle: u64) -> Result<usize, CUresult> {
        let tables = self.tables.lock();
        Ok(tables.libraries.library(handle)?.image.entries.len())
    }

    pub(crate) fn library_kernels(&self, handle: u64, count: usize) -> Result<Vec<u64>, CUresult> {
        let mut tables = self.tables.lock();
        let image = Arc::clone(&tables.libraries.library(handle)?.image);
        let first = image.entries.iter().take(count);
        first
            .map(|entry| kernel_of(&mut tables, handle, entry.clone()))
            .collect()
    }

    pub(crate) fn library_module(&self, handle: u64) -> Result<u64, CUresult> {
        let (context, _) = self.current()?;
        self.library_module_in(handle, context)
    }

    fn library_module_in(&self, handle: u64, context: u64) -> Result<u64, CUresult> {
        let image = {
            let tables = self.tables.lock();
            let library = tables.libraries.library(handle)?;
            if let Some(&module) = library.modules.get(&context) {
                return Ok(module);
            }
            Arc::clone(&library.image)
        };
        self.check_context(context)?;
        let made = self.keep_module(context, image, Some(handle));
        let mut tables = self.tables.lock();
        let kept = tables
            .libraries
            .libraries
            .get_mut(&handle)
            .map(|library| *library.modules.entry(context).or_insert(made));
        drop(tables);
        if kept != Some(made) {
            // Another thread was first, or the library was unloaded.
            self.forget_module(made);
        }
        kept.ok_or(CUresult::INVALID_HANDLE)
    }

    pub(crate) fn library_global(&self, handle: u64, name: &str) -> Result<(u64, u64), CUresult> {
        let module = self.library_module(handle)?;
        self.module_global(module, name)
    }

    pub(crate) fn check_library(&self, handle: u64) -> Result<(), CUresult> {
        self.tables.lock().libraries.library(handle).map(|_| ())
    }

    pub(crate) fn kernel(&self, handle: u64) -> Result<LibraryKernel, CUresult> {
        let known = self.tables.lock().libraries.kernels.get(&handle).cloned();
        known.ok_or(CUresult::INVALID_HANDLE)
    }

    pub(crate) fn kernel_function(&self, handle: u64, context: u64) -> Result<u64, CUresult> {
        let kernel = self.kernel(handle)?;
        let module = self.library_module_in(kernel.library, context)?;
        let function = self.module_function(module, &kernel.entry.name.to_string_lossy())?;
        if let Some(maximum) = kernel.dynamic_shared_bytes_max {
            let mut tables = self.tables.lock();
            // A value set for the function itself takes precedence.
            if let Some(function) = tables.functions.get_mut(&function)
                && !function.is_maximum_set
            {
                function.dynamic_shared_bytes_max = maximum;
            }
        }
        Ok(function)
    }

    pub(crate) fn kernel_attribute(
        &self,
        handle: u64,
        attribute: CUfunction_attribute,
    ) -> Result<i32, CUresult> {
        let function = on_device(&self.kernel(handle)?);
        attribute_of(self.device_of(function.context), &function, attribute)
    }

    pub(crate) fn set_kernel_attribute(
        &self,
        handle: u64,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Result<(), CUresult> {
        let function = on_device(&self.kernel(handle)?);
        check_settable(
            self.device_of(function.context),
            &function,
            attribute,
            value,
        )?;
        if attribute == CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES {
            self.set_kernel_maximum(handle, value as u32)?;
        }
        Ok(())
    }

    pub(crate) fn set_kernel_maximum(&self, handle: u64, bytes: u32) -> Result<(), CUresult> {
        let mut tables = self.tables.lock();
        let kernel = tables.libraries.kernels.get_mut(&handle);
        kernel
            .ok_or(CUresult::INVALID_HANDLE)?
            .dynamic_shared_bytes_max = Some(bytes);
        Ok(())
    }
}

/// A kernel as a function without a context.
pub(crate) fn on_device(kernel: &LibraryKernel) -> Function {
    Function {
        context: 0,
        module: 0,
        name: Arc::clone(&kernel.entry.name),
        kernel: Arc::clone(&kernel.entry.kernel),
        traits: Arc::clone(&kernel.entry.traits),
        dynamic_shared_bytes_max: kernel
            .dynamic_shared_bytes_max
            .unwrap_or(SHARED_BYTES_DEFAULT),
        is_maximum_set: false,
    }
}

fn kernel_of(tables: &mut Tables, library: u64, entry: Entry) -> Result<u64, CUresult> {
    let name = entry.name.to_string_lossy().into_owned();
    if let Some(&kernel) = tables.libraries.library(library)?.kernels.get(&name) {
        return Ok(kernel);
    }
    let handle = tables.new_code_handle();
    tables.libraries.kernels.insert(
        handle,
        LibraryKernel {
            library,
            entry,
            dynamic_shared_bytes_max: None,
        },
    );
    if let Some(library) = tables.libraries.libraries.get_mut(&library) {
        library.kernels.insert(name, handle);
    }
    Ok(handle)
}
