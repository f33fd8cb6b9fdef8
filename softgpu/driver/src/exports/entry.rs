//! Initialisation, versions, error texts, and lookup of all other functions.

use std::ffi::{c_char, c_int, c_uint, c_void};

use abi::types::{
    CUdriverProcAddress_flags as Flags, CUdriverProcAddressQueryResult as Found, CUresult, CUuuid,
};

use super::{ADDRESSES, exports};
use crate::driver;
use crate::raw::{In, Out, Text};

exports! {
    cuInit(flags: c_uint) early || if flags == 0 { driver::initialise() } else { Err(CUresult::INVALID_VALUE) };

    cuDriverGetVersion(version: Out<c_int>) early || version.set(softgpu::CUDA_VERSION);

    cuGetErrorName(error: CUresult, name: Out<*const c_char>) early || match error.name() {
        Some(text) => name.set(text.as_ptr()),
        None => name.set(std::ptr::null()).and(Err(CUresult::INVALID_VALUE)),
    };

    cuGetErrorString(error: CUresult, text: Out<*const c_char>) early || match error.description() {
        Some(description) => text.set(description.as_ptr()),
        None => text.set(std::ptr::null()).and(Err(CUresult::INVALID_VALUE)),
    };

    // Always denied; see the crate's text.
    cuGetExportTable(_table: Out<*const c_void>, _id: In<CUuuid>) |driver| {
        driver.link.count_not_supported();
        Err(CUresult::NOT_SUPPORTED)
    };

    cuGetProcAddress(symbol: Text, function: Out<*const ()>, version: c_int, flags: u64)
        early || match resolve(&symbol, version, flags)? {
            Ok(address) => function.set(address),
            Err(_) => Err(CUresult::NOT_FOUND),
        };

    cuGetProcAddress_v2(
        symbol: Text, function: Out<*const ()>, version: c_int, flags: u64, found: Out<Found>,
    ) early || {
        let answer = resolve(&symbol, version, flags)?;
        found.set_if_wanted(answer.err().unwrap_or(Found::SUCCESS));
        function.set(answer.unwrap_or(std::ptr::null()))
    };
}

/// One of our functions, or why there is none, as R525 to R570 answer, before and after `cuInit`: a
/// version above the driver's own, which R580 refuses, is treated like any other.
fn resolve(
    symbol: &Text,
    version: c_int,
    flags: u64,
) -> Result<Result<*const (), Found>, CUresult> {
    let known = Flags::LEGACY_STREAM.0 | Flags::PER_THREAD_DEFAULT_STREAM.0;
    if flags & !u64::from(known) != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let per_thread = flags & u64::from(Flags::PER_THREAD_DEFAULT_STREAM.0) != 0;
    let api = symbol.to_string()?;
    Ok(
        match abi::newest(&api, version.cast_unsigned(), per_thread) {
            Some(index) => Ok(ADDRESSES[index].0),
            None if abi::first_version(&api).is_some() => Err(Found::VERSION_NOT_SUFFICIENT),
            None => Err(Found::SYMBOL_NOT_FOUND),
        },
    )
}
