//! Values in memory that streams wait for and write, singly or in batches.

use abi::types::{
    CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, CUstreamWaitValue_flags,
    CUstreamWriteValue_flags,
};
use softgpu::wire::{Until, Work};

use crate::cost::QUERY_HOST_NS;
use crate::driver::Driver;
use crate::memory::Place;
use crate::tables::Stream;

/// Most operations of a batch (CUDA driver API, `cuStreamBatchMemOp`).
pub(crate) const BATCH_MAX: u32 = 256;

impl Driver {
    pub(crate) fn check_wait(
        &self,
        at: u64,
        width_bytes: u32,
        value: u64,
        flags: u32,
    ) -> Result<Work, CUresult> {
        self.check_value(at, width_bytes)?;
        if flags & CUstreamWaitValue_flags::FLUSH.0 != 0 {
            // As cuDeviceGetAttribute reports.
            return Err(CUresult::NOT_SUPPORTED);
        }
        Ok(Work::WaitValue {
            at,
            width_bytes,
            value,
            until: Until::from_number(flags.into()).ok_or(CUresult::INVALID_VALUE)?,
        })
    }

    pub(crate) fn check_write(
        &self,
        to: u64,
        width_bytes: u32,
        value: u64,
        flags: u32,
    ) -> Result<Work, CUresult> {
        self.check_value(to, width_bytes)?;
        if CUstreamWriteValue_flags(flags).name().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(Work::WriteValue {
            to,
            width_bytes,
            value,
        })
    }

    /// Checks an operation of a batch; `None` for a barrier: streams here are always in order with
    /// memory.
    pub(crate) fn check_batched(
        &self,
        operation: &CUstreamBatchMemOpParams,
    ) -> Result<Option<Work>, CUresult> {
        let CUstreamBatchMemOpParams {
            address,
            value,
            flags,
            ..
        } = *operation;
        let low = value & u64::from(u32::MAX);
        let work = match operation.operation {
            CUstreamBatchMemOpType::WAIT_VALUE_32 => self.check_wait(address, 4, low, flags),
            CUstreamBatchMemOpType::WAIT_VALUE_64 => self.check_wait(address, 8, value, flags),
            CUstreamBatchMemOpType::WRITE_VALUE_32 => self.check_write(address, 4, low, flags),
            CUstreamBatchMemOpType::WRITE_VALUE_64 => self.check_write(address, 8, value, flags),
            CUstreamBatchMemOpType::BARRIER if operation.flags_of_barrier <= 1 => return Ok(None),
            CUstreamBatchMemOpType::FLUSH_REMOTE_WRITES => Err(CUresult::NOT_SUPPORTED),
            _ => Err(CUresult::INVALID_VALUE),
        };
        work.map(Some)
    }

    fn check_value(&self, address: u64, width_bytes: u32) -> Result<(), CUresult> {
        let is_aligned = address.is_multiple_of(width_bytes.into());
        if !is_aligned || self.place(address, width_bytes.into())? == Place::Pageable {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(())
    }

    pub(crate) fn put_operations(
        &self,
        stream: &Stream,
        operations: &[Work],
    ) -> Result<(), CUresult> {
        for operation in operations {
            self.submit(stream, *operation)?;
        }
        self.link.spend(QUERY_HOST_NS);
        Ok(())
    }

    /// Lets a stream wait for another device. The two servers do not know each other, so a thread
    /// of the driver waits for the one and writes the value that the other waits for.
    pub(crate) fn wait_across(
        &'static self,
        stream: &Stream,
        awaited: impl FnOnce() + Send + Clone + 'static,
    ) -> Result<(), CUresult> {
        let Some(base) = self.host_base() else {
            return Ok(());
        };
        let offset = self.stage(8)?;
        let write = move |value: u64| {
            if let Some(host) = self.host() {
                host.write(offset, &value.to_le_bytes());
            }
        };
        write(0);
        let wait = Work::WaitValue {
            at: base + offset,
            width_bytes: 8,
            value: 1,
            until: Until::Equal,
        };
        match self.submit(stream, wait) {
            Ok(until) => self.staged_until(offset, until),
            Err(error) => {
                self.unstage(offset);
                return Err(error);
            }
        }
        let reach = move || {
            awaited();
            write(1);
        };
        let thread = std::thread::Builder::new().name("softgpu-wait".into());
        if thread.spawn(reach.clone()).is_err() {
            reach();
        }
        Ok(())
    }
}
