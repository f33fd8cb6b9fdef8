//! Launches of other times: as before CUDA 4, where shape and parameters are set on the function and then it is launched;
//! and of one kernel on several devices, as CUDA 9 had it.

use abi::types::{CUDA_LAUNCH_PARAMS, CUfunction, CUresult, CUstream};

use crate::driver::Driver;
use crate::launches::{Arguments, Launch, Options};
use crate::raw::{In, Params};
use crate::streams::Flavour;
use crate::tables::Stream;

/// Bytes of parameters that a launch of that time takes (CUDA C++ Programming Guide, before 12.1).
const PARAMS_BYTES_MAX: u32 = 4096;

/// What was set on a function for its next launches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Legacy {
    /// Threads in x, y, z; 0 if nobody has said.
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared_bytes: u32,
    /// Bytes of the parameters.
    params_bytes: u32,
    params: Vec<u8>,
}

impl Driver {
    fn with_legacy(
        &self,
        function: CUfunction,
        change: impl FnOnce(&mut Legacy) -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        let function = self.function(function.0.addr() as u64)?;
        change(&mut function.legacy.lock())
    }

    pub(crate) fn set_block_shape(
        &self,
        function: CUfunction,
        block: [i32; 3],
    ) -> Result<(), CUresult> {
        let wanted = block.map(|size| u32::try_from(size).unwrap_or(0));
        if wanted.contains(&0) {
            return Err(CUresult::INVALID_VALUE);
        }
        self.with_legacy(function, |legacy| {
            legacy.block = wanted;
            Ok(())
        })
    }

    pub(crate) fn set_shared_size(&self, function: CUfunction, bytes: u32) -> Result<(), CUresult> {
        self.with_legacy(function, |legacy| {
            legacy.dynamic_shared_bytes = bytes;
            Ok(())
        })
    }

    pub(crate) fn set_params_size(&self, function: CUfunction, bytes: u32) -> Result<(), CUresult> {
        if bytes > PARAMS_BYTES_MAX {
            return Err(CUresult::INVALID_VALUE);
        }
        self.with_legacy(function, |legacy| {
            legacy.params_bytes = bytes;
            Ok(())
        })
    }

    pub(crate) fn set_param(
        &self,
        function: CUfunction,
        offset: i32,
        value: &[u8],
    ) -> Result<(), CUresult> {
        let offset = usize::try_from(offset).map_err(|_| CUresult::INVALID_VALUE)?;
        let end = offset + value.len();
        if end > PARAMS_BYTES_MAX as usize {
            return Err(CUresult::INVALID_VALUE);
        }
        self.with_legacy(function, |legacy| {
            if legacy.params.len() < end {
                legacy.params.resize(end, 0);
            }
            legacy.params[offset..end].copy_from_slice(value);
            Ok(())
        })
    }

    /// Launches a function as it was set up, in a grid of two dimensions.
    pub(crate) fn launch_legacy(
        &self,
        function: CUfunction,
        grid: [i32; 2],
        stream: CUstream,
    ) -> Result<(), CUresult> {
        let handle = function.0.addr() as u64;
        let mut legacy = self.function(handle)?.legacy.lock().clone();
        let grid = grid.map(|size| u32::try_from(size).unwrap_or(0));
        legacy.params.resize(legacy.params_bytes as usize, 0);
        let stream = self.stream(stream, Flavour::Legacy)?;
        let launch = Launch {
            function: handle,
            grid: [grid[0], grid[1], 1],
            block: legacy.block,
            dynamic_shared_bytes: legacy.dynamic_shared_bytes,
            arguments: Arguments::Packed(&legacy.params),
            options: Options::default(),
        };
        self.launch(&stream, &launch)
    }
}

/// `CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC` and `…_NO_POST_LAUNCH_SYNC`.
const NO_SYNC_BEFORE: u32 = 1;
const NO_SYNC_AFTER: u32 = 2;
/// More devices than a machine has.
const DEVICES_MAX: u32 = 64;

impl Driver {
    /// Launches one kernel on several devices, a stream of each.
    ///
    /// Launches on several devices that wait for each other are kept apart by waiting here, before and after, unless
    /// the flags say that it need not be: slower than CUDA, and allowed.
    pub(crate) fn launch_on_several(
        &self,
        launches: &In<CUDA_LAUNCH_PARAMS>,
        count: u32,
        flags: u32,
    ) -> Result<(), CUresult> {
        if count == 0 || count > DEVICES_MAX || flags & !(NO_SYNC_BEFORE | NO_SYNC_AFTER) != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let mut all = Vec::new();
        for index in 0..count as usize {
            let params = launches.at(index)?;
            // Each stream names its device, which a default stream does not.
            if [CUstream::NULL, CUstream::LEGACY, CUstream::PER_THREAD].contains(&params.stream) {
                return Err(CUresult::INVALID_VALUE);
            }
            all.push((params, self.stream(params.stream, Flavour::Legacy)?));
        }
        for (index, (params, stream)) in all.iter().enumerate() {
            let is_alike = |(other, there): &(CUDA_LAUNCH_PARAMS, Stream)| {
                shape_of(other) == shape_of(params) && there.context != stream.context
            };
            if !all[..index].iter().all(is_alike) {
                return Err(CUresult::INVALID_VALUE);
            }
            self.launchable(params.function.0.addr() as u64, stream.context)?;
        }
        let wait = || {
            all.iter()
                .filter(|_| count > 1)
                .try_for_each(|(_, stream)| self.synchronise_stream(stream))
        };
        if flags & NO_SYNC_BEFORE == 0 {
            wait()?;
        }
        for (params, stream) in &all {
            let (grid, block, dynamic_shared_bytes) = shape_of(params);
            let launch = Launch {
                function: params.function.0.addr() as u64,
                grid,
                block,
                dynamic_shared_bytes,
                arguments: Arguments::Each(Params::at(params.kernel_params)),
                options: Options {
                    is_cooperative: true,
                    ..Options::default()
                },
            };
            self.launch(stream, &launch)?;
        }
        if flags & NO_SYNC_AFTER == 0 {
            wait()?;
        }
        Ok(())
    }
}

fn shape_of(params: &CUDA_LAUNCH_PARAMS) -> ([u32; 3], [u32; 3], u32) {
    let p = params;
    (
        [p.grid_dim_x, p.grid_dim_y, p.grid_dim_z],
        [p.block_dim_x, p.block_dim_y, p.block_dim_z],
        p.shared_mem_bytes,
    )
}
