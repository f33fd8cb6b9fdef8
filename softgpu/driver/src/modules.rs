//! Modules: images in a context, with their functions and variables.

use std::collections::HashMap;
use std::sync::Arc;

use abi::types::CUresult;
use softgpu::wire::MemoryRequest;

use crate::driver::Driver;
use crate::functions::SHARED_BYTES_DEFAULT;
use crate::images::{Entry, Image, LoadError};
use crate::link::device_of_address;
use crate::raw::Bytes;
use crate::tables::{BlockKind, Function, Module, Tables};

impl Driver {
    pub(crate) fn load_module(&self, image: Bytes) -> Result<u64, LoadError> {
        let (context, _) = self.current()?;
        let image = self.image_at(image)?;
        Ok(self.keep_module(context, Arc::new(image), None))
    }

    pub(crate) fn load_module_file(&self, path: &str) -> Result<u64, LoadError> {
        let (context, _) = self.current()?;
        let image = self.image_in(path)?;
        Ok(self.keep_module(context, Arc::new(image), None))
    }

    pub(crate) fn keep_module(&self, context: u64, image: Arc<Image>, library: Option<u64>) -> u64 {
        let module = Module {
            context,
            image,
            library,
            functions: HashMap::new(),
            globals: HashMap::new(),
        };
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        tables.modules.insert(handle, module);
        handle
    }

    /// Unloads a module that the application loaded; a library's modules end with the library.
    pub(crate) fn unload_module(&self, handle: u64) -> Result<(), CUresult> {
        let library = {
            let tables = self.tables.lock();
            let module = tables.modules.get(&handle);
            module.ok_or(CUresult::INVALID_HANDLE)?.library
        };
        if library.is_some() {
            return Err(CUresult::NOT_PERMITTED);
        }
        self.forget_module(handle);
        Ok(())
    }

    pub(crate) fn forget_module(&self, handle: u64) {
        let globals = {
            let mut tables = self.tables.lock();
            let Some(module) = tables.modules.remove(&handle) else {
                return;
            };
            for function in module.functions.values() {
                tables.functions.remove(function);
                tables.end_code_handle(*function);
            }
            module.globals
        };
        for address in globals.into_values() {
            // A variable that was freed with its context is not there any more.
            let _ = self.ask(
                device_of_address(address),
                MemoryRequest::FreeVariable { address },
            );
            self.tables.lock().device.remove(address);
        }
    }

    /// A kernel of a module; each call returns the same handle.
    pub(crate) fn module_function(&self, handle: u64, name: &str) -> Result<u64, CUresult> {
        let mut tables = self.tables.lock();
        let entry = {
            let module = module(&tables, handle)?;
            module
                .image
                .entry(name)
                .cloned()
                .ok_or(CUresult::NOT_FOUND)?
        };
        function_of(&mut tables, handle, &entry)
    }

    pub(crate) fn module_function_count(&self, handle: u64) -> Result<usize, CUresult> {
        Ok(module(&self.tables.lock(), handle)?.image.entries.len())
    }

    pub(crate) fn module_functions(&self, handle: u64, count: usize) -> Result<Vec<u64>, CUresult> {
        let mut tables = self.tables.lock();
        let image = Arc::clone(&module(&tables, handle)?.image);
        let first = image.entries.iter().take(count);
        first
            .map(|entry| function_of(&mut tables, handle, entry))
            .collect()
    }

    /// Address and size of a variable, allocated at the first query; always initially zero.
    pub(crate) fn module_global(&self, handle: u64, name: &str) -> Result<(u64, u64), CUresult> {
        let (context, bytes, known) = {
            let tables = self.tables.lock();
            let module = module(&tables, handle)?;
            let global = module.image.global(name).ok_or(CUresult::NOT_FOUND)?;
            (
                module.context,
                global.bytes,
                module.globals.get(name).copied(),
            )
        };
        if let Some(address) = known {
            return Ok((address, bytes));
        }
        let address = self.allocate_global(context, bytes)?;
        let mut tables = self.tables.lock();
        let kept = tables
            .modules
            .get_mut(&handle)
            .map(|module| *module.globals.entry(name.to_owned()).or_insert(address));
        drop(tables);
        if kept != Some(address) {
            // Another thread was first, or the module was unloaded.
            let _ = self.ask(
                device_of_address(address),
                MemoryRequest::FreeVariable { address },
            );
            self.tables.lock().device.remove(address);
        }
        Ok((kept.ok_or(CUresult::INVALID_HANDLE)?, bytes))
    }

    fn allocate_global(&self, context: u64, bytes: u64) -> Result<u64, CUresult> {
        let found = self.context(context)?;
        let bytes = bytes.max(1);
        let request = MemoryRequest::AllocateVariable {
            context: found.local_slot(),
            bytes,
        };
        let [address, ..] = self.ask(found.device, request)?;
        self.note_block(address, bytes, context, BlockKind::Variable);
        Ok(address)
    }
}

fn module(tables: &Tables, handle: u64) -> Result<&Module, CUresult> {
    tables.modules.get(&handle).ok_or(CUresult::INVALID_HANDLE)
}

fn function_of(tables: &mut Tables, module: u64, entry: &Entry) -> Result<u64, CUresult> {
    let name = entry.name.to_string_lossy().into_owned();
    let found = tables
        .modules
        .get(&module)
        .ok_or(CUresult::INVALID_HANDLE)?;
    if let Some(&function) = found.functions.get(&name) {
        return Ok(function);
    }
    let function = Function {
        context: found.context,
        module,
        name: Arc::clone(&entry.name),
        kernel: Arc::clone(&entry.kernel),
        traits: Arc::clone(&entry.traits),
        dynamic_shared_bytes_max: SHARED_BYTES_DEFAULT,
        is_maximum_set: false,
    };
    let handle = tables.new_code_handle();
    tables.functions.insert(handle, function);
    if let Some(module) = tables.modules.get_mut(&module) {
        module.functions.insert(name, handle);
    }
    Ok(handle)
}
