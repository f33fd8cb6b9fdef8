/* Checks that a runtime fills each field of its properties with the attribute that NVIDIA's header
 * names. It is compiled with the header, and runs with a driver whose attributes are 1000 plus
 * their own number (numbering_driver.c). Prints each wrong field, and their number. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

enum { AFTER = 64, PATTERN = 0x5a };

static struct {
    struct cudaDeviceProp of;
    unsigned char after[AFTER];
} properties;
static int right;

static void check(const char *field, unsigned long long value, int attribute) {
    if (value == 1000ull + (unsigned)attribute)
        right++;
    else
        printf("%s is %llu, not attribute %d\n", field, value, attribute);
}

#define IS(field, attribute) check(#field, (unsigned long long)properties.of.field, cudaDevAttr##attribute)

static void check_limits(void) {
    IS(sharedMemPerBlock, MaxSharedMemoryPerBlock);
    IS(regsPerBlock, MaxRegistersPerBlock);
    IS(warpSize, WarpSize);
    IS(memPitch, MaxPitch);
    IS(maxThreadsPerBlock, MaxThreadsPerBlock);
    IS(maxThreadsDim[0], MaxBlockDimX);
    IS(maxThreadsDim[2], MaxBlockDimZ);
    IS(maxGridSize[0], MaxGridDimX);
    IS(maxGridSize[2], MaxGridDimZ);
    IS(totalConstMem, TotalConstantMemory);
    IS(major, ComputeCapabilityMajor);
    IS(minor, ComputeCapabilityMinor);
    IS(multiProcessorCount, MultiProcessorCount);
    IS(sharedMemPerMultiprocessor, MaxSharedMemoryPerMultiprocessor);
    IS(regsPerMultiprocessor, MaxRegistersPerMultiprocessor);
    IS(maxThreadsPerMultiProcessor, MaxThreadsPerMultiProcessor);
    IS(maxBlocksPerMultiProcessor, MaxBlocksPerMultiprocessor);
    IS(sharedMemPerBlockOptin, MaxSharedMemoryPerBlockOptin);
    IS(reservedSharedMemPerBlock, ReservedSharedMemoryPerBlock);
    IS(l2CacheSize, L2CacheSize);
    IS(persistingL2CacheMaxSize, MaxPersistingL2CacheSize);
    IS(accessPolicyMaxWindowSize, MaxAccessPolicyWindowSize);
    IS(memoryBusWidth, GlobalMemoryBusWidth);
}

static void check_textures(void) {
    IS(textureAlignment, TextureAlignment);
    IS(texturePitchAlignment, TexturePitchAlignment);
    IS(surfaceAlignment, SurfaceAlignment);
    IS(maxTexture1D, MaxTexture1DWidth);
    IS(maxTexture1DMipmap, MaxTexture1DMipmappedWidth);
    IS(maxTexture2D[0], MaxTexture2DWidth);
    IS(maxTexture2D[1], MaxTexture2DHeight);
    IS(maxTexture2DMipmap[0], MaxTexture2DMipmappedWidth);
    IS(maxTexture2DMipmap[1], MaxTexture2DMipmappedHeight);
    IS(maxTexture2DLinear[0], MaxTexture2DLinearWidth);
    IS(maxTexture2DLinear[2], MaxTexture2DLinearPitch);
    IS(maxTexture2DGather[0], MaxTexture2DGatherWidth);
    IS(maxTexture2DGather[1], MaxTexture2DGatherHeight);
    IS(maxTexture3D[0], MaxTexture3DWidth);
    IS(maxTexture3D[2], MaxTexture3DDepth);
    IS(maxTexture3DAlt[0], MaxTexture3DWidthAlt);
    IS(maxTexture3DAlt[2], MaxTexture3DDepthAlt);
    IS(maxTextureCubemap, MaxTextureCubemapWidth);
    IS(maxTexture1DLayered[0], MaxTexture1DLayeredWidth);
    IS(maxTexture1DLayered[1], MaxTexture1DLayeredLayers);
    IS(maxTexture2DLayered[0], MaxTexture2DLayeredWidth);
    IS(maxTexture2DLayered[2], MaxTexture2DLayeredLayers);
    IS(maxTextureCubemapLayered[0], MaxTextureCubemapLayeredWidth);
    IS(maxTextureCubemapLayered[1], MaxTextureCubemapLayeredLayers);
    IS(maxSurface1D, MaxSurface1DWidth);
    IS(maxSurface2D[0], MaxSurface2DWidth);
    IS(maxSurface3D[2], MaxSurface3DDepth);
    IS(maxSurface1DLayered[0], MaxSurface1DLayeredWidth);
    IS(maxSurface2DLayered[2], MaxSurface2DLayeredLayers);
    IS(maxSurfaceCubemap, MaxSurfaceCubemapWidth);
    IS(maxSurfaceCubemapLayered[1], MaxSurfaceCubemapLayeredLayers);
}

static void check_features(void) {
    IS(integrated, Integrated);
    IS(canMapHostMemory, CanMapHostMemory);
    IS(concurrentKernels, ConcurrentKernels);
    IS(ECCEnabled, EccEnabled);
    IS(pciBusID, PciBusId);
    IS(pciDeviceID, PciDeviceId);
    IS(pciDomainID, PciDomainId);
    IS(tccDriver, TccDriver);
    IS(asyncEngineCount, AsyncEngineCount);
    IS(unifiedAddressing, UnifiedAddressing);
    IS(streamPrioritiesSupported, StreamPrioritiesSupported);
    IS(globalL1CacheSupported, GlobalL1CacheSupported);
    IS(localL1CacheSupported, LocalL1CacheSupported);
    IS(managedMemory, ManagedMemory);
    IS(isMultiGpuBoard, IsMultiGpuBoard);
    IS(multiGpuBoardGroupID, MultiGpuBoardGroupID);
    IS(hostNativeAtomicSupported, HostNativeAtomicSupported);
    IS(pageableMemoryAccess, PageableMemoryAccess);
    IS(concurrentManagedAccess, ConcurrentManagedAccess);
    IS(computePreemptionSupported, ComputePreemptionSupported);
    IS(canUseHostPointerForRegisteredMem, CanUseHostPointerForRegisteredMem);
    IS(cooperativeLaunch, CooperativeLaunch);
    IS(pageableMemoryAccessUsesHostPageTables, PageableMemoryAccessUsesHostPageTables);
    IS(directManagedMemAccessFromHost, DirectManagedMemAccessFromHost);
    IS(hostRegisterSupported, HostRegisterSupported);
    IS(sparseCudaArraySupported, SparseCudaArraySupported);
    IS(hostRegisterReadOnlySupported, HostRegisterReadOnlySupported);
    IS(timelineSemaphoreInteropSupported, TimelineSemaphoreInteropSupported);
    IS(memoryPoolsSupported, MemoryPoolsSupported);
    IS(gpuDirectRDMASupported, GPUDirectRDMASupported);
    IS(gpuDirectRDMAFlushWritesOptions, GPUDirectRDMAFlushWritesOptions);
    IS(gpuDirectRDMAWritesOrdering, GPUDirectRDMAWritesOrdering);
    IS(memoryPoolSupportedHandleTypes, MemoryPoolSupportedHandleTypes);
    IS(deferredMappingCudaArraySupported, DeferredMappingCudaArraySupported);
    IS(ipcEventSupported, IpcEventSupport);
    IS(clusterLaunch, ClusterLaunch);
}

/* Fields of one release only. */
static void check_release(void) {
#if CUDART_VERSION < 13000
    IS(clockRate, ClockRate);
    IS(deviceOverlap, GpuOverlap);
    IS(kernelExecTimeoutEnabled, KernelExecTimeout);
    IS(computeMode, ComputeMode);
    IS(maxTexture1DLinear, MaxTexture1DLinearWidth);
    IS(memoryClockRate, MemoryClockRate);
    IS(singleToDoublePrecisionPerfRatio, SingleToDoublePrecisionPerfRatio);
    IS(cooperativeMultiDeviceLaunch, CooperativeMultiDeviceLaunch);
#else
    IS(deviceNumaConfig, NumaConfig);
    IS(deviceNumaId, NumaId);
    IS(mpsEnabled, MpsEnabled);
    IS(hostNumaId, HostNumaId);
    IS(gpuPciDeviceID, GpuPciDeviceId);
    IS(gpuPciSubsystemID, GpuPciSubsystemId);
    IS(hostNumaMultinodeIpcSupported, HostNumaMultinodeIpcSupported);
#endif
    /* The runtime's header has no name for it, but `cuda.h` has. */
    check("unifiedFunctionPointers", (unsigned)properties.of.unifiedFunctionPointers, 129);
}

int main(void) {
    memset(&properties, PATTERN, sizeof properties);
    int error = cudaGetDeviceProperties(&properties.of, 0);
    if (error != 0) {
        printf("cudaGetDeviceProperties: %s\n", cudaGetErrorName(error));
        return 1;
    }
    check_limits();
    check_textures();
    check_features();
    check_release();
    int past = 0, reserved = 0;
    for (int at = 0; at < AFTER; at++) past += properties.after[at] != PATTERN;
    for (size_t at = 0; at < sizeof properties.of.reserved; at++)
        reserved += ((const char *)properties.of.reserved)[at] != 0;
    printf("%s, %.4s, %zu GiB\n", properties.of.name, properties.of.uuid.bytes, properties.of.totalGlobalMem >> 30);
    printf("%d fields are right, %d bytes written past the end, %d reserved\n", right, past, reserved);
    return 0;
}
