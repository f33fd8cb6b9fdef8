//! Contexts.

use std::ffi::{c_int, c_uint};

use abi::types::{CUcontext, CUdevice, CUevent, CUexecAffinityParam, CUlimit, CUresult};
use softgpu::wire::{PRIORITY_GREATEST, PRIORITY_LEAST};

use super::exports;
use crate::contexts::{API_VERSION, limit};
use crate::driver::Driver;
use crate::raw::{In, Out};
use crate::tables::HANDLE_STEP;
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
    let device = driver.check_device(device)?;
    if context.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let made = driver.create_context(device, flags)?;
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
        let (_, context) = driver.current()?;
        device.set(CUdevice(context.device as c_int))
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

    // There is no device code that such a limit could affect.
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
        let (context, _) = driver.current_itself()?;
        driver.synchronise_context(context)
    };

    cuCtxSynchronize_v2(context: CUcontext) live |driver| {
        let asked = if context.is_null() { driver.current_itself()?.0 } else { number(context) };
        driver.synchronise_context(asked)
    };

    cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice) |driver| {
        let device = driver.check_device(device)?;
        if context.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        context.set(handle(driver.retain_primary(device)?))
    };

    cuDevicePrimaryCtxRelease_v2(device: CUdevice) |driver| {
        let device = driver.check_device(device)?;
        driver.release_primary(device)
    };

    cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<c_uint>, active: Out<c_int>) |driver| {
        let device = driver.check_device(device)?;
        let tables = driver.tables.lock();
        let primary = &tables.primaries[device];
        flags.set(primary.flags)?;
        active.set(primary.context.is_some().into())
    };

    cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) |driver| {
        let device = driver.check_device(device)?;
        driver.tables.lock().primaries[device].flags = flags;
        Ok(())
    };

    // None of the possible parameters (SM affinity, graphics) is supported.
    cuCtxCreate_v4(
        context: Out<CUcontext>, parameters: In<[u64; 3]>, flags: c_uint, device: CUdevice,
    ) |driver| {
        // Affinities, their number, and a graphics context (cuda.h, CUctxCreateParams).
        match parameters.get() {
            Ok([_, _, graphics]) if graphics != 0 => return Err(CUresult::NOT_SUPPORTED),
            Ok([affinities, ..]) if affinities != 0 => {
                return Err(CUresult::UNSUPPORTED_EXEC_AFFINITY);
            }
            _ => {}
        }
        create(driver, &context, flags, device)
    };

    cuCtxDestroy(context: CUcontext) |driver| driver.destroy_created_context(number(context));

    cuCtxPushCurrent(context: CUcontext) |driver| {
        driver.context(number(context))?;
        thread::push(number(context))
    };

    cuCtxPopCurrent(context: Out<CUcontext>) |_| {
        context.set_if_wanted(handle(thread::pop()?));
        Ok(())
    };

    cuCtxAttach(context: Out<CUcontext>, flags: c_uint) |driver| {
        if flags != 0 || context.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let (current, _) = driver.current()?;
        driver.attach_context(current)?;
        context.set(handle(current))
    };

    cuCtxDetach(context: CUcontext) |driver| driver.detach_context(number(context));

    cuCtxGetId(context: CUcontext, id: Out<u64>) |driver| {
        let asked = if context.is_null() { driver.current_itself()?.0 } else { number(context) };
        driver.context(asked)?;
        id.set(asked / HANDLE_STEP)
    };

    cuCtxGetDevice_v2(device: Out<CUdevice>, context: CUcontext) |driver| {
        let asked = if context.is_null() { driver.current_itself()?.0 } else { number(context) };
        device.set(CUdevice(driver.context(asked)?.device as c_int))
    };

    cuCtxRecordEvent(context: CUcontext, event: CUevent) live |driver| {
        let asked = if context.is_null() { driver.current_itself()?.0 } else { number(context) };
        driver.record_context(asked, event.0.addr() as u64)
    };

    cuCtxWaitEvent(context: CUcontext, event: CUevent) live |driver| {
        let asked = if context.is_null() { driver.current_itself()?.0 } else { number(context) };
        driver.wait_in_context(asked, event.0.addr() as u64)
    };

    // No device can access another's memory; see cuDeviceCanAccessPeer.
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) |driver| {
        let (current, _) = driver.current()?;
        driver.context(number(peer))?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        Err(if current == number(peer) {
            CUresult::INVALID_DEVICE
        } else {
            CUresult::PEER_ACCESS_UNSUPPORTED
        })
    };

    cuCtxDisablePeerAccess(peer: CUcontext) |driver| {
        driver.current()?;
        driver.context(number(peer))?;
        Err(CUresult::PEER_ACCESS_NOT_ENABLED)
    };

    cuDevicePrimaryCtxRelease(device: CUdevice) |driver| {
        let device = driver.check_device(device)?;
        driver.release_primary(device)
    };

    cuDevicePrimaryCtxReset(device: CUdevice) |driver| {
        let device = driver.check_device(device)?;
        driver.reset_primary(device)
    };

    cuDevicePrimaryCtxReset_v2(device: CUdevice) |driver| {
        let device = driver.check_device(device)?;
        driver.reset_primary(device)
    };

    cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) |driver| {
        let device = driver.check_device(device)?;
        driver.tables.lock().primaries[device].flags = flags;
        Ok(())
    };
}
