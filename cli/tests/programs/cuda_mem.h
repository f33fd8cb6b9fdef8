/* The memory part of the CUDA driver API that the test programs use, declared from its public
 * documentation, and the program's own counts of it. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult, CUdevice;
typedef uint64_t CUdeviceptr;
typedef unsigned CUdeviceptr_v1;
typedef void *CUcontext, *CUstream, *CUevent, *CUarray, *CUmipmappedArray, *CUmemoryPool;
typedef uint64_t CUhandle;

typedef struct { size_t width, height; unsigned format, channels; } ArrayDescriptor;
typedef struct { unsigned width, height, format, channels; } ArrayDescriptor_v1;
typedef struct { size_t width, height, depth; unsigned format, channels, flags; } Array3DDescriptor;
typedef struct { unsigned width, height, depth, format, channels, flags; } Array3DDescriptor_v1;

enum { HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4 };

typedef struct {
    size_t src_x, src_y; unsigned src_type; const void *src_host; CUdeviceptr src_device; CUarray src_array; size_t src_pitch;
    size_t dst_x, dst_y; unsigned dst_type; void *dst_host; CUdeviceptr dst_device; CUarray dst_array; size_t dst_pitch;
    size_t width, height;
} Copy2D;
typedef struct {
    unsigned src_x, src_y, src_type; const void *src_host; CUdeviceptr_v1 src_device; CUarray src_array; unsigned src_pitch;
    unsigned dst_x, dst_y, dst_type; void *dst_host; CUdeviceptr_v1 dst_device; CUarray dst_array; unsigned dst_pitch;
    unsigned width, height;
} Copy2D_v1;
typedef struct {
    size_t src_x, src_y, src_z, src_lod; unsigned src_type; const void *src_host; CUdeviceptr src_device; CUarray src_array;
    void *src_context; size_t src_pitch, src_height;
    size_t dst_x, dst_y, dst_z, dst_lod; unsigned dst_type; void *dst_host; CUdeviceptr dst_device; CUarray dst_array;
    void *dst_context; size_t dst_pitch, dst_height;
    size_t width, height, depth;
} Copy3D;
typedef struct {
    unsigned src_x, src_y, src_z, src_lod, src_type; const void *src_host; CUdeviceptr_v1 src_device; CUarray src_array;
    void *src_context; unsigned src_pitch, src_height;
    unsigned dst_x, dst_y, dst_z, dst_lod, dst_type; void *dst_host; CUdeviceptr_v1 dst_device; CUarray dst_array;
    void *dst_context; unsigned dst_pitch, dst_height;
    unsigned width, height, depth;
} Copy3D_v1;

typedef struct { unsigned type; int id; } Location;
typedef struct { unsigned order; Location src, dst; unsigned flags; } CopyAttributes;
typedef struct { unsigned type; uint64_t words[4]; } Operand;
typedef struct { Operand src, dst; size_t width, height, depth; unsigned order, flags; } BatchOp;
typedef struct {
    unsigned type, handle_types; Location location; void *win32; size_t max_size; unsigned short usage; char reserved[54];
} PoolProps;
typedef struct {
    unsigned type, handle_types; Location location; void *win32; unsigned char compression, rdma; unsigned short usage;
    char reserved[4];
} AllocationProp;
typedef struct { Location location; unsigned flags; } AccessDesc;
typedef struct { char reserved[64]; } IpcHandle;

CUresult cuInit(unsigned);
CUresult cuDeviceGet(CUdevice *, int);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuCtxSynchronize(void);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamDestroy_v2(CUstream);

CUresult cuMemAlloc(CUdeviceptr_v1 *, unsigned);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocPitch(CUdeviceptr_v1 *, unsigned *, unsigned, unsigned, unsigned);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemFree(CUdeviceptr_v1);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemAllocHost(void **, unsigned);
CUresult cuMemAllocHost_v2(void **, size_t);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned);
CUresult cuMemHostGetFlags(unsigned *, void *);
CUresult cuMemHostRegister(void *, size_t, unsigned);
CUresult cuMemHostRegister_v2(void *, size_t, unsigned);
CUresult cuMemHostUnregister(void *);
CUresult cuMemFreeHost(void *);
CUresult cuMemGetInfo(unsigned *, unsigned *);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemGetAddressRange(CUdeviceptr_v1 *, unsigned *, CUdeviceptr_v1);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);
CUresult cuPointerGetAttribute(void *, int, CUdeviceptr);
CUresult cuPointerGetAttributes(unsigned, int *, void **, CUdeviceptr);
CUresult cuPointerSetAttribute(const void *, int, CUdeviceptr);

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
CUresult cuDeviceGetMemPool(CUmemoryPool *, CUdevice);
CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *, Location *, unsigned);
CUresult cuMemGetMemPool(CUmemoryPool *, Location *, unsigned);
CUresult cuMemSetMemPool(Location *, unsigned, CUmemoryPool);
CUresult cuMemPoolCreate(CUmemoryPool *, const PoolProps *);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemPoolGetAttribute(CUmemoryPool, unsigned, void *);
CUresult cuMemPoolSetAttribute(CUmemoryPool, unsigned, void *);
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t);
CUresult cuMemPoolSetAccess(CUmemoryPool, const AccessDesc *, size_t);
CUresult cuMemPoolGetAccess(unsigned *, CUmemoryPool, Location *);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *, size_t, CUstream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);

CUresult cuMemGetAllocationGranularity(size_t *, const AllocationProp *, unsigned);
CUresult cuMemCreate(CUhandle *, size_t, const AllocationProp *, unsigned long long);
CUresult cuMemRelease(CUhandle);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, CUhandle, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const AccessDesc *, size_t);
CUresult cuMemGetAccess(unsigned long long *, const Location *, CUdeviceptr);
CUresult cuMemRetainAllocationHandle(CUhandle *, void *);
CUresult cuMemGetAllocationPropertiesFromHandle(AllocationProp *, CUhandle);
CUresult cuMemExportToShareableHandle(void *, CUhandle, unsigned, unsigned long long);
CUresult cuMemImportFromShareableHandle(CUhandle *, void *, unsigned);
CUresult cuIpcGetMemHandle(IpcHandle *, CUdeviceptr);
CUresult cuIpcOpenMemHandle(CUdeviceptr *, IpcHandle, unsigned);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, IpcHandle, unsigned);
CUresult cuIpcCloseMemHandle(CUdeviceptr);

CUresult cuArrayCreate(CUarray *, const ArrayDescriptor_v1 *);
CUresult cuArrayCreate_v2(CUarray *, const ArrayDescriptor *);
CUresult cuArray3DCreate(CUarray *, const Array3DDescriptor_v1 *);
CUresult cuArray3DCreate_v2(CUarray *, const Array3DDescriptor *);
CUresult cuArrayGetDescriptor(ArrayDescriptor_v1 *, CUarray);
CUresult cuArrayGetDescriptor_v2(ArrayDescriptor *, CUarray);
CUresult cuArray3DGetDescriptor(Array3DDescriptor_v1 *, CUarray);
CUresult cuArray3DGetDescriptor_v2(Array3DDescriptor *, CUarray);
CUresult cuArrayDestroy(CUarray);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *, const Array3DDescriptor *, unsigned);
CUresult cuMipmappedArrayGetLevel(CUarray *, CUmipmappedArray, unsigned);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray);

CUresult cuMemAdvise(CUdeviceptr, size_t, unsigned, CUdevice);
CUresult cuMemAdvise_v2(CUdeviceptr, size_t, unsigned, Location);
CUresult cuMemRangeGetAttribute(void *, size_t, unsigned, CUdeviceptr, size_t);
CUresult cuMemRangeGetAttributes(void **, size_t *, unsigned *, size_t, CUdeviceptr, size_t);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuMemPrefetchAsync_v2(CUdeviceptr, size_t, Location, unsigned, CUstream);
CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr, size_t, Location, unsigned, CUstream);
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *, size_t *, size_t, Location *, size_t *, size_t, unsigned long long, CUstream);
CUresult cuMemDiscardBatchAsync(CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream);
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *, size_t *, size_t, Location *, size_t *, size_t, unsigned long long,
                                           CUstream);

#define FORMS_1D(name, to, from) \
    CUresult name##_v2(to, from, size_t); \
    CUresult name##_v2_ptds(to, from, size_t); \
    CUresult name##Async_v2(to, from, size_t, CUstream); \
    CUresult name##Async_v2_ptsz(to, from, size_t, CUstream);
FORMS_1D(cuMemcpyHtoD, CUdeviceptr, const void *)
FORMS_1D(cuMemcpyDtoH, void *, CUdeviceptr)
FORMS_1D(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr)
CUresult cuMemcpyHtoD(CUdeviceptr_v1, const void *, unsigned);
CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1, const void *, unsigned, CUstream);
CUresult cuMemcpyDtoH(void *, CUdeviceptr_v1, unsigned);
CUresult cuMemcpyDtoHAsync(void *, CUdeviceptr_v1, unsigned, CUstream);
CUresult cuMemcpyDtoD(CUdeviceptr_v1, CUdeviceptr_v1, unsigned);
CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1, CUdeviceptr_v1, unsigned, CUstream);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpy_ptds(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyAsync_ptsz(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyPeer(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
CUresult cuMemcpyPeer_ptds(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);
CUresult cuMemcpyPeerAsync(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream);

CUresult cuMemcpyHtoA(CUarray, unsigned, const void *, unsigned);
CUresult cuMemcpyHtoA_v2(CUarray, size_t, const void *, size_t);
CUresult cuMemcpyHtoAAsync_v2(CUarray, size_t, const void *, size_t, CUstream);
CUresult cuMemcpyAtoH_v2(void *, CUarray, size_t, size_t);
CUresult cuMemcpyAtoHAsync_v2(void *, CUarray, size_t, size_t, CUstream);
CUresult cuMemcpyAtoD_v2(CUdeviceptr, CUarray, size_t, size_t);
CUresult cuMemcpyDtoA_v2(CUarray, size_t, CUdeviceptr, size_t);
CUresult cuMemcpyAtoA_v2(CUarray, size_t, CUarray, size_t, size_t);

CUresult cuMemcpy2D(const Copy2D_v1 *);
CUresult cuMemcpy2DUnaligned(const Copy2D_v1 *);
CUresult cuMemcpy2DAsync(const Copy2D_v1 *, CUstream);
CUresult cuMemcpy2D_v2(const Copy2D *);
CUresult cuMemcpy2D_v2_ptds(const Copy2D *);
CUresult cuMemcpy2DUnaligned_v2(const Copy2D *);
CUresult cuMemcpy2DUnaligned_v2_ptds(const Copy2D *);
CUresult cuMemcpy2DAsync_v2(const Copy2D *, CUstream);
CUresult cuMemcpy2DAsync_v2_ptsz(const Copy2D *, CUstream);
CUresult cuMemcpy3D(const Copy3D_v1 *);
CUresult cuMemcpy3DAsync(const Copy3D_v1 *, CUstream);
CUresult cuMemcpy3D_v2(const Copy3D *);
CUresult cuMemcpy3D_v2_ptds(const Copy3D *);
CUresult cuMemcpy3DAsync_v2(const Copy3D *, CUstream);
CUresult cuMemcpy3DAsync_v2_ptsz(const Copy3D *, CUstream);
CUresult cuMemcpy3DPeer(const Copy3D *);
CUresult cuMemcpy3DPeer_ptds(const Copy3D *);
CUresult cuMemcpy3DPeerAsync(const Copy3D *, CUstream);
CUresult cuMemcpy3DPeerAsync_ptsz(const Copy3D *, CUstream);
CUresult cuMemcpyBatchAsync(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CopyAttributes *, size_t *, size_t, size_t *,
                            CUstream);
CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CopyAttributes *, size_t *, size_t, size_t *,
                                 CUstream);
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CopyAttributes *, size_t *, size_t, CUstream);
CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CopyAttributes *, size_t *, size_t, CUstream);
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr, CUdeviceptr, size_t, CopyAttributes *, CUstream);
CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr, CUdeviceptr, size_t, CopyAttributes *, CUstream);
CUresult cuMemcpy3DBatchAsync(size_t, BatchOp *, size_t *, unsigned long long, CUstream);
CUresult cuMemcpy3DBatchAsync_ptsz(size_t, BatchOp *, size_t *, unsigned long long, CUstream);
CUresult cuMemcpy3DBatchAsync_v2(size_t, BatchOp *, unsigned long long, CUstream);
CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t, BatchOp *, unsigned long long, CUstream);
CUresult cuMemcpy3DWithAttributesAsync(BatchOp *, unsigned long long, CUstream);
CUresult cuMemcpy3DWithAttributesAsync_ptsz(BatchOp *, unsigned long long, CUstream);

#define FORMS_SET(bits, type) \
    CUresult cuMemsetD##bits(CUdeviceptr_v1, type, unsigned); \
    CUresult cuMemsetD##bits##_v2(CUdeviceptr, type, size_t); \
    CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr, type, size_t); \
    CUresult cuMemsetD##bits##Async(CUdeviceptr, type, size_t, CUstream); \
    CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr, type, size_t, CUstream); \
    CUresult cuMemsetD2D##bits(CUdeviceptr_v1, unsigned, type, unsigned, unsigned); \
    CUresult cuMemsetD2D##bits##_v2(CUdeviceptr, size_t, type, size_t, size_t); \
    CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr, size_t, type, size_t, size_t); \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr, size_t, type, size_t, size_t, CUstream); \
    CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr, size_t, type, size_t, size_t, CUstream);
FORMS_SET(8, unsigned char)
FORMS_SET(16, unsigned short)
FORMS_SET(32, unsigned)

/* The program's requests, to be compared with the counts of Pillion and of the device. */
static struct {
    unsigned long allocations, allocated_bytes, frees, host_bytes, copies, h2d_bytes, d2h_bytes, other_bytes, set_bytes;
} asked;

#define CUDA_FAILED 90
#define WRONG_RESULT 92

#define CHECK(call) do { \
        CUresult result_ = (call); \
        if (result_ != 0) { \
            fprintf(stderr, "%s:%d: %s: CUresult %d\n", __FILE__, __LINE__, #call, result_); \
            exit(CUDA_FAILED); \
        } \
    } while (0)

#define EXPECT(code, call) do { \
        CUresult result_ = (call); \
        if (result_ != (code)) { \
            fprintf(stderr, "%s:%d: %s: CUresult %d, not %d\n", __FILE__, __LINE__, #call, result_, code); \
            exit(WRONG_RESULT); \
        } \
    } while (0)

#define SHOW(condition) do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(WRONG_RESULT); \
        } \
    } while (0)

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500,
       ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, NOT_SUPPORTED = 801 };

/* Calls that are counted. */
#define ALLOC(call, size) do { CHECK(call); asked.allocations++; asked.allocated_bytes += (size); } while (0)
#define PIN(call, size) do { CHECK(call); asked.host_bytes += (size); } while (0)
#define FREE(call) do { CHECK(call); asked.frees++; } while (0)
#define H2D(call, size) do { CHECK(call); asked.copies++; asked.h2d_bytes += (size); } while (0)
#define D2H(call, size) do { CHECK(call); asked.copies++; asked.d2h_bytes += (size); } while (0)
#define OTHER(call, size) do { CHECK(call); asked.copies++; asked.other_bytes += (size); } while (0)
#define SET(call, size) do { CHECK(call); asked.set_bytes += (size); } while (0)

static inline void say_asked(void) {
    printf("allocations=%lu allocated_bytes=%lu frees=%lu host_bytes=%lu copies=%lu copied_h2d_bytes=%lu copied_d2h_bytes=%lu "
           "copied_other_bytes=%lu set_bytes=%lu\n", asked.allocations, asked.allocated_bytes, asked.frees, asked.host_bytes,
           asked.copies, asked.h2d_bytes, asked.d2h_bytes, asked.other_bytes, asked.set_bytes);
    fflush(stdout);
}

static inline CUcontext start_context(void) {
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuCtxCreate_v2(&context, 0, device));
    return context;
}

/* Fills a buffer with a pattern that differs from byte to byte and between seeds. */
static inline void pattern(unsigned char *to, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)((i * 7 + seed) % 251);
}
