//! Kernel launches: checked against the device as a driver does, then put on a stream.

use abi::types::{CUlaunchAttribute, CUlaunchAttributeID, CUresult};
use softgpu::wire::{PARAMS, PRIORITY_GREATEST, PRIORITY_LEAST, Work};
use softgpu::{Builtin, Error, KernelShape};

use crate::cost::SUBMIT_HOST_NS;
use crate::driver::Driver;
use crate::functions::static_shape;
use crate::graphs::Kind;
use crate::images::packed;
use crate::raw::{In, Params};
use crate::tables::{Function, Kernel, Stream};
use crate::trace::Traced;

/// Most attributes of one launch; there are fewer than 20 kinds.
const ATTRIBUTES_MAX: u32 = 64;
/// Limits of a grid and a block in each dimension (CUDA C++ Programming Guide).
const GRID_MAX: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
const BLOCK_MAX: [u32; 3] = [1024, 1024, 64];
const THREADS_MAX: u64 = 1024;

#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    /// Handle of a function, or of a kernel, which CUDA 12 accepts in its place.
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) options: Options,
}

#[derive(Clone, Copy)]
pub(crate) enum Arguments<'a> {
    /// The address of each, perhaps null.
    Each(Params),
    /// All of them, each at its offset.
    Packed(&'a [u8]),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) priority: Option<i32>,
    /// All blocks must be resident at once.
    pub(crate) is_cooperative: bool,
}

/// Decodes the attributes of `cuLaunchKernelEx`. Hints are ignored: the software GPU has no L2
/// windows and no domains, and runs kernels in order, which programmatic serialisation allows.
pub(crate) fn options(attributes: &In<CUlaunchAttribute>, count: u32) -> Result<Options, CUresult> {
    if count > ATTRIBUTES_MAX {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut options = Options::default();
    for index in 0..count as usize {
        let CUlaunchAttribute { id, value, .. } = attributes.at(index)?;
        match id {
            CUlaunchAttributeID::PRIORITY => {
                options.priority = Some(value.as_int().clamp(PRIORITY_GREATEST, PRIORITY_LEAST));
            }
            CUlaunchAttributeID::COOPERATIVE => options.is_cooperative = value.as_int() != 0,
            CUlaunchAttributeID::CLUSTER_DIMENSION => {
                if value.as_dimension() != [1, 1, 1] {
                    return Err(CUresult::NOT_SUPPORTED);
                }
            }
            CUlaunchAttributeID::IGNORE
            | CUlaunchAttributeID::ACCESS_POLICY_WINDOW
            | CUlaunchAttributeID::SYNCHRONIZATION_POLICY
            | CUlaunchAttributeID::CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | CUlaunchAttributeID::PROGRAMMATIC_STREAM_SERIALIZATION
            | CUlaunchAttributeID::MEM_SYNC_DOMAIN_MAP
            | CUlaunchAttributeID::MEM_SYNC_DOMAIN
            | CUlaunchAttributeID::PREFERRED_CLUSTER_DIMENSION
            | CUlaunchAttributeID::PREFERRED_SHARED_MEMORY_CARVEOUT => {}
            CUlaunchAttributeID::PROGRAMMATIC_EVENT
            | CUlaunchAttributeID::LAUNCH_COMPLETION_EVENT
            | CUlaunchAttributeID::DEVICE_UPDATABLE_KERNEL_NODE => {
                return Err(CUresult::NOT_SUPPORTED);
            }
            _ => return Err(CUresult::INVALID_VALUE),
        }
    }
    Ok(options)
}

impl Driver {
    /// Launches, or records the launch in a capture.
    pub(crate) fn launch(&self, stream: &Stream, launch: &Launch<'_>) -> Result<(), CUresult> {
        if self.is_captured(stream)? {
            let node = self.node_of_launch(stream.context, launch)?;
            self.try_capture(stream, |_| Ok(Kind::Kernel(Box::new(node))))?;
            return Ok(());
        }
        let (shape, builtin, params) = self.work(stream.context, launch)?;
        // A stream's priority may have changed since it was sent to the server.
        let priority = launch.options.priority.or(Some(stream.priority));
        let work = Work::Launch {
            priority,
            shape,
            builtin,
            params,
        };
        self.submit(stream, work)?;
        if self.is_tracing() {
            let name = self.launchable(launch.function, stream.context)?.name;
            let sizes = (launch.grid, launch.block);
            let traced = Traced::new(&name, sizes, &shape, launch.dynamic_shared_bytes);
            self.note_put(stream, [traced]);
        }
        self.link.spend(SUBMIT_HOST_NS);
        Ok(())
    }

    pub(crate) fn work(
        &self,
        context: u64,
        launch: &Launch<'_>,
    ) -> Result<(KernelShape, u32, [u64; PARAMS]), CUresult> {
        let function = self.launchable(launch.function, context)?;
        check_dimensions(launch)?;
        if launch.dynamic_shared_bytes > function.dynamic_shared_bytes_max {
            return Err(CUresult::INVALID_VALUE);
        }
        check_arguments(&function, launch)?;
        let (shape, builtin, params) = self.shape(&function, launch)?;
        let device = self.device_of(function.context);
        shape.check(device).map_err(|error| refusal(&error))?;
        if launch.options.is_cooperative {
            let resident = u64::from(shape.blocks_per_sm(device)) * u64::from(device.sms);
            if shape.grid_blocks > resident {
                return Err(CUresult::COOPERATIVE_LAUNCH_TOO_LARGE);
            }
        }
        Ok((shape, builtin, params))
    }

    /// The launch's shape, and the number and parameters of a kernel that computes.
    fn shape(
        &self,
        function: &Function,
        launch: &Launch<'_>,
    ) -> Result<(KernelShape, u32, [u64; PARAMS]), CUresult> {
        let grid_blocks = launch.grid.iter().map(|&n| u64::from(n)).product();
        let threads = launch.block.iter().product();
        match &*function.kernel {
            Kernel::Computes(builtin) => {
                let params = read_params(*builtin, &launch.arguments)?;
                let shared_bytes = launch.dynamic_shared_bytes;
                let device = self.device_of(function.context);
                let shape = builtin.shape(grid_blocks, threads, shared_bytes, &params, device);
                Ok((
                    shape.map_err(|error| refusal(&error))?,
                    *builtin as u32,
                    params,
                ))
            }
            Kernel::TakesTime(_) => {
                let shape = static_shape(function, threads, launch.dynamic_shared_bytes);
                Ok((
                    KernelShape {
                        grid_blocks,
                        ..shape
                    },
                    0,
                    [0; PARAMS],
                ))
            }
        }
    }
}

fn check_dimensions(launch: &Launch<'_>) -> Result<(), CUresult> {
    let within = |sizes: &[u32; 3], limits: [u32; 3]| {
        sizes
            .iter()
            .zip(limits)
            .all(|(&size, limit)| (1..=limit).contains(&size))
    };
    let threads: u64 = launch.block.iter().map(|&size| u64::from(size)).product();
    if within(&launch.grid, GRID_MAX) && within(&launch.block, BLOCK_MAX) && threads <= THREADS_MAX
    {
        return Ok(());
    }
    Err(CUresult::INVALID_VALUE)
}

/// Checks that the launch passes the kernel's parameters, and no larger block than compiled for.
fn check_arguments(function: &Function, launch: &Launch<'_>) -> Result<(), CUresult> {
    let traits = &function.traits;
    let threads: u32 = launch.block.iter().product();
    if traits.threads_max.is_some_and(|max| threads > max) {
        return Err(CUresult::LAUNCH_OUT_OF_RESOURCES);
    }
    let needed = match traits.params.last() {
        Some(last) if traits.needs_params => last.offset.saturating_add(last.size_bytes) as usize,
        _ => return Ok(()),
    };
    let are_there = match launch.arguments {
        Arguments::Each(params) => !params.is_null(),
        Arguments::Packed(bytes) => bytes.len() >= needed,
    };
    are_there.then_some(()).ok_or(CUresult::INVALID_VALUE)
}

fn read_params(builtin: Builtin, arguments: &Arguments<'_>) -> Result<[u64; PARAMS], CUresult> {
    let mut words = [0; PARAMS];
    let params = packed(builtin);
    for (index, (word, param)) in words.iter_mut().zip(params).enumerate() {
        let size_bytes = param.size_bytes as usize;
        *word = match arguments {
            Arguments::Each(params) => params.number(index, size_bytes)?,
            Arguments::Packed(bytes) => {
                let bytes = bytes.get(param.offset as usize..).unwrap_or_default();
                let value = bytes.get(..size_bytes).ok_or(CUresult::INVALID_VALUE)?;
                let mut word = [0; 8];
                word[..size_bytes].copy_from_slice(value);
                u64::from_le_bytes(word)
            }
        };
    }
    Ok(words)
}

fn refusal(error: &Error) -> CUresult {
    match error {
        Error::LaunchTooLarge { .. } => CUresult::LAUNCH_OUT_OF_RESOURCES,
        _ => CUresult::INVALID_VALUE,
    }
}
