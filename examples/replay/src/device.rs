//! The driver calls of a replay, through cudarc: kernels, buffers, one request, and the check. The
//! software GPU loads a trace as it is; others run synthetic kernels ([`crate::synthetic`]).

#![expect(unsafe_code, reason = "cudarc's driver calls")]

use std::ffi::{CString, c_void};

use anyhow::{Context, Result, ensure};
use cudarc::driver::result;
use cudarc::driver::sys::{
    self, CUdevice, CUdevice_attribute, CUdeviceptr, CUfunction, CUfunction_attribute, CUmodule,
    CUstream,
};
use profiler::{Trace, TraceKernel};
use softgpu::module_image::{ImageKernel, write_image};

use crate::Options;
use crate::calibrate::{Calibration, Gpu};
use crate::synthetic::Synthetic;

/// Elements of the check vectors. Small, so that a check disturbs little.
const CHECK_ELEMENTS: usize = 256;
const CHECK_BLOCK: u32 = 256;
/// After this many checks the vector restarts at zero, so that its integers stay exact in f32.
const CHECKS_PER_ROUND: u64 = 1000;

/// Non-blocking streams of cuDNN 9 in PyTorch 2.11 (H200, 2026-11-26); cuBLAS adds a blocking one.
const NON_BLOCKING_STREAMS: u32 = 16;

#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) latencies_ns: Vec<u64>,
    /// When each should have begun, ns of the clock.
    pub(crate) arrived_ns: Vec<u64>,
    pub(crate) started_ns: u64,
    /// From the start to the last completion, ns.
    pub(crate) elapsed_ns: u64,
    pub(crate) launches: u64,
    /// Bytes copied to the device.
    pub copied_h2d_bytes: u64,
    /// Bytes copied back.
    pub copied_d2h_bytes: u64,
    pub(crate) checks: u64,
    pub(crate) checks_wrong: u64,
    /// Launches counted by the GPU, where its kernels count.
    pub(crate) launches_told: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Device {
    kernels: Kernels,
    stream: CUstream,
    input: Vec<u8>,
    output: Vec<u8>,
    input_on_device: CUdeviceptr,
    output_on_device: CUdeviceptr,
    check: Check,
    check_every: usize,
    launches: u64,
    copied_h2d_bytes: u64,
    copied_d2h_bytes: u64,
}

#[derive(Debug)]
enum Kernels {
    Image(CUmodule, Vec<CUfunction>),
    /// Calibrated ones, with the work of each.
    Synthetic(Box<Synthetic>, Vec<u64>),
}

/// `y += 1 · x` with `x[i] = i + 1`: after n checks `y[i]` must be `n · (i + 1)`, exactly.
#[derive(Debug)]
struct Check {
    function: CUfunction,
    x: CUdeviceptr,
    y: CUdeviceptr,
    /// Launches since `y` was last zero.
    in_round: u64,
    launches: u64,
    done: u64,
    wrong: u64,
}

fn make_library_streams() -> Result<()> {
    for _ in 0..NON_BLOCKING_STREAMS {
        result::stream::create(result::stream::StreamKind::NonBlocking)
            .context("cuStreamCreate")?;
    }
    result::stream::create(result::stream::StreamKind::Default).context("cuStreamCreate")?;
    Ok(())
}

impl Device {
    /// Opens device 0, loads the trace's kernels and allocates the buffers. With a calibration the
    /// kernels are the synthetic ones of a calibrated trace. Errors: any driver call that fails,
    /// with its purpose; a calibration of another GPU.
    pub(crate) fn open(
        trace: &Trace,
        calibration: Option<&Calibration>,
        options: &Options,
    ) -> Result<Self> {
        let device = open_first()?;
        if options.library_streams {
            make_library_streams()?;
        }
        let (kernels, check) = match calibration {
            None => {
                let (module, functions) = load(trace)?;
                (
                    Kernels::Image(module, functions),
                    function(module, "saxpy")?,
                )
            }
            Some(calibration) => {
                let here = describe(device)?;
                let there = &calibration.gpu;
                ensure!(
                    here.uuid == there.uuid,
                    "the calibration is for {} ({}), this GPU is {} ({}); calibrate again",
                    there.name,
                    there.uuid,
                    here.name,
                    here.uuid
                );
                let synthetic = Synthetic::load(trace, device)?;
                let check = synthetic.check_kernel();
                let work = calibration.kernels.iter().map(|kernel| kernel.work);
                (
                    Kernels::Synthetic(Box::new(synthetic), work.collect()),
                    check,
                )
            }
        };
        let allocate = |bytes: usize| {
            // SAFETY: a context is current.
            unsafe { result::malloc_sync(bytes.max(1)) }
                .with_context(|| format!("allocating {bytes} bytes"))
        };
        let mut this = Self {
            kernels,
            stream: std::ptr::null_mut(),
            input: (0..options.input_bytes).map(|i| i as u8).collect(),
            output: vec![0; options.output_bytes],
            input_on_device: allocate(options.input_bytes)?,
            output_on_device: allocate(options.output_bytes)?,
            check: Check {
                function: check,
                x: allocate(CHECK_ELEMENTS * size_of::<f32>())?,
                y: allocate(CHECK_ELEMENTS * size_of::<f32>())?,
                in_round: 0,
                launches: 0,
                done: 0,
                wrong: 0,
            },
            check_every: options.check_every,
            launches: 0,
            copied_h2d_bytes: 0,
            copied_d2h_bytes: 0,
        };
        let x: Vec<f32> = (1..=CHECK_ELEMENTS).map(|i| i as f32).collect();
        this.copy_in_sync(this.check.x, &x)?;
        this.copy_in_sync(this.check.y, &[0.0; CHECK_ELEMENTS])?;
        Ok(this)
    }

    /// One request, from the first copy to the synchronisation, and its checks. Errors: any driver
    /// call that fails. A wrong result is counted, not an error.
    pub(crate) fn request(&mut self, trace: &Trace) -> Result<()> {
        // SAFETY: the buffer is as long as the allocation, and untouched until synchronised below.
        unsafe {
            result::memcpy_htod_async(self.input_on_device, &self.input, self.stream)
                .context("copying the input")?;
        }
        self.copied_h2d_bytes += self.input.len() as u64;
        let mut checked = false;
        for (index, &kernel) in trace.launches.iter().enumerate() {
            let kernel = kernel as usize;
            self.launch(kernel, &trace.kernels[kernel])?;
            if self.check_every != 0 && index % self.check_every == 0 {
                self.launch_check()?;
                checked = true;
            }
        }
        // SAFETY: as above.
        unsafe {
            result::memcpy_dtoh_async(&mut self.output, self.output_on_device, self.stream)
                .context("copying the output")?;
            result::stream::synchronize(self.stream).context("cuStreamSynchronize")?;
        }
        self.copied_d2h_bytes += self.output.len() as u64;
        if checked { self.compare() } else { Ok(()) }
    }

    /// The counts so far, with the caller's latencies. Asks counting kernels. Errors: the driver's.
    pub(crate) fn replayed(
        &mut self,
        latencies_ns: Vec<u64>,
        arrived_ns: Vec<u64>,
        [started_ns, end_ns]: [u64; 2],
    ) -> Result<Replayed> {
        let told = match &self.kernels {
            Kernels::Image(..) => None,
            Kernels::Synthetic(synthetic, _) => Some(synthetic.told()?),
        };
        if let Some(told) = told {
            self.copied_d2h_bytes += told.bytes;
            self.check.done += told.checks;
            self.check.wrong += told.wrong;
        }
        Ok(Replayed {
            // The check kernel counts in its vector, which was compared.
            launches_told: told.map(|told| told.launches + self.check.launches),
            latencies_ns,
            arrived_ns,
            started_ns,
            elapsed_ns: end_ns - started_ns,
            launches: self.launches,
            copied_h2d_bytes: self.copied_h2d_bytes,
            copied_d2h_bytes: self.copied_d2h_bytes,
            checks: self.check.done,
            checks_wrong: self.check.wrong,
        })
    }

    /// Frees all allocations. Errors no longer matter.
    pub(crate) fn close(self) {
        for pointer in [
            self.input_on_device,
            self.output_on_device,
            self.check.x,
            self.check.y,
        ] {
            // SAFETY: allocated in `open`, and nothing is in flight after the last request.
            let _ = unsafe { result::free_sync(pointer) };
        }
        match self.kernels {
            // SAFETY: loaded in `open`; its functions are not used again.
            Kernels::Image(module, _) => drop(unsafe { result::module::unload(module) }),
            Kernels::Synthetic(synthetic, _) => synthetic.close(),
        }
    }

    fn launch(&mut self, index: usize, kernel: &TraceKernel) -> Result<()> {
        let function = match &mut self.kernels {
            Kernels::Image(_, functions) => functions[index],
            Kernels::Synthetic(synthetic, work) => {
                synthetic.launch(index, work[index], self.stream)?;
                self.launches += 1;
                return Ok(());
            }
        };
        let [gx, gy, gz] = kernel.grid;
        let [bx, by, bz] = kernel.block;
        // SAFETY: the kernels of a trace take no parameters.
        unsafe {
            result::launch_kernel(
                function,
                (gx, gy, gz),
                (bx, by, bz),
                kernel.shared_bytes,
                self.stream,
                &mut [],
            )
        }
        .with_context(|| format!("launching {}", kernel.name))?;
        self.launches += 1;
        Ok(())
    }

    fn launch_check(&mut self) -> Result<()> {
        let (mut a, mut x, mut y) = (1.0f32, self.check.x, self.check.y);
        let mut n = CHECK_ELEMENTS as u32;
        let mut parameters = [
            (&raw mut a).cast::<c_void>(),
            (&raw mut x).cast(),
            (&raw mut y).cast(),
            (&raw mut n).cast(),
        ];
        // SAFETY: the parameters are saxpy's, in order, and both vectors have `n` elements.
        unsafe {
            result::launch_kernel(
                self.check.function,
                (1, 1, 1),
                (CHECK_BLOCK, 1, 1),
                0,
                self.stream,
                &mut parameters,
            )
        }
        .context("launching the check kernel")?;
        self.launches += 1;
        self.check.in_round += 1;
        self.check.launches += 1;
        Ok(())
    }

    fn compare(&mut self) -> Result<()> {
        let mut y = [0.0f32; CHECK_ELEMENTS];
        // SAFETY: `y` is as long as the vector on the device.
        unsafe { result::memcpy_dtoh_sync(&mut y, self.check.y) }.context("copying the check")?;
        self.copied_d2h_bytes += size_of_val(&y) as u64;
        let expected = |i: usize| (self.check.in_round * (i as u64 + 1)) as f32;
        let right = y.iter().enumerate().all(|(i, &value)| value == expected(i));
        self.check.done += 1;
        self.check.wrong += u64::from(!right);
        if self.check.in_round >= CHECKS_PER_ROUND {
            self.check.in_round = 0;
            self.copy_in_sync(self.check.y, &[0.0; CHECK_ELEMENTS])?;
        }
        Ok(())
    }

    fn copy_in_sync(&mut self, to: CUdeviceptr, from: &[f32]) -> Result<()> {
        // SAFETY: every vector on the device has `CHECK_ELEMENTS` elements, as `from` has.
        unsafe { result::memcpy_htod_sync(to, from) }.context("copying a check vector")?;
        self.copied_h2d_bytes += size_of_val(from) as u64;
        Ok(())
    }
}

/// Measures the launch parameters of a trace's kernels on device 0. Errors: the driver's.
pub(crate) fn calibrate(trace: &Trace) -> Result<Calibration> {
    let device = open_first()?;
    let mut synthetic = Synthetic::load(trace, device)?;
    let calibration = Calibration::measure(trace, describe(device)?, &mut synthetic)?;
    let told = synthetic.told()?;
    ensure!(
        told.wrong == 0,
        "{} of {} checks of the synthetic kernels failed: their results are wrong",
        told.wrong,
        told.checks
    );
    synthetic.close();
    Ok(calibration)
}

fn open_first() -> Result<CUdevice> {
    // SAFETY: the probe loads the library and resolves no symbols.
    let present = unsafe { sys::is_culib_present() };
    ensure!(
        present,
        "cannot find libcuda.so.1: neither an NVIDIA driver nor the software GPU is installed"
    );
    result::init().context("cuInit")?;
    let device = result::device::get(0).context("cuDeviceGet")?;
    // SAFETY: `device` is a device, and the context is made current before any use.
    unsafe {
        let context = result::primary_ctx::retain(device).context("retaining the context")?;
        result::ctx::set_current(context).context("cuCtxSetCurrent")?;
    }
    Ok(device)
}

fn describe(device: CUdevice) -> Result<Gpu> {
    let sms = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    // SAFETY: a device from the driver.
    let sms = unsafe { result::device::get_attribute(device, sms) }.context("SMs")?;
    let mut cuda = 0;
    // SAFETY: writes one int.
    unsafe { sys::cuDriverGetVersion(&raw mut cuda) }
        .result()
        .context("cuDriverGetVersion")?;
    let uuid = result::device::get_uuid(device).context("cuDeviceGetUuid")?;
    Ok(Gpu {
        name: result::device::get_name(device).context("cuDeviceGetName")?,
        uuid: protocol::hello::format_uuid(uuid.bytes.map(|byte| byte as u8)),
        cuda: u32::try_from(cuda)?,
        sms: u32::try_from(sms)?,
    })
}

fn load(trace: &Trace) -> Result<(CUmodule, Vec<CUfunction>)> {
    let kernels: Vec<ImageKernel> = trace
        .kernels
        .iter()
        .map(|k| ImageKernel {
            name: k.name.clone(),
            block_ns: k.block_ns,
            registers_per_thread: k.registers,
            // The trace's shared memory is dynamic: each launch passes it.
            shared_bytes_per_block: 0,
            compute_demand: f64::from(k.compute_demand),
            bandwidth_demand: f64::from(k.bandwidth_demand),
        })
        .collect();
    let image = CString::new(write_image(&kernels)).context("a kernel name contains NUL")?;
    // SAFETY: the image is NUL-terminated and outlives the call.
    let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.context(
        "cuModuleLoadData refused the trace's kernels: only the software GPU can replay a trace directly; on a real GPU \
         calibrate it first (--calibrate FOLDER), then replay the result (--calibrated FOLDER)",
    )?;
    let functions = trace
        .kernels
        .iter()
        .map(|kernel| {
            let function = function(module, &kernel.name)?;
            // SAFETY: a function of the module just loaded.
            unsafe {
                result::function::set_function_attribute(
                    function,
                    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    i32::try_from(kernel.shared_bytes)?,
                )
            }
            .with_context(|| format!("setting {} bytes of shared memory", kernel.shared_bytes))?;
            Ok(function)
        })
        .collect::<Result<_>>()?;
    Ok((module, functions))
}

fn function(module: CUmodule, name: &str) -> Result<CUfunction> {
    // SAFETY: the module was loaded and not unloaded.
    unsafe { result::module::get_function(module, CString::new(name)?) }
        .with_context(|| format!("no kernel {name} in the module"))
}

#[cfg(test)]
mod tests {
    use profiler::{ResourceClass, shape_for};
    use softgpu::{TraceClass, shape_of_trace_entry};

    /// The rule stands in two crates that do not know each other: the reader of traces and the
    /// device model. They must agree on every entry.
    #[test]
    fn traces_and_the_device_model_agree_on_the_shape_of_an_entry() {
        let classes = [
            (ResourceClass::Compute, TraceClass::Compute),
            (ResourceClass::Memory, TraceClass::Memory),
            (ResourceClass::Unknown, TraceClass::Unknown),
        ];
        for (ours, theirs) in classes {
            for sms in [1, 25, 32, 79, 80, 81, 98, 392, 6_272] {
                for duration_ns in [1_000, 40_480, 1_238_000] {
                    let trace = shape_for(ours, sms, duration_ns);
                    let model = shape_of_trace_entry(theirs, sms, duration_ns);
                    let blocks: u64 = trace.grid.iter().map(|&n| u64::from(n)).product();
                    let threads: u32 = trace.block.iter().product();
                    assert_eq!(blocks, model.grid_blocks, "{ours} {sms}");
                    assert_eq!(threads, model.threads_per_block);
                    assert_eq!(trace.registers, model.registers_per_thread);
                    assert_eq!(trace.shared_bytes, model.shared_bytes_per_block);
                    assert_eq!(trace.block_ns, model.block_ns);
                    assert!((f64::from(trace.compute_demand) - model.compute_demand).abs() < 1e-6);
                    let demand = f64::from(trace.bandwidth_demand);
                    assert!((demand - model.bandwidth_demand).abs() < 1e-6);
                }
            }
        }
    }
}
