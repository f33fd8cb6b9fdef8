//! Reads CUPTI's records of kernels from a buffer that it has filled. Written from NVIDIA's public
//! header `cupti_activity.h` of CUDA 11.8, 12.9 and 13.0 (wheels `nvidia-cuda-cupti-cu11` 11.8.87,
//! `-cu12` 12.9.79, `nvidia-cuda-cupti` 13.0.85). A record is packed and aligned to eight bytes.
//! `CUpti_ActivityKernel4` (CUDA 9) to `CUpti_ActivityKernel10` (CUDA 13) begin with the same
//! fields at the same offsets up to the name, as a C compiler lays them out from these headers;
//! [`KernelRecord`] is those. Later fields differ and are not read. A buffer is not trusted:
//! truncated records are not read, other kinds are skipped, and a step that does not lead forward
//! ends the reading.

#![expect(unsafe_code, reason = "reads a record from bytes")]

use core::mem::offset_of;

/// `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`.
pub(crate) const CONCURRENT_KERNEL: u32 = 10;

/// The first fields of `CUpti_ActivityKernel4` to `10`; see the module's head.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KernelRecord {
    kind: u32,
    configs: [u8; 2],
    registers: u16,
    partitioned: [u32; 2],
    /// ns; 0: not known, for lack of memory on the device.
    start: u64,
    end: u64,
    completed: u64,
    pub(crate) device: u32,
    context: u32,
    stream: u32,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    static_shared_bytes: u32,
    pub(crate) dynamic_shared_bytes: u32,
    local_bytes: [u32; 2],
    correlation: u32,
    grid_id: i64,
    /// Address of a text that ends in NUL, valid while the buffer is read.
    pub(crate) name: usize,
}

const _: () = {
    assert!(size_of::<KernelRecord>() == 112 && align_of::<KernelRecord>() == 8);
    assert!(offset_of!(KernelRecord, registers) == 6);
    assert!(offset_of!(KernelRecord, start) == 16 && offset_of!(KernelRecord, end) == 24);
    assert!(offset_of!(KernelRecord, completed) == 32 && offset_of!(KernelRecord, device) == 40);
    assert!(offset_of!(KernelRecord, context) == 44 && offset_of!(KernelRecord, stream) == 48);
    assert!(offset_of!(KernelRecord, grid) == 52 && offset_of!(KernelRecord, block) == 64);
    assert!(offset_of!(KernelRecord, static_shared_bytes) == 76);
    assert!(offset_of!(KernelRecord, dynamic_shared_bytes) == 80);
    assert!(offset_of!(KernelRecord, correlation) == 92);
    assert!(offset_of!(KernelRecord, grid_id) == 96 && offset_of!(KernelRecord, name) == 104);
};

impl KernelRecord {
    pub(crate) fn duration_ns(&self) -> Option<f32> {
        let ns = self.end.checked_sub(self.start)?;
        (self.start > 0 && ns > 0).then_some(ns as f32)
    }

    fn at(buffer: &[u8], at: usize) -> Option<Self> {
        let bytes = buffer.get(at..)?.get(..size_of::<Self>())?;
        // SAFETY: enough bytes; any bytes are a value, as all fields are numbers.
        let record = unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() };
        (record.kind == CONCURRENT_KERNEL).then_some(record)
    }
}

/// Passes the kernels in a buffer to `each`. `next` returns the offset of the record after one, or
/// of the first, as `cuptiActivityGetNextRecord` does.
pub(crate) fn read(
    buffer: &[u8],
    mut next: impl FnMut(Option<usize>) -> Option<usize>,
    mut each: impl FnMut(&KernelRecord),
) {
    let mut last = None;
    while let Some(at) = next(last) {
        if at >= buffer.len() || last.is_some_and(|last| at <= last) {
            return;
        }
        if let Some(record) = KernelRecord::at(buffer, at) {
            each(&record);
        }
        last = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, times: [u64; 2], bytes: usize) -> Vec<u8> {
        let mut record = vec![0; bytes];
        record[..4].copy_from_slice(&kind.to_le_bytes());
        record[16..24].copy_from_slice(&times[0].to_le_bytes());
        record[24..32].copy_from_slice(&times[1].to_le_bytes());
        record[52..56].copy_from_slice(&7_u32.to_le_bytes());
        record
    }

    fn read_all(buffer: &[u8], step: usize) -> Vec<Option<f32>> {
        let mut all = Vec::new();
        let next = |last: Option<usize>| Some(last.map_or(0, |last| last + step));
        read(buffer, next, |record| {
            assert_eq!(record.grid[0], 7);
            all.push(record.duration_ns());
        });
        all
    }

    #[test]
    fn kernels_of_any_length_are_read_and_other_kinds_passed_over() {
        for bytes in [144, 160, 208, 216] {
            let mut buffer = record(CONCURRENT_KERNEL, [100, 350], bytes);
            buffer.extend(record(1, [5, 9], bytes));
            buffer.extend(record(CONCURRENT_KERNEL, [400, 401], bytes));
            assert_eq!(read_all(&buffer, bytes), [Some(250.0), Some(1.0)]);
        }
    }

    #[test]
    fn what_is_cut_is_not_read() {
        let mut buffer = record(CONCURRENT_KERNEL, [100, 350], 144);
        buffer.extend(record(CONCURRENT_KERNEL, [400, 500], 144));
        for cut in [145, 148, 144 + 111] {
            assert_eq!(read_all(&buffer[..cut], 144), [Some(250.0)]);
        }
        for cut in [0, 3, 111] {
            assert!(read_all(&buffer[..cut], 144).is_empty());
        }
    }

    #[test]
    fn a_step_that_does_not_lead_forward_ends_the_reading() {
        let buffer = record(CONCURRENT_KERNEL, [100, 350], 144);
        assert_eq!(read_all(&buffer, 0).len(), 1);
        let mut count = 0;
        let steps = [40, 8, 16];
        let mut step = steps.iter();
        read(&buffer, |_| step.next().copied(), |_| count += 1);
        assert_eq!(count, 0, "no record begins there");
        assert_eq!(step.len(), 1, "the second step is the last");
    }

    #[test]
    fn a_record_without_times_or_that_ends_before_it_begins_has_no_duration() {
        for times in [[0, 0], [0, 50], [50, 0], [90, 80], [70, 70]] {
            let buffer = record(CONCURRENT_KERNEL, times, 208);
            assert_eq!(read_all(&buffer, 208), [None]);
        }
    }
}
