//! Contexts.

use std::ffi::{c_int, c_uint};

use abi::types::{CUcontext, CUdevice, CUexecAffinityParam, CUlimit, CUresult};
use softgpu::wire::{PRIORITY_GREATEST, PRIORITY_LEAST};

use super::exports;
use crate::contexts::{API_VERSION, limit};
use crate::driver::Driver;
use crate::raw::{In, Out};
use crate::thread;

fn handle(handle: u64) -> CUcontext {
    CUcontext(std::ptr::without_provenance_mut(handle as usize))
}

fn number(context: CUcontext) -> u64 {
    context.0.addr() as u64
}

fn create(
    driver: &Driver,
    context: &Out<CUcontext>,
    flags: c_uint,
    device: CUdevice,
) -> Result<(), CUresult> {
    driver.check_device(device)?;
    if context.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let made = driver.create_context(flags)?;
    thread::push(made)?;
    context.set(handle(made))
}

exports! {
    cuCtxCreate(context: Out<CUcontext>, flags: c_uint, device: CUdevice)
        |driver| create(driver, &context, flags, device);

    cuCtxCreate_v2(context: Out<CUcontext>, flags: c_uint, device: CUdevice)
        |driver| create(driver, &context, flags, device);

    cuCtxCreate_v3(
        context: Out<CUcontext>, _params: In<CUexecAffinityParam>, count: c_int, flags: c_uint, device: CUdevice,
    ) |driver| match count {
        0 => create(driver, &context, flags, device),
        // The model has no partitions of SMs.
        1.. => Err(CUresult::UNSUPPORTED_EXEC_AFFINITY),
        _ => Err(CUresult::INVALID_VALUE),
    };

    cuCtxDestroy_v2(context: CUcontext) |driver| driver.destroy_created_context(number(context));

    cuCtxGetCurrent(context: Out<CUcontext>) |_| context.set(thread::current().map_or(CUcontext::NULL, handle));

    cuCtxSetCurrent(context: CUcontext) |driver| {
        if context.is_null() {
            return thread::replace(None);
        }
        driver.context(number(context))?;
        thread::replace(Some(number(context)))
    };

    cuCtxPushCurrent_v2(context: CUcontext) |driver| {
        driver.context(number(context))?;
        thread::push(number(context))
    };

    cuCtxPopCurrent_v2(context: Out<CUcontext>) |_| {
        context.set_if_wanted(handle(thread::pop()?));
        Ok(())
    };

    cuCtxGetDevice(device: Out<CUdevice>) |driver| {
        driver.current()?;
        device.set(CUdevice(0))
    };

    cuCtxGetFlags(flags: Out<c_uint>) |driver| flags.set(driver.current()?.1.flags);

    cuCtxGetApiVersion(context: CUcontext, version: Out<c_uint>) |driver| {
        if context.is_null() {
            driver.current()?;
        } else {
            driver.context(number(context))?;
        }
        version.set(API_VERSION)
    };

    cuCtxGetLimit(value: Out<usize>, which: CUlimit) |driver| {
        driver.current()?;
        value.set(limit(which)?)
    };

    // There is no device code that could use more or notice less.
    cuCtxSetLimit(which: CUlimit, _value: usize) |driver| {
        driver.current()?;
        limit(which).map(|_| ())
    };

    cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) |driver| {
        driver.current()?;
        least.set_if_wanted(PRIORITY_LEAST);
        greatest.set_if_wanted(PRIORITY_GREATEST);
        Ok(())
    };

    cuCtxSynchronize() live |driver| {
        let (context, _) = driver.current()?;
        driver.synchronise_context(context)
    };

    cuCtxSynchronize_v2(context: CUcontext) live |driver| {
        let asked = if context.is_null() { driver.current()?.0 } else { number(context) };
        driver.synchronise_context(asked)
    };

    cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) |driver| {
        driver.check_device(device)?;
        if context.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        context.set(handle(driver.retain_primary()?))
    };

    cuDevicePrimaryCtxRelease_v2(device: CUdevice) |driver| {
        driver.check_device(device)?;
        driver.release_primary()
    };

    cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<c_uint>, active: Out<c_int>) |driver| {
        driver.check_device(device)?;
        let tables = driver.tables.lock();
        flags.set(tables.primary.flags)?;
        active.set(tables.primary.context.is_some().into())
    };

    cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) |driver| {
        driver.check_device(device)?;
        driver.tables.lock().primary.flags = flags;
        Ok(())
    };
}
