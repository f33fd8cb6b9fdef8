//! Arrays.

use std::ffi::c_uint;

use abi::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUdevice, CUmipmappedArray,
    CUresult,
};

use super::exports;
use crate::driver::Driver;
use crate::raw::{In, Out, handle};

fn create<T: Copy + Into<CUDA_ARRAY3D_DESCRIPTOR>>(
    driver: &Driver,
    array: &Out<CUarray>,
    descriptor: &In<T>,
) -> Result<(), CUresult> {
    let descriptor = descriptor.get()?.into();
    if array.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    array.set(CUarray(handle(driver.create_array(descriptor)?)))
}

fn describe(driver: &Driver, array: CUarray) -> Result<CUDA_ARRAY3D_DESCRIPTOR, CUresult> {
    Ok(driver.array(array.0.addr() as u64)?.descriptor)
}

/// A size in the width of CUDA 2.
fn narrow(size: usize) -> Result<c_uint, CUresult> {
    c_uint::try_from(size).map_err(|_| CUresult::INVALID_VALUE)
}

exports! {
    cuArrayCreate(array: Out<CUarray>, descriptor: In<CUDA_ARRAY_DESCRIPTOR_v1>)
        |driver| create(driver, &array, &descriptor);

    cuArrayCreate_v2(array: Out<CUarray>, descriptor: In<CUDA_ARRAY_DESCRIPTOR>)
        |driver| create(driver, &array, &descriptor);

    cuArray3DCreate(array: Out<CUarray>, descriptor: In<CUDA_ARRAY3D_DESCRIPTOR_v1>)
        |driver| create(driver, &array, &descriptor);

    cuArray3DCreate_v2(array: Out<CUarray>, descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>)
        |driver| create(driver, &array, &descriptor);

    cuArrayDestroy(array: CUarray) |driver| driver.destroy_array(array.0.addr() as u64);

    cuArrayGetDescriptor(descriptor: Out<CUDA_ARRAY_DESCRIPTOR_v1>, array: CUarray) |driver| {
        let CUDA_ARRAY3D_DESCRIPTOR { width, height, format, num_channels, .. } =
            describe(driver, array)?;
        let (width, height) = (narrow(width)?, narrow(height)?);
        descriptor.set(CUDA_ARRAY_DESCRIPTOR_v1 { width, height, format, num_channels })
    };

    cuArrayGetDescriptor_v2(descriptor: Out<CUDA_ARRAY_DESCRIPTOR>, array: CUarray) |driver| {
        let CUDA_ARRAY3D_DESCRIPTOR { width, height, format, num_channels, .. } =
            describe(driver, array)?;
        descriptor.set(CUDA_ARRAY_DESCRIPTOR { width, height, format, num_channels })
    };

    cuArray3DGetDescriptor(descriptor: Out<CUDA_ARRAY3D_DESCRIPTOR_v1>, array: CUarray) |driver| {
        let CUDA_ARRAY3D_DESCRIPTOR { width, height, depth, format, num_channels, flags } =
            describe(driver, array)?;
        descriptor.set(CUDA_ARRAY3D_DESCRIPTOR_v1 {
            width: narrow(width)?,
            height: narrow(height)?,
            depth: narrow(depth)?,
            format,
            num_channels,
            flags,
        })
    };

    cuArray3DGetDescriptor_v2(descriptor: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray)
        |driver| descriptor.set(describe(driver, array)?);

    // Only arrays that get their memory later have such requirements, and only planar arrays have
    // planes; neither kind is supported here.
    cuArrayGetMemoryRequirements(
        requirements: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
        array: CUarray,
        device: CUdevice,
    ) |driver| {
        describe(driver, array)?;
        driver.check_device(device)?;
        let _ = requirements;
        Err(CUresult::INVALID_VALUE)
    };

    cuArrayGetPlane(plane: Out<CUarray>, array: CUarray, index: c_uint) |driver| {
        let _ = (plane, index);
        describe(driver, array)?;
        Err(CUresult::INVALID_VALUE)
    };

    cuMipmappedArrayCreate(
        array: Out<CUmipmappedArray>,
        descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>,
        levels: c_uint,
    ) |driver| {
        let descriptor = descriptor.get()?;
        if array.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        array.set(CUmipmappedArray(handle(driver.create_mipmap(descriptor, levels)?)))
    };

    cuMipmappedArrayDestroy(array: CUmipmappedArray)
        |driver| driver.destroy_mipmap(array.0.addr() as u64);

    cuMipmappedArrayGetLevel(level: Out<CUarray>, array: CUmipmappedArray, number: c_uint) |driver| {
        if level.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        level.set(CUarray(handle(driver.mipmap_level(array.0.addr() as u64, number)?)))
    };
}
