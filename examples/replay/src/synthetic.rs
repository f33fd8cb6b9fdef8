//! Synthetic kernels on a GPU: loaded, launched, timed, and verified. [`crate::ptx`] has the text
//! and its parameters. The GPU itself counts: its counts after the last launch are compared with
//! the launches, and every word of the buffer with its initial value.

#![expect(unsafe_code, reason = "cudarc's driver calls")]

use std::ffi::{CString, c_void};

use anyhow::{Context, Result};
use cudarc::driver::result;
use cudarc::driver::sys::{
    self, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent_flags, CUfunction,
    CUfunction_attribute, CUmodule, CUstream,
};
use profiler::Trace;

use crate::ptx::{self, Body};

#[derive(Debug)]
pub(crate) struct Synthetic {
    module: CUmodule,
    kernels: Vec<Kernel>,
    check: CUfunction,
    results: CUdeviceptr,
    buffer: CUdeviceptr,
    units: u32,
    /// Where the next launch begins in the buffer.
    first: u32,
    sums: u64,
    launches: u64,
}

#[derive(Debug)]
struct Kernel {
    function: CUfunction,
    body: Body,
    blocks: u32,
    shared_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) launches: u64,
    /// Comparisons: the sums, the launches, the threads, the buffer.
    pub(crate) checks: u64,
    pub(crate) wrong: u64,
    pub(crate) bytes: u64,
}

/// Bytes of a unit of the buffer: what a thread loads at once.
const UNIT_BYTES: u64 = 16;
/// Of the results: sums, launches, wrong threads.
const RESULTS: usize = 3;
/// The least buffer. Larger than the L2 cache of every GPU before Hopper and Ada.
const BUFFER_BYTES_MIN: u64 = 16 << 20;
/// The least size of the buffer in L2 caches, so that little of it is cached when it comes round.
const CACHES: u64 = 2;

impl Synthetic {
    /// Loads the trace's kernels and allocates the buffer. A context of `device` must be current.
    /// Errors: a driver call that fails, with its purpose.
    pub(crate) fn load(trace: &Trace, device: CUdevice) -> Result<Self> {
        let text = CString::new(ptx::module(trace)).context("the PTX contains NUL")?;
        // SAFETY: the text is NUL-terminated and outlives the call.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }
            .context("cuModuleLoadData refused the PTX of the synthetic kernels")?;
        let kernels = trace.kernels.iter().enumerate().map(|(index, kernel)| {
            let body = Body::of(index, kernel);
            Ok(Kernel {
                function: function(module, &body.entry)?,
                body,
                blocks: kernel.grid.iter().product(),
                shared_bytes: kernel.shared_bytes,
            })
        });
        let l2 = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
        // SAFETY: a device from the driver.
        let l2_bytes = unsafe { result::device::get_attribute(device, l2) }
            .context("reading the size of the L2 cache")?;
        let bytes = (CACHES * u64::try_from(l2_bytes).unwrap_or(0))
            .max(BUFFER_BYTES_MIN)
            .next_power_of_two();
        let this = Self {
            module,
            kernels: kernels.collect::<Result<_>>()?,
            check: function(module, ptx::CHECK_ENTRY)?,
            results: allocate(RESULTS * size_of::<u64>())?,
            buffer: allocate(usize::try_from(bytes)?)?,
            units: u32::try_from(bytes / UNIT_BYTES)?,
            first: 0,
            sums: 0,
            launches: 0,
        };
        // SAFETY: both were just allocated with that many words of 4 bytes.
        unsafe {
            sys::cuMemsetD32_v2(this.results, 0, RESULTS * 2).result()?;
            sys::cuMemsetD32_v2(this.buffer, 1, this.words()).result()?;
        }
        for index in 0..this.kernels.len() {
            this.allow_shared_bytes(index)?;
        }
        Ok(this)
    }

    pub(crate) fn check_kernel(&self) -> CUfunction {
        self.check
    }

    pub(crate) fn buffer_bytes(&self) -> u64 {
        u64::from(self.units) * UNIT_BYTES
    }

    /// A kernel's name on the GPU, its sum per loop, blocks, and dynamic shared memory.
    pub(crate) fn shape(&self, index: usize) -> (&str, u32, u32, u32) {
        let kernel = &self.kernels[index];
        let per_loop = kernel.body.per_loop();
        (
            &kernel.body.entry,
            per_loop,
            kernel.blocks,
            kernel.shared_bytes,
        )
    }

    /// Launches a kernel with `work` loops, shared out among its blocks. Errors: the driver's.
    pub(crate) fn launch(&mut self, index: usize, work: u64, stream: CUstream) -> Result<()> {
        let kernel = &self.kernels[index];
        let (mut results, mut buffer) = (self.results, self.buffer);
        let mut loops = u32::try_from(work / u64::from(kernel.blocks))?;
        let mut more = (work % u64::from(kernel.blocks)) as u32;
        let (mut per_loop, mut blocks) = (kernel.body.per_loop(), kernel.blocks);
        let (mut mask, mut first) = (self.units - 1, self.first);
        let mut parameters = [
            (&raw mut results).cast::<c_void>(),
            (&raw mut buffer).cast(),
            (&raw mut loops).cast(),
            (&raw mut more).cast(),
            (&raw mut per_loop).cast(),
            (&raw mut blocks).cast(),
            (&raw mut mask).cast(),
            (&raw mut first).cast(),
        ];
        // SAFETY: the parameters are those that `ptx` documents, in order; the results have three
        // u64, and the mask keeps every access within the buffer.
        unsafe {
            result::launch_kernel(
                kernel.function,
                (kernel.blocks, 1, 1),
                (kernel.body.threads, 1, 1),
                kernel.shared_bytes,
                stream,
                &mut parameters,
            )
        }
        .with_context(|| format!("launching {}", kernel.body.entry))?;
        self.sums = self.sums.wrapping_add(work.wrapping_mul(per_loop.into()));
        self.launches += 1;
        let touched = blocks
            .wrapping_mul(kernel.body.threads)
            .wrapping_mul(loops + 1);
        self.first = self.first.wrapping_add(touched) & mask;
        Ok(())
    }

    /// Time of one of `count` launches in a row, device ns. Errors: the driver's.
    pub(crate) fn time_ns(&mut self, index: usize, work: u64, count: u32) -> Result<f64> {
        let stream = std::ptr::null_mut();
        let [begin, end] = [event()?, event()?];
        // SAFETY: events of the current context, on its default stream; destroyed after use.
        let ms = unsafe {
            result::event::record(begin, stream)?;
            for _ in 0..count {
                self.launch(index, work, stream)?;
            }
            result::event::record(end, stream)?;
            result::event::synchronize(end).context("timing a kernel")?;
            let ms = result::event::elapsed(begin, end)?;
            result::event::destroy(begin)?;
            result::event::destroy(end)?;
            ms
        };
        Ok(f64::from(ms) * 1e6 / f64::from(count.max(1)))
    }

    /// Limits a kernel's blocks on an SM to `want`, by requesting just enough more shared memory.
    /// Returns how many fit: fewer where the device offers less. Errors: the driver's.
    pub(crate) fn confine(&mut self, index: usize, want: u32) -> Result<u32> {
        if self.resident(index)? > want {
            let kernel = &self.kernels[index];
            let (blocks, threads) = (
                i32::try_from(want + 1)?,
                i32::try_from(kernel.body.threads)?,
            );
            let mut bytes = 0;
            // SAFETY: writes one usize; the function is of a module that is loaded.
            unsafe {
                sys::cuOccupancyAvailableDynamicSMemPerBlock(
                    &raw mut bytes,
                    kernel.function,
                    blocks,
                    threads,
                )
            }
            .result()
            .context("cuOccupancyAvailableDynamicSMemPerBlock")?;
            // With exactly this much one block more would still fit.
            let bytes = u32::try_from(bytes)?.saturating_add(1);
            self.kernels[index].shared_bytes = bytes.max(self.kernels[index].shared_bytes);
            self.allow_shared_bytes(index)?;
        }
        self.resident(index)
    }

    fn resident(&self, index: usize) -> Result<u32> {
        let kernel = &self.kernels[index];
        let threads = i32::try_from(kernel.body.threads)?;
        let (mut blocks, bytes) = (0, kernel.shared_bytes as usize);
        // SAFETY: writes one int; the function is of a module that is loaded.
        unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                kernel.function,
                threads,
                bytes,
            )
        }
        .result()
        .context("cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        Ok(u32::try_from(blocks)?)
    }

    fn allow_shared_bytes(&self, index: usize) -> Result<()> {
        let kernel = &self.kernels[index];
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = i32::try_from(kernel.shared_bytes)?;
        // SAFETY: a function of the module just loaded.
        unsafe { result::function::set_function_attribute(kernel.function, attribute, bytes) }
            .with_context(|| {
                format!(
                    "setting {bytes} bytes of shared memory for {}",
                    kernel.body.entry
                )
            })
    }

    /// Reads the GPU's counts, and the buffer. Nothing may be in flight. Errors: the driver's.
    /// Failed comparisons are counted, not an error.
    pub(crate) fn told(&self) -> Result<Told> {
        let mut results = [0u64; RESULTS];
        let mut words = vec![0u32; self.words()];
        // SAFETY: both are as long as the allocations.
        unsafe {
            result::memcpy_dtoh_sync(&mut results, self.results).context("copying the results")?;
            result::memcpy_dtoh_sync(&mut words, self.buffer).context("copying the buffer")?;
        }
        let [sums, launches, threads] = results;
        let right = [
            sums == self.sums,
            launches == self.launches,
            threads == 0,
            words.iter().all(|&word| word == 1),
        ];
        Ok(Told {
            launches,
            checks: right.len() as u64,
            wrong: right.iter().filter(|&&is_right| !is_right).count() as u64,
            bytes: (size_of_val(&results) + size_of_val(words.as_slice())) as u64,
        })
    }

    /// Frees everything. Errors no longer matter.
    pub(crate) fn close(self) {
        // SAFETY: allocated and loaded in `load`, not used again, and nothing is in flight.
        unsafe {
            let _ = result::free_sync(self.results);
            let _ = result::free_sync(self.buffer);
            let _ = result::module::unload(self.module);
        }
    }

    fn words(&self) -> usize {
        self.units as usize * (UNIT_BYTES as usize / size_of::<u32>())
    }
}

fn function(module: CUmodule, name: &str) -> Result<CUfunction> {
    // SAFETY: the module was loaded and not unloaded.
    unsafe { result::module::get_function(module, CString::new(name)?) }
        .with_context(|| format!("no kernel {name} in the module"))
}

fn allocate(bytes: usize) -> Result<CUdeviceptr> {
    // SAFETY: a context is current.
    unsafe { result::malloc_sync(bytes) }.with_context(|| format!("allocating {bytes} bytes"))
}

fn event() -> Result<sys::CUevent> {
    result::event::create(CUevent_flags::CU_EVENT_DEFAULT).context("cuEventCreate")
}
