//! Kernel shapes for the entries of Orion's traces, which have a kernel's duration on a V100, the
//! SMs it needed (uncapped) and its bounding resource, but not its grid. For S SMs and duration D
//! on a V100 with 80 SMs: waves = ⌈S ÷ 80⌉, one block takes D ÷ waves. The rest is an assumption
//! for each class, chosen so that the grid needs S SMs, that a compute kernel and a memory kernel
//! fit beside each other on an SM but two compute kernels do not, and that the demands are those of
//! Orion's Table 2 (Conv2d on all SMs for compute, BN2d on 40 % of them for memory):
//!
//! | class   | grid | threads | registers | shared | blocks per SM, limit | compute | bandwidth |
//! |---------|------|---------|-----------|--------|----------------------|---------|-----------|
//! | compute | S    | 512     | 64        | 65536  | 1, shared memory     | .89 f   | .20 f     |
//! | memory  | 2 S  | 768     | 16        | 0      | 2, threads           | .14 g   | .80 g     |
//! | unknown | S    | 1024    | 64        | 0      | 1, registers         | .50 f   | .40 f     |
//!
//! with f = min(1, S ÷ 80) and g = min(1, S ÷ 32): memory kernels saturate the bandwidth from 40 %
//! of the SMs on. The block time is whole nanoseconds, so the solo time differs from D by at most
//! half a nanosecond per wave: below 0.03 % on all of Orion's traces.

use crate::kernel::KernelShape;

/// The resource that bounds a kernel: the column "Profile" of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceClass {
    /// 1 in the file.
    Compute,
    /// 0 in the file.
    Memory,
    /// -1 in the file.
    Unknown,
}

/// The shape of an entry, whose solo time on a V100 is `duration_ns` up to rounding; 0 counts as 1.
pub fn shape_of_trace_entry(class: TraceClass, sm_usage: u32, duration_ns: u64) -> KernelShape {
    let sms = u64::from(sm_usage.max(1));
    let waves = sms.div_ceil(u64::from(V100_SMS));
    let block_ns = ((duration_ns + waves / 2) / waves).max(1);
    let part = f64::from(sm_usage.max(1)) / f64::from(V100_SMS);
    let (all, saturating) = (part.min(1.0), (part / MEMORY_SATURATING_PART).min(1.0));
    match class {
        TraceClass::Compute => KernelShape {
            grid_blocks: sms,
            threads_per_block: 512,
            registers_per_thread: 64,
            shared_bytes_per_block: 65_536,
            block_ns,
            compute_demand: 0.89 * all,
            bandwidth_demand: 0.20 * all,
        },
        TraceClass::Memory => KernelShape {
            grid_blocks: 2 * sms,
            threads_per_block: 768,
            registers_per_thread: 16,
            shared_bytes_per_block: 0,
            block_ns,
            compute_demand: 0.14 * saturating,
            bandwidth_demand: 0.80 * saturating,
        },
        TraceClass::Unknown => KernelShape {
            grid_blocks: sms,
            threads_per_block: 1024,
            registers_per_thread: 64,
            shared_bytes_per_block: 0,
            block_ns,
            compute_demand: 0.50 * all,
            bandwidth_demand: 0.40 * all,
        },
    }
}

const V100_SMS: u32 = 80;

/// BN2d in Orion's Table 2 takes 40 % of the SMs for 80 % of the bandwidth.
pub(crate) const MEMORY_SATURATING_PART: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::*;
    use devices::Device;

    const CLASSES: [TraceClass; 3] = [TraceClass::Compute, TraceClass::Memory, TraceClass::Unknown];

    #[test]
    fn a_shape_takes_the_time_and_the_sms_of_its_entry_on_a_v100() {
        let v100 = Device::by_name("V100-SXM2-16GB").unwrap();
        for class in CLASSES {
            for sm_usage in (1..2000).chain([12_544]) {
                for duration_ns in [9_000, 48_123, 1_350_000, 20_000_001] {
                    let shape = shape_of_trace_entry(class, sm_usage, duration_ns);
                    let solo_ns = shape.solo_ns(&v100).unwrap();
                    let error = solo_ns.abs_diff(duration_ns) as f64 / duration_ns as f64;
                    assert!(
                        error < 0.01,
                        "{class:?} {sm_usage} {duration_ns}: {solo_ns}"
                    );
                    assert_eq!(shape.sm_needed(&v100), Ok(sm_usage));
                }
            }
        }
    }

    #[test]
    fn an_entry_of_nothing_is_the_smallest_kernel() {
        let shape = shape_of_trace_entry(TraceClass::Unknown, 0, 0);
        assert_eq!((shape.grid_blocks, shape.block_ns), (1, 1));
    }
}
