/* Memory is a resource of the device: allocations fail when it is full, and attributes of addresses
 * can be queried. */
#include "cuda_min.h"

typedef struct pool *Pool;
typedef struct { unsigned type; int id; } Location;
typedef struct { unsigned type, handle_types; Location location; void *win32; size_t max_size; char reserved[56]; } PoolProps;
typedef struct { unsigned type, handle_types; Location location; void *win32; char flags[8]; } AllocationProp;
typedef struct { size_t width, height; unsigned format, channels; } ArrayDescriptor;

CUresult cuDeviceGetDefaultMemPool(Pool *, CUdevice);
CUresult cuMemPoolCreate(Pool *, const PoolProps *);
CUresult cuMemPoolDestroy(Pool);
CUresult cuMemPoolSetAttribute(Pool, unsigned, void *);
CUresult cuMemPoolTrimTo(Pool, size_t);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, Pool, CUstream);
CUresult cuMemCreate(uint64_t *, size_t, const AllocationProp *, unsigned long long);
CUresult cuMemRelease(uint64_t);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuArrayCreate_v2(void **, const ArrayDescriptor *);
CUresult cuMemHostRegister_v2(void *, size_t, unsigned);
CUresult cuMemHostUnregister(void *);
CUresult cuPointerGetAttributes(unsigned, int *, void **, CUdeviceptr);
CUresult cuPointerSetAttribute(const void *, int, CUdeviceptr);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuMemGetHandleForAddressRange(void *, CUdeviceptr, size_t, int, unsigned long long);

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);

static void full(void) {
    CUdeviceptr memory, more, pieces[3];
    CUstream stream;
    size_t free_bytes, total;
    uint64_t handle, keep = UINT64_MAX;
    Pool pool;
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    PoolProps props = {.type = 1, .location = {1, 0}}, small = {.type = 1, .location = {1, 0}, .max_size = 1 << 20};
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemGetInfo_v2(&free_bytes, &total));
    SHOW(free_bytes == total);
    size_t third = total / 3 & ~(size_t)((2 << 20) - 1);

    /* All kinds of allocations take memory of the same device. */
    DO(cuMemCreate(&handle, third, &prop, 0));
    DO(cuMemAlloc_v2(&memory, third));
    DO(cuDeviceGetDefaultMemPool(&pool, 0));
    DO(cuMemAllocFromPoolAsync(&more, third, pool, stream));
    DO(cuMemGetInfo_v2(&free_bytes, &total));
    SHOW(free_bytes == total - 3 * third);
    WANT(OUT_OF_MEMORY, cuMemAlloc_v2(&pieces[0], third));
    WANT(OUT_OF_MEMORY, cuMemAllocAsync(&pieces[0], third, stream));
    WANT(OUT_OF_MEMORY, cuMemCreate(&handle, third, &prop, 0));
    size_t pitch;
    WANT(OUT_OF_MEMORY, cuMemAllocPitch_v2(&pieces[0], &pitch, 1 << 20, third >> 20, 4));
    WANT(OUT_OF_MEMORY, cuMemAllocPitch_v2(&pieces[0], &pitch, SIZE_MAX, 2, 4));
    void *array;
    ArrayDescriptor vast = {1 << 17, third >> 17, 1, 1};
    WANT(OUT_OF_MEMORY, cuArrayCreate_v2(&array, &vast));
    WANT(OUT_OF_MEMORY, cuMemAlloc_v2(&pieces[0], SIZE_MAX));
    WANT(OUT_OF_MEMORY, cuMemAllocAsync(&pieces[0], SIZE_MAX - 5, stream));

    /* An allocation waits for memory whose free is pending. */
    DO(cuMemFreeAsync(more, stream));
    DO(cuMemAllocAsync(&more, third, stream));
    DO(cuMemFreeAsync(more, stream));
    DO(cuMemFree_v2(memory));
    DO(cuMemRelease(handle));
    DO(cuStreamSynchronize(stream));
    DO(cuMemGetInfo_v2(&free_bytes, &total));
    SHOW(free_bytes == total);

    /* Memory that a pool keeps is not free; trimming the pool releases it. */
    DO(cuMemPoolCreate(&pool, &props));
    DO(cuMemPoolSetAttribute(pool, 4, &keep));
    DO(cuMemAllocFromPoolAsync(&more, third, pool, stream));
    DO(cuMemFreeAsync(more, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuMemGetInfo_v2(&free_bytes, &total));
    SHOW(free_bytes <= total - third);
    DO(cuMemPoolTrimTo(pool, 0));
    DO(cuMemGetInfo_v2(&free_bytes, &total));
    SHOW(free_bytes == total);
    DO(cuMemPoolDestroy(pool));
    DO(cuMemPoolCreate(&pool, &small));
    WANT(OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&more, 2 << 20, pool, stream));
    DO(cuMemAllocFromPoolAsync(&more, 1 << 20, pool, stream));
    DO(cuMemFreeAsync(more, stream));
    DO(cuMemPoolDestroy(pool));
    props.location.type = 9;
    WANT(INVALID_VALUE, cuMemPoolCreate(&pool, &props));
    props.location.type = 1;
    props.handle_types = 1;
    WANT(NOT_SUPPORTED, cuMemPoolCreate(&pool, &props));
    WANT(INVALID_VALUE, cuMemPoolCreate(&pool, NULL));
    WANT(INVALID_VALUE, cuMemPoolCreate(NULL, &props));
    DO(cuStreamDestroy_v2(stream));
}

/* A free in stream order takes effect after earlier work. */
static void in_order(void) {
    CUdeviceptr memory, result;
    CUstream stream;
    float value = 7, back[1000];
    unsigned n = 1000;
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemAlloc_v2(&result, sizeof back));
    CUfunction f = function("fill");
    for (int round = 0; round < 50; round++) {
        DO(cuMemAllocAsync(&memory, sizeof back, stream));
        value = (float)round;
        run(f, 4, stream, (void *[]){&memory, &value, &n});
        DO(cuMemcpyDtoDAsync_v2(result, memory, sizeof back, stream));
        DO(cuMemFreeAsync(memory, stream));
        WANT(INVALID_VALUE, cuMemcpyDtoH_v2(back, memory, 4));
        DO(cuMemcpyDtoHAsync_v2(back, result, sizeof back, stream));
        DO(cuStreamSynchronize(stream));
        SHOW(back[0] == value && back[999] == value);
    }
    DO(cuMemFree_v2(result));
    DO(cuStreamDestroy_v2(stream));
}

static void pointers(CUcontext context) {
    CUdeviceptr memory, managed, base;
    void *pinned;
    char own[100];
    int kind, ordinal;
    char flag, yes = 1;
    size_t size;
    CUcontext of;
    Pool pool, standard;
    DO(cuMemAlloc_v2(&memory, 1000));
    DO(cuMemAllocManaged(&managed, 1000, 1));
    DO(cuMemHostAlloc(&pinned, 1000, 0));
    DO(cuMemHostRegister_v2(own, sizeof own, 0));
    DO(cuPointerGetAttribute(&of, 1, memory + 5));
    SHOW(of == context);
    DO(cuPointerGetAttribute(&kind, 2, memory));
    SHOW(kind == 2);
    DO(cuPointerGetAttribute(&kind, 2, managed));
    SHOW(kind == 2);
    DO(cuPointerGetAttribute(&kind, 2, (CUdeviceptr)own));
    SHOW(kind == 1);
    DO(cuPointerGetAttribute(&flag, 8, managed));
    SHOW(flag == 1);
    DO(cuPointerGetAttribute(&flag, 8, memory));
    SHOW(flag == 0);
    DO(cuPointerGetAttribute(&base, 11, memory + 999));
    DO(cuPointerGetAttribute(&size, 12, memory + 999));
    SHOW(base == memory && size == 1000);
    WANT(INVALID_VALUE, cuPointerGetAttribute(&base, 4, memory));
    WANT(INVALID_VALUE, cuPointerGetAttribute(&base, 1, memory + 100000));
    WANT(INVALID_VALUE, cuPointerGetAttribute(NULL, 1, memory));
    WANT(INVALID_VALUE, cuPointerGetAttribute(&base, 999, memory));
    WANT(NOT_SUPPORTED, cuMemHostGetDevicePointer_v2(&base, own, 0));
    WANT(INVALID_VALUE, cuMemHostGetDevicePointer_v2(&base, &kind, 0));

    /* Several attributes at once: those without a meaning are zero or a default, not an error. */
    int attributes[] = {2, 9, 12};
    void *to[] = {&kind, &ordinal, &size};
    DO(cuPointerGetAttributes(3, attributes, to, memory));
    SHOW(kind == 2 && ordinal == 0 && size == 1000);
    DO(cuPointerGetAttributes(3, attributes, to, (CUdeviceptr)&kind));
    SHOW(kind == 0 && ordinal == -2 && size == 0);
    WANT(INVALID_VALUE, cuPointerGetAttributes(3, NULL, to, memory));
    DO(cuPointerSetAttribute(&yes, 6, memory));
    DO(cuPointerGetAttribute(&flag, 6, memory));
    SHOW(flag == 1);
    WANT(INVALID_VALUE, cuPointerSetAttribute(&yes, 2, memory));
    WANT(INVALID_VALUE, cuPointerSetAttribute(&yes, 6, (CUdeviceptr)own));
    DO(cuPointerGetAttribute(&pool, 17, memory));
    SHOW(pool == NULL);
    DO(cuMemAllocAsync(&base, 10, NULL));
    DO(cuDeviceGetDefaultMemPool(&standard, 0));
    DO(cuPointerGetAttribute(&pool, 17, base));
    SHOW(pool == standard);
    DO(cuMemFree_v2(base));
    DO(cuMemHostUnregister(own));
    DO(cuMemFreeHost(pinned));
    DO(cuMemFree_v2(managed));
    DO(cuMemFree_v2(memory));
    WANT(NOT_SUPPORTED, cuMemGetHandleForAddressRange(&kind, memory, 10, 1, 0));
}

int main(void) {
    CUcontext context = start();
    full();
    in_order();
    pointers(context);
    /* A context's memory is freed with it. */
    CUcontext second;
    CUdeviceptr memory;
    size_t free_bytes, total;
    DO(cuCtxCreate_v2(&second, 0, 0));
    DO(cuMemAllocAsync(&memory, 1 << 20, NULL));
    DO(cuMemAllocManaged(&memory, 1 << 20, 1));
    DO(cuMemAlloc_v2(&memory, 1 << 20));
    DO(cuCtxDestroy_v2(second));
    DO(cuMemGetInfo_v2(&free_bytes, &total));
    SHOW(free_bytes == total);
    return 0;
}
