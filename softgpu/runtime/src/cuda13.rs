//! The differences of CUDA 13 from CUDA 12: the release, and its structures. The lists are
//! attributes by the numbers of `cuda.h`, in the order of the fields of `struct cudaDeviceProp` in
//! `driver_types.h`; each has the integers between two fields of another type.

use std::ffi::c_int;

/// Result of `cudaRuntimeGetVersion`: the release of the headers used.
pub(crate) const VERSION: c_int = 13_020;

/// From `maxThreadsPerBlock` to `maxGridSize`.
pub(crate) const GRID: [i32; 7] = [1, 2, 3, 4, 5, 6, 7];
/// From `multiProcessorCount` to `maxSurfaceCubemapLayered`.
pub(crate) const TEXTURES: [i32; 42] = [
    16, 18, 19, 21, 77, 22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49, 52, 42, 43, 27,
    28, 29, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68,
];
/// From `concurrentKernels` to `localL1CacheSupported`.
pub(crate) const FEATURES: [i32; 15] =
    [31, 32, 33, 34, 50, 35, 40, 41, 37, 38, 108, 39, 78, 79, 80];
/// From `regsPerMultiprocessor` to `cooperativeLaunch`.
pub(crate) const MEMORY: [i32; 10] = [82, 83, 84, 85, 86, 88, 89, 90, 91, 95];
/// From `hostRegisterSupported` to `hostNumaMultinodeIpcSupported`.
pub(crate) const NEWER: [i32; 20] = [
    99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129, 130, 131, 133, 134, 139, 140,
    143,
];
/// Reserved integers of the release.
pub(crate) const RESERVED: usize = 56;
/// Size of the structure in C, bytes.
pub(crate) const PROPERTIES_BYTES: usize = 1008;

/// Reserved words of the release in `struct cudaPointerAttributes`.
pub(crate) const POINTER_RESERVED: usize = 8;
