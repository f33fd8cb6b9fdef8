//! The shape of a kernel launch, and its occupancy of a device, by the rules of NVIDIA's own tools:
//! registers are allocated to warps in units of 256 out of one quarter of the SM's file, shared
//! memory in the device's granularity after adding the driver's reserve. The same formula matched
//! 88 of 88 launches in Nsight Compute reports (A6000, A30, H100, GB200, B200). It assumes the
//! largest shared-memory configuration of the device; with a smaller one fewer blocks fit.

use crate::contention::{Demand, time_ns_at};
use crate::error::Error;
use devices::Device;

/// One kernel launch in the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelShape {
    /// Blocks in the grid, all dimensions multiplied; at least 1.
    pub grid_blocks: u64,
    /// Threads of a block, 1 to 1024.
    pub threads_per_block: u32,
    /// Registers of a thread, 0 to 255; 0 if unknown, which limits nothing.
    pub registers_per_thread: u32,
    /// Static and dynamic shared memory of a block, without the driver's reserve.
    pub shared_bytes_per_block: u32,
    /// Time of one block without slowdown; at least 1.
    pub block_ns: u64,
    /// Fraction of the device's compute throughput at full residency, in proportion to blocks.
    pub compute_demand: f64,
    /// The same for memory bandwidth.
    pub bandwidth_demand: f64,
}

/// What one resident block takes of an SM, besides one block slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) threads: u32,
    pub(crate) registers: u32,
    pub(crate) shared_bytes: u32,
}

impl KernelShape {
    /// Blocks of this kernel that one empty SM holds; 0 if none fits.
    pub fn blocks_per_sm(&self, device: &Device) -> u32 {
        let by_shared = match self.shared_bytes_allocated(device) {
            0 => u64::from(device.blocks_per_sm),
            bytes => u64::from(device.shared_bytes_per_sm) / bytes,
        };
        let by_warps = device.threads_per_sm / WARP_THREADS / self.warps();
        let by_shared = u32::try_from(by_shared).unwrap_or(u32::MAX);
        device
            .blocks_per_sm
            .min(by_warps)
            .min(self.blocks_by_registers(device))
            .min(by_shared)
    }

    /// SMs that the grid fills at full residency. It may exceed the device, as in Orion's profiles.
    /// # Errors
    /// As [`Self::check`].
    pub fn sm_needed(&self, device: &Device) -> Result<u32, Error> {
        self.check(device)?;
        let needed = self
            .grid_blocks
            .div_ceil(u64::from(self.blocks_per_sm(device)));
        Ok(u32::try_from(needed).unwrap_or(u32::MAX))
    }

    /// Waves in which the grid runs on an idle device; the last may be partial.
    /// # Errors
    /// As [`Self::check`].
    pub fn waves(&self, device: &Device) -> Result<u64, Error> {
        self.check(device)?;
        Ok(self.grid_blocks.div_ceil(self.wave_blocks(device)))
    }

    /// Time of the kernel on an idle device: waves × block time, times the slowdown if the kernel's
    /// own two demands exceed the device.
    /// # Errors
    /// As [`Self::check`].
    pub fn solo_ns(&self, device: &Device) -> Result<u64, Error> {
        self.check(device)?;
        let wave = self.wave_blocks(device);
        let resident = self.resident_blocks_max(device);
        let demand = Demand::new(self.compute_demand, self.bandwidth_demand);
        let wave_ns =
            |blocks: u64| time_ns_at(demand.share(blocks, resident).rate_q32(), self.block_ns);
        let rest = self.grid_blocks % wave;
        let rest_ns = if rest == 0 { 0 } else { wave_ns(rest) };
        Ok((self.grid_blocks / wave)
            .saturating_mul(wave_ns(wave))
            .saturating_add(rest_ns))
    }

    /// Checks that the device can run the launch.
    /// # Errors
    /// [`Error::InvalidShape`], or [`Error::LaunchTooLarge`] for an oversized block.
    pub fn check(&self, device: &Device) -> Result<(), Error> {
        let is_demand = |demand: f64| demand.is_finite() && demand >= 0.0;
        if self.grid_blocks == 0 {
            return Err(Error::InvalidShape("the grid has 0 blocks"));
        }
        if self.threads_per_block == 0 {
            return Err(Error::InvalidShape("a block has 0 threads"));
        }
        if self.block_ns == 0 || self.block_ns > BLOCK_NS_MAX {
            return Err(Error::InvalidShape(
                "the block time is 0, or more than a day",
            ));
        }
        if !is_demand(self.compute_demand) || !is_demand(self.bandwidth_demand) {
            return Err(Error::InvalidShape("a demand is negative or not a number"));
        }
        within(
            "threads per block",
            self.threads_per_block,
            THREADS_PER_BLOCK_MAX,
        )?;
        within(
            "registers per thread",
            self.registers_per_thread,
            REGISTERS_PER_THREAD_MAX,
        )?;
        let shared_max = device.shared_bytes_per_block_optin;
        within(
            "shared bytes per block",
            self.shared_bytes_per_block,
            shared_max,
        )?;
        let shared_bytes = u32::try_from(self.shared_bytes_allocated(device)).unwrap_or(u32::MAX);
        within(
            "shared bytes per block, with the driver's own",
            shared_bytes,
            device.shared_bytes_per_sm,
        )?;
        within(
            "warps per block at this number of registers",
            self.warps(),
            self.warps_by_registers(device).unwrap_or(u32::MAX),
        )
    }

    /// One block's share of an SM. An empty SM holds exactly [`Self::blocks_per_sm`].
    pub(crate) fn footprint(&self, device: &Device) -> Footprint {
        let registers = self.warps() * self.registers_per_warp();
        // The quarters of the register file round the number of blocks down. A block is charged for
        // the rounding, so that the sum over an SM has the same limit.
        let by_registers = self.blocks_by_registers(device);
        let one_more_does_not_fit = device.registers_per_sm / (by_registers + 1) + 1;
        let limited = registers > 0 && by_registers > 0;
        Footprint {
            threads: self.warps() * WARP_THREADS,
            registers: if limited {
                registers.max(one_more_does_not_fit)
            } else {
                registers
            },
            shared_bytes: u32::try_from(self.shared_bytes_allocated(device)).unwrap_or(u32::MAX),
        }
    }

    /// Most resident blocks: the whole grid or a full device. Demands refer to this number.
    pub(crate) fn resident_blocks_max(&self, device: &Device) -> u64 {
        self.grid_blocks.min(self.wave_blocks(device))
    }

    fn wave_blocks(&self, device: &Device) -> u64 {
        u64::from(self.blocks_per_sm(device)) * u64::from(device.sms)
    }

    fn warps(&self) -> u32 {
        self.threads_per_block.max(1).div_ceil(WARP_THREADS)
    }

    fn registers_per_warp(&self) -> u32 {
        self.registers_per_thread
            .saturating_mul(WARP_THREADS)
            .div_ceil(WARP_REGISTERS_GRANULARITY)
            .saturating_mul(WARP_REGISTERS_GRANULARITY)
    }

    fn blocks_by_registers(&self, device: &Device) -> u32 {
        self.warps_by_registers(device)
            .map_or(device.blocks_per_sm, |warps| warps / self.warps())
    }

    /// Warps of this kernel for which an SM has registers; `None` if it uses none.
    fn warps_by_registers(&self, device: &Device) -> Option<u32> {
        let quarter = device.registers_per_sm / SM_QUARTERS;
        Some(quarter.checked_div(self.registers_per_warp())? * SM_QUARTERS)
    }

    /// 64 bits, because the field may have any value before [`Self::check`].
    fn shared_bytes_allocated(&self, device: &Device) -> u64 {
        let reserve = u64::from(device.shared_reserved_per_block_bytes);
        let bytes = u64::from(self.shared_bytes_per_block) + reserve;
        bytes.next_multiple_of(u64::from(device.shared_granularity_bytes.max(1)))
    }
}

fn within(limit: &'static str, asked: u32, available: u32) -> Result<(), Error> {
    if asked <= available {
        return Ok(());
    }
    Err(Error::LaunchTooLarge {
        limit,
        asked: asked.into(),
        available: available.into(),
    })
}

const WARP_THREADS: u32 = 32;
/// A warp gets registers in units of 256 since compute capability 3.0 (occupancy calculator).
const WARP_REGISTERS_GRANULARITY: u32 = 256;
/// An SM has four partitions, each with its warp scheduler and a quarter of the registers.
const SM_QUARTERS: u32 = 4;
/// CUDA C++ Programming Guide, technical specifications per compute capability.
const THREADS_PER_BLOCK_MAX: u32 = 1024;
/// Same table.
const REGISTERS_PER_THREAD_MAX: u32 = 255;
/// Keeps all sums of times within 64 bits; no kernel is nearly as long.
const BLOCK_NS_MAX: u64 = 86_400_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KernelShape = KernelShape {
        grid_blocks: 80,
        threads_per_block: 256,
        registers_per_thread: 32,
        shared_bytes_per_block: 0,
        block_ns: 1000,
        compute_demand: 0.5,
        bandwidth_demand: 0.5,
    };

    fn v100() -> Device {
        Device::by_name("V100-SXM2-16GB").unwrap()
    }

    /// (device, threads, registers, shared bytes, blocks per SM), by hand from the rules above.
    const OCCUPANCY: &[(&str, u32, u32, u32, u32)] = &[
        ("H100-PCIe", 1024, 32, 8192, 2),
        ("V100-SXM2-16GB", 256, 32, 0, 8),
        ("V100-SXM2-16GB", 1024, 64, 0, 1),
        ("V100-SXM2-16GB", 768, 16, 0, 2),
        ("V100-SXM2-16GB", 512, 64, 65536, 1),
        ("V100-SXM2-16GB", 32, 16, 0, 32),
        ("V100-SXM2-16GB", 32, 255, 0, 8),
        ("T4", 128, 40, 0, 8),
        ("A100-SXM4-40GB", 128, 80, 0, 6),
        ("A100-SXM4-40GB", 128, 32, 166_912, 1),
        ("A100-SXM4-40GB", 64, 32, 5 * 1024, 27),
        ("RTX-3090", 1024, 32, 0, 1),
    ];

    #[test]
    fn blocks_per_sm_follow_the_occupancy_calculator() {
        for &(name, threads_per_block, registers_per_thread, shared_bytes_per_block, blocks) in
            OCCUPANCY
        {
            let device = Device::by_name(name).unwrap();
            let shape = KernelShape {
                threads_per_block,
                registers_per_thread,
                shared_bytes_per_block,
                ..SHAPE
            };
            assert_eq!(shape.blocks_per_sm(&device), blocks, "{name} {shape:?}");
        }
    }

    #[test]
    fn footprints_fill_an_sm_exactly() {
        let sum_fits = |each: u32, count: u32, available: u32| each * count <= available;
        for device in Device::all() {
            for threads_per_block in (1..=1024).step_by(31) {
                for registers_per_thread in 0..=255 {
                    let shared_bytes_per_block = registers_per_thread * 97;
                    let shape = KernelShape {
                        threads_per_block,
                        registers_per_thread,
                        shared_bytes_per_block,
                        ..SHAPE
                    };
                    let blocks = shape.blocks_per_sm(device);
                    assert_eq!(
                        blocks == 0,
                        shape.check(device).is_err(),
                        "{} {shape:?}",
                        device.name
                    );
                    if blocks == 0 {
                        continue;
                    }
                    let footprint = shape.footprint(device);
                    let fits = |count: u32| {
                        sum_fits(footprint.threads, count, device.threads_per_sm)
                            && sum_fits(footprint.registers, count, device.registers_per_sm)
                            && sum_fits(footprint.shared_bytes, count, device.shared_bytes_per_sm)
                            && count <= device.blocks_per_sm
                    };
                    assert!(fits(blocks), "{} {shape:?}", device.name);
                    assert!(!fits(blocks + 1), "{} {shape:?}", device.name);
                }
            }
        }
    }

    #[test]
    fn sms_needed_may_exceed_the_device() {
        let shape = KernelShape {
            grid_blocks: 8 * 100 + 1,
            ..SHAPE
        };
        assert_eq!(shape.sm_needed(&v100()), Ok(101));
        assert_eq!(shape.waves(&v100()), Ok(2));
    }

    #[test]
    fn solo_time_counts_waves() {
        let solo = |grid_blocks| {
            KernelShape {
                grid_blocks,
                ..SHAPE
            }
            .solo_ns(&v100())
            .unwrap()
        };
        assert_eq!(solo(1), 1000);
        assert_eq!(solo(640), 1000);
        assert_eq!(solo(641), 2000);
        assert_eq!(solo(640 * 7), 7000);
    }

    #[test]
    fn a_kernel_that_overloads_the_device_alone_is_slowed_down_alone() {
        let shape = KernelShape {
            compute_demand: 1.0,
            bandwidth_demand: 1.0,
            ..SHAPE
        };
        assert_eq!(shape.solo_ns(&v100()), Ok(1149));
    }

    #[test]
    fn impossible_launches_are_named() {
        let refused = |shape: KernelShape| shape.check(&v100()).unwrap_err().to_string();
        let text = refused(KernelShape {
            shared_bytes_per_block: 98_305,
            ..SHAPE
        });
        assert_eq!(
            text,
            "launch does not fit the device: shared bytes per block is 98305, at most 98304"
        );
        refused(KernelShape {
            threads_per_block: 1025,
            ..SHAPE
        });
        refused(KernelShape {
            threads_per_block: 0,
            ..SHAPE
        });
        refused(KernelShape {
            grid_blocks: 0,
            ..SHAPE
        });
        refused(KernelShape {
            block_ns: 0,
            ..SHAPE
        });
        refused(KernelShape {
            compute_demand: f64::NAN,
            ..SHAPE
        });
        refused(KernelShape {
            bandwidth_demand: -0.1,
            ..SHAPE
        });
        let text = refused(KernelShape {
            threads_per_block: 1024,
            registers_per_thread: 65,
            ..SHAPE
        });
        assert!(
            text.contains("warps per block at this number of registers is 32, at most 28"),
            "{text}"
        );
        refused(KernelShape {
            threads_per_block: 280,
            registers_per_thread: 169,
            ..SHAPE
        });
    }

    #[test]
    fn a_limit_by_threads_charges_no_registers() {
        let shape = KernelShape {
            threads_per_block: 768,
            registers_per_thread: 16,
            ..SHAPE
        };
        assert_eq!(shape.footprint(&v100()).registers, 768 * 16);
    }
}
