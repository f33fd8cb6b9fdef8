//! The differences of CUDA 12 from CUDA 13 ([`crate`]): the release, and its structures. The lists
//! are attributes by the numbers of `cuda.h`, in the order of the fields of `struct cudaDeviceProp`
//! in `driver_types.h`; each has the integers between two fields of another type.

use std::ffi::c_int;

/// Result of `cudaRuntimeGetVersion`: the release of the headers used.
pub(crate) const VERSION: c_int = 12_080;

/// From `maxThreadsPerBlock` to `clockRate`.
pub(crate) const GRID: [i32; 8] = [1, 2, 3, 4, 5, 6, 7, 13];
/// From `deviceOverlap` to `maxSurfaceCubemapLayered`.
pub(crate) const TEXTURES: [i32; 46] = [
    15, 16, 17, 18, 19, 20, 21, 77, 69, 22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49,
    52, 42, 43, 27, 28, 29, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68,
];
/// From `concurrentKernels` to `localL1CacheSupported`.
pub(crate) const FEATURES: [i32; 16] = [
    31, 32, 33, 34, 50, 35, 40, 41, 36, 37, 38, 108, 39, 78, 79, 80,
];
/// From `regsPerMultiprocessor` to `cooperativeMultiDeviceLaunch`.
pub(crate) const MEMORY: [i32; 12] = [82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 95, 96];
/// From `hostRegisterSupported` to `unifiedFunctionPointers`.
pub(crate) const NEWER: [i32; 13] = [
    99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129,
];
/// Reserved integers of the release.
pub(crate) const RESERVED: usize = 63;
/// Size of the structure in C, bytes.
pub(crate) const PROPERTIES_BYTES: usize = 1032;

/// Reserved words of the release in `struct cudaPointerAttributes`: none.
pub(crate) const POINTER_RESERVED: usize = 0;
