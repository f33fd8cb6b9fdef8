//! Initialisation, versions, error texts, and the way to all other functions.

use std::ffi::{c_char, c_int, c_uint, c_void};

use abi::types::{
    CUdriverProcAddress_flags as Flags, CUdriverProcAddressQueryResult as Found, CUresult, CUuuid,
};

use super::{ADDRESSES, exports};
use crate::driver;
use crate::raw::{In, Out, Text};
use crate::streams::Flavour;

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

    // Denied, always; see the crate's text.
    cuGetExportTable(_table: Out<*const c_void>, _id: In<CUuuid>) |driver| {
        driver.link.count_not_supported();
        Err(CUresult::NOT_SUPPORTED)
    };

    cuGetProcAddress(symbol: Text, function: Out<*const ()>, version: c_int, flags: u64)
        early || resolve(&symbol, &function, version, flags, Flavour::Legacy, None);

    cuGetProcAddress_ptsz(symbol: Text, function: Out<*const ()>, version: c_int, flags: u64)
        early || resolve(&symbol, &function, version, flags, Flavour::PerThread, None);

    cuGetProcAddress_v2(
        symbol: Text, function: Out<*const ()>, version: c_int, flags: u64, found: Out<Found>,
    ) early || resolve(&symbol, &function, version, flags, Flavour::Legacy, Some(&found));

    cuGetProcAddress_v2_ptsz(
        symbol: Text, function: Out<*const ()>, version: c_int, flags: u64, found: Out<Found>,
    ) early || resolve(&symbol, &function, version, flags, Flavour::PerThread, Some(&found));
}

/// Answers with one of our own functions.
fn resolve(
    symbol: &Text,
    function: &Out<*const ()>,
    version: c_int,
    flags: u64,
    flavour: Flavour,
    found: Option<&Out<Found>>,
) -> Result<(), CUresult> {
    let tell = |result: Found| {
        found
            .into_iter()
            .for_each(|found| found.set_if_wanted(result))
    };
    let per_thread = match u32::try_from(flags).map(Flags) {
        Ok(Flags::DEFAULT) => flavour == Flavour::PerThread,
        Ok(Flags::LEGACY_STREAM) => false,
        Ok(Flags::PER_THREAD_DEFAULT_STREAM) => true,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let api = symbol.to_string()?;
    let version = u32::try_from(version).map_err(|_| CUresult::INVALID_VALUE)?;
    match abi::newest(&api, version, per_thread) {
        Some(index) => {
            tell(Found::SUCCESS);
            function.set(ADDRESSES[index].0)
        }
        None => {
            let exists = abi::first_version(&api).is_some();
            tell(if exists {
                Found::VERSION_NOT_SUFFICIENT
            } else {
                Found::SYMBOL_NOT_FOUND
            });
            function.set(std::ptr::null())?;
            Err(CUresult::NOT_FOUND)
        }
    }
}
