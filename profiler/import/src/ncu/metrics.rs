//! The counters of Nsight Compute for a profile, by metric name and by the details page's labels of
//! all versions, and derived values. In base units: seconds, bytes, hertz, percent.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::gpu::Gpu;
use crate::source::{Counters, SharedMemory, StatedLimits};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Metric {
    Duration,
    ComputePct,
    MemoryPct,
    DramPct,
    L2Pct,
    L1Pct,
    DramBytesPerS,
    DramRead,
    DramWritten,
    DramSectorsRead,
    DramSectorsWritten,
    DramPeakPerCycle,
    DramHz,
    SmActiveCycles,
    SmElapsedCycles,
    SmHz,
    SmspHz,
    FaddPerCycle,
    FmulPerCycle,
    FfmaPerCycle,
    Fadd,
    Fmul,
    Ffma,
    FfmaPeakPerCycle,
    DaddPerCycle,
    DmulPerCycle,
    DfmaPerCycle,
    HaddPerCycle,
    HmulPerCycle,
    HfmaPerCycle,
    TensorPct,
    Registers,
    StaticShared,
    DynamicShared,
    DriverShared,
    Carveout,
    GridSize,
    BlockSize,
    GridX,
    GridY,
    GridZ,
    BlockX,
    BlockY,
    BlockZ,
    ClusterSize,
    LimitBlocks,
    LimitRegisters,
    LimitShared,
    LimitWarps,
    LimitBarriers,
    Waves,
    Sms,
    SmsOfLaunch,
    CapabilityMajor,
    CapabilityMinor,
    WarpsPerSm,
    BlocksPerSm,
    RegistersPerSm,
    SharedPerSm,
    ClockKhz,
    MemoryClockKhz,
    MemoryBusBits,
    UsesMps,
    DeviceId,
    StreamId,
}

pub(super) const GPU_NAME: &str = "device__attribute_display_name";

const SECTOR_BYTES: f64 = 32.0;

use Metric as M;

/// Metric names. Of several names of one counter, the first that a launch has counts.
const NAMES: [(&str, Metric); 81] = [
    ("gpu__time_duration.sum", M::Duration),
    ("gpu__time_duration.avg", M::Duration),
    (
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        M::ComputePct,
    ),
    (
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        M::MemoryPct,
    ),
    (
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        M::DramPct,
    ),
    (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        M::DramPct,
    ),
    (
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
        M::L2Pct,
    ),
    (
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        M::L1Pct,
    ),
    (
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
        M::L1Pct,
    ),
    ("dram__bytes.sum.per_second", M::DramBytesPerS),
    ("dram__bytes_read.sum", M::DramRead),
    ("dram__bytes_op_read.sum", M::DramRead),
    ("dram__bytes_write.sum", M::DramWritten),
    ("dram__bytes_op_write.sum", M::DramWritten),
    ("dram__sectors_read.sum", M::DramSectorsRead),
    ("dram__sectors_op_read.sum", M::DramSectorsRead),
    ("dram__sectors_write.sum", M::DramSectorsWritten),
    ("dram__sectors_op_write.sum", M::DramSectorsWritten),
    ("dram__bytes.sum.peak_sustained", M::DramPeakPerCycle),
    ("dram__cycles_elapsed.avg.per_second", M::DramHz),
    ("sm__cycles_active.avg", M::SmActiveCycles),
    ("gpc__cycles_elapsed.max", M::SmElapsedCycles),
    ("sm__cycles_elapsed.max", M::SmElapsedCycles),
    ("sm__cycles_elapsed.avg.per_second", M::SmHz),
    ("gpc__cycles_elapsed.avg.per_second", M::SmHz),
    ("smsp__cycles_elapsed.avg.per_second", M::SmspHz),
    (
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed",
        M::FaddPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed",
        M::FmulPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed",
        M::FfmaPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
        M::Fadd,
    ),
    (
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
        M::Fmul,
    ),
    (
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
        M::Ffma,
    ),
    ("sm__sass_thread_inst_executed_op_fadd_pred_on.sum", M::Fadd),
    ("sm__sass_thread_inst_executed_op_fmul_pred_on.sum", M::Fmul),
    ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum", M::Ffma),
    (
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
        M::FfmaPeakPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum.per_cycle_elapsed",
        M::DaddPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum.per_cycle_elapsed",
        M::DmulPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum.per_cycle_elapsed",
        M::DfmaPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_hadd_pred_on.sum.per_cycle_elapsed",
        M::HaddPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_hmul_pred_on.sum.per_cycle_elapsed",
        M::HmulPerCycle,
    ),
    (
        "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum.per_cycle_elapsed",
        M::HfmaPerCycle,
    ),
    (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        M::TensorPct,
    ),
    (
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
        M::TensorPct,
    ),
    (
        "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
        M::TensorPct,
    ),
    (
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        M::TensorPct,
    ),
    ("launch__registers_per_thread", M::Registers),
    ("launch__shared_mem_per_block_static", M::StaticShared),
    ("launch__shared_mem_per_block_dynamic", M::DynamicShared),
    ("launch__shared_mem_per_block_driver", M::DriverShared),
    ("launch__shared_mem_config_size", M::Carveout),
    ("launch__grid_size", M::GridSize),
    ("launch__block_size", M::BlockSize),
    ("launch__grid_dim_x", M::GridX),
    ("launch__grid_dim_y", M::GridY),
    ("launch__grid_dim_z", M::GridZ),
    ("launch__block_dim_x", M::BlockX),
    ("launch__block_dim_y", M::BlockY),
    ("launch__block_dim_z", M::BlockZ),
    ("launch__cluster_size", M::ClusterSize),
    ("launch__occupancy_limit_blocks", M::LimitBlocks),
    ("launch__occupancy_limit_registers", M::LimitRegisters),
    ("launch__occupancy_limit_shared_mem", M::LimitShared),
    ("launch__occupancy_limit_warps", M::LimitWarps),
    ("launch__occupancy_limit_barriers", M::LimitBarriers),
    ("launch__waves_per_multiprocessor", M::Waves),
    ("device__attribute_multiprocessor_count", M::Sms),
    ("launch__sm_count", M::SmsOfLaunch),
    (
        "device__attribute_compute_capability_major",
        M::CapabilityMajor,
    ),
    (
        "device__attribute_compute_capability_minor",
        M::CapabilityMinor,
    ),
    (
        "device__attribute_max_warps_per_multiprocessor",
        M::WarpsPerSm,
    ),
    ("device__attribute_limits_max_cta_per_sm", M::BlocksPerSm),
    (
        "device__attribute_max_registers_per_multiprocessor",
        M::RegistersPerSm,
    ),
    (
        "device__attribute_max_shared_memory_per_multiprocessor",
        M::SharedPerSm,
    ),
    ("device__attribute_clock_rate", M::ClockKhz),
    ("device__attribute_memory_clock_rate", M::MemoryClockKhz),
    (
        "device__attribute_global_memory_bus_width",
        M::MemoryBusBits,
    ),
    ("launch__uses_mps", M::UsesMps),
    ("launch__device_id", M::DeviceId),
    ("launch__stream_id", M::StreamId),
    (
        "device__attribute_max_blocks_per_multiprocessor",
        M::BlocksPerSm,
    ),
];

/// Labels of the details page, 2019 on. "Memory Throughput" is two counters: see [`by_label`].
const LABELS: [(&str, Metric); 37] = [
    ("Duration", M::Duration),
    ("Compute (SM) Throughput", M::ComputePct),
    ("Compute (SM) [%]", M::ComputePct),
    ("SM [%]", M::ComputePct),
    ("SOL SM", M::ComputePct),
    ("Memory [%]", M::MemoryPct),
    ("SOL Memory", M::MemoryPct),
    ("DRAM Throughput", M::DramPct),
    ("SOL FB", M::DramPct),
    ("SOL DRAM", M::DramPct),
    ("L2 Cache Throughput", M::L2Pct),
    ("SOL L2", M::L2Pct),
    ("L1/TEX Cache Throughput", M::L1Pct),
    ("SOL TEX", M::L1Pct),
    ("SOL L1/TEX Cache", M::L1Pct),
    ("SOL L2 Cache", M::L2Pct),
    ("DRAM Frequency", M::DramHz),
    ("SM Frequency", M::SmHz),
    ("SM Active Cycles", M::SmActiveCycles),
    ("Elapsed Cycles", M::SmElapsedCycles),
    ("Registers Per Thread", M::Registers),
    ("Static Shared Memory Per Block", M::StaticShared),
    ("Dynamic Shared Memory Per Block", M::DynamicShared),
    ("Driver Shared Memory Per Block", M::DriverShared),
    ("Shared Memory Configuration Size", M::Carveout),
    ("Shared Memory Config Size", M::Carveout),
    ("Grid Size", M::GridSize),
    ("Block Size", M::BlockSize),
    ("Cluster Size", M::ClusterSize),
    ("Block Limit SM", M::LimitBlocks),
    ("Block Limit Registers", M::LimitRegisters),
    ("Block Limit Shared Mem", M::LimitShared),
    ("Block Limit Warps", M::LimitWarps),
    ("Block Limit Barriers", M::LimitBarriers),
    ("Waves Per SM", M::Waves),
    ("# SMs", M::Sms),
    ("DRAM Bandwidth", M::DramBytesPerS),
];

static BY_NAME: LazyLock<HashMap<&'static str, (usize, Metric)>> = LazyLock::new(|| {
    let numbered = NAMES.iter().enumerate();
    numbered
        .map(|(place, &(name, metric))| (name, (place, metric)))
        .collect()
});

static BY_LABEL: LazyLock<HashMap<&'static str, Metric>> =
    LazyLock::new(|| LABELS.iter().copied().collect());

/// The counter of that metric name, and the name's position among those of the counter.
pub(super) fn by_name(name: &str) -> Option<(usize, Metric)> {
    BY_NAME.get(name).copied()
}

/// The counter of a label of the details page, or of `label (name)`, or of the name alone.
pub(super) fn by_label(text: &str, unit: &str) -> Option<(usize, Metric)> {
    if let Some(found) = by_name(text) {
        return Some(found);
    }
    if let Some(open) = text.rfind(" (")
        && let Some(name) = text.get(open + 2..).and_then(|rest| rest.strip_suffix(')'))
        && let Some(found) = by_name(name)
    {
        return Some(found);
    }
    // The same label in two sections: the busiest part of the memory system, and device memory.
    if text == "Memory Throughput" {
        let metric = if unit.trim() == "%" {
            M::MemoryPct
        } else {
            M::DramBytesPerS
        };
        return Some((0, metric));
    }
    BY_LABEL.get(text).map(|&metric| (0, metric))
}

#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    values: HashMap<Metric, (usize, f64)>,
}

impl Values {
    /// Keeps a value. `place` is the rank of its name; the least wins.
    pub(super) fn set(&mut self, metric: Metric, place: usize, value: f64) {
        if !value.is_finite() {
            return;
        }
        let kept = self.values.entry(metric).or_insert((place, value));
        if place < kept.0 {
            *kept = (place, value);
        }
    }

    fn of(&self, metric: Metric) -> Option<f64> {
        self.values.get(&metric).map(|&(_, value)| value)
    }

    /// As a whole number, if it fits in 32 bits. Of sizes in Kbyte see [`Values::bytes`].
    fn number(&self, metric: Metric) -> Option<u32> {
        let value = self.of(metric)?.round();
        (0.0..=f64::from(u32::MAX))
            .contains(&value)
            .then_some(value as u32)
    }

    /// `1.02 Kbyte` is 1 024 bytes: the nearest multiple of 16, which the hardware allocates.
    fn bytes(&self, metric: Metric) -> Option<u32> {
        let value = self.of(metric)?;
        let bytes = self.number(metric)?;
        // Ten bytes is the resolution of a Kbyte's second decimal.
        let is_rounded = bytes >= 1000 && value.rem_euclid(10.0) < 1e-6;
        if !is_rounded || bytes.is_multiple_of(16) {
            return Some(bytes);
        }
        let near = (bytes + 8) / 16 * 16;
        let large = (bytes + 512) / 1024 * 1024;
        Some(if large.abs_diff(bytes) <= 5 {
            large
        } else {
            near
        })
    }

    pub(super) fn duration_ns(&self) -> Option<u64> {
        let nanoseconds = (self.of(M::Duration)? * 1e9).round();
        (0.0..1e18)
            .contains(&nanoseconds)
            .then_some(nanoseconds as u64)
    }

    pub(super) fn registers(&self) -> Option<u32> {
        self.number(M::Registers)
    }

    pub(super) fn shared(&self) -> SharedMemory {
        SharedMemory {
            static_bytes: self.bytes(M::StaticShared),
            dynamic_bytes: self.bytes(M::DynamicShared),
            both_bytes: None,
            driver_bytes: self.bytes(M::DriverShared),
            carveout_bytes: self.bytes(M::Carveout),
        }
    }

    pub(super) fn grid(&self) -> Option<[u32; 3]> {
        Some([
            self.number(M::GridX)?,
            self.number(M::GridY)?,
            self.number(M::GridZ)?,
        ])
    }

    pub(super) fn block(&self) -> Option<[u32; 3]> {
        Some([
            self.number(M::BlockX)?,
            self.number(M::BlockY)?,
            self.number(M::BlockZ)?,
        ])
    }

    pub(super) fn grid_size(&self) -> Option<u32> {
        self.number(M::GridSize)
    }

    pub(super) fn block_size(&self) -> Option<u32> {
        self.number(M::BlockSize)
    }

    pub(super) fn cluster_blocks(&self) -> Option<u32> {
        self.number(M::ClusterSize)
    }

    pub(super) fn device(&self) -> Option<i64> {
        self.number(M::DeviceId).map(i64::from)
    }

    pub(super) fn stream(&self) -> Option<u32> {
        self.number(M::StreamId)
    }

    pub(super) fn gpu(&self) -> Gpu {
        let hz = |khz: f64| khz * 1e3;
        // Two transfers per clock; 8 bits to a byte.
        let bandwidth = self.of(M::MemoryClockKhz).zip(self.of(M::MemoryBusBits));
        let bandwidth = bandwidth.map(|(khz, bits)| hz(khz) * 2.0 * bits / 8.0);
        let whole = |value: f64| (1.0..1e18).contains(&value).then_some(value as u64);
        Gpu {
            name: None,
            compute_capability: self
                .number(M::CapabilityMajor)
                .zip(self.number(M::CapabilityMinor)),
            sms: self.number(M::Sms).or(self.number(M::SmsOfLaunch)),
            warps_per_sm: self.number(M::WarpsPerSm),
            blocks_per_sm: self.number(M::BlocksPerSm),
            registers_per_sm: self.number(M::RegistersPerSm),
            shared_bytes_per_sm: self.number(M::SharedPerSm),
            bandwidth_bytes_per_s: bandwidth.and_then(whole),
            clock_hz: self.of(M::ClockKhz).map(hz).and_then(whole),
            uses_mps: self.of(M::UsesMps).is_some_and(|uses| uses > 0.0),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let dram_peak = self.of(M::DramPeakPerCycle).zip(self.of(M::DramHz));
        let fp32_peak = self.of(M::FfmaPeakPerCycle).zip(self.of(M::SmHz));
        let active = self.of(M::SmActiveCycles).zip(self.of(M::SmElapsedCycles));
        Counters {
            compute_pct: self.of(M::ComputePct),
            memory_pct: self.of(M::MemoryPct),
            dram_pct: self.of(M::DramPct),
            l2_pct: self.of(M::L2Pct),
            l1_pct: self.of(M::L1Pct),
            dram_bytes_per_s: self
                .of(M::DramBytesPerS)
                .or_else(|| self.dram_bytes_per_s()),
            dram_peak_bytes_per_s: dram_peak.map(|(bytes, hz)| bytes * hz),
            fp32_per_s: self.fp32_per_s(),
            // A multiply-add counts as two.
            fp32_peak_per_s: fp32_peak.map(|(ffma, hz)| 2.0 * ffma * hz),
            fp64_fp16_per_s: self.fp64_fp16_per_s(),
            tensor_pct: self.of(M::TensorPct),
            limits: StatedLimits {
                blocks: self.number(M::LimitBlocks),
                registers: self.number(M::LimitRegisters),
                shared: self.number(M::LimitShared),
                warps: self.number(M::LimitWarps),
                barriers: self.number(M::LimitBarriers),
            },
            waves_per_sm: self.of(M::Waves),
            sm_active_pct: active
                .filter(|&(_, elapsed)| elapsed > 0.0)
                .map(|(active, elapsed)| active / elapsed * 100.0),
        }
    }

    fn dram_bytes_per_s(&self) -> Option<f64> {
        let bytes = self.of(M::DramRead).zip(self.of(M::DramWritten));
        let sectors = self
            .of(M::DramSectorsRead)
            .zip(self.of(M::DramSectorsWritten));
        let sum = bytes.map(|(read, written)| read + written);
        let sum = sum.or(sectors.map(|(read, written)| (read + written) * SECTOR_BYTES))?;
        let seconds = self.of(M::Duration).filter(|&seconds| seconds > 0.0)?;
        Some(sum / seconds)
    }

    fn fp32_per_s(&self) -> Option<f64> {
        let triple = |add, mul, fma| Some((self.of(add)?, self.of(mul)?, self.of(fma)?));
        let per_cycle = triple(M::FaddPerCycle, M::FmulPerCycle, M::FfmaPerCycle);
        if let Some(((add, mul, fma), hz)) = per_cycle.zip(self.of(M::SmspHz)) {
            return Some((add + mul + 2.0 * fma) * hz);
        }
        let (add, mul, fma) = triple(M::Fadd, M::Fmul, M::Ffma)?;
        let seconds = self.of(M::Duration).filter(|&seconds| seconds > 0.0)?;
        Some((add + mul + 2.0 * fma) / seconds)
    }

    fn fp64_fp16_per_s(&self) -> Option<f64> {
        let hz = self.of(M::SmspHz)?;
        let of = |add, mul, fma| {
            let sum = self.of(add)? + self.of(mul)? + 2.0 * self.of(fma)?;
            Some(sum * hz)
        };
        let doubles = of(M::DaddPerCycle, M::DmulPerCycle, M::DfmaPerCycle);
        let halves = of(M::HaddPerCycle, M::HmulPerCycle, M::HfmaPerCycle);
        match (doubles, halves) {
            (None, None) => None,
            (doubles, halves) => Some(doubles.unwrap_or(0.0) + halves.unwrap_or(0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LABELS, M, NAMES, Values, by_label, by_name};

    #[test]
    fn names_and_labels_stand_once() {
        let mut names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        let mut labels: Vec<&str> = LABELS.iter().map(|(label, _)| *label).collect();
        for list in [&mut names, &mut labels] {
            let count = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), count);
        }
    }

    #[test]
    fn a_label_with_its_name_is_the_name() {
        let of = |text, unit| by_label(text, unit).map(|(_, metric)| metric);
        assert_eq!(
            of("Duration (gpu__time_duration.sum)", "ns"),
            Some(M::Duration)
        );
        assert_eq!(of("Memory Throughput", "%"), Some(M::MemoryPct));
        assert_eq!(
            of("Memory Throughput", "Gbyte/second"),
            Some(M::DramBytesPerS)
        );
        assert_eq!(of("Compute (SM) Throughput", "%"), Some(M::ComputePct));
        assert_eq!(of("Compute (SM) [%]", "%"), Some(M::ComputePct));
        assert_eq!(of("L2 Hit Rate", "%"), None);
    }

    #[test]
    fn the_better_name_wins_whichever_comes_first() {
        let mut values = Values::default();
        for name in [
            "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        ] {
            let (place, metric) = by_name(name).expect("known");
            values.set(metric, place, name.len() as f64);
        }
        values.set(M::L2Pct, 0, f64::NAN);
        assert_eq!(values.counters().dram_pct, Some(54.0));
        assert_eq!(values.counters().l2_pct, None);
    }

    #[test]
    fn sizes_printed_in_kbyte_are_whole_again() {
        for (printed, expected) in [
            (1_020.0, 1_024),
            (32_770.0, 32_768),
            (8_190.0, 8_192),
            (1_024.0, 1_024),
            (73_730.0, 73_728),
            (5_120.0, 5_120),
            (205_696.0, 205_696),
            (233_470.0, 233_472),
            (9_220.0, 9_216),
            (18_430.0, 18_432),
            (12.0, 12),
            (0.0, 0),
        ] {
            let mut values = Values::default();
            values.set(M::Carveout, 0, printed);
            assert_eq!(values.shared().carveout_bytes, Some(expected), "{printed}");
        }
    }
}
