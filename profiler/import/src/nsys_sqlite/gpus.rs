//! The GPUs of an export, and the GPU of a launch's device number, which is CUDA's in its process.
//! `TARGET_INFO_CUDA_DEVICE` (since 3.17) leads from (number, process) to the GPU; before,
//! `cuDevice` of the GPU is that number, or, where missing, the GPU's own. All GPUs are listed.

use std::collections::HashMap;

use rusqlite::Row;

use super::{Reader, integer, number};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::source::SourceBuilder;

const GPUS: &str = "TARGET_INFO_GPU";
/// Until the middle of 2021, with other names and units.
const GPUS_OF_2020: &str = "TARGET_INFO_CUDA_GPU";
const DEVICES: &str = "TARGET_INFO_CUDA_DEVICE";

/// Bandwidth is in bytes per second, the clock in Hz.
pub(super) const COLUMNS: [&str; 12] = [
    "id",
    "cuDevice",
    "name",
    "smCount",
    "memoryBandwidth",
    "clockRate",
    "computeMajor",
    "computeMinor",
    "maxWarpsPerSm",
    "maxBlocksPerSm",
    "maxRegistersPerSm",
    "maxShmemPerSm",
];

/// In the old table: bandwidth in kB/s, the clock in kHz, CUDA's number of the GPU.
pub(super) const COLUMNS_OF_2020: [&str; 12] = [
    "deviceId",
    "deviceId",
    "name",
    "numMultiprocessors",
    "globalMemoryBandwidth",
    "coreClockRate",
    "computeCapabilityMajor",
    "computeCapabilityMinor",
    "maxWarpsPerMultiprocessor",
    "maxBlocksPerMultiprocessor",
    "maxRegistersPerMultiprocessor",
    "maxSharedMemoryPerMultiprocessor",
];

pub(super) struct Gpus {
    listed: Vec<Listed>,
    /// (device number, process) to the GPU's id.
    numbers: HashMap<(i64, i64), i64>,
    /// (device number, process) to the index in the source, for GPUs with launches.
    kept: HashMap<(i64, i64), u16>,
    /// The GPU's place in `listed` to the index in the source.
    indices: HashMap<Option<usize>, u16>,
}

struct Listed {
    id: Option<i64>,
    cuda_number: Option<i64>,
    gpu: Gpu,
}

impl Reader<'_> {
    pub(super) fn gpus(&self) -> Result<Gpus, Error> {
        let mut gpus = Gpus {
            listed: Vec::new(),
            numbers: HashMap::new(),
            kept: HashMap::new(),
            indices: HashMap::new(),
        };
        let table = if self.tables.has(GPUS_OF_2020, &["name"]) {
            Some((GPUS_OF_2020, COLUMNS_OF_2020, 1000))
        } else {
            self.tables
                .has(GPUS, &["name"])
                .then_some((GPUS, COLUMNS, 1))
        };
        if let Some((table, columns, unit)) = table {
            let columns = self.tables.select(table, &columns);
            let sql = format!(
                "SELECT {columns} FROM {table} LIMIT {}",
                crate::limits::GPUS_MAX
            );
            self.each(&sql, |row| {
                gpus.listed.push(listed(row, unit)?);
                Ok(Ok(()))
            })?;
        }
        if self.tables.has(DEVICES, &["gpuId", "cudaId", "pid"]) {
            let sql = format!("SELECT cudaId, pid, gpuId FROM {DEVICES} LIMIT 65536");
            self.each(&sql, |row| {
                let triple = (integer(row, 0)?, integer(row, 1)?, integer(row, 2)?);
                if let (Some(cuda_id), Some(pid), Some(gpu_id)) = triple {
                    gpus.numbers.insert((cuda_id, pid), gpu_id);
                }
                Ok(Ok(()))
            })?;
        }
        Ok(gpus)
    }
}

fn listed(row: &Row<'_>, unit: u64) -> rusqlite::Result<Listed> {
    let large = |index| -> rusqlite::Result<Option<u64>> {
        let value = integer(row, index)?.and_then(|value| u64::try_from(value).ok());
        let value = value.and_then(|value| value.checked_mul(unit));
        Ok(value.filter(|&value| value > 0))
    };
    let name = row.get_ref(2)?.as_str().ok().and_then(crate::name::clean);
    Ok(Listed {
        id: integer(row, 0)?,
        cuda_number: integer(row, 1)?,
        gpu: Gpu {
            name: name.map(|name| name.to_string()),
            compute_capability: number(row, 6)?.zip(number(row, 7)?),
            sms: number(row, 3)?.filter(|&sms| sms > 0),
            warps_per_sm: number(row, 8)?,
            blocks_per_sm: number(row, 9)?,
            registers_per_sm: number(row, 10)?,
            shared_bytes_per_sm: number(row, 11)?,
            bandwidth_bytes_per_s: large(4)?,
            clock_hz: large(5)?,
            uses_mps: false,
        },
    })
}

impl Gpus {
    /// Index in the source of the GPU `number` of `process`; added at its first launch.
    pub(super) fn index(
        &mut self,
        number: i64,
        process: i64,
        builder: &mut SourceBuilder<'_>,
    ) -> Result<u16, Error> {
        if let Some(&index) = self.kept.get(&(number, process)) {
            return Ok(index);
        }
        let place = self.place(number, process);
        let index = match self.indices.get(&place) {
            Some(&index) => index,
            None => {
                let listed = place.and_then(|place| self.listed.get(place));
                let gpu = listed.map_or_else(Gpu::default, |listed| listed.gpu.clone());
                let index = builder.gpu(gpu)?;
                self.indices.insert(place, index);
                index
            }
        };
        self.kept.insert((number, process), index);
        Ok(index)
    }

    fn place(&self, number: i64, process: i64) -> Option<usize> {
        let with_id = |id: i64| self.listed.iter().position(|gpu| gpu.id == Some(id));
        let mapped = self.numbers.get(&(number, process)).copied();
        let by_cuda = || {
            let is_it = |gpu: &Listed| gpu.cuda_number == Some(number);
            self.listed.iter().position(is_it)
        };
        mapped
            .and_then(with_id)
            .or_else(by_cuda)
            .or_else(|| with_id(number))
            .or_else(|| (self.listed.len() == 1).then_some(0))
    }
}
