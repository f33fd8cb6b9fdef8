//! Allocations and frees, charged to the job's quota ([`crate::memory::quota`]) and counted: device
//! memory by the bytes requested, pinned host memory separately and not charged. A free is always
//! passed on: the driver judges memory that we never saw allocated.

use core::ffi::{c_uint, c_void};

use abi::types::{CUdeviceptr, CUdeviceptr_v1, CUmemoryPool, CUresult, CUstream};
use protocol::ledger::Kind;

use super::{hook, stored};
use crate::driver;
use crate::memory::counts::{
    handle_allocated, handle_freed, handle_host_allocated, of_address, of_stream,
};
use crate::memory::quota::blocks::Key;
use crate::memory::quota::pools::{Draw, Source, pool_number};
use crate::memory::quota::{self, Charge, HELD};
use crate::process::account::DeviceAccount;
use crate::progress::stream::{Flavour, Stream};
use crate::progress::streams::STREAMS;

/// Defines hooks of entry points that are seen and not counted. Each block has the reason.
macro_rules! seen {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(
            hook! {
                $name($($argument: $type),*);
                after |_, _| ();
            }
        )*
    };
}
pub(super) use seen;

macro_rules! allocate {
    ($name:ident($address:ty, $bytes:ty $(, $flags:ident)?), $kind:expr) => {
        hook! {
            $name(address: *mut $address, bytes: $bytes $(, $flags: c_uint)?);
            before |_| Charge::reserve(account_for(address), $kind, bytes as u64);
            // SAFETY: the application's own arguments, passed on.
            call |charge, real| unless_refused(charge, || unsafe { real(address, bytes $(, $flags)?) });
            after |client, charge, result| {
                handle_allocated(client, result, bytes as usize);
                // SAFETY: this call's output parameter.
                let address = unsafe { stored(address, result) };
                charge.settle(result, address.map(|address| Key::Address(address.0.into())));
            };
        }
    };
}

allocate!(cuMemAlloc(CUdeviceptr_v1, c_uint), Kind::Plain);
allocate!(cuMemAlloc_v2(CUdeviceptr, usize), Kind::Plain);
allocate!(cuMemAllocManaged(CUdeviceptr, usize, flags), Kind::Managed);

/// Least spacing of rows on every GPU; the charge is corrected by the driver's answer.
const PITCH_BYTES: u64 = 512;

macro_rules! allocate_pitched {
    ($name:ident($address:ty, $size:ty)) => {
        hook! {
            $name(
                address: *mut $address,
                pitch: *mut $size,
                width_bytes: $size,
                height: $size,
                element_bytes: c_uint,
            );
            before |_| {
                let row = (width_bytes as u64).next_multiple_of(PITCH_BYTES);
                let bytes = row.saturating_mul(height as u64);
                Charge::reserve(account_for(address), Kind::Plain, bytes)
            };
            call |charge, real| unless_refused(charge, || {
                // SAFETY: the application's own arguments, passed on.
                let result = unsafe { real(address, pitch, width_bytes, height, element_bytes) };
                // SAFETY: this call's output parameters.
                let told = unsafe { stored(address, result).zip(stored(pitch, result)) };
                match (charge, told) {
                    (Some(charge), Some((address, pitch)))
                        if !charge.fit((pitch as u64).saturating_mul(height as u64)) =>
                    {
                        driver::memory::free(CUdeviceptr(address.0.into()));
                        CUresult::OUT_OF_MEMORY
                    }
                    _ => result,
                }
            });
            after |client, charge, result| {
                // SAFETY: this call's output parameters.
                let told = unsafe { stored(address, result).zip(stored(pitch, result)) };
                let row = told.map_or(width_bytes, |(_, pitch)| pitch);
                handle_allocated(client, result, (row as usize).saturating_mul(height as usize));
                charge.settle(result, told.map(|(address, _)| Key::Address(address.0.into())));
            };
        }
    };
}

allocate_pitched!(cuMemAllocPitch(CUdeviceptr_v1, c_uint));
allocate_pitched!(cuMemAllocPitch_v2(CUdeviceptr, usize));

macro_rules! allocate_async {
    ($name:ident, $flavour:expr $(, $pool:ident)?) => {
        hook! {
            $name(
                address: *mut CUdeviceptr,
                bytes: usize,
                $($pool: CUmemoryPool,)?
                stream: CUstream,
            );
            before |_| {
                let pool: Option<CUmemoryPool> = None;
                $(let pool = pool.or(Some($pool));)?
                let is_whole = !address.is_null();
                is_whole.then(|| begin_async(Stream::of(stream, $flavour), pool, bytes)).flatten()
            };
            call |begun, real| {
                if begun.is_some_and(|begun| begun.as_ref().is_some_and(Async::is_refused)) {
                    CUresult::OUT_OF_MEMORY
                } else {
                    // SAFETY: the application's own arguments, passed on.
                    unsafe { real(address, bytes, $($pool,)? stream) }
                }
            };
            after |client, begun, result| {
                let client = of_stream(client, Stream::of(stream, $flavour));
                handle_allocated(client, result, bytes);
                if let Some(begun) = begun {
                    // SAFETY: this call's output parameter.
                    begun.end(unsafe { stored(address, result) }, bytes);
                }
            };
        }
    };
}

allocate_async!(cuMemAllocAsync, Flavour::Plain);
allocate_async!(cuMemAllocAsync_ptsz, Flavour::PerThread);
allocate_async!(cuMemAllocFromPoolAsync, Flavour::Plain, pool);
allocate_async!(cuMemAllocFromPoolAsync_ptsz, Flavour::PerThread, pool);

struct Async {
    account: &'static DeviceAccount,
    draw: Draw,
    source: Source,
}

fn begin_async(stream: Stream, pool: Option<CUmemoryPool>, bytes: usize) -> Option<Async> {
    let mut account = quota::of_stream(stream.handle())?;
    let source = if STREAMS.is_capturing() && driver::is_capturing(stream.handle()) {
        Source::Graphs(account.device.0)
    } else {
        let pool = pool.or_else(|| driver::memory::current_pool(account.device))?;
        account = HELD.pools.account_of(pool, account)?;
        Source::Pool(pool_number(pool))
    };
    Some(Async {
        account,
        draw: HELD.pools.begin(account, source, bytes as u64),
        source,
    })
}

impl Async {
    fn is_refused(&self) -> bool {
        self.draw.is_refused()
    }

    fn end(&self, address: Option<CUdeviceptr>, bytes: usize) {
        HELD.pools.end(&self.draw, address.is_some());
        if let (Source::Pool(pool), Some(address)) = (self.source, address) {
            HELD.blocks
                .keep_of_pool(address, self.account, Kind::Pool, bytes as u64, pool);
        }
    }
}

/// The account to charge for a result at `output`. None for null, whose error the driver reports.
pub(super) fn account_for<T>(output: *const T) -> Option<&'static DeviceAccount> {
    (!output.is_null()).then(quota::current).flatten()
}

pub(super) fn unless_refused(charge: Option<&Charge>, call: impl FnOnce() -> CUresult) -> CUresult {
    if charge.is_some_and(Charge::is_refused) {
        return CUresult::OUT_OF_MEMORY;
    }
    call()
}

macro_rules! free {
    ($name:ident($address:ty)) => {
        hook! {
            $name(address: $address);
            before |client| {
                let address = u64::from(address.0);
                (of_address(client, address), HELD.blocks.take(Key::Address(address)))
            };
            after |_, (owner, block), result| {
                handle_freed(*owner, result, address.0.into());
                HELD.blocks.handle_freed(block, result);
                // It may have been a graph's.
                HELD.pools.note_graphs_stale();
            };
        }
    };
}

free!(cuMemFree(CUdeviceptr_v1));
free!(cuMemFree_v2(CUdeviceptr));

macro_rules! free_async {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(address: CUdeviceptr, stream: CUstream);
            before |client| (of_address(client, address.0), HELD.blocks.take(address));
            after |_, (owner, block), result| {
                let owner = of_stream(*owner, Stream::of(stream, $flavour)).and(*owner);
                handle_freed(owner, result, address.0);
                HELD.blocks.handle_freed(block, result);
                HELD.pools.note_graphs_stale();
            };
        }
    };
}

free_async!(cuMemFreeAsync, Flavour::Plain);
free_async!(cuMemFreeAsync_ptsz, Flavour::PerThread);

hook! {
    cuMemAllocHost(address: *mut *mut c_void, bytes: c_uint);
    after |client, result| handle_host_allocated(client, result, bytes as usize);
}

hook! {
    cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize);
    after |client, result| handle_host_allocated(client, result, bytes);
}

hook! {
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    after |client, result| handle_host_allocated(client, result, bytes);
}

hook! {
    cuMemHostRegister(address: *mut c_void, bytes: usize, flags: c_uint);
    after |client, result| handle_host_allocated(client, result, bytes);
}

hook! {
    cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    after |client, result| handle_host_allocated(client, result, bytes);
}

// Host memory counts as requested in total, so frees do not count.
seen! {
    cuMemFreeHost(address: *mut c_void);
    cuMemHostUnregister(address: *mut c_void);
}
