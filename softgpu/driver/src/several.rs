//! Launches of one kernel on several devices, as in CUDA 9.

use abi::types::{CUDA_LAUNCH_PARAMS, CUresult, CUstream};

use crate::driver::Driver;
use crate::launches::{Arguments, Launch, Options};
use crate::raw::{In, Params};
use crate::streams::Flavour;
use crate::tables::Stream;

/// `CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC` and `…_NO_POST_LAUNCH_SYNC`.
const NO_SYNC_BEFORE: u32 = 1;
const NO_SYNC_AFTER: u32 = 2;
/// More devices than any machine has.
const DEVICES_MAX: u32 = 64;

impl Driver {
    /// Launches one kernel on several devices, on one stream of each. Launches that wait for each
    /// other must not overlap. Unless the flags permit it, this call waits before and after: slower
    /// than CUDA, and allowed.
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
            // Each stream must determine its device, which a default stream does not.
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
