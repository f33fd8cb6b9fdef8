//! Functions: names, requirements and occupancy. A library's kernel is accepted wherever CUDA
//! accepts it as a function (`crate::libraries`), as its function in the current context.

use abi::types::{CUfunction_attribute, CUresult};
use softgpu::code::CodeParam;
use softgpu::{Device, KernelShape};

use crate::driver::Driver;
use crate::tables::{Function, Kernel};
use crate::thread;

/// Most dynamic shared memory of a block without opting in (CUDA C++ Programming Guide, 7.x).
pub(crate) const SHARED_BYTES_DEFAULT: u32 = 48 << 10;
/// Registers of the built-in kernels, as `softgpu::Builtin` charges them.
const REGISTERS_BUILTIN: u32 = 32;
const WARP_THREADS: u32 = 32;
const THREADS_MAX: u32 = 1024;

impl Driver {
    /// The function of a handle of a function, or of a kernel in the current context.
    pub(crate) fn function(&self, handle: u64) -> Result<Function, CUresult> {
        let known = self.tables.lock().functions.get(&handle).cloned();
        if let Some(function) = known {
            return Ok(function);
        }
        let context = thread::current().ok_or(CUresult::INVALID_HANDLE)?;
        self.launchable(handle, context)
    }

    /// The function that a handle of a function or a kernel launches in a context.
    pub(crate) fn launchable(&self, handle: u64, context: u64) -> Result<Function, CUresult> {
        let known = self.tables.lock().functions.get(&handle).cloned();
        let function = match known {
            Some(function) => function,
            None => {
                let function = self.kernel_function(handle, context)?;
                let known = self.tables.lock().functions.get(&function).cloned();
                known.ok_or(CUresult::INVALID_HANDLE)?
            }
        };
        if function.context != context {
            return Err(CUresult::INVALID_HANDLE);
        }
        Ok(function)
    }

    pub(crate) fn function_attribute(
        &self,
        handle: u64,
        attribute: CUfunction_attribute,
    ) -> Result<i32, CUresult> {
        let function = self.function(handle)?;
        attribute_of(self.device_of(function.context), &function, attribute)
    }

    pub(crate) fn set_function_attribute(
        &self,
        handle: u64,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Result<(), CUresult> {
        let known = self.function(handle)?;
        check_settable(self.device_of(known.context), &known, attribute, value)?;
        if attribute != CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES {
            return Ok(());
        }
        let mut tables = self.tables.lock();
        if let Some(function) = tables.functions.get_mut(&handle) {
            function.dynamic_shared_bytes_max = value as u32;
            function.is_maximum_set = true;
            return Ok(());
        }
        drop(tables);
        // A kernel instead of a function: the value applies to all of its functions.
        self.set_kernel_maximum(handle, value as u32)
    }

    pub(crate) fn occupancy(
        &self,
        handle: u64,
        threads: u32,
        dynamic_bytes: u64,
    ) -> Result<u32, CUresult> {
        let function = self.function(handle)?;
        let dynamic_bytes = u32::try_from(dynamic_bytes).map_err(|_| CUresult::INVALID_VALUE)?;
        let device = self.device_of(function.context);
        blocks_per_sm(device, &function, threads, dynamic_bytes)
    }

    /// The block size that keeps most threads resident, and the fewest blocks of it that fill the
    /// device. `dynamic_bytes` returns the need of a block by its threads.
    pub(crate) fn best_block(
        &self,
        handle: u64,
        limit: u32,
        dynamic_bytes: impl Fn(u32) -> u64,
    ) -> Result<(u32, u32), CUresult> {
        let function = self.function(handle)?;
        let device = self.device_of(function.context);
        let most = threads_max(device, &function);
        let limit = if limit == 0 { most } else { limit.min(most) };
        let mut best = (0, 0);
        let sizes = (1..=limit.div_ceil(WARP_THREADS))
            .rev()
            .map(|warps| (warps * WARP_THREADS).min(limit));
        for threads in sizes {
            let Ok(dynamic_bytes) = u32::try_from(dynamic_bytes(threads)) else {
                continue;
            };
            let blocks = blocks_per_sm(device, &function, threads, dynamic_bytes)?;
            // The larger block wins if both keep the same number of threads.
            if blocks * threads > best.0 * best.1 {
                best = (threads, blocks);
            }
        }
        let (threads, blocks) = best;
        Ok((threads, blocks * device.sms))
    }

    pub(crate) fn dynamic_bytes_available(
        &self,
        handle: u64,
        blocks: u32,
        threads: u32,
    ) -> Result<u64, CUresult> {
        let function = self.function(handle)?;
        let device = self.device_of(function.context);
        let fits =
            |bytes: u32| blocks_per_sm(device, &function, threads, bytes).map(|fit| fit >= blocks);
        if blocks == 0 || !fits(0)? {
            return Err(CUresult::INVALID_VALUE);
        }
        let (mut low, mut high) = (0, device.shared_bytes_per_block_optin);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle)? {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        Ok(low.into())
    }
}

/// An attribute of a function, or of a kernel on a device.
pub(crate) fn attribute_of(
    device: &Device,
    function: &Function,
    attribute: CUfunction_attribute,
) -> Result<i32, CUresult> {
    use CUfunction_attribute as A;
    let capability = device.compute_capability;
    let number = match attribute {
        A::MAX_THREADS_PER_BLOCK => threads_max(device, function),
        A::SHARED_SIZE_BYTES => static_shared_bytes(function),
        A::NUM_REGS => match &*function.kernel {
            Kernel::Computes(_) => REGISTERS_BUILTIN,
            Kernel::TakesTime(kernel) => kernel.registers_per_thread,
        },
        A::PTX_VERSION | A::BINARY_VERSION => capability.major * 10 + capability.minor,
        A::MAX_DYNAMIC_SHARED_SIZE_BYTES => function.dynamic_shared_bytes_max,
        A::PREFERRED_SHARED_MEMORY_CARVEOUT => return Ok(-1),
        A::CONST_SIZE_BYTES => function.traits.constant_bytes,
        A::LOCAL_SIZE_BYTES => function.traits.local_bytes,
        A::CACHE_MODE_CA
        | A::CLUSTER_SIZE_MUST_BE_SET
        | A::REQUIRED_CLUSTER_WIDTH
        | A::REQUIRED_CLUSTER_HEIGHT
        | A::REQUIRED_CLUSTER_DEPTH
        | A::NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        | A::CLUSTER_SCHEDULING_POLICY_PREFERENCE => 0,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    Ok(i32::try_from(number).unwrap_or(i32::MAX))
}

pub(crate) fn check_settable(
    device: &Device,
    function: &Function,
    attribute: CUfunction_attribute,
    value: i32,
) -> Result<(), CUresult> {
    match attribute {
        CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let most = device
                .shared_bytes_per_block_optin
                .saturating_sub(static_shared_bytes(function));
            let asked = u32::try_from(value).map_err(|_| CUresult::INVALID_VALUE)?;
            (asked <= most).then_some(()).ok_or(CUresult::INVALID_VALUE)
        }
        // A hint, ignored because the model always has the largest configuration.
        CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => Ok(()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn param_of(function: &Function, index: usize) -> Result<CodeParam, CUresult> {
    let param = function.traits.params.get(index).copied();
    param.ok_or(CUresult::INVALID_VALUE)
}

fn static_shared_bytes(function: &Function) -> u32 {
    match &*function.kernel {
        Kernel::Computes(_) => 0,
        Kernel::TakesTime(kernel) => kernel.shared_bytes_per_block,
    }
}

fn blocks_per_sm(
    device: &Device,
    function: &Function,
    threads: u32,
    dynamic_bytes: u32,
) -> Result<u32, CUresult> {
    if function.traits.threads_max.is_some_and(|max| threads > max) {
        return Ok(0);
    }
    let shape = static_shape(function, threads, dynamic_bytes);
    match shape.check(device) {
        Ok(()) => Ok(shape.blocks_per_sm(device)),
        Err(softgpu::Error::LaunchTooLarge { .. }) => Ok(0),
        Err(_) => Err(CUresult::INVALID_VALUE),
    }
}

/// Threads of the largest block that fits.
fn threads_max(device: &Device, function: &Function) -> u32 {
    let fits = |&threads: &u32| static_shape(function, threads, 0).check(device).is_ok();
    let by_device = (1..=THREADS_MAX / WARP_THREADS)
        .rev()
        .map(|warps| warps * WARP_THREADS)
        .find(fits)
        .unwrap_or(0);
    by_device.min(function.traits.threads_max.unwrap_or(by_device))
}

/// One block of a function, without a launch's additions.
pub(crate) fn static_shape(
    function: &Function,
    threads: u32,
    dynamic_shared_bytes: u32,
) -> KernelShape {
    let shape = KernelShape {
        grid_blocks: 1,
        threads_per_block: threads,
        registers_per_thread: REGISTERS_BUILTIN,
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
